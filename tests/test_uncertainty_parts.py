"""Parts of the variance, intervals of means and of probabilities, and sets of classes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.models.moments.few_draws import LEAST
from skbayes_sgmcmc.schedules import Polynomial

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: max_steps bounds the descents to the starts, too
SHORT = {"n_chains": 2, "n_draws": 60, "burn_in": 60, "thinning": 1, "max_steps": 120,
         "random_state": 0}  # fmt: skip
#: draws enough for few to stand for all
LONG = {"n_draws": 500, "burn_in": 400, "thinning": 2, "random_state": 0}
X, Y = load_diabetes(return_X_y=True)
X, Y = X[:60], Y[:60]
COUNTS = np.random.default_rng(0).poisson(3.0, 60)
#: steps that fall, which weigh the draws
WEIGHTED = {"sampler": "sgld", "step_size": Polynomial(first=1e-2, last=1e-3)}

REGRESSORS = {
    "normal": lambda: sk.BayesianGLMRegressor(**LONG).fit(X, Y),
    "gamma": lambda: sk.BayesianGLMRegressor(likelihood="gamma", **LONG).fit(X, Y),
    "weighted": lambda: sk.BayesianGLMRegressor(likelihood="poisson", **SHORT, **WEIGHTED).fit(
        X, COUNTS
    ),
    "network": lambda: sk.BayesianMLPRegressor(8, **SHORT).fit(X, Y),
    "two outputs": lambda: sk.BayesianMLPRegressor(8, **SHORT).fit(X, np.c_[Y, -2.0 * Y]),
}


@pytest.fixture(scope="module", params=REGRESSORS)
def reg(request):
    return REGRESSORS[request.param]()


def weights_of(model):
    weights = model.posterior_.pooled_weights()
    n = model.posterior_.n_chains * model.posterior_.n_draws
    return np.full(n, 1.0 / n) if weights is None else weights


def test_the_parts_of_the_variance_are_those_of_its_law(reg):
    """Var y = E Var(y | theta) + Var E(y | theta), and the second is known from the draws.

    Linear models with thousands of draws average over few that stand for all: means are then right
    to the Monte Carlo error of all, and the second part to twice that of a normal variance.
    """
    parts = reg.predict_uncertainty(X[:7])
    mean, sd = reg.predict(X[:7], return_std=True)
    np.testing.assert_allclose(parts.total, sd**2, rtol=1e-12)
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total, rtol=1e-12)
    means, w = reg.predict_mean_samples(X[:7]), weights_of(reg)
    spread, many = np.tensordot(w, (means - mean) ** 2, 1), len(w) >= LEAST
    error = np.sqrt(spread / len(w)).max() if many else 0.0
    np.testing.assert_allclose(np.tensordot(w, means, 1), mean, rtol=1e-9, atol=error)
    exact = {"rtol": 2.0 * np.sqrt(2.0 / len(w)) if many else 1e-6, "atol": 1e-9 * spread.max()}
    np.testing.assert_allclose(parts.epistemic, spread, **exact)
    assert (parts.aleatoric > 0.0).all()


def test_intervals_of_the_mean_hold_that_share_of_the_draws(reg):
    """Of their weight, to that of two draws; and they lie within the intervals of targets."""
    low, high = np.moveaxis(reg.predict_interval(X[:7], 0.8, kind="mean"), 1, 0)
    means, w = reg.predict_mean_samples(X[:7]), weights_of(reg)
    for inside in (means < low, means > high):
        np.testing.assert_allclose(np.tensordot(w, inside, 1), 0.1, atol=2.0 * w.max())
    of_targets = np.moveaxis(reg.predict_interval(X[:7], 0.8), 1, 0)
    assert (high - low < of_targets[1] - of_targets[0]).all()


def test_the_mean_of_more_rows_is_known_better():
    """Twice the draws of the mean's sd with a quarter of the rows; the noise stays."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 1))
    y = x[:, 0] + rng.standard_normal(2000)
    few, many = (
        sk.BayesianGLMRegressor(random_state=0).fit(x[:n], y[:n]).predict_uncertainty(x[:50])
        for n in (500, 2000)
    )
    np.testing.assert_allclose(few.epistemic / many.epistemic, 4.0, rtol=0.5)
    np.testing.assert_allclose(few.aleatoric / many.aleatoric, 1.0, rtol=0.15)


def test_some_draws_are_chosen_by_their_weights(reg):
    shape = (5, 3, *np.shape(reg.predict(X[:1]))[1:])
    some = reg.predict_mean_samples(X[:3], n_draws=5, random_state=0)
    assert some.shape == shape
    every = reg.predict_mean_samples(X[:3])
    assert all((one == every).reshape(len(every), -1).all(1).any() for one in some)


def test_other_kinds_of_intervals_are_refused():
    reg = sk.BayesianGLMRegressor(**SHORT).fit(X, Y)
    with pytest.raises(ValueError, match=r"kind='median' is not allowed: .*'target'"):
        reg.predict_interval(X, kind="median")


IRIS = load_iris(return_X_y=True)
CLASSIFIERS = {
    "two classes": lambda: sk.BayesianLogisticRegression(**LONG).fit(X, np.median(Y) < Y),
    "three classes": lambda: sk.BayesianLogisticRegression(**LONG).fit(*IRIS),
    "ordered": lambda: sk.BayesianOrdinalClassifier(**LONG).fit(*IRIS),
    "weighted": lambda: sk.BayesianLogisticRegression(**SHORT, **WEIGHTED).fit(*IRIS),
}


@pytest.fixture(scope="module", params=CLASSIFIERS)
def clf(request):
    return CLASSIFIERS[request.param]()


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.999])
def test_sets_are_the_smallest_with_the_coverage(clf, coverage):
    rows = X if clf.n_features_in_ == 10 else IRIS[0]
    proba, sets = clf.predict_proba(rows), clf.predict_set(rows, coverage)
    assert sets.shape == proba.shape
    assert (np.where(sets, proba, 0.0).sum(1) >= coverage - 1e-12).all()
    # without its least probable class, no set has it; and no class outside is more probable
    least = np.where(sets, proba, 2.0).min(1)
    assert (np.where(sets, proba, 0.0).sum(1) - least < coverage).all()
    assert (np.where(sets, 0.0, proba).max(1) <= least).all()


def test_intervals_of_probabilities_hold_that_share_of_the_draws(clf):
    rows = (X if clf.n_features_in_ == 10 else IRIS[0])[::20]
    low, high = np.moveaxis(clf.predict_proba_interval(rows, 0.8), 2, 0)
    proba, w = clf.predict_proba_samples(rows), weights_of(clf)
    for inside in (proba < low, proba > high):
        np.testing.assert_allclose(np.tensordot(w, inside, 1), 0.1, atol=2.0 * w.max())


def test_coverage_must_be_a_share():
    clf = CLASSIFIERS["three classes"]()
    for method in (clf.predict_set, clf.predict_proba_interval):
        with pytest.raises(ValueError, match=r"coverage=1\.5 is not allowed"):
            method(IRIS[0], coverage=1.5)
