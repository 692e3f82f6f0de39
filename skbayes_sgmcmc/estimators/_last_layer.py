"""Estimators of modules where only a final linear layer is sampled.

The part before this layer, the body, maps rows to features, which do not change while the layer is
sampled. They are computed once, and the layer is then a linear model of features.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import is_classifier
from torch import nn

from .._arrays import Array
from .._data.kept_rows import KeptRows
from .._data.minibatch import input_rows
from .._draws.storage import allocate, dtype_name
from .._engine.devices import prediction_device
from .._engine.settings import Settings
from .._exceptions import not_allowed, size_not_allowed
from .._modes import usual_modes
from .._table_columns import first_not_finite
from .._validation import is_auto
from ..models.likelihoods.base import Categorical, Likelihood
from ..models.linear.last_layer import HeadModel, LogisticHead, RegressionHead
from ..models.linear.rotated import FeatureCoordinates
from ..models.networks.head import Body, Head, features_of, split
from ..models.networks.module import precision
from ..models.networks.module_checks import Rows
from ..models.networks.module_copies import converted, light_copy
from ..priors.factorised import Normal
from ..priors.learned_scale import LearnedScale
from ._fitting import Task
from ._learned_scale import LINEAR, learned_scale
from ._mixing import SCALE_REMEDY, MustMix
from ._network import NetworkEstimator

if TYPE_CHECKING:
    from .._engine.problem import Problem


class LastLayer(NetworkEstimator):
    """Mixin of estimators that split a module into a body and a head, where they can."""

    prior_center: Any
    augment: Any
    #: the module of the fit, and the names of its sampled parameters in its order
    _module: nn.Module
    _sampled_names: tuple[str, ...]
    #: the part before a final linear layer and this layer, if nothing else is sampled
    _body: Body | None = None
    _head: Head | None = None
    #: coordinates of the features, which later calls of a stream keep
    _coordinates: FeatureCoordinates | None = None
    #: the latest rows and their features, only on copies that predict several blocks
    _features: tuple[Any, Any] | None = None
    #: scale of the prior, if it was estimated
    prior_scale_: float

    def _samplers(self) -> tuple[str, ...]:
        return (*super()._samplers(), "mala", *(() if is_classifier(self) else ("gibbs",)))

    def _split(self, x: Rows) -> None:
        """Find the body and the head, given some rows; features must not be augmented."""
        parts = split(self._module, self._sampled_names, x) if self.augment is None else None
        self._body, self._head = (None, None) if parts is None else parts
        self._coordinates = None
        if hasattr(self, "prior_scale_"):
            del self.prior_scale_

    # the model ------------------------------------------------------------------------------------

    def _model(self, likelihood: Any, n_outputs: int, output_gain: float) -> Any:
        if self._is_linear(likelihood):
            return self._linear_model(likelihood, output_gain)
        return super()._model(likelihood, n_outputs, output_gain)

    def _is_linear(self, likelihood: Likelihood) -> bool:
        """Whether the model is the library's own linear model of features."""
        head, plain_prior = self._head, not self._sparsity and self.prior_center == 0
        if head is None or not plain_prior or self.precision != "full":
            return False
        if isinstance(likelihood, Categorical):
            # of two classes the difference is sampled: its prior is of the same kind if normal
            return head.n_outputs > 2 or type(self._prior()) is Normal
        plain = likelihood.separable and len(likelihood.output_groups) == 1
        return plain and not likelihood.latent_noise

    def _hyperprior(self) -> LearnedScale | None:
        """The hyperprior of the scale of a linear model, or None if the scale is given."""
        # "auto" values are those of linear models, not of networks
        learned = self._learned_scale() is not None
        return learned_scale(self.prior_scale, LINEAR, unasked=True) if learned else None

    @property
    def _estimates_scale(self) -> bool:
        """Whether the scale of the prior is the likeliest one, not one of a posterior."""
        auto = is_auto(self.prior_scale)
        return auto and self._learned_scale() is not None

    def _linear_scale(self, n_features: int, output_gain: float) -> Any:
        """Scale of the prior of a linear model: a number, or the hyperprior."""
        given = self.prior_scale
        if self._estimates_scale:
            return getattr(self, "prior_scale_", 1.0)  # before the first rows, any number
        hyper = self._hyperprior()
        if hyper is not None:
            return hyper
        if isinstance(given, str):
            return output_gain / math.sqrt(n_features)
        if np.size(given) != 1:
            raise not_allowed(
                f"prior_scale={given!r} is not allowed: the network has 1 layer; give one number, "
                "one number per layer, 'fan_in' or 'learned'."
            )
        return float(np.ravel(given)[0])

    def _linear_model(self, likelihood: Likelihood, output_gain: float) -> HeadModel:
        head = self._head
        assert head is not None
        scale = self._linear_scale(head.n_features, output_gain)
        if isinstance(likelihood, Categorical):
            return LogisticHead(head.shapes, self._prior(), scale)
        return RegressionHead(head.shapes, likelihood, self._prior(), scale)

    def _problem(
        self, model: Any, rows: KeptRows, settings: Settings, inputs: Any = None
    ) -> Problem:
        features = self._inputs(rows.x)
        if not isinstance(model, HeadModel):
            return super()._problem(model, rows, settings, features)
        _check_finite(features)
        model = model.for_features(features, rows.weight, self._coordinates)
        self._coordinates = model.coordinates
        problem = super()._problem(model, rows, settings, features)
        hyper = self._hyperprior() if self._estimates_scale else None
        if hyper is None or hasattr(self, "prior_scale_"):  # later calls of a stream keep it
            return problem
        # learned scales are relative to one over the features' typical sd
        unit = FeatureCoordinates.of(features, rows.weight, rotated=False, relative=True).scale
        self.prior_scale_, start = model.estimated(problem.data, hyper, unit)
        model = model.with_scale(self.prior_scale_)
        model.start = start
        return replace(problem, model=model)

    def _must_mix(self, task: Task) -> MustMix:
        if not isinstance(task.model, HeadModel):
            return super()._must_mix(task)
        # chains find one mode, so that the weights themselves agree
        draws = {name: self.posterior_[name] for name in self.posterior_.draws}
        return MustMix(draws, {}, remedies=SCALE_REMEDY)

    # features -------------------------------------------------------------------------------------

    def _rows(self, X: Any) -> Any:
        """X as the module sees it; rows of a dataset are fetched later."""
        return X if hasattr(X, "as_field") else super()._inputs(X)

    def _inputs(self, X: Any) -> Any:
        """X as the network sees it: rows, or their features."""
        if self._features is not None and self._features[0] is X:
            return self._features[1]
        rows = self._rows(X)
        inputs = rows if self._body is None else self._features_of(rows)
        if self._network is not None:
            self._features = X, inputs
        return inputs

    @usual_modes()
    def _features_of(self, rows: Any) -> Any:
        """Features of rows as the module sees them; differentiable if they are a tensor."""
        body, head = self._body, self._head
        assert body is not None and head is not None
        kind = precision(self._module)
        if not isinstance(rows, np.ndarray) and not hasattr(rows, "as_field"):
            return light_copy(body).to(rows.device)(rows.to(kind)).to(rows.dtype)
        folder = None if self.storage is None else self.storage.dir
        products = len(rows) * sum(p.numel() for p in body.parameters())
        device = prediction_device(self.device, products)
        out = allocate((len(rows), head.n_features), dtype_name(kind), folder)
        # a copy: the estimator's own stays on the CPU, for files
        return features_of(light_copy(body).to(device), input_rows(rows, kind, device), out)

    def _export_parts(self, chosen: Array) -> tuple[nn.Module, nn.Module]:
        inputs, network = super()._export_parts(chosen)
        if self._body is not None:
            inputs = nn.Sequential(inputs, converted(light_copy(self._body), "cpu", torch.float32))
        return inputs, network


def _check_finite(features: Array) -> None:
    """Raise ``ValueError`` if the features of some row are not finite."""
    row = first_not_finite(features)
    if row is not None:
        raise size_not_allowed(
            f"X is not allowed: in {features.dtype}, the features of row {row} before the module's "
            "last layer are not finite. Scale X, or give rows that the module maps to finite "
            "numbers."
        )
