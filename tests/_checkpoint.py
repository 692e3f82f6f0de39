"""Fits whose checkpoints the tests read, and how they are compared."""

import io
import re
from contextlib import redirect_stdout

import numpy as np
from sklearn.datasets import make_classification

from skbayes_sgmcmc import BayesianLogisticRegression, MixingDistance
from skbayes_sgmcmc.samplers import PSGLD
from skbayes_sgmcmc.schedules import Exponential, Polynomial

#: steps of a chunk, set by ``limits(chunk_steps=CHUNK)``. Files hold the state between two chunks
CHUNK = 64
#: name -> parameters of a fit of 2.5 chunks of burn-in and 4 of draws, and the share after which it
#: dies: behind the first or the fourth chunk
FITS = {
    "default": ({}, 0.6),
    "minibatches": ({"step_size": 0.1, "batch_size": 20, "compiled": False}, 0.6),
    "compiled": ({"step_size": 0.1, "batch_size": 20}, 0.6),
    "sghmc": ({"sampler": "sghmc", "integrator": "baoab", "step_size": 0.1}, 0.6),
    "msgnht": ({"sampler": "msgnht", "dtype": "float32"}, 0.6),
    "psgld in burn-in": ({"sampler": PSGLD(divergence=True), "step_size": 0.1}, 0.1),
    "psgld after it": ({"sampler": "psgld", "step_size": 0.1}, 0.6),
    "mala": ({"sampler": "mala"}, 0.6),
    "schedule": ({"step_size": Polynomial(first=0.3, last=0.01), "sampler": "sghmc"}, 0.6),
    "mixing distance": (
        {
            "step_size": Polynomial(first=0.3, last=0.01),
            "thinning": MixingDistance(n_steps=6 * CHUNK, distance=0.25),
            "compiled": False,
        },
        0.6,
    ),
    "mixing distance found": (  # the step size when burn-in ends: later ones are far smaller
        {
            "step_size": Exponential(first=0.3, last=0.001),
            "thinning": MixingDistance(n_steps=6 * CHUNK),
            "compiled": False,
        },
        0.6,
    ),
}


#: between them all that a file holds: row numbers, weights, momenta, distances
QUICK = ("minibatches", "schedule", "mixing distance", "mixing distance found")


def data():
    return make_classification(200, 5, random_state=0)


def make(name, path=None):
    length = {"burn_in": 5 * CHUNK // 2, "n_draws": 2 * CHUNK, "thinning": 2}
    return BayesianLogisticRegression(
        **(length | {"n_chains": 2, "random_state": 0, "checkpoint": path} | FITS[name][0])
    )


def steps_told(estimator, *data):
    """The steps that a fit takes, in portions: the last of each, as ``verbose`` prints them."""
    with redirect_stdout(io.StringIO()) as text:
        estimator.set_params(verbose=1).fit(*data)
    return [int(step) for step in re.findall(r"step (\d+) of", text.getvalue())]


def assert_same(a, b):
    for name in ("coef", "intercept"):
        np.testing.assert_array_equal(a.posterior_[name], b.posterior_[name])
    assert (a.posterior_.weights is None) == (b.posterior_.weights is None)
    if a.posterior_.weights is not None:
        np.testing.assert_array_equal(a.posterior_.weights, b.posterior_.weights)
    for name, values in a.posterior_.statistics.items():
        np.testing.assert_array_equal(values, b.posterior_.statistics[name])
