r"""Linear models as the last layer of a network, in coordinates that suit many features.

Features of networks are correlated, and a diagonal preconditioner, which linear models use beyond
2,000 parameters, does not see this. The features are therefore centred and rotated to their
principal axes. In a logistic regression, the coefficients of the classes are also rotated to a
basis whose first vector is constant. The likelihood does not depend on a constant that is added to
the coefficients of all classes; the other vectors are those directions that the data determine.
Normal priors with one scale are the same in all such coordinates.

.. math:: W = U \Theta^\top V^\top,\quad b = c - W \mu

U is the identity for regressions, V are the principal axes and :math:`\mu` is the centre.
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
from sklearn.utils import gen_batches
from torch import Tensor

from .._data.minibatch import Data
from .._draws.storage import decode, encode
from ..priors.factorised import Prior
from ..priors.learned_scale import LearnedScale
from ._coefficient_priors import LearnedScales
from ._constants import Constant
from ._gaussian_tuning import FULL_HESSIAN_LIMIT, WhitenedGaussian
from ._tuning import Tuning
from .glm import GLMModel
from .likelihoods import Likelihood
from .linear import LinearModel
from .logistic import LogisticModel

Array = NDArray[Any]

#: number of rows whose features are multiplied at once
BLOCK_ROWS = 8192
#: largest number of features whose principal axes are computed
MOST_AXES = 4096
#: largest number of draws per chain with ``n_draws="auto"``: R-hat of the worst of 5,000 parameters
#: was 1.028 with 250 draws and 1.007 with 1000
MOST_DRAWS = 400


@dataclass
class FeatureCoordinates:
    """Coordinates of features: centred and rotated, or in other units.

    Attributes
    ----------
    center : array of shape (n_features,)
        What is subtracted.
    axes : array of shape (n_features, n_features) or None
        Orthonormal columns. None: no rotation.
    scale : float
        What centred features are divided by.
    """

    center: Array
    axes: Array | None
    scale: float

    @classmethod
    def of(cls, features: Array, weight: Array | None, *, rotated: bool, relative: bool) -> Self:
        """Coordinates of rows (rows, n_features).

        ``rotated``: centre and principal axes. ``relative``: in units of the root mean square of
        the features' standard deviations.
        """
        n_rows, d = features.shape
        weight = np.full(n_rows, 1.0 / n_rows) if weight is None else weight / weight.sum()
        mean, total = np.zeros(d), np.zeros((d, d) if rotated else d)
        for some in gen_batches(n_rows, BLOCK_ROWS):
            mean += weight[some] @ features[some]
        for some in gen_batches(n_rows, BLOCK_ROWS):
            rows = features[some] - mean.astype(features.dtype)
            weighted = rows * weight[some, None].astype(features.dtype)
            total += weighted.T @ rows if rotated else (weighted * rows).sum(0)
        square = float(np.trace(total) if rotated else total.sum()) / d
        scale = math.sqrt(square) if relative and square > 0.0 else 1.0
        if not rotated:
            return cls(np.zeros(d), None, scale)
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


class HeadTuning(WhitenedGaussian):
    """Tuning of linear models, with fewer draws: a head has more parameters."""

    most_draws = MOST_DRAWS


class HeadModel(LinearModel):
    """Mixin of linear models whose draws are named as a linear layer of a module.

    ``layer`` are the names and shapes of the layer's weights (n_outputs, n_features) and, maybe,
    its biases (n_outputs,). ``coordinates`` are those of the features; None: as they are.
    """

    layer: dict[str, tuple[int, ...]]
    coordinates: FeatureCoordinates | None = None

    @property
    def tuning(self) -> Tuning:
        return HeadTuning(self)

    @property
    def rotated(self) -> bool:
        """Whether the features should be rotated: if the preconditioner is diagonal.

        The prior must be the same in rotated coordinates.
        """
        many = self.n_parameters > FULL_HESSIAN_LIMIT and self.n_features <= MOST_AXES
        return many and self.coefficient_prior.isotropic

    def for_features(
        self, features: Array, weight: Array | None, known: FeatureCoordinates | None
    ) -> Self:
        """A copy in the coordinates that suit the features, or in known ones."""
        relative = isinstance(self.coefficient_prior, LearnedScales)
        if not self.rotated and not relative:
            return self
        model = copy.copy(self)
        # features are in single precision, and in these coordinates nothing cancels
        model.single_precision = self.rotated
        model.coordinates = known or FeatureCoordinates.of(
            features, weight, rotated=self.rotated, relative=relative
        )
        return model

    @property
    def _turned(self) -> bool:
        """Whether the features are rotated."""
        return self.coordinates is not None and self.coordinates.axes is not None

    def _in_coordinates(self, x: Array) -> Array:
        """Features in the coordinates of the model."""
        return x if self.coordinates is None else self.coordinates.of_rows(x)

    def _named(
        self, parts: dict[str, Array], coef: Array, bias: Array, kind: Any
    ) -> dict[str, Array]:
        """Draws of the layer by their names, for the features themselves, and other ``parts``."""
        if self.coordinates is not None:
            coef, bias = self.coordinates.undone(coef, bias)
        if coef.shape[-2] < next(iter(self.layer.values()))[0]:
            # one logit, divided between two classes
            coef = np.concatenate([-0.5 * coef, 0.5 * coef], axis=-2)
            bias = np.concatenate([-0.5 * bias, 0.5 * bias], axis=-1)
        others = {name: part for name, part in parts.items() if name not in ("coef", "intercept")}
        layer = zip(self.layer, (coef, bias), strict=False)
        return {name: encode(values, kind) for name, values in layer} | others


class LogisticHead(HeadModel, LogisticModel):
    """Logistic regression as the last layer of a network.

    Parameters
    ----------
    layer : dict of str to tuple
        Names and shapes of the layer's weights (n_classes, n_features) and, maybe, its biases
        (n_classes,).
    prior : Prior
        Prior of the weights. The biases have a flat prior.
    prior_scale : float or LearnedScale
        Its scale. With two classes the weights are those of one logit, divided between the classes
        with opposite signs; the prior, which must then be normal, is that of the difference.
        Learned scales are relative to one over a typical standard deviation of the features.
    """

    def __init__(
        self,
        layer: dict[str, tuple[int, ...]],
        prior: Prior,
        prior_scale: Any,
    ):
        self.layer, (weight, *_) = layer, layer.values()
        n_classes, n_features = weight
        unit = math.sqrt(2.0) if n_classes == 2 else 1.0  # the sd of a difference
        if not isinstance(prior_scale, LearnedScale):
            prior_scale = unit * prior_scale
        units = np.full(n_features, unit)
        super().__init__(n_features, n_classes, prior, prior_scale, len(layer) > 1, units)
        constant = np.full((self.k, 1), self.k**-0.5)
        self.class_axes = np.hstack([constant, scipy.linalg.helmert(self.k).T])
        self._class_axes = Constant(self.class_axes)

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        return super().make_data(self._in_coordinates(x), y, weight, dtype, device)

    def _coefficients(self, theta: Tensor) -> Tensor:
        w = super()._coefficients(theta)
        if not self._turned or self.k == 1:
            return w
        d = self.n_features
        turned = w[:, :d] @ self._class_axes.like(theta).t()
        return torch.cat([turned, w[:, d:]], 1)

    def _pull_back(self, gradient: Tensor) -> Tensor:
        if not self._turned or self.k == 1:
            return super()._pull_back(gradient)
        d = self.n_features
        turned = gradient[:, :d] @ self._class_axes.like(gradient)
        return super()._pull_back(torch.cat([turned, gradient[:, d:]], 1))

    def hessian_diagonal(self, theta: Array, data: Data) -> Array:
        if not self._turned or self.k == 1:
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
        if self._turned and self.k > 1:
            coef = self.class_axes.astype(coef.dtype) @ coef
        return self._named(parts, coef, bias, draws.dtype)


class RegressionHead(HeadModel, GLMModel):
    """A generalised linear model of one or more targets as the last layer of a network.

    Parameters
    ----------
    layer, prior, prior_scale
        As for :class:`LogisticHead`, without an exception for two outputs.
    likelihood : Likelihood
        Likelihood of the targets given the layer's outputs.
    """

    def __init__(
        self,
        layer: dict[str, tuple[int, ...]],
        likelihood: Likelihood,
        prior: Prior,
        prior_scale: Any,
    ):
        self.layer = layer
        n_features, bias = next(iter(layer.values()))[1], len(layer) > 1
        super().__init__(n_features, likelihood, prior, prior_scale, bias)

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        rows = self._in_coordinates(x), None, None
        return super().make_data(rows, y, weight, dtype, device)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Draws of the layer's weights (..., n_outputs, n_features) and biases, and others."""
        parts = super().unpack(draws)
        shape = (*draws.shape[:-1], self.k)
        coef = decode(parts["coef"]).reshape(*shape, self.n_features)
        bias = decode(parts["intercept"]).reshape(shape)
        return self._named(parts, coef, bias, draws.dtype)
