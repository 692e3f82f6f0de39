"""Layers of networks, for a block of rows that stays in the first-level cache.

Units of a block are stored as (units, ROWS), so that vectors of the processor run over rows. All
sums are in single precision.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from .._polynomials import interpolated
from . import inlined, part, polynomial
from .philox import LOG_TWO, log_rest
from .tiles import TILE, tile

#: rows of a block
ROWS = 128
#: activations, by their numbers
RELU, TANH, LOGISTIC = range(3)
#: bound on the argument of exp; log 2 as a number with exact products with integers, and the
#: rest
LARGEST = np.float32(87.0)
LOG_TWO_HIGH, LOG_TWO_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
PER_LOG_TWO = np.float32(1 / np.log(2.0))
#: bits of the root of one half
ROOT_HALF = np.int32(0x3F3504F3)
ZERO, HALF, ONE, TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)

#: exp of numbers up to half of log 2, with relative error 1e-7
exp_rest = polynomial(interpolated(np.exp, -0.35, 0.35, 6))
#: products for tiles of units
add_to_four, add_to_one = tile(4, ROWS), tile(1, ROWS)
#: all units of a layer
EVERY = 0, 1


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


def place(places, i):
    """The i-th of places that are an array, or (first, step) if evenly spaced.

    A name for compiled code alone: ``_place`` gives it its two meanings.
    """


@overload(place, inline="always")
def _place(places, i):
    if isinstance(places, types.Array):
        return lambda places, i: places[i]
    return lambda places, i: places[0] + i * places[1]


@inlined
def add_products(w, n_out, outs, n_in, ins, a, sources, out, targets):
    """Add the sum over i of w[outs[o] + ins[i]] a[sources[i]] to each out[targets[o]]."""
    for r in range(0, ROWS, TILE):
        for o in range(0, n_out - 3, 4):
            add_to_four(w, outs, n_in, ins, a, sources, out, targets, o, r)
        for o in range(n_out - n_out % 4, n_out):
            add_to_one(w, outs, n_in, ins, a, sources, out, targets, o, r)


@inlined
def add_slopes(a, n_in, sources, g, n_out, ins, outs, slope):
    """Add the sum over r of a[sources[i], r] g[o, r] to each slope[outs[o] + ins[i]]."""
    whole = n_in - n_in % 4
    for i in range(0, whole, 4):
        u0, u1 = place(sources, i), place(sources, i + 1)
        u2, u3 = place(sources, i + 2), place(sources, i + 3)
        p0, p1 = place(ins, i), place(ins, i + 1)
        p2, p3 = place(ins, i + 2), place(ins, i + 3)
        for o in range(0, n_out - 1, 2):
            s00, s10, s20, s30 = ZERO, ZERO, ZERO, ZERO
            s01, s11, s21, s31 = ZERO, ZERO, ZERO, ZERO
            for r in range(ROWS):
                a0, a1, a2, a3 = a[u0, r], a[u1, r], a[u2, r], a[u3, r]
                g0, g1 = g[o, r], g[o + 1, r]
                s00 += a0 * g0
                s10 += a1 * g0
                s20 += a2 * g0
                s30 += a3 * g0
                s01 += a0 * g1
                s11 += a1 * g1
                s21 += a2 * g1
                s31 += a3 * g1
            q0, q1 = place(outs, o), place(outs, o + 1)
            slope[p0 + q0] += s00
            slope[p1 + q0] += s10
            slope[p2 + q0] += s20
            slope[p3 + q0] += s30
            slope[p0 + q1] += s01
            slope[p1 + q1] += s11
            slope[p2 + q1] += s21
            slope[p3 + q1] += s31
    for i in range(n_in):
        unit = place(sources, i)
        for o in range(n_out - n_out % 2 if i < whole else 0, n_out):
            total = ZERO
            for r in range(ROWS):
                total += a[unit, r] * g[o, r]
            slope[place(outs, o) + place(ins, i)] += total


@inlined
def add_sums(g, n, slope, at):
    """Add the sum of each row of g, up to the n-th, to slope[at:]."""
    for o in range(n):
        total = ZERO
        for r in range(ROWS):
            total += g[o, r]
        slope[at + o] += total


@part
def activate(z, n, activation, bits):
    """Replace z of ``n`` units by a(z)."""
    for j in range(n):
        if activation == RELU:
            for r in range(ROWS):  # what is not a number stays what it is
                z[j, r] = ZERO if z[j, r] < ZERO else z[j, r]
        else:  # tanh z = 2 logistic(2 z) - 1
            factor = -TWO if activation == TANH else -ONE
            for r in range(ROWS):
                z[j, r] *= factor
            exp_all(z[j], bits)
            for r in range(ROWS):
                h = ONE / (ONE + z[j, r])
                z[j, r] = TWO * h - ONE if activation == TANH else h


@part
def times_slope(z, h, n, activation):
    """Multiply z by da/dz, given h = a."""
    for j in range(n):
        if activation == RELU:
            for r in range(ROWS):
                z[j, r] = ZERO if h[j, r] <= ZERO else z[j, r]
        elif activation == TANH:
            for r in range(ROWS):
                z[j, r] *= ONE - h[j, r] * h[j, r]
        else:
            for r in range(ROWS):
                z[j, r] *= h[j, r] * (ONE - h[j, r])
