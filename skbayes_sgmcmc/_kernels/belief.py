"""Gibbs sampling of a layer of binary units of a sigmoid belief network."""

from __future__ import annotations

import numpy as np

from . import jit

#: number of factors multiplied before a logarithm is taken; weights below 20 do not overflow
BLOCK = 32


@jit
def sample_units(h, lift, below, factor, uniforms, probability):
    """Sample the units ``h`` (documents, units) of a layer, one after another, in place.

    ``below`` (documents, units below) are the probabilities that the units below are on, given
    ``h``; they are updated with ``h``. ``factor`` (units, units below) are the factors by which a
    unit that is on multiplies the odds of the units below. ``lift`` are the log odds of each unit
    without the normalisers of the units below, sum_k log(1 + odds_k). The conditional probabilities
    of the units are written to ``probability``.
    """
    n_units, n_below = factor.shape
    without = np.empty(n_below)  # probabilities below if the unit is off
    for d in range(len(h)):
        now = below[d]
        for m in range(n_units):
            by, was_on = factor[m], h[d, m] > 0
            if was_on:
                for k in range(n_below):
                    without[k] = now[k] / (by[k] + now[k] * (1.0 - by[k]))
            else:
                for k in range(n_below):
                    without[k] = now[k]
            cost = 0.0
            for start in range(0, n_below, BLOCK):
                product = 1.0
                for k in range(start, min(start + BLOCK, n_below)):
                    product *= 1.0 + without[k] * (by[k] - 1.0)
                cost += np.log(product)
            p = 1.0 / (1.0 + np.exp(cost - lift[d, m]))
            probability[d, m] = p
            on = uniforms[d, m] < p
            h[d, m] = on
            if was_on and not on:
                for k in range(n_below):
                    now[k] = without[k]
            elif on and not was_on:
                for k in range(n_below):
                    now[k] = without[k] * by[k] / (1.0 + without[k] * (by[k] - 1.0))
