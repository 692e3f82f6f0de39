"""Exact draws of linear regressions: moments against formulas and quadrature, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from _inside import streams
from scipy.stats import chisquare

from skbayes_sgmcmc import BayesianGLMRegressor, sample
from skbayes_sgmcmc.models.likelihoods.base import Gaussian
from skbayes_sgmcmc.models.linear.glm import GLMModel
from skbayes_sgmcmc.priors import Laplace, LearnedScale, Normal
from skbayes_sgmcmc.samplers import Gibbs, Step

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

RUN = {"n_draws": 1000, "n_chains": 4, "random_state": 0}
#: standard errors of 4,000 nearly independent draws, of which a bound takes four
MEAN, SD = 4.0 / np.sqrt(4000.0), 4.0 / np.sqrt(2.0 * 4000.0)


def rows(n=30, d=3, k=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(0.5, 2.0, d) + 1.0
    return X, X @ rng.standard_normal((d, k)) + 0.7 * rng.standard_normal((n, k)), rng


def model_of(d, k=1, *, scale=1.0, noise=None, intercept=True):
    return GLMModel(d, Gaussian(k, noise), Normal(), scale, intercept)


def drawn(model, x, y, *, weight=None, offset=None, temperature=1.0, n=1000, chains=4, seed=1):
    """Draws (chains n, parameters) from the model's conditional distributions, and acceptance."""
    data = model.make_data((x, offset, None), y, weight, torch.float64, "cpu")
    rng = streams(chains, seed)
    found = model.conditionals(data).with_random(rng)
    theta = torch.zeros(chains, model.n_parameters, dtype=torch.float64)
    state = found.init_state(theta)
    found.draw(theta, state, temperature, 20)
    draws = found.draw(theta, state, temperature, n)
    rate = (state["accepted"] / state["proposed"].clamp(min=1.0)).numpy()
    return draws.flatten(0, 1).numpy(), rate


def potential(model, x, y, theta, **parts):
    """U of positions, from the densities that other samplers use."""
    data = model.make_data(
        (x, parts.get("offset"), None), y, parts.get("weight"), torch.float64, "cpu"
    )
    at = torch.from_numpy(theta)
    batch = data.all_rows()
    lik = (model.log_lik(at, batch) * batch.weight).sum(1)
    return -(model.log_prior(at) + lik).numpy()


# given variances: a normal posterior --------------------------------------------------------------


@pytest.mark.statistical
@cases("temperature", [1.0, 0.3])
@cases("case", ["plain", "weights", "offset", "sparse", "no intercept", "two"])
def test_coefficients_given_the_variances(case, temperature):
    """U is then quadratic: its Hessian by differences gives the exact mean and covariance / T."""
    k = 2 if case == "two" else 1
    X, y, rng = rows(k=k)
    parts = {
        "weight": rng.uniform(0.5, 2.0, len(X)) if case == "weights" else None,
        "offset": rng.standard_normal(len(X)) if case == "offset" else None,
    }
    model = model_of(
        3, k, scale=np.array([0.5, 1.0, 2.0]), noise=np.full(k, 0.8), intercept=case[:2] != "no"
    )
    x = sp.csr_matrix(X) if case == "sparse" else X
    draws, _ = drawn(model, x, y, temperature=temperature, **parts)
    p = model.n_parameters
    eye = np.eye(p)
    corners = [a + b for a in (*eye, np.zeros(p)) for b in (*eye, np.zeros(p))]
    u = potential(model, x, y, np.array(corners), **parts).reshape(p + 1, p + 1)
    H = u[:p, :p] - u[:p, -1:] - u[-1:, :p] + u[-1, -1]
    g = u[:p, -1] - u[-1, -1] - 0.5 * np.diag(H)
    mean, cov = np.linalg.solve(H, -g), temperature * np.linalg.inv(H)
    sd = np.sqrt(np.diag(cov))
    assert np.abs((draws.mean(0) - mean) / sd).max() < MEAN
    # entries of a covariance in units of the sds have standard errors of at most sqrt(2/4000)
    error = (np.cov(draws.T) - cov) / np.outer(sd, sd)
    assert np.abs(error).max() < 2.0 * SD


@pytest.mark.statistical
def test_every_step_has_its_temperature():
    """A chunk of steps at T = 1 and then at 1/4: variances of coefficients have the ratio 4.

    Of 8,000 independent draws each, the ratio has a standard error of 2.2%; the bound is four.
    """
    X, y, _ = rows()
    model = model_of(3, noise=np.full(1, 0.8))
    data = model.make_data((X, None, None), y, None, torch.float64, "cpu")
    rng = streams(4, 1)
    theta, conditionals = torch.zeros(4, 4).double(), model.conditionals(data).with_random(rng)
    levels = np.repeat([1.0, 0.25, 1.0], [1000, 2000, 1000])
    step = Step(1.0, None, None, None, conditionals=conditionals, temperatures=levels)
    draws = Gibbs().conditional(theta, conditionals.init_state(theta), step)
    assert draws.shape == (4, 4000, 4)
    np.testing.assert_array_equal(theta, draws[:, -1])
    warm, cold = draws[:, levels == 1.0], draws[:, levels == 0.25]
    ratio = warm.flatten(0, 1).var(0) / cold.flatten(0, 1).var(0)
    np.testing.assert_allclose(ratio, 4.0, rtol=4 * 0.022)


# variances ----------------------------------------------------------------------------------------


def on_a_grid(model, x, y, draws, temperature, places):
    """Means and sds of two parameters under e^(-U/T), from 400 x 400 points; others are zero."""
    middle, spread = draws.mean(0)[places], draws.std(0)[places]
    axes = [m + s * np.linspace(-9.0, 9.0, 400) for m, s in zip(middle, spread, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    theta = np.zeros((len(grid), model.n_parameters))
    theta[:, places] = grid
    u = potential(model, x, y, theta) / temperature
    weight = np.exp(u.min() - u)
    weight /= weight.sum()
    mean = weight @ grid
    return mean, np.sqrt(weight @ (grid - mean) ** 2), middle, spread


@pytest.mark.statistical
@cases("temperature", [1.0, 0.5, 2.0])
@cases("case", ["given scale", "learned scale", "intercept"])
def test_one_coefficient_and_the_noise_against_quadrature(case, temperature):
    """Or the intercept and the noise, of eight rows whose feature is zero: U is then a sum."""
    X, y, _ = rows(n=8 if case == "intercept" else 12, d=1)
    scale, places = 0.5, [0, 1]
    if case == "learned scale":
        scale = LearnedScale(shape=1.0, scale=0.5, inputs=False)
    if case == "intercept":
        X, places = np.zeros_like(X), [1, 2]
    model = model_of(1, scale=scale, intercept=case == "intercept")
    draws, rate = drawn(model, X, y, temperature=temperature, n=4000)
    mean, sd, middle, spread = on_a_grid(model, X, y, draws, temperature, places)
    # 16,000 draws; at the least acceptance rate, an effective sample of a third of them
    assert np.abs((middle - mean) / sd).max() < MEAN * np.sqrt(3.0 / 4.0)
    assert np.abs(spread / sd - 1.0).max() < 2.0 * SD  # tails are those of a t distribution
    assert rate.min() > 0.5


@pytest.mark.statistical
@pytest.mark.parametrize(
    "shape", [pytest.param((25, 12), marks=pytest.mark.slow), (8, 20)], ids=str
)
def test_ranks_of_the_truth_are_uniform(shape):
    """Simulation-based calibration with a learned scale, in 14 and 21 dimensions.

    Noise, scale, coefficients and targets come from the model. The rank of the noise, of the
    length of the coefficients and of one of them among nine draws, five apart, is uniform: a
    chi-squared test of each at the level 1e-4.
    """
    (n, d), rng = shape, np.random.default_rng(3)
    model = model_of(d, scale=LearnedScale(2.0, 0.5, False), intercept=n > d)
    ranks = []
    for seed in range(200):
        x = rng.standard_normal((n, d))
        w = rng.gamma(2.0, 1.0 / (2.0 * 0.25)) ** -0.5 * rng.standard_normal(d)
        own = rng.standard_normal()
        y = x @ w + 0.3 * np.exp(own) * rng.standard_normal(n)
        draws = drawn(model, x, y[:, None], n=45, chains=1, seed=seed)[0][4::5]
        found = draws[:, -1], (draws[:, :d] ** 2).sum(1), draws[:, 0]
        truth = own, (w**2).sum(), w[0]
        ranks.append([(a < b).sum() for a, b in zip(found, truth, strict=True)])
    for each in np.transpose(ranks):
        assert chisquare(np.bincount(each, minlength=10)).pvalue > 1e-4


@pytest.mark.statistical
def test_two_targets_have_a_noise_each():
    """With little prior influence, noise_j^2 is nearly inverse-gamma: means within 5%."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    y = X @ np.ones((2, 2)) + rng.standard_normal((400, 2)) * [0.2, 0.8]
    draws, rate = drawn(model_of(2, 2, scale=LearnedScale(5.0, 1.0, False)), X, y)
    residual = np.linalg.lstsq(np.column_stack([X, np.ones(400)]), y, rcond=None)[1]
    noise = 0.3 * np.exp(draws[:, -2:]).mean(0)
    np.testing.assert_allclose(noise, np.sqrt(residual / 397), rtol=0.05)
    assert rate.min() > 0.6


@pytest.mark.statistical
def test_draws_are_nearly_independent_and_the_default():
    """R-hat and effective sample sizes of the default fit; 4,000 draws would be 4,000."""
    X, y, _ = rows(100, 8)
    reg = BayesianGLMRegressor(random_state=0).fit(X, y[:, 0])
    assert "acceptance_rate" in reg.posterior_.statistics
    assert reg.n_steps_ == 1050
    table = reg.summary()
    assert table["ess"].min() > 2500
    assert table["r_hat"].max() < 1.01


def test_powers_of_one_column_have_the_highest_mode():
    """Their directions differ by 1e12 in length, and the density of the scale has several modes.

    Proposals came from a lower one, and R-hat was 1.5, with 8 effective draws of 4,000.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(10.0, 20.0, 1000)
    y = np.sin(x) + 0.3 * rng.standard_normal(1000)
    reg = BayesianGLMRegressor(random_state=0).fit(x[:, None] ** np.arange(1, 7), y)
    assert reg.summary()["r_hat"].max() <= 1.01


def test_data_without_noise_or_without_features():
    """Residuals come from rows, so that an exact fit has the noise that the prior leaves."""
    X, y, _ = rows(40, 2)
    reg = BayesianGLMRegressor(**RUN).fit(X, X @ [1.0, 2.0])
    np.testing.assert_allclose(reg.coef_, [1.0, 2.0], rtol=1e-3)
    constant = BayesianGLMRegressor(**RUN).fit(np.ones((40, 2)), y[:, 0])
    prior_sd = constant.posterior_.std("coef")
    assert np.isfinite(prior_sd).all()
    np.testing.assert_allclose(constant.predict(np.ones((1, 2))), y.mean(), atol=0.5)


# where it applies ---------------------------------------------------------------------------------


@cases(
    "parameters",
    [
        {"likelihood": "student_t"},
        {"prior": Laplace(), "prior_scale": 1.0},
        {"prior_scale": LearnedScale(inputs=True)},
        {"groups": 0},
    ],
)
def test_other_models_take_sgld_or_refuse(parameters):
    X, y, _ = rows()
    X[:, 0] = np.arange(len(X)) % 3
    short = {"n_draws": 5, "burn_in": 5, "random_state": 0} | parameters
    reg = BayesianGLMRegressor(**short).fit(X, y[:, 0])
    assert "acceptance_rate" not in reg.posterior_.statistics
    with pytest.raises(ValueError, match="Gibbs is not allowed: GLMModel has no conditional"):
        BayesianGLMRegressor(sampler="gibbs", **short).fit(X, y[:, 0])


@cases(
    "parameters, message",
    [
        ({"step_size": 0.1}, "number as step_size"),
        ({"gradient": "minibatch"}, "gradient='minibatch'"),
        ({"preconditioner": "diagonal"}, "preconditioner='diagonal'"),
        ({"batch_size": 10}, "batch_size=10"),
        ({"temperature": 0.0}, "temperature=0"),
        ({"integrator": "euler"}, "integrator='euler'"),
    ],
)
def test_parameters_of_steps_are_refused_and_make_auto_take_steps(parameters, message):
    X, y, _ = rows()
    with pytest.raises(ValueError, match=f"{message}.* is not allowed with"):
        BayesianGLMRegressor(sampler="gibbs", **parameters).fit(X, y[:, 0])
    if "integrator" not in parameters:
        short = {"n_draws": 5, "burn_in": 5, "random_state": 0}
        reg = BayesianGLMRegressor(**short, **parameters).fit(X, y[:, 0])
        assert "acceptance_rate" not in reg.posterior_.statistics


def test_streams_take_sgld():
    X, y, _ = rows()
    with pytest.raises(ValueError, match="Gibbs is not allowed in partial_fit"):
        BayesianGLMRegressor(sampler="gibbs").partial_fit(X, y[:, 0])
    BayesianGLMRegressor(random_state=0).partial_fit(X, y[:, 0])


def test_densities_have_no_conditional_distributions():
    with pytest.raises(ValueError, match="Gibbs is not allowed"):
        sample(lambda t: -0.5 * (t**2).sum(1), 2, step_size="auto", sampler="gibbs")


def test_warm_starts_need_no_burn_in():
    X, y, _ = rows()
    more = BayesianGLMRegressor(warm_start=True, n_draws=20, random_state=0).fit(X, y[:, 0])
    assert more.set_params(burn_in=0).fit(X, y[:, 0]).n_steps_ == 40  # two for each draw
