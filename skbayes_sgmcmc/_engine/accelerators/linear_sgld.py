"""Plain SGLD on a binary linear model, a chunk of steps at a time, compiled by numba.

The kernel replaces the loop over the steps of a chunk in ``chains.py``. With the same random
numbers, its draws equal those of the torch code up to rounding. Chains run in as many threads as
torch uses. The kernel needs the optional extra ``fast``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Minibatches
from ..._draws.storage import dtype_name
from ..._limits import LIMITS
from ...models._threads import allowed_threads
from ...samplers import SGLD, integrators
from ..recipe import Recipe
from ..target import Target
from ._base import Accelerator, Engine, why_no_cpu, why_no_share

Kernel = Callable[..., torch.Tensor]


class LinearSGLD(Accelerator):
    """Plain SGLD on a binary linear model, a chunk of steps at a time."""

    name = "linear_sgld"

    def why_not(self, recipe: Recipe) -> str | None:
        target = recipe.target
        if type(recipe.sampler) is not SGLD or recipe.cell.integrator is not integrators.euler:
            return "it is for sampler='sgld' with integrator='euler'."
        if target.model.prior_of_signed_rows is None:
            return "it is for logistic regression of two classes."
        if target.coordinates is not None or target.gradient != "minibatch":
            return "it is for a given step_size, preconditioner=None and gradient='minibatch'."
        if target.data.augment is not None:
            return "the rows change at random at every step."
        if not target.data.fields["x"].in_memory:
            return "the rows are in a file."
        return why_no_share(recipe) or why_no_cpu(recipe)

    def pays(self, recipe: Recipe) -> bool:
        return recipe.minibatches.numbers <= LIMITS.compiled_numbers

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        return replace(engine, kernel=_bind(recipe.target, recipe.minibatches), philox=True)


def _bind(target: Target, minibatches: Minibatches) -> Kernel:
    """The kernel as ``chains.py`` calls it, with the data's arrays in place."""
    dtype = np.dtype(dtype_name(target.like.dtype))
    from ..._kernels.linear import LAPLACE, LEARNED, NORMAL, STEPS

    layout, *rows = _rows(target.data.fields["x"], dtype)
    compiled = STEPS[layout]
    weight = target.data.weight
    weights = np.empty(0, dtype) if weight is None else weight.numpy().astype(dtype)
    everything = np.arange(target.data.n_rows)[None, None]
    slopes = target.model.prior_of_signed_rows
    assert slopes is not None
    kind = LEARNED if slopes.precision[:, 2].any() else NORMAL
    kind = LAPLACE if slopes.laplace else kind
    precision, rates = slopes.precision.copy(), slopes.rates
    if kind == LEARNED:
        precision[:, 0] /= target.n
    else:
        rates = rates / target.n
    prior = rates.astype(dtype), slopes.of, precision.astype(dtype)
    scale = dtype.type(target.likelihood_scale(minibatches))
    pool = ThreadPoolExecutor(allowed_threads())

    def kernel(
        phi: torch.Tensor,
        etas: Array,
        temperatures: Array,
        keep: Array,
        rng: ChainRandom,
    ) -> torch.Tensor:
        n_steps, n_parameters = len(etas), phi.shape[1]
        theta, steps = phi.numpy(), etas.astype(dtype)
        noise = np.sqrt(2.0 * etas * temperatures / target.n).astype(dtype)
        kept = np.empty((len(theta), int(keep.sum()), n_parameters), dtype)
        shared = everything if minibatches.full else None

        def advance(c: int) -> None:
            # a chain's random numbers are made in its own thread, so that they are in its cache
            mine = rng.select([c])
            chosen = minibatches.indices(n_steps, mine) if shared is None else shared
            assert chosen is not None  # it is None for full data only, which are shared
            xi = mine.normal(n_steps, n_parameters, dtype=phi.dtype)
            compiled(
                theta[c], steps, noise, chosen[0].view(np.uint64), xi[0].numpy(), keep, kept[c],
                *rows, weights, prior, kind, scale,
            )  # fmt: skip

        run = map if len(theta) == 1 else pool.map
        list(run(advance, range(len(theta))))
        return torch.from_numpy(kept)

    return kernel


def _rows(design: Any, dtype: Any) -> tuple[str, Array, Array, Array]:
    """The layout of the rows, and their values, column indices and row pointers.

    Integers are unsigned, because numba then omits Python's rule for negative indices. Column
    indices have as few bits as possible, because rows are read from distant caches.
    """
    none = np.empty(0, np.uint64)
    x = design.held().x
    if isinstance(x, torch.Tensor):
        return "dense", x.numpy(), none, none
    n_rows, n_columns = x.shape
    short = np.uint16 if n_columns < 2**16 else np.uint32
    lengths = np.diff(x.indptr)
    width = int(lengths.max())
    if width * n_rows > LIMITS.padding * max(x.nnz, 1):
        return "ragged", x.data.astype(dtype), x.indices.astype(short), x.indptr.astype(np.uint64)
    # padding has the value 0, in an additional column after the last one
    values = np.zeros((n_rows, width), dtype)
    columns = np.full((n_rows, width), n_columns, short)
    filled = np.arange(width) < lengths[:, None]
    values[filled], columns[filled] = x.data, x.indices
    pointer = np.array([0, width], np.uint64)  # of the first row; all rows have the same length
    return "padded", values.reshape(-1), columns.reshape(-1), pointer
