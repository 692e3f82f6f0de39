r"""Averages of :math:`\sigma(z)` and its slope over normal z.

Gauss-Hermite quadrature of :math:`\sigma(m + st)` is exact to :math:`10^{-4}` if the logits z vary
little. If they vary much, as those of a row with a huge value, :math:`\sigma` is a step between two
nodes, which quadrature does not see. Then the roles change: :math:`\sigma'` is the density of the
logistic distribution, and with its quantiles :math:`t(u) = \log u / (1 - u)`

.. math::
    E[\sigma(z)] = \int_0^1 \Phi\left(\frac{m - t(u)}{s}\right) du,\quad
    E[\sigma'(z)] = \int_0^1 \frac{1}{s} \phi\left(\frac{m - t(u)}{s}\right) du,

whose integrands are the smoother the larger s is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr

Array = NDArray[Any]

#: sd of the logit at which both methods have errors of 0.0004, and of 0.4% of the slope
WIDE = 2.5
#: nodes and weights of the standard normal distribution
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
#: quantiles of the logistic distribution at nodes between 0 and 1, and the nodes' weights
QUANTILES, SHARES = np.polynomial.legendre.leggauss(16)
QUANTILES, SHARES = logit(0.5 * (1.0 + QUANTILES)), 0.5 * SHARES


def sigmoid_means(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Averages of sigma(z) and of sigma'(z) over z ~ N(mean, sd^2), for arrays of any shape."""
    p, slope = np.zeros_like(mean), np.zeros_like(mean)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        moved = expit(mean + sd * node)
        p += weight * moved
        slope += weight * moved * (1.0 - moved)
    wide = sd > WIDE
    if wide.any():
        p[wide], slope[wide] = _of_wide(mean[wide], sd[wide])
    return p, slope


def _of_wide(mean: Array, sd: Array) -> tuple[Array, Array]:
    p, slope = np.zeros_like(mean), np.zeros_like(mean)
    for quantile, share in zip(QUANTILES, SHARES, strict=True):
        away = (mean - quantile) / sd
        p += share * ndtr(away)
        slope += share * np.exp(-0.5 * away * away)
    return p, slope / (sd * math.sqrt(2.0 * math.pi))
