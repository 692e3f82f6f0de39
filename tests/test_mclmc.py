"""Microcanonical Langevin: its flows, its invariant density, and how it finds its step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cases import cases
from _posteriors import assert_same_draws
from scipy.integrate import solve_ivp
from sklearn.datasets import load_diabetes

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.samplers import MCLMC, Step, integrators
from skbayes_sgmcmc.samplers._tuning import TUNING

INTEGRATORS = ["leapfrog", "minimal_norm"]


def unit(rng, chains, d):
    u = torch.from_numpy(rng.standard_normal((chains, d)))
    return u / u.norm(dim=1, keepdim=True)


def gaussian_step(precision, *, n=1.0, eta=0.1, temperature=1.0, **others):
    """A step on the potential N u = theta' A theta / 2."""
    A = torch.from_numpy(precision) / n

    def value_and_gradient(theta):
        g = theta @ A
        return 0.5 * (theta * g).sum(1), g

    return Step(
        n=n, gradient=lambda theta: theta @ A, likelihood=None, potential=None,
        value_and_gradient=value_and_gradient, eta=eta, temperature=temperature,
        noise=eta * temperature / n, **others,
    )  # fmt: skip


def correlated(d):
    """Precisions from 1/2 to 2, in directions that are not the axes."""
    axes = np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0]
    return axes @ np.diag(np.geomspace(0.5, 2.0, d)) @ axes.T


# the flows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_a_turn_solves_its_differential_equation(size):
    """du = -P(u) grad S dt / (d - 1) for a constant gradient; and the growth of the kinetic energy.

    Tolerances of the solver are 1e-13, so 1e-9 is far above its error.
    """
    rng, d, epsilon = np.random.default_rng(0), 5, 0.7
    u, g = unit(rng, 1, d), size * torch.from_numpy(rng.standard_normal((1, d)))
    start, gradient = u[0].numpy().copy(), g[0].numpy()

    def slope(t, z):
        along = z[:d] @ gradient
        return [*(-(gradient - along * z[:d]) / (d - 1)), -along]

    expected = solve_ivp(slope, (0.0, epsilon), [*start, 0.0], "DOP853", rtol=1e-13, atol=1e-13).y[
        :, -1
    ]
    turned = torch.zeros(1, 1, dtype=torch.float64)
    step = gaussian_step(np.eye(d))
    MCLMC().turn({"u": u}, step, g, torch.full((1, 1), epsilon, dtype=torch.float64), 1.0, turned)
    np.testing.assert_allclose(u[0], expected[:d], atol=1e-9)
    np.testing.assert_allclose((d - 1) * turned[0], expected[d], rtol=1e-9, atol=1e-9)


@cases("size", [0.0, 1e-30, 1e10, 1e15])
def test_turns_by_extreme_gradients_stay_finite(size):
    """In float32: the direction keeps its length, and becomes that of -g for a large gradient."""
    rng, d = np.random.default_rng(0), 5
    u, direction = unit(rng, 2, d).float(), unit(rng, 2, d).float()
    before, turned = u.clone(), torch.zeros(2, 1, dtype=torch.float64)
    MCLMC().turn(
        {"u": u}, gaussian_step(np.eye(d)), size * direction, torch.ones(2, 1), 1.0, turned
    )
    assert torch.isfinite(turned).all()
    expected = before if size < 1.0 else -direction
    torch.testing.assert_close(u, expected, atol=1e-6, rtol=0.0)


def energy_error(integrator, eta, d=10):
    """Root mean square energy error of one step from 200 positions of a Gaussian."""
    rng = np.random.default_rng(0)
    theta, xi = (torch.from_numpy(rng.standard_normal((200, d))) for _ in range(2))
    step = gaussian_step(correlated(d), eta=eta, xi=xi)
    sampler = MCLMC(energy_error=1e-3, length=1.0)
    state = sampler.init_state(theta, step)
    getattr(integrators, integrator)(sampler, theta, state, step)
    return float(sampler.statistics(state, step)["energy_error"].mean()) ** 0.5


def test_energy_errors_of_a_step_are_of_third_order():
    """Half the step, an eighth of the error: exponents within 0.1 of 3 for these small steps.

    The minimal-norm scheme takes twice the gradients, and its errors are less than a tenth.
    """
    errors = {name: [energy_error(name, eta) for eta in (4e-3, 1e-3)] for name in INTEGRATORS}
    for large, small in errors.values():
        assert abs(np.log2(large / small) - 3.0) < 0.1
    assert errors["minimal_norm"][0] < 0.1 * errors["leapfrog"][0]


# the invariant density ----------------------------------------------------------------------------


CHAINS = 400  # a step of so many takes hardly longer than one of a few


def draws_of(d, temperature=1.0, **settings):
    """From an exact start, so that the burn-in is what the sampler finds its L in."""
    A = torch.from_numpy(correlated(d))
    root = np.linalg.cholesky(temperature * np.linalg.inv(correlated(d)))
    start = np.random.default_rng(1).standard_normal((CHAINS, d)) @ root.T
    options = {
        "sampler": "mclmc", "temperature": temperature, "n_chains": CHAINS, "n_draws": 50,
        "burn_in": 100, "thinning": 5, "random_state": 0, "init": start,
    }  # fmt: skip
    return sk.sample(lambda theta: -0.5 * ((theta @ A) * theta).sum(1), d, **(options | settings))


def errors_of(posterior, d, temperature=1.0):
    """Errors of means and second moments (d + d^2) in sds, and their standard errors."""
    covariance = temperature * np.linalg.inv(correlated(d))
    root = np.linalg.cholesky(np.linalg.inv(covariance))
    white = posterior["theta"] @ root
    moments = np.concatenate([white, (white[..., :, None] * white[..., None, :]).reshape(
        *white.shape[:2], -1)], axis=2)  # fmt: skip
    by_chain = moments.mean(axis=1)
    error = by_chain.std(axis=0, ddof=1) / np.sqrt(len(by_chain))
    expected = np.concatenate([np.zeros(d), np.eye(d).ravel()])
    return by_chain.mean(axis=0) - expected, error


@pytest.mark.statistical
@cases("d, temperature", [(10, 0.5), (2, 2.0)])
@cases("integrator", INTEGRATORS)
def test_gaussians_at_a_small_step(integrator, d, temperature):
    """Means and covariances within 4.5 standard errors, and 0.5% of a sd for the step's bias.

    Of at most 110 moments, the largest exceeds 4.5 by chance with a probability of 1e-3. The
    standard errors are below 3% of a sd.
    """
    posterior = draws_of(d, temperature, integrator=integrator, step_size=0.03)
    off, error = errors_of(posterior, d, temperature)
    assert error.max() < 0.03
    assert (np.maximum(np.abs(off) - 0.005, 0.0) / error).max() < 4.5


@pytest.mark.statistical
def test_the_step_found_by_the_sampler_is_as_good():
    """``step_size="auto"``: the wanted energy error of 5e-4 leaves less than 2% of bias."""
    posterior = draws_of(10, step_size="auto", burn_in=800)
    off, error = errors_of(posterior, 10)
    assert (np.maximum(np.abs(off) - 0.02, 0.0) / error).max() < 4.5


# the step size ------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(("wanted", "scale"), [(5e-4, 1e3), (0.05, 1e-3)])
def test_every_chain_finds_the_step_of_the_wanted_energy_error(wanted, scale):
    """From a first step that is 1,000 times too large or too small; within a factor of 5.

    The mean square over 1,000 steps of a heavy-tailed error has an error of tens of percent, and
    what the burn-in's average of 100 steps found has one, too: at an energy error of .05, 160
    chains had 0.29 to 3.7 times what is wanted, and means of sixteen 0.9 to 1.5 times.
    """
    posterior = sk.sample(
        lambda theta: -0.5 * ((theta / scale) ** 2).sum(1), 10, sampler=MCLMC(energy_error=wanted),
        step_size="auto", n_chains=16, n_draws=50, burn_in=1000, thinning=20, random_state=0,
        init=scale * np.random.default_rng(0).standard_normal((16, 10)), dtype="float64",
    )  # fmt: skip
    ratio = posterior.statistics["energy_error"] / wanted
    assert ((ratio > 0.2) & (ratio < 5.0)).all(), ratio
    assert 0.5 < ratio.mean() < 2.2
    if wanted == 5e-4:  # with little bias, L is 1.5 times the root of the exact variances' sum
        exact = 1.5 * scale * 10**0.5
        np.testing.assert_allclose(posterior.statistics["length"], exact, rtol=0.35)


def test_given_steps_are_kept():
    """A step moves every chain by sqrt(eta d / N), whatever the gradient is."""
    posterior = draws_of(10, step_size=0.04, thinning=1, n_draws=20, integrator="leapfrog")
    moves = np.linalg.norm(np.diff(posterior["theta"], axis=1), axis=2)
    np.testing.assert_allclose(moves, 0.4**0.5 * 0.2 / 0.2, rtol=1e-5)


def test_steps_that_are_too_large_are_doubted():
    with pytest.warns(sk.SamplingWarning, match="MCLMC are too large"):
        draws_of(10, step_size=1e4, n_chains=4, n_draws=20, init="random")


def funnel(theta):
    """Neal's funnel: the first coordinate is the log variance of the others."""
    v, x = theta[:, :1], theta[:, 1:]
    return -(v**2)[:, 0] / 18 - 0.5 * (x**2 * torch.exp(-v) + v).sum(1)


@pytest.mark.statistical
def test_chains_shorten_their_steps_where_the_density_is_narrow():
    """Steps that were found in the wide part are too long for the neck.

    Errors of 900 times the wanted one are undone, and half the step is tried: so few are, and the
    mean error of the others stays below 40 times the wanted one. When every undone step raised the
    bound for the next, the mean was 140 to 800 times the wanted one, and 10^9 times in networks.
    """
    posterior = sk.sample(
        funnel, 10, sampler="mclmc", step_size="auto", n_chains=32, burn_in=500, n_draws=500,
        thinning=1, random_state=0,
    )  # fmt: skip
    assert posterior.statistics["energy_error"].max() < 40 * 5e-4
    assert posterior.statistics["undone"].max() < 0.05


def after_steps(n_steps, eta, caution=1.0, tuning=True, wanted=1e-12, d=10):
    """States of 200 chains after steps on a Gaussian; L is so long that only turns change u."""
    rng = np.random.default_rng(0)
    theta, xi = (torch.from_numpy(rng.standard_normal((200, d))) for _ in range(2))
    step = gaussian_step(
        correlated(d), eta=eta, xi=xi, tuning=tuning, progress=1.0, energy_error=wanted,
        same_target=True,
    )  # fmt: skip
    sampler = MCLMC(length=1e12)
    state = sampler.init_state(theta, step)
    state["caution"].fill_(caution)
    start = theta.clone()
    for _ in range(n_steps):
        integrators.leapfrog(sampler, theta, state, step)
    return sampler, state, step, theta - start


def test_an_undone_step_is_followed_by_a_new_direction_of_half_the_length():
    """Errors are a million times the wanted one, so every step is undone: the chain stays, and its
    direction is drawn anew. The old one would lead to the same place again."""
    _, state, step, moved = after_steps(1, eta=1.0)
    assert (state["undone"] == 1.0).all() and (moved == 0.0).all()
    assert (state["caution"] == 0.5).all()
    torch.testing.assert_close(state["u"], step.xi / step.xi.norm(dim=1, keepdim=True))


def test_after_undone_steps_chains_come_back_to_their_own_step_and_no_further():
    """1.1^8 is more than 2: from half of it, in eight steps. One more would be a longer one."""
    for n_steps, expected in ((2, 0.5 * 1.1**2), (8, 1.0), (12, 1.0)):
        _, state, _, _ = after_steps(n_steps, eta=1e-6, caution=0.5)
        torch.testing.assert_close(state["caution"], torch.full_like(state["caution"], expected))


def test_a_shortened_step_tunes_as_the_whole_one_would():
    """Errors of half a step are an eighth: the step size that is found is the same to 5%.

    The wanted error is a hundredth of the mean one. Medians are compared, because a chain may have
    nearly no error by chance.
    """
    given = {"eta": 0.02, "wanted": 1e-8}
    half, whole = (after_steps(1, caution=c, **given)[1]["scale"].median() for c in (0.5, 1.0))
    assert whole < 0.9
    assert half == pytest.approx(float(whole), rel=0.05)


def test_the_usual_error_follows_a_schedule_of_step_sizes():
    """Squared errors grow like the cube of eta: by 64 from eta to 4 eta, within 10%."""
    sampler, state, *_ = after_steps(1, eta=1e-3, tuning=False)
    before = state["usual"].clone()
    sampler.rescale(state, 4.0)
    grown = (energy_error("leapfrog", 4e-3) / energy_error("leapfrog", 1e-3)) ** 2
    torch.testing.assert_close(
        state["usual"] / before, torch.full_like(before, grown), rtol=0.1, atol=0.0
    )


def test_one_huge_error_hardly_changes_the_usual_one():
    """It counts as 30 of them in an average over 100 steps."""
    _, state, *_ = after_steps(1, eta=1.0, tuning=False)
    usual = 1e-12 * (1.0 + 29.0 / 100.0)
    torch.testing.assert_close(state["usual"], torch.full_like(state["usual"], usual))


def test_a_length_far_below_the_step_makes_the_direction_new():
    """Also where e^(2 epsilon / L) is no number in float32."""
    u, xi = unit(np.random.default_rng(0), 3, 5).float(), unit(np.random.default_rng(1), 3, 5)
    MCLMC().refresh(u, xi.float(), torch.ones(3, 1), torch.full((3, 1), 1e-3))
    torch.testing.assert_close(u, xi.float(), rtol=0.0, atol=1e-6)


# what is not allowed ------------------------------------------------------------------------------


@cases(
    "d, settings, message",
    [
        (1, {}, "not allowed with 1 parameter: its dynamics need at least 2"),
        (3, {"temperature": 0.0}, "temperature=0 is not allowed with MCLMC"),
        (3, {"step_size": "auto", "burn_in": 0}, "burn_in=0 is not allowed"),
        (3, {"sampler": MCLMC(length=0.0)}, "sampler.length=0.0 is not allowed"),
        (3, {"sampler": MCLMC(energy_error=-1)}, "sampler.energy_error=-1 is not allowed"),
        (3, {"sampler": MCLMC(noise_scaling=2)}, "sampler.noise_scaling=2 is not allowed"),
        (3, {"integrator": "baoab"}, "integrator='baoab' is not allowed"),
    ],
)
def test_what_is_not_allowed(d, settings, message):
    options = {"sampler": "mclmc", "step_size": 0.1, "n_draws": 4, "burn_in": 4} | settings
    with pytest.raises(ValueError, match=message):
        sk.sample(lambda theta: -0.5 * (theta**2).sum(1), d, **options)


def test_models_without_a_density_are_refused():
    counts = np.random.default_rng(0).poisson(1.0, (10, 8))
    lda = sk.LatentDirichletAllocation(2, sampler="mclmc", parametrization="reduced_natural")
    with pytest.raises(ValueError, match="is not allowed"):
        lda.fit(counts)


def test_a_density_that_is_nowhere_finite_is_an_error():
    with pytest.raises((sk.SamplingError, ValueError)):
        sk.sample(lambda theta: theta.sum(1) * np.nan, 3, sampler="mclmc", step_size=0.1)


# networks -----------------------------------------------------------------------------------------


def network(**parameters):
    options = {
        "sampler": "mclmc", "n_chains": 3, "n_draws": 10, "burn_in": 300, "thinning": 7,
        "random_state": 0,
    }  # fmt: skip
    return sk.BayesianMLPRegressor(hidden_layer_sizes=(6, 6), **options | parameters)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("share, compiled", [(0.4, False), (0.85, False), (0.4, True)])
def test_an_interrupted_fit_resumes_with_the_same_bits(
    tmp_path, limits, interrupt_after, share, compiled
):
    """In the burn-in, while the step is tuned, and after it; with learned scales."""
    limits(chunk_steps=64)
    X, y = load_diabetes(return_X_y=True)
    if compiled:
        pytest.importorskip("numba")
    few = {"compiled": compiled, "burn_in": 150, "init": "random"}
    whole = network(**few).fit(X, y)
    resumed = network(**few, checkpoint=tmp_path / "file.npz")
    assert "call fit again" in interrupt_after(share, resumed, X, y)
    assert_same_draws(whole, resumed.fit(X, y))


# minibatches --------------------------------------------------------------------------------------

#: precisions of a Gaussian, and sds of its gradient's noise, which are largest where it is widest
PRECISIONS, NOISES = np.geomspace(0.04, 25.0, 6), np.geomspace(3.0, 0.3, 6)


def noisy_draws(scaling, n_steps=3000, chains=128):
    """Sds over chains and the later steps, in units of the true ones, and the state at the end."""
    rng, sampler = torch.Generator().manual_seed(0), MCLMC(noise_scaling=scaling)
    A, sd = torch.from_numpy(PRECISIONS), torch.from_numpy(NOISES)
    theta = torch.randn((chains, len(A)), generator=rng, dtype=A.dtype) / A.sqrt()
    tilt = torch.zeros_like(theta)  # what a minibatch adds to the gradient

    def value_and_gradient(theta):
        return ((0.5 * A * theta + tilt) * theta).sum(1), A * theta + tilt

    def step(k):
        tilt.normal_(generator=rng).mul_(sd)
        return Step(
            n=1.0, gradient=None, likelihood=None, potential=None, eta=0.01, temperature=1.0,
            value_and_gradient=value_and_gradient, noise=0.01, same_rows=False,
            xi=torch.randn(theta.shape, generator=rng, dtype=A.dtype),
            tuning=k < n_steps // 2, progress=min(1.0, 2.0 * k / n_steps), energy_error=5e-4,
        )  # fmt: skip

    state, kept = sampler.init_state(theta, step(0)), []
    for k in range(n_steps):
        if k == n_steps // 2:
            sampler.end_burn_in(state)
        integrators.leapfrog(sampler, theta, state, step(k))
        if k > n_steps // 2 and k % 10 == 0:
            kept.append(theta.clone())
    return torch.stack(kept).std((0, 1)) * A.sqrt(), state


@pytest.mark.statistical
def test_noise_of_the_gradient_that_differs_between_directions_hardly_biases():
    """Sds between 0.85 and 1.15 of the true ones; by chance they differ by 2%, the widest by 6%.

    Noise that is the same in all directions of the coordinates only turns u. In the units of the
    parameters the directions with much noise get too wide and the others too narrow: the ratios
    are from 0.84 to 1.36, and 0.36 to 2.1 in a regression with eight features of different sizes.
    """
    found, state = noisy_draws(scaling=True)
    assert ((found > 0.85) & (found < 1.15)).all()
    plain, _ = noisy_draws(scaling=False, n_steps=1000)
    assert plain.max() / plain.min() > 1.5
    # frozen after the burn-in: 1,500 steps, of which the last third counts, know sds to 5%
    even = 1.0 / np.sqrt(NOISES**2 / np.mean(NOISES**2) + TUNING.least_noise)
    np.testing.assert_allclose(
        state["scaling"], np.broadcast_to(even / np.sqrt(np.mean(even**2)), (128, 6)), rtol=0.2
    )
    assert "noise" not in state


def test_a_scaled_step_is_a_plain_step_of_scaled_coordinates():
    """To rounding: positions theta = s z, for the potential that z has, and the same errors."""
    rng, d = np.random.default_rng(0), 5
    s = np.geomspace(0.2, 3.0, d)
    z, u, xi = torch.from_numpy(rng.standard_normal((3, d))), unit(rng, 3, d), unit(rng, 3, d)
    ends = []
    for scale, scaled in ((np.ones(d), False), (s, True)):
        rest = s / scale
        precision = correlated(d) * rest[:, None] * rest[None, :]
        step = gaussian_step(precision, eta=0.3, xi=xi.clone(), same_target=True)
        theta, sampler = z * torch.from_numpy(scale), MCLMC()
        state = sampler.init_state(theta, step) | {"u": u.clone()}
        if scaled:
            state["scaling"] = torch.from_numpy(scale).expand(3, d)
        integrators.leapfrog(sampler, theta, state, step)
        ends.append((theta / torch.from_numpy(scale), state))
    (plain, its), (scaled, state) = ends
    torch.testing.assert_close(scaled, plain)
    for name in ("u", "errors", "length"):
        torch.testing.assert_close(state[name], its[name])


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("batch_size", [60, 20])
def test_all_rows_have_no_noise_to_scale_by(batch_size):
    """What changes the gradient then are scales of the prior, which are drawn every 50 steps."""
    X, y = load_diabetes(return_X_y=True)
    few = {"burn_in": 100, "n_draws": 5, "init": "random", "batch_size": batch_size}
    own, plain = (
        network(sampler=MCLMC(noise_scaling=scaling), **few).fit(X[:60], y[:60])
        for scaling in (True, False)
    )
    assert np.array_equal(own.predict(X), plain.predict(X)) is (batch_size == 60)
