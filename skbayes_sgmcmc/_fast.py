"""Plain SGLD on a binary linear model, a chunk of steps at a time, compiled by numba.

The kernel takes the place of ``chains.py``'s loop over the steps of a chunk and uses the same
random numbers, so its draws are those of the torch path to rounding. It needs the optional extra
``fast``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .minibatch import Minibatches
from .models._design import DenseDesign
from .posterior import Posterior
from .samplers import SGLD, Cell, Sampler, integrators

Array = NDArray[Any]
Kernel = Callable[..., None]

#: a minibatch's rows must have fewer numbers than this for the kernel to be faster than torch
DENSE_LIMIT = 2**17


def find_kernel(
    posterior: Posterior,
    minibatches: Minibatches,
    sampler: Sampler,
    cell: Cell,
    *,
    required: bool,
) -> Kernel | None:
    """The kernel for this run, or None if it does not apply or numba is not installed.

    Raises
    ------
    ValueError
        It is ``required`` (``compiled=True``) but does not apply, or numba is missing.
    """
    form = posterior.model.linear_form(posterior.data)
    applies = (
        form is not None
        and type(sampler) is SGLD
        and cell.integrator is integrators.euler
        and posterior.coordinates is None
        and posterior.gradient == "minibatch"
        and posterior.like.device.type == "cpu"
        and posterior.data.augment is None
    )
    worth_it = minibatches.numbers <= DENSE_LIMIT
    if not applies or not (worth_it or required):
        if required:
            raise ValueError(
                "compiled=True is not allowed here: the compiled kernel is for sampler='sgld', "
                "integrator='euler', two classes, preconditioner=None, gradient='minibatch' on a "
                "CPU; give compiled='auto'."
            )
        return None
    try:
        compiled = _compile()
    except ImportError:
        if required:
            raise ValueError(
                "compiled=True is not allowed here: numba is not installed; install the extra "
                "'skbayes-sgmcmc[fast]' or give compiled='auto'."
            ) from None
        return None
    return _bind(compiled, posterior, minibatches, form)


def _bind(compiled: Any, posterior: Posterior, minibatches: Minibatches, form: Any) -> Kernel:
    """The kernel as ``chains.py`` calls it, with the data's arrays in place."""
    dtype = np.dtype(str(posterior.like.dtype).split(".")[1])
    values, columns, pointer = _rows(form.design, dtype)
    weight = posterior.data.weight
    weights = np.ones(1, dtype) if weight is None else weight.numpy().astype(dtype)
    everything = np.arange(posterior.data.n_rows)[None, None]
    rates = (form.rates / posterior.n).astype(dtype)
    scale = dtype.type(posterior.likelihood_scale(minibatches))

    def kernel(
        phi: torch.Tensor,
        etas: Array,
        temperatures: Array,
        indices: Array | None,
        xi: torch.Tensor,
        keep: Array,
        on_keep: Callable[[torch.Tensor, float], None],
    ) -> None:
        noise = np.sqrt(2.0 * etas * temperatures / posterior.n).astype(dtype)
        kept = np.empty((int(keep.sum()), *phi.shape), dtype)
        compiled(
            phi.numpy(),
            etas.astype(dtype),
            noise,
            (everything if indices is None else indices).view(np.uint64),
            xi.numpy(),
            keep,
            kept,
            values,
            columns,
            pointer,
            weights,
            rates,
            form.prior == "laplace",
            scale,
        )
        for position, eta in zip(kept, etas[keep], strict=True):
            on_keep(torch.from_numpy(position), float(eta))

    return kernel


def _rows(design: Any, dtype: Any) -> tuple[Array, Array, Array]:
    """Values, column numbers and row pointers; no column numbers for a dense design.

    Unsigned, because numba then leaves out Python's rule for negative indices.
    """
    if isinstance(design, DenseDesign):
        x = design.x.numpy()
        pointer = np.arange(len(x) + 1, dtype=np.uint64) * np.uint64(x.shape[1])
        return x.reshape(-1), np.empty(0, np.uint32), pointer
    x = design.x
    return x.data.astype(dtype), x.indices.astype(np.uint32), x.indptr.astype(np.uint64)


@functools.cache
def _compile() -> Any:
    import numba

    @numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
    def run(  # type: ignore[no-untyped-def]
        theta, eta, noise, indices, xi, keep, kept,
        values, columns, pointer, weights, rates, laplace, scale,
    ):  # fmt: skip
        n_chains, n_parameters = theta.shape
        n_steps, n_rows = len(eta), indices.shape[2]
        dense = len(columns) == 0
        g = np.zeros(n_parameters, theta.dtype)
        r = np.empty(n_rows, theta.dtype)
        for c in range(n_chains):
            at = theta[c]
            chain = c if indices.shape[0] > 1 else 0
            n_kept = 0
            for k in range(n_steps):
                rows = indices[chain, k if indices.shape[1] > 1 else 0]
                # three passes, so that the first one's cache misses overlap
                for b in range(n_rows):
                    i = rows[b]
                    start, stop = pointer[i], pointer[i + np.uint64(1)]
                    z = theta.dtype.type(0.0)
                    if dense:
                        for j in range(n_parameters):
                            z += values[start + np.uint64(j)] * at[j]
                    else:
                        for m in range(start, stop):
                            z += values[m] * at[columns[m]]
                    r[b] = z
                for b in range(n_rows):
                    r[b] = scale / (theta.dtype.type(1.0) + np.exp(-r[b]))
                for b in range(n_rows):
                    i = rows[b]
                    start, stop = pointer[i], pointer[i + np.uint64(1)]
                    residual = r[b] * weights[i] if len(weights) > 1 else r[b]
                    if dense:
                        for j in range(n_parameters):
                            g[j] += residual * values[start + np.uint64(j)]
                    else:
                        for m in range(start, stop):
                            g[columns[m]] += residual * values[m]
                step, sd, normal = eta[k], noise[k], xi[c, k]
                for j in range(n_parameters):
                    prior = np.sign(at[j]) * rates[j] if laplace else at[j] * rates[j]
                    at[j] += sd * normal[j] - step * (g[j] + prior)
                    g[j] = 0.0
                if keep[k]:
                    kept[n_kept, c] = at
                    n_kept += 1

    return run
