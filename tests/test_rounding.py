"""Rounding in the rows changes predictions by no more than their Monte Carlo error.

Other processors, numbers of threads and libraries of linear algebra change the last bits of every
product. A result that depends on them is another result on another machine.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.diagnostics import mcse

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: relative changes of the rows, another for each number
EACH = 1e-13
SHORT = {"n_chains": 2, "n_draws": 50, "burn_in": 100, "thinning": 2, "random_state": 0}
LINEAR = SHORT | {"n_draws": 300}


def scaled(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def images():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.random((120, 1, 6, 6))
    X[np.arange(120), 0, 2 * y, 2 * y] += 1.0
    return X, y


def sources():
    rng = np.random.default_rng(0)
    return rng.laplace(size=(300, 3)) @ rng.standard_normal((3, 3)), None


def rates():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    return X, rng.poisson(np.exp(0.5 + X @ [0.6, -0.4, 0.0]))


def grades():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    return X, np.digitize(X @ [1.0, -0.7, 0.0] + rng.logistic(size=200), [-1.0, 0.0, 1.5])


def documents():
    """Three topics, each with words that the others hardly have; about 30 words a document."""
    rng = np.random.default_rng(0)
    topics = np.repeat(np.eye(3), 4, axis=1) + 0.05
    shares = rng.dirichlet(np.full(3, 0.3), size=60)
    return rng.poisson(30.0 * shares @ (topics / topics.sum(1)[:, None])).astype(float), None


def small_module(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 5), nn.Tanh(), nn.Linear(5, n_outputs))


#: name -> estimator, and the rows for it
CASES = {
    "logistic": (sk.BayesianLogisticRegression(**LINEAR), load_breast_cancer),
    "logistic, several classes": (sk.BayesianLogisticRegression(**LINEAR), load_iris),
    "logistic, step given": (
        sk.BayesianLogisticRegression(step_size=0.1, batch_size=50, **SHORT),
        load_breast_cancer,
    ),
    "mlp classifier": (sk.BayesianMLPClassifier(hidden_layer_sizes=8, **SHORT), load_iris),
    "mlp regressor": (sk.BayesianMLPRegressor(hidden_layer_sizes=8, **SHORT), load_diabetes),
    "cnn": (sk.BayesianCNNClassifier(conv_channels=(2,), hidden_layer_sizes=(4,), **SHORT), images),
    "module": (sk.BayesianModuleClassifier(small_module, **SHORT), load_iris),
    "sparse regressor": (sk.SparseBayesianRegressor(**SHORT), load_diabetes),
    "sparse classifier": (sk.SparseBayesianClassifier(**SHORT), load_breast_cancer),
    "ica": (sk.BayesianICA(**SHORT), sources),
    "glm, normal": (sk.BayesianGLMRegressor(**LINEAR), load_diabetes),
    "glm, poisson": (sk.BayesianGLMRegressor(likelihood="poisson", **LINEAR), rates),
    "ordinal": (sk.BayesianOrdinalClassifier(**LINEAR), grades),
    "module regressor": (sk.BayesianModuleRegressor(small_module, **SHORT), load_diabetes),
    # single precision would not see the change
    "lda": (sk.LatentDirichletAllocation(3, dtype="float64", **SHORT), documents),
    "lda, gibbs": (sk.LatentDirichletAllocation(3, algorithm="gibbs", **SHORT), documents),
    "dpfa": (
        sk.DeepPoissonFactorAnalysis((3, 2), dtype="float64", doc_sweeps=5, **SHORT),
        documents,
    ),
    "distilled": (
        sk.DistilledClassifier(
            sk.BayesianMLPClassifier(hidden_layer_sizes=8, **SHORT), n_epochs=50, random_state=0
        ),
        load_iris,
    ),
}


#: these take the most time, and others are like them
SLOW = ("mlp classifier", "module regressor", "dpfa", "distilled", "sparse classifier")

#: name -> a bound in errors, where chains contract, or draw each state afresh
CONTRACT = {"glm, normal": 1e-4, "glm, poisson": 1e-4, "ordinal": 1e-4}


def predictions(estimator, X):
    """Means over the draws (n, outputs), and their Monte Carlo standard errors."""
    if hasattr(estimator, "predict_proba_samples"):
        draws = estimator.predict_proba_samples(X)
        draws = draws.reshape(estimator.n_chains_, estimator.n_draws_, *draws.shape[1:])
        return draws.mean((0, 1)), mcse(sk.PosteriorSamples({"p": draws}), "p")
    if hasattr(estimator, "predict_proba"):  # of a student, which has no draws
        return estimator.predict_proba(X), None
    if hasattr(estimator, "predict"):
        return estimator.predict(X, return_std=True)
    if hasattr(estimator, "components_") and hasattr(estimator, "perplexity"):
        return estimator.posterior_.mean("components"), mcse(estimator.posterior_, "components")
    return estimator.transform(X), None


def test_every_estimator_has_a_case():
    kinds = (getattr(sk, name) for name in sk.__all__)
    fitted = {kind for kind in kinds if hasattr(kind, "fit")}
    assert fitted == {type(estimator) for estimator, _ in CASES.values()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES]
)
def test_rounding_of_the_rows_does_not_matter(name):
    """The same random numbers in the same posterior: chains that contract stay together to 1e-6 of
    an sd. Bound: one Monte Carlo standard error (regressors: a twentieth of the predictive sd,
    which is less), since chains of networks may drift apart; a ten-thousandth of it for linear
    models of ordered classes and of other likelihoods, and 1e-6 for ICA's sources and for students,
    which have no draws. Of topic models, topics are compared."""
    estimator, load = CASES[name]
    X, y = scaled(load) if load.__module__.startswith("sklearn") else load()
    rng = np.random.default_rng(1)
    rows = X * (1.0 + EACH * rng.standard_normal(X.shape))
    mean, error = predictions(estimator.fit(X, y), X)
    found, _ = predictions(estimator.fit(rows, y), X)
    if error is None:
        np.testing.assert_allclose(found, mean, rtol=0.0, atol=1e-6)
    elif not hasattr(estimator, "predict") or hasattr(estimator, "predict_proba"):
        assert (np.abs(found - mean) <= error * CONTRACT.get(name, 1.0) + 1e-6).all()
    else:
        assert (np.abs(found - mean) <= error * CONTRACT.get(name, 0.05)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_counts_from_logarithms_are_whole(dtype):
    """Those of two words may be 2.0000000000000004, which were three words of weight 2/3."""
    counts = documents()[0].astype(dtype)
    rows = np.expm1(np.log1p(counts))
    assert (rows > counts).any()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="X has counts")
        lda = sk.LatentDirichletAllocation(3, n_draws=5, burn_in=5, thinning=1, random_state=0)
        found, expected = (clone(lda).fit(each).components_ for each in (rows, counts))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("estimator", [
    sk.BayesianGLMRegressor(**LINEAR),
    sk.BayesianLogisticRegression(**LINEAR),
    sk.BayesianOrdinalClassifier(**LINEAR),
], ids=lambda estimator: type(estimator).__name__)  # fmt: skip
def test_columns_far_from_zero_are_named(estimator):
    """Seconds since 1970, within ten minutes, were lost to rounding without a word."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = X @ [1.0, -0.5] + 0.3 * rng.standard_normal(60)
    more = {}
    if not hasattr(estimator, "predict_interval"):
        y, more = (y > 0.0).astype(int), {"classes": [0, 1]}
    constant = np.full((60, 1), 1.7e9)
    with warnings.catch_warnings(record=True) as near:
        clone(estimator).fit(np.hstack([X + np.array([1e5, 0.0]), constant]), y)
    assert not any("times the sd" in str(each.message) for each in near)
    far = X + np.array([1.7e9, 0.0])
    for stream in (False, True):
        other = clone(estimator)
        with pytest.warns(sk.SamplingWarning, match="'x0' of .* 1.7e.09 is 2e.09 times the sd"):
            other.partial_fit(far, y, **more) if stream else other.fit(far, y)
    figure = "predict" if hasattr(estimator, "predict_interval") else "predict_proba"
    expected, moved = (getattr(clone(estimator).fit(x, y), figure)(x) for x in (X, far - far[0]))
    assert np.abs(moved - expected).max() < 0.05  # the remedy
