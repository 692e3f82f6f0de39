"""Gradients of a linear model's rows, in one pass while each row is in the first-level cache."""

from __future__ import annotations

import numpy as np

from . import jit, part


@part
def slope_of(f, target, classes, precision, one):
    """The derivative of -log p(y | f) in f; ``one`` is 1 in the precision of the parameters."""
    if classes:
        return one / (one + np.exp(-f)) - target
    return (f - target) * precision


@jit
def gradient(theta, x, y, weight, sigma, classes, scale, out):
    """Add the derivative of -scale log p(y | f), with f = x'w + b and weighted rows, to ``out``.

    If ``classes`` is true, y is 0 or 1 with the logit f. Otherwise y is normal with mean f and sd
    ``sigma`` (chains, 1). Shapes are (chains or 1, rows, features) for ``x`` and (chains or 1,
    rows) for ``y`` and ``weight``; ``weight`` is empty if all weights are one. Returns the weighted
    sums (chains, 1) of squared slopes.
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
            slope = slope_of(f, number(targets[b]), classes, precision, one)
            weighted = factor * slope
            if len(weight):
                weighted *= number(weight[c if len(weight) > 1 else 0, b])
            squares[c, 0] += slope * weighted
            total[last] += weighted
            for j in range(len(row)):
                total[j] += weighted * row[j]
    return squares


@jit
def sparse_gradient(theta, rows, y, weight, sigma, classes, scale, out):
    """The same for rows of a CSR matrix, as ``CSRBatch.for_kernels`` gives them.

    All chains have the chosen rows if ``shared``; otherwise each has the next ones.
    """
    values, columns, starts, chosen, width, shared = rows
    number = theta.dtype.type
    one, factor = number(1.0), number(scale)
    squares = np.zeros((len(theta), 1), theta.dtype)
    for c in range(len(theta)):
        at, total, last, targets = theta[c], out[c], len(theta[c]) - 1, y[0 if shared else c]
        first, before = 0 if shared else c * len(targets), c * width
        precision = one / (sigma[c, 0] * sigma[c, 0])
        for b in range(len(targets)):
            row, f = chosen[first + b], at[last]
            for k in range(starts[row], starts[row + 1]):
                f += values[k] * at[columns[k] - before]
            slope = slope_of(f, number(targets[b]), classes, precision, one)
            weighted = factor * slope
            if len(weight):
                weighted *= number(weight[0 if shared else c, b])
            squares[c, 0] += slope * weighted
            total[last] += weighted
            for k in range(starts[row], starts[row + 1]):
                total[columns[k] - before] += weighted * values[k]
    return squares
