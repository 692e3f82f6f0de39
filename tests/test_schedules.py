"""Schedules: their formulas, their checks, and the steps at which the engine asks for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cases import cases
from sklearn.base import clone

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.schedules import (
    AtLeast,
    BlockDecay,
    Constant,
    Cyclical,
    Exponential,
    MultiStep,
    Polynomial,
    Schedule,
    as_schedule,
)

N_STEPS = 101
EXAMPLES = [
    Constant(0.3),
    Polynomial(first=0.5, last=0.01),
    Polynomial(a=2.0, b=10.0, gamma=1 / 3),
    Exponential(0.5, last=0.01),
    Exponential(0.5, rate=1.003),
    BlockDecay(0.5, every=70),
    MultiStep(0.5, milestones=(10, 60), factor=0.2),
    Cyclical(0.5, n_cycles=3, exploration=0.4),
    AtLeast(Polynomial(first=0.5, last=0.01), 0.1),
]


def values(schedule, n_steps=N_STEPS):
    return schedule.values(np.arange(n_steps), n_steps)


@cases("schedule", EXAMPLES)
def test_what_all_schedules_share(schedule):
    """Positive; the same however the run is cut into chunks; parameters are scikit-learn's."""
    whole = values(schedule)
    assert whole.shape == (N_STEPS,) and whole.dtype == float and (whole > 0).all()
    steps = np.arange(N_STEPS)
    parts = [schedule.values(part, N_STEPS) for part in np.array_split(steps, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    exploring = [schedule.exploring(part, N_STEPS) for part in np.array_split(steps, 7)]
    np.testing.assert_array_equal(
        np.concatenate(exploring), schedule.exploring(np.arange(N_STEPS), N_STEPS)
    )
    schedule.check("step_size")
    assert as_schedule("step_size", schedule) is schedule
    np.testing.assert_array_equal(values(clone(schedule)), whole)


def test_polynomial_passes_through_its_ends():
    """first and last give the constants of a (b + t)^-gamma."""
    schedule = Polynomial(first=0.5, last=0.01, gamma=0.55)
    got = values(schedule)
    assert got[0] == pytest.approx(0.5, rel=1e-12) and got[-1] == pytest.approx(0.01, rel=1e-12)
    # the same curve by its constants: (0.5/0.01)^(1/gamma) = (b + 100) / b
    b = 100.0 / (50.0 ** (1.0 / 0.55) - 1.0)
    same = Polynomial(a=0.5 * b**0.55, b=b, gamma=0.55)
    np.testing.assert_allclose(values(same), got, rtol=1e-12)
    np.testing.assert_allclose(got, 0.5 * b**0.55 * (b + np.arange(101)) ** -0.55, rtol=1e-12)


def test_formulas():
    t = np.arange(N_STEPS)
    np.testing.assert_array_equal(values(Constant(0.3)), np.full(N_STEPS, 0.3))
    np.testing.assert_allclose(values(Exponential(0.5, rate=0.9)), 0.5 * 0.9**t, rtol=1e-12)
    ends = values(Exponential(0.5, last=0.01))
    np.testing.assert_allclose(np.diff(np.log(ends)), np.log(0.02) / 100, rtol=1e-9)
    assert ends[-1] == pytest.approx(0.01, rel=1e-12)
    np.testing.assert_array_equal(values(BlockDecay(0.5, every=40)), 0.5 * 0.5 ** (t // 40))
    steps = values(MultiStep(0.5, milestones=(10, 60), factor=0.2))
    np.testing.assert_allclose(steps[[9, 10, 59, 60]], [0.5, 0.1, 0.1, 0.02], rtol=1e-12)


def test_a_schedule_that_falls_stays_at_its_least_value():
    """Also its exploration and its weights are those of the schedule inside."""
    falling = Polynomial(first=0.5, last=0.01)
    got, inside = values(AtLeast(falling, 0.1)), values(falling)
    assert inside[0] > 0.1 > inside[20]
    np.testing.assert_array_equal(got, np.where(inside > 0.1, inside, 0.1))
    cycles, steps = Cyclical(0.5), np.arange(80)
    exploring = AtLeast(cycles, 0.1).exploring(steps, 80)
    np.testing.assert_array_equal(exploring, cycles.exploring(steps, 80))
    assert not AtLeast(cycles, 0.1).weights_draws and AtLeast(falling, 0.1).weights_draws


def test_cyclical_restarts_and_explores():
    """Cosine from first to 0 in each cycle; the first part of each cycle explores."""
    schedule = Cyclical(0.5, n_cycles=4, exploration=0.25)
    got, exploring = values(schedule, 80), schedule.exploring(np.arange(80), 80)
    np.testing.assert_allclose(got[:20], 0.25 * (np.cos(np.pi * np.arange(20) / 20) + 1.0))
    np.testing.assert_array_equal(got, np.tile(got[:20], 4))
    np.testing.assert_array_equal(exploring, np.tile(np.arange(20) < 5, 4))
    # a run that the cycles do not divide has a shorter last one
    assert (values(schedule, 82)[[0, 21, 42, 63]] == 0.5).all()


@cases("schedule", EXAMPLES)
def test_a_run_of_one_step_has_the_first_value(schedule):
    """Whatever the length that a schedule is spread over, it begins where it begins."""
    np.testing.assert_allclose(values(schedule, 1), values(schedule)[:1], rtol=1e-12)


def test_weighting_is_as_the_papers_have_it():
    """Averages are weighted by the step size where it decays; equal for constant and cyclical."""
    for schedule in EXAMPLES:
        assert schedule.weights_draws is not isinstance(schedule, Constant | Cyclical)


@cases(
    "bad, named",
    [
        (0.0, "step_size=0.0"),
        (-1.0, "step_size=-1.0"),
        (np.nan, "step_size=nan"),
        (np.inf, "step_size=inf"),
        (True, "step_size=True"),
        ("fast", "step_size='fast'"),
        (None, "step_size=None"),
        (Constant(0.0), "step_size=0.0"),
        (Polynomial(first=0.1), "last=None"),
        (Polynomial(first=0.1, last=0.2), "step_size.first=0.1"),
        (Polynomial(first=0.1, last=0.1), "step_size.first=0.1"),
        (Polynomial(first=0.2, last=0.1, gamma=0.0), "step_size.gamma=0.0"),
        (Polynomial(first=0.2, last=0.1, a=1.0, b=1.0), "a=1.0"),
        (Polynomial(a=1.0, b=0.0), "step_size.b=0.0"),
        (Exponential(0.1), "rate=None"),
        (Exponential(0.1, last=0.1, rate=0.5), "rate=0.5"),
        (Exponential(0.1, rate=-0.5), "step_size.rate=-0.5"),
        (BlockDecay(0.1, every=0), "step_size.every=0"),
        (BlockDecay(0.1, every=1.5), "step_size.every=1.5"),
        (BlockDecay(0.1, factor=0.0), "step_size.factor=0.0"),
        (MultiStep(0.1, milestones=(5, 2)), "milestones=(5, 2)"),
        (MultiStep(0.1, milestones=5), "milestones=5 is not allowed: give a list"),
        (MultiStep(-0.1), "step_size.first=-0.1"),
        (Cyclical(0.1, n_cycles=0), "step_size.n_cycles=0"),
        (Cyclical(0.1, exploration=1.0), "step_size.exploration=1.0"),
        (AtLeast(0.1, 0.01), "step_size.schedule=0.1"),
        (AtLeast(Exponential(0.1), 0.01), "step_size.schedule=Exponential"),
        (AtLeast(BlockDecay(0.1), 0.0), "step_size.least=0.0"),
    ],
)
def test_bad_parameters_are_named(bad, named):
    with pytest.raises(ValueError, match="not allowed") as error:
        as_schedule("step_size", bad)
    assert named in str(error.value)


def test_a_temperature_may_be_zero():
    assert (values(as_schedule("temperature", 0)) == 0.0).all()
    Constant(0.0).check("temperature")
    with pytest.raises(ValueError, match="temperature=-1"):
        as_schedule("temperature", -1)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@cases(
    "estimator, temperature",
    [
        # it refuses other temperatures
        (sk.LatentDirichletAllocation(2, parametrization="expanded_mean"), 1.0),
        # it ends early at temperature 1, and learns scales at 1 and at 0
        (sk.BayesianMLPClassifier(3), 1.0),
        (sk.BayesianMLPClassifier(3), 0.0),
    ],
)
def test_a_constant_temperature_is_a_number(estimator, temperature):
    rng = np.random.default_rng(0)
    data = rng.poisson(1.0, (40, 5)), np.arange(40) % 2
    run = estimator.set_params(max_steps=60, n_chains=2, random_state=0)
    same = temperature, Constant(temperature)
    first, second = (clone(run).set_params(temperature=each) for each in same)
    one, other = first.fit(*data).posterior_, second.fit(*data).posterior_
    for name in one:
        np.testing.assert_array_equal(other[name], one[name])


# the engine's bookkeeping -------------------------------------------------------------------------


def travel(step_size, **settings):
    """Positions of a chain at T = 0 whose gradient is -1: the sum of the step sizes so far."""
    posterior = sk.sample(
        lambda theta: theta.sum(1),
        1,
        gradient_of_potential=lambda theta, rng: -torch.ones_like(theta),
        step_size=step_size,
        sampler="sgld",
        integrator="euler",
        temperature=0.0,
        n_chains=2,
        init=np.zeros(1),
        random_state=0,
        **settings,
    )
    return posterior, posterior["theta"][0, :, 0]


@cases("schedule", [s for s in EXAMPLES if not isinstance(s, Cyclical)])
def test_engine_takes_the_schedule_through_burn_in_and_thinning(schedule):
    """Draw j comes after burn_in + (j + 1) thinning steps, with the weight of its own step."""
    burn_in, thinning, n_draws = 11, 3, 300
    posterior, theta = travel(schedule, burn_in=burn_in, thinning=thinning, n_draws=n_draws)
    n_steps = burn_in + thinning * n_draws
    etas = values(schedule, n_steps)
    at = burn_in + thinning * (1 + np.arange(n_draws))
    np.testing.assert_allclose(theta, np.cumsum(etas)[at - 1], rtol=1e-12)
    if schedule.weights_draws:
        np.testing.assert_allclose(posterior.weights, etas[at - 1], rtol=1e-12)
        mean = (posterior.weights * theta).sum() / posterior.weights.sum()
        np.testing.assert_allclose(posterior.mean("theta"), mean, rtol=1e-12)
    else:
        assert posterior.weights is None


def test_engine_keeps_no_draw_while_a_cycle_explores():
    schedule = Cyclical(0.5, n_cycles=3, exploration=0.5)
    _, theta = travel(schedule, burn_in=0, n_draws=60)
    sampling = ~schedule.exploring(np.arange(60), 60)
    np.testing.assert_allclose(theta, np.cumsum(values(schedule, 60))[sampling], rtol=1e-12)


def test_a_run_that_only_explores_says_so():
    """It spoke of the sampling threshold of thinning=1, and of a noise_ratio to give."""
    schedule = Cyclical(0.5, n_cycles=1, exploration=0.9)
    with pytest.raises(sk.SamplingError, match=r"step_size=Cyclical\(.* explores at every step"):
        travel(schedule, burn_in=0, n_draws=2)


def test_mixing_distance_collects_by_the_sum_of_step_sizes():
    """A draw as soon as the step sizes since the last one exceed D0; all equally weighted."""
    schedule, distance, burn_in = Polynomial(first=0.5, last=0.01), 0.6, 20
    thinning = sk.MixingDistance(n_steps=400, distance=distance)
    posterior, theta = travel(schedule, thinning=thinning, burn_in=burn_in, n_draws=50)
    etas, expected, since = values(schedule, 400), [], 0.0
    for k, position in enumerate(np.cumsum(etas)):
        # the distance counts from the chunk in which collecting starts: the end of burn-in
        if k >= burn_in:
            since += etas[k]
            if since > distance:
                expected.append(position)
                since = 0.0
    assert len(expected) >= 10
    np.testing.assert_allclose(theta, expected[:50], rtol=1e-12)
    assert posterior.weights is None


def test_mixing_distance_counts_no_step_that_explores():
    """Steps without noise neither give draws nor bring the next one nearer."""
    schedule, distance = Cyclical(0.5, n_cycles=3, exploration=0.5), 0.6
    thinning = sk.MixingDistance(n_steps=60, distance=distance)
    _, theta = travel(schedule, thinning=thinning, burn_in=0, n_draws=60)
    etas, exploring = values(schedule, 60), schedule.exploring(np.arange(60), 60)
    expected, since = [], 0.0
    for eta, explores, position in zip(etas, exploring, np.cumsum(etas), strict=True):
        since += 0.0 if explores else eta
        if since > distance:
            expected.append(position)
            since = 0.0
    assert len(expected) >= 3
    np.testing.assert_allclose(theta, expected, rtol=1e-12)


def test_a_users_own_schedule():
    class Odd(Schedule):
        """0.1 at even steps and 0.2 at odd ones."""

        def values(self, steps, n_steps):
            return np.where(steps % 2, 0.2, 0.1)

    _, theta = travel(Odd(), burn_in=0, n_draws=6)
    np.testing.assert_allclose(theta, np.cumsum([0.1, 0.2] * 3), rtol=1e-12)


@cases(
    "values, message",
    [
        (lambda *_: 0.1, r"steps \[0, 1, 2\] are 0.1. Return an array with a value for each step"),
        (lambda _, steps, n: 0.1 + 0.0 * steps[:1], r"steps \[0, 1, 2\] are array\(\[0.1\]\)"),
        (lambda _, steps, n: -0.1 + 0.0 * steps, "values are between -0.1 and -0.1"),
    ],
)
@cases("name", ["step_size", "temperature"])
def test_values_of_own_schedules(name, values, message):
    """One value for all steps ended the run after a step, and no noise was below zero degrees."""
    own = type("Own", (Schedule,), {"values": values})()
    with pytest.raises(ValueError, match=rf"{name}=Own\(\) is not allowed: .*{message}"):
        sk.sample(lambda theta: -0.5 * (theta**2).sum(1), 1, **{name: own})


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")  # of so few draws
@pytest.mark.parametrize(
    ("kind", "parameters", "error"),
    [
        (sk.BayesianLogisticRegression, {}, 1e-4),  # by moments of the draws
        (sk.BayesianOrdinalClassifier, {}, 1e-12),
        (sk.BayesianMLPClassifier, {"hidden_layer_sizes": 5}, 1e-6),  # in float32
    ],
)
def test_probabilities_are_means_that_are_weighted_by_step_sizes(kind, parameters, error):
    """Step sizes fall by a factor of 1,000. The plain mean of the draws is another number."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 3))
    y = np.digitize(X[:, 0] + rng.logistic(size=100), [-1.0, 1.0])
    run = {"n_chains": 2, "n_draws": 40, "burn_in": 100, "thinning": 3, "random_state": 0}
    clf = kind(sampler="sgld", step_size=Exponential(0.1, 1e-4), **parameters, **run).fit(X, y)
    p, draws = clf.predict_proba(X), clf.predict_proba_samples(X)
    weights = clf.posterior_.pooled_weights()
    assert weights.max() > 30.0 * weights.min()
    np.testing.assert_allclose(np.tensordot(weights, draws, 1), p, atol=error)
    assert np.abs(draws.mean(0) - p).max() > 30.0 * error
