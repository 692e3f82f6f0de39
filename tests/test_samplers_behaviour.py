"""Metrics, pSGLD, thermostats and temperature zero: steps and moments written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _linear import Gaussian, assert_close, chain_errors, correlated_precision, limit
from _targets import GammaModel
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression, sample
from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc.models._protocol import Model
from skbayes_sgmcmc.samplers import PSGLD, RSGLD, SGHMC, SGLD, Step


def run_gamma(sampler, eta, temperature=1.0, **settings):
    posterior = sample(
        GammaModel(5.0),
        step_size=eta,
        sampler=sampler,
        temperature=temperature,
        **{"n_chains": 128, "n_draws": 2000, "burn_in": 200, "random_state": 0} | settings,
    )
    return posterior, posterior["theta"][:, :, 0]


# (e) metrics --------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_rsgld_in_a_metric_has_the_exact_moments(temperature):
    """theta <- theta - eta (theta - k) + sqrt(2 eta T theta) xi with k = shape - 1 + T.

    Its mean is k, the target's own, and its variance T k / (1 - eta/2); |.| hardly ever acts here.
    """
    eta, k = 0.1, 4.0 + temperature
    _, theta = run_gamma("rsgld", eta, temperature)
    assert_close(theta.mean(1), k, precision=0.05)
    variance = temperature * k / (1.0 - eta / 2.0)
    assert_close(((theta - k) ** 2).mean(1), variance, precision=0.1)


@pytest.mark.statistical
def test_rsgld_without_the_divergence_has_another_target():
    """Without div M = 1 the mean is the mode, shape - 1: 1 below the target's, 20 MCSE and more."""
    _, theta = run_gamma(RSGLD(divergence=False), 0.1)
    assert_close(theta.mean(1), 4.0, precision=0.05)


@pytest.mark.statistical
@pytest.mark.parametrize("temperature", [pytest.param(1.0, marks=pytest.mark.slow), 0.5])
def test_mala_in_a_metric_is_exact(temperature):
    """Gamma(5)^(1/T) is Gamma(1 + 4/T, rate 1/T); the step is so large that a third is rejected."""
    shape = 1.0 + 4.0 / temperature
    posterior, theta = run_gamma("mala", 1.2, temperature, n_chains=512, n_draws=250, thinning=4)
    acceptance = posterior.statistics["acceptance_rate"]
    assert acceptance.min() >= 0.3 and acceptance.max() <= 0.8
    mean, variance = shape * temperature, shape * temperature**2
    assert_close(theta.mean(1), mean, precision=0.05)
    assert_close(((theta - mean) ** 2).mean(1), variance, precision=0.1)
    # a moment that an error in q(theta* | theta) at small theta would show in
    inverse = 1.0 / (temperature * (shape - 1.0))
    assert_close((1.0 / theta).mean(1), inverse, precision=0.01)


# (f) pSGLD ----------------------------------------------------------------------------------------


class Regression(Model):
    """Rows y ~ N(x'theta, 1) and a N(0, sd^2) prior."""

    def __init__(self, dim, sd):
        self.shapes = {"theta": (dim,)}
        self.sd = sd

    def init(self, rng):
        return rng.standard_normal(self.n_parameters)

    def log_prior(self, theta):
        return -0.5 * (theta * theta).sum(1) / self.sd**2

    def log_lik(self, theta, batch):
        x, y = batch.fields["x"], batch.fields["y"]
        return -0.5 * (y - theta @ x.t()) ** 2

    def prior_curvature(self):
        return 1.0 / self.sd**2


@pytest.mark.parametrize("lag", [True, False])
def test_psgld_at_temperature_zero_is_rmsprop(lag):
    """With V of the likelihood's mean gradient, from the first gradient on, without the prior's."""
    rng = np.random.default_rng(0)
    x, sd, eta, rho, lam = rng.standard_normal((30, 3)), 0.5, 0.02, 0.9, 1e-3
    y = x @ np.array([1.0, -2.0, 0.5]) + rng.standard_normal(30)
    fields = {"x": torch.from_numpy(x), "y": torch.from_numpy(y)}
    posterior = sample(
        Regression(3, sd),
        data=Data(fields, 30),
        step_size=eta,
        sampler=PSGLD(decay=rho, regularization=lam, adapt="always", lag=lag),
        temperature=0.0,
        n_chains=1,
        n_draws=60,
        burn_in=0,
        init=np.zeros(3),
        random_state=0,
    )
    theta, V = np.zeros(3), (x.T @ y / 30) ** 2
    for k in range(60):
        likelihood = x.T @ (x @ theta - y) / 30
        g = likelihood + theta / sd**2 / 30
        before = V
        V = rho * V + (1.0 - rho) * likelihood**2
        theta = theta - eta * g / (lam + np.sqrt(before if lag else V))
        np.testing.assert_allclose(posterior["theta"][0, k], theta, rtol=1e-10, atol=1e-12)


def run_psgld(target, sampler, eta, **settings):
    A = torch.from_numpy(target.A)
    return sample(
        lambda theta: -0.5 * ((theta @ A) * theta).sum(1),
        target.dim,
        step_size=eta,
        sampler=sampler,
        n_chains=256,
        init=np.random.default_rng(1).multivariate_normal(
            np.zeros(target.dim), target.covariance, 256
        ),
        random_state=0,
        **{"n_draws": 3000, "burn_in": 300} | settings,
    )


#: G is about 1 in the tests below. Without a prior only a cap keeps a chain that starts where a
#: gradient, and so V, is 0 from being thrown far away by its first noise
CAP = 4.0


@pytest.mark.statistical
@pytest.mark.slow
def test_psgld_with_frozen_v_is_exact_for_small_steps():
    """The variance is the target's over 1 - eta G A / 2; adapting always it is 10% more than that.

    With V = E g^2 = A here, G A = sqrt(A) is at most 1.2: at eta = .03 a bias of at most 1.8%, but
    G is estimated from some hundred correlated steps, hence 3%.
    """
    target = Gaussian(np.diag([0.7, 1.4]))
    ratios = {}
    for adapt in ("burn_in", "always"):
        theta = run_psgld(target, PSGLD(adapt=adapt, cap=CAP), 0.03, n_draws=6000)["theta"]
        ratios[adapt] = (theta**2).mean(1) * np.diag(target.A)
    average, error = chain_errors(ratios["burn_in"])
    assert error.max() <= 0.01
    assert (np.abs(average - 1.0) - limit(256, 2) * error).max() <= 0.03
    excess, error = chain_errors((ratios["always"] - ratios["burn_in"]).mean(1))
    assert excess - limit(256) * error >= 0.1


def test_psgld_lag_makes_g_independent_of_this_steps_gradient():
    """With decay -> 0, V is one gradient squared: lag=False moves by eta sign(g) at T = 0."""
    noise = 3.0

    def gradient(theta, rng):
        return theta + noise * rng.normal(theta.shape[1])

    moves = {}
    for lag in (True, False):
        posterior = sample(
            lambda theta: -0.5 * (theta**2).sum(1),
            1,
            gradient_of_potential=gradient,
            step_size=1e-3,
            sampler=PSGLD(decay=1e-12, regularization=1e-12, adapt="always", lag=lag),
            temperature=0.0,
            n_chains=8,
            n_draws=50,
            burn_in=0,
            random_state=0,
        )
        moves[lag] = np.abs(np.diff(posterior["theta"], axis=1)) / 1e-3
    # up to the 1e-12 of the last V, which counts where a gradient is a thousand times smaller
    np.testing.assert_allclose(moves[False], 1.0, rtol=1e-3)
    assert moves[True].std() > 0.5  # the ratio of two independent gradients


def test_psgld_cap_holds_a_column_of_zeros():
    """Where the likelihood's gradient is 0, G = 1/lambda; capped, eta G / (N sd^2) = 1/2.

    The coordinate then is plain SGLD on its prior with eta A = 1/2: its variance sd^2 / (1 - 1/4).
    """
    rng = np.random.default_rng(0)
    x, sd = rng.standard_normal((20, 2)), 2.0
    x[:, 1] = 0.0
    data = Data({"x": torch.from_numpy(x), "y": torch.from_numpy(rng.standard_normal(20))}, 20)
    posterior = sample(
        Regression(2, sd),
        data=data,
        step_size=0.05,
        sampler="psgld",
        n_chains=128,
        n_draws=1000,
        burn_in=100,
        random_state=0,
    )
    theta = posterior["theta"][:, :, 1]
    assert_close((theta**2 / sd**2).mean(1), 4.0 / 3.0, precision=0.02)


def test_psgld_given_cap_bounds_g():
    """A cap below every 1/(lambda + sqrt V) makes the step plain SGLD's with eta * cap."""
    target = Gaussian(np.diag([0.7, 1.4]))
    short = {"n_draws": 50, "burn_in": 10}
    capped = run_psgld(target, PSGLD(cap=1e-3, adapt="always"), 2.0, **short)
    plain = run_psgld(target, SGLD(), 2e-3, integrator="euler", **short)
    np.testing.assert_allclose(capped["theta"], plain["theta"], rtol=1e-10, atol=1e-12)


def test_no_gradient_counts_more_than_tenfold_once_v_is_frozen():
    """A step is at most 10 eta long, however much larger the gradient is than those in V.

    Gradients of networks grow faster than the weights. With a step in proportion to them, a chain
    that was thrown off once had weights of 5,000 some steps later.
    """
    step, sampler = quadratic_step(np.ones(2), np.zeros((1, 2)), 0.01, 0.0), PSGLD(cap=1e9)
    theta = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    state = sampler.init_state(theta, step)
    sampler.end_burn_in(state)
    theta.mul_(1e6)
    before = theta.clone()
    sampler.euler(theta, state, step)
    np.testing.assert_allclose((before - theta).numpy(), [[0.1, -0.1]], rtol=1e-4)


def test_v_is_frozen_as_an_average_over_the_last_third_of_the_burn_in():
    """A gradient 1,000 steps before the end of 3,000 has (2 / 3)^2 of the newest one's weight.

    With the weights 0.99^k of the last 100 steps, it would have none.
    """
    sampler, kept = PSGLD(), 1.0
    step = quadratic_step(np.ones(1), np.zeros((1, 1)), 0.01, 0.0)
    for step.burnt_in in range(2001, 3000):
        kept *= 1.0 - sampler.share(step)
    first = 3.0 / 2000
    assert first * kept / sampler.share(step) == pytest.approx(4.0 / 9.0, rel=0.01)
    assert PSGLD(adapt="always").share(step) == pytest.approx(0.01)


def quadratic_step(A, xi, eta, noise, prior=0.0):
    """A step in the potential sum (A + prior) theta^2 / 2, with A from the rows."""
    latest = None

    def gradient(theta):
        nonlocal latest
        latest = theta * torch.from_numpy(A)
        return latest + prior * theta

    return Step(
        n=4.0,
        gradient=gradient,
        likelihood=lambda: latest,
        potential=None,
        eta=eta,
        noise=noise,
        xi=torch.from_numpy(xi),
        prior_curvature=prior,
    )


@pytest.mark.parametrize(
    "settings", [{"start": "zero"}, {"with_prior": True}], ids=["the paper", "the authors' code"]
)
def test_psgld_as_published(settings):
    """Three steps of algorithm 1, with V0 = 0; or of the code, where the prior is part of V."""
    rho, lam, eta, noise, prior = 0.99, 1e-5, 0.1, 0.0125, 0.3
    A, xi = np.array([0.5, 2.0]), np.array([[0.3, -1.2]])
    theta = torch.tensor([[1.0, -0.7]], dtype=torch.float64)
    step = quadratic_step(A, xi, eta, noise, prior)
    sampler = PSGLD(adapt="always", lag=False, cap=1.0 / lam, **settings)
    state = sampler.init_state(theta, step)
    expected, part = theta.numpy().copy(), A + prior * ("with_prior" in settings)
    V = 0.0 if "start" in settings else (part * expected) ** 2
    for _ in range(3):
        V = rho * V + (1.0 - rho) * (part * expected) ** 2
        G = 1.0 / (lam + np.sqrt(V))
        moved = -eta * G * (A + prior) * expected + np.sqrt(2.0 * noise * G) * xi
        expected = expected + moved
        sampler.euler(theta, state, step)
        np.testing.assert_allclose(theta.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("lag", [False, True])
def test_psgld_gamma_is_its_formula(lag):
    """Three steps written out; on a diagonal quadratic Hutchinson's estimate is exact."""
    A, rho, lam, eta, noise = np.array([0.5, 2.0]), 0.9, 1e-2, 0.1, 0.0125
    xi = np.array([[0.3, -1.2]])
    theta = torch.tensor([[1.0, -0.7]], dtype=torch.float64)
    step = quadratic_step(A, xi, eta, noise)
    sampler = PSGLD(decay=rho, regularization=lam, adapt="always", lag=lag, divergence=True)
    state = sampler.init_state(theta, step)
    expected = theta.numpy().copy()
    V, W = (A * expected) ** 2, 0.0
    for _ in range(3):
        g = A * expected
        later = rho * V + (1.0 - rho) * g**2, rho * W + (1.0 - rho) * g * A
        V, W = (V, W) if lag else later
        G = 1.0 / (lam + np.sqrt(V))
        gamma = -W * G**2 / np.sqrt(V)
        expected = expected - eta * G * g + noise * gamma + np.sqrt(2.0 * noise * G) * xi
        V, W = later
        sampler.euler(theta, state, step)
        np.testing.assert_allclose(theta.numpy(), expected, rtol=1e-9)


class CorrelatedMean(Model):
    """Rows x ~ N(theta, A^-1) with a flat prior: g_bar = A (theta - mean of the minibatch's x)."""

    def __init__(self, A):
        self.shapes = {"theta": (len(A),)}
        self.A = torch.from_numpy(A)

    def log_prior(self, theta):
        return torch.zeros(len(theta))

    def prior_gradient(self, theta, state, out, scale):
        out.zero_()

    def log_lik(self, theta, batch):
        away = batch.fields["x"] - theta[:, None]
        return -0.5 * ((away @ self.A) * away).sum(2)

    def likelihood_gradient(self, theta, batch, state, rng, *, out, scale):
        x = batch.fields["x"]
        out.addmm_(theta - x.mean(-2), self.A, alpha=scale * x.shape[-2])
        return {}


def always_adapting(dim, batch_size, divergence=True, n_steps=6000, n_rows=500, n_chains=192):
    """Posterior sds of pSGLD that adapts always, each divided by the exact one."""
    rng, A = np.random.default_rng(dim), correlated_precision(dim)
    sd = np.linalg.cholesky(np.linalg.inv(A))
    x = rng.standard_normal((n_rows, dim)) @ sd.T
    start = rng.standard_normal((n_chains, dim)) @ sd.T / n_rows**0.5
    theta = sample(
        CorrelatedMean(A),
        data=Data({"x": torch.from_numpy(x)}, n_rows),
        sampler=PSGLD(adapt="always", divergence=divergence),
        step_size=5e-4,
        batch_size=batch_size,
        n_chains=n_chains,
        init=x.mean(0) + start,
        burn_in=n_steps // 2,
        n_draws=n_steps // 40,
        thinning=20,
        random_state=0,
    )["theta"]
    square = ((theta - x.mean(0)) ** 2).mean((0, 1)) * n_rows
    return np.sqrt(square / np.diag(np.linalg.inv(A)))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("dim", "batch_size"),
    [(1, 10), (1, 500), *(pytest.param(*case, marks=pytest.mark.slow)
                          for case in [(1, 100), (10, 10), (10, 100), (10, 500)])],
)  # fmt: skip
def test_psgld_that_adapts_always_is_exact_with_the_divergence(dim, batch_size):
    """Sds within 5%: Monte Carlo errors 2% of one and 1% of ten dimensions, bias of the step 1%.

    The slope of g_bar over two minibatches, in place of one, is off by the noise of both over the
    length of a move.
    """
    ratio = always_adapting(dim, batch_size, n_chains=192 if dim == 1 else 768)
    assert np.all(np.abs(ratio - 1.0) <= 0.05), ratio


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(("batch_size", "step_size"), [(10, 0.004), (100, 0.002), (569, 0.001)])
def test_psgld_that_adapts_always_is_exact_for_a_logistic_regression(batch_size, step_size):
    """Eight correlated features with sds that differ fourfold: within 5%, and two standard errors.

    Small minibatches have a larger V, and take larger steps for moves of the same length. Standard
    errors are 1 to 2%, from 192 chains that start at the mode.
    """
    X, y = load_breast_cancer(return_X_y=True)
    X, n_chains = StandardScaler().fit_transform(X[:, :8]), 192
    given = {"prior_scale": 1.0, "random_state": 0}
    exact = BayesianLogisticRegression(n_draws=2000, n_chains=8, **given).fit(X, y)
    clf = BayesianLogisticRegression(
        sampler=PSGLD(adapt="always", divergence=True), step_size=step_size, integrator="euler",
        batch_size=batch_size, preconditioner=None, init="map", n_chains=n_chains, burn_in=12_000,
        n_draws=200, thinning=120, **given,
    ).fit(X, y)  # fmt: skip
    away = clf.posterior_["coef"].reshape(n_chains, -1, 8)
    squares = ((away - away.mean((0, 1))) ** 2).mean(1)
    ratio = squares.mean(0) ** 0.5 / exact.posterior_["coef"].std((0, 1)).ravel()
    error = 0.5 * ratio * squares.std(0) / squares.mean(0) / n_chains**0.5
    assert np.all(np.abs(ratio - 1.0) <= 0.05 + 2.0 * error), ratio


@pytest.mark.statistical
def test_psgld_that_adapts_always_is_too_wide_without_the_divergence():
    """With all rows: sds 1.15 times the posterior's, on the way to exp(-U)/G, which has 1.41."""
    assert 1.1 <= always_adapting(1, 500, divergence=False).item() <= 1.2


def test_psgld_gamma_is_zero_where_g_is_capped():
    """A capped G does not move with theta, so it has no divergence (it threw chains to 1e4 sd)."""
    target, short = Gaussian(np.diag([0.7, 1.4])), {"n_draws": 50, "burn_in": 10}
    paths = [
        run_psgld(target, PSGLD(cap=1e-3, adapt="always", divergence=gamma), 2.0, **short)["theta"]
        for gamma in (True, False)
    ]
    np.testing.assert_array_equal(*paths)


@pytest.mark.statistical
@pytest.mark.parametrize("integrator", ["euler", "splitting", "baoab"])
def test_sghmc_estimates_the_variance_of_its_gradients(integrator):
    """Minibatches of 10 of 500 rows: beta_hat is 0.74 alpha, so sds are 1.74^0.5 times too large.

    With the estimate they are the posterior's to 5%, as with the exact variance.
    """
    n_rows, n, eta = 500, 10, 3e-3
    exact = (1.0 / n) * (n_rows - n) / (n_rows - 1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_rows, 2))
    x = (x - x.mean(0)) / x.std(0, ddof=1)
    found = {}
    for name, variance in {"none": None, "exact": exact, "estimate": "estimate"}.items():
        theta = sample(
            CorrelatedMean(np.eye(2)),
            data=Data({"x": torch.from_numpy(x)}, n_rows),
            sampler=SGHMC(friction=0.1, gradient_variance=variance),
            integrator=integrator,
            step_size=eta,
            batch_size=n,
            n_chains=100,
            init=rng.standard_normal((100, 2)) / n_rows**0.5,
            burn_in=500,
            n_draws=100,
            thinning=20,
            random_state=0,
        )["theta"]
        found[name] = np.sqrt((theta**2).mean() * n_rows)
    assert abs(found["none"] - 1.74**0.5) <= 0.06
    assert abs(found["exact"] - 1.0) <= 0.05 and abs(found["estimate"] - 1.0) <= 0.05, found


# (g) temperature zero -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, integrator", [("sgld", "euler"), ("sgld", "leimkuhler_matthews"), ("sghmc", "euler")]
)
def test_temperature_zero_is_gradient_descent(name, integrator):
    """SGLD is gradient descent and SGHMC's Euler step heavy-ball momentum, written out here."""
    A, eta, alpha = correlated_precision(3), 0.2, 0.3
    torch_A = torch.from_numpy(A)
    posterior = sample(
        lambda theta: -0.5 * ((theta @ torch_A) * theta).sum(1),
        3,
        step_size=eta,
        sampler=SGHMC(friction=alpha) if name == "sghmc" else "sgld",
        integrator=integrator,
        temperature=0.0,
        n_chains=1,
        n_draws=100,
        burn_in=0,
        init=np.array([2.0, -1.0, 0.5]),
        random_state=0,
    )
    theta, v = np.array([2.0, -1.0, 0.5]), np.zeros(3)
    for k in range(100):
        if name == "sgld":
            theta = theta - eta * A @ theta
        else:
            theta = theta + v
            v = (1.0 - alpha) * v - eta * A @ theta
        np.testing.assert_allclose(posterior["theta"][0, k], theta, rtol=1e-10, atol=1e-13)
