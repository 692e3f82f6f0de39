"""Code that multilayer perceptrons share: their network, and the relevance of its inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from .._data.scaling import scale_of_effects
from .._draws.posterior_samples import PosteriorSamples
from .._validation import check_sizes
from ._network import NetworkEstimator

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(kw_only=True, eq=False, repr=False)
class Perceptron(NetworkEstimator):
    """Mixin of estimators with ``hidden_layer_sizes`` and ``activation``."""

    activation: str = "relu"
    categorical_features: ArrayLike | Literal["from_dtype"] | None = "from_dtype"
    standardize: bool = True
    init: ArrayLike | Literal["auto", "random", "map"] = "auto"

    hidden_layer_sizes: Any = field(init=False)
    _read_with_draws: ClassVar[tuple[str, ...]] = ("hidden_layer_sizes", "activation")
    #: whether rows are dense: features of one unit then share a scale, and ``dtype="auto"`` means
    #: float32 even for few parameters
    _dense = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _make_network(self, n_outputs: int) -> Any:
        from ..models.networks.mlp import MLP

        parts = None if self._encoding.plain else self._columns.parts()[0]
        return MLP(
            self._sizes(n_outputs), self.activation, single_precision=self._dense, parts=parts
        )

    def _architecture(self, n_outputs: int) -> Any:
        return Perceptron._make_network(self, n_outputs).module  # one output a class in any case

    def _fit_inputs(self, X: Any, weight: Any) -> None:
        super()._fit_inputs(X, weight)
        if not self.standardize:
            return
        numbers = self._columns.numbers
        # divided by their own standard deviation, indicators of rare categories would be huge
        scale = np.ones_like(self._x_scale)
        if numbers.any():
            some = X if numbers.all() else X[:, numbers]
            moments = self._x_center[numbers], self._x_scale[numbers]
            scale[numbers] = scale_of_effects(some, weight, moments, by_values=self._dense)
        self._x_scale = scale

    def _set_attributes(self) -> None:
        super()._set_attributes()
        learned = self._learned_scale()
        if learned is not None and learned.inputs:
            self.relevance_ = self._relevance().mean("relevance")

    def _relevance(self) -> PosteriorSamples:
        """Draws of the inputs' scales, divided by their sum, as "relevance"."""
        posterior = self.posterior_
        scales = posterior["scale_weight_1"].astype(np.float64)
        draws = {"relevance": scales / scales.sum(2, keepdims=True)}
        return PosteriorSamples(draws, posterior.weights)

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        units = [*range(self.posterior_.shapes["weight_1"][1])]
        axes: dict[str, dict[str, list[Any]]] = {
            "weight_1": {"feature": self._columns.feature_labels, "unit": units}
        }
        if hasattr(self, "relevance_"):  # inputs have scales of their own
            of = "feature" if self._encoding.plain else "column"
            axes["scale_weight_1"] = {of: self._columns.parts()[1]}
        return axes

    def _sizes(self, n_outputs: int) -> tuple[int, ...]:
        part, names = self._columns.parts()
        return len(part), *self._hidden_sizes(len(names)), n_outputs

    def _hidden_sizes(self, n_features: int) -> tuple[int, ...]:
        return check_sizes("hidden_layer_sizes", self.hidden_layer_sizes)
