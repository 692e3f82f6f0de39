"""What many rows change: a part stands for them, few passes correct it, and steps are longer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit
from test_stored_rows import Table

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._data.minibatch import Minibatches
from skbayes_sgmcmc._engine.target import Coordinates, Evaluator, Target
from skbayes_sgmcmc.models._linalg import inverse_root
from skbayes_sgmcmc.models.likelihoods.counts import Poisson
from skbayes_sgmcmc.models.linear.glm import GLMModel
from skbayes_sgmcmc.models.linear.logistic import LogisticModel
from skbayes_sgmcmc.priors import Normal

N, P = 30_000, 8


@pytest.fixture
def many(limits):
    """A tenth of the rows stands for all."""
    limits(part_rows=N // 10)


def problem(rare=0):
    """Standard normal features, and others that are 1 in ``rare`` rows each."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)).astype(np.float32)
    if rare:
        X[:, -2:] = 0.0
        X[:rare, -1] = X[-rare:, -2] = 1.0
    y = (rng.random(N) < expit(X @ np.linspace(-1.0, 1.0, P) - 0.5)).astype(int)
    order = rng.permutation(N)
    return X[order], y[order]


def test_few_passes_over_the_rows(many, limits):
    """Two steps from the fit of a part, with a look at features that it hardly has, and one look
    for the curvature and control variates, where there were six passes. Six more search the table
    for a few rows: for the checks of X (2), the part (2), the size of minibatches, and the pool.
    """
    limits(held_bytes=0, block_numbers=2000 * (P + 1))
    X, y = problem()
    table = Table(X)
    # a learned scale needs the spread of every column, too
    clf = BayesianLogisticRegression(prior_scale=1.0, n_draws=20, burn_in=0, random_state=0)
    with pytest.warns(Warning):
        clf.fit(table, y)
    read = sum(stop - start for start, stop in table.asked)
    assert read <= 9 * N


@pytest.mark.parametrize("rare", [0, 12])
def test_the_centre_and_the_curvature_are_those_of_all_rows(rare, many, monkeypatch):
    """Within 0.05 posterior sds and 5% of the fit that looks at all rows only.

    Of the columns with 12 ones, the part has about one: its curvature there is wrong by a factor of
    several, so that steps with it would go three times too far.
    """
    X, y = problem(rare)
    model = LogisticModel(P, 2, Normal(), 1.0, True)
    data = model.make_data(X, y, None, torch.float64, "cpu")
    part = model.stand_in(data)
    quick = model.fitted(data)
    assert quick.anchor is not None
    monkeypatch.setattr(LogisticModel, "stand_in", lambda self, data: None)
    mean, precision, anchor = model.fitted(data)
    assert anchor is None
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.abs((model.fit_gaussian(part)[0] - mean) / sd).max() > 0.5  # what there is to correct
    np.testing.assert_allclose((quick.mean - mean) / sd, 0.0, atol=0.05)
    ratio = np.sqrt(np.diag(np.linalg.inv(quick.precision))) / sd
    np.testing.assert_allclose(ratio, 1.0, atol=0.05)


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_control_variates_that_were_made_on_the_way_add_up(kind, many):
    """With all rows, gradients with them are exact anywhere, though their centre is another one."""
    X, y = problem()
    if kind == "logistic":
        model = LogisticModel(P, 2, Normal(), 1.0, True)
        data = model.make_data(X, y, None, torch.float64, "cpu")
    else:
        model = GLMModel(P, Poisson(np.ones(1)), Normal(), 1.0, True)
        data = model.make_data(
            (X, None, None), y[:, None].astype(float), None, torch.float64, "cpu"
        )
    center, precision, anchor = model.fitted(data)
    assert anchor is not None and np.abs(anchor.center - center).max() > 0.0
    root = inverse_root(precision / data.total)
    coordinates = Coordinates.from_arrays(center, root, torch.empty(0, dtype=torch.float64))
    gradients = []
    for order in ("minibatch", "linear_control_variates"):
        target = Target(
            model, data, coordinates=coordinates, gradient=order, center=center, anchor=anchor
        )
        rows = Minibatches(target.data, N)
        evaluator = Evaluator(target, rows, ChainRandom([]), {}, split=False)
        evaluator.batch = next(rows.chunk(None, 1, ChainRandom([])))
        phi = torch.from_numpy(np.random.default_rng(1).standard_normal((3, len(center))))
        gradients.append(evaluator.gradient(3.0 * phi / np.sqrt(N)).clone())
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-7)


@pytest.mark.statistical
def test_steps_are_longer_where_the_posterior_is_nearly_normal(many, monkeypatch):
    """Twice as long, so that half as many leave the draws as independent."""
    X, y = problem()
    settings = {"sampler": "sgld", "random_state": 0, "n_draws": 500}
    clf = BayesianLogisticRegression(**settings).fit(X, y)
    assert 0.7 < clf.step_size_ <= 1.0
    assert clf.n_steps_ < 800
    table = clf.summary()
    assert np.min(table["ess"]) > 0.3 * 4 * 500
    monkeypatch.setattr(LogisticModel, "stand_in", lambda self, data: None)
    few = BayesianLogisticRegression(**settings).fit(X, y)
    assert few.step_size_ == pytest.approx(0.5)
    ratio = clf.posterior_["coef"].std((0, 1)) / few.posterior_["coef"].std((0, 1))
    np.testing.assert_allclose(ratio, 1.0, atol=0.15)  # four errors of an sd's ratio
