"""scikit-learn's own checks, and the failures that are expected.

They include the equivalence of integer sample weights and repeated rows, of sparse and dense X,
and of the order of the rows: with as few rows as the checks have, "auto" takes all of them at every
step, so that these hold to rounding however short the chains are. Networks are in float64, because
their steps let the rounding of single precision grow to all in a few hundred steps.
"""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

import skbayes_sgmcmc as sk

#: chains this short need not mix; what the checks look at does not depend on it
SMALL = {"n_draws": 40, "n_chains": 2, "burn_in": 40, "thinning": 1}
TINY = {"n_draws": 5, "n_chains": 2, "burn_in": 10, "thinning": 1}
SHORT = {"n_draws": 50, "n_chains": 2, "burn_in": 300, "thinning": 2}
SHORTER = {"n_draws": 25, "n_chains": 2, "burn_in": 150, "thinning": 2}
SHORTEST = {"n_draws": 10, "n_chains": 2, "burn_in": 20, "thinning": 1, "doc_sweeps": 2}


class Linear(nn.Linear):
    """A linear model for any data: its steps, by autograd, are the fastest that modules have."""

    def __init__(self, n_features, n_outputs):
        super().__init__(n_features, n_outputs)


#: one of each kind: classifier, regressor, transformer, topic model
ESTIMATORS = [
    sk.BayesianLogisticRegression(**TINY),
    # max_steps bounds the descents to the starts, which would take ten times as long as the chains
    sk.BayesianMLPRegressor(
        hidden_layer_sizes=8,
        dtype="float64",
        n_draws=5,
        n_chains=2,
        burn_in=20,
        thinning=1,
        max_steps=25,
    ),
    sk.BayesianICA(density="logistic", max_steps=15, n_chains=2),
    sk.LatentDirichletAllocation(n_components=3, algorithm="gibbs", n_draws=5, burn_in=5),
]

#: the others, and other ways to draw
OTHERS = [
    sk.BayesianLogisticRegression(sampler="sghmc", integrator="splitting", **SMALL),
    sk.BayesianLogisticRegression(sampler="sgld", step_size=0.1, batch_size=1000, **SHORT),
    # check_class_weight_classifiers gives classes total weights of 0.002 beside one of 20,000: the
    # intercepts, which have no prior, then have an almost improper posterior with a wall on one
    # side, which msgnht's splitting and Euler's steps bounce off too far
    sk.BayesianLogisticRegression(sampler="msgnht", integrator="baoab", **SMALL),
    sk.BayesianGLMRegressor(**SMALL),
    sk.BayesianOrdinalClassifier(**SMALL),
    sk.BayesianICA(**SHORTER),
    sk.BayesianMLPClassifier(hidden_layer_sizes=8, dtype="float64", **SHORT),
    sk.BayesianModuleClassifier(Linear, standardize=True, step_size=0.02, **SHORTER),
    sk.BayesianModuleRegressor(Linear, standardize=True, step_size=0.02, **SHORTER),
    sk.BayesianCNNClassifier(
        conv_channels=4, pool_size=1, hidden_layer_sizes=(), dtype="float64", **SHORT
    ),
    sk.BayesianICA(n_components=1, sampler="mala", **SHORTER),
    sk.SparseBayesianRegressor(step_size=0.01, **SHORT),
    sk.SparseBayesianClassifier(**SHORT),
    sk.SparseBayesianRegressor(hidden_layer_sizes=4, step_size=0.005, **SHORT),
    sk.LatentDirichletAllocation(n_components=3, **SHORTER),
    sk.LatentDirichletAllocation(n_components=3, parametrization="expanded_natural", **SHORTER),
    sk.DeepPoissonFactorAnalysis(n_components=(3, 2), **SHORTEST),
    sk.DeepPoissonFactorAnalysis(n_components=3, parametrization="expanded_natural", **SHORTEST),
    sk.DistilledClassifier(
        sk.BayesianMLPClassifier(hidden_layer_sizes=8, random_state=0, **SHORT),
        n_epochs=30,
        learning_rate=0.01,
    ),
]


def of_kind(estimators):
    return pytest.mark.parametrize("estimator", estimators, ids=lambda one: type(one).__name__)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@of_kind(ESTIMATORS)
def test_scikit_learn_checks(estimator):
    """All of them, and all that fail are reported."""
    reason = "copies of few rows, met exactly, leave no noise: rounding decides where it ends"
    expected = {}
    if isinstance(estimator, sk.BayesianModuleRegressor):
        expected = {"check_sample_weight_equivalence_on_dense_data": reason}
    elif isinstance(estimator, sk.BayesianGLMRegressor):
        expected = {"check_sample_weight_equivalence_on_sparse_data": reason}
    results = check_estimator(
        estimator, expected_failed_checks=expected, on_skip=None, on_fail=None
    )
    assert len(results) > 40  # so that the test can fail
    errors = [one["exception"] for one in results if one["status"] == "failed"]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(results)} checks", errors)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@of_kind(OTHERS)
def test_scikit_learn_checks_of_other_estimators(estimator):
    test_scikit_learn_checks(estimator)
