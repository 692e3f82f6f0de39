"""Draws with weights: every figure counts a draw of weight w like w draws."""

from __future__ import annotations

import numpy as np
import pytest
from _cases import cases

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianMLPRegressor,
    PosteriorSamples,
)

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

N_CHAINS, N_DRAWS = 2, 30
WEIGHTS = np.arange(N_DRAWS) % 4


@pytest.fixture(scope="module")
def draws():
    """Of two chains, with a trend, so that weights matter."""
    rng = np.random.default_rng(0)
    trend = WEIGHTS[:, None, None] * np.ones((3, 2))
    return trend + rng.standard_normal((N_CHAINS, N_DRAWS, 3, 2))


@pytest.fixture(scope="module")
def pair(draws):
    """Draws with whole numbers as weights, and the same draws so often without weights."""
    weighted = PosteriorSamples({"x": draws}, WEIGHTS.astype(float))
    return weighted, PosteriorSamples({"x": np.repeat(draws, WEIGHTS, axis=1)})


def test_weights_are_repetitions_in_moments(pair):
    """Up to the order of the sums; without weights both figures would be others by far."""
    weighted, repeated = pair
    plain = PosteriorSamples(weighted.draws)
    for figure in (PosteriorSamples.mean, PosteriorSamples.std):
        expected = figure(repeated, "x")
        np.testing.assert_allclose(figure(weighted, "x"), expected, rtol=1e-12)
        assert np.abs(figure(plain, "x") - expected).min() > 0.05


def test_weights_are_repetitions_in_quantiles(pair):
    """The smallest draw at which the weights up to it reach q; 90 equal ones do so too.

    The levels are between multiples of 1/90, where rounding decides.
    """
    weighted, repeated = pair
    levels = (np.array([2, 30, 60, 85]) + 0.5) / 90
    expected = np.quantile(repeated.pooled("x"), levels, axis=0, method="inverted_cdf")
    np.testing.assert_array_equal(weighted.quantile("x", levels), expected)
    assert np.abs(PosteriorSamples(weighted.draws).quantile("x", levels) - expected).max() > 0.3


def test_draws_are_chosen_by_their_weights(pair):
    """40,000 of them: every draw as often as its weight says, to 5 binomial standard deviations."""
    weighted, n = pair[0], 40_000
    chosen = weighted.sample(n, random_state=0)["x"]
    expected = n * np.tile(WEIGHTS, N_CHAINS) / (N_CHAINS * WEIGHTS.sum())
    counts = [(chosen == draw).all((1, 2)).sum() for draw in weighted.pooled("x")]
    assert sum(counts) == n
    assert (np.abs(counts - expected) <= 5.0 * np.sqrt(expected)).all()


def test_evenly_spaced_draws_keep_their_weights(pair):
    weighted = pair[0]
    numbers, weights = weighted.spaced()
    average = np.tensordot(weights, weighted.select("x", numbers), axes=1)
    np.testing.assert_allclose(average, weighted.mean("x"), rtol=1e-12)
    numbers, weights = weighted.spaced(10)
    np.testing.assert_allclose(weights, np.tile(WEIGHTS, 2)[numbers] / WEIGHTS[numbers % 30].sum())


# estimators ---------------------------------------------------------------------------------------


def with_draws(estimator, posterior):
    """The fitted estimator with other draws."""
    copied = type(estimator)(**estimator.get_params())
    vars(copied).update(vars(estimator) | {"posterior_": posterior})
    return copied


def halves(estimator):
    """The estimator with weights of 0 for later draws, and the one without these draws."""
    draws, half = estimator.posterior_.draws, N_DRAWS // 2
    weights = np.where(np.arange(N_DRAWS) < half, 1.0, 0.0)
    first = {name: values[:, :half] for name, values in draws.items()}
    return (
        with_draws(estimator, PosteriorSamples(draws, weights)),
        with_draws(estimator, PosteriorSamples(first)),
    )


SHORT = {"n_chains": N_CHAINS, "n_draws": N_DRAWS, "burn_in": 10, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    return X, X[:, 0] + 0.5 * rng.standard_normal(80)


def test_classifiers_leave_out_draws_of_weight_zero(rows):
    """Probabilities and the parts of their entropy are averages over the draws that count."""
    X, y = rows
    clf = BayesianLogisticRegression(**SHORT).fit(X, y > 0)
    weighted, short = halves(clf)
    np.testing.assert_allclose(weighted.predict_proba(X), short.predict_proba(X), rtol=1e-12)
    expected, plain = short.predict_uncertainty(X), clf.predict_uncertainty(X)
    for name, values in weighted.predict_uncertainty(X).items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-12, err_msg=name)
        assert np.abs(values - plain[name]).max() > 1e-4
    allowed = {draw.tobytes() for draw in short.predict_proba_samples(X)}
    chosen = {draw.tobytes() for draw in weighted.predict_proba_samples(X, 200, random_state=0)}
    assert chosen <= allowed and len(chosen) > 20


def test_regressors_leave_out_draws_of_weight_zero(rows):
    """Mean, sd and quantiles of the mixture (bisected to 1e-8 sd); observations of these draws.

    Levels are odd multiples of 1 / 2n of the n draws that count: between draws that are far apart
    the distribution function is flat, at multiples of 1 / n, and a quantile could be anywhere.
    """
    X, y = rows
    reg = BayesianMLPRegressor(hidden_layer_sizes=4, thinning=5, **SHORT).fit(X, y)
    weighted, short = halves(reg)
    n = N_CHAINS * N_DRAWS // 2
    levels = (np.array([n // 10, n // 2, n - 2]) + 0.5) / n

    def figures(estimator):
        return *estimator.predict(X, return_std=True), estimator.predict_quantiles(X, levels)

    for ours, expected, plain in zip(*map(figures, (weighted, short, reg)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-7)
        assert np.abs(plain - expected).max() > 1e-3
    drawn = weighted.sample_y(X, 5_000, random_state=0)
    mean, sd = short.predict(X, return_std=True)
    assert (np.abs(drawn.mean(1) - mean) < 5.0 * sd / np.sqrt(5_000)).all()


def test_names_of_draws_are_those_of_a_dict():
    """Else Python asks for the items 0, 1, ..., and a test of a name raises their KeyError."""
    posterior = PosteriorSamples({"coef": np.zeros((1, 2, 3)), "scale": np.zeros((1, 2))})
    assert list(posterior) == ["coef", "scale"]
    assert "scale" in posterior and "intercept" not in posterior
    with pytest.raises(KeyError, match="'intercept' is not the name .* coef, scale are"):
        posterior["intercept"]


@cases("n_samples", [-1, 0, 2.5, "all", np.nan])
def test_numbers_of_draws_that_cannot_be(pair, n_samples):
    with pytest.raises(ValueError, match="n_samples=.* is not allowed: give None or a whole"):
        pair[0].sample(n_samples)


def test_quantiles_are_of_probabilities(pair):
    with pytest.raises(ValueError, match=r"q=1\.5 is not allowed: give a number in \[0, 1\]"):
        pair[0].quantile("x", [0.5, 1.5])


def test_arithmetic_in_place_cannot_change_the_draws():
    """Otherwise the estimator would predict by the changed draws."""
    X = np.random.default_rng(0).standard_normal((50, 2))
    reg = BayesianGLMRegressor(n_draws=20, burn_in=20, thinning=1, random_state=0).fit(X, X[:, 0])
    handed_out = (
        reg.posterior_["coef"],
        reg.posterior_.pooled("coef"),
        reg.sample_posterior()["coef"],
    )
    for draws in (*handed_out, reg.posterior_.sample()["coef"]):
        with pytest.raises(ValueError, match="read-only"):
            draws *= 2.0


@cases(
    "draws, weights, message",
    [
        ({}, None, r"draws of the shapes \{\} is not allowed"),
        ({"x": np.zeros(9)}, None, r"'x': \(9,\)\} is not allowed: .* \(n_chains, n_draws, ...\)"),
        ({"x": np.zeros((2, 9)), "y": np.zeros((2, 5))}, None, "the same two numbers for all"),
        ({"x": np.zeros((2, 9))}, np.ones((2, 9)), "each of the 9 draws"),
        ({"x": np.zeros((2, 9))}, -np.ones(9), "a nonnegative number"),
        ({"x": np.zeros((2, 9))}, np.zeros(9), "not all of them zero"),
    ],
)
def test_draws_and_weights_that_do_not_belong_together(draws, weights, message):
    with pytest.raises(ValueError, match=message):
        PosteriorSamples(draws, weights)
