"""Perceptrons with a spike-and-slab prior: which features they use, and units that are off."""

from __future__ import annotations

import numpy as np
import pytest

from skbayes_sgmcmc import SparseBayesianRegressor, SpikeSlab
from skbayes_sgmcmc.schedules import Polynomial


def test_inclusion_is_that_of_some_unit_whatever_the_order_of_units(limits):
    """The largest rho of each draw, averaged with the weights of the draws, block by block."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    reg = SparseBayesianRegressor(
        hidden_layer_sizes=4, n_chains=2, n_draws=6, burn_in=30, thinning=1, random_state=0,
        step_size=Polynomial(a=0.002, b=10.0, gamma=0.5),
    ).fit(X, y)  # fmt: skip
    posterior = reg.posterior_
    rho = posterior["rho_weight_1"]
    assert rho.shape == (2, 6, 3, 4)
    expected = np.average(rho.max(axis=3).mean(axis=0), axis=0, weights=posterior.weights)
    np.testing.assert_allclose(reg.inclusion_probability_, expected, rtol=1e-12)
    posterior.draws["rho_weight_1"][1] = rho[1][:, :, [2, 0, 3, 1]]
    limits(block_numbers=5 * 12)
    reg._set_attributes()
    np.testing.assert_allclose(reg.inclusion_probability_, expected, rtol=1e-12)


def waves(n=400):
    """Rows of which two of ten features matter, and targets with a noise of 0.1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 10))
    return X, np.sin(2.0 * X[:, 1]) + np.abs(X[:, 4]) + 0.1 * rng.standard_normal(n)


def network(**settings):
    return SparseBayesianRegressor(
        hidden_layer_sizes=20, activation="tanh", random_state=0, **settings
    )


@pytest.mark.statistical
@pytest.mark.slow
def test_hidden_layers_find_the_features_of_a_nonlinear_function():
    """Each chain uses both, in units of its own. Others are left out by longer runs only."""
    X, y = waves()
    reg = network(n_chains=2, burn_in=6000, n_draws=50, thinning=20).fit(X, y)
    assert np.all(reg.inclusion_probability_[[1, 4]] > 0.9)
    assert reg.score(X, y) > 0.8 and not hasattr(reg, "coef_")


@pytest.mark.statistical
@pytest.mark.slow
def test_the_default_run_leaves_out_other_features():
    """Their weights start in the slab, and chains need some 20,000 steps to take them out.

    Of 42 chains, four kept one or two of the eight others to the end, so that four chains are
    expected to keep 0.5, and more than three in 1 fit of 500. After a burn-in of 10,000 steps, all
    of eight chains kept some: 6.5 for four chains.
    """
    X, y = waves()
    reg = network().fit(X, y)
    kept = reg.posterior_["rho_weight_1"].max(axis=3).mean(axis=1) > 0.5
    assert kept[:, [1, 4]].all() and kept.sum() <= 4 * 2 + 3
    assert reg.score(X, y) > 0.9


def test_a_selector_needs_its_first_layer():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 10)), rng.standard_normal(30)
    run = {"n_draws": 5, "burn_in": 5, "thinning": 1, "random_state": 0}
    prior = SpikeSlab(layers=["weight_2"])
    reg = SparseBayesianRegressor(hidden_layer_sizes=3, prior=prior, **run).fit(X, y)
    with pytest.raises(ValueError, match="'weight_1', has to be among them"):
        reg.get_support()


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_units_that_are_off_do_not_make_chains_diverge():
    # their likelihood gradients are zero, so that nothing but the prior bounds pSGLD's steps there:
    # without a curvature of the spike, a chain had predictions of 1e28 here
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (300, 6)).astype(float)
    y = np.exp(2.0 * X[:, 0]) + X[:, 1]
    reg = SparseBayesianRegressor(hidden_layer_sizes=30, burn_in=3000, n_draws=50, thinning=20,
                                  random_state=0).fit(X, y)  # fmt: skip
    assert reg.n_chains_ == 4
    assert reg.score(X, y) > 0.95
