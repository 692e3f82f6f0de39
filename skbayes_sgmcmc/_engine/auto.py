"""What "auto" means: centre, preconditioner, gradient estimator, step size, starts, thinning.

With ``step_size="auto"`` the posterior is first approximated by a Gaussian N(m, H^-1). In the
coordinates theta = m + root phi, root root' = (H/N)^-1, the posterior is close to N(0, I/N),
whatever the scale and correlation of the features, so one dimensionless step size per sampler x
integrator serves all data sets (the table in ``samplers/__init__.py``). The gradient is estimated
by linear control variates ("taylor") on minibatches drawn with probabilities that follow the size
of each row's remainder, and the minibatch is as large as its noise needs.

Beyond ``FULL_HESSIAN_LIMIT`` parameters the preconditioner is the curvature's diagonal, the step is
divided by the largest curvature left (power iteration), and control variates are of first order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray

from .._data.chain_random import ChainRandom
from .._data.minibatch import Data, Minibatches, tensor_like
from .._validation import check_choice
from ..diagnostics import largest_eigenvalue, largest_score_variance
from ..models._linalg import inverse_root
from ..models._protocol import Model
from ..samplers import Cell
from ..samplers._protocol import Sampler
from .target import GRADIENTS, Target

Array = NDArray[Any]

FULL_HESSIAN_LIMIT = 2000
#: data of at most this many numbers are used whole at every step when "auto"
FULL_BATCH_NUMBERS = 2**15
#: ratio of gradient noise to injected noise (alpha_t) at which "auto" keeps the minibatch: the
#: variance in the worst direction is then inflated by at most so much
NOISE_RATIO = 0.1
#: typical curvature of the whitened posterior up to which the table's step sizes are taken as they
#: are: sds are then right to about 5% (measured on wine, breast_cancer and digits)
CURVATURE_LIMIT = 2.0
#: step of samplers in a model's metric, times the largest curvature; draws to measure noise at
METRIC_STEP, TYPICAL_DRAWS = 0.2, 3
#: smallest minibatch and rows looked at to measure the noise
SMALLEST_BATCH, NOISE_ROWS = 100, 2000
#: draws kept of each chain by ``n_draws="auto"``, and the bytes it may use
AUTO_DRAWS, AUTO_BYTES = 1000, 2**30


@dataclass
class AutoValues:
    """The resolved values of the "auto" parameters; plain arrays, so that it can be stored."""

    gradient: str
    init: Any
    center: Array | None = None
    root: Array | None = None
    step_size: float | None = None
    batch_size: int | None = None


def warm_up(
    model: Model,
    data: Data,
    sampler: Sampler,
    cell: Cell,
    settings: Any,
    temperature: float,
    *,
    stream: bool = False,
) -> AutoValues:
    """Resolve centre, preconditioner, gradient estimator, starts and step size.

    ``stream`` says that later calls bring other rows, which rules out control variates.
    """
    auto, preconditioner = settings.auto, settings.preconditioner
    gradient, init = settings.gradient, settings.init
    check_choice("gradient", gradient, ["auto", *GRADIENTS])
    if isinstance(init, str):
        check_choice("init", init, ("auto", "random", "map", "gaussian"))
    if isinstance(preconditioner, str):
        check_choice("preconditioner", preconditioner, ("auto", "hessian", "diagonal"))
    elif preconditioner is not None and _by_itself(sampler, model):
        raise ValueError(
            f"preconditioner={preconditioner!r} is not allowed with {type(sampler).__name__}, "
            "which preconditions by itself: give preconditioner=None."
        )
    if (
        model.after_step is not None
        and preconditioner is not None
        and not _is(preconditioner, "auto")
    ):
        raise ValueError(
            f"preconditioner={preconditioner!r} is not allowed with {type(model).__name__}, whose "
            "latent variables move at every step: give preconditioner=None."
        )
    if (
        model.many_modes
        and (preconditioner is None or _is(preconditioner, "auto"))
        and gradient in ("auto", "minibatch")
    ):
        if auto and cell.rate is None:
            raise ValueError(
                f"step_size='auto' is not allowed with {type(sampler).__name__} and this "
                f"integrator on {type(model).__name__}: give a number, or sampler='psgld'."
            )
        warm = AutoValues("minibatch", _own_init(init, auto, model.start))
        if auto:
            warm.step_size = model.auto_step(cell.rate, cell.step, data)
            if preconditioner is not None and not _by_itself(sampler, model):
                warm.root = model.scales()
        return warm
    if _is(preconditioner, "auto"):
        preconditioner = _auto_preconditioner(model, sampler) if auto else None
    center, root = _center_and_root(model, data, preconditioner, temperature)
    if not auto:
        gradient = "minibatch" if gradient == "auto" else gradient
        init = "random" if _is(init, "auto") else init
    if _is(init, "auto"):
        init = "map" if root is None else "gaussian"
    full_matrix = root is not None and root.ndim == 2
    gradient = _gradient(gradient, sampler, stream=stream, full_matrix=full_matrix)
    at_center = _is(init, "map") or (_is(init, "gaussian") and model.metric is not None)
    if center is None and (auto or GRADIENTS[gradient] or at_center):
        center = model.find_map(data)
        if center is None:
            raise ValueError(
                "step_size='auto', control variates and init='map' are not allowed: "
                f"{type(model).__name__} has no MAP; give step_size a number, gradient='minibatch' "
                "and init='random'."
            )
    warm = AutoValues(gradient, init, center, root)
    if auto:
        if sampler.uses_metric(model.metric):
            _set_metric_step(model, data, sampler, warm, settings, temperature, stream=stream)
        else:
            warm.step_size = _step_size(model, data, sampler, cell, warm, temperature)
    return warm


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word


def _own_init(init: Any, auto: bool, start: str) -> Any:
    if _is(init, "auto"):
        return start if auto else "random"
    if _is(init, "gaussian"):
        raise ValueError(
            "init='gaussian' is not allowed: there is no Gaussian approximation of a posterior of "
            "many modes; give 'random', 'map' or an array."
        )
    return init


def _by_itself(sampler: Sampler, model: Model) -> bool:
    """Whether the sampler preconditions by itself, or by the model's metric."""
    return sampler.self_preconditioned or sampler.uses_metric(model.metric)


def _auto_preconditioner(model: Model, sampler: Sampler) -> str | None:
    if _by_itself(sampler, model):
        return None
    return "hessian" if model.n_parameters <= FULL_HESSIAN_LIMIT else "diagonal"


def _center_and_root(
    model: Model, data: Data, preconditioner: Any, temperature: float
) -> tuple[Array | None, Array | None]:
    """Centre, and root of the preconditioner M of the mean potential: (P, P), (P,) or None."""
    if preconditioner is None:
        return None, None
    if not isinstance(preconditioner, str):
        return None, _given_root(np.asarray(preconditioner, dtype=float), model.n_parameters)
    if preconditioner == "hessian":
        fitted = model.fit_gaussian(data, temperature)
        if fitted is not None:
            return fitted[0], inverse_root(fitted[1] / data.total)
    center = model.find_map(data)
    diagonal = None if center is None else model.hessian_diagonal(center, data)
    if preconditioner == "diagonal" and center is not None and diagonal is not None:
        return center, 1.0 / np.sqrt((diagonal + model.prior_hessian(center)) / data.total)
    raise ValueError(
        f"preconditioner={preconditioner!r} is not allowed: {type(model).__name__} has no "
        "curvature; give preconditioner=None or an array."
    )


def _gradient(gradient: str, sampler: Sampler, *, stream: bool, full_matrix: bool) -> str:
    if gradient != "auto":
        if stream and GRADIENTS[gradient]:
            raise ValueError(
                f"gradient={gradient!r} is not allowed in partial_fit: its control variates need "
                "all rows; give gradient='minibatch' or 'auto'."
            )
        return gradient
    if stream or sampler.full_data or sampler.self_preconditioned:
        return "minibatch"
    return "linear_control_variates" if full_matrix else "control_variates"


def minibatches(
    target: Target,
    sampler: Sampler,
    warm: AutoValues,
    *,
    batch_size: int | str,
    shared: bool,
    temperature: float,
) -> Minibatches:
    """The minibatches of a run: of the given size, or as large as their noise needs."""
    model, data = target.model, target.data
    probability = None
    if warm.gradient == "linear_control_variates" and warm.root is not None:
        probability = _importance(model, data, warm.root)
    if sampler.full_data:
        size = data.n_rows
    elif not isinstance(batch_size, str):
        size = int(batch_size)
    elif warm.step_size is not None and _fits_whole(data):
        size = data.n_rows
    elif warm.batch_size is not None:
        size = warm.batch_size
    elif warm.step_size is None or model.many_modes:
        size = 100
    elif probability is not None:
        size = _size_for_noise(target, sampler, warm, probability, temperature)
    else:
        size = _plain_size(data.n_rows)
    return Minibatches(data, size, shared=shared, probability=probability)


def _fits_whole(data: Data) -> bool:
    return data.n_rows * Minibatches(data, 1).numbers <= FULL_BATCH_NUMBERS


def _plain_size(n_rows: int) -> int:
    """The minibatch without linear control variates: larger for more rows, but affordable."""
    return min(max(256, n_rows // 50), 1024)


def _importance(model: Model, data: Data, root: Array) -> Array | None:
    """Row probabilities that follow the size of what the linear control variates leave of each row.

    That is about w_i |s''| dz_i^2 |x_i| / 2 in the coordinates phi, where the logit moves by dz_i,
    whose sd is proportional to |x_i|: so w_i |x_i|^3. A floor keeps every importance weight below
    10.
    """
    leverage = model.leverage(root, data)
    if leverage is None:
        return None
    size = leverage**1.5
    if data.weight is not None:
        size = size * data.weight.double().cpu().numpy()
    return np.asarray(0.9 * size / size.sum() + 0.1 / data.n_rows)


def _size_for_noise(
    target: Target,
    sampler: Sampler,
    warm: AutoValues,
    probability: Array,
    temperature: float,
) -> int:
    """The minibatch at which alpha_t is ``NOISE_RATIO``, measured at draws of the approximation."""
    model, data = target.model, target.data
    assert target.coordinates is not None and warm.step_size is not None
    rng = np.random.default_rng(0)
    n_rows = data.n_rows
    rows = rng.choice(n_rows, min(NOISE_ROWS, n_rows), p=probability / probability.sum())
    view = Minibatches(data, len(rows) - 1, shared=True, probability=probability)
    (batch,) = view.gather(rows[None, None], ChainRandom([]))
    weight = np.asarray(torch.as_tensor(batch.weight).double().cpu())[:, None]
    largest = 0.0
    for _ in range(2):
        phi = math.sqrt(temperature / target.n) * rng.standard_normal((1, model.n_parameters))
        theta = target.to_theta(torch.from_numpy(phi).to(target.like))
        with torch.no_grad():
            scores = np.asarray(model.scores(theta, batch).double().cpu())
        # one row's estimate of the mean gradient, in phi
        gradient = scores * weight * (n_rows * data.scale / target.n) @ warm.root
        second_moment = np.linalg.norm(gradient, ord=2) ** 2 / len(rows)
        largest = max(largest, float(second_moment))
    injected = sampler.injected(warm.step_size, target.n) * max(temperature, 1e-12)
    size = warm.step_size * target.n * largest / (2.0 * max(injected, 1e-12) * NOISE_RATIO)
    return n_rows if size > n_rows / 2 else max(SMALLEST_BATCH, math.ceil(size))


def _given_root(preconditioner: Array, n_parameters: int) -> Array:
    """Root of a preconditioner that was given by the user as a vector or a symmetric matrix."""
    if preconditioner.shape == (n_parameters,) and (preconditioner > 0).all():
        return np.sqrt(preconditioner)
    if preconditioner.shape == (n_parameters, n_parameters):
        try:
            return np.asarray(scipy.linalg.cholesky(preconditioner, lower=True))
        except np.linalg.LinAlgError:
            pass
    raise ValueError(
        f"preconditioner of shape {preconditioner.shape} is not allowed: give None, 'auto', "
        f"'hessian', 'diagonal', a positive array of shape ({n_parameters},) or a positive "
        f"definite one of shape ({n_parameters}, {n_parameters})."
    )


def _step_size(
    model: Model, data: Data, sampler: Sampler, cell: Cell, warm: AutoValues, temperature: float
) -> float:
    assert warm.center is not None
    if sampler.full_data:
        eta = _mala_step(model)
    elif cell.step is None:
        return _self_preconditioned_step(model, data, sampler, warm, temperature)
    else:
        eta = cell.step
    if not model.smooth and not sampler.full_data:
        eta *= 0.5  # at 0.5 the intervals of a Laplace prior's posterior covered 91%, not 89%
    if warm.root is not None and warm.root.ndim == 2:
        typical = _typical_curvature(model, data, warm.center, warm.root, temperature)
        return eta * min(1.0, CURVATURE_LIMIT / typical)
    root = np.ones(model.n_parameters) if warm.root is None else warm.root
    return eta / max(largest_curvature(model, data, warm.center, root), 1.0)


def _mala_step(model: Model) -> float:
    """1.65^2 P^(-1/3) / 2 is MALA's optimum on N(0, I) (Roberts & Rosenthal 1998)."""
    return float(0.8 * 1.36 * model.n_parameters ** (-1.0 / 3.0))


def _set_metric_step(
    model: Model,
    data: Data,
    sampler: Sampler,
    warm: AutoValues,
    settings: Any,
    temperature: float,
    *,
    stream: bool,
) -> None:
    """Step, minibatch and control variates in a metric.

    The step is stable at the curvature that the metric leaves at the MAP. The minibatch is so large
    that alpha_t is ``NOISE_RATIO`` at typical draws; where that is too large, the step is smaller.
    """
    assert warm.center is not None
    center, metric = warm.center, model.metric(torch.from_numpy(warm.center)[None])
    prior = model.prior_hessian(center)

    def curved(v: Array) -> Array:
        moved = metric.times(torch.from_numpy(v)[None])[0].numpy()
        return np.asarray((model.hessian_times(center, moved, data) + prior * moved) / data.total)

    curvature = 1.05 * largest_eigenvalue(curved, model.n_parameters)
    warm.step_size = (_mala_step(model) if sampler.full_data else METRIC_STEP) / curvature
    size = settings.batch_size
    if isinstance(size, str):
        size = data.n_rows if _fits_whole(data) else None
    if sampler.full_data or (size is not None and size >= data.n_rows):
        return
    anchor = None
    if settings.gradient == "auto" and not stream and model.after_step is None:
        anchor = model.anchor(center, data)
    if anchor is not None:
        warm.gradient = "control_variates"
        data = replace(data, fields=data.fields | anchor.fields)
    rng, variance = np.random.default_rng(0), 0.0
    for _ in range(TYPICAL_DRAWS):
        theta = torch.from_numpy(model.typical_draw(center, data, temperature, rng))
        theta = theta[None].to(tensor_like(data))
        variance = max(variance, largest_score_variance(model, data, theta))
    # alpha_t of one row
    noise = warm.step_size * data.total * variance / (2.0 * max(temperature, 1e-12))
    if size is None:
        affordable = max(
            _plain_size(data.n_rows), FULL_BATCH_NUMBERS // Minibatches(data, 1).numbers
        )
        size = min(max(SMALLEST_BATCH, math.ceil(noise / NOISE_RATIO)), affordable)
        warm.batch_size = size
    warm.step_size *= min(1.0, NOISE_RATIO * size / noise)


def _typical_curvature(
    model: Model, data: Data, center: Array, root: Array, temperature: float
) -> float:
    """Median over draws of the approximation of the largest eigenvalue of root' H/N root.

    It is 1 for a Gaussian posterior. Where the curvature differs much from place to place
    (separable classes under a wide prior) the whitened posterior is stiffer at most of its draws.
    """
    rng = np.random.default_rng(0)
    found = []
    for _ in range(5):
        away = root @ rng.standard_normal(len(root)) * math.sqrt(temperature / data.total)
        found.append(largest_curvature(model, data, center + away, root, n_steps=8))
    return float(np.median(found))


def largest_curvature(
    model: Model, data: Data, theta: Array, root: Array, n_steps: int = 30
) -> float:
    """Largest eigenvalue of root' H/N root at ``theta`` by power iteration; root (P, P) or (P,)."""
    matrix = root.ndim == 2
    prior = model.prior_hessian(theta)
    vector = np.random.default_rng(0).standard_normal(len(root))
    value = 0.0
    for _ in range(n_steps):
        vector /= np.linalg.norm(vector)
        moved = root @ vector if matrix else root * vector
        image = (model.hessian_times(theta, moved, data) + prior * moved) / data.total
        image = root.T @ image if matrix else root * image
        value, vector = float(vector @ image), image
    return 1.05 * value  # the iteration comes from below


def _self_preconditioned_step(
    model: Model, data: Data, sampler: Sampler, warm: AutoValues, temperature: float
) -> float:
    """pSGLD: stable at the curvature that its own preconditioner leaves, and alpha_t <= 0.1.

    At the MAP a row's score has covariance H/N (Fisher), so G is about (H_ii/(N n))^-1/2 and
    alpha_t about eta N / (2 n T) times the largest eigenvalue of G^1/2 (H/N) G^1/2.
    """
    assert warm.center is not None
    diagonal = model.hessian_diagonal(warm.center, data)
    if diagonal is None:
        raise ValueError(
            f"step_size='auto' is not allowed with {type(sampler).__name__} on "
            f"{type(model).__name__}, which has no curvature; give a number."
        )
    n = min(_plain_size(data.n_rows), data.n_rows)
    lam = getattr(sampler, "regularization", 1e-5)
    G = 1.0 / (lam + np.sqrt(diagonal / data.total / n))
    prior = model.prior_curvature() / data.total
    if prior > 0.0:
        G = np.minimum(G, 0.5 / prior)
    curvature = largest_curvature(model, data, warm.center, np.sqrt(G))
    noise = data.total / (2.0 * n * max(temperature, 1e-12)) * (n < data.n_rows)
    return min(0.2, 0.1 / noise if noise > 0.0 else math.inf) / curvature


def auto_draws(model: Model, n_chains: int, itemsize: int) -> int:
    """Draws per chain: 1000, or fewer (at least 50) where they would take more than a GiB.

    100 where predictions cost as much as they do with networks.
    """
    fitting = AUTO_BYTES // (n_chains * model.n_kept * itemsize)
    return int(min(100 if model.many_modes else AUTO_DRAWS, max(50, fitting)))


def auto_lengths(
    model: Model,
    auto: bool,
    step_size: float | None,
    n_rows: int,
    batch_size: int,
    n_draws: int,
) -> tuple[int, int]:
    """Burn-in and thinning in steps.

    With many modes: ten passes over the rows, or ``least_burn_in`` if that is more, half of them at
    temperature 0 with ``init="map"``; and the same once more for the draws.

    In whitened coordinates a chain forgets in about 1/eta steps, of which 20 at most are spent.
    Otherwise a tenth of a pass over the rows (at most 100 steps) lies between two draws, and half
    the draws' time before them.
    """
    if auto and model.many_modes:
        burn_in = max(10 * math.ceil(n_rows / batch_size), model.least_burn_in)
        return burn_in, max(1, burn_in // n_draws)
    if auto and step_size is not None:
        thinning = min(max(1, round(1.0 / step_size)), 20)
        return max(200, min(round(50.0 / step_size), 25 * n_draws)), thinning
    thinning = int(min(max(n_rows // (10 * batch_size), 1), 100))
    return n_draws * thinning // 2, thinning
