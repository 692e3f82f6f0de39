r"""Likelihood of amounts that are often exactly zero: the compound Poisson-gamma distribution.

An amount is the sum of N amounts with a gamma distribution, where N has a Poisson distribution. Its
density is a series over N (Dunn & Smyth 2005). Stirling's formula leaves no differences of large
numbers in the logarithms of its terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from scipy.special import gammainc, ndtr
from torch import Tensor

from ..._arrays import Array
from .base import Natural, Parametric, refuse_targets
from .counts import LogMean, digamma_rest, stirling_rest
from .predictive import Predictive, poisson_log, poisson_samples

if TYPE_CHECKING:
    from ..._draws.posterior_samples import PosteriorSamples


#: ends of the power: near 1, amounts are multiples of one number; near 2, none of them is zero
LEAST_POWER, LARGEST_POWER = 1.01, 1.99
#: largest means n of N with sums over all numbers; beyond, the terms are smooth in N
SMOOTH = 64.0
#: standard deviations of N, on either side, that sums contain, and numbers beyond these
REACH, BEYOND = 7.5, 12.0
#: numbers in a standard deviation that are enough where terms are smooth: sums of normal densities
#: are then exact to 1e-15
PER_SD = 1.4
#: logarithms of smaller means, in units of the typical one, are this number in predictions
LEAST_LOG_MEAN = -300.0
#: terms that are in memory at once
BLOCK = 2**20


class Tweedie(Parametric):
    r"""The compound Poisson-gamma distribution as the ``likelihood`` of a regressor.

    It is Tweedie's distribution with the variance :math:`\phi\, \mu^p`, for 1 < p < 2: amounts such
    as rainfall or claims, which are exactly zero in some rows, and otherwise positive.

    Parameters
    ----------
    power : "infer" or float, default="infer"
        The power p, between 1.01 and 1.99. "infer": it has a uniform prior. This is what
        ``likelihood="tweedie"`` means.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianGLMRegressor, Tweedie
    >>> reg = BayesianGLMRegressor(likelihood=Tweedie(power=1.5))
    >>> reg.set_params(likelihood__power=1.7).likelihood
    Tweedie(power=1.7)
    """

    family = "tweedie"
    bounds = (LEAST_POWER, LARGEST_POWER)

    def __init__(self, power: float | Literal["infer"] = "infer"):
        self.power = power


class CompoundPoisson(LogMean):
    r"""Tweedie's distribution; all rows of an output share the dispersion and the power.

    .. math::
        \operatorname{E} y = \mu = m e^f,\quad
        \operatorname{Var} y = \phi\, m^{2 - p} \mu^p,\quad P(y = 0) = e^{-\lambda},\quad
        \lambda = \frac{(\mu / m)^{2 - p}}{\phi (2 - p)}

    :math:`\phi` is the dispersion of y / m. It is inferred as the parameters ``log_dispersion``
    :math:`= \log\phi`, and the power as ``power_probit`` = g, with
    :math:`p = 1.01 + 0.98\, \Phi(g)`. With g ~ N(0, 1), p is uniform a priori.

    Parameters
    ----------
    typical : array of shape (n_outputs,)
        Typical means m.
    power : float or None, default=None
        The power p of all outputs. None infers it for each output.
    """

    def __init__(self, typical: Array, power: float | None = None):
        super().__init__(typical)
        self.given_power = power
        self.shapes = {"log_dispersion": (self.n_outputs,)}
        if power is None:
            self.shapes |= {"power_probit": (self.n_outputs,)}

    @staticmethod
    def check_targets(y: Array) -> None:
        allowed = "numbers, 0 or more, or likelihood='normal'"
        refuse_targets(y[~(y >= 0.0)], "likelihood='tweedie'", allowed)

    @staticmethod
    def typical_means(y: Array, weight: Array | None) -> Array:
        """Mean amounts; one if all are zero."""
        mean = np.average(y, axis=0, weights=weight)
        return np.where(mean > 0.0, mean, 1.0)

    @property
    def natural(self) -> dict[str, Natural]:
        return {
            "log_dispersion": ("dispersion", self._dispersions),
            "power_probit": ("power", self._powers),
        }

    def _dispersions(self, draws: PosteriorSamples, unit: Array) -> Array:
        """Those of y, with which its variance is the dispersion times mean^power."""
        left = 2.0 - self._powers(draws, unit)
        return np.asarray(np.exp(draws["log_dispersion"]) * self.typical**left)

    def _powers(self, draws: PosteriorSamples, unit: Array) -> Array:
        if self.given_power is not None:
            return np.asarray(self.given_power)
        share = ndtr(draws["power_probit"])
        return np.asarray(LEAST_POWER + (LARGEST_POWER - LEAST_POWER) * share)

    def _parameters(self, own: Tensor) -> tuple[Tensor, Tensor]:
        """Dispersions (chains, 1, k) and 2 - p, (chains or 1, 1, k or 1)."""
        dispersion = torch.exp(own[:, None, : self.n_outputs])
        if self.given_power is not None:
            return dispersion, own.new_full((1, 1, 1), 2.0 - self.given_power)
        share = 0.5 * torch.erfc(own[:, None, self.n_outputs :] * math.sqrt(0.5))
        return dispersion, 2.0 - LARGEST_POWER + (LARGEST_POWER - LEAST_POWER) * share

    def log_density(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        dispersion, left = self._parameters(own)
        log_rate = left * f - torch.log(dispersion * left)
        return log_density(y, self.log_mean(f), log_rate, left / (1.0 - left)).sum(2)

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor | None]:
        # of log p = T - n (e^{l v} - 1 + a (e^{-(1 - l) v} - 1)) + const, with l = 2 - p and
        # v = log(mu / y), and of -lambda for y = 0; T is the logarithm of the sum of terms
        dispersion, left = self._parameters(own)
        a, log_unit = left / (1.0 - left), torch.log(dispersion * left)
        rate, positive = torch.exp(left * f - log_unit), y > 0.0
        log_y = torch.log(torch.where(positive, y, 1.0)) - self._log_typical.like(f)
        away = f - log_y
        log_n = (left * log_y - log_unit).expand(f.shape)
        n, (by_log_n, by_a) = torch.exp(log_n), _over_rows(_derivatives, log_n, a)
        more, less = torch.expm1(left * away), torch.expm1((left - 1.0) * away)
        by_log_n = by_log_n - n * (more + a * less)
        by_f = torch.where(positive, n * left * (less - more), -left * rate)
        by_dispersion = torch.where(positive, -by_log_n, rate)
        if self.given_power is not None:
            return -by_f, -by_dispersion
        by_a = (by_a - n * less) / torch.square(1.0 - left)
        by_left = by_log_n * (log_y - 1.0 / left) + by_a
        by_left = by_left - n * away * (more + 1.0 + a * (less + 1.0))
        by_left = torch.where(positive, by_left, rate * (1.0 / left - f))
        g = own[:, None, self.n_outputs :]
        density = torch.exp(-0.5 * g * g) / math.sqrt(2.0 * math.pi)
        by_probit = (LEAST_POWER - LARGEST_POWER) * density * by_left
        return -by_f, torch.cat([-by_dispersion, -by_probit], dim=2)

    def predictive(self, f: Tensor, own: Tensor) -> Predictive:
        dispersion, left = self._parameters(own)
        f = f.clamp(min=LEAST_LOG_MEAN)
        rate = torch.exp(left * f) / (dispersion * left)
        shape = (left / (1.0 - left)).expand(len(f), 1, -1)
        return CompoundGamma(torch.exp(self.log_mean(f)), rate, shape)


def log_density(y: Tensor, log_mean: Tensor, log_rate: Tensor, a: Tensor) -> Tensor:
    """Log densities of amounts y > 0, and log probabilities of zeros, (draws, rows, k).

    ``log_rate`` is the logarithm of the mean of N, and ``a`` (draws, 1, k) the shape of a gamma
    distribution.
    """
    known = torch.where(y > 0.0, y, 1.0)
    away = log_mean - torch.log(known)
    left = a / (1.0 + a)
    log_n = log_rate - left * away
    deviance = torch.expm1(left * away) + a * torch.expm1((left - 1.0) * away)
    (series,) = _over_rows(lambda terms, *_: (terms.logsumexp(-1),), log_n, a)
    positive = series - torch.exp(log_n) * deviance - torch.log(known) - math.log(2.0 * math.pi)
    return torch.where(y > 0.0, positive, -torch.exp(log_rate))


def _derivatives(terms: Tensor, j: Tensor, a: Tensor, log_n: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of the logarithm of the sum of terms in log n and in a."""
    share, n = terms.softmax(-1), torch.exp(log_n)
    number = (share * j).sum(-1)
    by_a = (share * (j * (torch.log(j) - 1.0 + digamma_rest(a * j)))).sum(-1) - number * log_n + n
    return (1.0 + a[..., 0]) * (number - n), -by_a


def _over_rows(function: Any, log_n: Tensor, a: Tensor) -> list[Tensor]:
    """What a function of terms, numbers N = j, shapes a and log n returns for log n and a.

    ``log_n`` (draws, rows, k) are logarithms of the means n of N if the mean is y. The terms
    (draws, rows, k, numbers) are logarithms of the probability of N = j times the density of y
    given N, at the mean y and times 2 pi y:
    log(a) / 2 - (1 + a) D - r(j) - r(a j) with D = j log(j / n) - j + n, and r(x) what Stirling's
    formula leaves of log Gamma(x). D is zero at j = n. Where n is large, a sum leaves out numbers,
    whose weight the others have.
    """
    n, a = torch.exp(log_n.detach()), a[..., None]
    large = n > SMOOTH
    last = SMOOTH if large.any() else float(torch.nan_to_num(n).max())
    end = math.ceil(last + REACH * math.sqrt(last) + BEYOND)
    j = 1.0 + torch.arange(end, device=n.device).to(n)
    each = _rest(j, a) - (1.0 + a) * j * (torch.log(j) - 1.0)
    parts = []
    for some in log_n.split(max(1, BLOCK // (len(j) * len(n) * n.shape[2])), dim=1):
        near = some.clamp(max=math.log(SMOOTH))
        terms = torch.addcmul(
            each - (1.0 + a) * torch.exp(near)[..., None], (1.0 + a) * j, near[..., None]
        )
        parts.append(function(terms, j, a, near))
    found = [torch.cat(each, dim=1) for each in zip(*parts, strict=True)]
    if large.any():
        far, a = log_n[large], a.expand(*n.shape, 1)[large]
        mean, at = torch.exp(far), far[:, None]
        sd = torch.sqrt(mean / (1.0 + a[:, 0]))[:, None]
        stride = (sd / PER_SD).clamp(min=1.0)
        steps = float((2.0 * REACH * sd / stride).detach().max())
        numbers = torch.arange(math.ceil(steps) + 2, device=n.device).to(n)
        j = torch.floor(mean[:, None] - REACH * sd) + stride * numbers
        away = j * (torch.log(j) - at) - (j - mean[:, None])
        terms = torch.log(stride) + _rest(j, a) - (1.0 + a) * away
        more = function(terms, j, a, far)
        found = [one.masked_scatter(large, values) for one, values in zip(found, more, strict=True)]
    return found


def _rest(j: Tensor, a: Tensor) -> Tensor:
    return 0.5 * torch.log(a) - stirling_rest(j) - stirling_rest(a * j)


@dataclass
class CompoundGamma(Predictive):
    r"""Sums of N amounts with gamma distributions, where N has a Poisson distribution."""

    #: means :math:`\mu` of the sums
    location: Any
    #: means :math:`\lambda` of N
    rate: Any
    #: shapes a of the gamma distributions: 1 / a is the squared coefficient of variation
    shape: Any
    has_atom = True
    least = 0.0

    def mean(self) -> Any:
        return self.location

    def variance(self) -> Any:
        return self.location**2 * (1.0 + 1.0 / self.shape) / self.rate

    def log_density(self, y: Array) -> Array:
        known = np.where(self.possible(y), y, 0.0)
        parts = known, np.log(self.location), np.log(self.rate), self.shape
        found = log_density(*map(torch.from_numpy, parts)).numpy()
        return np.where(self.possible(y), found, -np.inf)

    def possible(self, y: Array) -> Array:
        return np.asarray(y >= 0.0)

    def cdf(self, y: Array) -> Array:
        a, rate, sd = self.shape, self.rate, np.sqrt(self.rate)
        x = np.maximum(y, 0.0) * (a * rate / self.location)
        first = np.maximum(np.floor(rate - REACH * sd), 1.0)
        stride = np.where(rate > SMOOTH, np.maximum(sd / np.sqrt(1.0 + a) / PER_SD, 1.0), 1.0)
        steps = np.ceil(np.max((rate + REACH * sd + BEYOND - first) / stride, initial=0.0))
        found = np.exp(-rate)
        for k in range(1 + int(steps)):
            j = first + stride * k
            found = found + stride * np.exp(poisson_log(j, rate)) * gammainc(a * j, x)
        return np.where(y < 0.0, 0.0, np.minimum(found, 1.0))

    def sample(self, rng: np.random.RandomState) -> Array:
        sums = rng.standard_gamma(self.shape * poisson_samples(self.rate, rng))
        return np.asarray(sums * (self.location / (self.rate * self.shape)))
