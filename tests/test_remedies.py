"""What warnings advise is allowed, and helps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from _links import messages

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.estimators._sense import check_run


def test_what_is_advised_for_topics_helps():
    """Not another sampler, which Gibbs sampling ignores: 5 topics of 50 words, 100 documents."""
    rng = np.random.default_rng(0)
    topics, theta = rng.dirichlet(np.full(50, 0.1), 5), rng.dirichlet(np.full(5, 0.2), 100)
    X = np.stack([rng.multinomial(50, each @ topics) for each in theta])
    run = {"n_chains": 4, "n_draws": 20, "burn_in": 50, "thinning": 1, "random_state": 0}
    normal = {"parametrization": "expanded_natural", "prior": "normal"}
    lda = sk.LatentDirichletAllocation(5, **run)
    (text,) = messages(lambda: lda.fit(X))
    assert "Give a larger thinning, or algorithm='gibbs'." in text
    assert not messages(lambda: lda.set_params(algorithm="gibbs").fit(X))
    (text,) = messages(lambda: lda.set_params(burn_in=2).fit(X))
    assert "Give a larger thinning, or a longer burn_in." in text
    text, *_ = messages(lambda: lda.set_params(algorithm="sgmcmc", **normal).fit(X))
    assert "gibbs" not in text  # which takes no such prior


def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, X[:, 0] + 0.3 * rng.standard_normal(60)


def test_longer_chains_are_advised_where_they_do_not_agree():
    """More draws were advised, too, which networks make of as many steps as before."""
    run = {"sampler": "sghmc", "init": "random", "burn_in": 10, "n_draws": 40, "random_state": 0}
    net = sk.BayesianMLPRegressor(thinning=1, **run)
    text, *_ = messages(lambda: net.fit(*rows()))
    assert "not mixed" in text and "Give a larger thinning, or another sampler." in text
    assert not any(
        "not mixed" in text for text in messages(lambda: net.set_params(thinning=60).fit(*rows()))
    )


def test_more_draws_are_advised_where_they_are_few_but_independent():
    few = sk.BayesianGLMRegressor(n_draws=10, thinning=20, random_state=0)
    (text,) = messages(lambda: few.fit(*rows()))
    assert "Give more draws, or another sampler." in text
    assert not messages(lambda: few.set_params(n_draws=400).fit(*rows()))


def test_no_larger_minibatch_is_advised_where_steps_take_all_rows():
    run = SimpleNamespace(
        statistics={"kinetic_temperature": np.full(2, 9.0)},
        target=SimpleNamespace(model=SimpleNamespace(n_parameters=100)),
    )
    estimator = sk.BayesianGLMRegressor()
    for full in (True, False):
        estimator._takes_all_rows = full
        (text,) = messages(lambda: check_run(estimator, run))
        assert ("larger batch_size" in text) == ("minibatches too small" in text) == (not full)


def test_the_advised_step_size_suits_the_sampler():
    """Without a metric, "auto" is refused: the advice has a sampler, and works."""
    X = np.random.default_rng(0).laplace(size=(500, 3))
    run = {"n_chains": 2, "n_draws": 20, "burn_in": 200, "thinning": 1, "random_state": 0}
    ica = sk.BayesianICA(sampler="sgld", step_size=1e9, **run)
    with pytest.raises(sk.SamplingError, match="or give sampler='rsgld' with step_size='auto'"):
        ica.fit(X)
    ica.set_params(sampler="rsgld", step_size="auto").fit(X)
    assert ica._automatic_step == "step_size='auto'"
