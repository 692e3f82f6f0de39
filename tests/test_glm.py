"""Generalised linear models: derivatives, exact posteriors, exposures, weights, bad input."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scipy.stats
import torch
from _cases import cases
from scipy.special import gammaln, ive, log_ndtr

from skbayes_sgmcmc import BayesianGLMRegressor, Storage, StudentT, Tweedie
from skbayes_sgmcmc.models.likelihoods.base import Gaussian
from skbayes_sgmcmc.models.likelihoods.binomial import Binomial
from skbayes_sgmcmc.models.likelihoods.counts import NegativeBinomial, Poisson
from skbayes_sgmcmc.models.likelihoods.gamma import Gamma
from skbayes_sgmcmc.models.likelihoods.student import StudentNoise
from skbayes_sgmcmc.models.likelihoods.survival import LogNormal, Weibull
from skbayes_sgmcmc.models.likelihoods.tweedie import CompoundPoisson
from skbayes_sgmcmc.models.likelihoods.zero_inflated import (
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from skbayes_sgmcmc.models.linear.glm import GLMModel
from skbayes_sgmcmc.models.linear.ordinal import CumulativeLogit
from skbayes_sgmcmc.priors import LearnedScale, Normal

#: budgets too small to mix, on purpose, where draws are only compared with other draws
TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "random_state": 0}
tiny_fits = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

LIKELIHOODS = {
    "normal": lambda: Gaussian(1, None),
    "normal_given": lambda: Gaussian(1, np.array([0.7])),
    "student_t": lambda: StudentNoise(1, None),
    "poisson": lambda: Poisson(np.array([2.0])),
    "negative_binomial": lambda: NegativeBinomial(np.array([2.0])),
    "zero_inflated_poisson": lambda: ZeroInflatedPoisson(np.array([2.0])),
    "zero_inflated_negative_binomial": lambda: ZeroInflatedNegativeBinomial(np.array([2.0])),
    "gamma": lambda: Gamma(np.array([1.0])),
    "tweedie": lambda: CompoundPoisson(np.array([2.0])),
    "log_normal": lambda: LogNormal(np.array([2.0])),
    "weibull": lambda: Weibull(np.array([2.0])),
    "binomial": lambda: Binomial(np.array([0.3])),
    "ordinal": lambda: CumulativeLogit(6),
    "ordinal_two": lambda: CumulativeLogit(2),
    "two_normal": lambda: Gaussian(2, None),
    "two_given": lambda: Gaussian(2, np.array([0.7, 0.4])),
    "two_student_t": lambda: StudentNoise(2, None),
}


def bounds_of_times(y):
    """Of every four times: one that is known, one later, one earlier, and one between two bounds.

    An upper bound of 0 stands for infinity.
    """
    kind = np.arange(len(y)) % 4
    low, high = np.choose(kind, [y, y, 0.0 * y, 0.7 * y]), np.choose(kind, [y, 0.0 * y, y, 1.4 * y])
    return np.column_stack([low, high])


def model_and_data(name, scale=0.8, n=40, offset=True):
    rng = np.random.default_rng(0)
    X, likelihood = rng.standard_normal((n, 3)), LIKELIHOODS[name]()
    size, known = (n, likelihood.n_outputs), None
    y = rng.standard_normal(size)
    if isinstance(likelihood, Poisson):
        y = rng.poisson(2.0, size)
    elif isinstance(likelihood, Gamma):
        y = rng.standard_gamma(2.0, size)
    elif isinstance(likelihood, CompoundPoisson):
        y = rng.standard_gamma(2.0 * rng.poisson(1.5, size))
    elif isinstance(likelihood, LogNormal):
        y = bounds_of_times(rng.standard_gamma(2.0, n))
    elif isinstance(likelihood, Binomial):
        known = rng.integers(0, 6, size).astype(float)
        y = rng.binomial(known.astype(int), 0.4)
    elif isinstance(likelihood, CumulativeLogit):
        y = rng.integers(0, likelihood.n_classes, size)
    model = GLMModel(3, likelihood, Normal(), scale, True)
    shift = 0.3 * rng.standard_normal(n) if offset else None
    weight = rng.uniform(0.5, 2.0, n)
    rows = X, shift, known
    return model, model.make_data(rows, np.asarray(y, float), weight, torch.float64, "cpu")


def potential(model, data):
    batch = data.all_rows()

    def value(theta):
        return -(model.log_lik(theta[None], batch) * batch.weight).sum()

    return value


@cases("scale", [0.8, LearnedScale(5.0, 1.0, False), LearnedScale(5.0, 1.0, True)])
@cases("name", LIKELIHOODS)
def test_gradients_and_curvature_are_those_of_the_density(name, scale):
    """Against autograd; second derivatives are differences over 1e-3, hence their bounds."""
    model, data = model_and_data(name, scale)
    theta = 0.3 * np.random.default_rng(1).standard_normal(model.n_parameters)
    at, value = torch.from_numpy(theta), potential(model, data)
    gradient = torch.autograd.functional.jacobian(value, at).numpy()
    hessian = torch.autograd.functional.hessian(value, at).numpy()
    out = torch.zeros(1, model.n_parameters, dtype=torch.float64)
    model.likelihood_gradient(at[None], data.all_rows(), {}, None, out=out, scale=0.5)
    np.testing.assert_allclose(out[0], 0.5 * gradient, rtol=1e-8, atol=1e-8)
    loss, slope = model._losses(theta, data)
    assert loss == pytest.approx(float(value(at)))
    np.testing.assert_allclose(slope, gradient, rtol=1e-8, atol=1e-8)
    vector = np.random.default_rng(2).standard_normal(len(theta))
    np.testing.assert_allclose(
        model.hessian_times(theta, vector, data), hessian @ vector, rtol=1e-4, atol=1e-3
    )
    scores = model.scores(at[None], data.all_rows()).numpy() * data.weight.numpy()[:, None]
    np.testing.assert_allclose(-scores.sum(0), gradient, rtol=1e-8, atol=1e-8)


# the number of terms of Tweedie's density depends on its parameters, which vmap does not allow
@cases("name", [name for name in LIKELIHOODS if name != "tweedie"])
def test_curvature_is_averaged_over_the_approximation(name):
    """Quadrature and Stein's identity against averages of autograd's Hessians over 4,000 draws.

    Bound: five standard errors of the entries that do not vanish, plus 1% of the largest; 5% with
    more than two own parameters, whose rule is exact for polynomials of low degree only. At eight
    random positions and spreads its errors were 0.3 to 3.6%. Curvatures tune steps, and do not
    change the posterior.
    """
    model, data = model_and_data(name, n=10)
    rng = np.random.default_rng(1)
    theta, size = 0.2 * rng.standard_normal(model.n_parameters), model.n_parameters
    root = 0.15 * np.eye(size) + 0.03 * rng.standard_normal((size, size))
    hessian = torch.func.vmap(torch.func.hessian(potential(model, data)))
    draws = theta + rng.standard_normal((4000, size)) @ root.T
    found = hessian(torch.from_numpy(draws)).numpy()
    slope, curvature = model._expected(theta, root, data)
    gradient, curvature = model._summed(slope, data), model._gram(curvature, data)
    share = 0.01 if model.n_own <= 2 else 0.05
    error = 5.0 * found.std(0) / math.sqrt(4000) + share * np.abs(found.mean(0)).max()
    assert (np.abs(curvature - found.mean(0)) < error).all()
    slopes = torch.func.vmap(torch.func.grad(potential(model, data)))(torch.from_numpy(draws))
    error = 5.0 * slopes.numpy().std(0) / math.sqrt(4000)
    assert (np.abs(gradient - slopes.numpy().mean(0)) < error).all()


@cases("order", [1, 2])
@cases("name", LIKELIHOODS)
def test_control_variates_change_no_gradient_of_all_rows(name, order):
    """What batches leave out is the anchor's sum over all rows."""
    from dataclasses import replace

    model, data = model_and_data(name)
    rng = np.random.default_rng(1)
    center, size = 0.2 * rng.standard_normal(model.n_parameters), model.n_parameters
    anchor = model.anchor(center, data, 0.1 * np.eye(size) if order == 2 else None)
    theta = torch.from_numpy(center + 0.1 * rng.standard_normal(size))[None]
    plain, controlled = torch.zeros_like(theta), torch.zeros_like(theta)
    model.likelihood_gradient(theta, data.all_rows(), {}, None, out=plain, scale=1.0)
    data = replace(data, fields=data.fields | anchor.fields)
    model.likelihood_gradient(theta, data.all_rows(), {}, None, out=controlled, scale=1.0)
    whole = controlled.numpy()[0] + anchor.gradient
    if order == 2:
        whole += anchor.hessian @ (theta.numpy()[0] - center)
    np.testing.assert_allclose(whole, plain[0], rtol=1e-9, atol=1e-9)
    assert np.abs(controlled.numpy()).max() < 0.7 * np.abs(plain.numpy()).max() or order == 1


# exact posteriors ---------------------------------------------------------------------------------


def grid_posterior(log_density, center, sd, n=61):
    """Means and sds of a posterior of three parameters, by sums over a grid of 6 sds each side."""
    axes = [np.linspace(m - 6 * s, m + 6 * s, n) for m, s in zip(center, sd, strict=True)]
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")])
    log_p = log_density(*points)
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = points @ weight
    return mean, np.sqrt(((points - mean[:, None]) ** 2) @ weight)


def ndtri_less(g):
    """log(1 - Phi(g)), for a row of the grid."""
    return log_ndtr(-g)[:, None]


def log_tweedie(y, mean, dispersion):
    """Log densities for the power 1.5, where N amounts are exponential: by Bessel's function."""
    rate, scale = 2.0 * np.sqrt(mean) / dispersion, 0.5 * dispersion * np.sqrt(mean)
    root = np.sqrt(rate * np.where(y > 0.0, y, 1.0) / scale)
    log_bessel = np.log(ive(1.0, 2.0 * root)) + 2.0 * root
    some = log_bessel + np.log(root) - np.log(np.where(y > 0.0, y, 1.0)) - y / scale
    return np.where(y > 0.0, some, 0.0) - rate


def log_of_bounds(law, bounds, location, scale):
    """Log densities of times, or log probabilities of intervals; infinity is 0 here."""
    low, high = bounds.T
    one = law(location, scale)
    log_low, log_high = np.log(np.where(low > 0.0, low, 1.0)), np.log(np.where(high > 0, high, 1.0))
    below = np.where(low > 0.0, one.cdf(log_low), 0.0)
    inside = np.where(high > 0.0, one.cdf(log_high), 1.0) - below
    with np.errstate(divide="ignore"):
        return np.where(low == high, one.logpdf(log_low) - log_low, np.log(inside))


def counts(n=60):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(n)
    return x, rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.5 + 0.6 * x))).astype(float)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("tweedie", "log_normal", "weibull")]


@pytest.mark.statistical
@pytest.mark.parametrize(
    "name",
    ["normal", "student_t", "poisson", "negative_binomial", "zero_inflated_poisson", "gamma",
     "binomial", *SLOW],
)  # fmt: skip
def test_posterior_is_exact(name):
    """One feature, the intercept and at most one parameter of the likelihood, on a grid.

    The bounds of test_posterior_truth.py: means within 0.15 sd, sds within 10%, R-hat at most 1.02.
    """
    if name in ("normal", "student_t"):
        rng = np.random.default_rng(3)
        x = rng.standard_normal(40)
        y = 3.0 + 2.0 * x + rng.standard_t(4.0, 40)
    else:
        x, y = counts()
    rows, trials = x[:, None], y.max()
    columns = {"n_trials": 1} if name == "binomial" else {}
    if name == "binomial":
        rows = np.column_stack([x, np.full(len(x), trials)])
    elif name in ("gamma", "log_normal", "weibull"):
        y = y + 0.5
    bounds = bounds_of_times(y)
    m, targets = y.mean(), y
    if name in ("log_normal", "weibull"):
        targets = np.where([False, True] & (bounds == 0.0), np.inf, bounds)
    kind = {"student_t": StudentT(df=4.0), "tweedie": Tweedie(power=1.5)}.get(name, name)
    reg = BayesianGLMRegressor(likelihood=kind, prior_scale=1.0, random_state=0, **columns)
    posterior = reg.fit(rows, targets).posterior_
    blocks = {"coef": posterior["coef"][:, :, 0], "intercept": posterior["intercept"]}
    own = {"normal": "log_noise", "student_t": "log_noise", "negative_binomial": "log_dispersion",
           "gamma": "log_dispersion", "zero_inflated_poisson": "zero_probit",
           "tweedie": "log_dispersion", "log_normal": "log_sigma",
           "weibull": "log_sigma"}  # fmt: skip
    if name in own:
        blocks["own"] = posterior[own[name]][:, :, 0]
    unit = {"normal": y.std(), "student_t": 1.4826 * np.median(np.abs(y - np.median(y)))}.get(
        name, 1.0
    )

    def log_density(w, b, g=None):
        g = np.zeros_like(w) if g is None else g
        f = w[:, None] * x + b[:, None]
        scale, alpha = 0.3 * unit * np.exp(g)[:, None], 0.3 * np.exp(g)[:, None]
        rows = {
            "normal": lambda: scipy.stats.norm(f, scale).logpdf(y),
            "student_t": lambda: scipy.stats.t(4.0, f, scale).logpdf(y),
            "poisson": lambda: y * f - np.exp(f),
            "gamma": lambda: scipy.stats.gamma(1 / alpha, scale=alpha * np.exp(f)).logpdf(y),
            "binomial": lambda: y * f - trials * np.logaddexp(0.0, f),
            "negative_binomial": lambda: (
                gammaln(y + 1 / alpha) - gammaln(1 / alpha) - (y + 1 / alpha)
                * np.log1p(alpha * np.exp(f)) + y * (np.log(alpha) + f)
            ),
            "zero_inflated_poisson": lambda: np.where(
                y > 0.0, ndtri_less(g) + y * f - np.exp(f),
                np.logaddexp(log_ndtr(g)[:, None], ndtri_less(g) - np.exp(f)),
            ),
            "tweedie": lambda: log_tweedie(y, np.exp(f), np.exp(g)[:, None] * m**0.5),
            "log_normal": lambda: log_of_bounds(scipy.stats.norm, bounds, f, np.exp(g)[:, None]),
            "weibull": lambda: log_of_bounds(scipy.stats.gumbel_l, bounds, f, np.exp(g)[:, None]),
        }[name]()  # fmt: skip
        return rows.sum(1) - 0.5 * (w / unit) ** 2 - 0.5 * g**2

    center = [values.mean() for values in blocks.values()]
    spread = [values.std() for values in blocks.values()]
    mean, sd = grid_posterior(log_density, center, spread, 41 if len(blocks) == 3 else 121)
    for k, values in enumerate(blocks.values()):
        assert abs(values.mean() - mean[k]) <= 0.15 * sd[k]
        assert abs(values.std() / sd[k] - 1.0) <= 0.10
    assert reg.summary()["r_hat"].max() <= 1.02


@pytest.mark.statistical
def test_normal_posterior_is_conjugate():
    """Given noise and a given prior: N(m, V) with V^-1 = X'X / noise^2 + I / scale^2, 12 features.

    The intercept is flat. Bounds as above.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 12)) @ rng.standard_normal((12, 12))
    y = X @ rng.standard_normal(12) + 5.0 + 2.0 * rng.standard_normal(80)
    reg = BayesianGLMRegressor(noise=2.0, prior_scale=0.5, random_state=0).fit(X, y)
    design = np.hstack([X, np.ones((80, 1))])
    precision = design.T @ design / 4.0
    precision[:12, :12] += np.eye(12) / (0.5 * y.std()) ** 2  # of standardised targets
    V = np.linalg.inv(precision)
    mean, sd = V @ design.T @ y / 4.0, np.sqrt(np.diag(V))
    draws = np.concatenate(
        [reg.posterior_["coef"], reg.posterior_["intercept"][:, :, None]], axis=2
    )
    assert np.abs((draws.mean((0, 1)) - mean) / sd).max() <= 0.15
    assert np.abs(draws.std((0, 1)) / sd - 1.0).max() <= 0.10
    found, spread = reg.predict(X[:5], return_std=True)
    row_sd = np.sqrt(4.0 + np.einsum("ij,jk,ik->i", design[:5], V, design[:5]))
    np.testing.assert_allclose(found, design[:5] @ mean, atol=0.15 * row_sd.max())
    np.testing.assert_allclose(spread, row_sd, rtol=0.05)


# rows, exposures, weights -------------------------------------------------------------------------


@tiny_fits
def test_exposures_and_offsets_are_columns():
    """By index and by name; an exposure is an offset of its logarithm, for fits and predictions."""
    x, y = counts()
    exposure = np.random.default_rng(0).uniform(0.5, 4.0, len(x))
    frame = pd.DataFrame({"time": exposure, "dose": x})
    kind = {"likelihood": "poisson", **TINY}
    named = BayesianGLMRegressor(exposure="time", **kind).fit(frame, y)
    index = BayesianGLMRegressor(exposure=0, **kind).fit(frame.to_numpy(), y)
    logs = np.column_stack([np.log(exposure), x])
    offset = BayesianGLMRegressor(offset=0, **kind).fit(logs, y)
    sparse = BayesianGLMRegressor(exposure=0, **kind).fit(sp.csr_matrix(frame.to_numpy()), y)
    for other in (index, offset, sparse):
        np.testing.assert_allclose(
            other.posterior_["coef"], named.posterior_["coef"], rtol=1e-6, atol=1e-9
        )
    assert list(named.summary()["name"][:2]) == ["dose", "intercept"]
    doubled = frame.assign(time=2.0 * exposure)
    np.testing.assert_allclose(named.predict(doubled), 2.0 * named.predict(frame))
    np.testing.assert_allclose(offset.predict(logs), named.predict(frame))


@pytest.mark.statistical
@tiny_fits
@pytest.mark.parametrize(("name", "at_zero"), [("normal", 0.0), ("poisson", 1.0), ("gamma", 1.0)])
def test_without_an_intercept_rows_of_zeros_have_the_links_mean(name, at_zero):
    """exp(0) = 1 with a log link, 0 for real targets, whatever the mean of y."""
    x, y = counts()
    reg = BayesianGLMRegressor(likelihood=name, fit_intercept=False, **TINY)
    reg.fit(x[:, None], y + 5.0)
    assert reg.intercept_ == 0.0
    assert reg.predict([[0.0]])[0] == pytest.approx(at_zero)


@tiny_fits
def test_draws_in_half_precision_are_rounded():
    """To 1/512, as the storage says."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 2))
    y = 30.0 + X @ [2.0, -1.0] + rng.standard_normal(50)
    full, half = (
        BayesianGLMRegressor(storage=Storage(dtype), **TINY).fit(X, y).posterior_
        for dtype in ("float64", "bfloat16")
    )
    for name in ("coef", "intercept"):
        np.testing.assert_allclose(half[name], full[name], rtol=2.0**-7)


@cases(
    "parameters, y, message",
    [
        ({"likelihood": "poisson"}, -1.0, "y with the value -1"),
        ({"likelihood": "poisson"}, 0.5, "y with the value 0.5"),
        ({"likelihood": "gamma_"}, 1.0, "likelihood='gamma_'"),
        ({"noise": "heteroscedastic"}, 1.0, "noise='heteroscedastic'.*'infer' or a positive"),
        ({"likelihood": "poisson", "noise": 1.0}, 1.0, "noise=1.0.*likelihood='poisson'"),
        ({"likelihood": "gamma"}, 1.0, "y with the value 0 .*gamma"),
        ({"likelihood": "binomial"}, 1.0, r"y with 2 successes in n_trials of 1 \(row 2\)"),
        ({"likelihood": "binomial", "n_trials": 1}, 1.0, "n_trials with the value -1"),
        ({"likelihood": "binomial", "n_trials": 2}, 1.0, "n_trials=2"),
        ({"n_trials": 1}, 1.0, "n_trials=1.*likelihood='normal'"),
        ({"exposure": 0}, 1.0, "exposure=0.*likelihood='normal'"),
        ({"likelihood": "poisson", "exposure": 5}, 1.0, "exposure=5"),
        ({"likelihood": "poisson", "exposure": "time"}, 1.0, "exposure='time'.*index of a column"),
        ({"likelihood": "poisson", "exposure": 1}, 1.0, "exposure -1.*positive"),
        ({"offset": 1.5}, 1.0, "offset=1.5"),
        ({"offset": [0.1, 0.2]}, 1.0, r"offset=\[0.1, 0.2\].*index of a column"),
        ({"prior_scale": [1.0]}, 1.0, "prior_scale of length 1.*2 features"),
        (
            {"prior": "laplace", "prior_scale": "learned"},
            1.0,
            "prior_scale='learned'.*prior='laplace'",
        ),
    ],
)
def test_bad_input(parameters, y, message):
    X = np.column_stack([np.arange(1.0, 11.0), -np.ones(10)])
    with pytest.raises(ValueError, match=message):
        BayesianGLMRegressor(**parameters).fit(X, np.r_[np.arange(9.0), y])


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "y"),
    [("poisson", 0.0), ("negative_binomial", 0.0), ("binomial", 0.0), ("binomial", 4)],
)
def test_targets_that_leave_the_intercept_without_a_bound(name, y):
    """Zeros only, or successes only: with a flat prior, the posterior is improper."""
    X = np.column_stack([np.arange(10.0), np.full(10, 4.0)])
    columns = {"n_trials": 1} if name == "binomial" else {}
    reg = BayesianGLMRegressor(likelihood=name, **columns, **TINY)
    with pytest.raises(ValueError, match=f"y with the value {y:g} in every row.*fit_intercept"):
        reg.fit(X, np.full(10, y))


@pytest.mark.parametrize(
    ("likelihood", "names", "powers"),
    [("normal", ["noise"], [1.0]), ("student_t", ["noise", "df"], [1.0, 0.0])],
)
def test_summaries_show_parameters_in_the_units_of_the_targets(likelihood, names, powers):
    """Targets in other units change the noise alike, and the degrees of freedom not at all."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 1))
    y = x[:, 0] + 0.5 * rng.standard_normal(60)
    tables = []
    for unit in (1.0, 1000.0):
        reg = BayesianGLMRegressor(likelihood=likelihood, n_draws=50, n_chains=2, random_state=0)
        tables.append(reg.fit(x, unit * y).summary())
    for name, power in zip(names, powers, strict=True):
        at = tables[0]["name"].index(name)
        assert tables[1]["mean"][at] == pytest.approx(1000.0**power * tables[0]["mean"][at])
    draws = reg.sample_posterior()
    for name in names:  # of the same draws as the others
        shown = tables[1]["mean"][tables[1]["name"].index(name)]
        assert draws[name].mean() == pytest.approx(shown)
    draws = reg.sample_posterior(5, 0)
    ratio = draws["noise"] / np.exp(draws["log_noise"])
    assert np.ptp(ratio) < 1e-9 * ratio.mean()
    noise = tables[0]["mean"][tables[0]["name"].index("noise")]
    assert 0.3 < noise < 0.7  # one standard error of the sd of 60 errors is .05
    with pytest.raises(
        KeyError, match=r"'noise' .* log_noise.* sample_posterior\(\) has its draws"
    ):
        reg.posterior_["noise"]


@tiny_fits
def test_trials_are_a_column():
    """y successes of n have the likelihood of n rows with one trial each, hence the posterior."""
    rng = np.random.default_rng(0)
    x, trials = rng.standard_normal(20), rng.integers(0, 5, 20)
    y = rng.binomial(trials, 1.0 / (1.0 + np.exp(-x)))
    reg = BayesianGLMRegressor(likelihood="binomial", prior_scale=1.0, n_trials="n", random_state=0)
    reg.fit(pd.DataFrame({"n": trials, "x": x}), y)
    single = np.concatenate(
        [np.r_[np.ones(s), np.zeros(n - s)] for s, n in zip(y, trials, strict=True)]
    )
    one = BayesianGLMRegressor(likelihood="binomial", prior_scale=1.0, random_state=1)
    one.fit(np.repeat(x, trials)[:, None], single)
    sd = one.posterior_["coef"].std()
    assert reg.coef_[0] == 0.0  # the column of trials
    assert abs(reg.coef_[1] - one.coef_[0]) < 0.15 * sd
    assert abs(reg.posterior_["coef"].std() / sd - 1.0) < 0.1
    new = pd.DataFrame({"n": [0, 8], "x": [0.5, 0.5]})
    mean, sd = reg.predict(new, return_std=True)
    p = 1.0 / (1.0 + np.exp(-reg.posterior_["intercept"] - 0.5 * reg.posterior_["coef"][..., 0]))
    np.testing.assert_allclose(mean, [0.0, 8.0 * p.mean()], atol=8.0 * p.std() / math.sqrt(p.size))
    means = reg.predict_mean_samples(new).mean(axis=0)
    np.testing.assert_allclose(means, [0.0, 8.0 * p.mean()], atol=1e-12)
    spread = math.sqrt((8.0 * p * (1.0 - p)).mean() + 64.0 * p.var())
    np.testing.assert_allclose(sd, [0.0, spread], rtol=1e-3, atol=1e-6)
    levels = reg.predict_quantiles(new, [1e-9, 0.5, 1.0 - 1e-9])
    assert (levels[0] == 0.0).all() and levels[1, 2] == 8.0
    density = [reg.predict_log_density(new[1:], [k])[0] for k in range(9)]
    assert np.exp(density).sum() == pytest.approx(1.0)
    assert reg.predict_log_density(new, [1, 9]).tolist() == [-np.inf, -np.inf]
