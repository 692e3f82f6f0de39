"""Rounding in the rows changes predictions by no more than their Monte Carlo error.

Other processors, numbers of threads and libraries of linear algebra change the last bits of every
product. A result that depends on them is another result on another machine.
"""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler
from torch import nn

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianICA,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    BayesianModuleClassifier,
    PosteriorSamples,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
)
from skbayes_sgmcmc.diagnostics import mcse

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: relative changes of the rows: by their last bits, one for all and others for each number
ONE, EACH = 1e-15, 1e-13
SHORT = {"n_chains": 2, "n_draws": 50, "burn_in": 300, "thinning": 4, "random_state": 0}


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


def small_module(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 5), nn.Tanh(), nn.Linear(5, n_outputs))


#: name -> estimator, and the rows for it
CASES = {
    "logistic": (BayesianLogisticRegression(random_state=0), load_breast_cancer),
    "logistic, several classes": (BayesianLogisticRegression(random_state=0), load_iris),
    "logistic, step given": (
        BayesianLogisticRegression(step_size=0.1, batch_size=50, **SHORT),
        load_breast_cancer,
    ),
    "mlp classifier": (BayesianMLPClassifier(hidden_layer_sizes=8, **SHORT), load_iris),
    "mlp regressor": (BayesianMLPRegressor(hidden_layer_sizes=8, **SHORT), load_diabetes),
    "cnn": (
        BayesianCNNClassifier(conv_channels=(2,), hidden_layer_sizes=(4,), **SHORT),
        images,
    ),
    "module": (BayesianModuleClassifier(small_module, **SHORT), load_iris),
    "sparse regressor": (SparseBayesianRegressor(**SHORT), load_diabetes),
    "sparse classifier": (SparseBayesianClassifier(**SHORT), load_breast_cancer),
    "ica": (BayesianICA(**SHORT), sources),
}


def predictions(estimator, X):
    """Means over the draws (n, outputs), and their Monte Carlo standard errors."""
    if hasattr(estimator, "predict_proba"):
        draws = estimator.predict_proba_samples(X)
        name = "p"
    elif hasattr(estimator, "predict"):
        return estimator.predict(X, return_std=True)
    else:
        return estimator.transform(X), None
    draws = draws.reshape(estimator.n_chains_, estimator.n_draws_, *draws.shape[1:])
    return draws.mean((0, 1)), mcse(PosteriorSamples({name: draws}), name)


@pytest.mark.parametrize("name", CASES)
def test_rounding_of_the_rows_does_not_matter(name):
    """The same random numbers in the same posterior: chains that contract stay together to 1e-6 of
    an sd. Bound: one Monte Carlo standard error (regressors: a twentieth of the predictive sd,
    which is less), since chains of networks may drift apart; ICA's sources to 1e-6."""
    estimator, load = CASES[name]
    X, y = scaled(load) if load.__module__.startswith("sklearn") else load()
    rng = np.random.default_rng(1)
    other = (X * (1.0 + ONE), X * (1.0 + EACH * rng.standard_normal(X.shape)))
    mean, error = predictions(estimator.fit(X, y), X)
    for rows in other:
        found, _ = predictions(estimator.fit(rows, y), X)
        if error is None:
            np.testing.assert_allclose(found, mean, rtol=0.0, atol=1e-6)
        elif hasattr(estimator, "predict_proba"):
            assert (np.abs(found - mean) <= error + 1e-6).all()
        else:
            assert (np.abs(found - mean) <= error / 20.0).all()
