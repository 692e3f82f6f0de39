"""Predictions of small networks against long NUTS runs of the same posteriors.

The references are those of examples/benchmarks/network_truth.py, whose page has all eight networks
and all samplers. Here are those whose data come with scikit-learn or with a seed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from _seeds import as_given

from skbayes_sgmcmc._data.kept_rows import KeptRows
from skbayes_sgmcmc._engine.target import Target

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "benchmarks"))
import _network_truth as truth

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

NAMES = [name for name in truth.CASES if name not in truth.IN_FILE and truth.stored(name)]


def load(name):
    """The data of the references, whatever is added to other seeds."""
    with as_given():
        return truth.load(name)


def target_of(name):
    """The target of a fit of the case's estimator."""
    X, y, _, _ = load(name)
    estimator = truth.estimator(name)
    estimator.n_features_in_ = X.shape[1]
    if truth.CASES[name].noise is None:
        several = [np.unique(labels) for labels in y.T] if y.ndim == 2 else None
        estimator.classes_ = np.unique(y) if several is None else several
        model, given = estimator._make_model(KeptRows(X, y), first=True), y
    else:
        estimator._y_shape = y.shape[1:]
        y = y.reshape(len(y), -1)
        model = estimator._make_model(KeptRows(X, y), first=True)
        given = estimator._targets(y)
    data = model.make_data(estimator._inputs(X), given, None, torch.float64, "cpu")
    return Target(model.bound(data), data)


@pytest.mark.parametrize("name", NAMES)
def test_references_have_the_density_of_the_estimator(name):
    """At four positions, up to a constant, to 1e-7: log densities of hundreds, from other code.

    Scales that are learned are integrated out by two different quadratures.
    """
    reference = truth.Reference(name)
    target = target_of(name)
    found = target.log_joint_of_rows(reference.last, target.data.n_rows)
    differences = found - found[0], reference.log_density - reference.log_density[0]
    np.testing.assert_allclose(*differences, rtol=0, atol=1e-7)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("sampler", "thinning"), [pytest.param("sgld", 400, marks=pytest.mark.slow), ("sghmc", 20)]
)
@pytest.mark.parametrize("name", [name for name in ("toy", "wine", "two_labels") if name in NAMES])
def test_predictions_are_those_of_nuts(name, sampler, thinning):
    """In the median over the rows: means within 0.25 sd, sds within a factor of 1.25.

    These are the project's targets. The step size is the one that the chains find: with ten times
    the wanted energy error, the sds of SGHMC are 4 times too large on the toy. Four chains of 100
    draws have an effective size of 100 or more, so MCSEs of 0.1 sd and 7%, and less in the median
    over rows; with 20 steps between draws, four runs of SGLD on the toy were away by up to 0.42 sd.
    """
    X, y, X_new, _ = load(name)
    reference = truth.Reference(name)
    model = truth.estimator(
        name, sampler=sampler, init=reference.last, batch_size=len(X), burn_in=1000,
        thinning=thinning, n_draws=100, random_state=0,
    ).fit(X, y)  # fmt: skip
    ours = truth.Moments.of(truth.predictions(model, X_new)).pooled()
    mean, sd = truth.differences(ours, reference.chains.pooled())
    assert mean < 0.25
    assert 0.8 < sd < 1.25
