"""Gradients of perceptrons, with a block of rows in the first-level cache from x to the last layer.

Hidden units of a block are stored as (units, ROWS), so that vectors of the processor run over rows.
Products take two units at a time, and four inputs of each. All chains take a block in turn, so that
rows which they share are read once. Weights of a layer are at ``theta[at:]``, (inputs, units) and
then (units,) biases, and so are their slopes.
"""

from __future__ import annotations

import numpy as np

from .._polynomials import interpolated
from . import copy, inlined, jit, part, polynomial
from .philox import LOG_TWO, log_rest

#: rows of a block
ROWS = 128
#: activations and likelihoods, by their numbers
RELU, TANH, LOGISTIC = range(3)
CATEGORICAL, GAUSSIAN, HETEROSCEDASTIC = range(3)
#: bound on the argument of exp; log 2 as a number with exact products with integers, and the
#: rest
LARGEST = np.float32(87.0)
LOG_TWO_HIGH, LOG_TWO_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
PER_LOG_TWO = np.float32(1 / np.log(2.0))
#: bits of the root of one half
ROOT_HALF = np.int32(0x3F3504F3)
ZERO, HALF, ONE, TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
LOG_ROOT_TWO_PI = np.float32(0.5 * np.log(2.0 * np.pi))

#: exp of numbers up to half of log 2, with relative error 1e-7
exp_rest = polynomial(interpolated(np.exp, -0.35, 0.35, 6))


@part
def exp_all(z, bits):
    """Replace ROWS numbers by their exponentials; ``bits`` is working memory."""
    two = bits.view(np.float32)
    for r in range(ROWS):
        x = min(max(z[r], -LARGEST), LARGEST)
        k = np.floor(x * PER_LOG_TWO + HALF)
        z[r] = exp_rest(x - k * LOG_TWO_HIGH - k * LOG_TWO_LOW)
        bits[r] = (np.int32(k) + np.int32(127)) << np.int32(23)
    for r in range(ROWS):
        z[r] *= two[r]


@part
def log_all(z, bits):
    """Replace ROWS positive numbers by their logarithms; ``bits`` is working memory."""
    mantissa = bits.view(np.float32)
    for r in range(ROWS):
        mantissa[r] = z[r]
    for r in range(ROWS):  # z = m 2^e with sqrt(1/2) <= m < sqrt(2)
        high = bits[r] - ROOT_HALF
        z[r] = np.float32(high >> np.int32(23))
        bits[r] = (high & np.int32(0x7FFFFF)) + ROOT_HALF
    for r in range(ROWS):
        x = mantissa[r] - ONE
        z[r] = x + x * x * log_rest(x) + z[r] * LOG_TWO


@inlined
def add_products(theta, at, by_out, by_in, n_in, n_out, a, out):
    """Add sum_i w[o, i] a[i] to each out[o], for w[o, i] = theta[at + o by_out + i by_in]."""
    for o in range(0, n_out - 1, 2):
        first, second = at + o * by_out, at + (o + 1) * by_out
        for i in range(0, n_in - 3, 4):
            u, v = first + i * by_in, second + i * by_in
            u0, u1 = theta[u], theta[u + by_in]
            u2, u3 = theta[u + 2 * by_in], theta[u + 3 * by_in]
            v0, v1 = theta[v], theta[v + by_in]
            v2, v3 = theta[v + 2 * by_in], theta[v + 3 * by_in]
            for r in range(ROWS):
                a0, a1, a2, a3 = a[i, r], a[i + 1, r], a[i + 2, r], a[i + 3, r]
                out[o, r] += u0 * a0 + u1 * a1 + u2 * a2 + u3 * a3
                out[o + 1, r] += v0 * a0 + v1 * a1 + v2 * a2 + v3 * a3
        for i in range(n_in - n_in % 4, n_in):
            u0, v0 = theta[first + i * by_in], theta[second + i * by_in]
            for r in range(ROWS):
                out[o, r] += u0 * a[i, r]
                out[o + 1, r] += v0 * a[i, r]
    if n_out % 2:
        o = n_out - 1
        for i in range(n_in):
            u0 = theta[at + o * by_out + i * by_in]
            for r in range(ROWS):
                out[o, r] += u0 * a[i, r]


@inlined
def add_slopes(a, g, n_in, n_out, slope, at):
    """Add sum_r a[i, r] g[o, r] to slope[at + i n_out + o], and the sums of g to what follows."""
    for i in range(0, n_in - 3, 4):
        for o in range(0, n_out - 1, 2):
            s00, s10, s20, s30 = ZERO, ZERO, ZERO, ZERO
            s01, s11, s21, s31 = ZERO, ZERO, ZERO, ZERO
            for r in range(ROWS):
                a0, a1, a2, a3 = a[i, r], a[i + 1, r], a[i + 2, r], a[i + 3, r]
                g0, g1 = g[o, r], g[o + 1, r]
                s00 += a0 * g0
                s10 += a1 * g0
                s20 += a2 * g0
                s30 += a3 * g0
                s01 += a0 * g1
                s11 += a1 * g1
                s21 += a2 * g1
                s31 += a3 * g1
            first = at + i * n_out + o
            slope[first] += s00
            slope[first + 1] += s01
            slope[first + n_out] += s10
            slope[first + n_out + 1] += s11
            slope[first + 2 * n_out] += s20
            slope[first + 2 * n_out + 1] += s21
            slope[first + 3 * n_out] += s30
            slope[first + 3 * n_out + 1] += s31
    if n_out % 2:
        o = n_out - 1
        for i in range(n_in - n_in % 4):
            s00 = ZERO
            for r in range(ROWS):
                s00 += a[i, r] * g[o, r]
            slope[at + i * n_out + o] += s00
    for i in range(n_in - n_in % 4, n_in):
        for o in range(n_out):
            s00 = ZERO
            for r in range(ROWS):
                s00 += a[i, r] * g[o, r]
            slope[at + i * n_out + o] += s00
    for o in range(n_out):
        s00 = ZERO
        for r in range(ROWS):
            s00 += g[o, r]
        slope[at + n_in * n_out + o] += s00


@part
def activate(z, n, activation, bits, out):
    """Write a(z) of ``n`` units to ``out``."""
    for j in range(n):
        if activation == RELU:
            for r in range(ROWS):  # what is not a number stays what it is
                out[j, r] = ZERO if z[j, r] < ZERO else z[j, r]
        else:  # tanh z = 2 logistic(2 z) - 1
            factor = -TWO if activation == TANH else -ONE
            for r in range(ROWS):
                z[j, r] *= factor
            exp_all(z[j], bits)
            for r in range(ROWS):
                h = ONE / (ONE + z[j, r])
                out[j, r] = TWO * h - ONE if activation == TANH else h


@part
def times_slope(z, h, n, activation, out):
    """Write z times da/dz to ``out``, given h = a."""
    for j in range(n):
        if activation == RELU:
            for r in range(ROWS):
                out[j, r] = ZERO if h[j, r] <= ZERO else z[j, r]
        elif activation == TANH:
            for r in range(ROWS):
                out[j, r] = z[j, r] * (ONE - h[j, r] * h[j, r])
        else:
            for r in range(ROWS):
                out[j, r] = z[j, r] * h[j, r] * (ONE - h[j, r])


@part
def categorical(f, labels, sizes, weight, log_p, bits, g):
    """Log probabilities of the classes of rows, and the slopes of -weight log p in f.

    Each target has its ``labels`` (ROWS,) and its number of classes, and the outputs f after those
    of the target before it.
    """
    top, total = g[sizes.sum()], g[sizes.sum() + 1]
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

    ``log_noise`` is added to them, and the slopes in them to ``slope[at:]``.
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


@part
def add_gradient(theta, rows, slope, total):
    """Add the slopes of -sum_r weight[r] log p(y[r]) to ``slope``, and the sums to ``total``.

    ``theta`` and ``slope`` are (chains, parameters), ``total`` is (chains,). Of the ``rows``, ``x``
    (chains or 1, rows, columns) and the targets ``y`` or ``labels`` (chains or 1, rows, k) are of
    all chains or of each; so are the weights. Targets with labels have ``classes`` (k,) classes.
    ``log_noise`` (k,) are the log sds of normal targets, to which a chain may add its own; of noise
    that depends on the row, it is the log of the typical sd, and ``share`` (chains,) the part of
    the outputs that depend on the row.
    """
    x, y, labels, classes, weight, sizes, activation, kind, log_noise, floor, share = rows
    n_layers, k = len(sizes) - 1, sizes[-1]
    n_targets = labels.shape[2] if kind == CATEGORICAL else y.shape[2]
    widest = 0
    for n in sizes:
        widest = max(widest, n)
    h = np.empty((n_layers, widest, ROWS), np.float32)
    z = np.empty((widest, ROWS), np.float32)
    g = np.empty((widest + 2, ROWS), np.float32)
    targets = np.zeros((n_targets, ROWS), np.float32)
    codes = np.zeros((n_targets, ROWS), np.int64)
    w, log_p, bits = (
        np.zeros(ROWS, np.float32),
        np.empty(ROWS, np.float32),
        np.empty(ROWS, np.int32),
    )
    for start in range(0, x.shape[1], ROWS):
        n = min(ROWS, x.shape[1] - start)
        for c in range(len(theta)):
            if c < len(x):
                h[0, : sizes[0], n:] = ZERO
                for r in range(n):
                    for i in range(sizes[0]):
                        h[0, i, r] = x[c, start + r, i]
            if c < len(weight):
                w[n:] = ZERO
                copy(weight[c, start : start + n], w[:n])
            if kind == CATEGORICAL:
                if c < len(labels):
                    for j in range(n_targets):
                        copy(labels[c, start : start + n, j], codes[j, :n])
            elif c < len(y):
                for j in range(n_targets):
                    copy(y[c, start : start + n, j], targets[j, :n])
            at = 0
            for layer in range(n_layers):
                n_in, n_out = sizes[layer], sizes[layer + 1]
                for j in range(n_out):
                    z[j] = theta[c, at + n_in * n_out + j]
                add_products(theta[c], at, 1, n_out, n_in, n_out, h[layer], z)
                at += (n_in + 1) * n_out
                if layer < n_layers - 1:
                    activate(z, n_out, activation, bits, h[layer + 1])
            if kind == CATEGORICAL:
                categorical(z, codes, classes, w, log_p, bits, g)
            elif kind == GAUSSIAN:
                gaussian(z, targets, k, log_noise, theta[c], at, w, log_p, g, slope[c])
            else:
                a = share[c]
                for j in range(n_targets, k):
                    bias = theta[c, at - k + j]
                    for r in range(ROWS):
                        z[j, r] = bias + a * (z[j, r] - bias)
                heteroscedastic(z, targets, n_targets, log_noise[0], floor, w, log_p, bits, g)
                for j in range(n_targets, k):
                    lost = ZERO
                    for r in range(ROWS):
                        lost += g[j, r]
                        g[j, r] *= a
                    slope[c, at - k + j] += (ONE - a) * lost
            for r in range(ROWS):
                total[c] += w[r] * log_p[r]
            for back in range(n_layers):
                layer = n_layers - 1 - back
                n_in, n_out = sizes[layer], sizes[layer + 1]
                at -= (n_in + 1) * n_out
                add_slopes(h[layer], g, n_in, n_out, slope[c], at)
                if layer:
                    for i in range(n_in):
                        z[i] = ZERO
                    add_products(theta[c], at, n_out, 1, n_out, n_in, g, z)
                    times_slope(z, h[layer], n_in, activation, g)


@jit
def gradient(theta, rows, slope):
    """Add the slopes to ``slope`` as :func:`add_gradient` does, and return the sums."""
    total = np.zeros(len(theta))
    add_gradient(theta, rows, slope, total)
    return total
