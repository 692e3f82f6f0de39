"""Outputs of perceptrons for many draws, with a block of rows in the first-level cache."""

from __future__ import annotations

import numpy as np

from . import copy, jit
from .layers import EVERY, ROWS, activate, add_products
from .perceptron import take_rows


@jit
def outputs(theta, x, sizes, activation, out):
    """Write the outputs of all draws ``theta`` (draws, parameters) to ``out`` (draws, k, rows).

    They share the rows x (rows, columns). Weights of a layer are at ``theta[at:]``, (inputs, units)
    and then (units,) biases.
    """
    n_layers = len(sizes) - 1
    widest = sizes[1]
    for units in sizes[1:]:  # max would take longer to compile
        widest = max(widest, units)
    h = np.empty((2, widest, ROWS), np.float32)
    first = np.empty((x.shape[1], ROWS), np.float32)
    bits = np.empty(ROWS, np.int32)
    for start in range(0, len(x), ROWS):
        n = min(ROWS, len(x) - start)
        take_rows(x, start, first)
        for c in range(len(theta)):
            at, a = np.int64(0), first
            for layer in range(n_layers):
                n_in, n_out = sizes[layer], sizes[layer + 1]
                z = h[layer % 2]
                for j in range(n_out):
                    z[j] = theta[c, at + n_in * n_out + j]
                add_products(theta[c], n_out, EVERY, n_in, (at, n_out), a, EVERY, z, EVERY)
                if layer < n_layers - 1:
                    activate(z, n_out, activation, bits)
                at, a = at + (n_in + 1) * n_out, z
            for j in range(sizes[-1]):
                copy(a[j, :n], out[c, j, start : start + n])
