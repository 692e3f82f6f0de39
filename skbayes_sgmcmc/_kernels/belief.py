"""Gibbs sampling of a layer of binary units of a sigmoid belief network."""

from __future__ import annotations

import numpy as np

from . import jit

#: factors multiplied before a logarithm is taken: weights below 20 do not overflow
BLOCK = 32


@jit
def sample_units(h, lift, below, factor, uniforms, probability):
    """Sample the units ``h`` (documents, units) of a layer, one after another, in place.

    ``below`` (documents, units below) are the probabilities of the units below being on given
    ``h``, and follow it; ``factor`` (units, units below) is what a unit that is on multiplies
    their odds by. ``lift`` is the log odds of each unit but for the normalisers of the units
    below, sum_k log(1 + odds_k). The units' conditional probabilities go to ``probability``.
    """
    n_units, n_below = factor.shape
    without = np.empty(n_below)  # probabilities below, were the unit off
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
