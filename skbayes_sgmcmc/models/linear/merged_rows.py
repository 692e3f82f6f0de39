r"""Fewer rows that say the same of a linear model with normal noise.

The rows matter by their number and by the squares :math:`|y - b - X w|^2` as a function of b and w,
which m rows have, too: those of R in a QR factorisation of :math:`[1, X, y]`, reflected
so that all have the same entry in the column of the intercept.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from ..._arrays import Array
from ..._limits import LIMITS


def merged_rows(
    x: Array, y: Array, weight: Array | None, intercept: bool
) -> tuple[Array, Array, Array]:
    """Features, targets (rows, k) and weights of as many rows as there are columns.

    ``intercept``: whether the model has one. Rows are read block by block.
    """
    n_columns = x.shape[1] + y.shape[1] + intercept
    r = np.empty((0, n_columns))
    for rows in LIMITS.blocks(len(x), n_columns):
        block = np.hstack([np.ones((len(y[rows]), int(intercept))), x[rows], y[rows]])
        if weight is not None:
            block = block * np.sqrt(weight[rows])[:, None]
        r = scipy.linalg.qr(np.vstack([r, block]), mode="r", check_finite=False)[0][:n_columns]
    total = float(len(x) if weight is None else weight.sum(dtype=np.float64))
    each = total / len(r)
    if intercept:
        away = r[:, 0] - math.sqrt(each)  # both have the length sqrt(total)
        away /= np.linalg.norm(away)
        r = r - 2.0 * np.outer(away, away @ r)
    r = r[:, int(intercept) :] / math.sqrt(each)
    return r[:, : x.shape[1]], r[:, x.shape[1] :], np.full(len(r), each)
