"""Compiled functions for a part of a model's own work, such as gradients or latent variables.

The functions belong to the model (``Model.kernels``). Each has an entry in the list of
accelerators, so that ``compiled`` has the same meaning for all of them.
"""

from __future__ import annotations

from dataclasses import replace

from ..recipe import Recipe
from ._base import Accelerator, Engine, why_no_cpu


class ModelKernel(Accelerator):
    """One of the compiled functions of models.

    Parameters
    ----------
    name : str
        Name of the function in ``Model.kernels``.
    without : str
        The reason why it does not apply, for models without this function.
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
