"""Gradients of networks, with a block of rows in the first-level cache from x to the last layer.

All chains take a block in turn, so that rows which they share are read once. Weights of a layer are
at ``theta[at:]``, (inputs, units) and then (units,) biases, and so are their slopes. Networks of
images begin with convolutions.
"""

from __future__ import annotations

import numpy as np

from . import copy, jit, part
from .convolutions import convolve, pull_back, workspace
from .layers import (
    EVERY,
    HALF,
    ONE,
    ROWS,
    TWO,
    ZERO,
    activate,
    add_products,
    add_slopes,
    add_sums,
    exp_all,
    log_all,
    times_slope,
)
from .lookups import look_up, pull_back_constant, pull_back_rows, usual_units

#: likelihoods, by their numbers
CATEGORICAL, GAUSSIAN, HETEROSCEDASTIC = range(3)
LOG_ROOT_TWO_PI = np.float32(0.5 * np.log(2.0 * np.pi))


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
def likelihood(f, y, labels, own, theta, at, weight, share, log_p, bits, g, slope):
    """Log densities of a block of rows, and the slopes of -weight log p in its outputs f."""
    classes, k, kind, log_noise, floor = own
    if kind == CATEGORICAL:
        categorical(f, labels, classes, k, weight, log_p, bits, g)
    elif kind == GAUSSIAN:
        gaussian(f, y, k, log_noise, theta, at, weight, log_p, g, slope)
    else:
        n = len(y)
        for j in range(n, k):
            bias = theta[at - k + j]
            for r in range(ROWS):
                f[j, r] = bias + share * (f[j, r] - bias)
        heteroscedastic(f, y, n, log_noise[0], floor, weight, log_p, bits, g)
        for j in range(n, k):
            lost = ZERO
            for r in range(ROWS):
                lost += g[j, r]
                g[j, r] *= share
            slope[at - k + j] += (ONE - share) * lost


@part
def take_rows(x, start, out):
    """Write rows to ``out`` (columns, ROWS), and zeros after the last."""
    n = max(min(ROWS, len(x) - start), 0)
    for i in range(x.shape[1]):
        for r in range(n):
            out[i, r] = x[start + r, i]
        for r in range(n, ROWS):
            out[i, r] = 0


@jit
def gradient(theta, rows, images, lookups, slope, total):
    """Add the slopes of -sum_r weight[r] log p(y[r]) to ``slope``, and the sums to ``total``.

    ``theta`` and ``slope`` are (chains, parameters), ``total`` is (chains,). Of the ``rows``, ``x``
    (chains or 1, rows, columns) and the targets ``y`` or ``labels`` (chains or 1, rows, k) are of
    all chains or of each; so are the weights. Targets with labels have ``classes`` (k,) classes.
    ``log_noise`` (k,) are the log sds of normal targets, to which a chain may add its own; of noise
    that depends on the row, it is the log of the typical sd, and ``share`` (chains,) the part of
    the outputs that depend on the row. ``images`` are the convolutions, if there are any; code for
    none is compiled without them. The same holds for the ``lookups`` of a first layer: x then
    has the dense inputs alone.
    """
    x, y, labels, classes, weight, sizes, activation, kind, log_noise, floor, share = rows
    n_layers, k = len(sizes) - 1, sizes[-1]
    own = classes, k, kind, log_noise, floor
    widest = k
    for units in sizes:  # max would take longer to compile
        widest = max(widest, units)
    if images is not None:
        memory = workspace(images[0], x.shape[2])
        for shape in images[0]:
            widest = max(widest, shape[2])
    begin = 0
    if lookups is not None:
        begin, looked_up = 1, usual_units(theta, lookups, sizes[1])
        each = len(lookups[0][3]) > x.shape[1]
    h = np.empty((n_layers, widest, ROWS), np.float32)
    # likelihoods use two more rows of g, and the two change places
    z = np.empty((widest + 2, ROWS), np.float32)
    g = np.empty((widest + 2, ROWS), np.float32)
    targets = np.empty((y.shape[2], ROWS), np.float32)
    codes = np.empty((labels.shape[2], ROWS), np.int64)
    w, log_p = np.zeros(ROWS, np.float32), np.empty(ROWS, np.float32)
    bits = np.empty(ROWS, np.int32)
    for start in range(0, x.shape[1], ROWS):
        n = min(ROWS, x.shape[1] - start)
        for c in range(len(theta)):
            if c < len(x):
                take_rows(x[c], start, h[0] if images is None else memory[0][0])
            if c < len(weight):
                w[n:] = ZERO
                copy(weight[c, start : start + n], w[:n])
            if c < len(labels):
                take_rows(labels[c], start, codes)
            if c < len(y):
                take_rows(y[c], start, targets)
            at = np.int64(0)  # for 0, numba would compile what takes it once more
            if images is not None:
                at = convolve(theta[c], images, memory, activation, z, bits, h[0])
            if lookups is not None:
                these = c, start + (c * x.shape[1] if each else 0), n
                out = h[1] if n_layers > 1 else z
                at = look_up(theta[c], lookups, looked_up, these, h[0], out)
            for layer in range(begin, n_layers):
                n_in, n_out = sizes[layer], sizes[layer + 1]
                if layer:
                    activate(h[layer], n_in, activation, bits)
                out = h[layer + 1] if layer < n_layers - 1 else z
                for j in range(n_out):
                    out[j] = theta[c, at + n_in * n_out + j]
                ins, outs = (at, n_out), EVERY
                add_products(theta[c], n_out, outs, n_in, ins, h[layer], EVERY, out, EVERY)
                at += (n_in + 1) * n_out
            likelihood(z, targets, codes, own, theta[c], at, w, share[c], log_p, bits, g, slope[c])
            for r in range(ROWS):
                total[c] += w[r] * log_p[r]
            for back in range(n_layers - begin):
                layer = n_layers - 1 - back
                n_in, n_out = sizes[layer], sizes[layer + 1]
                at -= (n_in + 1) * n_out
                ins, outs = (at, n_out), EVERY
                add_slopes(h[layer], n_in, EVERY, g, n_out, ins, outs, slope[c])
                add_sums(g, n_out, slope[c], at + n_in * n_out)
                if layer or images is not None:
                    for i in range(n_in):
                        z[i] = ZERO
                    add_products(theta[c], n_in, ins, n_out, outs, g, EVERY, z, EVERY)
                if layer:
                    times_slope(z, h[layer], n_in, activation)
                    g, z = z, g
            if images is not None:
                pull_back(theta[c], images, memory, h[0], activation, z, g, at, slope[c])
            if lookups is not None:
                pull_back_rows(g, lookups, looked_up, these, h[0], slope[c])
    if lookups is not None:
        pull_back_constant(lookups, looked_up, slope)
