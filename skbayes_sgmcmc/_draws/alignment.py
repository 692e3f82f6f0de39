"""Draws whose components come in any order, put into one: before they are averaged or compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Array = NDArray[Any]

#: rounds of matching all draws to their mean
ROUNDS = 2


def best_order(components: Array, reference: Array) -> Array:
    """The order of ``components`` (K, V) that is most like ``reference``.

    Of all orders it has the largest sum of the overlaps sum_v sqrt(a_kv b_kv) (Hungarian method),
    for components that are distributions: of no negative numbers.

    Parameters
    ----------
    components, reference : array of shape (n_components, n_features)

    Returns
    -------
    array of shape (n_components,)
        ``components[order]`` is in the reference's order.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc._draws.alignment import best_order
    >>> best_order(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([1, 0])
    """
    overlap = np.sqrt(reference) @ np.sqrt(components).T
    return np.asarray(linear_sum_assignment(overlap, maximize=True)[1])


def align(draws: Array, reference: Array | None = None) -> Array:
    """Draws (chains, draws, K, V) with their components in one order: see :func:`matched`."""
    return matched(draws, reference)[0]


def matched(draws: Array, reference: Array | None = None) -> tuple[Array, Array]:
    """Draws with their components in one order, and the order of each.

    The reference is the given one, or else first the last draw of the first chain and then the mean
    of the draws so aligned.

    Parameters
    ----------
    draws : array of shape (n_chains, n_draws, n_components, n_features)
        Distributions.
    reference : array of shape (n_components, n_features) or None, default=None
        What to align to.

    Returns
    -------
    draws : array of the same shape
        A new one.
    orders : array of shape (n_chains, n_draws, n_components)
        Which of a draw's components are at each place now.
    """
    out = np.array(draws)
    flat = out.reshape(-1, *out.shape[2:])
    orders = np.tile(np.arange(out.shape[2]), (len(flat), 1))
    if reference is not None:
        _to(reference, flat, orders)
    else:
        reference = out[0, -1].copy()
        for _ in range(ROUNDS):
            _to(reference, flat, orders)
            reference = flat.mean(axis=0, dtype=np.float64)
    return out, orders.reshape(out.shape[:3])


def _to(reference: Array, draws: Array, orders: Array) -> None:
    for one, known in zip(draws, orders, strict=True):
        order = best_order(one, reference)
        if (order != np.arange(len(order))).any():
            one[:], known[:] = one[order], known[order]
