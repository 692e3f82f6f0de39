"""Whole runs: schedules of step size and temperature, seeds, neighbouring chains, jobs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _linear import (
    Gaussian,
    LinearChain,
    assert_moments,
    chain_errors,
    correlated_precision,
    limit,
    propagate,
)
from _targets import GammaModel

from skbayes_sgmcmc import SamplingWarning, sample
from skbayes_sgmcmc.models import DensityModel
from skbayes_sgmcmc.samplers import MSGNHT, SGHMC, SGLD, SGNHT, TABLE, Sampler
from skbayes_sgmcmc.schedules import BlockDecay, Constant, Cyclical, Exponential, Polynomial

#: of the samplers that take steps, whatever the model
CELLS = [
    (name, cell)
    for name, (kind, cells) in TABLE.items()
    for cell in cells
    if not kind.needs_conditionals
]

# schedules ----------------------------------------------------------------------------------------

N_STEPS = 120
SCHEDULES = {
    "block": (BlockDecay(first=0.4, every=40, factor=0.25), Constant(1.0)),
    "polynomial": (Polynomial(first=0.4, last=0.02, gamma=0.55), Constant(1.0)),
    "annealed": (Constant(0.2), Exponential(first=3.0, last=0.3)),
    "cyclical": (Cyclical(first=0.4, n_cycles=3, exploration=0.3), Constant(1.0)),
}


def scheduled(name, integrator, schedule, rescale=True):
    """Exact covariances of the draws of a run under a schedule, and the draws' step sizes."""
    step_size, level = SCHEDULES[schedule]
    steps = np.arange(N_STEPS)
    etas = step_size.values(steps, N_STEPS)
    exploring = step_size.exploring(steps, N_STEPS)
    temperatures = np.where(exploring, 0.0, level.values(steps, N_STEPS))
    A = correlated_precision(2)
    # so little friction that a wrong v is remembered for some 30 steps
    sampler = SGHMC(friction=0.03) if name == "sghmc" else SGLD()

    def chain_at(eta, temperature):
        target = Gaussian(A, temperature=temperature)
        return LinearChain(sampler, TABLE[name][1][integrator].integrator, target, eta)

    exact = propagate(
        chain_at,
        np.linalg.inv(A),
        etas,
        temperatures,
        # momenta start warm, also where the run begins with a cycle's exploration at T = 0
        v_level=etas[0] * level.values(steps, N_STEPS)[0],
        rescale=rescale,
    )
    return sampler, A, exact[~exploring], etas[~exploring]


@pytest.mark.statistical
@pytest.mark.parametrize("schedule", list(SCHEDULES))
@pytest.mark.parametrize("name, integrator", [c for c in CELLS if c[0] in ("sgld", "sghmc")])
def test_schedules_keep_the_exact_covariance(name, integrator, schedule):
    """The law of the chain at every time of a run whose step size or temperature changes.

    v is rescaled by the root of the ratio whenever eta changes, so that it stays N(0, eta T/N). The
    weighted average over the draws, as the posterior weights them, and each quarter of the run.
    """
    sampler, A, exact, etas = scheduled(name, integrator, schedule)
    chains, A = 600, torch.from_numpy(A)
    posterior = sample(
        lambda theta: -0.5 * ((theta @ A) * theta).sum(1),
        2,
        step_size=SCHEDULES[schedule][0],
        temperature=SCHEDULES[schedule][1],
        sampler=sampler,
        integrator=integrator,
        n_chains=chains,
        n_draws=N_STEPS,
        burn_in=0,
        init=np.random.default_rng(2).multivariate_normal(
            np.zeros(2), np.linalg.inv(A.numpy()), chains
        ),
        random_state=0,
    )
    weighted = schedule in ("block", "polynomial")
    if weighted:
        np.testing.assert_allclose(posterior.weights, etas, rtol=1e-12)
    else:
        assert posterior.weights is None
    weight = etas / etas.mean() if weighted else np.ones(len(etas))
    draws = posterior["theta"]
    assert draws.shape == (chains, len(exact), 2)  # none while a cycle explores
    assert_moments(
        draws * np.sqrt(weight)[:, None], (exact * weight[:, None, None]).mean(0), precision=0.06
    )
    for part in np.array_split(np.arange(len(exact)), 4):
        assert_moments(draws[:, part], exact[part].mean(0), precision=0.08)


@pytest.mark.statistical
def test_rescaling_of_v_matters():
    """The power of the test above: without it the variance is double in a quarter of the run."""
    exact = scheduled("sghmc", "splitting", "block")[2]
    other = scheduled("sghmc", "splitting", "block", rescale=False)[2]
    ratios = [
        np.diag(other[part].mean(0)) / np.diag(exact[part].mean(0))
        for part in np.array_split(np.arange(len(exact)), 4)
    ]
    assert np.max(ratios) >= 2.0


@pytest.mark.statistical
@pytest.mark.parametrize("mass", ["auto", 50.0])
@pytest.mark.parametrize(
    "given", [{"friction": 0.1}, {"diffusion": 0.5}], ids=["friction", "diffusion"]
)
@pytest.mark.parametrize("kind", [SGNHT, MSGNHT])
def test_thermostats_stay_in_balance_when_the_step_changes(kind, given, mass):
    """Right after eta falls by 4 the variance is still the target's, whatever alpha then is.

    a must move as alpha does: with D by the root of the ratio, with a friction not at all (scaled,
    the variance was 35% too large for 100 steps with mass "auto", and for thousands with a heavy
    one). The splitting's own bias is below 1%.
    """
    posterior = sample(
        lambda theta: -0.5 * (theta**2).sum(1),
        1,
        step_size=BlockDecay(first=0.04, every=400, factor=0.25),
        sampler=kind(mass=mass, **given),
        integrator="splitting",
        n_chains=600,
        n_draws=600,
        burn_in=0,
        random_state=0,
    )
    squares = posterior["theta"][:, 400:, 0] ** 2
    for part in (squares[:, :100], squares[:, 100:]):
        average, error = chain_errors(part.mean(1))
        assert error <= 0.04
        assert abs(average - 1.0) <= limit(600) * error + 0.01


# seeds --------------------------------------------------------------------------------------------


def seeded(name, integrator, **settings):
    """A short run with own minibatches, default starts and noise in the gradient."""
    model = GammaModel(5.0) if name == "rsgld" else DensityModel(quartic, 3, noisy)
    return sample(
        model,
        step_size=0.02,
        sampler=name,
        integrator=integrator,
        **{"n_chains": 3, "n_draws": 30, "burn_in": 5, "random_state": 7} | settings,
    )["theta"]


def quartic(theta):
    return -0.25 * (theta**4).sum(1)


def noisy(theta, rng):
    return theta**3 + 0.5 * rng.normal(theta.shape[1])


@pytest.mark.parametrize("name, integrator", CELLS)
def test_same_seed_same_bits(name, integrator):
    first = seeded(name, integrator)
    np.testing.assert_array_equal(first, seeded(name, integrator))
    assert np.abs(first - seeded(name, integrator, random_state=8)).min() > 0
    assert np.abs(first[0] - first[1]).min() > 0  # and the chains differ


@pytest.mark.parametrize("name, integrator", CELLS)
def test_a_chain_does_not_depend_on_its_neighbours(name, integrator):
    """Chain 0 of one chain is chain 0 of three, to rounding: a batch may add in another order."""
    three = seeded(name, integrator)
    np.testing.assert_allclose(
        seeded(name, integrator, n_chains=1)[0], three[0], rtol=1e-10, atol=1e-10
    )


@pytest.mark.usefixtures("threads")
def test_n_jobs_does_not_change_the_draws():
    three = seeded("sghmc", "baoab")
    two_jobs = seeded("sghmc", "baoab", n_jobs=2)
    np.testing.assert_allclose(two_jobs, three, rtol=1e-10, atol=1e-10)


def test_random_state_objects_are_used_up():
    """A RandomState goes on from fit to fit; an int starts afresh."""
    state = np.random.RandomState(3)
    first, second = (seeded("sgld", "euler", random_state=state) for _ in range(2))
    assert np.abs(first - second).min() > 0
    again = seeded("sgld", "euler", random_state=np.random.RandomState(3))
    np.testing.assert_array_equal(first, again)


# samplers of one's own ----------------------------------------------------------------------------


class InPlace(Sampler):
    def euler(self, theta, state, step):
        theta.add_(step.xi * (2.0 * step.noise) ** 0.5 - step.eta * step.gradient(theta))


class Returned(Sampler):
    """The same positions, in a new tensor."""

    def euler(self, theta, state, step):
        return theta + (step.xi * (2.0 * step.noise) ** 0.5 - step.eta * step.gradient(theta))


class Lost(Returned):
    """A new tensor that nobody sees."""

    def euler(self, theta, state, step):
        super().euler(theta, state, step)


def drawn(sampler):
    return sample(lambda theta: -0.5 * (theta**2).sum(1), 2, sampler=sampler, random_state=0)


def test_a_step_may_return_the_new_positions():
    np.testing.assert_array_equal(drawn(Returned())["theta"], drawn(InPlace())["theta"])


def test_a_step_that_returns_one_position_for_all_chains_is_refused():
    class Mean(Returned):
        def euler(self, theta, state, step):
            return super().euler(theta, state, step).mean(0)

    with pytest.raises(ValueError, match=r"positions of shape \(2,\) for theta of shape \(4, 2\)"):
        drawn(Mean())


def test_a_step_that_moves_nothing_is_named():
    with pytest.warns(SamplingWarning, match=r"draws of Lost\(\) have no spread.*theta in place"):
        drawn(Lost())


def test_at_temperature_zero_draws_may_stand_still():
    start = np.zeros(2)  # the mode
    sample(lambda theta: -0.5 * (theta**2).sum(1), 2, init=start, temperature=0.0, n_draws=10)
