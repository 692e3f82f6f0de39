r"""Linear models in coordinates that suit many correlated features.

Beyond 2,000 parameters, the preconditioner of linear models is a diagonal, which sees nothing of
correlations. Features are therefore centred and rotated to their principal axes. In a logistic
regression, the coefficients of the classes are also rotated to a basis; its first vector is
constant. The likelihood does not depend on a constant that is added to the coefficients of all
classes; the other vectors are those directions that the data determine. Normal priors with one
scale are the same in all such coordinates.

.. math:: W = U \Theta^\top V^\top,\quad b = c - W \mu

U is the identity for regressions, V are the principal axes and :math:`\mu` is the centre, which is
zero for models without an intercept.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Data
from ..._draws.storage import decode, encode
from ..._limits import LIMITS, slices
from .._constants import Constant
from .logistic import LogisticModel
from .model import LinearModel


@dataclass
class FeatureCoordinates:
    """Coordinates of features: centred and rotated, or in other units."""

    #: what is subtracted, (n_features,)
    center: Array
    #: orthonormal columns, (n_features, n_features); None: no rotation
    axes: Array | None
    #: what centred features are divided by
    scale: float

    @classmethod
    def of(
        cls,
        features: Array,
        weight: Array | None,
        *,
        rotated: bool,
        relative: bool,
        centred: bool = True,
    ) -> Self:
        """Coordinates of rows (rows, n_features).

        ``rotated``: principal axes, and the centre if ``centred``. ``relative``: in units of the
        root mean square of the features' standard deviations.
        """
        n_rows, d = features.shape
        weight = np.full(n_rows, 1.0 / n_rows) if weight is None else weight / weight.sum()
        mean, total = np.zeros(d), np.zeros((d, d) if rotated else d)
        for some in slices(n_rows, LIMITS.block_rows):
            mean += weight[some] @ features[some]
        for some in slices(n_rows, LIMITS.block_rows):
            rows = features[some] - mean.astype(features.dtype)
            weighted = rows * weight[some, None].astype(features.dtype)
            total += weighted.T @ rows if rotated else (weighted * rows).sum(0)
        square = float(np.trace(total) if rotated else total.sum()) / d
        scale = math.sqrt(square) if relative and square > 0.0 else 1.0
        if not rotated:
            return cls(np.zeros(d), None, scale)
        if not centred:  # an intercept would have to make up for it
            mean, total = np.zeros(d), total + np.outer(mean, mean)
        return cls(mean, np.linalg.eigh(total)[1], scale)

    def of_rows(self, features: Array) -> Array:
        """Features in these coordinates, in their own precision."""
        kind = features.dtype
        moved = (features - self.center.astype(kind)) / kind.type(self.scale)
        return np.asarray(moved if self.axes is None else moved @ self.axes.astype(kind))

    def undone(self, coef: Array, bias: Array) -> tuple[Array, Array]:
        """Weights (..., k, n_features) and biases (..., k) of the features themselves."""
        kind = coef.dtype
        coef = coef if self.axes is None else coef @ self.axes.T.astype(kind)
        coef = coef / kind.type(self.scale)
        return coef, bias - coef @ self.center.astype(kind)


class RotatedModel(LinearModel):
    """Mixin of linear models of rows that can be in other coordinates than those of the user.

    ``coordinates`` are those of the features; None: as they are.
    """

    coordinates: FeatureCoordinates | None = None

    @property
    def rotated(self) -> bool:
        """Whether the features should be rotated: if the preconditioner is diagonal.

        The prior must be the same in rotated coordinates.
        """
        many = self.n_parameters > LIMITS.full_hessian and self.n_features <= 4096
        return many and self.coefficient_prior.isotropic

    def for_features(
        self, features: Array, weight: Array | None, known: FeatureCoordinates | None = None
    ) -> Self:
        """A copy in the coordinates that suit the features, or in known ones."""
        rotated, relative = self.rotated, self._relative
        if not rotated and not relative:
            return self
        model = copy.copy(self)
        # the axes separate large from small, so that nothing cancels
        model.single_precision = rotated
        model.coordinates = known or FeatureCoordinates.of(
            features, weight, rotated=rotated, relative=relative, centred=bool(self.fit_intercept)
        )
        return model

    @property
    def _relative(self) -> bool:
        """Whether the features should be in units of their typical standard deviation."""
        return False

    def _in_coordinates(self, x: Array) -> Array:
        """Features in the coordinates of the model."""
        return x if self.coordinates is None else self.coordinates.of_rows(x)

    def _undone(self, parts: dict[str, Array], kind: Any) -> dict[str, Array]:
        """Draws of the coefficients and intercepts of the features themselves."""
        if self.coordinates is None:
            return parts
        coef, bias = self.coordinates.undone(decode(parts["coef"]), decode(parts["intercept"]))
        return parts | {"coef": encode(coef, kind), "intercept": encode(bias, kind)}


class RotatedLogisticModel(RotatedModel, LogisticModel):
    """Logistic regression of rows that can be rotated; classes are then rotated, too."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        constant = np.full((self.k, 1), self.k**-0.5)
        self.class_axes = np.hstack([constant, scipy.linalg.helmert(self.k).T])
        self._class_axes = Constant(self.class_axes)

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        return super().make_data(self._in_coordinates(x), y, weight, dtype, device)

    @property
    def _turned_classes(self) -> bool:
        """Whether the classes are rotated, because the features are."""
        turned = self.coordinates is not None and self.coordinates.axes is not None
        return turned and self.k > 1

    def _coefficients(self, theta: Tensor) -> Tensor:
        w = super()._coefficients(theta)
        if not self._turned_classes:
            return w
        d = self.n_features
        turned = w[:, :d] @ self._class_axes.like(theta).t()
        return torch.cat([turned, w[:, d:]], 1)

    def _pull_back(self, gradient: Tensor) -> Tensor:
        if not self._turned_classes:
            return super()._pull_back(gradient)
        d = self.n_features
        turned = gradient[:, :d] @ self._class_axes.like(gradient)
        # what all classes share changes no probability; rounding errors of large features would
        # heat it, and the prior alone holds it
        turned[..., 0] = 0.0
        return super()._pull_back(torch.cat([turned, gradient[:, d:]], 1))

    def hessian_diagonal(self, theta: Array, data: Data) -> Array:
        if not self._turned_classes:
            return super().hessian_diagonal(theta, data)
        p, d = self._probabilities(theta, data), self.n_features
        weight, design = self._weights(data), data.fields["x"]
        # u'(diag(p) - pp')u for every vector u of the basis
        curvature = p @ self.class_axes**2 - np.square(p @ self.class_axes)
        full = design.transposed_times(weight * curvature, square=True)
        parts = [full[:d].reshape(-1)]
        if self.fit_intercept:
            curvature = p @ self.basis**2 - np.square(p @ self.basis)
            parts.append(design.transposed_times(weight * curvature, square=True)[d])
        return np.concatenate(parts)

    def _embedding(self) -> Array:
        plain = super()._embedding()
        if not self._turned_classes:
            return plain
        split = self.n_features * self.k
        plain[:split, :split] = np.kron(np.eye(self.n_features), self.class_axes)
        return plain

    def unpack(self, draws: Array) -> dict[str, Array]:
        parts = super().unpack(draws)
        if not self._turned_classes:
            return self._undone(parts, draws.dtype)
        coef = decode(parts["coef"])
        parts["coef"] = encode(self.class_axes.astype(coef.dtype) @ coef, draws.dtype)
        parts = self._undone(parts, draws.dtype)
        # another centre adds a number to all intercepts, and no probability depends on it
        bias = decode(parts["intercept"])
        bias = bias - bias.mean(axis=-1, keepdims=True)
        return parts | {"intercept": encode(bias, draws.dtype)}
