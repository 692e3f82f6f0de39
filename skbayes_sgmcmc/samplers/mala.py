r"""Metropolis-adjusted Langevin algorithm: the reference sampler, which uses all data at each step.

Its invariant density is exactly :math:`e^{-U/T}` at any step size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._metric import DiagonalMetric, Metric, State
from ._protocol import Proposing, Step


class MALA(Proposing):
    r"""Metropolis-adjusted Langevin algorithm, the exact reference sampler.

    Each step proposes an SGLD step on all data,
    :math:`\theta^* = \theta - \eta M g + \eta(T/N)\Gamma + \sqrt{2\eta T/N}\,M^{1/2}\xi`, and
    accepts it with probability :math:`\min(1, e^{-(U^*-U)/T}\,
    q(\theta|\theta^*)/q(\theta^*|\theta))`. M is the identity, a constant preconditioner or the
    model's metric. The acceptance rate of each chain is in
    ``posterior_.statistics["acceptance_rate"]``; the optimal rate is about 0.57.

    References
    ----------
    Roberts & Tweedie (1996); Roberts & Stramer (2002); Welling & Teh (2011), section 5.3.

    Examples
    --------
    >>> from skbayes_sgmcmc.samplers import MALA
    >>> MALA()
    MALA()
    """

    full_data = True

    def uses_metric(self, metric: Any) -> bool:
        return metric is not None

    def own_step(self, n_parameters: int) -> float:
        """0.8 times the optimum on N(0, I), 1.65^2 P^(-1/3) / 2 (Roberts & Rosenthal 1998)."""
        return float(0.8 * 1.36 * n_parameters ** (-1.0 / 3.0))

    def init_state(self, theta: Tensor, step: Step) -> State:
        chains = torch.zeros(len(theta), dtype=theta.dtype, device=theta.device)
        return {
            "g": step.gradient(theta).clone(),
            "u": step.potential(theta),
            "accepted": chains,
            "proposed": chains.clone(),
        }

    def metropolis(self, theta: Tensor, state: State, step: Step) -> None:
        metric = self._metric(theta, step)
        proposal = self._mean(theta, state["g"], metric, step)
        proposal.add_(metric.root_times(step.xi), alpha=math.sqrt(2.0 * step.noise))
        u, g = step.potential(proposal), step.gradient(proposal)
        back = self._metric(proposal, step)
        log_ratio = -(u - state["u"]) * (step.n / step.temperature)
        log_ratio += self._log_density(theta, proposal, g, back, step)
        log_ratio -= self._log_density(proposal, theta, state["g"], metric, step)
        accept = torch.log(step.uniform) < log_ratio  # nan, a proposal out of bounds, gives False
        state["accepted"].add_(accept)
        state["proposed"].add_(1.0)
        rows = accept[:, None]
        theta.copy_(torch.where(rows, proposal, theta))
        state["g"].copy_(torch.where(rows, g, state["g"]))
        state["u"].copy_(torch.where(accept, u, state["u"]))

    @staticmethod
    def _metric(theta: Tensor, step: Step) -> Metric:
        if step.metric is not None:
            return step.metric(theta)
        return DiagonalMetric(torch.ones_like(theta), torch.zeros_like(theta))

    @staticmethod
    def _mean(theta: Tensor, g: Tensor, metric: Metric, step: Step) -> Tensor:
        return theta - step.eta * metric.times(g) + step.noise * metric.divergence

    def _log_density(
        self, to: Tensor, start: Tensor, g: Tensor, metric: Metric, step: Step
    ) -> Tensor:
        """log q(to | start), up to a constant."""
        away = to - self._mean(start, g, metric, step)
        return -metric.inverse_quadratic(away) / (4.0 * step.noise) - 0.5 * metric.log_det()
