"""Factorisations robust to badly scaled features, largest eigenvalues, normal quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[Any]


def inverse_root(curvature: Array) -> Array:
    """A matrix R with R R' = curvature^-1, for a positive definite matrix.

    The diagonal is first scaled to one, so that the scales of the features cannot spoil the factor.
    If rounding has made the matrix indefinite, a small multiple of the identity is added.

    Raises
    ------
    numpy.linalg.LinAlgError
        The matrix is not positive definite, or not finite.
    """
    if not np.isfinite(curvature).all():  # scipy's own error says nothing of it
        raise np.linalg.LinAlgError("the curvature is not finite")
    stretch = 1.0 / np.sqrt(np.maximum(curvature.diagonal(), np.finfo(float).tiny))
    scaled = curvature * stretch[:, None] * stretch
    identity = np.eye(len(scaled))
    for lift in (0.0, 1e-13, 1e-10, 1e-7, 1e-4):
        try:
            lower = scipy.linalg.cholesky(scaled + lift * identity, lower=True)
        except np.linalg.LinAlgError:
            continue
        inverse = scipy.linalg.solve_triangular(lower, identity, lower=True)
        return np.ascontiguousarray(stretch[:, None] * inverse.T)
    raise np.linalg.LinAlgError("the curvature is not positive definite")


def few_directions(size: int) -> Array | None:
    """A matrix R (size, 16) with R R' = 1 on average; None if it has too many columns.

    The squared length of x'R is that of x on average, with an error of sqrt(2 / 16).
    """
    if size <= 32:
        return None
    return np.asarray(np.random.default_rng(0).standard_normal((size, 16)) / 4.0)


def gauss(size: int) -> tuple[Array, Array]:
    """Nodes of the Gauss-Hermite quadrature over N(0, 1), and weights with the sum one."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(size)
    return nodes, weights / weights.sum()


def largest_eigenvalue(times: Callable[[Array], Array], size: int) -> float:
    """Largest eigenvalue, from below, of a matrix that is given by products with vectors.

    The matrix must not have negative eigenvalues, but need not be symmetric: power iteration.
    Infinite if squares of a product overflow.
    """
    vector: Array = np.random.default_rng(0).standard_normal(size)
    length = float(np.linalg.norm(vector))
    with np.errstate(all="ignore"):
        for _ in range(40):
            vector = times(vector / length)
            length = float(np.linalg.norm(vector))
            if not 0.0 < length < math.inf:
                return 0.0 if length == 0.0 else math.inf
    return length


def largest_of_symmetric(times: Callable[[Array], Array], size: int, n_steps: int) -> float:
    """Largest eigenvalue, from below, of a symmetric matrix that is given by products with vectors.

    Lanczos iteration, which is at least as near as power iteration after as many products. It takes
    at most ``n_steps`` and ends when one adds less than 0.5% to the value. NaN if a product is not
    finite.
    """
    vector: Array = np.random.default_rng(0).standard_normal(size)
    basis: list[Array] = []
    projected = np.zeros((n_steps, n_steps))
    value = 0.0
    for k in range(n_steps):
        length = float(np.linalg.norm(vector))
        if k and length <= 1e-10 * abs(value):
            break  # the vectors so far contain the eigenvector
        if k:
            projected[k, k - 1] = projected[k - 1, k] = length
        basis.append(vector / length)
        vector = times(basis[-1])
        projected[k, k] = basis[-1] @ vector
        if not np.isfinite(projected[k, k]):
            return float("nan")
        for _ in range(2):  # once leaves rounding, with which large eigenvalues are found twice
            for known in basis:
                vector = vector - (known @ vector) * known
        before, value = value, float(np.linalg.eigvalsh(projected[: k + 1, : k + 1])[-1])
        if k > 1 and value - before <= 0.005 * abs(value):
            break
    return value
