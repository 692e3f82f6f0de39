"""Likelihoods of the outputs of networks, for a block of rows in the first-level cache.

Outputs f are (outputs, ROWS), and their slopes g have two more rows for working memory.
"""

from __future__ import annotations

import math

import numpy as np

from . import exact, part
from .layers import HALF, ONE, ROWS, TWO, ZERO, exp_all, log_all
from .slopes import by_size, digamma_rest

#: likelihoods, by their numbers
CATEGORICAL, GAUSSIAN, HETEROSCEDASTIC, STUDENT = range(4)
POISSON, NEGATIVE_BINOMIAL, INFLATED_POISSON, INFLATED_NEGATIVE_BINOMIAL = range(4, 8)
#: without one, y takes the outputs, or holds the slopes in them
OUTPUTS, SLOPES = 8, 9
LOG_ROOT_TWO_PI = np.float32(0.5 * np.log(2.0 * np.pi))
#: largest square of Student's t, as in single precision, and typical excess of its degrees of
#: freedom over the least ones; typical dispersion
FAR, TYPICAL_DF, LEAST_DF = float(np.finfo(np.float32).max) ** 0.8, 8.0, 2.0
TYPICAL_DISPERSION = 0.3
#: from here on, the normal distribution function is its series
FAR_BELOW = -30.0


@part
def categorical(f, labels, sizes, k, weight, log_p, bits, g):
    """Log probabilities of the classes of rows, and the slopes of -weight log p in k outputs f.

    Each target has its ``labels`` (ROWS,) and its number of classes, and the outputs f after those
    of the target before it.
    """
    top, total = g[k], g[k + 1]
    for r in range(ROWS):
        log_p[r] = ZERO
    first = 0
    for target in range(len(sizes)):
        end = first + sizes[target]
        for r in range(ROWS):
            top[r] = f[first, r]
            total[r] = ZERO
        for j in range(first + 1, end):
            for r in range(ROWS):
                top[r] = max(top[r], f[j, r])
        for j in range(first, end):
            for r in range(ROWS):
                f[j, r] -= top[r]
                g[j, r] = f[j, r]
            exp_all(g[j], bits)
            for r in range(ROWS):
                total[r] += g[j, r]
        for j in range(first, end):
            for r in range(ROWS):
                g[j, r] *= weight[r] / total[r]
        log_all(total, bits)
        for r in range(ROWS):
            chosen = first + labels[target, r]
            log_p[r] += f[chosen, r] - total[r]
            g[chosen, r] -= weight[r]
        first = end


@part
def gaussian(f, y, k, log_noise, theta, at, weight, log_p, g, slope):
    """The same of normal targets. The log sds of a chain are at ``theta[at:]``, if it has any.

    ``log_noise`` is added to them, and the slopes in them to ``slope[at:]``. The ``RESOLUTION`` of
    targets is below the rounding of outputs here, and left out.
    """
    for r in range(ROWS):
        log_p[r] = ZERO
    for j in range(k):
        log_sd = log_noise[j]
        if at < len(theta):
            log_sd += theta[at + j]
        precision = np.float32(np.exp(-TWO * log_sd))
        total = ZERO
        for r in range(ROWS):
            away = f[j, r] - y[j, r]
            log_p[r] -= HALF * away * away * precision + log_sd + LOG_ROOT_TWO_PI
            total += weight[r] * (ONE - away * away * precision)
            g[j, r] = weight[r] * away * precision
        if at < len(theta):
            slope[at + j] += total


@part
def heteroscedastic(f, y, k, log_typical, floor, weight, log_p, bits, g):
    """The same of normal targets with a noise for each row, as ``Heteroscedastic`` says."""
    for r in range(ROWS):
        log_p[r] = ZERO
    for j in range(k):
        s = f[k + j]
        for r in range(ROWS):
            s[r] += log_typical
            g[j, r] = max(s[r], ZERO)
            s[r] = min(s[r], ZERO)
        exp_all(s, bits)
        for r in range(ROWS):
            sd = floor[j] + s[r] + g[j, r]
            z = (f[j, r] - y[j, r]) / sd
            log_p[r] -= HALF * z * z + LOG_ROOT_TWO_PI
            g[j, r] = weight[r] * z / sd
            g[k + j, r] = weight[r] * (ONE - z * z) * s[r] / sd
            s[r] = sd
        log_all(s, bits)
        for r in range(ROWS):
            log_p[r] -= s[r]


@exact
def student(f, y, k, log_noise, given_df, theta, at, weight, log_p, g, slope):
    """The same of Student's t, in double precision.

    Log scales are those of ``gaussian``, and logarithms of the excess of degrees of freedom follow
    them at the end of theta. Where a number of ``given_df`` is not zero, it is their number.
    """
    for r in range(ROWS):
        log_p[r] = ZERO
    of_df = len(theta) if given_df[0] > 0.0 else len(theta) - k
    for j in range(k):
        log_scale, df = np.float64(log_noise[j]), np.float64(given_df[j])
        if at < of_df:
            log_scale += theta[at + j]
        if of_df < len(theta):
            df = LEAST_DF + TYPICAL_DF * np.exp(np.float64(theta[of_df + j]))
        precision, half = np.exp(-2.0 * log_scale), 0.5 * df
        constant = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * np.log(np.pi * df)
        by_half = digamma_rest(half) - digamma_rest(half + 0.5) - np.log1p(0.5 / half) + 1.0 / df
        by_scale, by_df = 0.0, 0.0
        for r in range(ROWS):
            away = np.float64(f[j, r]) - y[j, r]
            square = precision * away * away
            square = FAR if square > FAR else square
            log_ratio, pull = np.log1p(square / df), (df + 1.0) / (df + square)
            log_p[r] += constant - log_scale - (half + 0.5) * log_ratio
            g[j, r] = weight[r] * precision * pull * away
            by_scale += weight[r] * (1.0 - pull * square)
            by_df += weight[r] * (by_half + log_ratio - pull * square / df)
        if at < of_df:
            slope[at + j] += by_scale
        if of_df < len(theta):
            slope[of_df + j] += 0.5 * (df - LEAST_DF) * by_df


@exact
def log_normal_cdf(x):
    """Logarithm of the standard normal distribution function."""
    if x > FAR_BELOW:
        return np.log(0.5 * math.erfc(-np.sqrt(0.5) * x))
    return -0.5 * x * x - np.log(-x) - LOG_ROOT_TWO_PI - 1.0 / (x * x)


@exact
def negative_binomial(y, log_rate, size):
    """log p of a count but for y!, and the slopes of -log p in log(rate) and -log(size)."""
    rate, total = np.exp(log_rate), y + size
    log_p = math.lgamma(total) - math.lgamma(size) - y * np.log(rate + size)
    log_p += y * log_rate - size * np.log1p(rate / size)
    u, slope = by_size(y, rate, size)
    return log_p, -size * u, size * (slope - digamma_rest(size))


@exact
def counts(f, y, k, kind, log_typical, bend, theta, at, weight, log_p, g, slope):
    """The same of counts, in double precision, whose log factorials follow them in y.

    Means are linear in f above the ``bend``. Own parameters are those of zeros, if they are
    inflated, and log dispersions, if there are any.
    """
    for r in range(ROWS):
        log_p[r] = ZERO
    inflated = kind in (INFLATED_POISSON, INFLATED_NEGATIVE_BINOMIAL)
    dispersed = kind in (NEGATIVE_BINOMIAL, INFLATED_NEGATIVE_BINOMIAL)
    of_size = at + k if inflated else at
    for j in range(k):
        size, of_sizes = 1.0, 0.0
        log_zero, log_other, at_zero, at_other, by_zero = 0.0, 0.0, 0.0, 0.0, 0.0
        if dispersed:
            size = np.exp(-np.float64(theta[of_size + j])) / TYPICAL_DISPERSION
        if inflated:
            probit = np.float64(theta[at + j])
            log_zero, log_other = log_normal_cdf(probit), log_normal_cdf(-probit)
            log_normal = -0.5 * probit * probit - LOG_ROOT_TWO_PI
            at_zero, at_other = np.exp(log_normal - log_zero), np.exp(log_normal - log_other)
        for r in range(ROWS):
            count, above = np.float64(y[j, r]), np.float64(f[j, r]) - bend[j]
            log_rate, ratio = np.float64(f[j, r]) + log_typical[j], 1.0
            if above > 0.0:
                ratio = 1.0 + above
                log_rate += np.log(ratio) - above
            if dispersed:
                log_one, by_rate, of_this = negative_binomial(count, log_rate, size)
            else:
                rate = np.exp(log_rate)
                log_one, by_rate, of_this = count * log_rate - rate, rate - count, 0.0
            log_one -= y[k + j, r]
            share = 1.0
            if inflated:
                log_one += log_other
                if count == 0.0:
                    log_counted, top = log_one, max(log_one, log_zero)
                    log_one = top + np.log(np.exp(log_one - top) + np.exp(log_zero - top))
                    share = np.exp(log_counted - log_one)
                by_zero += weight[r] * (share * at_other - (1.0 - share) * at_zero)
            log_p[r] += log_one
            g[j, r] = weight[r] * share * by_rate / ratio
            of_sizes += weight[r] * share * of_this
        if inflated:
            slope[at + j] += by_zero
        if dispersed:
            slope[of_size + j] += of_sizes


@part
def likelihood(f, y, labels, own, theta, at, weight, share, log_p, bits, g, slope):
    """Log densities of a block of rows, and the slopes of -weight log p in its outputs f."""
    classes, k, kind, shift, bound = own
    if kind == CATEGORICAL:
        categorical(f, labels, classes, k, weight, log_p, bits, g)
    elif kind == GAUSSIAN:
        gaussian(f, y, k, shift, theta, at, weight, log_p, g, slope)
    elif kind == STUDENT:
        student(f, y, k, shift, bound, theta, at, weight, log_p, g, slope)
    elif POISSON <= kind < OUTPUTS:
        counts(f, y, k, kind, shift, bound, theta, at, weight, log_p, g, slope)
    elif kind == SLOPES:
        for j in range(k):
            for r in range(ROWS):
                g[j, r] = y[j, r]
    else:
        n = len(y)
        for j in range(n, k):
            bias = theta[at - k + j]
            for r in range(ROWS):
                f[j, r] = bias + share * (f[j, r] - bias)
        heteroscedastic(f, y, n, shift[0], bound, weight, log_p, bits, g)
        for j in range(n, k):
            lost = ZERO
            for r in range(ROWS):
                lost += g[j, r]
                g[j, r] *= share
            slope[at - k + j] += (ONE - share) * lost
