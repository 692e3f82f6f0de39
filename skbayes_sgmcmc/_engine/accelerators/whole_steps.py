"""Steps of MCLMC on perceptrons, all those between two changes of the target in one compiled call.

In small networks, a third of a step is calls of torch and Python beside the compiled gradients.
Given the same normals, positions and the sampler's state are equal up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.networks.compiled import PerceptronGradient, in_kernel
from ...priors.factorised import Normal
from ...samplers import MCLMC
from ...samplers._protocol import State, Step
from ...samplers._tuning import TUNING
from ...samplers.integrators import MINIMAL_NORM, Integrator, leapfrog, minimal_norm
from ..recipe import Recipe
from ..target import Evaluator

#: turns of a step, and drifts between them, in units of epsilon
SCHEMES: dict[Integrator, tuple[tuple[float, ...], tuple[float, ...]]] = {
    leapfrog: ((0.5, 0.5), (1.0,)),
    minimal_norm: ((MINIMAL_NORM, 1.0 - 2.0 * MINIMAL_NORM, MINIMAL_NORM), (0.5, 0.5)),
}


def whole_steps(recipe: Recipe) -> bool:
    """Whether the steps of a model with the perceptron's kernel are compiled whole."""
    model: Any = recipe.target.model
    rows = recipe.minibatches
    return (
        in_kernel(model.likelihood)
        and recipe.cell.integrator in SCHEMES
        and rows.full
        and not rows.divided
        and rows.data.augment is None
        and recipe.target.coordinates is None
        and type(model.prior) is Normal
        and model.center is None
    )


class WholeSteps:
    """Takes several steps at once, as ``Engine.block``."""

    def __init__(self, recipe: Recipe):
        model: Any = recipe.target.model
        self._model = model
        self._likelihood = PerceptronGradient(model.network, model.likelihood)
        self._scale = recipe.target.likelihood_scale(recipe.minibatches)
        self.integrator = recipe.cell.integrator
        self._scheme = tuple(np.array(part) for part in SCHEMES[self.integrator])

    def __call__(
        self, sampler: MCLMC, theta: Tensor, state: State, step: Step, evaluator: Evaluator
    ) -> Tensor:
        from ..._kernels._addresses import address_of
        from ..._kernels.mclmc import take
        from ..._kernels.perceptron import gradient

        positions, latents = torch.empty_like(step.xi), evaluator.state
        none = theta.new_empty(0)
        vectors = (state.get(name, none[:, None]) for name in ("u", "mean", "square"))
        names = "scale", "trust", "caution", "steps", "undone", "errors", "usual", "length", "k"
        numbers = (state.get(name, none).view(-1).numpy() for name in names)
        # a normal prior's gradient at 1 is its rates, and its potential at 0 is constant
        rates, one = torch.empty_like(theta), torch.ones_like(theta)
        self._model.prior_gradient(one, latents, rates, 1.0)
        constant = self._model.prior_potential(torch.zeros_like(theta), latents).double()
        given = (
            theta.numpy(),
            *self._likelihood.given(evaluator.batch, latents, len(theta), self._scale),
            state["g"].numpy(),
            np.empty(len(theta)),
        )
        take(
            address_of(gradient, given),
            given,
            tuple(vector.numpy() for vector in vectors),
            (state["energy"].view(-1).numpy(), *numbers),
            (rates.numpy(), constant.numpy()),
            (
                step.n, step.eta, step.temperature, step.tuning, sampler.last_aim(step),
                step.same_target,
            ),
            self._scheme,
            TUNING,
            step.all_progress,
            step.xi.numpy(),
            positions.numpy(),
        )  # fmt: skip
        return positions
