"""Gibbs sampling: draws from a model's conditional distributions, where these are known."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .._metric import State
from ._protocol import Proposing, Step


class Gibbs(Proposing):
    """Exact draws from a model's conditional distributions, which use all rows.

    There are no step sizes and no gradients. Of this library's models, linear regressions with
    normal noise, a normal prior and no groups have such distributions: their coefficients are drawn
    given the variances, and the variances from their joint density without the coefficients, by an
    independence Metropolis step. Its acceptance rate, in
    ``posterior_.statistics["acceptance_rate"]``, is about 0.9, so that draws are nearly
    independent.

    References
    ----------
    Geman & Geman (1984); Liu (1994), The collapsed Gibbs sampler in Bayesian computations, JASA.

    Examples
    --------
    >>> from skbayes_sgmcmc.samplers import Gibbs
    >>> Gibbs()
    Gibbs()
    """

    full_data = True
    needs_conditionals = True
    injects = False

    def init_state(self, theta: Tensor, step: Step) -> State:
        assert step.conditionals is not None
        return step.conditionals.init_state(theta)

    def conditional(self, theta: Tensor, state: State, step: Step) -> Tensor:
        """Draw the positions of a chunk of steps, shape (chains, steps, parameters)."""
        assert step.conditionals is not None
        levels = step.temperatures
        starts = np.flatnonzero(np.diff(levels, prepend=np.nan))  # of runs of equal temperature
        lengths = np.diff(starts, append=len(levels)).tolist()
        runs = zip(levels[starts].tolist(), lengths, strict=True)
        return torch.cat([step.conditionals.draw(theta, state, *run) for run in runs], 1)
