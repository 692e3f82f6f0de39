"""What does not reach the user: numpy's warnings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from skbayes_sgmcmc import (
    BayesianICA,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    DeepPoissonFactorAnalysis,
    LatentDirichletAllocation,
    SamplingError,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
)
from skbayes_sgmcmc._draws.posterior_samples import PosteriorSamples
from skbayes_sgmcmc.diagnostics import autocorrelation_time, effective_sample_size, mcse, r_hat
from skbayes_sgmcmc.models.ica.model import ICAModel
from skbayes_sgmcmc.priors import Laplace, Normal

CLASSIFIERS = {
    "logistic": BayesianLogisticRegression(),
    "laplace": BayesianLogisticRegression(prior="laplace"),
    "mlp": BayesianMLPClassifier(hidden_layer_sizes=4),
    "sparse": SparseBayesianClassifier(),
}
REGRESSORS = {
    "mlp_regressor": BayesianMLPRegressor(hidden_layer_sizes=4),
    "sparse_regressor": SparseBayesianRegressor(),
}
OTHERS = {
    "ica": BayesianICA(),
    "lda": LatentDirichletAllocation(n_components=2),
    "dpfa": DeepPoissonFactorAnalysis(n_components=(2, 2)),
}
#: cases of each estimator
CASES = 6


def case(name, rng):
    """Rows, targets and parameters, many of them at the edge of what makes sense."""
    n_rows, n_features = int(rng.integers(4, 40)), int(rng.integers(2, 6))
    X = rng.standard_normal((n_rows, n_features)) * 10.0 ** rng.choice([0, 0, -8, 8, -100, 100])
    if rng.random() < 0.3:
        X[:, 0] = rng.choice([0.0, 1.0, 1e8, 1e-30])
    targets = np.arange(n_rows) % 2
    if name in REGRESSORS:
        targets = rng.standard_normal(n_rows) * 10.0 ** rng.choice([0, -8, 8, -100, 100])
    if name in ("lda", "dpfa"):
        X = rng.poisson(1.0, (n_rows, n_features)) + 1
    parameters = {
        "n_draws": int(rng.integers(1, 20)),
        "burn_in": int(rng.integers(0, 20)),
        "thinning": 1,
        "n_chains": int(rng.integers(1, 4)),
        "random_state": 0,
    }
    if rng.random() < 0.5:
        parameters["step_size"] = float(10.0 ** rng.integers(-10, 6))
    if rng.random() < 0.3:
        parameters["temperature"] = float(rng.choice([0.0, 1e-6, 1e6]))
    if rng.random() < 0.5:
        parameters["dtype"] = str(rng.choice(["float32", "float64"]))
    return X, targets, parameters


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS, *OTHERS])
def test_no_warning_of_numpy_reaches_the_user(name):
    """Random fits with predictions and summaries; errors must be the package's own."""
    rng = np.random.default_rng(0)
    made = (CLASSIFIERS | REGRESSORS | OTHERS)[name]
    for _ in range(CASES):
        X, targets, parameters = case(name, rng)
        estimator = type(made)(**(made.get_params(deep=False) | parameters))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                estimator.fit(X, targets)
                if name in REGRESSORS:
                    estimator.predict(X, return_std=True)
                    estimator.predict_interval(X)
                elif name in CLASSIFIERS:
                    estimator.predict_uncertainty(X)
                else:
                    estimator.transform(X)
                estimator.summary()
            except SamplingError:
                continue
            except ValueError as error:
                if "is not allowed" not in str(error):
                    raise


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_figures_of_chains_that_stand_still():
    """Each in another place: R-hat is infinite; without any spread there is nothing to say."""
    apart = PosteriorSamples({"theta": np.repeat([[[0.0]], [[1.0]]], 10, axis=1)})
    assert r_hat(apart, "theta") > 1e3
    for figure in (effective_sample_size, mcse):
        figure(apart, "theta")
    assert np.isnan(autocorrelation_time(np.ones((2, 50))))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("prior", [Normal(), Laplace()])
def test_expectations_far_from_a_prior_have_their_limits(prior):
    mean, sd, rates = np.array([1e200]), np.array([1e-200]), np.ones(1)
    assert prior.expected_potential(mean, sd, rates) >= 1e200
    assert prior.expected_gradient(mean, sd, rates) >= 1.0
    assert prior.expected_curvature(mean, sd, rates) in (0.0, 1.0)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_units_that_float32_lacks_are_infinite_components():
    """The end of a fit refuses them, by an error that gives dtype='float64' as the remedy."""
    model = ICAModel(np.eye(2), Normal(), 1.0, 1e100 * np.eye(2))
    draws = np.tile(np.eye(2, dtype=np.float32).ravel(), (1, 3, 1))
    assert not np.isfinite(model.unpack(draws)["components"]).all()
