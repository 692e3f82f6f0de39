"""Slopes of -log p of rows in their predictors, and in parameters that all rows share.

Each function replaces the predictors z of rows by their slopes, times the rows' weights, and
writes the sums over rows of the slopes in the parameters ``own`` of the likelihood to ``sums``.
``work`` is memory of two numbers for each row.
"""

from __future__ import annotations

import numpy as np

from .._polynomials import interpolated
from . import exact, part, polynomial

#: bound on the argument of exp, and a number that is smaller than its exponential
LARGEST, HUGE = 700.0, 1e304
#: log 2 as a number with exact products with integers, and the rest
LOG_TWO_HIGH, LOG_TWO_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: 2^k has the exponent k + 1023, which this number brings to the last bits
EXPONENT = 2.0**52 + 1023.0
#: bound on squares, so that products with other numbers are finite
FAR = 1e246
#: from where on the series of digamma is exact
SERIES = 8.0

#: (e^x - 1) / x of numbers up to half of log 2
growth = polynomial(interpolated(lambda x: np.expm1(x) / x, -0.35, 0.35, 11, np.float64))
#: terms of v^-1 (log x - digamma(x) - 1 / (2 x)) in v = x^-2
digamma_series = polynomial(
    np.array([1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12])
)


@exact
def exponentials(z, less, two):
    """Replace z by e^z - less; ``less`` is 0 or 1, ``two`` working memory.

    In place: for ``out`` that may be z, the compiler makes code without vectors.
    """
    bits = two.view(np.int64)
    for r in range(len(z)):
        x = min(max(z[r], -LARGEST), LARGEST)
        k = np.floor(x * (1.0 / np.log(2.0)) + 0.5)
        rest = x - k * LOG_TWO_HIGH - k * LOG_TWO_LOW
        z[r] = rest * growth(rest)
        two[r] = k + EXPONENT
    for r in range(len(z)):
        bits[r] <<= np.int64(52)
    for r in range(len(z)):
        e = two[r] * z[r] + (two[r] - less)
        z[r] = e if e < HUGE else np.inf  # so that chains are seen to diverge


@exact
def digamma_rest(x):
    """digamma(x) - log(x), for x > 0, by the series of a larger number where x is small."""
    rest = 0.0
    if x < SERIES:
        top, bottom = 0.0, 1.0  # the sum of 1 / (x + i), as a fraction
        for i in range(8):
            top, bottom = top * (x + i) + bottom, bottom * (x + i)
        rest = np.log1p(8.0 / x) - top / bottom
        x += 8.0
    v = 1.0 / x
    return rest - v * (0.5 + v * digamma_series(v * v))


@part
def counts(z, y, weight, own, sums, work):
    exponentials(z, 0.0, work[0])
    for r in range(len(z)):
        z[r] = weight[r] * (z[r] - y[r])


@part
def shares(z, y, weight, own, sums, work):
    for r in range(len(z)):
        z[r] = -z[r]
    exponentials(z, 0.0, work[0])
    for r in range(len(z)):
        z[r] = weight[r] * (1.0 / (1.0 + z[r]) - y[r])


@part
def normal(z, y, weight, own, sums, work):
    """``own``: logarithms of the sd, and of that of the targets' own errors."""
    precision, unknown, total = np.exp(-2.0 * own[0]), np.exp(2.0 * own[1]), 0.0
    for r in range(len(z)):
        away = z[r] - y[r]
        total += weight[r] * (1.0 - precision * (away * away + unknown))
        z[r] = weight[r] * precision * away
    sums[0] = total


@part
def student_t(z, y, weight, own, sums, work):
    """``own``: as for normal noise, and the logarithm of the degrees of freedom beyond 2."""
    precision, unknown = np.exp(-2.0 * own[0]), np.exp(2.0 * (own[1] - own[0]))
    excess = np.exp(own[2])
    df, of_scale, of_df = 2.0 + excess, 0.0, 0.0
    half = 0.5 * df
    constant = digamma_rest(half) - digamma_rest(half + 0.5) - np.log1p(0.5 / half) + 1.0 / df
    for r in range(len(z)):
        away = z[r] - y[r]
        square = min(precision * away * away, FAR)
        pull = (df + 1.0) / (df + square)
        of_scale += weight[r] * (1.0 - pull * square - unknown)
        of_df += weight[r] * (constant + np.log1p(square / df) - pull * square / df)
        z[r] = weight[r] * precision * pull * away
    sums[0], sums[2] = of_scale, 0.5 * excess * of_df


@part
def gamma(z, y, weight, own, sums, work):
    """``own``: logarithms of the dispersion, and as for normal noise; y are those of targets."""
    shape, total, excess = np.exp(-own[0]), 0.0, work[0]
    rest = digamma_rest(shape) + 0.5 * np.exp(2.0 * own[1])
    for r in range(len(z)):
        z[r] = excess[r] = y[r] - z[r]
    exponentials(excess, 1.0, work[1])
    for r in range(len(z)):
        total += weight[r] * (z[r] - excess[r] - rest)
        z[r] = -shape * weight[r] * excess[r]
    sums[0] = shape * total


@exact
def by_size(y, rate, size):
    """Of one count, (y - rate) / (rate + size), and log p's slope in size but for a constant."""
    u, total = (y - rate) / (rate + size), y + size
    log_ratio = np.log1p(u) if u > -0.5 else np.log(total / (rate + size))
    return u, log_ratio - u + digamma_rest(total)


@part
def negative_binomial(z, y, weight, own, sums, work):
    """``own``: the logarithm of the dispersion."""
    size, total = np.exp(-own[0]), 0.0
    rest = digamma_rest(size)
    exponentials(z, 0.0, work[0])
    for r in range(len(z)):
        u, slope = by_size(y[r], z[r], size)
        total += weight[r] * (slope - rest)
        z[r] = -size * weight[r] * u
    sums[0] = size * total


@part
def weibull(z, y, weight, own, sums, work):
    """``own``: as for normal noise; y are logarithms of times."""
    inverse, total, excess = np.exp(-own[0]), 0.0, work[0]
    unknown = np.exp(2.0 * (own[1] - own[0]))
    for r in range(len(z)):
        z[r] = excess[r] = (y[r] - z[r]) * inverse
    exponentials(excess, 1.0, work[1])
    for r in range(len(z)):
        total += weight[r] * (1.0 - excess[r] * z[r] - unknown)
        z[r] = -inverse * weight[r] * excess[r]
    sums[0] = total


#: by the names that likelihoods give
SLOPES = {
    function.py_func.__name__: function
    for function in (
        counts, shares, normal, student_t, gamma, negative_binomial, weibull
    )
}  # fmt: skip
