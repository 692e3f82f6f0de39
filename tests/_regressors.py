"""Regressors of several likelihoods with budgets of seconds, for the tests of their methods."""

from __future__ import annotations

import numpy as np

from skbayes_sgmcmc import BayesianMLPRegressor, StudentT

SMALL = {
    "hidden_layer_sizes": 6, "n_chains": 2, "n_draws": 20, "burn_in": 200, "thinning": 2,
    "random_state": 0, "prior_scale": "fan_in", "sampler": "psgld", "dtype": "float64",
}  # fmt: skip
KINDS = {
    "heteroscedastic": {"noise": "heteroscedastic"},
    "student_t": {"likelihood": "student_t"},
    "given scale": {"likelihood": "student_t", "noise": 0.4},
    "given df": {"likelihood": StudentT(df=4.0)},
    "poisson": {"likelihood": "poisson"},
    "negative_binomial": {"likelihood": "negative_binomial"},
}
COUNTS = ("poisson", "negative_binomial")


def small(name, **parameters):
    return BayesianMLPRegressor(**(SMALL | KINDS[name] | parameters))


def problem(name, n=60):
    """Two outputs of unlike sizes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    f = np.column_stack([X[:, 0], 0.5 * X[:, 1] + 3.0])
    if name in COUNTS:
        return X, rng.poisson(np.exp(f) * rng.gamma(2.0, 0.5, (n, 2))).astype(float)
    return X, (f + 0.3 * np.exp(X[:, [2]]) * rng.standard_t(5, (n, 2))) * [1.0, 50.0] - 7.0


def noise_sds(s):
    """Sds of heteroscedastic noise for outputs s, in units of y's sd: linear from this sd on."""
    t = s + np.log(0.3)
    return 1e-3 + np.where(t > 0.0, 1.0 + t, np.exp(t))


def mean_counts(f, y):
    """Means of counts for outputs f of networks: linear from one sd of y above its mean on."""
    bend = np.log1p(y.std(0) / y.mean(0))
    return y.mean(0) * np.exp(np.minimum(f, bend)) * (1.0 + np.maximum(f - bend, 0.0))
