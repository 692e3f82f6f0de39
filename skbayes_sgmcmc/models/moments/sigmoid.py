r"""Averages of :math:`\sigma(z)` and its slope over normal z.

Gauss-Hermite quadrature of :math:`\sigma(m + st)` is exact to :math:`10^{-4}` if the logits z vary
little. If they vary much, as those of a row with a huge value, :math:`\sigma` is a step between two
nodes, which quadrature does not see. Then the roles change: :math:`\sigma'` is the density of the
logistic distribution, and with its quantiles :math:`t(u) = \log u / (1 - u)`

.. math::
    E[\sigma(z)] = \int_0^1 \Phi\left(\frac{m - t(u)}{s}\right) du,\quad
    E[\sigma'(z)] = \int_0^1 \frac{1}{s} \phi\left(\frac{m - t(u)}{s}\right) du,

with integrands that are smoother if s is larger.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import logit, ndtr

from ..._arrays import Array
from .._quadrature import gauss

#: sd of the logit at which both methods have errors of 0.0004, and of 0.4% of the slope
WIDE = 2.5
#: largest sd of the logit where five nodes have errors of 1e-8, and of 0.2% of the rms of what is
#: left by a linear function of the logit
NARROW = 0.3
#: quantiles of the logistic distribution at nodes between 0 and 1, and the nodes' weights
QUANTILES, SHARES = np.polynomial.legendre.leggauss(16)
QUANTILES, SHARES = logit(0.5 * (1.0 + QUANTILES)), 0.5 * SHARES


def sigmoid(z: Array) -> Array:
    """sigma(z) of an array, in a quarter of the time of ``scipy.special.expit``."""
    return torch.sigmoid(torch.from_numpy(z)).numpy()


def normal_nodes(sd: Array) -> tuple[Array, Array]:
    """Nodes and weights of N(0, 1), as many as averages over logits of these sds need."""
    return gauss(5 if sd.max(initial=0.0) <= NARROW else 16)


def sigmoid_means(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Averages of sigma(z) and of sigma'(z) over z ~ N(mean, sd^2), for arrays of any shape."""
    p, slope = np.zeros_like(mean), np.zeros_like(mean)
    for node, weight in zip(*normal_nodes(sd), strict=True):
        moved = sigmoid(mean + sd * node)
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
