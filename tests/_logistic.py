"""Quick fits of logistic regression, and whether two have the same draws."""

import numpy as np

from skbayes_sgmcmc import BayesianLogisticRegression

#: where a few thousand steps add up rounding errors of 1e-16
ROUNDING = 1e-8
SMALL = {"n_draws": 50, "n_chains": 2, "random_state": 0}


def small(**parameters):
    return BayesianLogisticRegression(**(SMALL | parameters))


def assert_same_draws(a, b, atol=ROUNDING):
    for name in ("coef", "intercept"):
        np.testing.assert_allclose(a.posterior_[name], b.posterior_[name], rtol=0, atol=atol)
