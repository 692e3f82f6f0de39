"""The parameters ``prior`` and ``prune`` of networks: spikes and slabs, and pruned weights."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, expit
from sklearn.base import clone

from .._exceptions import not_allowed, warn
from .._validation import check_is_fitted, check_real, is_auto
from ..schedules import number_if_constant

if TYPE_CHECKING:
    from ..models.networks.model import NetworkModel
    from ..models.networks.network import Network
    from ..models.networks.pruning import Pruning
    from ..priors.spike_slab import SpikeSlab

#: a mean of delta beyond this quantile of the draws of an exact chain, with none or all of its
#: coefficients in the slab, has run away
RUN_AWAY = 1e-4


@dataclass(frozen=True)
class Sparsity:
    """What sets weights of a network to zero; of most networks nothing does."""

    prior: SpikeSlab | None
    pruning: Pruning | None

    @classmethod
    def of(cls, prior: Any, prune: Any, temperature: Any) -> Sparsity:
        """What parameters of an estimator say, which may not be checked yet."""
        from ..models.networks.pruning import Pruning
        from ..priors.spike_slab import SpikeSlab

        if prune is not None and not isinstance(prune, Pruning):
            prune = Pruning(check_real("prune", prune, low=0.0, high=1.0, closed="left"))
        prior = SpikeSlab() if isinstance(prior, str) and prior == "spike_slab" else prior
        if not isinstance(prior, SpikeSlab):
            return cls(None, prune)
        if prior.adaptation == "auto" and number_if_constant(temperature) != 1.0:
            prior = clone(prior).set_params(adaptation="sa")
        return cls(prior, prune)

    def __bool__(self) -> bool:
        return self.prior is not None or self.pruning is not None

    def check(self, temperature: Any) -> None:
        """Raise ``ValueError`` if the pruning is not allowed, or the prior at this temperature."""
        if self.pruning is not None:
            self.pruning.check("prune")
        exact = self.prior is not None and self.prior.exact
        if exact and number_if_constant(temperature) != 1.0:
            raise not_allowed(
                f"temperature={temperature!r} is not allowed with prior.adaptation='gibbs', which "
                "samples the posterior only at temperature 1: give temperature=1.0, or "
                "prior=SpikeSlab(adaptation='sa')."
            )

    def blocks(self, network: Network) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Blocks of weights with the prior, and pruned blocks, in the network's order."""
        from ..models.networks.blocks import find_blocks

        sparse: tuple[str, ...] = ()
        pruned: tuple[str, ...] = ()
        if self.prior is not None:
            sparse = find_blocks("prior.layers", self.prior.layers, network)
        if self.pruning is not None:
            layers = self.pruning.layers
            theirs = is_auto(layers) and self.prior
            pruned = find_blocks("prune.layers", sparse if theirs else layers, network)
        return sparse, pruned

    def model_kind(
        self, sparse: tuple[str, ...], pruned: tuple[str, ...]
    ) -> tuple[type[NetworkModel], dict[str, Any]]:
        """Class of the model with these blocks, and its options."""
        from ..models.networks.pruned_model import PrunedNetworkModel
        from ..models.networks.spike_slab_model import SparseNetworkModel

        options: dict[str, Any] = {"pruning": self.pruning, "pruned_blocks": pruned}
        if self.prior is None:
            return PrunedNetworkModel, options
        return SparseNetworkModel, options | {"spike_slab": self.prior, "sparse_blocks": sparse}


def set_zeros(estimator: Any) -> None:
    """Set the attributes of a fit that has zeros."""
    posterior = estimator.posterior_
    blocks = sorted({*estimator._sparse_blocks, *estimator._pruned_blocks})
    zeros = [np.mean(posterior[name] == 0.0) for name in blocks]
    sizes = [math.prod(posterior.shapes[name]) for name in blocks]
    pruned = float(np.dot(zeros, sizes))
    network = estimator._make_network(estimator._n_outputs)
    total = sum(math.prod(shape) for shape in network.shapes.values())
    estimator.sparsity_ = pruned / sum(sizes)
    estimator.n_effective_parameters_ = total - pruned
    if estimator._sparsity.prior is not None:
        estimator.sigma_ = float(posterior.mean("sigma"))
        weights = posterior.pooled_weights()
        delta = expit(posterior.pooled("logit_delta").astype(np.float64))
        estimator.delta_ = np.average(delta, axis=0, weights=weights)
        _check_delta(estimator)


def _check_delta(estimator: Any) -> None:
    """Warn if delta is where no draw of it would be, whatever is in the slab."""
    prior = estimator._sparsity.prior
    if not prior.learn_inclusion or prior.adaptation is None:
        return
    for name, delta in zip(estimator._sparse_blocks, estimator.delta_, strict=True):
        p = math.prod(estimator.posterior_.shapes[name])
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


def compress(self: Any) -> Any:
    """Return a copy with draws that store only the nonzero weights.

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
        dropped = set()  # latent variables, which predictions do not need
        if self._sparsity.prior is not None:
            dropped = {"logit_delta", *(f"rho_{name}" for name in self._sparse_blocks)}
        names = [name for name in self.posterior_.draws if name not in dropped]
        small.posterior_ = CompressedSamples(self.posterior_, names)
    return small
