r"""The spike-and-slab prior of Deng et al. (2019), and the adaptation of its latent variables.

.. math::
    \beta_j \mid \gamma_j \sim (1-\gamma_j)\,\mathrm{Laplace}(0, \sigma v_0)
    + \gamma_j\, N(0, \sigma^2 v_1),\quad P(\gamma_j = 1) = \delta_l,\quad
    \delta_l \sim \mathrm{Beta}(a, b),\quad \sigma^2 \sim \mathrm{IG}(\nu/2, \nu\lambda/2)

Given the weights r_j of the slabs, the potential of the coefficients is
:math:`\sum_j (1-r_j)|\beta_j|/(v_0\sigma) + r_j\beta_j^2/(2 v_1\sigma^2)`. In the paper's symbols,
:math:`\kappa_0 = (1-r)/v_0` and :math:`\kappa_1 = r/v_1`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from .._exceptions import not_allowed
from .._sklearn import BaseEstimator
from .._validation import check_choice, check_layers, check_real, check_scale_pair, check_unless
from ..schedules import Constant, Polynomial, Schedule, as_schedule

ADAPTATIONS = ("auto", "sa", "em", "gibbs", None)


class SpikeSlab(BaseEstimator):
    r"""Spike-and-slab prior: a mixture of a Laplace spike and a normal slab for each coefficient.

    If an estimator standardises the data, coefficients and sigma are in standardised units.

    Parameters
    ----------
    spike_scale : float or "auto", default="auto"
        v_0. The spike is a Laplace distribution with scale sigma v_0. "auto" is 0.1. For linear
        models with N rows, "auto" is at most 0.4 / sqrt(N) in regression and
        0.4 / (sigma sqrt(N p (1 - p))) in classification, where p (1 - p) is averaged over the
        shares p of the classes. This is about half the standard error of a coefficient, so the
        spike does not reach coefficients that the data can distinguish from zero.
    slab_variance : float, default=10.0
        v_1. The slab is a normal distribution with variance sigma^2 v_1.
    inclusion : float, default=0.5
        Initial value of delta, the prior probability of a slab. It is also the initial weight of
        every slab.
    inclusion_prior : tuple of float or "auto", default="auto"
        Parameters (a, b) of the beta prior of delta, the same for all sparse layers. "auto" is 1
        and the number of coefficients of the layer, which expects few of them to be included.
    learn_inclusion : bool, default=True
        Whether delta is adapted, separately for each sparse layer.
    sigma : float, default=1.0
        Initial value of sigma. In regression, sigma is also the standard deviation of the noise,
        unless that is given as ``noise``.
    sigma_prior : tuple of float, default=(1.0, 0.1)
        Parameters (nu, lambda) of the inverse gamma prior of sigma^2. lambda is a guess of sigma^2
        that counts as nu observations.
    learn_sigma : bool or "auto", default="auto"
        Whether sigma is adapted. "auto" adapts it if it is the noise of a regression. If it is the
        scale of the prior alone, it can diverge once the spike is wide enough to hold every
        coefficient.
    adaptation : {"auto", "sa", "em", "gibbs"} or None, default="auto"
        How the latent variables (the probabilities rho of the slabs, sigma and delta) are updated
        at every step.

        * "auto": "gibbs" at temperature 1, "sa" at other temperatures.
        * "gibbs": draws from the conditional distributions, at every fourth step if there are more
          than 10,000 coefficients. The chain then targets the exact posterior of the
          spike-and-slab model.
        * "sa": stochastic approximation, x <- (1 - omega_k) x + omega_k target, as published. Its
          limit is not the posterior: if the data leave open which features matter, it may leave
          out all of them.
        * "em": the same with omega_k = 1.
        * None: the latent variables keep their initial values.
    gain : "auto", float or Schedule, default="auto"
        omega_k of "sa", at most 1. "auto" is 10 (k + 1000)^-0.7. The step number k starts at 0 in
        every call of ``fit`` or ``partial_fit``.
    layers : "all" or list of str, default="all"
        Layers with this prior. A layer is named by its draws, such as "weight_1". The
        layers of a module are named by its submodules or parameters, such as "conv1" or
        "conv1.weight". Other layers, and all biases, have a normal prior.

    References
    ----------
    Deng, Zhang, Liang & Lin (2019), An adaptive empirical Bayesian method for sparse deep learning.

    Examples
    --------
    >>> from skbayes_sgmcmc import SpikeSlab
    >>> SpikeSlab(spike_scale=0.01)
    SpikeSlab(spike_scale=0.01)
    """

    def __init__(
        self,
        spike_scale: float | Literal["auto"] = "auto",
        slab_variance: float = 10.0,
        inclusion: float = 0.5,
        inclusion_prior: tuple[float, float] | Literal["auto"] = "auto",
        learn_inclusion: bool = True,
        sigma: float = 1.0,
        sigma_prior: tuple[float, float] = (1.0, 0.1),
        learn_sigma: bool | str = "auto",
        adaptation: str | None = "auto",
        gain: float | Schedule | Literal["auto"] = "auto",
        layers: Sequence[str] | Literal["all"] = "all",
    ):
        self.spike_scale: Any = spike_scale  # a number in models
        self.slab_variance = slab_variance
        self.inclusion = inclusion
        self.inclusion_prior: Any = inclusion_prior
        self.learn_inclusion = learn_inclusion
        self.sigma = sigma
        self.sigma_prior = sigma_prior
        self.learn_sigma = learn_sigma
        self.adaptation = adaptation
        self.gain = gain
        self.layers = layers

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is the name of the prior."""
        for part in ("slab_variance", "sigma"):
            check_real(f"{name}.{part}", getattr(self, part), low=0.0)
        check_unless("auto", check_real, f"{name}.spike_scale", self.spike_scale, low=0.0)
        check_real(f"{name}.inclusion", self.inclusion, low=0.0, high=1.0)
        check_choice(f"{name}.learn_inclusion", self.learn_inclusion, (True, False))
        check_choice(f"{name}.learn_sigma", self.learn_sigma, ("auto", True, False))
        check_unless("auto", check_scale_pair, f"{name}.inclusion_prior", self.inclusion_prior)
        check_scale_pair(f"{name}.sigma_prior", self.sigma_prior)
        check_choice(f"{name}.adaptation", self.adaptation, ADAPTATIONS)
        largest = float(self._gains(f"{name}.gain").values(np.zeros(1, dtype=int), 1)[0])
        if largest > 1.0:
            raise not_allowed(
                f"{name}.gain={self.gain!r} is not allowed: its largest value is {largest:.3g}; "
                "give a number or a schedule in (0, 1]."
            )
        check_layers(f"{name}.layers", self.layers, ("all",))

    @property
    def exact(self) -> bool:
        """Whether the latent variables are drawn from their conditional distributions."""
        return self.adaptation in ("auto", "gibbs")

    def gains(self) -> Schedule:
        """The schedule of the gains omega_k; they are 1 with ``adaptation="em"``."""
        return self._gains("prior.gain")

    def _gains(self, name: str) -> Schedule:
        if self.adaptation == "em":
            return Constant(1.0)
        if isinstance(self.gain, str) and self.gain == "auto":
            return Polynomial(a=10.0, b=1000.0, gamma=0.7)
        return as_schedule(name, self.gain)

    def for_data(self, standard_error: float | None) -> SpikeSlab:
        """The prior with a number for ``spike_scale``.

        Parameters
        ----------
        standard_error : float or None
            Approximate standard error of a coefficient, in units of sigma. None if unknown.
        """
        if not isinstance(self.spike_scale, str):
            return self
        scale = 0.1 if standard_error is None else min(0.1, 0.4 * standard_error)
        return clone(self).set_params(spike_scale=scale)

    def gradient(
        self, beta: Tensor, slab: Tensor, sigma: Tensor, out: Tensor, scale: float
    ) -> None:
        """Write scale times the gradient of the potential to ``out``.

        ``slab`` are the slabs' weights; ``sigma`` has shape (chains, 1).
        """
        torch.sign(beta, out=out)
        out.mul_(sigma.reciprocal().mul_(scale / self.spike_scale))
        toward_slab = beta * sigma.pow(-2).mul_(scale / self.slab_variance)
        out.addcmul_(slab, toward_slab.sub_(out))

    def log_odds(self, z: Tensor) -> Tensor:
        """log N(beta; 0, sigma^2 v_1) - log Laplace(beta; 0, sigma v_0), for z = ``|beta|/sigma``.

        It is computed as a product, not as a difference of large terms. It is therefore finite or
        -inf for all finite z.
        """
        v_0, v_1 = self.spike_scale, self.slab_variance
        odds = torch.mul(z, -0.5 / v_1).add_(1.0 / v_0).mul_(z)
        return odds.add_(math.log(2.0 * v_0) - 0.5 * math.log(2.0 * math.pi * v_1))

    def penalties(self, z: Tensor, slab: Tensor) -> tuple[Tensor, Tensor]:
        r"""Sums :math:`\sum(1-r)z/v_0` and :math:`\sum r z^2/v_1`, of shape (chains, 1)."""
        weighted = slab * z
        absolute = (z.sum(1, keepdim=True) - weighted.sum(1, keepdim=True)) / self.spike_scale
        return absolute, weighted.mul_(z).sum(1, keepdim=True) / self.slab_variance

    def beta_prior(self, n_coefficients: int) -> tuple[float, float]:
        """(a, b) of the prior of delta in a layer of ``n_coefficients`` coefficients."""
        if isinstance(self.inclusion_prior, str):
            return 1.0, float(n_coefficients)
        a, b = self.inclusion_prior
        return float(a), float(b)


def sigma_mode(absolute: Tensor, squares: Tensor, count: float) -> Tensor:
    """The mode of log sigma with the density sigma^-count exp(-absolute/sigma - squares/sigma^2/2).

    It is the positive root of count sigma^2 - absolute sigma - squares.
    """
    root = torch.sqrt(absolute * absolute + 4.0 * count * squares)
    return (absolute + root) / (2.0 * count)
