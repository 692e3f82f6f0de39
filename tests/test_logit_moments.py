"""Predicted probabilities of binary logistic regression from the moments of logits."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from _cases import cases
from scipy.special import expit
from sklearn.datasets import make_classification

from skbayes_sgmcmc import BayesianLogisticRegression, PosteriorSamples
from skbayes_sgmcmc.models.moments.logit import TOLERANCE, LogitMoments, Moments
from skbayes_sgmcmc.models.moments.softmax import moments_of

RNG = np.random.default_rng(0)
X, y = make_classification(600, 10, n_informative=4, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return BayesianLogisticRegression(random_state=0).fit(X, y)


def of_all_draws(clf, rows):
    return clf.predict_proba_samples(rows).mean(axis=0)


def variances(clf, rows):
    posterior = clf.posterior_
    z = rows @ posterior.pooled("coef")[:, 0].T + posterior.pooled("intercept")[:, 0]
    return z.var(axis=1)


def relative_error(clf, rows):
    """Root mean square of the error, in those of the Monte Carlo error of all draws."""
    draws = clf.predict_proba_samples(rows)[:, :, 1]
    error = clf.predict_proba(rows)[:, 1] - draws.mean(axis=0)
    return np.sqrt(np.square(error).mean() / (draws.var(axis=0).mean() / len(draws)))


def test_probabilities_are_those_of_all_draws(fitted):
    """Within 0.001, ten times less than their Monte Carlo error, where logits vary little."""
    rows = X * 2.0
    near = variances(fitted, rows) < moments_of(fitted.posterior_).largest
    assert 0.2 < near.mean() < 1.0
    error = np.abs(fitted.predict_proba(rows) - of_all_draws(fitted, rows))
    assert error[near].max() < 1e-3
    assert 0.0 < error[near].mean() < 1e-4
    assert relative_error(fitted, rows[~near]) < 0.4


def test_predictions_do_not_depend_on_other_rows(fitted):
    """To rounding in single precision of the variance, of 1e-6."""
    whole = fitted.predict_proba(X)
    parts = np.concatenate([fitted.predict_proba(X[k : k + 1]) for k in range(100)])
    np.testing.assert_allclose(parts, whole[:100], rtol=0, atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(sp.csr_matrix(X)), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("power", "allowed"), [(1.0, 0.25), (2.0, 0.03), (6.0, 0.0)])
def test_skewed_draws_have_a_smaller_range_or_none(power, allowed):
    """Powers of exponential variables: the error is looked at along each coefficient, and kept."""
    draws = RNG.standard_normal((4000, 4))
    draws[:, 1] = RNG.standard_exponential(4000) ** power
    moments = LogitMoments(draws, None)
    assert moments.largest <= allowed
    sd = np.sqrt(moments.largest) / draws[:, 1].std()
    x = np.zeros((9, 3))
    x[:, 1] = sd * 0.99
    draws[:, 3] = 0.0
    for mean in np.linspace(-3.0, 3.0, 7):
        shifted = draws + np.array([0.0, 0.0, 0.0, mean])
        moments = LogitMoments(shifted, None)
        p, far = Moments.probabilities(moments, x)
        if not len(far):
            exact = expit(x @ shifted[:, :3].T + shifted[:, 3]).mean(axis=1)
            assert np.abs(p[:, 1] - exact).max() < 2.0 * TOLERANCE


def test_weighted_draws():
    draws, weights = RNG.standard_normal((2000, 3)) * 0.3 + 0.2, RNG.random(2000)
    weights /= weights.sum()
    p, far = LogitMoments(draws, weights).probabilities(np.eye(2))
    assert not len(far)
    exact = expit(np.eye(2) @ draws[:, :2].T + draws[:, 2]) @ weights
    np.testing.assert_allclose(p[:, 1], exact, atol=1e-3)
    assert (
        np.abs(p[:, 1] - LogitMoments(draws, None).probabilities(np.eye(2))[0][:, 1]).max() > 1e-4
    )


def test_the_smaller_probability_keeps_its_digits(fitted):
    """Its logarithm is finite where the other one is 1 to the last bit, and rows add up to one."""
    draws = 0.001 * RNG.standard_normal((1000, 2)) + [60.0, 0.0]
    p, far = LogitMoments(draws, None).probabilities(np.array([[1.0], [-1.0]]))
    assert not len(far)
    np.testing.assert_allclose(np.log([p[0, 0], p[1, 1]]), -60.0, rtol=1e-3)
    np.testing.assert_array_equal(p.sum(axis=1), 1.0)


@pytest.mark.parametrize("scale", [1e60, 1e-60, 1e140])
def test_values_beyond_single_precision_are_left_to_the_draws(scale):
    clf = BayesianLogisticRegression(n_chains=2, n_draws=200, random_state=0).fit(X * scale, y)
    rows = X[:50] * scale
    assert relative_error(clf, rows) < 1.0


@pytest.mark.statistical
@cases("stretch", [1.0, 3.0, 30.0])
def test_classes_that_can_be_separated_are_predicted_to_less_than_the_monte_carlo_error(stretch):
    """A fourth of the draws, with the moments of all, for every row of a skewed posterior.

    Without the moments, a fourth of independent draws has sqrt(3) times the Monte Carlo error of
    all. With them it is 0.1 to 0.2 of it for rows like those of the fit, and up to 1 for others,
    where the sigmoid is a step (R^2 = 2/3); over 300 rows, these vary by a fifth.
    """
    rng = np.random.default_rng(0)
    train, rows = rng.standard_normal((400, 8)), stretch * rng.standard_normal((300, 8))
    clf = BayesianLogisticRegression(prior_scale=1.0, random_state=0)
    clf.fit(train, (train[:, 0] > 0).astype(int))
    assert relative_error(clf, rows) < (0.3 if stretch == 1.0 else 1.2)
    p = clf.predict_proba(rows)
    assert (p > 0.0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-15)


def test_probabilities_below_single_precision_keep_their_logarithm():
    """exp(-200) of logits that vary by 2 has the mean exp(-200 + 2^2 / 2), to a tenth."""
    draws = 2.0 * RNG.standard_normal((4000, 2)) * [1.0, 0.0] + [-200.0, 0.0]
    p, far = LogitMoments(draws, None).probabilities(np.ones((1, 1)))
    assert not len(far)
    np.testing.assert_allclose(np.log(p[0, 1]), -198.0, atol=0.3)


def test_moments_are_kept_with_the_posterior_and_not_in_files(fitted):
    before = len(pickle.dumps(fitted))
    assert moments_of(fitted.posterior_) is moments_of(fitted.posterior_)
    assert len(pickle.dumps(fitted)) == before
    few = PosteriorSamples({"coef": np.zeros((1, 20, 1, 5)), "intercept": np.zeros((1, 20, 1))})
    assert moments_of(few) is None
