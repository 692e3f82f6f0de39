"""Steps of MCLMC on perceptrons, all those between two changes of the target in one compiled call.

In small networks, a third of a step is calls of torch and Python beside the compiled gradients.
Given the same normals, positions and the sampler's state are equal up to rounding.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...samplers import MCLMC
from ...samplers._protocol import State, Step
from ...samplers._tuning import TUNING
from ...samplers.integrators import MINIMAL_NORM, Integrator, leapfrog, minimal_norm
from ..recipe import Recipe
from ..target import Evaluator
from .compiled_rows import CompiledRows

#: turns of a step, and drifts between them, in units of epsilon
SCHEMES: dict[Integrator, tuple[tuple[float, ...], tuple[float, ...]]] = {
    leapfrog: ((0.5, 0.5), (1.0,)),
    minimal_norm: ((MINIMAL_NORM, 1.0 - 2.0 * MINIMAL_NORM, MINIMAL_NORM), (0.5, 0.5)),
}
#: numbers of each chain in the sampler's state, besides the energy
NUMBERS = (
    "scale", "trust", "caution", "steps", "undone", "errors", "usual", "length", "k", "batches",
)  # fmt: skip


class WholeSteps:
    """Takes several steps at once, as ``Engine.block``."""

    def __init__(self, recipe: Recipe):
        self._rows = CompiledRows(recipe)
        self._scale = recipe.target.likelihood_scale(recipe.minibatches)
        self.integrator = recipe.cell.integrator
        self._scheme = tuple(np.array(part) for part in SCHEMES[self.integrator])

    def __call__(
        self, sampler: MCLMC, theta: Tensor, state: State, step: Step, evaluator: Evaluator
    ) -> Tensor:
        from ..._kernels.mclmc import take

        positions, latents = torch.empty_like(step.xi), evaluator.state
        none = theta.new_empty(0)
        vectors = [state.get(name, none[:, None]) for name in ("u", "mean", "square", "noise")]
        vectors.append(state.get("scaling", torch.ones_like(theta)))
        numbers = [state.get(name, none).view(-1).numpy() for name in NUMBERS]
        its = (
            tuple(vector.numpy() for vector in vectors),
            (state["energy"].view(-1).numpy(), *numbers),
            self._rows.prior(theta, latents),
            (
                step.n, step.eta, step.temperature, step.tuning, sampler.last_aim(step),
                step.same_target, step.same_rows,
            ),
            self._scheme,
            TUNING,
        )  # fmt: skip
        given = self._rows.given(
            theta, state["g"], latents, evaluator.batch, self._scale, len(step.all_progress)
        )
        take(*given, *its, step.all_progress, step.xi.numpy(), positions.numpy())
        return positions
