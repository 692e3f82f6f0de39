"""Draws that left the posterior for a while are named, although medians and R-hat are in order."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _links import messages
from sklearn.datasets import load_iris

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc._engine.strays import stray_draws
from skbayes_sgmcmc._engine.target import Target


def sine(n=200):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, n)
    return x[:, None], np.sin(2.0 * x) + 0.1 * rng.standard_normal(n)


def test_noise_that_runs_away_for_a_while():
    """In a twentieth of the draws, sigma is up to 500 sds of y; medians are 0.2 to 0.4.

    R-hat and the quartiles of the draws said nothing, and predictive sds were 11 to 70 sds of y.
    Rounding decides how far the noise of a seed runs, so the largest of three counts. With a
    tenth of the step, no sd is that large, and not both fits have a chain that leaves for a moment.
    """
    run = {"sampler": "sghmc", "burn_in": 1000, "thinning": 5, "n_chains": 2, "n_draws": 400}
    X, y = sine()
    spread = []
    for seed in (1, 2, 3):
        reg = BayesianMLPRegressor(step_size=0.005, random_state=seed, **run)
        texts = messages(lambda reg=reg: reg.fit(X, y))
        assert any("chains left the posterior" in text for text in texts)
        spread.append(reg.predict(X, return_std=True)[1].mean())
    assert max(spread) > y.std()
    strays = 0
    for seed in (1, 2):
        longer = run | {"burn_in": 3000}  # shorter steps need more of them
        shorter = BayesianMLPRegressor(step_size=0.0005, random_state=seed, **longer)
        texts = messages(lambda shorter=shorter: shorter.fit(X, y))
        strays += any("chains left the posterior" in text for text in texts)
        assert shorter.predict(X, return_std=True)[1].mean() < 0.3 * y.std()
    assert strays <= 1


def normal(n_rows, d):
    """A target whose parameters have standard normal likelihoods, each in n_rows / d rows."""
    share = d / n_rows
    model = SimpleNamespace(
        n_parameters=d,
        log_lik=lambda theta, batch: -0.5 * share * theta[:, batch.fields["of"]] ** 2,
    )
    of = torch.from_numpy(np.random.default_rng(0).permutation(n_rows) % d)
    return Target(model, Data({"of": of}, n_rows))


@pytest.mark.parametrize(("away", "astray"), [(21.0, False), (26.0, True)])
@pytest.mark.parametrize("temperature", [1.0, 10.0])
def test_bound_of_a_single_draw(away, astray, temperature):
    """Of 100 parameters, the bound is 5 times 55 below the typical log likelihood: 23.4^2 / 2.

    One coordinate of one draw in 2,000 is moved. Draws of another chain far away are no strays.
    """
    draws = np.random.default_rng(0).standard_normal((2, 1000, 100))
    draws[1] += 3.0
    draws[0, 500, 7] = away
    found = stray_draws(normal(100, 100), np.sqrt(temperature) * draws, temperature)
    assert (found is not None) == astray
    if found:
        assert found[0] == 1.0 / 2000.0
        assert found[1] == pytest.approx(temperature * away**2 / 200.0, rel=0.1)


@pytest.mark.parametrize(
    ("n_rows", "times", "astray"), [(2000, 1.0, False), (2000, 3.0, True), (100_000, 3.0, False)]
)
def test_some_rows_stand_for_all(n_rows, times, astray):
    """Of 1,000 parameters, 200 rows see 200 at most: of 2,000 rows, the bound is 785, or 0.4 a row.

    A draw that is three times as far from the mean as others loses 4,000: 2 of a row, with a
    standard error of 0.2. In 100,000 rows this is little.
    """
    draws = np.random.default_rng(0).standard_normal((1, 100, 1000))
    draws[0, 50] *= times
    assert (stray_draws(normal(n_rows, 1000), draws, 1.0) is not None) == astray


def test_weights_are_numbers_of_rows():
    """Rows of weight 7 lose as much each as rows that are there seven times."""
    draws = np.random.default_rng(0).standard_normal((1, 100, 10))
    draws[0, 50] *= 30.0
    target, once = normal(100, 10), stray_draws(normal(100, 10), draws, 1.0)
    target.data = Data(target.data.fields, 100, torch.full((100,), 7.0))
    found = stray_draws(target, draws, 1.0)
    assert once and found == pytest.approx(once)


def test_likelihoods_that_are_no_numbers_are_far_away():
    draws = np.random.default_rng(0).standard_normal((1, 100, 3))
    draws[0, 50] = np.nan
    share, _ = stray_draws(normal(10, 3), draws, 1.0)
    assert share == 0.01


def test_draws_of_a_classifier_that_are_astray():
    """R-hat is as with other steps, and averages hide what single draws say.

    Draws left the posterior at this step with each of eight seeds, and with none at a twentieth.
    """
    X, y = load_iris(return_X_y=True)
    run = {"n_chains": 2, "n_draws": 200, "burn_in": 1000, "thinning": 5, "random_state": 1}
    clf = BayesianMLPClassifier(sampler="psgld", step_size=0.05, **run)
    assert any("chains left the posterior" in text for text in messages(lambda: clf.fit(X, y)))
    clf = BayesianMLPClassifier(sampler="psgld", step_size=0.0025, **run)
    assert not messages(lambda: clf.fit(X, y))
