"""Factorised priors: potentials -log p, their gradients and Gaussian expectations.

``scale`` is a number or an array of shape (n_parameters,). An infinite scale means a flat prior.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import erf
from torch import Tensor

from .._arrays import Array
from .._sklearn import BaseEstimator


class Prior(BaseEstimator):
    """Base class of factorised priors.

    The argument ``rates`` of its methods has one entry for each coordinate; :meth:`rates` computes
    it from scales.
    """

    #: False if the density has corners
    smooth = True

    def rates(self, scale: Array) -> Array:
        """Rate of each coordinate, computed from its scale; 0 where the scale is infinite."""
        raise NotImplementedError

    def log_density(self, theta: Tensor, rates: Tensor) -> Tensor:
        """log p(theta), shape (chains,); coordinates with a flat prior add 0."""
        raise NotImplementedError

    def potential(self, theta: Tensor, rates: Tensor) -> Tensor:
        """-log p(theta) up to a constant, shape (chains,)."""
        raise NotImplementedError

    def gradient(self, theta: Tensor, rates: Tensor, out: Tensor) -> None:
        """Write grad(-log p), which is proportional to the rates, to ``out``."""
        raise NotImplementedError

    # expectations under theta ~ N(mean, sd^2), which are smooth even if the prior has corners -----

    def expected_potential(self, mean: Array, sd: Array, rates: Array) -> float:
        """E[-log p], up to a constant."""
        raise NotImplementedError

    def expected_gradient(self, mean: Array, sd: Array, rates: Array) -> Array:
        """E[d(-log p)/dtheta], the derivative of :meth:`expected_potential` in the mean."""
        raise NotImplementedError

    def expected_curvature(self, mean: Array, sd: Array, rates: Array) -> Array:
        """E[d2(-log p)/dtheta2]."""
        raise NotImplementedError


class Normal(Prior):
    r"""Normal prior N(0, scale^2): the potential is :math:`\theta^2/(2\sigma^2)`.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.priors.factorised import Normal
    >>> Normal().rates(np.array([2.0, np.inf]))
    array([0.25, 0.  ])
    """

    def rates(self, scale: Array) -> Array:
        return 1.0 / np.square(scale)

    def log_density(self, theta: Tensor, rates: Tensor) -> Tensor:
        # flat coordinates, of rate 0, add nothing; picking the others would make a GPU wait
        factors = torch.where(rates > 0, rates / (2.0 * math.pi), 1.0)
        constants = 0.5 * torch.log(factors).sum()
        return constants - self.potential(theta, rates)

    def potential(self, theta: Tensor, rates: Tensor) -> Tensor:
        return 0.5 * (theta * theta * rates).sum(1)

    def gradient(self, theta: Tensor, rates: Tensor, out: Tensor) -> None:
        torch.mul(theta, rates, out=out)

    def expected_potential(self, mean: Array, sd: Array, rates: Array) -> float:
        with np.errstate(over="ignore"):  # an infinite potential: a search takes a shorter step
            return float(0.5 * np.sum((mean**2 + sd**2) * rates))

    def expected_gradient(self, mean: Array, sd: Array, rates: Array) -> Array:
        return mean * rates

    def expected_curvature(self, mean: Array, sd: Array, rates: Array) -> Array:
        return rates


class Laplace(Prior):
    r"""Laplace prior with scale b: the potential is :math:`|\theta|/b`.

    Samplers use its exact gradient sign(theta)/b.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.priors.factorised import Laplace
    >>> Laplace().rates(np.array([2.0, np.inf]))
    array([0.5, 0. ])
    """

    smooth = False

    def rates(self, scale: Array) -> Array:
        return 1.0 / np.asarray(scale, dtype=float)

    def log_density(self, theta: Tensor, rates: Tensor) -> Tensor:
        factors = torch.where(rates > 0, 0.5 * rates, 1.0)
        return torch.log(factors).sum() - self.potential(theta, rates)

    def potential(self, theta: Tensor, rates: Tensor) -> Tensor:
        return (theta.abs() * rates).sum(1)

    def gradient(self, theta: Tensor, rates: Tensor, out: Tensor) -> None:
        torch.sign(theta, out=out)
        out.mul_(rates)

    def expected_potential(self, mean: Array, sd: Array, rates: Array) -> float:
        with np.errstate(over="ignore"):  # exp(-inf) is the limit
            z = mean / sd
            density = np.exp(-0.5 * z**2)
        folded = sd * math.sqrt(2.0 / math.pi) * density + mean * erf(z / math.sqrt(2.0))
        return float(np.sum(rates * folded))

    def expected_gradient(self, mean: Array, sd: Array, rates: Array) -> Array:
        with np.errstate(over="ignore"):  # erf(inf) is the limit
            return np.asarray(rates * erf(mean / (sd * math.sqrt(2.0))))

    def expected_curvature(self, mean: Array, sd: Array, rates: Array) -> Array:
        with np.errstate(over="ignore"):  # exp(-inf) is the limit
            density = np.exp(-0.5 * (mean / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))
        return np.asarray(2.0 * rates * density)


PRIORS: dict[str, type[Prior]] = {"normal": Normal, "laplace": Laplace}
