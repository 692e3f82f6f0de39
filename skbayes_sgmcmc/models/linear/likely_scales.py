"""The likely scale of many coefficients that are not seen together, such as those of categories.

A Gaussian approximation finds the scale that its coefficients have, and the coefficients those that
the scale allows: where rows say little of each coefficient, this takes hundreds of steps, and
chains as long. Given the scale, coefficients that no row has together are nearly independent, and
the evidence of the scale is a function of one number.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.optimize

from ..._arrays import Array

#: fewest coefficients of a scale that is looked for: fewer are found by the approximation itself
MANY = 30
#: a scale is at most this many times smaller or larger than its typical value
FARTHEST = 1e4


def likely_scale(score: Array, curvature: Array, shape: float, rate: float) -> float:
    r"""The scale s of coefficients w ~ N(0, s^2) with the largest posterior density of log s.

    Coefficient j has the log likelihood g_j w_j - h_j w_j^2 / 2 with the ``score`` g and the
    ``curvature`` h. It is integrated out:

    .. math::
        \log p(s) = \tfrac12 \sum_j \Big(\frac{g_j^2 s^2}{1 + h_j s^2} - \log(1 + h_j s^2)\Big)
        - 2 a \log s - b / s^2 + c,

    with the hyperprior :math:`1/s^2 \sim \mathrm{Gamma}(a, b)`: ``shape`` and ``rate``.
    """
    squares = score**2

    def potential(log_scale: float) -> float:
        square = math.exp(2.0 * log_scale)
        known = curvature * square
        fit = squares * square / (1.0 + known) - np.log1p(known)
        return float(2.0 * shape * log_scale + rate / square - 0.5 * fit.sum())

    middle, width = 0.5 * math.log(rate / shape), math.log(FARTHEST)
    found = scipy.optimize.minimize_scalar(
        potential, bounds=(middle - width, middle + width), method="bounded"
    )
    return math.exp(found.x)
