"""Convolutions and their pools, for a block of rows.

A pixel after a pool is the largest of some pixels before it, its members. ``shapes`` has a row for
each convolution: its pixels after the pool, the members of each, its channels, the weights of a
channel, and its first member. Member m reads the units ``sources[starts[m]:starts[m + 1]]`` below,
by the weights of a channel with the numbers in ``weights``. Parameters of a convolution are kernels
(channels, weights) and (channels,) offsets.
"""

from __future__ import annotations

import numpy as np

from . import part
from .layers import (
    EVERY,
    ROWS,
    ZERO,
    activate,
    add_products,
    add_slopes,
    add_sums,
    times_slope,
)


@part
def workspace(shapes, n_columns):
    """Working memory: units before each convolution, slopes in units, and members that won."""
    widest = n_columns
    for s in range(len(shapes)):
        widest = max(widest, shapes[s, 0] * shapes[s, 2])
    return (
        np.empty((len(shapes), widest, ROWS), np.float32),
        np.empty((2, widest, ROWS), np.float32),
        np.empty((len(shapes), widest, ROWS), np.float32),
    )


@part
def convolve(theta, images, memory, activation, z, bits, last):
    """Write the units after all convolutions to ``last``; return where their parameters end.

    ``memory`` has the units before the first, and gets those before the others.
    """
    shapes, starts, sources, weights = images
    units, _, winners = memory
    at = 0
    for s in range(len(shapes)):
        n_pixels, n_members, n_out, n_in = shapes[s, 0], shapes[s, 1], shapes[s, 2], shapes[s, 3]
        after = units[s + 1] if s + 1 < len(shapes) else last
        m = shapes[s, 4]
        for first in range(0, n_pixels * n_out, n_out):
            for member in range(n_members):
                number = np.float32(member)
                for o in range(n_out):
                    z[o] = theta[at + n_in * n_out + o]
                some = slice(starts[m], starts[m + 1])
                m += 1
                read, by = sources[some], weights[some]
                n = len(by)
                add_products(theta, n_out, (at, n_in), n, by, units[s], read, z, EVERY)
                for o in range(n_out):
                    best, winner = after[first + o], winners[s, first + o]
                    for r in range(ROWS):  # what is not a number wins
                        wins = member == 0 or z[o, r] > best[r] or z[o, r] != z[o, r]
                        best[r] = z[o, r] if wins else best[r]
                        winner[r] = number if wins else winner[r]
        activate(after, n_pixels * n_out, activation, bits)
        at += (n_in + 1) * n_out
    return at


@part
def pull_back(theta, images, memory, last, activation, delta, g, at, slope):
    """Add the slopes in the parameters before ``theta[at]``, given those in the last units."""
    shapes, starts, sources, weights = images
    units, slopes, winners = memory
    for back in range(len(shapes)):
        s = len(shapes) - 1 - back
        n_pixels, n_members, n_out, n_in = shapes[s, 0], shapes[s, 1], shapes[s, 2], shapes[s, 3]
        after = units[s + 1] if back else last
        before, below = slopes[s % 2] if back else delta, slopes[1 - s % 2]
        times_slope(before, after, n_pixels * n_out, activation)
        if s:
            below[: shapes[s - 1, 0] * shapes[s - 1, 2]] = ZERO
        at -= (n_in + 1) * n_out
        m = shapes[s, 4]
        for first in range(0, n_pixels * n_out, n_out):
            add_sums(before[first:], n_out, slope, at + n_in * n_out)
            for member in range(n_members):
                number = np.float32(member)
                for o in range(n_out):
                    for r in range(ROWS):
                        won = winners[s, first + o, r] == number
                        g[o, r] = before[first + o, r] if won else ZERO
                some = slice(starts[m], starts[m + 1])
                m += 1
                read, by = sources[some], weights[some]
                n, kernels = len(by), (at, n_in)
                add_slopes(units[s], n, read, g, n_out, by, kernels, slope)
                if s:
                    add_products(theta, n, by, n_out, kernels, g, EVERY, below, read)
