r"""Stochastic gradient Langevin dynamics (Welling & Teh 2011).

SDE, in the time unit of eta: :math:`d\theta = -\nabla u\,dt + \sqrt{2T/N}\,dW`. The invariant
density is :math:`\propto e^{-U/T}` with U = N u.
"""

from __future__ import annotations

import math

from torch import Tensor

from ._protocol import State, Step
from ._tuning import EnergyTuned, add_scaled


class SGLD(EnergyTuned):
    r"""Stochastic gradient Langevin dynamics.

    Euler step: :math:`\theta \leftarrow \theta - \eta g + \sqrt{2\eta T/N}\,\xi`.

    With ``integrator="leimkuhler_matthews"``, successive steps share half of their noise:
    :math:`\theta \leftarrow \theta - \eta g + \sqrt{\eta T/(2N)}\,(\xi_t + \xi_{t+1})`.
    This is exact on Gaussian targets with full gradients.

    With a constant preconditioner M (the estimators' ``preconditioner``), the step is
    :math:`\theta \leftarrow \theta - \eta M g + \sqrt{2\eta T/N}\,M^{1/2}\xi`.

    Notes
    -----
    The bias is of order eta with Euler and of order eta^2 with Leimkuhler-Matthews. Minibatch noise
    multiplies the variance by 1 + eta N Var(g) / (2T).

    References
    ----------
    Welling & Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics.
    Leimkuhler & Matthews (2013), Rational construction of stochastic numerical methods for
    molecular sampling.

    Examples
    --------
    >>> from skbayes_sgmcmc.samplers import SGLD
    >>> SGLD()
    SGLD()
    """

    squared_length = 2.0

    def init_state(self, theta: Tensor, step: Step) -> State:
        return {"xi": step.xi.clone()}  # the noise that the first step shares with the one before

    def euler(self, theta: Tensor, state: State, step: Step) -> None:
        g = self.gradient(theta, state, step)
        add_scaled(theta, g, -step.eta, state, power=2)
        if step.noise > 0.0:
            add_scaled(theta, step.xi, math.sqrt(2.0 * step.noise), state)

    def leimkuhler_matthews(self, theta: Tensor, state: State, step: Step) -> None:
        g = self.gradient(theta, state, step)
        half_noise = math.sqrt(0.5 * step.noise)
        add_scaled(theta, g, -step.eta, state, power=2)
        add_scaled(theta, state["xi"], half_noise, state)
        add_scaled(theta, step.xi, half_noise, state)
        state["xi"].copy_(step.xi)
