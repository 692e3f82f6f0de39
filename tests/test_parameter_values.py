"""Every parameter of every estimator has a check, which names it and comes before any work."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import joblib
import numpy as np
import pytest
from _cases import cases
from _links import section_of
from test_parameters import ESTIMATORS
from torch import nn

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianICA,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    DeepPoissonFactorAnalysis,
    DistilledClassifier,
    LatentDirichletAllocation,
    SparseBayesianRegressor,
    sample,
)
from skbayes_sgmcmc.models import DensityModel
from skbayes_sgmcmc.samplers import MCLMC, PSGLD, SGNHT
from skbayes_sgmcmc.schedules import Exponential, MultiStep

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

RUN = {"n_draws": 4, "burn_in": 2, "thinning": 1, "n_chains": 2, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 4))
LABELS = np.arange(20) % 2


def module(n_features, n_outputs):
    return nn.Linear(n_features, n_outputs)


def made(name):
    kind = ESTIMATORS[name]
    own = {"module": module} if "Module" in name else {}
    if name == "BayesianCNNClassifier":
        own = {"image_shape": (1, 2, 2), "kernel_size": 1}
    return kind(**own).set_params(**RUN)


def data(name):
    if "Regressor" in name:
        return X, X[:, 0]
    return (X if "Classifier" in name or "Regression" in name or "ICA" in name else
            RNG.poisson(2.0, (20, 4))), LABELS  # fmt: skip


# wrong types --------------------------------------------------------------------------------------

WRONG = {
    "text": "no such value",
    "nothing": None,
    "true": True,
    "zero": 0,
    "half": 0.5,
    "whole": 3,
    "negative": -2.5,
    "nan": float("nan"),
    "list": ["no such value"],
    "object": object(),
    "date": np.datetime64("2020-01-01"),
    "duration": np.timedelta64(3, "s"),
    "decimal": Decimal("1"),
    "ragged": [[1, 2], [3]],
    "array": np.array(["sgld", "auto"]),
    "beyond int32": -(2**31) - 1,
    "beyond int64": -(10**30),
    "beyond float": -(10**400),
}

#: what parameters accept beside refusing the rest; the docstrings say so, or it is harmless
NUMBER, COUNT = {"half", "whole"}, {"whole"}
ACCEPTED = {
    "prior_scale": NUMBER,
    "step_size": NUMBER,
    "temperature": NUMBER | {"zero", "true"},
    "noise": NUMBER,
    "exposure": {"nothing"},
    "offset": {"zero", "whole", "nothing"},
    "n_trials": {"nothing"},
    "groups": {"zero", "whole", "nothing"},
    "group_slopes": {"nothing"},
    "group_scale": NUMBER,
    "topic_word_prior": NUMBER | {"nothing"},
    "doc_topic_prior": NUMBER | {"nothing"},
    "total_samples": NUMBER | {"nothing"},
    "success_probability": {"half", "nothing"},
    "r_rate": NUMBER,
    "network_scale": NUMBER,
    "prior_center": {"zero"},
    "prior_mean": NUMBER | {"zero", "negative", "beyond int32"},
    "threshold": {"zero", "half"},
    "prune": {"zero", "half", "nothing"},
    "hidden_layer_sizes": COUNT,
    "conv_channels": COUNT,
    "kernel_size": COUNT,
    "pool_size": COUNT,
    "n_components": COUNT | {"nothing"},
    "batch_size": COUNT,
    "n_chains": COUNT,
    "n_draws": COUNT,
    "burn_in": COUNT | {"zero"},
    "thinning": COUNT,
    "max_steps": COUNT | {"nothing"},
    "validation_fraction": {"half"},
    "doc_sweeps": COUNT | {"zero"},
    "random_state": COUNT | {"zero", "nothing"},
    "n_jobs": COUNT | {"nothing"},
    "n_workers": COUNT | {"zero"},
    "verbose": COUNT | {"zero", "true"},  # as in scikit-learn
    "categorical_features": {"nothing"},
    "standardize": {"true"},
    "fit_intercept": {"true"},
    "whiten": {"true"},
    "calibrate": {"true"},
    "warm_start": {"true"},
    "compiled": {"true"},
    "class_weight": {"nothing"},
    "augment": {"nothing"},
    "image_shape": {"nothing"},
    "input_shape": {"nothing"},
    "student": {"whole", "nothing"},
    "n_epochs": COUNT,
    "learning_rate": NUMBER,
    "perturbation": NUMBER | {"zero"},
    "storage": {"nothing"},
    "checkpoint": {"nothing", "text"},  # any text is a file name
    "preconditioner": {"nothing"},
    "init": {"zero", "half", "whole", "negative", "beyond int32", "beyond int64"},  # they broadcast
}


def faults(make, *rows):
    """Values of wrong types that a fit accepts, or refuses without their name or their section.

    The section is that of docs/warnings.md which explains the error.
    """
    found = []
    for parameter in make().get_params(deep=False):
        for word in sorted(WRONG.keys() - ACCEPTED.get(parameter, set())):
            estimator, error = make().set_params(**{parameter: WRONG[word]}), None
            try:
                estimator.fit(*rows)
            except Exception as raised:  # all but those that name the parameter are faults
                error = raised
            named = isinstance(error, ValueError) and parameter in str(error)
            if not named or section_of(error) is None:
                found.append((parameter, word, repr(error)))
    return found


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_parameter_refuses_values_of_wrong_types(name, tmp_path, monkeypatch):
    """A ``ValueError`` that names it, for 18 values of each parameter but those it may take."""
    monkeypatch.chdir(tmp_path)
    wrong = faults(partial(made, name), *data(name))
    assert not wrong, "\n" + "\n".join(map(str, wrong))


def test_every_parameter_of_distillation_refuses_values_of_wrong_types():
    """As above; its checks come before the teacher is fitted, which here would take too long."""
    teacher = BayesianLogisticRegression(n_draws=10**9)
    wrong = faults(partial(DistilledClassifier, teacher), X, LABELS)
    assert not wrong, "\n" + "\n".join(map(str, wrong))


# numbers out of range -----------------------------------------------------------------------------

HUGE = (10**7, 10**7)


@cases("sampler", ["sgld", "psgld", "sghmc", "sgnht", "msgnht"])
@cases("dtype", ["float32", "float64"])
@cases(
    "parameter, value",
    [
        ("step_size", 1e300),
        ("step_size", 5e-324),
        ("temperature", 1e300),
        ("temperature", 5e-324),
        ("step_size", Exponential(0.1, rate=1e30)),
        ("step_size", MultiStep(0.1, milestones=(1,), factor=1e-100)),
    ],
)
def test_steps_and_temperatures_beyond_float32_are_refused(sampler, dtype, parameter, value):
    """They were RuntimeErrors of torch, or divisions by zero, in one of these samplers or both."""
    run = RUN | {"step_size": 1e-3} | {parameter: value}
    network = BayesianMLPClassifier(hidden_layer_sizes=5, sampler=sampler, dtype=dtype, **run)
    with pytest.raises(ValueError, match=rf"^{parameter}=.* is not allowed: .*1e\+18"):
        network.fit(X, LABELS)


@cases(
    "kind, parameter, value, message",
    [
        (BayesianLogisticRegression, "prior_scale", 1e-300, r"\[1e-15, 1e\+15\]"),
        (BayesianLogisticRegression, "prior_scale", "fan_in", "a positive number, or an array"),
        (BayesianLogisticRegression, "prior_scale", [1.0, 1e300], "a positive number, or an array"),
        (BayesianLogisticRegression, "prior_scale", np.ones(4, bool), "a positive number, or an"),
        (BayesianMLPClassifier, "prior_scale", ["1", "2"], "one number a layer"),
        (BayesianMLPClassifier, "prior_scale", 1e-300, r"\[1e-15, 1e\+15\]"),
        (BayesianMLPClassifier, "prior_scale", (1.0, 1e-300), "one number a layer"),
        (BayesianICA, "prior_scale", 1e300, r"\[1e-15, 1e\+15\]"),
        (BayesianMLPClassifier, "burn_in", 10**19, "at most 1000000000000"),
        (BayesianMLPClassifier, "thinning", 10**19, "at most 1000000000000"),
        (BayesianMLPClassifier, "n_draws", 10**19, "at most 1000000000000"),
        (BayesianMLPClassifier, "validation_fraction", 0.0, r"give a number in \(0, 1\)"),
        (BayesianMLPRegressor, "validation_fraction", 1.0, r"give a number in \(0, 1\)"),
        (BayesianMLPClassifier, "max_steps", 10**19, "at most 1000000000000"),
        (BayesianLogisticRegression, "max_steps", 0, "at least 1"),
        (BayesianLogisticRegression, "n_jobs", 0, "give None, a whole number"),
        (BayesianLogisticRegression, "n_jobs", 2**31, "at most 2147483647"),
        (BayesianLogisticRegression, "n_jobs", 10**30, "at most 2147483647"),
        (BayesianMLPClassifier, "n_chains", 10**19, "at most 1000000"),
        (BayesianMLPRegressor, "n_chains", 10**30, "at most 1000000"),
        (BayesianMLPClassifier, "prior_scale", 10**400, r"\[1e-15, 1e\+15\]"),
        (BayesianMLPRegressor, "noise", 1e300, r"\[1e-150, 1e\+150\]"),
        (BayesianMLPRegressor, "noise", 1e-300, r"\[1e-150, 1e\+150\]"),
        (
            BayesianMLPRegressor,
            "noise",
            1e100,
            r"it is .* times the spread of y, .*; give a number",
        ),
        (LatentDirichletAllocation, "doc_topic_prior", 1e39, r"\[1e-15, 1e\+15\]"),
        (LatentDirichletAllocation, "topic_word_prior", 1e30, r"\[1e-15, 1e\+15\]"),
        (LatentDirichletAllocation, "topic_word_prior", 1e-300, r"\[1e-15, 1e\+15\]"),
        (LatentDirichletAllocation, "n_components", 10**12, "at most 1000000"),
        (LatentDirichletAllocation, "doc_sweeps", 10**30, "at most 1000000"),
        (LatentDirichletAllocation, "prior_mean", -1e300, r"\[-1e\+15, 1e\+15\]"),
        (DeepPoissonFactorAnalysis, "topic_word_prior", 1e30, r"\[1e-15, 1e\+15\]"),
        (DeepPoissonFactorAnalysis, "network_scale", 1e300, r"\[1e-15, 1e\+15\]"),
        (DeepPoissonFactorAnalysis, "network_scale", 1e-300, r"\[1e-15, 1e\+15\]"),
        (DeepPoissonFactorAnalysis, "r_rate", 10**30, r"\[1e-15, 1e\+15\]"),
        (DeepPoissonFactorAnalysis, "n_components", (3, 10**12), "at most 1000000"),
        (DeepPoissonFactorAnalysis, "doc_sweeps", 10**30, "at most 1000000"),
        (DeepPoissonFactorAnalysis, "gamma_prior", (1.0, 1e300), r"\[1e-15, 1e\+15\]"),
        (BayesianLogisticRegression, "init", 1e300, r"between -1e\+15 and 1e\+15"),
        (BayesianMLPRegressor, "init", -(10**30), r"between -1e\+15 and 1e\+15"),
    ],
)
def test_values_beyond_their_range_are_refused_by_name(kind, parameter, value, message):
    estimator = kind(**(RUN | {"step_size": 1e-3} | {parameter: value}))
    with pytest.raises(ValueError, match=rf"^{parameter}.* is not allowed: .*{message}"):
        estimator.fit(*data(kind.__name__))


@cases(
    "parameter, value, message",
    [
        ("step_size", "fast", "'auto' or a number"),
        ("batch_size", "all", "'auto' or a whole number"),
        ("n_draws", "many", "'auto' or a whole number"),
        ("burn_in", -1, "'auto' or a whole number"),
        ("thinning", "fast", "'auto' or a whole number"),
        ("max_steps", "auto", "None or a whole number"),
        ("total_samples", "auto", "None or a number"),
        ("hidden_layer_sizes", "fast", "'auto' or a whole number"),
        ("sampler", MCLMC(length="fast"), "'auto' or a number"),
        ("sampler", SGNHT(mass=[1.0, 2.0]), "'auto' or a number"),
        ("sampler", PSGLD(cap="auto"), "None or a number"),
    ],
)
def test_words_that_are_allowed_are_named(parameter, value, message):
    """Only numbers were, or only after "auto" was compared with an array."""
    clf = BayesianMLPClassifier(**{"hidden_layer_sizes": 5} | RUN | {parameter: value})
    with pytest.raises(ValueError, match=rf"^{parameter}.* is not allowed: give {message}"):
        clf.fit(X, LABELS)


def test_parts_of_values_name_no_word_of_the_whole():
    clf = BayesianMLPClassifier(step_size=Exponential(-1.0, rate=0.9), **RUN)
    with pytest.raises(ValueError, match=r"^step_size\.first=-1\.0 is not allowed: give a number"):
        clf.fit(X, LABELS)


@pytest.mark.parametrize("value", [1e-300, 1e300])
def test_totals_of_a_stream_beyond_their_range_are_refused(value):
    clf = BayesianMLPClassifier(hidden_layer_sizes=5, total_samples=value, **RUN)
    with pytest.raises(ValueError, match=r"^total_samples=.* is not allowed: .*\[1e-15, 1e\+15\]"):
        clf.partial_fit(X, LABELS)


@cases("value", [1e300, 1e-300, -1.0, float("nan")])
def test_class_weights_that_are_no_weights_of_rows_are_refused(value):
    """1e300 was accepted; the same as sample_weight was not."""
    clf = BayesianLogisticRegression(class_weight={0: value, 1: 1.0}, **RUN)
    message = r"^class_weight is not allowed: class 0 has the weight .*; give 0, or numbers between"
    with pytest.raises(ValueError, match=message):
        clf.fit(X, LABELS)


def test_as_many_workers_start_as_there_are_groups_of_chains(replaced):
    """With n_jobs=1000 a pool of 1000 processes was started for two chains."""
    started = []

    class Counted(joblib.Parallel):
        def __init__(self, n_jobs):
            started.append(n_jobs)
            super().__init__(n_jobs=n_jobs, backend="sequential")

    replaced("Parallel", Counted)
    BayesianLogisticRegression(**(RUN | {"n_jobs": 2**31 - 1})).fit(X, LABELS)
    assert started == [2]


def log_density(theta):
    return -0.5 * theta.square().sum(1)


@cases(
    "parameter, value, message",
    [
        ("target", 3, "give a function"),
        ("target", DensityModel, "give a function .*, or a Model"),
        ("data", 3, "give .*Data, or None"),
        ("gradient_of_potential", 3, "give a function, or None"),
        ("on_progress", 3, "give a function, or None"),
        ("init", "bad", "give one of 'random', 'map'"),
        ("init", "gaussian", "give one of 'random', 'map'"),
        ("init", WRONG["date"], "give 'random', 'map' or an array of finite numbers"),
        ("init", WRONG["decimal"], "give 'random', 'map' or an array of finite numbers"),
        ("init", ["1.0", "2.0"], "give 'random', 'map' or an array of finite numbers"),
        ("integrator", WRONG["array"], "give 'auto'"),
        ("n_jobs", 2**31, "at most 2147483647"),
        ("n_chains", 10**19, "at most 1000000"),
    ],
)
def test_sample_names_what_it_refuses(parameter, value, message):
    some = {"target": log_density, "n_parameters": 2, "n_draws": 4, "burn_in": 2}
    with pytest.raises(ValueError, match=rf"(?s)^{parameter}=.* is not allowed.*{message}"):
        sample(**(some | {parameter: value}))


def test_products_of_draws_and_thinning_are_limited():
    network = BayesianMLPClassifier(**(RUN | {"thinning": 10**12}))
    message = r"^n_draws=4 is not allowed with thinning=10+ and burn_in=2: .*4e\+12"
    with pytest.raises(ValueError, match=message):
        network.fit(X, LABELS)


@pytest.mark.parametrize("sampler", ["sgld", "psgld", "sgnht"])
def test_weights_that_are_no_counts_are_refused(sampler):
    """1e30 with sgnht in a stream had steps of no size; sums of such weights lose whole rows."""
    network = BayesianMLPClassifier(hidden_layer_sizes=5, sampler=sampler, dtype="float32", **RUN)
    with pytest.raises(ValueError, match=r"^sample_weight has a value of 1e\+30, more than 1e\+15"):
        network.partial_fit(X, LABELS, sample_weight=np.full(20, 1e30))


@cases(
    "network",
    [
        BayesianMLPClassifier(hidden_layer_sizes=HUGE),
        BayesianMLPRegressor(hidden_layer_sizes=HUGE),
        SparseBayesianRegressor(hidden_layer_sizes=HUGE),
        BayesianCNNClassifier(hidden_layer_sizes=HUGE, image_shape=(1, 2, 2), kernel_size=1),
    ],
)
def test_networks_beyond_the_memory_are_refused_before_any_allocation(network):
    """728 TiB for the prior alone."""
    message = r"^a network of 1e\+14 parameters is not allowed here: .*GiB are free; give smaller"
    with pytest.raises(ValueError, match=message):
        network.set_params(**RUN).fit(X, LABELS)
