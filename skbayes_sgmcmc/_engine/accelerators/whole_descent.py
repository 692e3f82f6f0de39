"""Steps of the descents of perceptrons, several in one compiled call.

In small networks, three quarters of a step are calls of torch and Python beside the compiled
gradients. Given the same rows, positions are equal up to rounding.
"""

from __future__ import annotations

from torch import Tensor

from ..._data.minibatch import Batch
from ..._metric import State
from ..descent import DESCENT, Adam
from ..recipe import Recipe
from .compiled_rows import CompiledRows


class WholeDescent:
    """Takes several steps at once, as ``Engine.descent``."""

    def __init__(self, recipe: Recipe):
        self._rows, self._n = CompiledRows(recipe), recipe.target.n

    def __call__(
        self,
        adam: Adam,
        phi: Tensor,
        latents: State,
        batch: Batch,
        scale: float,
        count: int,
    ) -> None:
        from ..._kernels.descent import descend

        rates, _ = self._rows.prior(phi, latents)
        averages = adam.mean.numpy(), adam.square.numpy()
        rule = adam.rate, DESCENT.first, DESCENT.second, DESCENT.tiny
        given = self._rows.given(phi, phi.new_empty(phi.shape), latents, batch, scale, count)
        descend(*given, averages, rates, self._n, rule, adam.steps, count)
        adam.steps += count
