"""Plain SGLD on a binary linear model: the steps of a chunk, for one chain.

Rows have one of three layouts. "dense" is an array (n, p). "padded" is sparse: all rows have the
length of the longest row, in flat arrays with ``pointer`` = [0, length]. "ragged" is CSR.
"""

from __future__ import annotations

import numpy as np

from . import copy, jit, part

ONE = np.uint64(1)
#: priors of given rates, and normal ones with scales that may be learned (``PriorSlopes``)
LAPLACE, NORMAL, LEARNED = 0, 1, 2

# For each layout there are two functions. The first computes the logits of the rows. The second
# computes the gradient of the rows, given their residuals, and adds it to one of two sums.
# Neighbouring rows use different sums, because an addition must wait for an unfinished addition to
# the same number.


@jit
def dense_logits(rows, at, z, values, columns, pointer):
    for b in range(len(rows)):
        x = values[rows[b]]
        total = at.dtype.type(0.0)
        for j in range(len(x)):
            total += x[j] * at[j]
        z[b] = total


@jit
def dense_gradient(rows, r, left, right, values, columns, pointer):
    for b in range(len(rows)):
        x, p, half = values[rows[b]], r[b], right if b & 1 else left
        for j in range(len(x)):
            half[j] += p * x[j]


@jit
def padded_logits(rows, at, z, values, columns, pointer):
    width = pointer[1]
    for b in range(len(rows)):
        start = rows[b] * width
        total = at.dtype.type(0.0)
        for m in range(start, start + width):
            total += values[m] * at[columns[m]]
        z[b] = total


@jit
def padded_gradient(rows, r, left, right, values, columns, pointer):
    v, c, width = values, columns, pointer[1]
    for b in range(0, len(rows) - 1, 2):
        i, j, p, q = rows[b] * width, rows[b + 1] * width, r[b], r[b + 1]
        for m in range(width):
            left[c[i + m]] += p * v[i + m]
            right[c[j + m]] += q * v[j + m]
    if len(rows) % 2:
        i, p = rows[-1] * width, r[-1]
        for m in range(i, i + width):
            left[c[m]] += p * v[m]


@jit
def ragged_logits(rows, at, z, values, columns, pointer):
    for b in range(len(rows)):
        total = at.dtype.type(0.0)
        for m in range(pointer[rows[b]], pointer[rows[b] + ONE]):
            total += values[m] * at[columns[m]]
        z[b] = total


@jit
def ragged_gradient(rows, r, left, right, values, columns, pointer):
    for b in range(len(rows)):
        p, half = r[b], right if b & 1 else left
        for m in range(pointer[rows[b]], pointer[rows[b] + ONE]):
            half[columns[m]] += p * values[m]


@part
def prior_slopes(theta, prior, squares):
    """Replace theta by its prior's slopes; see ``PriorSlopes``. ``squares`` is working memory."""
    rates, of, precision = prior
    squares[:] = 0.0
    for i in range(len(theta)):
        squares[of[i]] += rates[i] * theta[i] * theta[i]
    for p in range(len(squares)):
        k, b, learned = precision[p]
        squares[p] = k / (b + 0.5 * learned * squares[p])
    for i in range(len(theta)):
        theta[i] *= squares[of[i]] * rates[i]


def _steps(logits, add_gradient):
    @jit
    def run(
        theta, eta, noise, indices, xi, keep, kept,
        values, columns, pointer, weights, prior, kind, scale,
    ):  # fmt: skip
        n_parameters, n_kept = len(theta), 0
        number = theta.dtype.type
        at = np.zeros(n_parameters + 1, theta.dtype)  # the last entry is for the padding
        copy(theta, at[:-1])
        left, right = np.zeros_like(at), np.zeros_like(at)
        r = np.empty(indices.shape[1], theta.dtype)
        rates, slopes, squares = (
            prior[0],
            np.empty_like(theta),
            np.empty(len(prior[2]), theta.dtype),
        )
        for k in range(len(eta)):
            # three passes over the rows, so that the first one's cache misses overlap
            rows = indices[k if len(indices) > 1 else 0]
            logits(rows, at, r, values, columns, pointer)
            for b in range(len(rows)):
                r[b] = scale / (number(1.0) + np.exp(-r[b]))
            if len(weights):
                for b in range(len(rows)):
                    r[b] *= weights[rows[b]]
            add_gradient(rows, r, left, right, values, columns, pointer)
            step, sd, normal = eta[k], noise[k], xi[k]
            if kind == LAPLACE:
                for j in range(n_parameters):
                    left[j] += np.sign(at[j]) * rates[j]
            elif kind == NORMAL:
                for j in range(n_parameters):
                    left[j] += at[j] * rates[j]
            else:
                copy(at[:-1], slopes)
                prior_slopes(slopes, prior, squares)
                for j in range(n_parameters):
                    left[j] += slopes[j]
            for j in range(n_parameters):
                at[j] += sd * normal[j] - step * (left[j] + right[j])
                left[j] = right[j] = number(0.0)
            if keep[k]:
                copy(at[:-1], kept[n_kept])
                n_kept += 1
        copy(at[:-1], theta)

    return run


#: the steps by layout; each function is compiled at its first call
STEPS = {
    "dense": _steps(dense_logits, dense_gradient),
    "padded": _steps(padded_logits, padded_gradient),
    "ragged": _steps(ragged_logits, ragged_gradient),
}
