"""Alignment of draws with components in arbitrary order, before draws are averaged."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from .._arrays import Array


def best_order(components: Array, reference: Array) -> Array:
    """The order of components (n, features) that is closest to a reference of this shape.

    ``components[order]`` is in the order of the reference. It maximises the sum over components of
    the overlaps sum_v sqrt(a_kv b_kv) (Hungarian method). Components must be distributions, without
    negative numbers.

    >>> import numpy as np
    >>> from skbayes_sgmcmc._draws.alignment import best_order
    >>> best_order(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([1, 0])
    """
    overlap = np.sqrt(reference) @ np.sqrt(components).T
    return np.asarray(linear_sum_assignment(overlap, maximize=True)[1])


def matched(draws: Array, reference: Array | None = None) -> tuple[Array, Array]:
    """Draws (chains, draws, components, features) with components in one order, in a new array.

    Also returned are the indices (chains, draws, components), in the given draw, of the component
    at each place of the aligned one. Without a given reference (components, features), draws are
    aligned first to the last draw of the first chain, and then to the mean of the aligned draws.
    """
    out = np.array(draws)
    flat = out.reshape(-1, *out.shape[2:])
    orders = np.tile(np.arange(out.shape[2]), (len(flat), 1))
    if reference is not None:
        _to(reference, flat, orders)
    else:
        reference = out[0, -1].copy()
        for _ in range(2):
            _to(reference, flat, orders)
            reference = flat.mean(axis=0, dtype=np.float64)
    return out, orders.reshape(out.shape[:3])


def _to(reference: Array, draws: Array, orders: Array) -> None:
    for one, known in zip(draws, orders, strict=True):
        order = best_order(one, reference)
        if (order != np.arange(len(order))).any():
            one[:], known[:] = one[order], known[order]
