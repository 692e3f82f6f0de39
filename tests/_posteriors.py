"""Fitted estimators with other draws than their own, and what two fits have in common."""

import numpy as np

from skbayes_sgmcmc import PosteriorSamples


def assert_same_draws(a, b, *, rtol=0.0, atol=0.0):
    """The draws of two fits, of all parameters."""
    assert a.posterior_.draws.keys() == b.posterior_.draws.keys()
    for name, values in a.posterior_.draws.items():
        np.testing.assert_allclose(b.posterior_[name], values, rtol, atol, err_msg=name)


def with_posterior(estimator, draws=slice(None), chains=slice(None), weights=None):
    """A copy of an estimator with some of its draws."""
    old = estimator.posterior_
    weights = old.weights if weights is None else weights
    return with_draws(
        estimator,
        {name: values[chains, draws] for name, values in old.draws.items()},
        None if weights is None else weights[draws],
    )


def with_draws(estimator, draws, weights=None):
    """A copy of an estimator with the given draws, (chains, draws, *shape) by name."""
    copy = type(estimator)(**estimator.get_params())
    vars(copy).update(vars(estimator))
    copy.posterior_ = PosteriorSamples(draws, weights)
    return copy
