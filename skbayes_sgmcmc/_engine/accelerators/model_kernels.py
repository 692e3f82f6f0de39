"""Compiled functions for a part of a model's own work, such as gradients or latent variables.

The functions belong to the model (``Model.kernels``). Each has an entry in the list of
accelerators, so that ``compiled`` has the same meaning for all of them.
"""

from __future__ import annotations

from dataclasses import replace

from ._base import Accelerator, Engine, Workload, why_no_cpu


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

    def why_not(self, work: Workload) -> str | None:
        if self.name not in work.target.model.kernels:
            return self.without
        return why_no_cpu(work)

    def pays(self, work: Workload) -> bool:
        return work.target.model.kernels_pay(work.target.data, work.n_steps)

    def equip(self, engine: Engine, work: Workload) -> Engine:
        model = engine.target.model.with_kernel(self.name)
        return replace(engine, target=engine.target.with_model(model))
