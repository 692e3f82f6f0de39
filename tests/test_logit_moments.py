"""Predicted probabilities of binary logistic regression from the moments of logits."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.datasets import make_classification

from skbayes_sgmcmc import BayesianLogisticRegression, PosteriorSamples
from skbayes_sgmcmc.models.logit_moments import TOLERANCE, LogitMoments
from skbayes_sgmcmc.models.prediction_moments import moments_of

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


def test_probabilities_are_those_of_all_draws(fitted):
    """Within 0.001, ten times less than their Monte Carlo error, where logits vary little."""
    rows = X * 2.0
    near = variances(fitted, rows) < moments_of(fitted.posterior_).largest
    assert 0.2 < near.mean() < 1.0
    error = np.abs(fitted.predict_proba(rows) - of_all_draws(fitted, rows))
    assert error[near].max() < 1e-3
    assert 0.0 < error[near].mean() < 1e-4
    np.testing.assert_allclose(error[~near], 0.0, atol=1e-12)


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
        p, far = moments.probabilities(x)
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
    found, exact = clf.predict_proba(rows), of_all_draws(clf, rows)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-3)


def test_moments_are_kept_with_the_posterior_and_not_in_files(fitted):
    before = len(pickle.dumps(fitted))
    assert moments_of(fitted.posterior_) is moments_of(fitted.posterior_)
    assert len(pickle.dumps(fitted)) == before
    few = PosteriorSamples({"coef": np.zeros((1, 20, 1, 5)), "intercept": np.zeros((1, 20, 1))})
    assert moments_of(few) is None
