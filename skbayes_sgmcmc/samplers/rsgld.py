r"""Riemannian SGLD: Langevin dynamics in a metric M(theta) that the model supplies.

SDE: :math:`d\theta = (-M\nabla u + (T/N)\Gamma)\,dt + \sqrt{2T/N}\,M^{1/2}dW` with
:math:`\Gamma = \mathrm{div} M`. The invariant density is :math:`\propto e^{-U/T}`.
"""

from __future__ import annotations

import math

from torch import Tensor

from ._protocol import Sampler, State, Step


class RSGLD(Sampler):
    r"""Riemannian SGLD, in the metric of the model.

    Examples of metrics are the expanded-mean simplex of topic models and the natural gradient of
    ICA. One step is :math:`\theta \leftarrow \theta - \eta M g + \eta (T/N)\Gamma
    + \sqrt{2\eta T/N}\,M^{1/2}\xi`, followed by the model's projection.

    Parameters
    ----------
    divergence : bool, default=True
        Add the drift Gamma = div M. Without this drift the chain targets another density. Some
        published samplers leave it out.

    References
    ----------
    Patterson & Teh (2013), Stochastic gradient Riemannian Langevin dynamics on the probability
    simplex. Welling & Teh (2011), section 5.3.

    Examples
    --------
    >>> from skbayes_sgmcmc.samplers import RSGLD
    >>> RSGLD(divergence=False)
    RSGLD(divergence=False)
    """

    self_preconditioned = True
    needs_metric = True

    def __init__(self, divergence: bool = True):
        self.divergence = divergence

    def euler(self, theta: Tensor, state: State, step: Step) -> None:
        assert step.metric is not None
        metric = step.metric(theta)
        move = metric.times(step.gradient(theta)).mul_(-step.eta)
        if self.divergence:
            move.add_(metric.divergence, alpha=step.noise)
        move.add_(metric.root_times(step.xi), alpha=math.sqrt(2.0 * step.noise))
        theta.add_(move)
        if step.project is not None:
            step.project(theta)
