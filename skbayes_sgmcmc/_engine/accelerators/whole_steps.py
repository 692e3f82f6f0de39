"""Steps of MCLMC on perceptrons, all those between two changes of the target in one compiled call.

In small networks, a third of a step is calls of torch and Python beside the compiled gradients.
Given the same normals, positions and the sampler's state are equal up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._limits import slices
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
#: numbers of each chain in the sampler's state, besides the energy
NUMBERS = (
    "scale", "trust", "caution", "steps", "undone", "errors", "usual", "length", "k", "batches",
)  # fmt: skip


def whole_steps(recipe: Recipe) -> bool:
    """Whether the steps of a model with the perceptron's kernel are compiled whole."""
    model: Any = recipe.target.model
    rows = recipe.minibatches
    return (
        in_kernel(model.likelihood)
        and recipe.cell.integrator in SCHEMES
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
        none, one = theta.new_empty(0), torch.ones_like(theta)
        vectors = [state.get(name, none[:, None]) for name in ("u", "mean", "square", "noise")]
        vectors.append(state.get("scaling", one))
        # a normal prior's gradient at 1 is its rates, and its potential at 0 is constant
        rates = torch.empty_like(theta)
        numbers = [state.get(name, none).view(-1).numpy() for name in NUMBERS]
        self._model.prior_gradient(one, latents, rates, 1.0)
        constant = self._model.prior_potential(torch.zeros_like(theta), latents).double()
        each = [
            self._likelihood.given(batch, latents, len(theta), self._scale)
            for batch in evaluator.batches
        ]
        known, g, total = step.same_target, state["g"].numpy(), np.empty(len(theta))
        for part, rows, fixed in _parts(each, len(step.all_progress)):
            its = theta.numpy(), tuple(some[0] for some in rows), *fixed, g, total
            take(
                address_of(gradient, its),
                (theta.numpy(), rows, *fixed, g, total),
                tuple(vector.numpy() for vector in vectors),
                (state["energy"].view(-1).numpy(), *numbers),
                (rates.numpy(), constant.numpy()),
                (step.n, step.eta, step.temperature, step.tuning, sampler.last_aim(step), known),
                self._scheme,
                TUNING,
                part,
                step.all_progress,
                step.xi.numpy(),
                positions.numpy(),
            )
        return positions


def _parts(each: Sequence[tuple[Any, ...]], n_steps: int) -> Iterator[tuple[Any, ...]]:
    """First step, step after the last, rows with a first axis of steps, and what is fixed.

    Rows that are looked up are taken step by step, because each batch has a matrix of its own.
    """
    looked_up = each[0][-1] is not None
    for some in slices(len(each), 1 if looked_up else len(each)):
        fields = zip(*(rows for rows, *_ in each[some]), strict=True)
        rows = tuple(field[0][None] if len(field) == 1 else np.stack(field) for field in fields)
        steps = (some.start, some.stop) if len(each) > 1 else (0, n_steps)
        yield steps, rows, each[some.start][1:]
