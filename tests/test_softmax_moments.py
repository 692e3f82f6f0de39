"""Predicted probabilities of several classes from the moments of logits."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from _cases import cases
from scipy.special import softmax
from sklearn.datasets import load_wine, make_classification

from skbayes_sgmcmc import BayesianLogisticRegression, PosteriorSamples
from skbayes_sgmcmc.models.moments import softmax as softmax_moments
from skbayes_sgmcmc.models.moments.logit import TOLERANCE
from skbayes_sgmcmc.models.moments.softmax import SoftmaxMoments, moments_of

RNG = np.random.default_rng(0)
X, y = make_classification(3000, 8, n_informative=6, n_classes=4, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return BayesianLogisticRegression(random_state=0, burn_in=300, thinning=1).fit(X, y)


def of_all_draws(clf, rows):
    return clf.predict_proba_samples(rows).mean(axis=0)


def averages(draws, x, weights=None):
    """Averages (rows, classes) over draws (draws, classes, features + 1)."""
    z = np.einsum("skd,nd->snk", draws[:, :, :-1], x) + draws[:, None, :, -1]
    return np.average(softmax(z, axis=2), axis=0, weights=weights)


def normal_draws(sd, n_classes=5, n_features=6, n_draws=3000):
    base = np.random.default_rng(1).standard_normal((n_classes, n_features + 1))
    away = np.random.default_rng(2).standard_normal((n_draws, n_classes, n_features + 1))
    return base + sd * away


def test_probabilities_are_those_of_all_draws(fitted):
    """Within 0.001 where logits vary little, below the Monte Carlo error of the draws on average;
    rows further away are left to the draws, and below that error, too."""
    rows = X[::10] * 1.5
    moments = moments_of(fitted.posterior_)
    far = moments.probabilities(rows)[1]
    assert 0.01 < len(far) / len(rows) < 0.8
    samples = fitted.predict_proba_samples(rows)
    exact, spread = samples.mean(axis=0), samples.std(axis=0)
    error = np.abs(fitted.predict_proba(rows) - exact)
    near = np.setdiff1d(np.arange(len(rows)), far)
    assert error[near].max() < 1e-3
    n_draws = fitted.posterior_.n_draws * 4
    assert 0.0 < error[near].mean() < 0.5 * spread[near].mean() / np.sqrt(n_draws)
    assert 0.0 < np.sqrt(np.mean(error[far] ** 2)) < np.sqrt(np.mean(spread[far] ** 2) / n_draws)


def test_predictions_do_not_depend_on_other_rows(fitted):
    """To rounding in single precision of the variances, of 1e-6."""
    whole = fitted.predict_proba(X[:600])
    parts = np.concatenate([fitted.predict_proba(X[k : k + 1]) for k in range(100)])
    np.testing.assert_allclose(parts, whole[:100], rtol=0, atol=1e-6)
    sparse = fitted.predict_proba(sp.csr_matrix(X[:600]))
    np.testing.assert_allclose(sparse, whole, rtol=0, atol=1e-6)
    np.testing.assert_allclose(whole.sum(axis=1), 1.0, atol=1e-12)


@cases("sd", [0.003, 0.01, 0.03, 0.06])
def test_few_terms_are_used_only_where_they_are_enough(sd, monkeypatch):
    """One term gives variances to a few percent: of narrow draws, that changes no probability by
    0.0004. Rows of wider draws take more terms, and no error is above those of both together."""
    draws, x = normal_draws(sd), RNG.standard_normal((150, 6))
    draws[:, :2, :3] *= 1.5  # no product of one matrix of classes and one of features
    moments = SoftmaxMoments(draws, None)
    used = set()
    variances = SoftmaxMoments._variances
    monkeypatch.setattr(
        SoftmaxMoments, "_variances", lambda *given: used.add(given[3]) or variances(*given)
    )
    p, far = moments.probabilities(x)
    exact = averages(draws, x)
    near = np.setdiff1d(np.arange(150), far)
    assert len(near) > 40
    assert np.abs(p - exact)[near].max() < TOLERANCE + softmax_moments.TERMS_TOLERANCE
    plain = softmax(x @ moments.mean[:, :-1].T + moments.mean[:, -1], axis=1)
    if sd == 0.003:
        assert used == {1}
    if sd == 0.06:  # the second term of the expansion is needed
        assert max(used) > 1 and np.abs(plain - exact)[near].max() > 2e-3


@pytest.mark.parametrize("columns", [(1.0, 1.0, 1.0, 1.0), (1.0, 1e5, 1e-5, 1.0)])
def test_collinear_columns_and_distant_scales(columns):
    """Means of a thousand sds, in any units: variances are differences of numbers a million times
    as large, which single precision loses. Probabilities were wrong by 0.01."""
    rng = np.random.default_rng(0)
    x = (1000.0 + rng.standard_normal((3000, 4))) * columns
    logits = (x / columns - 1000.0) @ rng.standard_normal((4, 3))
    clf = BayesianLogisticRegression(n_draws=200, burn_in=300, thinning=1, random_state=0)
    clf.fit(x, (logits + rng.gumbel(size=(3000, 3))).argmax(1))
    found, far = moments_of(clf.posterior_).probabilities(x[:300])
    near = np.setdiff1d(np.arange(300), far)
    assert len(near) > 150
    assert np.abs(found - of_all_draws(clf, x[:300]))[near].max() < 1e-3


def test_rows_of_separated_classes_are_left_to_the_draws():
    """Their logits vary by several units, and the average is that of the draws that are in doubt:
    probabilities from the mean logits were wrong by 0.01."""
    rows, labels = load_wine(return_X_y=True)
    clf = BayesianLogisticRegression(random_state=0, burn_in=300, thinning=1).fit(rows, labels)
    samples = clf.predict_proba_samples(rows)
    exact, spread = samples.mean(axis=0), samples.std(axis=0)
    error = np.sqrt(np.mean((clf.predict_proba(rows) - exact) ** 2))
    assert error < np.sqrt(np.mean(spread**2) / (clf.n_chains_ * clf.n_draws_))
    plain = softmax(rows @ clf.coef_.T + clf.intercept_, axis=1)
    assert np.abs(plain - exact).max() > 0.005


def test_rows_of_a_nearly_certain_class_need_no_draws():
    """Their logits may vary by 1, twenty times as much as others: probabilities hardly change.

    Of 3,000 rows some 600 are so certain; without the wider range, 14 would be left.
    """
    rng = np.random.default_rng(1)
    draws = 1.5 * rng.standard_normal((5, 7)) + 0.1 * rng.standard_normal((3000, 5, 7))
    x = 2.0 * rng.standard_normal((3000, 6))
    p, far = SoftmaxMoments(draws, None).probabilities(x)
    near = np.setdiff1d(np.arange(3000), far)
    assert len(near) > 300
    assert np.abs(p[near] - averages(draws, x[near])).max() < TOLERANCE


@pytest.mark.parametrize(("power", "allowed"), [(2.0, 0.03), (6.0, 0.01)])
def test_skewed_draws_have_a_smaller_range(power, allowed):
    """Powers of exponential variables: the error is looked at along the most skewed features."""
    draws = normal_draws(0.2, n_features=30)
    draws[:, 2, 20] = RNG.standard_exponential(len(draws)) ** power
    assert SoftmaxMoments(normal_draws(0.2, n_features=30), None).largest > allowed
    assert SoftmaxMoments(draws, None).largest <= allowed


def test_equal_draws():
    draws, x = np.repeat(np.round(normal_draws(0.1)[:1]), 64, axis=0), RNG.standard_normal((20, 6))
    p, far = SoftmaxMoments(draws, None).probabilities(x)
    np.testing.assert_allclose(p, averages(draws, x), rtol=1e-6)
    assert not len(far)


def test_weighted_draws():
    draws, weights = normal_draws(0.05), RNG.random(3000)
    draws += 0.1 * (weights[:, None, None] - 0.5)  # heavier draws are larger ones
    weights /= weights.sum()
    x = RNG.standard_normal((50, 6))
    p, far = SoftmaxMoments(draws, weights).probabilities(x)
    near = np.setdiff1d(np.arange(50), far)
    assert len(near) > 25
    np.testing.assert_allclose(p[near], averages(draws, x, weights)[near], atol=2.0 * TOLERANCE)
    assert np.abs(p - SoftmaxMoments(draws, None).probabilities(x)[0])[near].max() > 1e-4


@pytest.mark.parametrize("scale", [1e60, 1e-60, 1e140])
def test_values_beyond_single_precision_are_left_to_the_draws(scale):
    """Off by no more than a Monte Carlo error of the 400 draws, 0.003; their chains have not mixed
    on values as large as this, and rounding decides how far they are apart."""
    clf = BayesianLogisticRegression(n_chains=2, n_draws=200, random_state=0).fit(X * scale, y)
    rows = X[:50] * scale
    found, exact = clf.predict_proba(rows), of_all_draws(clf, rows)
    np.testing.assert_allclose(found, exact, rtol=0, atol=3e-3)


def test_few_draws_have_no_moments():
    few = {"coef": np.zeros((1, 20, 3, 5)), "intercept": np.zeros((1, 20, 3))}
    assert moments_of(PosteriorSamples(few)) is None
    assert softmax_moments.VARIANCES[0] >= SoftmaxMoments(normal_draws(0.1), None).largest > 0.0
