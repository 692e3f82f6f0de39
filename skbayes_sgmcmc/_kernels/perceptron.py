"""Gradients of networks, with a block of rows in the first-level cache from x to the last layer.

All chains take a block in turn, so that rows which they share are read once. Weights of a layer are
at ``theta[at:]``, (inputs, units) and then (units,) biases, and so are their slopes. Networks of
images begin with convolutions.
"""

from __future__ import annotations

import numpy as np

from . import copy, jit, part
from .convolutions import convolve, pull_back, workspace
from .layers import EVERY, ROWS, ZERO, activate, add_products, add_slopes, add_sums, times_slope
from .likelihoods import OUTPUTS, likelihood
from .lookups import look_up, pull_back_constant, pull_back_rows, usual_units


@part
def take_rows(x, start, out):
    """Write rows to ``out`` (columns, ROWS), and zeros after the last."""
    n = max(min(ROWS, len(x) - start), 0)
    for i in range(x.shape[1]):
        for r in range(n):
            out[i, r] = x[start + r, i]
        for r in range(n, ROWS):
            out[i, r] = 0


@part
def largest(numbers):
    """The largest of some; max would take longer to compile."""
    found = numbers[0]
    for number in numbers:
        found = max(found, number)
    return found


@jit
def gradient(theta, rows, network, images, lookups, slope, total):
    """Add the slopes of -sum_r weight[r] log p(y[r]) to ``slope``, and the sums to ``total``.

    ``theta`` and ``slope`` are (chains, parameters), ``total`` is (chains,). Of the ``rows``, ``x``
    (chains or 1, rows, columns) and the targets ``y`` or ``labels`` (chains or 1, rows, k) are of
    all chains or of each; so are the weights. The ``network`` includes the likelihood. Targets with
    labels have ``classes`` (k,) classes.
    ``shift`` (k,) are the log sds of normal targets, to which a chain may add its own; of noise
    that depends on the row, it is the log of the typical sd, and ``share`` (chains,) the part of
    the outputs that depend on the row. ``bound`` and other meanings are those of the functions of
    ``likelihoods.py``. ``images`` are the convolutions, if there are any; code for
    none is compiled without them. The same holds for the ``lookups`` of a first layer: x then
    has the dense inputs alone, and ``first`` is the first of the rows to look up. Without a
    likelihood, y (chains, rows, k) takes the outputs, or holds slopes in them.
    """
    x, y, labels, weight, first = rows
    sizes, activation, classes, kind, shift, bound, share = network
    n_layers, k = len(sizes) - 1, sizes[-1]
    own = classes, k, kind, shift, bound
    widest = largest(sizes)
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
                these = c, first + start + (c * x.shape[1] if each else 0), n
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
            if kind == OUTPUTS:
                for r in range(n):
                    for j in range(k):
                        y[c, start + r, j] = z[j, r]
                continue
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
