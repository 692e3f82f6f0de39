"""Steps of SGHMC with all rows on a binary linear model, compiled by numba.

A step of 200 rows is thirty operations of torch, which take twenty times as long as their
arithmetic. Given the same normals, positions and momenta are equal up to rounding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._limits import LIMITS
from ...samplers import SGHMC, integrators
from ...samplers._protocol import State, Step
from ..recipe import Recipe
from ..target import Evaluator
from ._base import Accelerator, Engine, why_no_cpu


class LinearMomentum(Accelerator):
    """SGHMC on a binary linear model, several steps at a time."""

    name = "linear_momentum"

    def why_not(self, recipe: Recipe) -> str | None:
        target, sampler, rows = recipe.target, recipe.sampler, recipe.minibatches
        if type(sampler) is not SGHMC or sampler.gradient_variance is not None:
            return "it is for sampler='sghmc' without gradient_variance."
        if recipe.cell.integrator is not integrators.baoab or not rows.full or rows.divided:
            return "it is for steps by integrator='baoab' that take all rows."
        form = target.model.linear_form(target.data)
        if form is None or form.prior != "normal" or target.gradient != "minibatch":
            return "it is for logistic regression of two classes with a normal prior."
        dense = isinstance(getattr(target.data.fields["x"], "x", None), Tensor)
        if not dense or target.data.augment is not None or target.like.dtype != torch.float64:
            return "it is for dense rows in memory, in double precision, that do not change."
        if target.coordinates is None or target.coordinates.root.ndim == 1:
            return "it needs a full matrix as preconditioner."
        return why_no_cpu(recipe)

    def pays(self, recipe: Recipe) -> bool:
        d = recipe.target.model.n_parameters
        return d * (d + recipe.minibatches.size) <= LIMITS.compiled_numbers

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        return replace(engine, block=Steps(recipe))


class Steps:
    """Takes several steps at once, as ``Engine.block``."""

    def __init__(self, recipe: Recipe):
        from ..._kernels import momentum

        target = recipe.target
        data, coordinates = target.data, target.coordinates
        form = target.model.linear_form(data)
        assert form is not None and coordinates is not None
        self._take, self._scale = momentum.take, target.likelihood_scale(recipe.minibatches)
        root, center = coordinates.root.numpy(), coordinates.center.numpy()
        x, weight = form.design.x.numpy().astype(np.float64, copy=False), data.weight
        d, rates = len(center), form.rates / target.n
        padded = -(-d // momentum.FEATURES) * momentum.FEATURES
        moved, slope = np.zeros((padded, len(x))), np.zeros(padded)
        moved[:d], slope[:d] = root.T @ x.T, root.T @ (rates * center)
        weights = np.empty(0) if weight is None else weight.numpy().astype(np.float64)
        self._rows = moved, x @ center, weights
        self._prior = np.ascontiguousarray(root.T @ (rates[:, None] * root)), slope

    def __call__(
        self, sampler: Any, phi: Tensor, state: State, step: Step, evaluator: Evaluator
    ) -> Tensor:
        positions, a = torch.empty_like(step.xi), sampler.friction_of(step)
        self._take(
            phi.numpy(), state["v"].numpy(), state["g"].numpy(), self._rows, self._prior,
            self._scale, step.eta, math.exp(-a), math.sqrt(-math.expm1(-2.0 * a) * step.noise),
            step.xi.numpy(), positions.numpy(),
        )  # fmt: skip
        return positions
