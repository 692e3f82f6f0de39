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
from .._exceptions import not_allowed, undefined
from .._sklearn import BaseEstimator


class Prior(BaseEstimator):
    """Base class of factorised priors.

    The argument ``rates`` of its methods has one entry for each coordinate; :meth:`rates` computes
    it from scales. Networks need no expectations.
    """

    #: False if the density has corners
    smooth = True

    def rates(self, scale: Array) -> Array:
        """Rate of each coordinate, computed from its scale; 0 where the scale is infinite."""
        raise undefined(self, "rates(scale)")

    def log_density(self, theta: Tensor, rates: Tensor) -> Tensor:
        """log p(theta), shape (chains,); coordinates with a flat prior add 0."""
        raise undefined(self, "log_density(theta, rates)")

    def potential(self, theta: Tensor, rates: Tensor) -> Tensor:
        """-log p(theta) up to a constant, shape (chains,)."""
        raise undefined(self, "potential(theta, rates)")

    def gradient(self, theta: Tensor, rates: Tensor, out: Tensor) -> None:
        """Write grad(-log p), which is proportional to the rates, to ``out``."""
        raise undefined(self, "gradient(theta, rates, out)")

    # expectations under theta ~ N(mean, sd^2), which are smooth even if the prior has corners -----

    def expected_potential(self, mean: Array, sd: Array, rates: Array) -> float:
        """E[-log p], up to a constant."""
        raise undefined(self, "expected_potential(mean, sd, rates)")

    def expected_gradient(self, mean: Array, sd: Array, rates: Array) -> Array:
        """E[d(-log p)/dtheta], the derivative of :meth:`expected_potential` in the mean."""
        raise undefined(self, "expected_gradient(mean, sd, rates)")

    def expected_curvature(self, mean: Array, sd: Array, rates: Array) -> Array:
        """E[d2(-log p)/dtheta2]."""
        raise undefined(self, "expected_curvature(mean, sd, rates)")

    def check(self, name: str) -> None:
        """Refuse a gradient of the user's that samplers can't use; ``name`` is the parameter."""
        generator = torch.Generator().manual_seed(0)
        at = torch.randn((2, 3), dtype=torch.float64, generator=generator).requires_grad_()
        rates, out = torch.from_numpy(self.rates(np.array([0.5, 1.0, 2.0]))), torch.empty_like(at)
        found = self.log_density(at, rates)
        if found.shape != (2,):
            raise not_allowed(
                f"{name}={self!r} is not allowed: its log_density returned the shape "
                f"{tuple(found.shape)} for 2 chains of 3 parameters. Return one number for each."
            )
        (expected,) = torch.autograd.grad(-3.0 * found.sum(), at)
        self.gradient(at.detach(), 3.0 * rates, out)
        if not torch.allclose(out, expected, rtol=1e-4, atol=1e-6):
            raise not_allowed(
                f"{name}={self!r} is not allowed: its gradient must be that of -log_density, and "
                "three times as much for three times the rates, because samplers scale the rates. "
                "Sample other densities by skbayes_sgmcmc.sample."
            )


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
