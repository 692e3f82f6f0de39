"""Code that the sparse estimators share: features that are selected, coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from .._arrays import Array
from .._draws.posterior_samples import PosteriorSamples
from .._exceptions import not_allowed, warn
from .._limits import LIMITS, slices
from .._sklearn import SelectorMixin
from .._validation import check_is_fitted
from ._mixing import short_name
from ._parameters import Check, check_spikes
from ._perceptron import Perceptron
from ._sense import some_rows
from ._sparsity import compress

if TYPE_CHECKING:
    from .._data.kept_rows import KeptRows
    from ..models.networks.pruning import Pruning
    from ..priors.spike_slab import SpikeSlab
    from ..samplers import Sampler


#: log likelihood for each feature beyond which predictions depend on features without any doubt
SURE_GAIN = 4.0


@dataclass(kw_only=True, eq=False, repr=False)
class SparsePerceptron(SelectorMixin, Perceptron):
    """Mixin of the sparse estimators: feature selectors that are linear or have hidden layers."""

    prior: SpikeSlab | Literal["spike_slab"] = "spike_slab"
    prior_scale: float | Sequence[float] | Literal["fan_in"] = "fan_in"
    prune: float | Pruning | None = None
    threshold: float = 0.5
    sampler: str | Sampler = "psgld"

    sigma_: float = field(init=False)
    _dense = False
    _checks: ClassVar[dict[str, Check]] = {"prior": check_spikes}

    compress = compress

    def _fit_inputs(self, X: Any, weight: Any) -> None:
        super()._fit_inputs(X, weight)
        if sp.issparse(X):  # zeros stay zeros
            self._x_center = np.zeros(1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = not self._encoding.plain  # ``transform`` selects given columns
        return tags

    def _get_support_mask(self) -> Array:
        check_is_fitted(self, "posterior_")
        if not hasattr(self, "inclusion_probability_"):
            prior: Any = self.prior  # an object, since "spike_slab" means all layers
            raise not_allowed(
                f"prior.layers={prior.layers!r} is not allowed for the selection of features: "
                "the first layer, 'weight_1', has to be among them."
            )
        return np.asarray(self.inclusion_probability_ > self.threshold)

    def _set_attributes(self) -> None:
        super()._set_attributes()
        if "weight_1" in self._sparse_blocks:
            self.inclusion_probability_ = self._inclusion()
        if self._is_linear():
            self._set_coefficients()

    def _is_linear(self) -> bool:
        return len(self._sizes(1)) == 2

    def _inclusion(self) -> Array:
        """Posterior mean of the largest rho among the weights of each column in the first layer.

        The largest of each draw: the order of hidden units is arbitrary, and every chain has its
        own, so that means over chains of one weight belong to no unit.
        """
        posterior = self.posterior_
        weights = posterior.spaced()[1]
        n_features, n_units = posterior.shapes["rho_weight_1"]
        part = self._columns.parts()[0]
        first = np.flatnonzero(np.diff(part, prepend=-1))
        inclusion = np.zeros(len(first))
        at_once = -(-LIMITS.block_numbers // (n_features * n_units))
        for some in slices(len(weights), at_once):
            rho = posterior.select("rho_weight_1", some).max(axis=2)
            inclusion += weights[some] @ np.maximum.reduceat(rho, first, axis=1)
        return np.minimum(inclusion, 1.0)  # sums of weights are rounded

    def _check_sense(self, rows: KeptRows) -> None:
        super()._check_sense(rows)
        if "weight_1" in self._sparse_blocks and self.inclusion_probability_.max() < 0.5:
            self._check_spike(rows)

    def _check_spike(self, rows: KeptRows) -> None:
        """Warn if the spikes hold effects: predictions depend on features that are all left out."""
        prior, weight = self._sparsity.prior, rows.weights()
        some = rows.some(some_rows(weight))
        found, given = self._fitted(some.x, some.target)
        with np.errstate(all="ignore"):  # constant targets, and squares that overflow
            rest = np.sum((given - found) ** 2) / np.sum((given - given.mean(axis=0)) ** 2)
            gain = -0.5 * weight.sum() * np.log(rest)
        if prior is None or not gain > SURE_GAIN * self._columns.width:
            return
        fixed = ", learn_sigma=False" if prior.learn_sigma is True else ""
        warn(
            f"{short_name(self)} leaves out every feature, and yet its predictions explain "
            f"{1.0 - rest:.0%} of the variance of the training targets: the spikes are wide enough "
            f"to hold all effects (sigma {self.sigma_:.3g}). Give a smaller spike_scale, such as "
            f"prior=SpikeSlab(spike_scale=0.02{fixed}).",
            "nothing-is-selected",
        )

    def _fitted(self, X: Any, target: Array) -> tuple[Array, Array]:
        """Predictions of training rows and their targets, (rows, outputs)."""
        raise NotImplementedError

    def _set_coefficients(self) -> None:
        """Set ``coef_`` and ``intercept_`` of a linear model."""
        posterior = self.posterior_
        found: Any = self._coefficients(posterior.mean("weight_1"), posterior.mean("bias_1"))
        self.coef_, self.intercept_ = found

    def _coefficients(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        """Coefficients (..., outputs, features) and intercepts, in the units of X and y."""
        y_scale, y_center = self._target_units()
        coef = np.asarray(weight / np.reshape(self._x_scale, (-1, 1)) * y_scale)
        moved = np.broadcast_to(self._x_center, coef.shape[-2:-1]) @ coef
        return coef.swapaxes(-1, -2), bias * y_scale + y_center - moved

    def _in_units(self) -> PosteriorSamples:
        posterior = super()._in_units()
        if not self._is_linear():
            return posterior
        draws = dict(posterior.draws)
        coef, intercept = self._coefficients(draws.pop("weight_1"), draws.pop("bias_1"))
        return PosteriorSamples({"coef": coef, "intercept": intercept, **draws}, posterior.weights)

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        axes = super()._axes()
        return axes | {"rho_weight_1": axes["weight_1"]}

    def _labels(self) -> dict[str, list[str]]:
        labels, features = super()._labels(), self._columns.feature_labels
        if self._is_linear():
            one = self.posterior_.shapes["weight_1"][1] == 1
            given = [f"{each.removesuffix(' in ')}: " for each in self._output_labels()]
            outputs = [""] if one else given
            labels["coef"] = [of + name for of in outputs for name in features]
            labels["intercept"] = [of + "intercept" for of in outputs]
            slabs = [of + name for name in features for of in outputs]
            labels["rho_weight_1"] = [f"rho_weight_1[{name}]" for name in slabs]
        return labels

    def _target_units(self) -> tuple[Any, Any]:
        """Scale and centre of the quantities that the network's outputs predict."""
        return 1.0, 0.0
