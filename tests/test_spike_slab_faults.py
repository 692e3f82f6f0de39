"""Spike-and-slab estimators: what is refused, and odd data."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases

from skbayes_sgmcmc import (
    BayesianMLPRegressor,
    BayesianModuleRegressor,
    SparseBayesianRegressor,
    SpikeSlab,
)
from skbayes_sgmcmc.schedules import Exponential, Polynomial


def wide(seed=0, n=60, p=200):
    """More features than rows, of which three matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, 3.0 * X[:, 0] - 2.0 * X[:, 5] + X[:, 9] + 0.5 * rng.standard_normal(n)


class Small(torch.nn.Sequential):
    def __init__(self, n_features, n_outputs):
        super().__init__(
            torch.nn.Linear(n_features, 5), torch.nn.Tanh(), torch.nn.Linear(5, n_outputs)
        )


# what is refused, and odd data --------------------------------------------------------------------

GIBBS = SpikeSlab(adaptation="gibbs")


@cases(
    "parameters, words",
    [
        ({"prior": SpikeSlab(spike_scale=0.0)}, "prior.spike_scale=0.0"),
        ({"prior": SpikeSlab(slab_variance=-1.0)}, "prior.slab_variance=-1.0"),
        ({"prior": SpikeSlab(sigma=0.0)}, "prior.sigma=0.0"),
        ({"prior": SpikeSlab(inclusion=1.0)}, "prior.inclusion=1.0"),
        ({"prior": SpikeSlab(inclusion_prior=(1.0, 0.0))}, r"prior.inclusion_prior\[1\]=0.0"),
        # its draws were infinite
        ({"prior": SpikeSlab(inclusion_prior=(1.0, 1e-300))}, r"prior.inclusion_prior\[1\]=1e-300"),
        ({"prior": SpikeSlab(sigma_prior=3.0)}, "prior.sigma_prior=3.0"),
        ({"prior": "normal"}, "prior='normal'"),
        ({"prior": SpikeSlab(adaptation="vb")}, "prior.adaptation='vb'"),
        ({"prior": SpikeSlab(gain=1.5)}, "prior.gain=1.5"),
        ({"prior": SpikeSlab(gain=Polynomial(a=10.0, b=1.0, gamma=0.7))}, "largest value is 10"),
        ({"prior": SpikeSlab(layers=["weight_9"])}, "prior.layers=.*'weight_9' is given twice, or"),
        ({"prior": SpikeSlab(layers=[])}, "prior.layers="),
        ({"prior": SpikeSlab(layers="first")}, "prior.layers='first'"),
        ({"prior": SpikeSlab(layers=[1])}, "prior.layers="),
        ({"prior": SpikeSlab(layers=["weight_1", "weight_1"])}, "twice"),
        ({"threshold": 1.0}, "threshold=1.0"),
        ({"sampler": "mala"}, "latent variables change"),
        ({"prior": GIBBS, "temperature": 0.5}, "temperature=0.5 .*prior.adaptation='gibbs'"),
        ({"prior": GIBBS, "temperature": Exponential(1.0, 0.1)}, "temperature="),
    ],
)
def test_bad_parameters_are_named_with_a_remedy(parameters, words):
    X, y = wide(n=20, p=10)
    parameters = {"step_size": 0.01} | parameters
    with pytest.raises(ValueError, match=words):
        SparseBayesianRegressor(n_draws=5, burn_in=5, **parameters).fit(X, y)


def test_other_noise_than_sigma_or_a_number_is_refused_and_the_prior_elsewhere():
    X, y = wide(n=20, p=10)
    with pytest.raises(ValueError, match=r"noise='heteroscedastic' .*noise='infer'.*or a number"):
        BayesianModuleRegressor(Small, prior="spike_slab", noise="heteroscedastic").fit(X, y)
    with pytest.raises(ValueError, match="prior=SpikeSlab"):
        BayesianMLPRegressor(prior=SpikeSlab()).fit(X, y)


@cases(
    "change",
    [
        lambda X, y: (X[:5], y[:5]),  # fewer rows than columns
        lambda X, y: (X[:1], y[:1]),
        lambda X, y: (np.hstack([X, np.ones((len(X), 1))]), y),  # a constant column
        lambda X, y: (np.hstack([X, X]), y),  # columns that come twice
        lambda X, y: (X, np.full(len(y), 3.0)),
        lambda X, y: (1e8 * X, 1e-8 * y),
    ],
)
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("adaptation", ["sa", "gibbs"])
def test_odd_data_have_finite_posteriors(change, adaptation):
    X, y = change(*wide(n=30, p=10))
    # chains take longest to the only value that targets have
    run = {"n_chains": 2, "n_draws": 20, "burn_in": 500 if len(set(y)) == 1 else 150,
           "thinning": 1, "random_state": 0}  # fmt: skip
    reg = SparseBayesianRegressor(prior=SpikeSlab(adaptation=adaptation), **run).fit(X, y)
    mean, sd = reg.predict(X, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(sd).all() and np.isfinite(reg.coef_).all()
    assert np.all((reg.inclusion_probability_ >= 0.0) & (reg.inclusion_probability_ <= 1.0))
    if len(y) > 1 and len(set(y)) == 1:
        np.testing.assert_allclose(mean, y, atol=1.0)


def test_sparse_rows_stay_sparse():
    """400 rows of 30,000 columns would take 96 MB, and two draws of two blocks take a megabyte."""
    X = sp.random(400, 30_000, 0.001, format="csr", random_state=0)
    reg = SparseBayesianRegressor(n_chains=1, n_draws=2, burn_in=2, thinning=1, random_state=0)
    tracemalloc.start()
    reg.fit(X, np.arange(400.0) % 7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
