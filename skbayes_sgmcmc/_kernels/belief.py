"""Gibbs sampling of a layer of binary units of a sigmoid belief network."""

from __future__ import annotations

import numpy as np

from . import jit

#: factors multiplied before a logarithm is taken: they are at most about 1e17
BLOCK = 16


@jit
def sample_units(h, lift, odds, factor, uniforms, probability):
    """Sample the units ``h`` (documents, units) of a layer, one after another, in place.

    ``odds`` (documents, units below) are those of each unit below being on given ``h``, and follow
    it; ``factor`` (units, units below) is what a unit multiplies them by. ``lift`` is the log odds
    of each unit but for the normalisers of the units below, sum_k log(1 + odds_k). The units'
    conditional probabilities go to ``probability``.
    """
    n_units, n_below = factor.shape
    for d in range(len(h)):
        below = odds[d]
        for m in range(n_units):
            by = factor[m]
            if h[d, m] > 0:
                for k in range(n_below):
                    below[k] /= by[k]
            cost = 0.0
            for start in range(0, n_below, BLOCK):
                on, off = 1.0, 1.0
                for k in range(start, min(start + BLOCK, n_below)):
                    on *= 1.0 + below[k] * by[k]
                    off *= 1.0 + below[k]
                cost += np.log(on / off)
            p = 1.0 / (1.0 + np.exp(cost - lift[d, m]))
            probability[d, m] = p
            h[d, m] = uniforms[d, m] < p
            if h[d, m] > 0:
                for k in range(n_below):
                    below[k] *= by[k]
