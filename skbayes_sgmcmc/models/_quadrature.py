"""Quadrature over N(0, I): averages as weighted sums over nodes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from .._arrays import Array

#: nodes (nodes, q), or (nodes,) for one axis, and weights (nodes,) with the sum one
Rule = tuple[Array, Array]


@functools.cache
def gauss(size: int) -> Rule:
    """Nodes of the Gauss-Hermite quadrature over N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(size)
    return nodes, weights / weights.sum()


def third_degree(q: int) -> Rule:
    """Two nodes on each of q axes, exact for polynomials of third degree (Stroud 1957)."""
    axes = math.sqrt(q) * np.eye(q)
    return np.concatenate([axes, -axes]), np.full(2 * q, 0.5 / q)


def product(rules: Sequence[Rule]) -> Rule:
    """All combinations of nodes of these rules; their number grows exponentially with the axes."""
    nodes, weights = np.empty((1, 0)), np.ones(1)
    for more, factors in rules:
        more = more.reshape(len(factors), -1)
        first, second = np.repeat(nodes, len(more), axis=0), np.tile(more, (len(nodes), 1))
        nodes = np.hstack([first, second])
        weights = np.outer(weights, factors).ravel()
    return nodes, weights
