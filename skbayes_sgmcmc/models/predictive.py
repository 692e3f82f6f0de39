r"""Distributions of a new target given a draw of the parameters: one class for each family.

A likelihood turns network outputs into one of these (``Likelihood.predictive``), and everything
that is said of new targets comes from it: means, standard deviations, quantiles, densities,
samples. What averages them over draws is ``_draws/mixture.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Array = NDArray[Any]


@dataclass
class Predictive:
    """Base of the families: distributions of targets, for every draw, row and target.

    A family is a dataclass whose fields are its parameters, of shape (draws, rows, targets) or
    with rows or targets of length 1. ``mean`` and ``variance`` also work for torch tensors, and so
    they may use operators and methods that both have; everything else is for arrays.
    """

    #: whether the targets are whole numbers
    discrete = False

    def mean(self) -> Any:
        """Means (draws, rows, targets)."""
        raise NotImplementedError

    def variance(self) -> Any:
        """Variances, which may have rows or targets of length 1."""
        raise NotImplementedError

    def log_density(self, y: Array) -> Array:
        """Log density or probability, in nats, of targets y (rows, targets): for each of them."""
        raise NotImplementedError

    def cdf(self, y: Array) -> Array:
        """Probability (draws, rows, targets) of at most y (rows, targets)."""
        raise NotImplementedError

    def sample(self, rng: np.random.RandomState) -> Array:
        """One target of each distribution, (draws, rows, targets)."""
        raise NotImplementedError

    def length(self) -> Array:
        """A length on which the cdf varies little: quantiles are exact to a billionth of it."""
        return np.sqrt(np.asarray(self.variance()))

    def bounds(self, q: float) -> tuple[Array, Array]:
        """Numbers between which each distribution's q-quantile lies, (draws, rows, targets).

        These are Cantelli's, which hold for every distribution with a variance.
        """
        mean, sd = self.mean(), np.sqrt(self.variance())
        return mean - sd * math.sqrt((1.0 - q) / q), mean + sd * math.sqrt(q / (1.0 - q))

    def numpy(self) -> Self:
        """The same with arrays in the place of tensors."""
        return replace(self, **{name: value.numpy() for name, value in vars(self).items()})

    def moved(self, center: Any, scale: Any) -> Predictive:
        """The distributions of ``target * scale + center``; each is a number or (targets,)."""
        if np.all(scale == 1.0) and np.all(center == 0.0):
            return self
        return Moved(self, np.asarray(center), np.asarray(scale))


@dataclass
class Normal(Predictive):
    """Normal distributions.

    Parameters
    ----------
    loc : array or Tensor of shape (draws, rows, targets)
        Means.
    sd : array or Tensor of shape (draws, rows, targets), or with rows of length 1
        Standard deviations.
    """

    loc: Any
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
class Moved(Predictive):
    """Distributions of ``target * scale + center``, where ``given`` has those of the targets.

    It is how targets that a model sees standardised get their own units back. Densities are per
    unit of the new target.
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

    def cdf(self, y: Array) -> Array:
        return self.given.cdf(self._back(y))

    def sample(self, rng: np.random.RandomState) -> Array:
        return self.given.sample(rng) * self.scale + self.center

    def length(self) -> Array:
        return self.given.length() * self.scale

    def bounds(self, q: float) -> tuple[Array, Array]:
        low, high = self.given.bounds(q)
        return low * self.scale + self.center, high * self.scale + self.center
