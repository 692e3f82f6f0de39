r"""Likelihoods of times with bounds where they are not known.

.. math:: \log T = \log m + f + \sigma\varepsilon

A target is a pair of bounds, lower and upper. If they are equal, they are the time itself. A lower
bound of 0 says that the time is at most the upper one; an upper bound of 0 stands for infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor
from torch.special import log_ndtr

from ..._arrays import Array
from .base import LOG_RESOLUTION, Natural, unknown
from .counts import LogMean
from .predictive import Predictive
from .slopes import Compiled, Own

#: logarithms of rates beyond which 1 - exp(-rate) is the rate, or 1
TINY_RATE, LARGE_RATE = -30.0, 7.0


class NormalErrors:
    """Standard normal errors: times are log-normal, with the median m e^f.

    ``slope`` is the derivative of the log density, ``log_below``, ``log_above`` and ``log_between``
    are logarithms of probabilities, and ``log_hazard`` is that of the density over the probability
    of larger errors.
    """

    def log_density(self, z: Tensor) -> Tensor:
        return -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)

    def slope(self, z: Tensor) -> Tensor:
        return -z

    def log_below(self, z: Tensor) -> Tensor:
        return log_ndtr(z)

    def log_above(self, z: Tensor) -> Tensor:
        return log_ndtr(-z)

    def log_hazard(self, z: Tensor) -> Tensor:
        return self.log_density(z) - log_ndtr(-z)

    def log_between(self, a: Tensor, b: Tensor) -> Tensor:
        right = a + b > 0.0  # the tail with fewer digits lost
        log_low = log_ndtr(torch.where(right, -b, a))
        log_high = log_ndtr(torch.where(right, -a, b))
        return log_high + torch.log(-torch.expm1(log_low - log_high))

    def quantile(self, q: float) -> float:
        return float(ndtri(q))

    def sample(self, shape: Any, rng: np.random.RandomState) -> Array:
        return rng.standard_normal(shape)

    def log_moment(self, sigma: Tensor, k: int) -> Tensor:
        """log E exp(k sigma e)."""
        return 0.5 * (k * sigma) ** 2


class GumbelErrors:
    """Logarithms of exponential errors: times have Weibull distributions, with shape 1 / sigma."""

    def log_density(self, z: Tensor) -> Tensor:
        return z - torch.exp(z)

    def slope(self, z: Tensor) -> Tensor:
        return 1.0 - torch.exp(z)

    def log_below(self, z: Tensor) -> Tensor:
        rate = torch.exp(z.clamp(TINY_RATE, LARGE_RATE))
        return torch.where(z < TINY_RATE, z, torch.log(-torch.expm1(-rate)))

    def log_above(self, z: Tensor) -> Tensor:
        return -torch.exp(z)

    def log_hazard(self, z: Tensor) -> Tensor:
        return z

    def log_between(self, a: Tensor, b: Tensor) -> Tensor:
        # an exponential time that is above exp(a) begins anew there
        return self.log_below(b + torch.log(-torch.expm1(a - b))) - torch.exp(a)

    def quantile(self, q: float) -> float:
        return math.log(-math.log1p(-q))

    def sample(self, shape: Any, rng: np.random.RandomState) -> Array:
        return np.asarray(np.log(rng.standard_exponential(shape)))

    def log_moment(self, sigma: Tensor, k: int) -> Tensor:
        return _log_gamma(1.0 + k * sigma)


def _log_gamma(z: Tensor) -> Tensor:
    """log Gamma(z) for z >= 1 to 1e-11, by operations that ONNX files have."""
    w = z + 8.0
    v = 1.0 / (w * w)
    series = (1 / 12 - v * (1 / 360 - v * (1 / 1260 - v / 1680))) / w
    stirling = (w - 0.5) * torch.log(w) - w + 0.5 * math.log(2.0 * math.pi) + series
    return stirling - torch.stack([torch.log(z + i) for i in range(8)]).sum(0)


class LogNormal(LogMean):
    r"""Log-normal times: :math:`\varepsilon \sim N(0, 1)`.

    All rows share :math:`\sigma`, which is inferred as the parameter ``log_sigma``
    :math:`= \log\sigma`.
    """

    errors: Any = NormalErrors()
    #: name of the compiled slopes
    kernel = "normal"
    shapes = {"log_sigma": (1,)}  # noqa: RUF012
    #: they are finite given sigma, but averages over its posterior may be infinite
    has_moments = False

    @property
    def natural(self) -> dict[str, Natural]:
        return {"log_sigma": ("sigma", lambda draws, unit: np.exp(draws["log_sigma"]))}

    def width(self, own: Array) -> Any:
        return np.exp(own[:, 0])

    @staticmethod
    def typical_means(y: Array, weight: Array | None) -> Array:
        """The geometric mean of times; of bounds, if these are known."""
        low, high = y.T
        low, high = np.where(low > 0.0, low, high), np.where(high > 0.0, high, low)
        return np.array([np.exp(np.average(0.5 * np.log(low * high), weights=weight))])

    @staticmethod
    def bounds_intercept(y: Array) -> bool:
        return bool((y > 0.0).any(axis=0).all())

    def log_density(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        found = log_density(self.errors, self.log_mean(f)[..., 0], torch.exp(own), y)
        return found - torch.where(y[..., 0] == y[..., 1], unknown(own), 0.0)

    def compiled(self, y: Array) -> Compiled | None:
        if (y[:, 0] != y[:, 1]).any():
            return None  # not of bounds
        own = Own(0.0), Own(LOG_RESOLUTION, given=True)
        return Compiled(self.kernel, np.log(self.typical[0]), np.log(y[:, 0]), own=own)

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor | None]:
        errors, sigma = self.errors, torch.exp(own)
        known, left, right, between, _, a, b = _parts(self.log_mean(f)[..., 0], sigma, y)
        log_p = torch.where(between, errors.log_between(a, b), errors.log_below(a))
        ratio = torch.exp(errors.log_density(a) - log_p)
        ratio = torch.where(
            left, ratio, -torch.where(right, torch.exp(errors.log_hazard(a)), ratio)
        )
        by_a = torch.where(known, errors.slope(a), ratio)
        by_b = torch.where(between, torch.exp(errors.log_density(b) - log_p), 0.0)
        by_own = torch.where(known, 1.0 - 2.0 * unknown(own), 0.0) + by_a * a + by_b * b
        return ((by_a + by_b) / sigma)[..., None], by_own[..., None]

    def predictive(self, f: Tensor, own: Tensor) -> Predictive:
        location, sigma = self.log_mean(f), torch.exp(own)[:, None]
        log_mean = self.errors.log_moment(sigma, 1)
        return Times(
            location,
            sigma.expand(len(f), 1, 1),
            torch.exp(location + log_mean),
            torch.expm1(self.errors.log_moment(sigma, 2) - 2.0 * log_mean),
            self.errors,
        )


class Weibull(LogNormal):
    r"""Weibull times, with the scale :math:`m e^f` and the shape :math:`1 / \sigma`."""

    errors = GumbelErrors()
    kernel = "weibull"


def log_density(errors: Any, location: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
    """Log densities of times, or log probabilities of intervals, y (..., 2).

    ``location`` are logarithms, of shape (draws, rows); ``sigma`` is (draws, 1).
    """
    known, left, right, _, log_low, a, b = _parts(location, sigma, y)
    found = torch.where(right, errors.log_above(a), errors.log_between(a, b))
    found = torch.where(left, errors.log_below(a), found)
    return torch.where(known, errors.log_density(a) - torch.log(sigma) - log_low, found)


def _parts(location: Tensor, sigma: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Whether times are known, below, above or between bounds; the logarithm of one; errors.

    These are a, of the known or the only bound, or of the lower one, and b, of the upper one of
    two. Where there are no two, b is a + 1, so that all derivatives are finite.
    """
    low, high = y[..., 0], y[..., 1]
    known, left, right = low == high, low == 0.0, high == 0.0
    between = ~(known | left | right)
    log_low = torch.log(torch.where(left, high, low))
    a = (log_low - location) / sigma
    b = (torch.log(torch.where(between, high, 1.0)) - location) / sigma
    return known, left, right, between, log_low, a, torch.where(between, b, a.detach() + 1.0)


@dataclass
class Times(Predictive):
    """Distributions of times with the logarithms location + sigma * error."""

    #: locations of their logarithms, (draws, rows, 1)
    location: Any
    #: scales of their logarithms, (draws, 1, 1)
    sigma: Any
    #: means, (draws, rows, 1)
    average: Any
    #: variances over squared means, (draws, 1, 1)
    ratio: Any
    #: distribution of the errors
    errors: Any

    def mean(self) -> Any:
        return self.average

    def variance(self) -> Any:
        return self.average**2 * self.ratio

    def log_density(self, y: Array) -> Array:
        """``y`` are times (rows, 1), or pairs of bounds (rows, 2)."""
        pairs = torch.from_numpy(np.broadcast_to(np.maximum(y, 0.0), (len(y), 2)).copy())
        parts = torch.from_numpy(self.location[..., 0]), torch.from_numpy(self.sigma[..., 0])
        found = log_density(self.errors, *parts, pairs).numpy()[..., None]
        return np.where(self.possible(y), found, -np.inf)

    def possible(self, y: Array) -> Array:
        return np.asarray(y.max(axis=1, keepdims=True) > 0.0)

    def cdf(self, y: Array) -> Array:
        z = (np.log(np.where(y > 0.0, y, 1.0)) - self.location) / self.sigma
        below = torch.exp(self.errors.log_below(torch.from_numpy(z))).numpy()
        return np.where(y > 0.0, below, 0.0)

    def sample(self, rng: np.random.RandomState) -> Array:
        errors = self.errors.sample(self.location.shape, rng)
        return np.asarray(np.exp(self.location + self.sigma * errors))

    def length(self) -> Array:
        return np.asarray(np.exp(self.location) * self.sigma / (1.0 + self.sigma))

    def bounds(self, q: float) -> tuple[Array, Array]:
        quantile = np.exp(self.location + self.sigma * self.errors.quantile(q))
        return quantile, quantile

    def parameters(self) -> Iterable[Any]:
        return self.location, self.sigma
