r"""Step sizes that chains find in the burn-in, by the energy error of their steps.

A step conserves the energy up to an error :math:`\Delta` of third order in its length. Every chain
changes its own ``scale``, the factor of this length, until the mean of :math:`\Delta^2`, divided by
the number of parameters d, has the wanted value. MCLMC knows its error exactly. The other samplers
estimate theirs from their gradients alone: for a leapfrog step of the squared length
:math:`c\,\eta` (times T/N, the variance of a momentum) between positions with the gradients g and
g', it is

.. math:: \Delta = \frac{c\,\eta N}{8T} \left(|g'|^2 - |g|^2\right),

exactly if the potential is quadratic. The noise of minibatches changes :math:`|g|^2` too, so it
also makes steps shorter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._metric import State
from ._protocol import Sampler, Step


class StepTuning(NamedTuple):
    """The law of step sizes that chains find, and of MCLMC (docs/project/sampler_defaults.md).

    Compiled code takes it as it is.
    """

    #: number of recent steps with energy errors that set the step size: in the first step of the
    #: burn-in, when the step size may be far off, and in the last
    first_memory: float = 10.0
    memory: float = 100.0
    #: the energy error that tuning aims at begins with this multiple of its last value
    first_error: float = 100.0
    #: an energy error counts less in tuning the further the step size is, on a log scale with this
    #: width, from the one at which the error would have been the wanted one
    trusted: float = 1.5
    #: smallest and largest energy error that tuning sees, in units of the wanted one
    least_ratio: float = 1e-12
    largest_ratio: float = 1e2
    #: largest growth of the scale in a step. The first error decides alone, and may be small by
    #: chance
    growth: float = 1.25
    #: the largest v^2 under a thermostat while the step size is tuned, in units of its mean
    hottest: float = 10.0

    # MCLMC ----------------------------------------------------------------------------------------

    #: a step is undone if its energy error is this many times the wanted or usual one
    huge: float = 30.0
    #: after an undone step half of it is tried, and every step that is kept makes the next this
    #: longer
    recovery: float = 1.1
    #: the length scale L comes from the positions in the last part of the burn-in: a position of
    #: step k is forgotten by the weight 1 / (k / recent)
    recent: float = 3.0
    #: L over the root of the summed variances: longer for chains that have not seen all of them yet
    length: float = 1.5
    #: the direction is kept for at least this many steps of distance
    least_steps: float = 1.0
    #: largest 2 epsilon / L: the direction is then new after every step
    forgotten: float = 40.0
    #: noise of a gradient, over the mean of all, below which a parameter's scale grows no further
    least_noise: float = 0.01
    #: draws are doubtful if more than this share of the steps was undone, or if the mean energy
    #: error is above this
    most_undone: float = 0.1
    largest_error: float = 1.0


TUNING = StepTuning()


def wanted(last: float, progress: float) -> float:
    """The energy error to aim at when this fraction of the burn-in is finished; it falls."""
    return float(last * TUNING.first_error ** (1.0 - progress))


def adapt(state: State, ratio: Tensor, progress: float) -> None:
    """Change ``scale``, given the ratio of a step's squared energy error to the wanted one.

    The squared error grows like scale^6. The average of ratio / scale^6 over recent steps gives the
    scale at which the ratio is 1. In units of the present scale, the average of the earlier steps
    is always 1; ``trust`` is its weight. An error from which the scale would grow too fast is not
    trusted, so that a scale that is far too small grows at the largest rate until it fits. A ratio
    that is not a number, before there is an error, changes nothing.
    """
    ratio = ratio.clamp(TUNING.least_ratio, TUNING.largest_ratio)
    weight = torch.exp(-0.5 * (torch.log(ratio) / (6.0 * TUNING.trusted)) ** 2)
    memory = TUNING.first_memory + (TUNING.memory - TUNING.first_memory) * progress
    before = state["trust"].mul_(1.0 - 1.0 / memory).clone()
    growth = ((before + weight * ratio) / (before + weight)).pow_(-1.0 / 6.0)
    state["trust"].add_(weight.masked_fill_(~(growth <= TUNING.growth), 0.0))
    state["scale"].mul_(growth.nan_to_num_(1.0).clamp_(max=TUNING.growth))


class Scaled(Sampler):
    """Base class of samplers whose chains change their step by a factor of their own, ``scale``."""

    def used_step(self, eta: float, state: State) -> float:
        return eta * float(state["scale"].square().mean()) if "scale" in state else eta


class EnergyTuned(Scaled):
    r"""Base class of samplers that adapt a guessed step size by the energy error of their steps.

    They move in the coordinates :math:`\theta / s`, where s is the chain's ``scale``: what an
    update adds to the position is multiplied by s, and so is the gradient. The step size is then
    :math:`s^2 \eta`. A step size that the user gave is never changed.
    """

    #: what is aimed at in units of the wanted error: less, because the estimate leaves out what
    #: potentials add that are not quadratic
    share = 0.1
    #: an SGLD step is a leapfrog step of the squared length 2 eta from a new momentum
    squared_length = 1.0

    def tunes(self, step: Step) -> bool:
        """Whether this step adapts the step size."""
        return step.tuning and step.guessed and step.noise > 0.0

    def numbers(self, step: Step) -> tuple[Any, ...]:
        return (step.progress,) if self.tunes(step) else ()

    def prepare(self, theta: Tensor, state: State, step: Step) -> None:
        if step.tuning and step.guessed and "square" not in state:
            one = torch.ones_like(theta[:, :1])
            state.setdefault("scale", one)
            # there is no energy error before the second gradient
            state |= {"square": one * torch.nan, "trust": torch.zeros_like(one)}

    def gradient(self, theta: Tensor, state: State, step: Step) -> Tensor:
        g = step.gradient(theta)
        if self.tunes(step):
            self._learn(state, step, g)
        return g

    def _learn(self, state: State, step: Step, g: Tensor) -> None:
        square = (g * g).sum(1, keepdim=True)
        unit = self.squared_length * step.eta**2 / (8.0 * step.noise)
        error = (square - state["square"]).mul_(unit).mul_(state["scale"].square())
        state["square"].copy_(square)
        aim = g.shape[1] * wanted(self.share * step.energy_error, step.progress)
        adapt(state, error.square_().mul_(1.0 / aim), step.progress)

    def end_burn_in(self, state: State) -> None:
        for name in ("square", "trust"):
            state.pop(name, None)

    def forget_step(self, state: State) -> None:
        for name in ("square", "trust", "scale"):
            state.pop(name, None)


def add_scaled(x: Tensor, y: Tensor, s: float, state: State, power: int = 1) -> None:
    """Add s scale^power y to x, in place; the scale is 1 unless the chain has found another."""
    if "scale" not in state:
        x.add_(y, alpha=s)
    else:
        scale = state["scale"]
        x.addcmul_(scale if power == 1 else scale**power, y, value=s)
