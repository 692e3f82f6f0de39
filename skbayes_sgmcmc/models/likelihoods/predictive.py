r"""Distributions of new targets given draws of the parameters: one class for each family.

A likelihood converts network outputs to one of these classes (``Likelihood.predictive``). Means,
standard deviations, quantiles, densities and samples of new targets all come from it.
``_draws/mixture.py`` averages the distributions over draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import (
    bdtr,
    betaincc,
    gammainc,
    gammaln,
    ndtr,
    ndtri,
    pdtr,
    stdtr,
    stdtrit,
    xlogy,
)

from ..._arrays import Array

#: squares of larger numbers are those plus one
FAR = 1e10
#: fewest numbers where the short series of factorials and the like are exact to 1e-14
SERIES_START = 100.0
#: Poisson samples of larger rates are those of a normal distribution
LARGEST_RATE = 1e15


@dataclass
class Predictive:
    """Base class of the families: one distribution for every draw, row and target.

    A family is a dataclass; its fields are its parameters, arrays or tensors. They have shape
    (draws, rows, targets), where rows or targets may have length 1. ``mean`` and ``variance`` must
    also work with torch tensors, so they can only use operators and methods that arrays and tensors
    share. The other methods are for arrays only.
    """

    #: whether the targets are whole numbers; or else, whether their least one has a probability
    discrete = False
    has_atom = False
    #: smallest lower bound of quantiles
    least = -math.inf

    def mean(self) -> Any:
        """Means (draws, rows, targets)."""
        raise NotImplementedError

    def variance(self) -> Any:
        """Variances (draws, rows, targets), where rows or targets may have length 1."""
        raise NotImplementedError

    def log_density(self, y: Array) -> Array:
        """Log density or log probability, in nats, of each of the targets y (rows, targets)."""
        raise NotImplementedError

    def possible(self, y: Array) -> Array:
        """Which of the targets y (rows, targets) have a density above zero."""
        return np.ones(np.shape(y), bool)

    def cdf(self, y: Array) -> Array:
        """Probability (draws, rows, targets) that a target is at most y (rows, targets)."""
        raise NotImplementedError

    def sample(self, rng: np.random.RandomState) -> Array:
        """One target of each distribution, (draws, rows, targets)."""
        raise NotImplementedError

    def length(self) -> Array:
        """Length scale of the cdf; quantiles are computed to a billionth of it."""
        return np.sqrt(np.asarray(self.variance()))

    def bounds(self, q: float) -> tuple[Array, Array]:
        """Lower and upper bounds of each distribution's q-quantile, (draws, rows, targets).

        By default these are Cantelli's bounds, which hold for every distribution with a variance.
        """
        mean, sd = self.mean(), np.sqrt(self.variance())
        low = np.maximum(mean - sd * math.sqrt((1.0 - q) / q), self.least)
        return low, mean + sd * math.sqrt(q / (1.0 - q))

    def parameters(self) -> Iterable[Any]:
        """What must be finite."""
        return vars(self).values()

    def numpy(self) -> Self:
        """The same distributions, with arrays instead of tensors as parameters."""
        tensors = {name: value for name, value in vars(self).items() if hasattr(value, "numpy")}
        return replace(self, **{name: value.numpy() for name, value in tensors.items()})

    def moved(self, center: Any, scale: Any) -> Predictive:
        """The distributions of ``target * scale + center``.

        ``center`` and ``scale`` are numbers or arrays of shape (targets,).
        """
        if np.all(scale == 1.0) and np.all(center == 0.0):
            return self
        return Moved(self, np.asarray(center), np.asarray(scale))


@dataclass
class Normal(Predictive):
    """Normal distributions."""

    #: means
    loc: Any
    #: standard deviations
    sd: Any

    def mean(self) -> Any:
        return self.loc

    def variance(self) -> Any:
        return self.sd**2

    def log_density(self, y: Array) -> Array:
        z = (y - self.loc) / self.sd
        return np.asarray(-0.5 * z * z - np.log(self.sd) - 0.5 * math.log(2.0 * math.pi))

    def cdf(self, y: Array) -> Array:
        return np.asarray(ndtr((y - self.loc) / self.sd))

    def sample(self, rng: np.random.RandomState) -> Array:
        return np.asarray(self.loc + self.sd * rng.standard_normal(self.loc.shape))

    def bounds(self, q: float) -> tuple[Array, Array]:
        quantile = self.loc + self.sd * ndtri(q)
        return quantile, quantile


@dataclass
class StudentT(Predictive):
    r"""Student's t distributions.

    The mean exists for more than one degree of freedom. The variance,
    :math:`\mathrm{scale}^2\, \nu / (\nu - 2)`, is infinite up to two of them.
    """

    #: centres
    loc: Any
    #: scales
    scale: Any
    #: degrees of freedom :math:`\nu`
    df: Any

    def mean(self) -> Any:
        return self.loc

    def variance(self) -> Any:
        return self.scale**2 * (self.df / (self.df - 2.0).clip(min=0.0))

    def log_density(self, y: Array) -> Array:
        z, half = (y - self.loc) / self.scale, 0.5 * self.df
        constant = gammaln(half + 0.5) - gammaln(half) - 0.5 * np.log(math.pi * self.df)
        # log(1 + r**2), where r**2 may overflow: from FAR on, it is 2 log r
        r = np.abs(z) / np.sqrt(self.df)
        log_far = 2.0 * np.log(np.maximum(r / FAR, 1.0))
        tail = np.log1p(np.square(np.minimum(r, FAR))) + log_far
        return np.asarray(constant - np.log(self.scale) - (half + 0.5) * tail)

    def cdf(self, y: Array) -> Array:
        return np.asarray(stdtr(self.df, (y - self.loc) / self.scale))

    def sample(self, rng: np.random.RandomState) -> Array:
        shape = self.loc.shape
        return np.asarray(self.loc + self.scale * rng.standard_t(np.broadcast_to(self.df, shape)))

    def length(self) -> Array:
        return np.asarray(self.scale)

    def bounds(self, q: float) -> tuple[Array, Array]:
        z = stdtrit(self.df, q)
        error = 1e-6 * (1.0 + np.abs(z))  # scipy's
        return self.loc + self.scale * (z - error), self.loc + self.scale * (z + error)


@dataclass
class Poisson(Predictive):
    """Poisson distributions."""

    #: means
    rate: Any
    discrete = True

    def mean(self) -> Any:
        return self.rate

    def variance(self) -> Any:
        return self.rate

    def log_density(self, y: Array) -> Array:
        return np.where(self.possible(y), poisson_log(_counts(y), self.rate), -np.inf)

    def possible(self, y: Array) -> Array:
        return np.asarray(_counts(y) == y)

    def cdf(self, y: Array) -> Array:
        return np.where(y < 0.0, 0.0, pdtr(_counts(y), self.rate))

    def sample(self, rng: np.random.RandomState) -> Array:
        return poisson_samples(self.rate, rng)


@dataclass
class NegativeBinomial(Poisson):
    r"""Negative binomial distributions: Poisson distributions with varying rates.

    A rate has a gamma distribution with the mean :math:`\mu` and the variance
    :math:`\alpha\mu^2`. The variance of a count is therefore :math:`\mu + \alpha\mu^2`.
    """

    #: dispersions :math:`\alpha`
    dispersion: Any

    def variance(self) -> Any:
        return self.rate + self.dispersion * self.rate**2

    def log_density(self, y: Array) -> Array:
        count, size = _counts(y), 1.0 / self.dispersion
        total, share = count + size, self.rate / (size + self.rate)
        ways = _factorial_rest(total) - _factorial_rest(size) - _factorial_rest(count)
        more = (self.rate - count) * (size / (size + self.rate))
        log_p = np.log(size / total) + ways - _deviance(count, total * share, more)
        log_p = log_p - _deviance(size, total * (size / (size + self.rate)), -more)
        return np.where(self.possible(y), log_p, -np.inf)

    def cdf(self, y: Array) -> Array:
        count, size, ratio = _counts(y), 1.0 / self.dispersion, self.dispersion * self.rate
        log_first = -size * np.log1p(ratio)
        if count.size and count.max() <= 500 and np.min(log_first) > -600.0:  # not rounded to zero
            p = _summed(np.exp(log_first), size, ratio / (1.0 + ratio), count)
        else:
            p = betaincc(count + 1.0, size, ratio / (1.0 + ratio))
        return np.where(y < 0.0, 0.0, p)

    def sample(self, rng: np.random.RandomState) -> Array:
        shape = np.broadcast_to(1.0 / self.dispersion, self.rate.shape)
        return poisson_samples(rng.standard_gamma(shape) * self.dispersion * self.rate, rng)


def _summed(term: Array, size: Any, odds: Array, count: Array) -> Array:
    """The sum of the probabilities up to ``count``; ``term`` is the first of them.

    Each follows from the one before. It is ten times as fast as the incomplete beta function.
    """
    found = term.copy()
    for k in range(1, int(count.max()) + 1):
        term *= odds * ((size + (k - 1.0)) / k)
        found += np.where(k <= count, term, 0.0)
    return found


@dataclass
class Gamma(Predictive):
    r"""Gamma distributions with the mean :math:`\mu` and the variance :math:`\alpha\mu^2`."""

    #: means :math:`\mu`
    location: Any
    #: dispersions :math:`\alpha`
    dispersion: Any
    least = 0.0

    def mean(self) -> Any:
        return self.location

    def variance(self) -> Any:
        return self.dispersion * self.location**2

    def log_density(self, y: Array) -> Array:
        shape, known = 1.0 / self.dispersion, np.where(y > 0.0, y, 1.0)
        log_p = np.log(shape / known) - _factorial_rest(shape)
        log_p = log_p - shape * _excess(self.location, known, known - self.location)
        return np.where(self.possible(y), log_p, -np.inf)

    def possible(self, y: Array) -> Array:
        return np.asarray(y > 0.0)

    def cdf(self, y: Array) -> Array:
        shape = 1.0 / self.dispersion
        return np.asarray(gammainc(shape, shape / self.location * np.maximum(y, 0.0)))

    def sample(self, rng: np.random.RandomState) -> Array:
        shape = np.broadcast_to(1.0 / self.dispersion, self.location.shape)
        return np.asarray(rng.standard_gamma(shape) * self.dispersion * self.location)


@dataclass
class Binomial(Predictive):
    """Binomial distributions."""

    #: numbers of trials
    trials: Any
    #: probabilities of a success
    p: Any
    #: probabilities of a failure, which tell how small they are where p is rounded to one; None:
    #: one minus p
    failure: Any = None
    discrete = True

    def __post_init__(self) -> None:
        if self.failure is None:
            self.failure = 1.0 - self.p

    def mean(self) -> Any:
        return self.trials * self.p

    def variance(self) -> Any:
        return self.trials * self.p * self.failure

    def log_density(self, y: Array) -> Array:
        possible = self.possible(y)
        count = np.where(possible, y, 0.0)
        failures = self.trials - count
        ways = _factorial_rest(self.trials) - _factorial_rest(count) - _factorial_rest(failures)
        more = self.p * failures - self.failure * count
        log_p = ways - _deviance(count, self.trials * self.p, more)
        log_p = log_p - _deviance(failures, self.trials * self.failure, -more)
        return np.where(possible, log_p, -np.inf)

    def possible(self, y: Array) -> Array:
        return np.asarray((y == _counts(y)) & (y <= self.trials))

    def cdf(self, y: Array) -> Array:
        count = np.minimum(_counts(y), self.trials)
        # bdtr takes whole numbers of trials only as such
        return np.where(y < 0.0, 0.0, bdtr(count, self.trials.astype(np.int64), self.p))

    def sample(self, rng: np.random.RandomState) -> Array:
        return rng.binomial(self.trials.astype(np.int64), self.p).astype(np.float64)


def _counts(y: Array) -> Array:
    """The largest whole numbers up to y; 0 for negative numbers."""
    return np.asarray(np.maximum(np.floor(y), 0.0))


def poisson_log(x: Array, rate: Array) -> Array:
    """Log probabilities of x >= 0 under Poisson distributions; x may be between whole numbers."""
    return np.asarray(-_factorial_rest(x) - _deviance(x, rate, rate - x))


def _factorial_rest(x: Array) -> Array:
    """log(x!) - x log(x) + x, for x >= 0: what Stirling's formula leaves, log(2 pi x) / 2 and less.

    Log probabilities are made of these and of deviances (Loader 2000). Sums of factorials and
    powers, which are as large as the counts, would round to anything: to 1e20 for counts of 1e30.
    """
    far = np.maximum(x, SERIES_START)
    w = 1.0 / (far * far)
    series = 0.5 * np.log(2.0 * math.pi * far) + (1 / 12 - w * (1 / 360 - w / 1260)) / far
    near = np.minimum(x, SERIES_START)
    direct = gammaln(near + 1.0) - xlogy(near, near) + near
    return np.where(x > SERIES_START, series, direct)


def _deviance(x: Array, mean: Array, more: Array) -> Array:
    """x log(x / mean) + more, for x >= 0, where ``more`` is mean - x without its rounding."""
    known = np.where(x > 0.0, x, 1.0)
    return np.where(x > 0.0, known * _excess(known, mean, more), mean)


def _excess(a: Array, b: Array, more: Array) -> Array:
    """u - log(b / a) with u = b / a - 1, which is ``more`` / a; zero for a = b."""
    u = more / a
    series = u * u * (1 / 2 - u * (1 / 3 - u * (1 / 4 - u * (1 / 5 - u / 6))))
    with np.errstate(all="ignore"):
        return np.where(np.abs(u) < 1e-3, series, u - (np.log(b) - np.log(a)))


def poisson_samples(rate: Array, rng: np.random.RandomState) -> Array:
    """Poisson samples; numpy's generator refuses rates that its whole numbers cannot hold."""
    samples = rng.poisson(np.minimum(rate, LARGEST_RATE)).astype(np.float64)
    large = rate > LARGEST_RATE
    if large.any():
        rates = rate[large]
        samples[large] = np.rint(rates + np.sqrt(rates) * rng.standard_normal(len(rates)))
    return samples


@dataclass
class Moved(Predictive):
    """Distributions of ``target * scale + center``, where ``given`` are those of the targets.

    This converts standardised targets back to their original units. Densities are per unit of the
    converted target.
    """

    given: Predictive
    center: Array
    scale: Array

    def _back(self, y: Array) -> Array:
        return np.asarray((y - self.center) / self.scale)

    def mean(self) -> Any:
        return self.given.mean() * self.scale + self.center

    def variance(self) -> Any:
        return self.given.variance() * self.scale**2

    def log_density(self, y: Array) -> Array:
        return self.given.log_density(self._back(y)) - np.log(self.scale)

    def possible(self, y: Array) -> Array:
        return self.given.possible(self._back(y))

    def cdf(self, y: Array) -> Array:
        return self.given.cdf(self._back(y))

    def sample(self, rng: np.random.RandomState) -> Array:
        return self.given.sample(rng) * self.scale + self.center

    def length(self) -> Array:
        return self.given.length() * self.scale

    def bounds(self, q: float) -> tuple[Array, Array]:
        low, high = self.given.bounds(q)
        return low * self.scale + self.center, high * self.scale + self.center
