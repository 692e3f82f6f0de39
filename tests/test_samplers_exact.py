"""Every cell of the sampler x integrator table against exact answers on Gaussian targets.

The reference is the chain's own stationary covariance (see ``_linear``), which holds at any step
size, so the bounds are Monte Carlo errors alone. A new row of the table is tested by itself where
its step is linear, and fails where nothing here says what to expect.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cells import LINEAR, THERMOSTATS, exact_chain, is_shared, make_sampler, run_engine, scales
from _linear import Gaussian, assert_moments, constant_metric, correlated_precision, live_thermostat
from _targets import GaussianMean

from skbayes_sgmcmc import sample
from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc.samplers import PSGLD, SGHMC, TABLE, Step

pytestmark = pytest.mark.statistical

#: step sizes at which the integrators' own errors are several MCSE
ETA = {"sgld": 0.5, "psgld": 0.3, "rsgld": 0.3, "sghmc": 0.2, "sgnht": 0.05, "msgnht": 0.05}


# (a) closed forms ---------------------------------------------------------------------------------


def euler_covariance(target, eta):
    """(T/N) [A (1 - eta A / 2)]^-1: the stationary covariance of SGLD's Euler step."""
    return (
        target.temperature
        / target.n
        * np.linalg.inv(target.A @ (np.eye(target.dim) - eta / 2 * target.A))
    )


TARGETS = [
    Gaussian(correlated_precision(1)),
    Gaussian(correlated_precision(10), n=50.0, temperature=0.5),
]


#: the thermostats keep BAOAB's <v^2> right in the mean of its half drifts, and with it theta
EXACT = [("sgld", "leimkuhler_matthews"), ("sghmc", "aboba")]
EXACT += [cell for cell in LINEAR if cell[1] == "baoab"]


@pytest.mark.parametrize("target", TARGETS, ids=["D1", "D10"])
@pytest.mark.parametrize("name, integrator", EXACT)
def test_exact_integrators_have_no_bias_in_theta(name, integrator, target):
    """Exact for theta on Gaussians at any stable step (rounding: 1e-10)."""
    for eta in (0.05, 0.8):
        # h sqrt(N A) <= 1.1: every eigenvalue of A is at most 1.5
        chain = exact_chain(name, integrator, target, eta)
        np.testing.assert_allclose(chain.theta, target.covariance, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("target", TARGETS, ids=["D1", "D10"])
def test_sgld_euler_has_its_closed_form(target):
    chain = exact_chain("sgld", "euler", target, 0.5)
    np.testing.assert_allclose(chain.theta, euler_covariance(target, 0.5), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("target", TARGETS, ids=["D1", "D10"])
@pytest.mark.parametrize("name", ["psgld", "rsgld"])
def test_a_constant_preconditioner_is_sgld_in_other_coordinates(name, target):
    """theta = G^1/2 phi: S = G^1/2 S_phi G^1/2 with SGLD's closed form for phi."""
    lam = PSGLD().regularization
    G = 1.0 / (lam + scales(target.dim)) if name == "psgld" else scales(target.dim)
    root = np.diag(np.sqrt(G))
    pulled = Gaussian(root @ target.A @ root, target.n, target.temperature)
    expected = root @ euler_covariance(pulled, 0.3) @ root
    chain = exact_chain(name, "euler", target, 0.3)
    np.testing.assert_allclose(chain.theta, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("target", TARGETS, ids=["D1", "D10"])
@pytest.mark.parametrize("integrator", ["baoab", "aboba"])
def test_momentum_of_baoab_and_aboba_has_its_closed_form(integrator, target):
    """<vv'> = (eta T/N) (1 - eta A/4) after a kick, and its inverse's like after a drift."""
    eta = 0.8
    factor = np.eye(target.dim) - eta / 4.0 * target.A
    factor = factor if integrator == "baoab" else np.linalg.inv(factor)
    chain = exact_chain("sghmc", integrator, target, eta)
    level = eta * target.temperature / target.n
    np.testing.assert_allclose(chain.v, level * factor, rtol=1e-10, atol=1e-12)


def test_splitting_keeps_a_bias_at_fixed_friction():
    """As eta -> 0 at fixed alpha the variance is 1 - alpha^2/24 (the next term is alpha^4)."""
    for alpha in (0.2, 0.4):
        chain = exact_chain("sghmc", "splitting", TARGETS[0], 1e-7, SGHMC(friction=alpha))
        assert abs(chain.theta[0, 0] - 1.0 + alpha**2 / 24.0) <= alpha**4 / 100.0


# (b) order of the bias ----------------------------------------------------------------------------

#: (order of |S_theta - target|, order of |<v^2> - eta T/N|) in h at fixed D; SGLD's h is eta.
#: None: exact, or without a momentum
ORDERS = {
    ("sgld", "euler"): (1, None),
    ("sgld", "leimkuhler_matthews"): (None, None),
    ("psgld", "euler"): (1, None),
    ("rsgld", "euler"): (1, None),
    ("sghmc", "euler"): (2, 1),
    ("sghmc", "splitting"): (2, 2),
    ("sghmc", "baoab"): (None, 2),
    ("sghmc", "aboba"): (None, 2),
    ("sgnht", "euler"): (1, None),
    ("sgnht", "splitting"): (2, None),
    ("sgnht", "baoab"): (None, 2),
    ("sgnht", "aboba"): (2, None),
    ("msgnht", "euler"): (1, None),
    ("msgnht", "splitting"): (2, None),
    ("msgnht", "baoab"): (None, 2),
    ("msgnht", "aboba"): (2, None),
}


def slope(h, bias):
    return np.polyfit(np.log(h), np.log(bias), 1)[0]


@pytest.mark.parametrize("name, integrator", LINEAR)
def test_order_of_the_bias(name, integrator):
    """The log-log slope of the bias in h at D = 1: 1 +- .3, or at least 1.7 for second order."""
    target = Gaussian(correlated_precision(3), n=7.0, temperature=0.5)
    h = np.array([0.02, 0.04, 0.08, 0.16])
    momentum = "diffusion" in make_sampler(name).get_params()
    theta_bias, v_bias = [], []
    for one in h:
        eta = target.n * one**2 if momentum else one
        sampler = make_sampler(name, diffusion=1.0) if momentum else None
        chain = exact_chain(name, integrator, target, eta, sampler)
        theta_bias.append(np.linalg.norm(chain.theta - target.covariance))
        if momentum:
            level = eta * target.temperature / target.n
            # SGNHT's one thermostat makes the mean over the coordinates right, not each of them
            off = np.diag(chain.v) / level - 1.0
            v_bias.append(abs(off.mean()) if name == "sgnht" else np.linalg.norm(off))
    for bias, order in zip((theta_bias, v_bias), ORDERS[name, integrator], strict=True):
        if order is None:
            assert not len(bias) or max(bias) <= 1e-9
        elif order == 1:
            assert abs(slope(h, bias) - 1.0) <= 0.3
        else:
            assert 1.7 <= slope(h, bias) <= 2.5


@pytest.mark.parametrize("name, integrator", THERMOSTATS)
def test_order_of_the_bias_with_a_live_thermostat(name, integrator):
    """The same slopes in <theta^2> with the nonlinear chain, by quadrature (D = 1, one dimension).

    BAOAB is no longer exact, as the thermostat's swings couple to its error, but of second order.
    """
    h = np.array([0.05, 0.1, 0.2])
    sampler = make_sampler(name, diffusion=1.0)
    step = TABLE[name][1][integrator].integrator
    bias = [abs(live_thermostat(sampler, step, one)[0] - 1.0) for one in h]
    if integrator == "euler":
        assert abs(slope(h, bias) - 1.0) <= 0.3
    else:
        assert slope(h, bias) >= 1.7


@pytest.mark.parametrize("name, integrator", THERMOSTATS)
def test_balanced_thermostat_is_a_fair_reference(name, integrator):
    """Thermostats of mass "auto" in balance and live give the same variance within 0.2%.

    At the step size of the engine's tests below, whose MCSE is a few times that.
    """
    h = np.sqrt(ETA[name])
    sampler = make_sampler(name)
    step = TABLE[name][1][integrator].integrator
    live = live_thermostat(sampler, step, h)[0]
    assert abs(live - exact_chain(name, integrator, TARGETS[0], h**2).theta[0, 0]) <= 2e-3


# (c) the engine -----------------------------------------------------------------------------------

#: what is right at T = 1/2, where T, its root and its square differ, is right at T = 1
TEMPERATURES = [pytest.param(1.0, marks=pytest.mark.slow), 0.5]


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("dim", [pytest.param(1, marks=pytest.mark.slow), 10])
@pytest.mark.parametrize("name, integrator", LINEAR)
def test_engine_has_the_exact_covariance(name, integrator, dim, temperature):
    target = Gaussian(correlated_precision(dim), temperature=temperature)
    chain = exact_chain(name, integrator, target, ETA[name])
    posterior = run_engine(name, integrator, target, ETA[name])
    assert_moments(posterior["theta"], chain.theta)


GRADIENT_NOISE = np.array([[4.0, 1.0], [1.0, 2.0]])


@pytest.mark.parametrize(
    "name, integrator",
    [
        # the others are quick with minibatches
        pytest.param(*cell, marks=() if cell[0] == "psgld" else pytest.mark.slow)
        for cell in LINEAR
    ],
)
def test_engine_with_gradient_noise(name, integrator):
    """Gradient noise of known covariance adds eta^2 Cov(g) to every step, in every integrator."""
    target = Gaussian(correlated_precision(2), noise=GRADIENT_NOISE)
    eta = min(ETA[name], 0.1)
    chain = exact_chain(name, integrator, target, eta)
    posterior = run_engine(name, integrator, target, eta)
    assert_moments(posterior["theta"], chain.theta)


def test_gradient_noise_inflates_sgld_by_its_formula():
    """1 + eta N Var(g) / (2T), whatever the bias of the Euler step."""
    for n, temperature in ((1.0, 1.0), (40.0, 0.5)):
        clean = Gaussian(np.ones((1, 1)), n, temperature)
        noisy = Gaussian(clean.A, n, temperature, noise=np.array([[0.3]]))
        ratio = (
            exact_chain("sgld", "euler", noisy, 0.1).theta
            / exact_chain("sgld", "euler", clean, 0.1).theta
        )
        assert ratio.item() == pytest.approx(1.0 + 0.1 * n * 0.3 / (2.0 * temperature), rel=1e-10)


def test_gradient_noise_inflates_sghmc_by_its_formula():
    """1 + eta N Var(g) / (2 T alpha) as alpha, eta -> 0 (the error is of order alpha)."""
    clean, noisy = Gaussian(np.ones((1, 1))), Gaussian(np.ones((1, 1)), noise=np.array([[400.0]]))
    sampler = SGHMC(friction=0.01)
    ratio = (
        exact_chain("sghmc", "euler", noisy, 1e-4, sampler).theta
        / exact_chain("sghmc", "euler", clean, 1e-4, sampler).theta
    )
    assert ratio.item() == pytest.approx(1.0 + 1e-4 * 400.0 / 0.02, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", list(TABLE["sghmc"][1]))
def test_gradient_variance_corrects_sghmc(integrator):
    """With beta_hat the variance ratio is 1 within 2%, where without it is above 1.6."""
    variance = np.array([8.0, 5.0])
    target = Gaussian(np.diag([1.0, 0.5]), noise=np.diag(variance))
    eta, alpha = 0.02, 0.1
    plain = SGHMC(friction=alpha)
    told = SGHMC(friction=alpha, gradient_variance=variance)
    without = np.diag(exact_chain("sghmc", integrator, target, eta, plain).theta)
    chain = exact_chain("sghmc", integrator, target, eta, told)
    ideal = np.diag(target.covariance)
    assert (without / ideal).min() >= 1.45
    assert np.abs(np.diag(chain.theta) / ideal - 1.0).max() <= 0.03
    posterior = run_engine("sghmc", integrator, target, eta, told, n_draws=200)
    assert_moments(posterior["theta"], chain.theta)


@pytest.mark.parametrize("n, temperature", [(1.0, 1.0), (50.0, 1.0), (1.0, 0.2), (200.0, 3.0)])
def test_told_sghmc_adds_what_the_gradient_noise_leaves(n, temperature):
    """Both noises of an Euler step together have the variance of the injected one without beta_hat.

    For any N and T: 2 (alpha - beta_hat) eta T/N + eta^2 Var(g) = 2 alpha eta T/N, hence the same
    chain to rounding. The gradient noise takes about half of alpha here.
    """
    eta, alpha = 0.05, 0.3
    variance = np.array([0.6, 0.4]) * 2.0 * alpha * temperature / (eta * n)
    A = correlated_precision(2)
    noisy = Gaussian(A, n, temperature, noise=np.diag(variance))
    told = exact_chain(
        "sghmc", "euler", noisy, eta, SGHMC(friction=alpha, gradient_variance=variance)
    )
    clean = exact_chain("sghmc", "euler", Gaussian(A, n, temperature), eta, SGHMC(friction=alpha))
    np.testing.assert_allclose(told.stationary(), clean.stationary(), rtol=1e-10, atol=1e-14)
    without = exact_chain("sghmc", "euler", noisy, eta, SGHMC(friction=alpha))
    assert (np.diag(without.theta) > 1.3 * np.diag(clean.theta)).all()


@pytest.mark.parametrize("integrator", list(TABLE["sghmc"][1]))
def test_diffusion_is_per_unit_of_time(integrator):
    """N data of mean potential u are one datum of potential N u, at the step size eta / N.

    Time passes by h = sqrt(eta / N) a step in both, so the friction D h is the same, and with it
    the chain of theta and v up to rounding.
    """
    eta, n, A = 0.1, 50.0, correlated_precision(3)
    variance = 0.02 * np.ones(3)
    many = SGHMC(diffusion=2.0, gradient_variance=variance)
    one = SGHMC(diffusion=2.0, gradient_variance=n**2 * variance)
    chain = exact_chain("sghmc", integrator, Gaussian(A, n), eta, many)
    same = exact_chain("sghmc", integrator, Gaussian(n * A), eta / n, one)
    for ours, theirs in ((chain.F[:6, :6], same.F[:6, :6]), (chain.B[:6], same.B[:6])):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    assert chain.F[5, 5] < 0.95  # the friction is seen


@pytest.mark.parametrize("name", ["sgnht", "msgnht"])
def test_thermostats_scale_with_the_number_of_data(name):
    """As above: friction at the start, and what the heat of a step does to it."""
    eta, n, states = 0.1, 50.0, []
    sampler = make_sampler(name, diffusion=2.0)
    theta = torch.ones(1, 3, dtype=torch.float64)
    for count, size in ((n, eta), (1.0, eta / n)):
        step = Step(
            n=count,
            gradient=lambda theta, count=count: n / count * theta,
            likelihood=None,
            potential=None,
            eta=size,
            noise=size / count,
            xi=2.0 * theta,
        )
        state = sampler.init_state(theta, step)
        started = state["a"].clone()
        TABLE[name][1]["splitting"].integrator(sampler, theta.clone(), state, step)
        states.append((started, state["a"], state["v"]))
    for ours, theirs in zip(*states, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    assert (states[0][1] - states[0][0]).abs().min() > 1e-4  # it has moved


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(
    "name, integrator",
    [
        # splitting schemes are shared: SGHMC has all of them here
        pytest.param(*cell, marks=pytest.mark.slow if is_shared(cell) else ())
        for cell in LINEAR
        if cell[0] != "psgld"
    ],
)
def test_engine_with_minibatches(name, integrator, temperature):
    """Batches of n of N rows without replacement add Cov(g) = S_x / n (N - n) / (N - 1).

    This is the test of the scaling by N, n and T: N = 100, n = 5, and a prior worth 20 rows. The
    rows have the covariance S_x exactly: with variances above 1.3, Euler's thermostats cannot cool
    what the minibatches of T = 1/2 heat, at any friction.
    """
    rows, n, precision = 100, 5, 20.0
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rows, 2))
    white = np.sqrt(rows) * np.linalg.qr(x - x.mean(0))[0]
    x = white @ np.array([[1.0, 0.6], [0.0, 0.8]]) + 1.0
    noise = np.cov(x.T, bias=True) / n * (rows - n) / (rows - 1)
    A = (1.0 + precision / rows) * np.eye(2)
    target = Gaussian(A, rows, temperature, noise)
    mean = x.sum(0) / (rows + precision)
    eta = 0.05 if name in ("sgld", "rsgld") else 0.01
    chain = exact_chain(name, integrator, target, eta)
    metric = constant_metric(scales(2)) if name == "rsgld" else None
    posterior = sample(
        GaussianMean(2, precision, metric),
        data=Data({"x": torch.from_numpy(x)}, rows),
        step_size=eta,
        sampler=make_sampler(name),
        integrator=integrator,
        batch_size=n,
        temperature=temperature,
        n_chains=384,
        n_draws=100,
        burn_in=200,
        thinning=8,
        init=mean + rng.multivariate_normal(np.zeros(2), target.covariance, 384),
        random_state=0,
    )
    assert_moments(posterior["theta"] - mean, chain.theta, precision=0.04)


@pytest.mark.parametrize("name, integrator", [("sgld", "euler"), ("sghmc", "splitting")])
@pytest.mark.parametrize("full", [True, False], ids=["matrix", "diagonal"])
def test_engine_with_a_constant_preconditioner(name, integrator, full):
    """M = RR' is the plain chain of the potential R'AR in phi, with covariance R S R' in theta."""
    target = Gaussian(correlated_precision(4), temperature=0.5)
    M = correlated_precision(4, low=0.5, high=2.0, seed=5) if full else scales(4)
    R = np.linalg.cholesky(M) if full else np.diag(np.sqrt(M))
    chain = exact_chain(name, integrator, Gaussian(R.T @ target.A @ R, temperature=0.5), 0.3)
    posterior = run_engine(name, integrator, target, 0.3, preconditioner=M)
    assert_moments(posterior["theta"], R @ chain.theta @ R.T)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("dim, eta", [(1, 2.0), (10, 0.7)])
def test_mala_is_exact_at_a_large_step(dim, eta, temperature):
    """Without rejections the variance would be a third too large, or infinite (D = 1)."""
    target = Gaussian(correlated_precision(dim), temperature=temperature)
    posterior = run_engine("mala", "metropolis", target, eta)
    acceptance = posterior.statistics["acceptance_rate"]
    assert acceptance.shape == (384,)
    assert acceptance.min() >= 0.2 and acceptance.max() <= 0.9
    assert_moments(posterior["theta"], target.covariance)


def test_mala_counts_its_acceptance():
    """The reported rate is the fraction of the kept steps (thinning 1) that moved."""
    target = Gaussian(np.ones((1, 1)))
    run = {"n_chains": 3, "n_draws": 400, "burn_in": 200, "thinning": 1}
    posterior = run_engine("mala", "metropolis", target, 1.5, **run)
    theta = posterior["theta"][:, :, 0]
    moved = (np.diff(theta, axis=1) != 0).mean(1)
    # the first kept step's move cannot be seen in the draws
    np.testing.assert_allclose(posterior.statistics["acceptance_rate"], moved, atol=2 / 400)
