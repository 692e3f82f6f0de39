"""A small perceptron's fit."""

from __future__ import annotations

from skbayes_sgmcmc import BayesianMLPClassifier

#: a sampler with minibatches and a fixed prior, in the precision that bounds of rounding want;
#: probabilities are the averages over the draws
SMALL = {
    "sampler": "psgld", "prior_scale": "fan_in", "dtype": "float64", "hidden_layer_sizes": 6,
    "n_chains": 2, "n_draws": 20, "burn_in": 100, "thinning": 2, "calibrate": False,
    "random_state": 0,
}  # fmt: skip


def small(**parameters):
    return BayesianMLPClassifier(**(SMALL | parameters))
