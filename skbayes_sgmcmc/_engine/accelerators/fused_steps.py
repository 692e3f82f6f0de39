"""Euler steps of SGLD and pSGLD with noise and update in one pass, compiled by numba.

For models with many parameters, the noise and the passes over the parameters cost as much as the
gradient. Here each block of parameters is updated while its normals are in the first-level cache.
The functions replace the ``euler`` methods of the samplers. Given the same normals, the results are
equal up to rounding. The functions need the optional extra ``fast`` and a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from ..._draws.storage import dtype_name
from ..._limits import LIMITS
from ...models._threads import allowed_threads
from ...samplers import PSGLD, SGLD, Sampler
from ...samplers._protocol import State, Step
from ...samplers.integrators import euler
from ..recipe import Recipe
from ._base import Accelerator, Engine, why_no_cpu


class FusedEuler:
    """Replacement of ``integrators.euler`` for the runs that :class:`FusedSteps` takes."""

    def __init__(self) -> None:
        from ..._kernels import steps

        self._kernels = steps
        self._threads = allowed_threads()
        self._pool = ThreadPoolExecutor(self._threads)

    def __call__(self, sampler: Sampler, theta: Tensor, state: State, step: Step) -> None:
        g = sampler.gradient(theta, state, step)
        if isinstance(sampler, PSGLD):
            self._psgld(sampler, theta, g, state, step)
        else:
            self._sgld(theta, g, state, step)

    def _sgld(self, theta: Tensor, g: Tensor, state: State, step: Step) -> None:
        number = np.dtype(dtype_name(theta.dtype)).type
        sd, scales = math.sqrt(2.0 * step.noise), [1.0] * len(theta)
        if "scale" in state:
            scales = state["scale"][:, 0].tolist()
        run = self._kernels.sgld
        at, by = theta.numpy(), g.numpy()

        def advance(c: int, part: slice, key: Any, counter: Any) -> None:
            s = scales[c]
            run(at[c, part], by[c, part], number(step.eta * s * s), number(sd * s), key, counter)

        self._each(theta.shape[1], step, advance)

    def _psgld(self, sampler: PSGLD, theta: Tensor, g: Tensor, state: State, step: Step) -> None:
        number = np.dtype(dtype_name(theta.dtype)).type
        likelihood, V = sampler.averaged(g, step).numpy(), state["V"].numpy()
        cap = sampler.capped_at(step)
        numbers = [
            number(value)
            for value in (
                sampler.share(step),
                sampler.regularization,
                math.inf if cap is None else cap,
                step.eta,
                math.sqrt(2.0 * step.noise),
            )
        ]
        adapting = "adapting" in state
        rates = sampler.rates(step)
        limits = np.empty((len(V), 0), V.dtype) if rates is None else rates.numpy()
        run = self._kernels.psgld
        at, by = theta.numpy(), g.numpy()

        def advance(c: int, part: slice, key: Any, counter: Any) -> None:
            rows = at[c, part], by[c, part], likelihood[c, part], V[c, part], limits[c, part]
            run(*rows, adapting, sampler.lag, *numbers, key, counter)

        self._each(theta.shape[1], step, advance)

    def _each(
        self, n_parameters: int, step: Step, advance: Callable[[int, slice, Any, Any], None]
    ) -> None:
        """Call ``advance`` for every chain, or part of a chain, with the counter of its normals."""
        parts = max(1, min(self._threads, n_parameters // LIMITS.thread_numbers))
        block = self._kernels.NUMBERS  # each part starts at the start of a block of normals
        length = -(-n_parameters // (parts * block)) * block
        tasks = []
        for c, rng in enumerate(step.streams):
            key, counter = np.uint64(rng.key), rng.reserve(n_parameters)
            for start in range(0, n_parameters, length):
                at = np.uint64(counter + start // 4)
                tasks.append((c, slice(start, start + length), key, at))
        if self._threads == 1 or len(tasks) == 1:
            for task in tasks:
                advance(*task)
        else:
            list(self._pool.map(lambda task: advance(*task), tasks))


class FusedSteps(Accelerator):
    """Euler steps of SGLD and pSGLD, with their noise, in one compiled pass."""

    name = "fused_steps"

    def why_not(self, recipe: Recipe) -> str | None:
        sampler = recipe.sampler
        known = type(sampler) is SGLD or (type(sampler) is PSGLD and not sampler.divergence)
        if not known or recipe.cell.integrator is not euler:
            return "it is for sampler='sgld' or 'psgld' (without divergence), integrator='euler'."
        if recipe.target.model.needs_gamma:
            return "the model needs gamma variates, which the compiled generator does not have."
        if recipe.torch_numbers:
            return "the earlier chains that this fit continues use torch's random numbers."
        return why_no_cpu(recipe)

    def pays(self, recipe: Recipe) -> bool:
        numbers = recipe.target.model.n_parameters * recipe.n_steps * recipe.n_chains
        return numbers >= LIMITS.worth_steps

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        return replace(engine, integrator=FusedEuler(), philox=True, own_noise=True)
