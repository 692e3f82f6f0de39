r"""Logistic regression as the last layer of a network, in coordinates that suit many features.

Features of networks are correlated, and a diagonal preconditioner, which logistic regression uses
beyond 2,000 parameters, does not see this. The features are therefore centred and rotated to their
principal axes, and the coefficients of the classes are rotated to a basis whose first vector is
constant. The potential does not depend on a constant that is added to the coefficients of all
classes, but for the prior; the other vectors are those directions that the data determine. Normal
priors with one scale are the same in all such coordinates.

.. math:: W = U \Theta^\top V^\top,\quad b = Q c - W \mu
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._data.minibatch import Data
from .._draws.storage import decode, encode
from ..priors.factorised import Normal, Prior
from ._gaussian_tuning import FULL_HESSIAN_LIMIT, WhitenedGaussian
from ._tuning import Tuning
from .logistic import LogisticModel

Array = NDArray[Any]

#: number of rows whose features are multiplied at once
BLOCK_ROWS = 8192
#: largest number of draws per chain with ``n_draws="auto"``: R-hat of the worst of 5,000 parameters
#: was 1.028 with 250 draws and 1.007 with 1000
MOST_DRAWS = 400


@dataclass
class PrincipalAxes:
    """Centre and principal axes of features.

    Attributes
    ----------
    center : array of shape (n_features,)
        Mean of the features.
    axes : array of shape (n_features, n_features)
        Orthonormal columns.
    """

    center: Array
    axes: Array

    @classmethod
    def of(cls, features: Array) -> Self:
        """The axes of rows (rows, n_features)."""
        center = features.mean(axis=0, dtype=np.float64)
        total = np.zeros((len(center), len(center)))
        for start in range(0, len(features), BLOCK_ROWS):
            rows = features[start : start + BLOCK_ROWS] - center.astype(features.dtype)
            total += rows.T @ rows
        return cls(center, np.linalg.eigh(total)[1])

    def of_rows(self, features: Array) -> Array:
        """Features in these coordinates, in their own precision."""
        kind = features.dtype
        return np.asarray((features - self.center.astype(kind)) @ self.axes.astype(kind))


class HeadTuning(WhitenedGaussian):
    """Tuning of logistic regression, with fewer draws: a head has more parameters."""

    most_draws = MOST_DRAWS


class LogisticHead(LogisticModel):
    """Logistic regression on features, whose draws are named as a linear layer of a module.

    Parameters
    ----------
    shapes : dict of str to tuple
        Names and shapes of the layer's weights (n_classes, n_features) and, maybe, its biases
        (n_classes,).
    prior : Prior
        Prior of the weights. The biases have a flat prior.
    prior_scale : float
        Its scale. With two classes the weights are those of one logit, divided between the classes
        with opposite signs; the prior, which must then be normal, is that of the difference.
    axes : PrincipalAxes or None, default=None
        Coordinates of the features. None: as they are.
    """

    def __init__(
        self,
        shapes: dict[str, tuple[int, ...]],
        prior: Prior,
        prior_scale: float,
        axes: PrincipalAxes | None = None,
    ):
        self.layer, (weight, *_) = shapes, shapes.values()
        n_classes, n_features = weight
        scale = prior_scale * math.sqrt(2.0) if n_classes == 2 else prior_scale
        super().__init__(n_features, n_classes, prior, scale, len(shapes) > 1)
        self.axes = axes
        self._rotatable = type(prior) is Normal
        constant = np.full((self.k, 1), self.k**-0.5)
        self.class_axes = np.hstack([constant, scipy.linalg.helmert(self.k).T])

    @property
    def tuning(self) -> Tuning:
        return HeadTuning(self)

    @property
    def needs_axes(self) -> bool:
        """Whether the preconditioner is diagonal, and the prior the same in rotated coordinates."""
        many = self.k > 1 and self.n_parameters > FULL_HESSIAN_LIMIT
        return many and self._rotatable

    def in_axes(self, axes: PrincipalAxes) -> Self:
        """A copy in these coordinates."""
        model = copy.copy(self)
        model.axes = axes
        return model

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        rows = x if self.axes is None else self.axes.of_rows(x)
        return super().make_data(rows, y, weight, dtype, device)

    def _coefficients(self, theta: Tensor) -> Tensor:
        w = super()._coefficients(theta)
        if self.axes is None:
            return w
        d = self.n_features
        turned = w[:, :d] @ torch.from_numpy(self.class_axes).to(theta).t()
        return torch.cat([turned, w[:, d:]], 1)

    def _pull_back(self, gradient: Tensor) -> Tensor:
        if self.axes is None:
            return super()._pull_back(gradient)
        d = self.n_features
        turned = gradient[:, :d] @ torch.from_numpy(self.class_axes).to(gradient)
        return super()._pull_back(torch.cat([turned, gradient[:, d:]], 1))

    def hessian_diagonal(self, theta: Array, data: Data) -> Array:
        if self.axes is None:
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

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Draws of the layer's weights (..., n_classes, n_features) and biases."""
        parts = super().unpack(draws)
        coef, bias = decode(parts["coef"]), decode(parts["intercept"])
        if self.axes is not None:
            kind = coef.dtype
            coef = self.class_axes.astype(kind) @ coef @ self.axes.axes.T.astype(kind)
            bias = bias - coef @ self.axes.center.astype(kind)
        if self.k == 1:  # one logit, divided between the classes
            coef = np.concatenate([-0.5 * coef, 0.5 * coef], axis=-2)
            bias = np.concatenate([-0.5 * bias, 0.5 * bias], axis=-1)
        found = zip(self.layer, (coef, bias), strict=False)
        return {name: encode(values, draws.dtype) for name, values in found}
