"""Code shared by estimators whose network may have a spike-and-slab prior or be pruned."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, expit
from sklearn.base import clone
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import gen_batches

from .._draws.prediction import BLOCK_NUMBERS
from .._exceptions import not_allowed, warn
from .._validation import check_choice, check_is_fitted, check_real
from ._likelihoods import LikelihoodRegressor
from ._mixing import short_name
from ._network import NetworkEstimator
from ._sense import some_rows
from .mlp import _MLP

if TYPE_CHECKING:
    from .._data.kept_rows import KeptRows
    from ..models.networks.model import NetworkModel
    from ..models.networks.network import Network
    from ..priors.spike_slab import SpikeSlab

Array = NDArray[Any]

#: a mean of delta beyond this quantile of the draws of an exact chain, with none or all of its
#: coefficients in the slab, has run away
RUN_AWAY = 1e-4
#: log likelihood for each feature beyond which predictions depend on features without any doubt
SURE_GAIN = 4.0


class SparseNetwork(NetworkEstimator):
    """Mixin of estimators that allow a spike-and-slab ``prior`` or ``prune``."""

    prune: Any
    temperature: Any
    #: blocks of weights with the spike-and-slab prior, and pruned blocks, in the network's order
    _sparse_blocks: tuple[str, ...]
    _pruned_blocks: tuple[str, ...]

    # parameters -----------------------------------------------------------------------------------

    def _check(self) -> Any:
        settings = super()._check()
        pruning, prior = self._pruning(), self._spike_slab()
        if pruning is not None:
            pruning.check("prune")
        if prior is not None and prior.exact and not self._at_one():
            raise not_allowed(
                f"temperature={self.temperature!r} is not allowed with prior.adaptation='gibbs', "
                "which samples the posterior only at temperature 1: give temperature=1.0, or "
                "prior=SpikeSlab(adaptation='sa')."
            )
        return settings

    def _check_stream(self) -> None:
        super()._check_stream()
        if self.prune is not None:
            raise not_allowed(
                f"prune={self.prune!r} is not allowed in partial_fit: the fraction of zeros grows "
                "towards the end of a run, and a stream has no known end. Give prune=None."
            )

    def _check_prior(self) -> None:
        prior = self._spike_slab()
        if prior is None:
            super()._check_prior()
        else:
            prior.check("prior")

    def _spike_slab(self) -> SpikeSlab | None:
        """The spike-and-slab prior, or None if the prior is another one."""
        from ..priors.spike_slab import SpikeSlab

        named = isinstance(self.prior, str) and self.prior == "spike_slab"
        prior = SpikeSlab() if named else self.prior
        if not isinstance(prior, SpikeSlab):
            return None
        if prior.adaptation == "auto" and not self._at_one():
            return clone(prior).set_params(adaptation="sa")
        return prior

    def _at_one(self) -> bool:
        """Whether the temperature is 1 throughout, which exact conditionals need."""
        from ..schedules import Constant, as_schedule

        temperature = as_schedule("temperature", self.temperature)
        return isinstance(temperature, Constant) and temperature.value == 1.0

    def _prior(self) -> Any:
        from ..priors.factorised import Normal

        return super()._prior() if self._spike_slab() is None else Normal()

    def _pruning(self) -> Any:
        from ..models.networks.pruning import Pruning

        if self.prune is None or isinstance(self.prune, Pruning):
            return self.prune
        return Pruning(check_real("prune", self.prune, low=0.0, high=1.0, closed="left"))

    # the model ------------------------------------------------------------------------------------

    def _model_kind(self, network: Network) -> tuple[type[NetworkModel], dict[str, Any]]:
        from ..models.networks.blocks import find_blocks
        from ..models.networks.pruned_model import PrunedNetworkModel
        from ..models.networks.spike_slab_model import SparseNetworkModel

        prior, pruning = self._spike_slab(), self._pruning()
        if prior is None and pruning is None:
            return super()._model_kind(network)
        self._sparse_blocks = self._pruned_blocks = ()
        if prior is not None:
            self._sparse_blocks = find_blocks("prior.layers", prior.layers, network)
        if pruning is not None:
            theirs = isinstance(pruning.layers, str) and pruning.layers == "auto" and prior
            layers = self._sparse_blocks if theirs else pruning.layers
            self._pruned_blocks = find_blocks("prune.layers", layers, network)
        options: dict[str, Any] = {"pruning": pruning, "pruned_blocks": self._pruned_blocks}
        if prior is None:
            return PrunedNetworkModel, options
        options |= {"spike_slab": prior, "sparse_blocks": self._sparse_blocks}
        return SparseNetworkModel, options

    def _set_attributes(self) -> None:
        super()._set_attributes()
        if self._spike_slab() is None and self._pruning() is None:
            return
        posterior = self.posterior_
        blocks = sorted({*self._sparse_blocks, *self._pruned_blocks})
        zeros = [np.mean(posterior[name] == 0.0) for name in blocks]
        sizes = [math.prod(posterior.shapes[name]) for name in blocks]
        pruned = float(np.dot(zeros, sizes))
        network = self._make_network(self._n_outputs)
        total = sum(math.prod(shape) for shape in network.shapes.values())
        self.sparsity_ = pruned / sum(sizes)
        self.n_effective_parameters_ = total - pruned
        if self._spike_slab() is not None:
            self.sigma_ = float(posterior.mean("sigma"))
            weights = posterior.pooled_weights()
            delta = expit(posterior.pooled("logit_delta").astype(np.float64))
            self.delta_ = np.average(delta, axis=0, weights=weights)
            self._check_delta()

    def _check_delta(self) -> None:
        """Warn if delta is where no draw of it would be, whatever is in the slab."""
        prior = self._spike_slab()
        if prior is None or not prior.learn_inclusion or prior.adaptation is None:
            return
        for name, delta in zip(self._sparse_blocks, self.delta_, strict=True):
            p = math.prod(self.posterior_.shapes[name])
            a, b = prior.beta_prior(p)
            if betaincinv(a, b + p, RUN_AWAY) <= delta <= 1.0 - betaincinv(b, a + p, RUN_AWAY):
                continue
            slab, remedy = ("no", "a") if delta < 0.5 else ("every", "b")
            warn(
                f"delta of {name!r} has run away to {delta:.2g} with {slab} weight in the slab, "
                f"and adaptation={prior.adaptation!r} cannot bring it back, whatever the data say. "
                "Give prior=SpikeSlab(adaptation='gibbs'), or at temperatures other than 1 a "
                f"larger {remedy} in inclusion_prior=(a, b), such as (2.0, 2.0).",
                "nothing-is-selected",
            )

    def compress(self) -> Any:
        """Return a copy whose draws store only the nonzero weights.

        The copy makes identical predictions. Its file is smaller by about the fraction of zeros,
        apart from one bit for every weight. Of the latent variables, only sigma is kept.
        ``warm_start`` and ``partial_fit`` start from scratch.

        Returns
        -------
        estimator
            Fitted estimator of the same class.
        """
        from .._draws.compression import CompressedSamples

        check_is_fitted(self, "posterior_")
        small = copy.copy(self)
        small._chain_state = None
        if not isinstance(self.posterior_, CompressedSamples):
            dropped = self._latent_names()
            names = [name for name in self.posterior_.draws if name not in dropped]
            small.posterior_ = CompressedSamples(self.posterior_, names)
        return small

    def _latent_names(self) -> set[str]:
        """Names of latent variables whose draws predictions do not need."""
        if self._spike_slab() is None:
            return set()
        return {"logit_delta", *(f"rho_{name}" for name in self._sparse_blocks)}


class SparseNetworkRegressor(SparseNetwork, LikelihoodRegressor):
    """Mixin of sparse regressors. With a spike-and-slab prior, the noise is the prior's sigma."""

    def _check(self) -> Any:
        if self._spike_slab() is not None and self.likelihood != "normal":
            raise not_allowed(
                f"likelihood={self.likelihood!r} is not allowed with a spike-and-slab prior: give "
                "likelihood='normal', or another prior."
            )
        if self._spike_slab() is not None and self.noise != "infer":
            raise not_allowed(
                f"noise={self.noise!r} is not allowed with a spike-and-slab prior, whose sigma is "
                "also the standard deviation of the noise: give noise='infer' and, for a fixed "
                "sigma, prior=SpikeSlab(sigma=..., learn_sigma=False)."
            )
        return super()._check()

    def _likelihood(self) -> Any:
        from ..models.likelihoods import LatentGaussian

        if self._spike_slab() is None:
            return super()._likelihood()
        return LatentGaussian(self._n_targets)


class SparsePerceptron(SelectorMixin, SparseNetwork, _MLP):
    """Mixin of the sparse estimators: feature selectors that are linear or have hidden layers."""

    threshold: float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check(self) -> Any:
        check_real("threshold", self.threshold, low=0.0, high=1.0, closed="left")
        return super()._check()

    def _check_prior(self) -> None:
        prior = self._spike_slab()
        if prior is None:
            check_choice("prior", self.prior, ("spike_slab",))
        super()._check_prior()

    def _get_support_mask(self) -> Array:
        check_is_fitted(self, "posterior_")
        if not hasattr(self, "inclusion_probability_"):
            raise not_allowed(
                f"prior.layers={self.prior.layers!r} is not allowed for the selection of features: "
                "the first layer, 'weight_1', has to be among them."
            )
        return np.asarray(self.inclusion_probability_ > self.threshold)

    def _set_attributes(self) -> None:
        super()._set_attributes()
        if "weight_1" in self._sparse_blocks:
            self.inclusion_probability_ = self._inclusion()
        if len(self._sizes(1)) == 2:
            self._set_coefficients()

    def _inclusion(self) -> Array:
        """Posterior mean of the largest rho among the weights of each feature in the first layer.

        The largest of each draw: the order of hidden units is arbitrary, and every chain has its
        own, so that means over chains of one weight belong to no unit.
        """
        posterior = self.posterior_
        weights = posterior.spaced()[1]
        n_features, n_units = posterior.shapes["rho_weight_1"]
        inclusion = np.zeros(n_features)
        for some in gen_batches(len(weights), -(-BLOCK_NUMBERS // (n_features * n_units))):
            inclusion += weights[some] @ posterior.select("rho_weight_1", some).max(axis=2)
        return np.minimum(inclusion, 1.0)  # sums of weights are rounded

    def _check_sense(self, rows: KeptRows) -> None:
        super()._check_sense(rows)
        if "weight_1" in self._sparse_blocks and self.inclusion_probability_.max() < 0.5:
            self._check_spike(rows)

    def _check_spike(self, rows: KeptRows) -> None:
        """Warn if the spikes hold effects: predictions depend on features that are all left out."""
        prior, weight = self._spike_slab(), rows.weights()
        some = rows.some(some_rows(weight))
        found, given = self._fitted(some.x, some.target)
        with np.errstate(all="ignore"):  # constant targets, and squares that overflow
            rest = np.sum((given - found) ** 2) / np.sum((given - given.mean(axis=0)) ** 2)
            gain = -0.5 * weight.sum() * np.log(rest)
        if prior is None or not gain > SURE_GAIN * self.n_features_in_:
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
        """Set ``coef_`` and ``intercept_`` of a linear model, in the units of X and y."""
        posterior = self.posterior_
        y_scale, y_center = self._target_units()
        coef = posterior.mean("weight_1") / np.reshape(self._x_scale, (-1, 1)) * y_scale
        moved = np.broadcast_to(self._x_center, (len(coef),)) @ coef
        self.coef_ = coef.T
        self.intercept_ = posterior.mean("bias_1") * y_scale + y_center - moved

    def _target_units(self) -> tuple[Any, Any]:
        """Scale and centre of the quantities that the network's outputs predict."""
        return 1.0, 0.0
