"""Turns of a direction u of length 1, of several chains, as ``MCLMC`` defines them."""

from __future__ import annotations

import numpy as np

from . import jit


@jit
def by_gradient(u, g, epsilon, factor, least, turned):
    """Turn u by the gradients g as ``MCLMC.turn`` does, with the same symbols.

    ``factor`` times epsilon ``|g|`` is -delta, and ``least`` the smallest ``|g|``.
    """
    number = u.dtype.type
    for chain in range(len(u)):
        at, by = u[chain], g[chain]
        along, square = number(0.0), number(0.0)
        for i in range(len(at)):
            along += at[i] * by[i]
            square += by[i] * by[i]
        size = max(np.sqrt(np.float64(square)), least)
        slow = factor * epsilon[chain, 0] * size
        b = np.expm1(slow)
        twice_bw = b + b * along / size
        q = twice_bw + 0.5 * twice_bw * b  # minus 1
        turned[chain, 0] += np.log1p(q) - slow
        kept = number((1.0 + b) / (1.0 + q))
        added = number((b + 0.5 * b * twice_bw) / (size * (1.0 + q)))
        for i in range(len(at)):
            at[i] = kept * at[i] + added * by[i]


@jit
def by_chance(u, xi, epsilon, length, most):
    """Turn u by the normals xi as ``MCLMC.refresh`` does; ``most`` bounds 2 epsilon / L."""
    number = u.dtype.type
    for chain in range(len(u)):
        at, by = u[chain], xi[chain]
        share = min(2.0 * np.float64(epsilon[chain, 0]) / length[chain, 0], most)
        nu = number(np.sqrt(np.expm1(share) / len(at)))
        square = number(0.0)
        for i in range(len(at)):
            at[i] += nu * by[i]
            square += at[i] * at[i]
        shorter = number(1.0 / np.sqrt(np.float64(square)))
        for i in range(len(at)):
            at[i] *= shorter
