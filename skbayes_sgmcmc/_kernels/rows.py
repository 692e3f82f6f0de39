"""The gradient of a linear model's rows in one pass, while each row is in the first-level cache."""

from __future__ import annotations

import numpy as np

from . import jit


@jit
def gradient(theta, x, y, weight, sigma, classes, scale, out):
    """Add to out the derivative of -scale log p(y | f), f = x'w + b, with rows' weights.

    ``classes``: y is 0 or 1, with the logit f; else y is normal about f, with sd ``sigma``
    (chains, 1). ``x`` (chains or 1, rows, features), ``y`` (chains or 1, rows) and ``weight``, as
    y, or empty if all are one. Returns the weighted sums (chains, 1) of squared slopes.
    """
    number = theta.dtype.type
    one, factor = number(1.0), number(scale)
    squares = np.zeros((len(theta), 1), theta.dtype)
    for c in range(len(theta)):
        rows, targets = x[c if len(x) > 1 else 0], y[c if len(y) > 1 else 0]
        at, total, last = theta[c], out[c], len(theta[c]) - 1
        precision = one / (sigma[c, 0] * sigma[c, 0])
        for b in range(len(rows)):
            row, f = rows[b], at[last]
            for j in range(len(row)):
                f += row[j] * at[j]
            if classes:
                slope = one / (one + np.exp(-f)) - number(targets[b])
            else:
                slope = (f - number(targets[b])) * precision
            weighted = factor * slope
            if len(weight):
                weighted *= number(weight[c if len(weight) > 1 else 0, b])
            squares[c, 0] += slope * weighted
            total[last] += weighted
            for j in range(len(row)):
                total[j] += weighted * row[j]
    return squares
