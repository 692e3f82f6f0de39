"""What targets, and rows of a linear model, say of the noise before a fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..._arrays import Array


def noise_of_classes(counts: list[Array]) -> float:
    """1 / sqrt(p (1 - p)) at the shares p of the classes of each target; variances are averaged.

    It is 2 for two classes of equal size, and larger if one of them is rare.
    """
    total = counts[0].sum()
    share = np.concatenate(counts) / total
    # that of a class of one row, for calls with rows of a single class
    least = min(0.25, 1.0 / total)
    return 1.0 / math.sqrt(max(np.mean(share * (1.0 - share)), least))


def rounding(y: Array, weight: Array | None = None) -> Array:
    """Sd of the rounding error of each column of y (rows, targets), as its values suggest.

    This is 1/sqrt(12) of the smallest gap between different values if most rows share their value
    with another row; else 0, because a small gap then says nothing of rounding. A row of weight two
    counts as two rows.
    """
    found = np.zeros(y.shape[1])
    for j, column in enumerate(y.T):
        values, place = np.unique(column, return_inverse=True)
        counts = np.bincount(place, weight)
        if len(values) > 1 and counts[counts > 1].sum() > 0.5 * counts.sum():
            found[j] = np.diff(values).min() / math.sqrt(12.0)
    return found


def ridge_noise(design: Any, y: Array, weight: Array) -> float:
    """Noise variance of y (rows, outputs), estimated by ridge regression.

    ``design`` is an array or a CSR matrix. The penalty is chosen by generalised cross-validation
    (Golub, Heath & Wahba 1979). A row of weight two counts as two rows.
    """
    n, root = float(weight.sum()), np.sqrt(weight)[:, None]
    u, squares = _directions(design.multiply(root) if sp.issparse(design) else root * design)
    explained, total = np.square(u.T @ (root * y)), float(np.square(root * y).sum())
    best, variance = np.inf, total / n
    for penalty in squares.max() * np.logspace(-6.0, 1.0, 15):
        kept = squares / (squares + penalty)
        left = total - float(((2.0 * kept - kept**2)[:, None] * explained).sum())
        freedom = n - float(kept.sum())
        if freedom > 0.0 and n * left / freedom**2 < best:
            best, variance = n * left / freedom**2, left / freedom
    return max(variance / y.shape[1], 1e-6 * total / n, float(np.finfo(np.float64).tiny))


def _directions(rows: Any) -> tuple[Array, Array]:
    """Left singular vectors of an array or a sparse matrix, and squared singular values.

    With more columns than rows, products of rows take a tenth of the time of all columns, or less
    where rows are sparse. What they round is far below the penalties. Rows are scaled before, so
    that the squares of large numbers do not overflow; the values are then in other units.
    """
    if rows.shape[0] < rows.shape[1]:
        rows = rows / abs(rows).max()
        products = rows @ rows.T
        squares, u = np.linalg.eigh(products.toarray() if sp.issparse(products) else products)
        return u, squares.clip(min=0.0)
    u, s, _ = np.linalg.svd(rows.toarray() if sp.issparse(rows) else rows, full_matrices=False)
    return u, s**2
