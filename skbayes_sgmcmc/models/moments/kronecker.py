r"""Variances of bilinear forms of a random matrix W, from small matrices.

The covariance of two entries of W, of rows k, l and columns i, j, is a sum of products

.. math::
    \mathrm{cov}(W_{ki}, W_{lj}) = \sum_r A^r_{kl} B^r_{ij},\quad\text{so that}\quad
    \mathrm{var}(c^\top W x) = \sum_r (c^\top A^r c)(x^\top B^r x),

by the singular values of the covariances with the pairs (k, l) as rows and (i, j) as columns (Van
Loan and Pitsianis 1993). Parts that are antisymmetric in k, l and in i, j add nothing to variances
and are left out. The values are those in coordinates where rows and columns have unit
covariances on average: the first terms are then the best ones whatever the scales and correlations
of rows and columns are.
"""

from __future__ import annotations

import numpy as np

from ..._arrays import Array


def kronecker_terms(covariance: Array) -> tuple[Array, Array, Array]:
    """Symmetric matrices A (terms, k, k) and B (terms, d, d) of a covariance (k, d, k, d).

    The matrices B are those of quadratic forms of z = root' x, for the root (d, d) that is returned
    with them: those of x would lose digits where columns are nearly collinear. There are
    min(k (k + 1), d (d + 1)) / 2 terms, the largest first.
    """
    k, d = covariance.shape[:2]
    rows, to_rows = _whitening(np.einsum("kili->kl", covariance) / d)
    columns, to_columns = _whitening(np.einsum("kikj->ij", covariance) / k)
    whitened = np.einsum(
        "kilj,ka,lb,ic,jd->abcd", covariance, to_rows, to_rows, to_columns, to_columns,
        optimize=True,
    )  # fmt: skip
    # a symmetric matrix has each entry beside its diagonal twice
    (a, b), (i, j) = np.triu_indices(k), np.triu_indices(d)
    both = np.where(a == b, 1.0, np.sqrt(2.0)), np.where(i == j, 1.0, np.sqrt(2.0))
    pairs = whitened[a[:, None], b[:, None], i, j] + whitened[a[:, None], b[:, None], j, i]
    left, size, right = np.linalg.svd(0.5 * pairs * both[0][:, None] * both[1], full_matrices=False)
    A, B = np.zeros((len(size), k, k)), np.zeros((len(size), d, d))
    A[:, a, b] = A[:, b, a] = (left * size).T / both[0]
    B[:, i, j] = B[:, j, i] = right / both[1]
    return rows @ A @ rows.T, B, columns


def quadratic_forms(z: Array, matrices: Array) -> Array:
    """z' B z for rows z (n, d) and symmetric matrices B (terms, d, d); shape (n, terms)."""
    i, j = np.triu_indices(z.shape[1])
    twice = np.where(i == j, 1.0, 2.0)
    return np.asarray((z[:, i] * z[:, j]) @ (matrices[:, i, j] * twice).T)


def _whitening(covariance: Array) -> tuple[Array, Array]:
    """A root R of a covariance, and R^-1': columns that whiten."""
    values, vectors = np.linalg.eigh(covariance)
    # smaller variances are rounding; all may be zero
    size = np.sqrt(np.maximum(values, max(1e-13 * values[-1], 1e-100)))
    return vectors * size, vectors / size
