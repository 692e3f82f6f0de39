r"""The scale of a normal prior under which the data are likeliest, from Gaussian approximations.

With the posterior of n coefficients w approximated by a Gaussian of mean m and precision
:math:`\Lambda + I/s^2`, and the hyperprior :math:`s^2 \sim IG(a, a s_0^2)`, the
maximum of the posterior density of log s satisfies (MacKay 1992)

.. math::
    s^2 = \frac{|m|^2 + 2 a s_0^2}{\gamma + 2a},\quad
    \gamma = \sum_j \frac{\lambda_j}{\lambda_j + s^{-2}}

where :math:`\lambda_j` are the eigenvalues of :math:`\Lambda`, and :math:`\gamma` is the number of
coefficients that the data determine. The approximation depends on s, too, so that both are found
in turns.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..._arrays import Array
from ..._data.minibatch import Data
from ..._limits import LIMITS

if TYPE_CHECKING:
    from .last_layer import HeadModel


#: most approximations, and the change of log s that is the last
MOST_FITS, SAME_SCALE = 12, 0.1


def likeliest_scale(
    model: HeadModel, data: Data, shape: float, typical: float
) -> tuple[float, Array | None]:
    """s for the hyperprior of this shape a and typical scale s_0, and the latest Gaussian's mean.

    The prior of ``model`` has a given scale, which does not matter. The mean is None if there was
    no approximation.

    If classes can be separated, the curvature at the posterior's maximum says nothing of most
    draws. The approximation is therefore the variational one, averaged over itself, as far as its
    full matrix is affordable. Where floating-point numbers do not reach for one, the latest scale
    stays: at first the typical one.
    """
    scale, last, start = typical, 0.0, None
    n, unit = model.n_features * model.k, model.with_scale(1.0).prior_sd
    for _ in range(MOST_FITS):
        fixed, sd = model.with_scale(scale), unit * scale
        fixed.start = start
        try:
            mean, curvature = _approximation(fixed, data, n, sd**-2.0)
        except np.linalg.LinAlgError:
            break
        known = float(np.sum(mean[:n] ** 2)) + 2.0 * shape * (unit * typical) ** 2
        change = math.log(_given_curvature(curvature, known, shape, sd) / sd)
        if not math.isfinite(change):
            break
        start = mean
        if 0.0 < change * last < 0.9 * last**2:  # the sum of a geometric series
            change, last = change / (1.0 - change / last), 0.0
        else:
            last = change
        scale *= math.exp(change)
        if abs(change) < SAME_SCALE:
            break
    return scale, start


def _approximation(model: HeadModel, data: Data, n: int, rate: float) -> tuple[Array, Array]:
    """Mean of the parameters, and eigenvalues of the likelihood's curvature in the first n."""
    if model.n_parameters > LIMITS.full_hessian:
        mean = model.find_map(data, 40)  # goes on from the last one
        diagonal = model.hessian_diagonal(mean, data)
        assert diagonal is not None
        return mean, diagonal[:n]
    mean, precision = model.fit_gaussian(data)
    # the other parameters have flat or fixed priors and are integrated out
    across = np.linalg.solve(precision[n:, n:], precision[n:, :n])
    within = precision[:n, :n] - precision[:n, n:] @ across
    return mean, np.maximum(np.linalg.eigvalsh(within) - rate, 0.0)


def _given_curvature(curvature: Array, known: float, a: float, sd: float) -> float:
    """s for a given curvature of the likelihood, from |m|^2 + 2 a s_0^2."""
    rate = np.float64(sd**-2.0)
    for _ in range(50):
        rate = (np.sum(curvature / (curvature + rate)) + 2.0 * a) / known
    return float(rate**-0.5)
