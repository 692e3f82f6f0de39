"""Linear models as the last layer of a network, in coordinates that suit its features."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from ..._arrays import Array
from ..._data.minibatch import Data
from ..._draws.storage import decode, encode
from ...priors.factorised import Normal, Prior
from ...priors.learned_scale import LearnedScale
from .._threads import serial_products
from ..likelihoods.base import Likelihood
from ..tuning.base import Tuning
from ..tuning.gaussian import WhitenedGaussian
from .coefficient_priors import FixedScales, LearnedScales, ScalesOfFeatures
from .evidence import likeliest_scale
from .glm import GLMModel
from .rotated import RotatedLogisticModel, RotatedModel


class HeadTuning(WhitenedGaussian):
    """Tuning of linear models, with fewer draws: a head has more parameters."""

    #: R-hat of the worst of 5,000 parameters was 1.028 with 250 draws and 1.007 with 1000
    most_draws = 400


class HeadModel(RotatedModel):
    """Mixin of linear models with draws that are named as a linear layer of a module.

    ``layer`` are the names and shapes of the layer's weights (n_outputs, n_features) and, maybe,
    its biases (n_outputs,).
    """

    layer: dict[str, tuple[int, ...]]

    def with_scale(self, scale: float) -> Self:
        """The model with a given scale of the prior, in the same coordinates."""
        model = self._rebuilt(scale)
        model.coordinates, model.single_precision = self.coordinates, self.single_precision
        return model

    def _rebuilt(self, scale: float) -> Self:
        """The model with another scale, as if it had been built with it."""
        raise NotImplementedError

    @property
    def prior_sd(self) -> float:
        """Standard deviation of the coefficients in a normal prior of a given scale."""
        prior = self.coefficient_prior
        assert isinstance(prior, FixedScales) and prior.normal is not None
        return float(prior.normal[0])

    def estimated(
        self, data: Data, hyper: LearnedScale, unit: float = 1.0
    ) -> tuple[float, Array | None]:
        """The likeliest scale of the prior, and a start for the fit with it, if there is one.

        The typical scale of ``hyper`` is relative to one over ``unit``.
        """
        typical = float(hyper.typical(1.0 / math.sqrt(self.n_features))) / unit
        with serial_products(), np.errstate(all="ignore"):  # what is not finite is left out
            return likeliest_scale(self, data, float(hyper.shape), typical)

    @property
    def tuning(self) -> Tuning:
        return HeadTuning(self)

    @property
    def _relative(self) -> bool:
        return isinstance(self.coefficient_prior, LearnedScales)

    def _named(self, parts: dict[str, Array], kind: Any) -> dict[str, Array]:
        """Draws of the layer by their names, and other ``parts``."""
        coef, bias = decode(parts["coef"]), decode(parts["intercept"])
        if coef.shape[-2] < next(iter(self.layer.values()))[0]:
            # one logit, divided between two classes
            coef = np.concatenate([-0.5 * coef, 0.5 * coef], axis=-2)
            bias = np.concatenate([-0.5 * bias, 0.5 * bias], axis=-1)
        others = {name: part for name, part in parts.items() if name not in ("coef", "intercept")}
        layer = zip(self.layer, (coef, bias), strict=False)
        return {name: encode(values, kind) for name, values in layer} | others


class LogisticHead(HeadModel, RotatedLogisticModel):
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
        if isinstance(prior_scale, LearnedScale):
            scale: Any = ScalesOfFeatures(prior_scale, np.full(n_features, unit))
        else:
            scale = unit * prior_scale
        super().__init__(n_features, n_classes, prior, scale, len(layer) > 1)

    def _rebuilt(self, scale: float) -> Self:
        return type(self)(self.layer, Normal(), scale)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Draws of the layer's weights (..., n_classes, n_features) and biases."""
        return self._named(super().unpack(draws), draws.dtype)


class RegressionHead(HeadModel, GLMModel):
    """A generalised linear model of one or more targets as the last layer of a network.

    Parameters are as for :class:`LogisticHead`, without an exception for two outputs, and the
    likelihood of the targets given the layer's outputs.
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

    def _rebuilt(self, scale: float) -> Self:
        return type(self)(self.layer, self.likelihood, Normal(), scale)

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        rows = self._in_coordinates(x), None, None
        return super().make_data(rows, y, weight, dtype, device)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Draws of the layer's weights (..., n_outputs, n_features) and biases, and others."""
        parts, kind = super().unpack(draws), draws.dtype
        shape = (*draws.shape[:-1], self.k)
        parts |= {
            "coef": parts["coef"].reshape(*shape, self.n_features),
            "intercept": parts["intercept"].reshape(shape),
        }
        return self._named(self._undone(parts, kind), kind)
