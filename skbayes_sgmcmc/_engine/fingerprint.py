"""Identity of a fit: a digest of its data and parameters, and a probe of its functions.

Functions cannot be hashed: two modules of the same class, or two log densities, may compute
different things. A :func:`probe` therefore evaluates them once, at fixed positions and with fixed
random numbers, and a checkpoint stores the results.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from .. import __version__
from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._data.rows import StoredCSR, StoredRows
from .._sklearn import BaseEstimator
from .target import Evaluator

if TYPE_CHECKING:
    from .._data.minibatch import Minibatches
    from ..samplers import Sampler
    from .target import Target


def versions() -> dict[str, str]:
    """Versions of the packages that decide which numbers a fit draws."""
    ours = {"skbayes_sgmcmc": __version__}
    return ours | {"torch": str(torch.__version__), "numpy": np.__version__}


def fingerprint(*parts: Any) -> str:
    """A digest of data and parameters that is the same in another process."""
    digest = hashlib.sha256()
    for part in parts:
        _update(digest, part)
    return digest.hexdigest()


def _update(digest: Any, part: Any) -> None:
    if isinstance(part, np.ndarray | torch.Tensor):
        values = np.asarray(part.cpu() if isinstance(part, torch.Tensor) else part)
        digest.update(f"{values.dtype}{values.shape}".encode())
        digest.update(values.tobytes())
    elif isinstance(part, StoredRows):
        # how they are read decides which minibatches there are
        digest.update(f"{part.dtype}{part.shape}{part.searched}{part.run}".encode())
        for _, values in part.blocks():
            digest.update(values.tobytes())
    elif isinstance(part, StoredCSR):
        _update(digest, part.matrix)
    elif sp.issparse(part):
        _update(digest, [part.data, part.indices, part.indptr, part.shape])
    elif isinstance(part, dict):
        for key in sorted(part):
            digest.update(str(key).encode())
            _update(digest, part[key])
    elif isinstance(part, list | tuple):
        for item in part:
            _update(digest, item)
    elif isinstance(part, BaseEstimator):
        digest.update(type(part).__name__.encode())
        _update(digest, part.get_params(deep=False))
    elif isinstance(part, np.random.SeedSequence):
        _update(digest, [part.entropy, part.spawn_key])
    elif hasattr(part, "__dict__") and not callable(part):
        digest.update(type(part).__name__.encode())
        # attributes with names that begin with _ are caches, which may or may not be filled
        held = {k: v for k, v in vars(part).items() if not callable(v) and k[0] != "_"}
        _update(digest, held)
    elif isinstance(part, partial):
        _update(digest, [part.func, part.args, part.keywords])
    elif callable(part) or _shows_its_address(part):  # what functions do is told by probes
        digest.update(getattr(part, "__qualname__", type(part).__qualname__).encode())
    elif isinstance(part, set | frozenset):
        _update(digest, sorted(map(repr, part)))  # their order differs between processes
    else:
        digest.update(repr(part).encode())


def _shows_its_address(part: Any) -> bool:
    """Whether the text of an object is that of ``object``, which is another in each process."""
    text: Any = type(part).__repr__
    return text is object.__repr__


def probe(target: Target, sampler: Sampler, minibatches: Minibatches) -> dict[str, Array]:
    """Evaluate the model's functions at fixed positions, with fixed random numbers.

    Returns gradients, densities, augmented rows and the steps of latent variables, as arrays by
    name. Fits with equal parameters but different functions have different probes.
    """
    model = target.model
    minibatches = minibatches.in_precision(None)  # single precision differs between processors
    phi, rng = probe_starts(target)
    theta = target.to_theta(phi).clone()
    state = model.init_state(theta)
    evaluator = Evaluator(target, minibatches, rng, state, split=sampler.needs_likelihood_gradient)
    evaluator.batch = batch = next(minibatches.chunk(minibatches.indices(1, rng), 1, rng))
    with torch.no_grad():
        found = {"gradient": evaluator.gradient(phi).clone()}
        if target.data.augment is not None:
            found |= {f"rows/{name}": rows for name, rows in batch.fields.items()}
        densities = {
            "prior": partial(model.log_prior, theta),
            "likelihood": partial(model.log_lik, theta, batch),
        }
        for name, density in densities.items():
            try:
                found[name] = density()
            except NotImplementedError:
                continue  # the model has only gradients
        if model.metric is not None:
            found["metric"] = model.metric(theta).times(torch.ones_like(theta))
        if model.after_step is not None:
            model.after_step(theta, state, evaluator.aux, 0, rng, 1.0)
            found |= {"after": theta} | {f"after/{name}": part for name, part in state.items()}
    return {name: summary(values) for name, values in found.items()}


def probe_starts(target: Target) -> tuple[torch.Tensor, ChainRandom]:
    """The two fixed positions phi of a probe, and its random numbers."""
    model, like = target.model, target.like
    seeds = np.random.SeedSequence(0).spawn(2)
    starts = np.stack([model.init(np.random.default_rng(seed)) for seed in seeds])
    phi = target.from_theta(torch.from_numpy(starts).to(like)).clone()
    return phi, ChainRandom(seeds, str(like.device))


def summary(values: torch.Tensor) -> Array:
    """Mean absolute value, root mean square and 256 evenly spaced entries: a probe stays small."""
    flat = np.asarray(values.detach().double().cpu()).reshape(-1)
    if flat.size == 0:
        return flat
    chosen = flat[np.linspace(0, flat.size - 1, min(flat.size, 256)).astype(int)]
    with np.errstate(all="ignore"):
        return np.array([np.abs(flat).mean(), np.sqrt(np.square(flat).mean()), *chosen])


def same_probe(a: dict[str, Array], b: dict[str, Array], precision: float) -> bool:
    """Whether two probes agree up to the square root of the ``precision`` of their numbers.

    This tolerance allows for other orders of summation on other processors.
    """
    return a.keys() == b.keys() and all(_close(a[name], b[name], precision**0.5) for name in a)


def _close(a: Array, b: Array, tolerance: float) -> bool:
    if a.shape != b.shape:
        return False
    largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return bool(np.allclose(a, b, rtol=0.0, atol=tolerance * largest, equal_nan=True))
