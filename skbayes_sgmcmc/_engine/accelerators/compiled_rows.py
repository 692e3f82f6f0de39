"""What the steps that are compiled with the perceptron's gradient have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Batch
from ..._metric import State
from ...models.networks.compiled import PerceptronGradient, in_kernel
from ...priors.factorised import Normal
from ..recipe import Recipe


def has_compiled_rows(recipe: Recipe) -> bool:
    """Whether steps of a model with the perceptron's kernel can be compiled whole."""
    model: Any = recipe.target.model
    rows = recipe.minibatches
    return (
        in_kernel(model.likelihood)
        and not rows.divided
        and rows.data.augment is None
        and recipe.target.coordinates is None
        and type(model.prior) is Normal
        and model.center is None
    )


class CompiledRows:
    """The prior and the rows of steps, as compiled steps take them."""

    def __init__(self, recipe: Recipe):
        model: Any = recipe.target.model
        self._model = model
        self._likelihood = PerceptronGradient(model.network, model.likelihood)

    def prior(self, theta: Tensor, latents: State) -> tuple[Array, Array]:
        """Rates (chains, parameters) and constants (chains,) of the prior's potential."""
        # a normal prior's gradient at 1 is its rates, and its potential at 0 is constant
        rates = torch.empty_like(theta)
        self._model.prior_gradient(torch.ones_like(theta), latents, rates, 1.0)
        constant = self._model.prior_potential(torch.zeros_like(theta), latents).double()
        return rates.numpy(), constant.numpy()

    def given(
        self, theta: Tensor, g: Tensor, latents: State, batch: Batch, scale: float, n_steps: int
    ) -> tuple[int, tuple[Any, ...]]:
        """Address of the gradient's code, and what compiled steps take with it.

        The batch has the rows of all steps (``Minibatches.together``), or those that they share.
        """
        from ..._kernels._addresses import address_of
        from ..._kernels.perceptron import gradient

        def by_step(part: Array) -> Array:
            of_steps = not batch.shared and len(part) == n_steps * len(theta)
            count = n_steps if of_steps else 1
            return part.reshape(count, len(part) // count, *part.shape[1:])

        found = self._likelihood.given(batch, latents, len(theta), scale)
        (*parts, first), *rest = found
        rows, sums = [by_step(part) for part in parts], (g.numpy(), np.zeros(len(theta)))
        single = theta.numpy(), (*(part[0] for part in rows), first), *rest, *sums
        return address_of(gradient, single), (theta.numpy(), (*rows, first), *rest, *sums)
