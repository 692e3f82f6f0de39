r"""Likelihood of positive targets with an sd proportional to their mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from . import predictive
from .base import LOG_RESOLUTION, RESOLUTION, refuse_targets, unknown
from .counts import TYPICAL_DISPERSION, Dispersed, digamma_rest, stirling_rest
from .slopes import Compiled, Own


class Gamma(Dispersed):
    r"""Gamma distribution; all rows of an output share the dispersion.

    .. math::
        p(y|f) = \frac{(\kappa / \mu)^\kappa}{\Gamma(\kappa)} y^{\kappa - 1} e^{-\kappa y / \mu},
        \quad \mu = m e^f,\quad \kappa = 1 / \alpha

    The variance is :math:`\alpha\mu^2`. The dispersions are inferred, as the parameters
    ``log_dispersion`` :math:`= \log(\alpha / 0.3)`.
    """

    @staticmethod
    def check_targets(y: Array) -> None:
        allowed = "positive numbers, or likelihood='normal'"
        refuse_targets(y[~(y > 0.0)], "likelihood='gamma'", allowed)

    @staticmethod
    def typical_means(y: Array, weight: Array | None) -> Array:
        return np.asarray(np.average(y, axis=0, weights=weight))

    def width(self, own: Array) -> Any:
        return np.sqrt(TYPICAL_DISPERSION * np.exp(own[:, 0]))

    def log_density(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        # Stirling's formula leaves no differences of large numbers, also if the shape is large
        shape, log_y = 1.0 / self.dispersion(own), torch.log(y)
        log_ratio = log_y - self.log_mean(f)
        log_p = -shape * (torch.expm1(log_ratio) - log_ratio) - log_y - stirling_rest(shape)
        log_p = log_p - unknown(-0.5 * torch.log(shape))
        return (log_p + 0.5 * torch.log(shape) - 0.5 * math.log(2.0 * math.pi)).sum(2)

    def compiled(self, y: Array) -> Compiled | None:
        shift = np.log(self.typical[0])
        own = *self.compiled_own, Own(LOG_RESOLUTION, given=True)
        return Compiled("gamma", shift, np.log(y[:, 0]), own=own)

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor | None]:
        shape = 1.0 / self.dispersion(own)
        log_ratio = torch.log(y) - self.log_mean(f)
        excess = torch.expm1(log_ratio)
        by_own = shape * (log_ratio - excess - digamma_rest(shape) - 0.5 * RESOLUTION**2)
        return torch.mul(excess, -shape, out=f), by_own

    def predictive(self, f: Tensor, own: Tensor) -> predictive.Predictive:
        mean = torch.exp(self.log_mean(f))
        return predictive.Gamma(mean, self.dispersion(own).expand(len(f), 1, -1))
