"""Compiled functions for a part of a model's own work, such as gradients or latent variables.

The functions belong to the model (``Model.kernels``). Each has an entry in the list of
accelerators, so that ``compiled`` has the same meaning for all of them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...models.designs.indicators import IndicatorDesign
from ..recipe import Recipe
from ._base import Accelerator, Engine, why_no_cpu
from .compiled_rows import has_compiled_rows
from .whole_descent import WholeDescent
from .whole_steps import SCHEMES, WholeSteps


class ModelKernel(Accelerator):
    """The compiled function of this name in ``Model.kernels``.

    ``without`` is the reason why it does not apply, for models without this function.
    """

    def __init__(self, name: str, without: str):
        self.name = name
        self.part = f"model: {name}"
        self.without = without

    def why_not(self, recipe: Recipe) -> str | None:
        if self.name not in recipe.target.model.kernels:
            return self.without
        return why_no_cpu(recipe)

    def pays(self, recipe: Recipe) -> bool:
        return recipe.target.model.kernels_pay(recipe.target.data, recipe.n_steps)

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        model = engine.target.model.with_kernel(self.name)
        return replace(engine, target=engine.target.with_model(model))


class PerceptronKernel(ModelKernel):
    """Gradients of networks, of dense rows in single precision, and whole steps with them."""

    def __init__(self) -> None:
        super().__init__(
            "perceptron",
            "it is for perceptrons and convolutions, without spikes and slabs, in full precision, "
            "with chain_method='auto' or 'vectorized'.",
        )

    def why_not(self, recipe: Recipe) -> str | None:
        if why := super().why_not(recipe):
            return why
        x = recipe.target.data.fields["x"]
        dense = isinstance(x, Tensor) and x.layout == torch.strided
        if not (dense or isinstance(x, IndicatorDesign)):
            return "the rows are sparse, or stay in their file."
        if recipe.target.like.dtype != torch.float32:
            return "it computes in single precision; give dtype='float32'."
        return None

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        engine = super().equip(engine, recipe)
        if not has_compiled_rows(recipe):
            return engine
        engine = replace(engine, descent=WholeDescent(recipe))
        if recipe.cell.integrator not in SCHEMES:
            return engine
        return replace(engine, block=WholeSteps(recipe))
