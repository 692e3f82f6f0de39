"""Steps of SGHMC with all rows on a linear model of one predictor, compiled by numba.

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
    """SGHMC on a linear model of one predictor, several steps at a time."""

    name = "linear_momentum"

    def why_not(self, recipe: Recipe) -> str | None:
        target, sampler, rows = recipe.target, recipe.sampler, recipe.minibatches
        if type(sampler) is not SGHMC or sampler.gradient_variance is not None:
            return "it is for sampler='sghmc' without gradient_variance."
        if recipe.cell.integrator is not integrators.baoab or not rows.full or rows.divided:
            return "it is for steps by integrator='baoab' that take all rows."
        if target.gradient != "minibatch" or target.data.augment is not None:
            return "it is for rows that do not change, without control variates."
        if target.like.dtype != torch.float64:
            return "it is for dtype='float64'."
        if target.coordinates is None or target.coordinates.root.ndim == 1:
            return "it needs a full matrix as preconditioner."
        if target.model.linear_means(target.data) is None:
            return (
                "it is for dense rows in memory, with two classes or one target of likelihood="
                "'poisson' or 'binomial', and for a normal prior of one scale."
            )
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
        means, coordinates = target.model.linear_means(target.data), target.coordinates
        assert means is not None and coordinates is not None
        self._take, scale = momentum.take, target.likelihood_scale(recipe.minibatches)
        root, center = coordinates.root.numpy(), coordinates.center.numpy()
        x = np.concatenate([block for _, block in means.design.blocks()])
        d = len(center)
        moved = np.zeros((-(-d // momentum.FEATURES) * momentum.FEATURES, len(x)))
        moved[:d] = root.T @ x.T
        self._design = moved, means.shift + x @ center, scale * means.weight, scale * means.target
        self._counts, learned, rates = means.counts, means.learned, means.rates
        rates = rates / target.n if learned is None else rates
        slope = root.T @ (rates * center)
        self._prior = np.ascontiguousarray(root.T @ (rates[:, None] * root)), slope
        self._precision = np.empty(0)
        if learned is not None:
            k, b = learned
            self._precision = np.array([k / target.n, b, center @ (rates * center)])

    def __call__(
        self, sampler: Any, phi: Tensor, state: State, step: Step, evaluator: Evaluator
    ) -> Tensor:
        positions, a = torch.empty_like(step.xi), sampler.friction_of(step)
        self._take(
            phi.numpy(), state["v"].numpy(), state["g"].numpy(), self._design, self._counts,
            self._prior, self._precision, step.eta, math.exp(-a),
            math.sqrt(-math.expm1(-2.0 * a) * step.noise), step.xi.numpy(), positions.numpy(),
        )  # fmt: skip
        return positions
