r"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin 2014).

SDE (unscaled time): :math:`d\theta = p\,dt;\; dp = -D p\,dt - \nabla U\,dt + \sqrt{2DT}\,dW`.
The invariant density is :math:`\propto \exp(-(U + p^2/2)/T)`.
"""

from __future__ import annotations

from typing import Literal

import torch
from numpy.typing import ArrayLike
from sklearn.base import clone
from torch import Tensor

from .._validation import check_numbers, check_real
from ._momentum import MomentumSampler
from ._protocol import Sampler, State, Step

#: weight of the newest difference of gradients in the estimate of their variance
MEMORY = 0.01
#: friction for many parameters. With 456 draws of 37,000 coefficients, the largest R-hat of 2,000
#: that the rows say nothing of is 1.008, and 1.020 with the friction 0.1, after as many steps
MANY = 0.4


class SGHMC(MomentumSampler):
    r"""Stochastic gradient Hamiltonian Monte Carlo with friction.

    Euler step: :math:`\theta \leftarrow \theta + v;\quad v \leftarrow (1-\alpha) v - \eta g
    + \sqrt{2(\alpha-\hat\beta)\eta T/N}\,\xi`, with v = h p and :math:`h^2 = \eta/N`.
    The integrators "splitting", "baoab" and "aboba" compose the sub-flows of this SDE.

    Parameters
    ----------
    friction : float, default=0.1
        alpha, the friction of one step. Where ``step_size="auto"`` means shorter steps than usual
        for a linear model, that of a usual one: shorter ones have less.
    diffusion : float or None, default=None
        D of Li et al. (2016). If given, alpha = D h = D sqrt(eta/N) replaces ``friction``.
    gradient_variance : float, array of shape (n_parameters,), "estimate" or None, default=None
        Variance Var(g) of the minibatch gradient in each coordinate. The alpha of the injected
        noise is reduced by beta_hat = eta N Var(g) / (2T), but not below 0. None means 0.
        "estimate": half the mean square of the difference of two successive gradients, over the
        last 100 steps. The move between them adds a share of eta^2 h^2 / 4 to beta_hat, where h is
        the curvature of u. (The paper's empirical Fisher information of a minibatch needs the
        gradients of its rows.)

    References
    ----------
    Chen, Fox & Guestrin (2014), Stochastic gradient Hamiltonian Monte Carlo, eq. 15.
    Li, Chen, Fan & Carin (2016), High-order stochastic gradient thermostats.

    Examples
    --------
    >>> from skbayes_sgmcmc.samplers import SGHMC
    >>> SGHMC(friction=0.05)
    SGHMC(friction=0.05)
    """

    def __init__(
        self,
        friction: float = 0.1,
        diffusion: float | None = None,
        gradient_variance: ArrayLike | Literal["estimate"] | None = None,
    ):
        self.friction = friction
        self.diffusion = diffusion
        self.gradient_variance = gradient_variance

    def check(self, name: str) -> None:
        super().check(name)
        if self.gradient_variance is not None and not self._estimates:
            check_numbers(
                f"{name}.gradient_variance", self.gradient_variance, "None, 'estimate' or an array"
            )
            smallest = torch.as_tensor(self.gradient_variance).min().item()
            check_real(f"{name}.gradient_variance", smallest, low=0.0, closed="left")

    @property
    def _estimates(self) -> bool:
        return isinstance(self.gradient_variance, str) and self.gradient_variance == "estimate"

    def prepare(self, theta: Tensor, state: State, step: Step) -> None:
        super().prepare(theta, state, step)
        if self._estimates and "variance" not in state:
            g = step.gradient(theta)
            state |= {"g_before": g.clone(), "variance": torch.zeros_like(g)}

    def gradient(self, theta: Tensor, state: State, step: Step) -> Tensor:
        g = super().gradient(theta, state, step)
        if "variance" in state:
            away = g - state["g_before"]
            state["variance"].lerp_(away.square_().mul_(0.5), MEMORY)
            state["g_before"].copy_(g)
        return g

    def for_many_parameters(self) -> Sampler:
        # the largest R-hat is then that of squares, which a larger friction forgets sooner
        found = clone(self)
        found.friction = MANY
        return found

    def rate(self, state: State, step: Step) -> float:
        return self.friction_of(step)

    def noise_rate(self, state: State, step: Step) -> Tensor | float:
        alpha = self.friction_of(step)
        if self.gradient_variance is None or step.temperature == 0.0:
            return alpha
        variance = state["variance"] if self._estimates else torch.as_tensor(self.gradient_variance)
        variance = variance.to(state["v"])
        if "scale" in state:
            variance = variance * state["scale"] ** 2
        beta_hat = step.eta * step.n * variance / (2.0 * step.temperature)
        return (alpha - beta_hat).clamp_(min=0.0)
