"""Values of parameters: ordinary ones, allowed ones at the edge, and nonsense.

Nonsense is what ``test_parameter_values.py`` gives to every parameter. The lengths of runs are
short, whatever else is drawn, so that a case takes well under a second.
"""

from __future__ import annotations

import functools
import operator
from decimal import Decimal
from inspect import signature

import numpy as np
import torch
from hypothesis import strategies as st
from test_parameter_values import WRONG
from torch import nn

import skbayes_sgmcmc
from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    Pruning,
    SpikeSlab,
    Storage,
    StudentT,
    TorchLikelihood,
    samplers,
)
from skbayes_sgmcmc import schedules as sch
from skbayes_sgmcmc.priors import Laplace, LearnedScale, Normal
from skbayes_sgmcmc.samplers import TABLE

# modules ------------------------------------------------------------------------------------------


def linear(n_features, n_outputs):
    return nn.Linear(n_features, n_outputs)


def two_layers(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 3), nn.Tanh(), nn.Linear(3, n_outputs))


def in_place(n_features, n_outputs):
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(n_features, n_outputs))


def bounded(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, n_outputs), nn.Softmax(dim=1))


def log_bounded(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, n_outputs), nn.LogSoftmax(dim=1))


def squashed(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, n_outputs), nn.Sigmoid())


def positive(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, n_outputs), nn.Softplus())


def normed(n_features, n_outputs):
    return nn.Sequential(nn.BatchNorm1d(n_features), nn.Linear(n_features, n_outputs))


def not_a_number(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, n_outputs), Root())


class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(-1.0 - x**2)


def no_module(n_features, n_outputs):
    return None


def cauchy(outputs):
    return torch.distributions.Cauchy(outputs[:, 0], 1.0)


# values -------------------------------------------------------------------------------------------

INTEGRATORS = sorted({name for _, cells in TABLE.values() for name in cells})
STEPS = [1e-6, 1e-4, 1e-2, 0.1, sch.Polynomial(0.01, 0.001), sch.Cyclical(0.01, n_cycles=2)]
PRIORS = ["normal", "laplace", Normal(), Laplace(), "gamma", "spike_slab", SpikeSlab()]

ORDINARY = {
    "activation": ["relu", "tanh", "sigmoid"],
    "algorithm": ["sgmcmc", "gibbs"],
    "augment": [None],
    "batch_size": ["auto", 1, 2, 5],
    "burn_in": [0, 1, 5],
    "calibrate": ["auto", False, True],
    "chain_method": ["auto", "vectorized", "sequential"],
    "categorical_features": ["from_dtype", None, [0]],
    "checkpoint": [None, "fuzz.npz"],
    "class_weight": [None, "balanced"],
    "compiled": ["auto", False, True],
    "conv_channels": [(2,), (2, 3), ()],
    "density": ["extended", "logistic"],
    "device": ["auto", "cpu"],
    "doc_sweeps": [0, 1, 3],
    "doc_topic_prior": [None, 0.1, 1.0],
    "dtype": ["auto", "float32", "float64"],
    "estimator": [BayesianLogisticRegression(n_draws=3, burn_in=2, n_chains=2, random_state=0)],
    "exposure": [None, 0],
    "fit_intercept": [True, False],
    "gamma_prior": [(1.0, 1.0), (2.0, 0.5)],
    "gradient": ["auto", "minibatch", "control_variates", "linear_control_variates"],
    "hidden_layer_sizes": [(3,), (3, 2), (), 4],
    "image_shape": [None, (1, 2, 2), (2, 2)],
    "init": ["auto", "module", "random", "map", "gaussian", 0.0],
    "input_shape": [None, (2, 2)],
    "integrator": ["auto", *INTEGRATORS],
    "kernel_size": [1, 2, 3],
    "learning_rate": [1e-3, 0.1],
    "module": [
        linear,
        two_layers,
        in_place,
        bounded,
        log_bounded,
        squashed,
        positive,
        normed,
        nn.Linear(4, 2),
    ],
    "max_steps": [None, 25, 10_000],
    "validation_fraction": [0.15, 1e-6, 0.5, 1.0 - 1e-9],
    "n_chains": [1, 2, 3],
    "n_components": [None, 1, 2, (2, 2), 3],
    "n_draws": [1, 2, 10],
    "n_epochs": [1, 2],
    "n_jobs": [None, 1],
    "n_workers": [0],
    "network_scale": [1.0, 0.1],
    "likelihood": [
        "normal",
        "student_t",
        "poisson",
        "negative_binomial",
        "gamma",
        "binomial",
        "zero_inflated_poisson",
        "zero_inflated_negative_binomial",
        "tweedie",
        "log_normal",
        "weibull",
        StudentT(df=4.0),
        TorchLikelihood(cauchy),
    ],
    "n_trials": [None, 0],
    "groups": [None, 0],
    "group_slopes": [None, 1],
    "group_scale": ["learned", 0.3],
    "noise": ["auto", "infer", "heteroscedastic", 0.5, 1.0],
    "offset": [None, 0],
    "parametrization": ["expanded_mean", "expanded_natural"],
    "perturbation": [0.0, 0.3],
    "pool_size": [1, 2],
    "precision": ["full", "bfloat16"],
    "preconditioner": ["auto", None, "hessian", "diagonal", 1.0],
    "prior": PRIORS,
    "prior_center": [0, "module"],
    "prior_mean": [0.0, 0.1],
    "prior_scale": [
        1.0,
        0.1,
        "fan_in",
        "learned",
        LearnedScale(inputs=True),
        [1.0, 2.0],
        np.ones(4),
    ],
    "prune": [None, 0.5, Pruning(0.8, period=2, interval=1)],
    "r_rate": [1.0, 0.1],
    "random_state": [0, 1, 2**32 - 1],
    "sample_parameters": ["trainable", "all", "last_layer", "*bias"],
    "sampler": [
        "auto",
        *TABLE,
        samplers.PSGLD(adapt="always"),
        samplers.SGHMC(friction=0.5),
        samplers.MCLMC(energy_error=0.01, length=2.0),
    ],
    "standardize": [False, True],
    "step_size": ["auto", "auto", *STEPS],
    "storage": [None, Storage("bfloat16"), Storage("float32", dir="."), Storage("float64")],
    "student": [None, (3,)],
    "success_probability": [None, 0.5],
    "temperature": [1.0, 0.1, 0.0, sch.Exponential(1.0, last=0.1)],
    "thinning": [1, 2, sch.MixingDistance(n_steps=5)],
    "threshold": [0.5, 0.0],
    "topic_word_prior": [None, 0.1],
    "total_samples": [None, 100, 1.5],
    "verbose": [0, False],
    "warm_start": [False, True],
    "whiten": [True, False],
}

EXTREME = {
    "batch_size": [10**9],
    "class_weight": [{0: 0.0, 1: 1.0}, {0: 1e9, 1: 1e-9}, {"no class": 1.0}],
    "conv_channels": [1, (1, 1, 1, 1)],
    "doc_sweeps": [30],
    "doc_topic_prior": [1e-10, 1e10],
    "gamma_prior": [(1e-8, 1e8), (1e8, 1e-8)],
    "hidden_layer_sizes": [(1, 1, 1, 1), (200,)],
    "image_shape": [(3, 10**6, 10**6), (1, 0, 2)],
    "init": [1e10, -1e-10, np.inf, np.zeros(3)],
    "input_shape": [(1, 1), (0,)],
    "kernel_size": [100],
    "learning_rate": [1e10, 1e-10],
    "max_steps": [1, 2, 10**12],
    "validation_fraction": [0.0, 1.0, -0.2, float("nan")],
    "module": [not_a_number, no_module, nn.Linear(2, 2)],
    "n_components": [50, (1, 1, 1), ()],
    "network_scale": [1e-10, 1e10],
    "noise": [1e-10, 1e10],
    "perturbation": [1e10],
    "pool_size": [100],
    "preconditioner": [1e-10, 1e10, np.ones(3)],
    "prior": [SpikeSlab(1e-8, slab_variance=1e8), SpikeSlab(inclusion=1e-9, sigma=1e6)],
    "prior_mean": [-1e6, 1e6],
    "prior_scale": [1e-15, 1e15, [1e-15, 1e15]],
    "prune": [0.0, 0.999],
    "r_rate": [1e-10, 1e10],
    "sampler": [
        samplers.SGHMC(friction=1e-6),
        samplers.SGHMC(friction=1e3),
        samplers.SGNHT(friction=1e3),
        samplers.SGNHT(friction=3.0),
        samplers.MALA(),
        samplers.MCLMC(energy_error=1e-9),
        samplers.MCLMC(length=1e9),
    ],
    "step_size": [1e-30, 1e-10, 1.0, 10.0, 1e5, 1e18, sch.Constant(1e-300), sch.Constant(1e3)],
    "success_probability": [1e-10, 1.0 - 1e-10],
    "temperature": [1e-30, 1e6, 1e18],
    "threshold": [0.999999],
    "topic_word_prior": [1e-10, 1e10],
    "total_samples": [1e-10, 1e18],
}

#: parameters of ``sample`` that estimators do not have
ORDINARY |= {"n_parameters": [1, 2, 5]}
EXTREME |= {"n_parameters": [1000]}

#: for any parameter: beyond float32, float64's squares and int64, and objects that compare oddly
ODD = [
    1e300,
    1e-300,
    1e39,
    -1e300,
    10**30,
    2**31,
    np.datetime64("2020-01-01"),
    Decimal("0.5"),
    [[1.0], [2.0, 3.0]],
    np.ones(3),
    np.array(["text", "text"]),
]
#: a fit may take this number of steps or processes, if it has the time
LONG = {
    "burn_in",
    "doc_sweeps",
    "n_chains",
    "n_draws",
    "n_epochs",
    "n_jobs",
    "n_workers",
    "thinning",
}

#: drawn in every case; parameters that may also be nonsense come on top
LENGTHS = {
    "n_draws": st.integers(1, 10),
    "burn_in": st.integers(0, 10),
    "thinning": st.integers(1, 2),
    "n_chains": st.integers(1, 3),
    "random_state": st.integers(0, 2**32 - 1),
}
#: what makes a model quick, unless it is drawn otherwise; parameters without a default
QUICK = {
    "hidden_layer_sizes": (3,),
    "conv_channels": (2,),
    "kernel_size": 1,
    "module": linear,
    "doc_sweeps": 2,
    "n_epochs": 1,
    "estimator": ORDINARY["estimator"][0],
}
MODELS = {"LatentDirichletAllocation": 3, "DeepPoissonFactorAnalysis": (3, 2)}


def parameters(kind):
    """Values of some of the parameters of an estimator or a function: a strategy of dicts."""
    name, names = kind.__name__, signature(kind).parameters
    always = {key: values for key, values in LENGTHS.items() if key in names}
    quick = {key: value for key, value in QUICK.items() if key in names}
    if name in MODELS:
        quick["n_components"] = MODELS[name]

    def some(table, most):
        rows = {key: st.sampled_from(table[key]) for key in table if key in names}
        return st.lists(st.sampled_from(sorted(rows)), max_size=most, unique=True).flatmap(
            lambda keys: st.fixed_dictionaries({key: rows[key] for key in keys})
        )

    known = [key for key in names if key in ORDINARY]
    wrong = {key: list(WRONG.values()) for key in known}
    odd = {key: [value for value in ODD if not _takes_long(key, value)] for key in known}
    rarely = st.sampled_from([0, 0, 0, 1, 2])
    return st.builds(
        lambda run, *others: functools.reduce(operator.or_, others, quick | run),
        st.fixed_dictionaries(always),
        some(ORDINARY, 5),
        rarely.flatmap(lambda most: some(EXTREME, most)),
        st.sampled_from([0, 0, 0, 0, 0, 1]).flatmap(lambda most: some(wrong, most)),
        st.sampled_from([0, 0, 0, 0, 0, 1]).flatmap(lambda most: some(odd, most)),
    )


def _takes_long(key, value):
    return key in LONG and isinstance(value, int) and value < 10**18


def given(parameters):
    """Names of parameters that an error may name, and of those with a value that is not ordinary.

    Lengths are drawn in every case, so they are no explanation where they are short and positive.
    """
    names, unusual = set(), set()
    for name, value in parameters.items():
        if name in LENGTHS and type(value) is int and 0 < value < 2**32:
            continue
        names.add(name)
        ordinary = [*ORDINARY[name], QUICK.get(name), *MODELS.values()]
        if repr(value) not in {repr(each) for each in ordinary}:
            unusual.add(name)
    return names, unusual


def missing():
    """Parameters of public estimators that have no row here."""
    kinds = [getattr(skbayes_sgmcmc, name) for name in skbayes_sgmcmc.__all__]
    fitted = [kind for kind in kinds if hasattr(kind, "fit")]
    return {key for kind in fitted for key in signature(kind).parameters} - set(ORDINARY)
