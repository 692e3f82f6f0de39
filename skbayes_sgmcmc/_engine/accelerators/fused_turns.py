"""Turns of MCLMC's direction in one pass, compiled by numba.

A turn is some twenty operations on small tensors. In small networks torch's calls of them take a
twentieth of a step. Given the same normals, the results are equal up to rounding. The functions
need the optional extra ``fast`` and a CPU.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..._limits import LIMITS
from ...samplers import MCLMC, Sampler
from ...samplers._protocol import State, Step
from ...samplers._tuning import TUNING
from ...samplers.integrators import Integrator
from ..recipe import Recipe
from ._base import Accelerator, Engine, why_no_cpu


class CompiledMCLMC(MCLMC):
    """MCLMC with compiled turns."""

    def turn_by(self, u: Tensor, g: Tensor, epsilon: Tensor, factor: float, turned: Tensor) -> None:
        from ..._kernels.turns import by_gradient

        least = torch.finfo(g.dtype).tiny
        by_gradient(u.numpy(), g.numpy(), epsilon.numpy(), factor, least, turned.numpy())

    def refresh(self, u: Tensor, xi: Tensor, epsilon: Tensor, length: Tensor) -> None:
        from ..._kernels.turns import by_chance

        by_chance(u.numpy(), xi.numpy(), epsilon.numpy(), length.numpy(), TUNING.forgotten)


class WithCompiledTurns:
    """Replacement of an integrator of MCLMC for the runs to which :class:`FusedTurns` applies."""

    def __init__(self, integrator: Integrator, sampler: MCLMC):
        self._integrator = integrator
        self._sampler = CompiledMCLMC(**sampler.get_params())

    def __call__(self, sampler: Sampler, theta: Tensor, state: State, step: Step) -> None:
        self._integrator(self._sampler, theta, state, step)


class FusedTurns(Accelerator):
    """Turns of MCLMC's direction in compiled passes."""

    name = "fused_turns"

    def why_not(self, recipe: Recipe) -> str | None:
        if type(recipe.sampler) is not MCLMC:
            return "it is for sampler='mclmc'."
        return why_no_cpu(recipe)

    def pays(self, recipe: Recipe) -> bool:
        n_parameters = recipe.target.model.n_parameters
        if n_parameters >= LIMITS.thread_numbers:
            return False
        each = LIMITS.turn_numbers + n_parameters * recipe.n_chains
        return recipe.n_steps * each >= LIMITS.worth_turns

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        assert isinstance(recipe.sampler, MCLMC)
        return replace(engine, integrator=WithCompiledTurns(engine.integrator, recipe.sampler))
