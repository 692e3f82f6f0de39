r"""Likelihoods of counts, and the base of those with a logarithmic link: means m e^f."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from .._constants import Constant
from . import predictive
from .base import Likelihood, Natural, refuse_targets
from .slopes import Compiled, Own

#: median of the prior of the dispersion
TYPICAL_DISPERSION = 0.3


class LogMean(Likelihood):
    """Base class of likelihoods with a logarithmic link, for typical means m (n_outputs,).

    With the mean of the targets, f = 0 predicts this mean.
    """

    def __init__(self, typical: Array):
        self.n_outputs = len(typical)
        self.typical = typical
        self._log_typical = Constant(np.log(typical))

    @staticmethod
    def bounds_intercept(y: Array) -> bool:
        return bool((y > 0.0).any())

    def log_mean(self, f: Tensor) -> Tensor:
        return f + self._log_typical.like(f)


class Dispersed(LogMean):
    """Base class of those with a dispersion that all rows of an output share."""

    #: for compiled slopes, whose parameter is the logarithm of the dispersion
    compiled_own = (Own(math.log(TYPICAL_DISPERSION)),)

    def __init__(self, typical: Array):
        super().__init__(typical)
        self.shapes = {"log_dispersion": (self.n_outputs,)}

    @property
    def natural(self) -> dict[str, Natural]:
        name = "log_dispersion"
        return {name: ("dispersion", lambda draws, unit: TYPICAL_DISPERSION * np.exp(draws[name]))}

    def dispersion(self, own: Tensor) -> Tensor:
        """Dispersions alpha, (chains, 1, k)."""
        return TYPICAL_DISPERSION * torch.exp(own[:, None])


class Poisson(LogMean):
    r"""Poisson distribution.

    .. math:: p(y|f) = e^{-\mu} \mu^y / y!,\quad \mu = m e^f
    """

    @staticmethod
    def check_targets(y: Array) -> None:
        allowed = "whole numbers, 0 or more, or likelihood='normal'"
        refuse_targets(y[(y < 0.0) | (y != np.floor(y))], "a likelihood of counts", allowed)

    @staticmethod
    def typical_means(y: Array, weight: Array | None) -> Array:
        """Mean counts; half a count in all rows if there is none."""
        n = float(len(y)) if weight is None else float(weight.sum())
        return np.asarray(np.maximum(np.average(y, axis=0, weights=weight), 0.5 / n))

    def log_density(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        return self.log_densities(f, y, own).sum(2)

    def log_densities(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        """Those of each target, (chains, rows, k)."""
        log_rate = self.log_mean(f)
        return y * log_rate - torch.exp(log_rate) - torch.lgamma(y + 1.0)

    def log_zero(self, f: Tensor, own: Tensor) -> Tensor:
        """Log probabilities of zeros, (chains, rows, k)."""
        return -torch.exp(self.log_mean(f))

    def compiled(self, y: Array) -> Compiled | None:
        return Compiled("counts", np.log(self.typical[0]), y[:, 0])

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor | None]:
        return torch.exp(self.log_mean(f), out=f).sub_(y), None

    def predictive(self, f: Tensor, own: Tensor) -> predictive.Predictive:
        return predictive.Poisson(torch.exp(self.log_mean(f)))


class NegativeBinomial(Dispersed, Poisson):
    r"""Negative binomial distribution; all rows of an output share the dispersion.

    .. math::
        p(y|f) = \frac{\Gamma(y + r)}{\Gamma(r)\, y!} \Big(\frac{r}{r + \mu}\Big)^r
        \Big(\frac{\mu}{r + \mu}\Big)^y,\quad \mu = m e^f,\quad r = 1 / \alpha

    The variance is :math:`\mu + \alpha\mu^2`; for :math:`\alpha \to 0` the distribution is
    Poisson. The dispersions are inferred, as the parameters ``log_dispersion``
    :math:`= \log(\alpha / 0.3)`.
    """

    def log_densities(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        # Stirling's formula leaves no differences of large numbers, also if r is large
        log_rate, size = self.log_mean(f), 1.0 / self.dispersion(own)
        rate, total = torch.exp(log_rate), y + size
        u = (y - rate) / (rate + size)
        log_p = total * _log_ratio(total, rate + size, u) + y * log_rate - y - torch.lgamma(y + 1.0)
        rest = stirling_rest(total) - stirling_rest(size) - 0.5 * torch.log1p(y / size)
        return log_p + rest

    def log_zero(self, f: Tensor, own: Tensor) -> Tensor:
        dispersion = self.dispersion(own)
        return -torch.log1p(dispersion * torch.exp(self.log_mean(f))) / dispersion

    def compiled(self, y: Array) -> Compiled | None:
        shift = np.log(self.typical[0])
        return Compiled("negative_binomial", shift, y[:, 0], own=self.compiled_own)

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor | None]:
        size = 1.0 / self.dispersion(own)
        rate = torch.exp(self.log_mean(f), out=f)
        total = y + size
        u = (y - rate) / (rate + size)
        by_size = _log_ratio(total, rate + size, u) - u
        by_size += digamma_rest(total) - digamma_rest(size)
        return u.mul_(-size), by_size.mul_(size)

    def predictive(self, f: Tensor, own: Tensor) -> predictive.Predictive:
        rate = torch.exp(self.log_mean(f))
        return predictive.NegativeBinomial(rate, self.dispersion(own).expand(len(f), 1, -1))


def _log_ratio(a: Tensor, b: Tensor, u: Tensor) -> Tensor:
    """log(a / b), given u = a / b - 1; exact for ratios near 0 and near 1."""
    return torch.where(u < -0.5, torch.log(a / b), torch.log1p(u.clamp(min=-0.5)))


def stirling_rest(x: Tensor) -> Tensor:
    r"""log Gamma(x) - [(x - 1/2) log x - x + log(2 pi) / 2], for x > 0."""
    v = 1.0 / x
    w = v * v
    series = v * (1 / 12 - w * (1 / 360 - w / 1260))
    small = x.clamp(max=predictive.SERIES_START)
    direct = torch.lgamma(small) - (small - 0.5) * torch.log(small) + small
    return torch.where(x > predictive.SERIES_START, series, direct - 0.5 * math.log(2.0 * math.pi))


def digamma_rest(x: Tensor) -> Tensor:
    """digamma(x) - log(x), for x > 0."""
    v = 1.0 / x
    w = v * v
    series = -0.5 * v - w * (1 / 12 - w / 120)
    small = x.clamp(max=predictive.SERIES_START)
    return torch.where(x > predictive.SERIES_START, series, torch.digamma(small) - torch.log(small))
