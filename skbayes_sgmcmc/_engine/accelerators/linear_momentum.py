"""Steps of SGHMC with all rows on a linear model of one predictor, compiled by numba.

A step of 200 rows is thirty operations of torch, which take twenty times as long as their
arithmetic. Given the same normals, positions and momenta are equal up to rounding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..._limits import LIMITS
from ...models._protocol import LinearRows
from ...samplers import SGHMC, integrators
from ...samplers._protocol import State, Step
from ..recipe import Recipe
from ..target import Evaluator, Target
from ._base import Accelerator, Engine, why_no_cpu

#: the share of rows that use a column from which on it is stored dense
MANY = 0.2


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
        if target.model.linear_rows(target.data) is None:
            return (
                "it is for rows in memory with one predictor and a likelihood with compiled "
                "slopes, and for normal priors without a common scale of scales."
            )
        return why_no_cpu(recipe)

    def pays(self, recipe: Recipe) -> bool:
        target = recipe.target
        rows = target.model.linear_rows(target.data)
        assert target.coordinates is not None and rows is not None
        d, n = target.model.n_parameters, target.data.n_rows + target.model.n_parameters
        if target.coordinates.sparse is not None:
            matrix = Matrix(rows, target)
            d = len(matrix.x) + len(matrix.places)
        return d * n <= LIMITS.compiled_numbers

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        return replace(engine, block=Steps(recipe))


class Matrix:
    """The linear function of phi that gives the predictors of rows, and then theta."""

    def __init__(self, rows: LinearRows, target: Target):
        coordinates, design = target.coordinates, rows.design
        assert coordinates is not None
        center, n_used = coordinates.center.numpy(), design.shape[1]
        predictors = rows.likelihood.shift + design.times(center[:n_used, None])[:, 0]
        #: what is added, (rows,)
        self.shift = np.concatenate([predictors, center])
        if coordinates.sparse is None:
            root = coordinates.root.numpy()
            #: the columns (dense columns, rows) after the last one that few rows use
            self.x = np.vstack([design.times(root[:n_used]), root]).T
            few = sp.csr_matrix((len(self.shift), 0))
        else:
            root = coordinates.sparse[0]
            matrix = sp.vstack([design.x @ root[:n_used], root], format="csc")
            often = np.diff(matrix.indptr) > MANY * len(self.shift)
            first = 1 + np.flatnonzero(~often).max(initial=-1)
            self.x, few = matrix[:, first:].toarray().T, matrix[:, :first].tocsr()
        lengths = np.diff(few.indptr)
        used = np.arange(lengths.max(initial=0))[:, None] < lengths
        #: of every row, the other columns that it uses, and their numbers; of some, zeros
        self.places, self.values = np.zeros(used.shape, np.uint64), np.zeros(used.shape)
        self.places.T[used.T], self.values.T[used.T] = few.indices, few.data


class Steps:
    """Takes several steps at once, as ``Engine.block``."""

    def __init__(self, recipe: Recipe):
        from ..._kernels import momentum

        target = recipe.target
        rows = target.model.linear_rows(target.data)
        assert rows is not None
        likelihood, prior, n = rows.likelihood, rows.prior, target.data.n_rows
        self._take = momentum.STEPS[likelihood.name]
        matrix, d = Matrix(rows, target), target.model.n_parameters
        x = np.zeros((-(-len(matrix.x) // momentum.COLUMNS) * momentum.COLUMNS, n + d))
        x[: len(matrix.x)] = matrix.x
        self._rows = x, d - len(matrix.x), matrix.places, matrix.values, matrix.shift
        weight = target.likelihood_scale(recipe.minibatches) * likelihood.weight
        inferred = np.array([not own.given for own in likelihood.own], dtype=bool)
        places = np.full(len(inferred), -1)
        places[inferred] = n + d - inferred.sum() + np.arange(inferred.sum())
        shifts = np.array([own.shift for own in likelihood.own], dtype=float)
        self._likelihood = likelihood.target, weight, places, shifts
        self._prior = prior.rates, prior.of, prior.precision / [target.n, 1.0, 1.0]

    def __call__(
        self, sampler: Any, phi: Tensor, state: State, step: Step, evaluator: Evaluator
    ) -> Tensor:
        positions, a = torch.empty_like(step.xi), sampler.friction_of(step)
        self._take(
            phi.numpy(), state["v"].numpy(), state["g"].numpy(), self._rows, self._likelihood,
            self._prior, step.eta, math.exp(-a), math.sqrt(-math.expm1(-2.0 * a) * step.noise),
            step.xi.numpy(), positions.numpy(),
        )  # fmt: skip
        return positions
