"""Compiled steps of SGHMC on linear models take the steps of torch, for every likelihood."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from _cases import cases

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, StudentT
from skbayes_sgmcmc.models.likelihoods.base import Gaussian
from skbayes_sgmcmc.models.likelihoods.binomial import Binomial
from skbayes_sgmcmc.models.likelihoods.counts import NegativeBinomial, Poisson
from skbayes_sgmcmc.models.likelihoods.gamma import Gamma
from skbayes_sgmcmc.models.likelihoods.student import StudentNoise
from skbayes_sgmcmc.models.likelihoods.survival import Weibull
from skbayes_sgmcmc.samplers import SGHMC

pytest.importorskip("numba")
from skbayes_sgmcmc._kernels.slopes import SLOPES


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")  # chains too short to mix
@cases("n_rows, width", [(30, 1), (9, 3), (150, 5), (40, 67)])
@cases("size", [1e-3, 1e3])
@cases(
    "settings",
    [
        {},
        {"sampler": SGHMC(friction=0.0), "fit_intercept": False},
        {"sampler": SGHMC(diffusion=0.5), "prior_scale": 3.0, "temperature": 0.5},
        {"prior_scale": "learned"},
    ],
)
def test_steps_with_momentum(n_rows, width, size, settings):
    """Draws of a fit are those of torch, but for the rounding of a few steps in the coefficients.

    Also where nearly all rows are certain (``size``), with weights, and without friction.
    """
    rng = np.random.default_rng(width)
    X, y = size * rng.normal(size=(n_rows, width)), np.arange(n_rows) % 2
    weight = rng.uniform(0.5, 2.0, n_rows) if width == 5 else None
    common = {"sampler": "sghmc", "batch_size": n_rows, "n_draws": 12, "burn_in": 8, "thinning": 1}
    coef = []
    for compiled in ("auto", False):
        model = BayesianLogisticRegression(
            **(common | settings), n_chains=2, compiled=compiled, random_state=0
        ).fit(X, y, sample_weight=weight)
        assert model.compiled_ == (("linear_momentum",) if compiled else ())
        coef.append(model.posterior_["coef"])
    np.testing.assert_allclose(*coef, rtol=1e-7, atol=1e-9 * np.abs(coef[0]).max())


#: likelihoods, and parameters of fits whose first column is a number of trials, or an exposure, and
#: whose second column is a group
KINDS = {
    "poisson": {},
    "poisson, given scale": {"prior_scale": 0.5, "fit_intercept": False},
    "poisson, exposure": {"exposure": 0, "temperature": 0.5},
    "binomial": {"n_trials": 0},
    "negative_binomial": {},
    "negative_binomial, exposure": {"exposure": 0},
    "negative_binomial, groups": {"groups": 1, "group_slopes": 2},
    "gamma": {},
    "gamma, offset": {"offset": 0, "prior_scale": 0.5},
    "student_t": {},
    "student_t, given df": {"likelihood": StudentT(df=3.5), "groups": 1},
    "student_t, given noise": {"noise": 0.7, "temperature": 0.5},
    "normal": {"fit_intercept": False},
    "normal, given noise": {"noise": 0.7, "groups": 1, "group_scale": 0.5},
    "log_normal": {},
    "weibull": {"fit_intercept": False},
    "weibull, groups": {"groups": 1},
}


def targets(kind, X, rng):
    """Also numbers at the edges: no success, counts of zero and of thousands, outliers."""
    if kind in ("poisson", "binomial", "negative_binomial"):
        y = np.minimum(rng.poisson(1.0, len(X)), X[:, 0])
        if kind == "negative_binomial":
            y[:2] = 40.0, 3000.0
        return y
    y = rng.standard_normal(len(X))
    y[0] = 30.0 if kind == "student_t" else y[0]
    return y if kind in ("normal", "student_t") else np.exp(y)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")  # chains too short to mix
@cases("name", KINDS)
def test_steps_with_momentum_of_likelihoods(name):
    """The same for other likelihoods: with parameters of their own, of groups, with offsets.

    Rows of those with such parameters have weights, too.
    """
    rng, kind = np.random.default_rng(0), name.partition(",")[0]
    X = rng.uniform(1.0, 2.0, (40, 6))
    X[:, 0] = rng.integers(4, 9, 40)  # as trials, at least as many as successes
    X[:, 1] = rng.integers(0, 7, 40)  # as groups
    y, weight = targets(kind, X, rng), rng.uniform(0.5, 2.0, 40) if "," in name else None
    common = {"sampler": "sghmc", "batch_size": 40, "n_draws": 12, "burn_in": 8, "thinning": 1}
    found = []
    for compiled in ("auto", False):
        model = BayesianGLMRegressor(
            **(common | {"likelihood": kind} | KINDS[name]),
            n_chains=2, compiled=compiled, random_state=0,
        ).fit(X, y, sample_weight=weight)  # fmt: skip
        assert model.compiled_ == (("linear_momentum",) if compiled else ())
        draws = model.posterior_.draws.values()
        found.append(np.concatenate([part.reshape(2, 12, -1) for part in draws], axis=2))
    np.testing.assert_allclose(*found, rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@cases("what", ["groups", "categories"])
def test_steps_with_momentum_of_many_scales(what):
    """The same with sparse coordinates, of many groups, and with a learned scale of each column."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 150 if what == "groups" else 5, 400)
    X = pd.DataFrame({"x": rng.standard_normal(400), "code": code, "z": rng.uniform(0.5, 2.0, 400)})
    given = {"groups": "code", "group_slopes": "x"}
    if what == "categories":
        X["code"], given = X["code"].astype("category"), {"prior_scale": "learned"}
    y, found = rng.gamma(2.0, np.exp(0.1 * code % 1.0 + 0.3 * X["x"])), []
    for compiled in ("auto", False):
        model = BayesianGLMRegressor(
            likelihood="gamma", **given, n_draws=12, burn_in=8, compiled=compiled, random_state=0
        ).fit(X, y)
        assert model.compiled_ == (("linear_momentum",) if compiled else ())
        found.append(model.posterior_.pooled("coef"))
        assert what != "groups" or model.posterior_["effect_code"].shape[2] > 100
        assert what != "categories" or model.posterior_["scale"].shape[2] > 1
    np.testing.assert_allclose(*found, rtol=1e-10, atol=1e-12)


@pytest.mark.slow  # each function is compiled by itself
@cases("name", list(SLOPES))
def test_slopes_of_likelihoods(name):
    """Those of torch, at ordinary numbers and where rows are certain or far off.

    Logarithms of numbers that all rows share are up to 12, where the likelihoods of counts and
    amounts are nearly Poisson and normal.
    """
    rng, n = np.random.default_rng(0), 300
    likelihood = {
        "counts": lambda: Poisson(np.array([2.0])),
        "shares": lambda: Binomial(np.array([0.3])),
        "normal": lambda: Gaussian(1, None),
        "student_t": lambda: StudentNoise(1, None),
        "gamma": lambda: Gamma(np.array([2.0])),
        "negative_binomial": lambda: NegativeBinomial(np.array([2.0])),
        "weibull": lambda: Weibull(np.array([2.0])),
    }[name]()
    z = rng.standard_normal(n) * np.tile([0.1, 1.0, 8.0], n // 3)
    y = {
        "counts": rng.poisson(3.0, n),
        "shares": np.column_stack([rng.binomial(7, 0.4, n), np.full(n, 7)]),
        "negative_binomial": rng.poisson(np.exp(2.0 * rng.standard_normal(n))),
        "gamma": rng.gamma(2.0, 1.0, n),
        "weibull": np.repeat(rng.gamma(2.0, 1.0, n), 2).reshape(n, 2),
    }.get(name, rng.standard_normal(n))
    y = np.reshape(y, (n, -1)).astype(float)
    given, weight = likelihood.compiled(y), rng.uniform(0.5, 2.0, n)
    for size in (-12.0, -3.0, 0.0, 3.0):
        theta = np.full(len(given.own), size) + 0.1 * np.arange(len(given.own))
        of_z, of_own = likelihood.slope(
            torch.from_numpy(z.copy())[None, :, None],
            torch.from_numpy(y),
            torch.from_numpy(theta)[None],
        )
        expected = weight * of_z[0, :, 0].numpy()
        at, sums = z + given.shift, np.zeros(len(theta))
        own = theta + [one.shift for one in given.own]
        target = np.broadcast_to(given.target, n).astype(float)
        SLOPES[name](at, target, weight * given.weight, own, sums, np.empty((2, n)))
        np.testing.assert_allclose(at, expected, rtol=1e-10, atol=1e-10)
        if len(theta):
            by_row = weight[:, None] * of_own[0].numpy()
            bound = 1e-10 * np.abs(by_row).sum(0).max()
            np.testing.assert_allclose(sums, by_row.sum(0), rtol=1e-9, atol=bound)
