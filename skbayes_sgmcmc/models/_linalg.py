"""Matrices with badly scaled features or of products only: factors and largest eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .._arrays import Array
from .._limits import LIMITS


def inverse_root(curvature: Array) -> Array:
    """A matrix R with R R' = curvature^-1, for a positive definite matrix.

    The diagonal is first scaled to one, so that the scales of the features cannot spoil the factor.
    If rounding has made the matrix indefinite, a small multiple of the identity is added.

    Raises
    ------
    numpy.linalg.LinAlgError
        The matrix is not positive definite, or not finite.
    """
    with np.errstate(all="ignore"):  # a diagonal that is not positive may leave infinite numbers
        stretch = 1.0 / np.sqrt(np.maximum(curvature.diagonal(), np.finfo(float).tiny))
        scaled = curvature * stretch[:, None] * stretch
    # scipy's own error says nothing of it
    if not np.isfinite(scaled).all():
        raise np.linalg.LinAlgError("the curvature is not finite")
    identity = np.eye(len(scaled))
    for lift in (0.0, 1e-13, 1e-10, 1e-7, 1e-4):
        try:
            lower = scipy.linalg.cholesky(scaled + lift * identity, lower=True)
        except np.linalg.LinAlgError:
            continue
        inverse = scipy.linalg.lapack.dtrtri(lower, lower=1)[0]
        return np.ascontiguousarray(stretch[:, None] * inverse.T)
    raise np.linalg.LinAlgError("the curvature is not positive definite")


def less_outer(matrix: Array, columns: Array, most: float) -> Array:
    """matrix - columns columns', where ``matrix`` is positive definite and the result remains so.

    No direction loses more than the share ``most``: if one would, less of all columns is taken off.
    """
    if columns.shape[1] == 0:
        return matrix
    within = inverse_root(matrix).T @ columns
    largest = float(np.linalg.norm(within, ord=2)) ** 2
    share = min(1.0, most / max(largest, np.finfo(float).tiny))
    return np.asarray(matrix - share * (columns @ columns.T))


def is_sparse(matrix: Any) -> bool:
    """Whether products with an array, or a sparse matrix, take less time as a CSR matrix."""
    if matrix.shape[1] < LIMITS.worth_sparse:
        return False
    numbers = matrix.nnz if sp.issparse(matrix) else np.count_nonzero(matrix)
    return bool(numbers <= LIMITS.sparse_share * math.prod(matrix.shape))


def row_products(x: Any, coef: Any) -> Any:
    """x coef' (rows, draws); of sparse rows, only the columns that they have entries in count.

    scipy copies all of coef', which for one text takes longer than its product.
    """
    if sp.issparse(x):
        used = np.unique(x.indices)
        if 2 * len(used) <= x.shape[1]:
            x, coef = x[:, used], coef[:, used]
    return x @ coef.T


def few_directions(size: int) -> Array | None:
    """A matrix R (size, 16) with R R' = 1 on average; None if it has too many columns.

    The squared length of x'R is that of x on average, with an error of sqrt(2 / 16).
    """
    if size <= 32:
        return None
    return np.asarray(np.random.default_rng(0).standard_normal((size, 16)) / 4.0)


def largest_pair(times: Callable[[Array], Array], size: int) -> tuple[float, Array]:
    """Largest eigenvalue, from below, and its direction, of a matrix given by its products.

    The matrix must not have negative eigenvalues, but need not be symmetric: power iteration.
    Infinite if squares of a product overflow.
    """
    vector: Array = np.random.default_rng(0).standard_normal(size)
    length = float(np.linalg.norm(vector))
    with np.errstate(all="ignore"):
        for _ in range(40):
            unit = vector / length
            vector = times(unit)
            length = float(np.linalg.norm(vector))
            if not 0.0 < length < math.inf:
                return (0.0 if length == 0.0 else math.inf), unit
    return length, vector / length


def largest_of_symmetric(times: Callable[[Array], Array], size: int, n_steps: int) -> float:
    """Largest eigenvalue, from below, of a symmetric matrix that is given by products with vectors.

    Lanczos iteration, which is at least as near as power iteration after as many products. It takes
    at most ``n_steps`` and ends when one adds less than 0.5% to the value. NaN if a product is not
    finite.
    """
    value = 0.0
    for k, (_, projected) in enumerate(_lanczos(times, size, n_steps)):
        if not np.isfinite(projected[k, k]):
            return float("nan")
        before, value = value, float(np.linalg.eigvalsh(projected)[-1])
        if k > 1 and value - before <= 0.005 * abs(value):
            break
    return value


def pairs_of_symmetric(
    times: Callable[[Array], Array], size: int, n_steps: int
) -> tuple[Array, Array]:
    """Approximate eigenvalues (k,) and -vectors (size, k) of a matrix, given by its products.

    Lanczos iteration of at most ``n_steps``: eigenvalues that stand apart, on both sides, are found
    first. There are none if a product is not finite.
    """
    found: tuple[list[Array], Array] = [np.zeros(size)], np.zeros((1, 1))
    for found in _lanczos(times, size, n_steps):
        if not np.isfinite(found[1][-1, -1]):
            return np.empty(0), np.empty((size, 0))
    basis, projected = found
    values, vectors = np.linalg.eigh(projected)
    return values, np.stack(basis, 1) @ vectors


def _lanczos(
    times: Callable[[Array], Array], size: int, n_steps: int
) -> Iterator[tuple[list[Array], Array]]:
    """Orthonormal vectors, and the matrix in their basis, after every step of the iteration."""
    vector: Array = np.random.default_rng(0).standard_normal(size)
    basis: list[Array] = []
    projected = np.zeros((n_steps, n_steps))
    largest = 0.0
    for k in range(min(n_steps, size)):
        length = float(np.linalg.norm(vector))
        if k and length <= 1e-10 * largest:
            return  # the vectors so far contain the eigenvector
        if k:
            projected[k, k - 1] = projected[k - 1, k] = length
        basis.append(vector / length)
        vector = times(basis[-1])
        projected[k, k] = basis[-1] @ vector
        largest = max(largest, abs(float(projected[k, k])))
        yield basis, projected[: k + 1, : k + 1]
        for _ in range(2):  # once leaves rounding, with which large eigenvalues are found twice
            for known in basis:
                vector = vector - (known @ vector) * known
