"""Linear regressions whose rows are merged: the same likelihood, and the same posterior."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from _cases import cases

from skbayes_sgmcmc import BayesianGLMRegressor
from skbayes_sgmcmc.models.likelihoods.base import Gaussian
from skbayes_sgmcmc.models.linear.glm import GLMModel
from skbayes_sgmcmc.priors import Laplace


def log_likelihoods(model, theta, x, y, weight, offset):
    """Weighted sums over all rows, and how many rows there are."""
    data = model.make_data((x, offset, None), y, weight, torch.float64, "cpu")
    batch = data.all_rows()
    weights = batch.weight if isinstance(batch.weight, torch.Tensor) else torch.ones(batch.size)
    return (model.log_lik(theta, batch) * weights).sum(1).numpy(), data


@cases(
    "case",
    [
        {},
        {"intercept": False},
        {"weighted": True},
        {"weighted": True, "offset": True},
        {"noise": np.array([0.3])},
        {"k": 3},
        {"constant": True},
    ],
)
def test_fewer_rows_have_the_same_likelihood(case, limits):
    """At any parameters, to rounding: sums of squares and the number of rows are all it needs."""
    rng, k, intercept = np.random.default_rng(0), case.get("k", 1), case.get("intercept", True)
    x = rng.standard_normal((500, 6)) * np.logspace(-3, 3, 6) + 10.0
    if case.get("constant"):
        x[:, 2] = x[:, 1]  # no unique least squares either
        x[:, 3] = 4.0
    y = x @ rng.standard_normal((6, k)) + rng.standard_normal((500, k))
    weight = rng.integers(0, 3, 500).astype(float) if case.get("weighted") else None
    offset = rng.standard_normal(500) if case.get("offset") else None
    model = GLMModel(6, Gaussian(k, case.get("noise")), Laplace(), 1.0, intercept)
    theta = torch.from_numpy(rng.standard_normal((20, model.n_parameters)))
    merging = model.merging(x)
    assert merging.merges
    limits(block_numbers=900)  # a hundred rows at a time
    found, fewer = log_likelihoods(merging, theta, x, y, weight, offset)
    expected, data = log_likelihoods(model, theta, x, y, weight, offset)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert fewer.n_rows == 6 + k + intercept and fewer.total == pytest.approx(data.total)


def test_a_table_with_categories_has_the_posterior_of_its_rows():
    """Means within a tenth of an sd and sds within a tenth: five standard errors of 3,000 draws.

    With ``batch_size`` given, steps take the rows as they are.
    """
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, (400, 2))
    X = pd.DataFrame({"x": rng.standard_normal(400), "a": codes[:, 0], "b": codes[:, 1]})
    X = X.astype({"a": "category", "b": "category"})
    y = X["x"] + np.array([0.0, 1.0, 0.0, -1.0, 2.0])[codes[:, 0]] + rng.standard_normal(400)
    fits = [BayesianGLMRegressor(random_state=0, batch_size=n).fit(X, y) for n in ("auto", 400)]
    assert [fit.batch_size_ for fit in fits] == [400, 400]
    one, other = (fit.summary() for fit in fits)
    sd = np.asarray(other["sd"])
    np.testing.assert_allclose((np.asarray(one["mean"]) - other["mean"]) / sd, 0.0, atol=0.1)
    np.testing.assert_allclose(np.asarray(one["sd"]) / sd, 1.0, atol=0.1)
