r"""Likelihoods of counts with more zeros than a Poisson or negative binomial distribution has."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from ..._arrays import Array
from .base import Natural
from .counts import NegativeBinomial, Poisson
from .predictive import Predictive
from .slopes import Compiled


class ZeroInflatedPoisson(Poisson):
    r"""A count that is zero with the probability :math:`\pi`, and else has a Poisson distribution.

    .. math:: p(y|f) = \pi\, [y = 0] + (1 - \pi)\, e^{-\mu} \mu^y / y!,\quad \mu = m e^f

    All rows of an output share :math:`\pi = \Phi(g)`, where :math:`\Phi` is the standard normal
    distribution function. It is inferred as the parameters ``zero_probit`` :math:`= g`. With
    g ~ N(0, 1), :math:`\pi` is uniform a priori.
    """

    def __init__(self, typical: Array):
        super().__init__(typical)
        self.shapes = {"zero_probit": (self.n_outputs,)} | self.shapes

    @property
    def natural(self) -> dict[str, Natural]:
        values = lambda draws, unit: ndtr(draws["zero_probit"])  # noqa: E731
        return super().natural | {"zero_probit": ("zero_probability", values)}

    def compiled(self, y: Array) -> Compiled | None:
        return None

    def log_densities(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        g, rest = own[:, None, : self.n_outputs], own[:, self.n_outputs :]
        counted = torch.special.log_ndtr(-g) + super().log_densities(f, y, rest)
        either = torch.logaddexp(torch.special.log_ndtr(g), counted)
        return torch.where(y > 0.0, counted, either)

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor | None]:
        g, rest = own[:, None, : self.n_outputs], own[:, self.n_outputs :]
        log_zero, log_other = torch.special.log_ndtr(g), torch.special.log_ndtr(-g)
        # the probability that a count is one of the given distribution's
        counted = torch.sigmoid(log_other + self.log_zero(f, rest) - log_zero)
        counted = torch.where(y > 0.0, 1.0, counted)
        log_normal = -0.5 * g * g - 0.5 * math.log(2.0 * math.pi)
        by_g = counted * torch.exp(log_normal - log_other)
        by_g = by_g - (1.0 - counted) * torch.exp(log_normal - log_zero)
        by_f, by_rest = super().slope(f, y, rest)
        by_own = by_g if by_rest is None else torch.cat([by_g, by_rest * counted], dim=2)
        return by_f * counted, by_own

    def predictive(self, f: Tensor, own: Tensor) -> Predictive:
        counts = super().predictive(f, own[:, self.n_outputs :])
        u = (own[:, None, : self.n_outputs] * math.sqrt(0.5)).expand(len(f), 1, -1)
        return ZeroInflated(counts, 0.5 * torch.erfc(-u), 0.5 * torch.erfc(u))


class ZeroInflatedNegativeBinomial(ZeroInflatedPoisson, NegativeBinomial):
    r"""The same with a negative binomial instead of the Poisson distribution.

    Its dispersions are inferred as those of :class:`NegativeBinomial`.
    """


@dataclass
class ZeroInflated(Predictive):
    r"""Counts that are zero with the probability :math:`\pi`, and else those of a family."""

    #: the family's distributions
    given: Predictive
    #: probabilities :math:`\pi` and :math:`1 - \pi`
    zero: Any
    other: Any
    discrete = True

    def mean(self) -> Any:
        return self.other * self.given.mean()

    def variance(self) -> Any:
        return self.other * (self.given.variance() + self.zero * self.given.mean() ** 2)

    def log_density(self, y: Array) -> Array:
        counted = np.log(self.other) + self.given.log_density(y)
        return np.where(y == 0.0, np.logaddexp(np.log(self.zero), counted), counted)

    def possible(self, y: Array) -> Array:
        return self.given.possible(y)

    def cdf(self, y: Array) -> Array:
        return np.where(y < 0.0, 0.0, self.zero + self.other * self.given.cdf(y))

    def sample(self, rng: np.random.RandomState) -> Array:
        counts = self.given.sample(rng)
        return np.where(rng.random_sample(counts.shape) < self.zero, 0.0, counts)

    def parameters(self) -> Iterable[Any]:
        return [*self.given.parameters(), self.zero, self.other]
