"""A first layer that looks up its weights, for rows that hold few numbers of their own.

Most inputs have a constant value in most rows: indicators, or words. What a row adds to it is in a
CSR matrix, and other inputs are dense. ``lookups`` are the matrix, the places of dense inputs, and
the constant of each input. The matrix has values, columns, starts of rows, the numbers of those
that are chosen, and the width of each chain's block of columns (0: all have the same columns).
Parameters are weights (inputs, units) and (units,) biases.
"""

from __future__ import annotations

import numpy as np

from . import inlined, part
from .layers import EVERY, ROWS, ZERO, add_products, add_slopes, add_sums
from .tiles import UNITS, add_scaled


@part
def usual_units(theta, lookups, n_out):
    """Working memory: units (chains, n_out) of rows with the constant alone, sums, and units."""
    constant = lookups[2]
    n_in = len(constant)
    usual, sums = (
        np.empty((len(theta), n_out), np.float32),
        np.empty((len(theta), n_out), np.float32),
    )
    for c in range(len(theta)):
        for o in range(n_out):
            usual[c, o], sums[c, o] = theta[c, n_in * n_out + o], ZERO
        for i in range(n_in):
            for o in range(n_out):
                usual[c, o] += constant[i] * theta[c, i * n_out + o]
    return usual, sums, np.empty(n_out, np.float32)


@part
def add_multiple(out, to, x, a, at, n):
    """Add x a[at + j] to out[to + j], for j < n."""
    whole = n - n % UNITS
    for j in range(0, whole, UNITS):
        add_scaled(out, to + j, x, a, at + j)
    for j in range(whole, n):
        out[to + j] += x * a[at + j]


@part
def add_looked_up(theta, csr, unit, rows, out):
    """Add what a chain's rows hold to ``out`` (units, ROWS)."""
    values, columns, starts, chosen, width = csr
    c, first, n = rows
    n_out = len(unit)
    for r in range(n):
        row = chosen[first + r]
        for o in range(n_out):
            unit[o] = ZERO
        for k in range(starts[row], starts[row + 1]):
            at, x = (columns[k] - c * width) * n_out, values[k]
            add_multiple(unit, 0, x, theta, at, n_out)
        for o in range(n_out):
            out[o, r] += unit[o]


@part
def add_looked_up_slopes(g, csr, unit, rows, slope):
    """Add the slopes in the weights that the same rows looked up, given g (units, ROWS)."""
    values, columns, starts, chosen, width = csr
    c, first, n = rows
    n_out = len(unit)
    for r in range(n):
        row = chosen[first + r]
        for o in range(n_out):
            unit[o] = g[o, r]
        for k in range(starts[row], starts[row + 1]):
            at, x = (columns[k] - c * width) * n_out, values[k]
            add_multiple(slope, at, x, unit, 0, n_out)


@inlined
def look_up(theta, lookups, memory, rows, dense, out):
    """Write the layer to ``out`` (units, ROWS), and return where its parameters end.

    ``rows`` are the number of the chain, that of the first row among those that are chosen, and how
    many there are.
    """
    csr, places, constant = lookups
    usual, _, unit = memory
    n_out, c = len(unit), rows[0]
    for o in range(n_out):
        for r in range(ROWS):
            out[o, r] = usual[c, o]
    add_looked_up(theta, csr, unit, rows, out)
    ins = places * n_out
    add_products(theta, n_out, EVERY, len(ins), ins, dense, EVERY, out, EVERY)
    return (len(constant) + 1) * n_out


@inlined
def pull_back_rows(g, lookups, memory, rows, dense, slope):
    """Add the slopes in the weights of the rows' own numbers, given g, and remember their sums."""
    csr, places, _ = lookups
    _, sums, unit = memory
    n_out = len(unit)
    add_looked_up_slopes(g, csr, unit, rows, slope)
    ins = places * n_out
    add_slopes(dense, len(ins), EVERY, g, n_out, ins, EVERY, slope)
    add_sums(g, n_out, sums[rows[0]], 0)


@part
def pull_back_constant(lookups, memory, slope):
    """Add the slopes that all rows share: those in the biases, and in weights of the constant."""
    constant, sums = lookups[2], memory[1]
    n_in, n_out = len(constant), sums.shape[1]
    for c in range(len(sums)):
        for o in range(n_out):
            slope[c, n_in * n_out + o] += sums[c, o]
        for i in range(n_in):
            for o in range(n_out):
                slope[c, i * n_out + o] += constant[i] * sums[c, o]
