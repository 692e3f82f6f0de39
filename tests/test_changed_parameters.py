"""Parameters that say what draws mean, such as a likelihood, and that were set after the fit.

Predictions took the new value: with another activation, noise or distribution of times they were
other numbers without a word, and otherwise a KeyError or an error of shapes.
"""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
import torch
from _cases import cases
from sklearn.base import clone
from torch import nn

import skbayes_sgmcmc as sk

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: compiling would take longer than all of these fits; max_steps bounds descents to starts, too
TINY = {
    "n_draws": 4, "burn_in": 4, "thinning": 1, "n_chains": 2, "max_steps": 8, "random_state": 0,
    "compiled": False,
}  # fmt: skip
RNG = np.random.default_rng(0)
X = np.exp(0.3 * RNG.standard_normal((40, 4)))
Y = X[:, 0] + 0.1 * RNG.random(40)
LABELS = (np.median(Y) < Y).astype(int)
T4, T9 = sk.StudentT(df=4.0), sk.StudentT(df=9.0)
FLAT = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 1))


@cases(
    "estimator, change",
    [
        (sk.BayesianGLMRegressor(likelihood="weibull"), {"likelihood": "log_normal"}),
        (sk.BayesianGLMRegressor(likelihood=T4), {"likelihood": T9}),
        (sk.BayesianGLMRegressor(noise=1.0), {"noise": 2.0}),
        (sk.BayesianGLMRegressor(offset=1), {"offset": 2}),
        (sk.BayesianGLMRegressor(), {"groups": 1}),
        (sk.BayesianMLPRegressor(hidden_layer_sizes=3), {"activation": "tanh"}),
        (sk.BayesianMLPClassifier(hidden_layer_sizes=3), {"hidden_layer_sizes": 4}),
        (
            sk.BayesianCNNClassifier(conv_channels=(2,), hidden_layer_sizes=3),
            {"activation": "tanh"},
        ),
        (sk.SparseBayesianRegressor(), {"noise": 2.0}),
        # with noise="auto", only normal priors come with a noise of each row: log densities were 0
        (sk.BayesianMLPRegressor(hidden_layer_sizes=3, prior="laplace"), {"prior": "normal"}),
        (sk.SparseBayesianRegressor(), {"prior": sk.SpikeSlab(learn_sigma=False)}),
        (sk.BayesianModuleRegressor(FLAT), {"input_shape": (2, 2)}),
    ],
)
def test_predictions_need_the_parameters_of_the_fit(estimator, change):
    estimator = clone(estimator).set_params(**TINY)
    (name, now), before = *change.items(), estimator.get_params()
    y = LABELS if hasattr(estimator, "predict_proba") else Y
    expected = estimator.fit(X, y).predict(X)
    estimator.set_params(**change)
    message = re.escape(f"{name}={now!r} is not allowed here: the draws are those of a fit with ")
    calls = [
        lambda: estimator.predict(X),
        estimator.summary,
        lambda: sk.to_torch(estimator),
        lambda: estimator.partial_fit(X, y),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=message + re.escape(f"{name}={before[name]!r}")):
            call()
    again = pickle.loads(pickle.dumps(estimator)).set_params(**{name: before[name]})
    np.testing.assert_array_equal(again.predict(X), expected)
    estimator.fit(X, y).predict(X)


@cases(
    "likelihood, change, before",
    [
        (sk.StudentT(df=4.0), {"likelihood__df": 9.0}, "StudentT(df=4.0)"),
        (sk.Tweedie(power=1.5), {"likelihood__power": 1.7}, "Tweedie(power=1.5)"),
    ],
)
def test_parameters_of_a_likelihood_are_those_of_the_fit(likelihood, change, before):
    """``set_params`` changes such objects in place: the sd of a target was three times as large."""
    reg = sk.BayesianGLMRegressor(likelihood=clone(likelihood), **TINY).fit(X, Y)
    expected = reg.predict(X, return_std=True)
    reg.set_params(**change)
    with pytest.raises(
        ValueError, match=re.escape(f"draws are those of a fit with likelihood={before}")
    ):
        reg.predict(X)
    again = pickle.loads(pickle.dumps(reg)).set_params(likelihood=clone(likelihood))
    np.testing.assert_array_equal(again.predict(X, return_std=True), expected)


def test_topics_of_documents_need_the_success_probability_of_the_fit():
    counts = RNG.poisson(1.0, (20, 6))
    dpfa = sk.DeepPoissonFactorAnalysis((3,), **TINY | {"compiled": "auto"}).fit(counts)
    dpfa.set_params(success_probability=0.5)
    for call in (dpfa.transform, dpfa.perplexity, dpfa.score):
        with pytest.raises(ValueError, match=r"those of a fit with success_probability=None"):
            call(counts)


def test_parameters_of_sampling_may_change_after_the_fit():
    reg = sk.BayesianGLMRegressor(**TINY).fit(X, Y)
    expected = reg.predict(X)
    reg.set_params(n_draws=7, step_size=0.1, prior_scale=2.0, random_state=1, warm_start=True)
    np.testing.assert_array_equal(reg.predict(X), expected)


def own(outputs):
    return torch.distributions.Normal(outputs[:, 0], 1.0)


@cases(
    "estimator, change, gone",
    [
        (sk.SparseBayesianRegressor(), {"hidden_layer_sizes": 2}, {"coef_", "intercept_"}),
        (
            sk.SparseBayesianRegressor(hidden_layer_sizes=2),
            {"prior": sk.SpikeSlab(layers=["weight_2"])},
            {"inclusion_probability_"},
        ),
        (
            sk.BayesianModuleRegressor(nn.Linear(4, 1), prior="spike_slab"),
            {"prior": "normal"},
            {"sigma_", "delta_", "sparsity_", "n_effective_parameters_"},
        ),
    ],
)
def test_what_only_an_earlier_fit_has_is_gone(estimator, change, gone):
    """Coefficients of a linear model remained after a fit with hidden units."""
    estimator = clone(estimator).set_params(**TINY).fit(X, Y)
    assert gone <= vars(estimator).keys()
    estimator.set_params(**change).fit(X, Y)
    assert not gone & vars(estimator).keys()


def test_likelihoods_of_the_users_own_are_the_same_after_loading():
    reg = sk.BayesianMLPRegressor(hidden_layer_sizes=3, likelihood=sk.TorchLikelihood(own), **TINY)
    expected = reg.fit(X, Y).predict(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(reg)).predict(X), expected)
