r"""Stochastic gradient Langevin dynamics (Welling & Teh 2011).

SDE, in the time unit of eta: :math:`d\theta = -\nabla u\,dt + \sqrt{2T/N}\,dW`. The invariant
density is :math:`\propto e^{-U/T}` with U = N u.
"""

from __future__ import annotations

import math

from torch import Tensor

from ._protocol import Sampler, State, Step


class SGLD(Sampler):
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

    def init_state(self, theta: Tensor, step: Step) -> State:
        return {"xi": step.xi.clone()}  # the noise that the first step shares with the one before

    def euler(self, theta: Tensor, state: State, step: Step) -> None:
        g = step.gradient(theta)
        theta.add_(g, alpha=-step.eta)
        if step.noise > 0.0:
            theta.add_(step.xi, alpha=math.sqrt(2.0 * step.noise))

    def leimkuhler_matthews(self, theta: Tensor, state: State, step: Step) -> None:
        g = step.gradient(theta)
        half_noise = math.sqrt(0.5 * step.noise)
        theta.add_(g, alpha=-step.eta)
        theta.add_(state["xi"], alpha=half_noise)
        theta.add_(step.xi, alpha=half_noise)
        state["xi"].copy_(step.xi)
