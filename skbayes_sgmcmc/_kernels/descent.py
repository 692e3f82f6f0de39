"""Steps of Adam on perceptrons with normal priors, with the symbols of ``_engine/descent.py``."""

from __future__ import annotations

import numpy as np

from . import jit
from ._addresses import called
from .perceptron import gradient
from .rows_of_steps import of_step

add_gradient = called(gradient)


@jit
def descend(likelihood, given, averages, rates, n, rule, steps, count):
    """Take steps of all chains, in place.

    ``likelihood`` and ``given`` are those of the steps of ``MCLMC``. The ``averages`` are Adam's
    mean and square, ``rates`` those of the prior, all (chains, parameters). The ``rule`` has the
    learning rate and Adam's constants; ``steps`` are those that were taken before these.
    """
    theta, g = given[0], given[-2]
    mean, square = averages
    rate, first, second, tiny = rule
    n_chains, d = theta.shape
    per_n, new, newer = np.float32(1.0 / n), np.float32(1.0 - first), np.float32(1.0 - second)
    kept, least = np.float32(second), np.float32(tiny)
    for t in range(count):
        for c in range(n_chains):
            for i in range(d):
                g[c, i] = per_n * (rates[c, i] * theta[c, i])
        add_gradient(likelihood, of_step(given, t))
        k = steps + t + 1
        factor = np.float32(1.0 / (1.0 - second**k))
        length = np.float32(rate / (1.0 - first**k))
        for c in range(n_chains):
            for i in range(d):
                slope = g[c, i]
                mean[c, i] += new * (slope - mean[c, i])
                square[c, i] = kept * square[c, i] + newer * (slope * slope)
                theta[c, i] -= length * mean[c, i] / (np.sqrt(square[c, i] * factor) + least)
