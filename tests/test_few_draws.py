"""Averages over few draws that stand for all: they have the mean and the covariance of all."""

from __future__ import annotations

import numpy as np
import pytest
from _cases import cases

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.models.moments.few_draws import LEAST, few_for_all

#: draws enough for a quarter of them to stand for all
RUN = {"n_draws": 500, "burn_in": 400, "thinning": 2, "random_state": 0}
RNG = np.random.default_rng(0)
N, D = 300, 6
X = RNG.standard_normal((N, D))
F = X @ RNG.standard_normal(D)
CLASSES = {
    "several": (sk.BayesianLogisticRegression, np.digitize(F + RNG.logistic(size=N), [-1.0, 1.0])),
    "separable": (sk.BayesianLogisticRegression, np.digitize(F, [-1.0, 1.0])),
    "ordinal": (sk.BayesianOrdinalClassifier, np.digitize(F + RNG.logistic(size=N), [-1.0, 1.0])),
}
TARGETS = {
    "normal": F + RNG.standard_normal(N),
    "student_t": F + RNG.standard_t(4.0, N),
    "poisson": RNG.poisson(np.exp(0.3 * F)),
    "gamma": RNG.gamma(2.0, np.exp(0.3 * F)),
}


def skewed(n=8000):
    """Draws whose coordinates are correlated, and far from normal."""
    base = np.random.default_rng(1).gamma(1.0, size=(4, n // 4, 3))
    return sk.PosteriorSamples({"a": base[..., :2] @ [[1.0, 2.0], [0.0, 1e-3]], "b": base.sum(-1)})


@cases("one_of", [4, 16])
def test_moments_are_those_of_all_draws(one_of):
    """To rounding, in units of the sds; so are averages of every quadratic function."""
    posterior = skewed()
    few = few_for_all(posterior, ("a", "b"), one_of)
    assert few.n_chains * few.n_draws == 8000 // one_of
    both = [np.column_stack([each.pooled("a"), each.pooled("b")]) for each in (posterior, few)]
    sd = both[0].std(axis=0)
    np.testing.assert_allclose(both[1].mean(0) / sd, both[0].mean(0) / sd, atol=1e-9)
    cov = [np.cov(each.T, bias=True) / np.outer(sd, sd) for each in both]
    np.testing.assert_allclose(cov[1], cov[0], atol=1e-9)


def test_draws_that_are_few_stay_as_they_are():
    """Fewer than 2,000, or fewer than eight for each number of a draw, or not finite."""
    assert few_for_all(skewed(LEAST - 4), ("a", "b"), 4) is None
    wide = sk.PosteriorSamples({"a": RNG.standard_normal((1, 4000, 501))})
    assert few_for_all(wide, ("a",), 16) is None
    infinite = skewed()
    infinite.draws["b"][0, 0] = np.inf
    assert few_for_all(infinite, ("a", "b"), 16) is None


@pytest.mark.statistical
@cases("kind", CLASSES)
def test_probabilities_are_right_to_monte_carlo_error(kind):
    """The root mean square of the difference from all draws is below that of their own error.

    Rows are like those of the fit, or four times as far out. The bound is that of a step.
    """
    estimator, y = CLASSES[kind]
    clf = estimator(**RUN).fit(X, y)
    for rows in (X, 4.0 * X):
        draws, found = clf.predict_proba_samples(rows), clf.predict_proba(rows)
        error = found - draws.mean(axis=0)
        assert 0.0 < np.mean(error**2) < np.mean(draws.var(axis=0)) / len(draws)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
        alone = clf.predict_proba(rows[:5])  # of a row, whatever the others are
        np.testing.assert_allclose(alone, found[:5], atol=1e-6)


@pytest.mark.statistical
@cases("likelihood", TARGETS)
def test_means_and_intervals_are_right_to_monte_carlo_error(likelihood):
    """Means to a half of it, sds to 1%, and ends of intervals to a fiftieth of the sd."""
    reg = sk.BayesianGLMRegressor(likelihood=likelihood, **RUN).fit(X, TARGETS[likelihood])
    whole, rows = super(sk.BayesianGLMRegressor, reg)._mixture(), np.vstack([X[:100], 4.0 * X[:50]])
    draws = reg.predict_mean_samples(rows)
    mean, sd = reg.predict(rows, return_std=True)
    error = mean - draws.mean(axis=0)
    assert np.mean(error**2) < 0.25 * np.mean(draws.var(axis=0)) / len(draws)
    np.testing.assert_allclose(sd, np.sqrt(whole.moments(rows)[1:].sum(0)[:, 0]), rtol=0.01)
    ends = whole.quantiles(rows[::10], [0.05, 0.95])[:, :, 0]
    away = np.abs(reg.predict_interval(rows[::10]) - ends) / sd[::10, None]
    assert away.max() < 0.02


def test_cut_points_stay_in_their_order():
    """Those of a class without rows nearly touch, and moved ones would change places."""
    y = 2 * (F > 0.0)
    y[0] = 1
    weight = np.where(np.arange(N) == 0, 1e-12, 1.0)
    clf = sk.BayesianOrdinalClassifier(**RUN).fit(X, y, sample_weight=weight)
    assert (clf.predict_proba(X) >= 0.0).all() and np.isfinite(clf.predict_proba(X)).all()
