"""Steps that samplers find by the energy error of their steps, where the table's are guesses."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
import torch
from _inside import inside

from skbayes_sgmcmc.models import Data, ManyModes, Model
from skbayes_sgmcmc.samplers import SGHMC
from skbayes_sgmcmc.samplers._tuning import adapt

Settings = inside("Settings")

draw = inside("draw")
Problem = inside("Problem")

pytestmark = pytest.mark.statistical

D = 20
#: samplers and their integrators, and what eta^3 is in units of the wanted error on N(0, I): the
#: positions of two gradients have the squared distance h^2 D, with h^2 = eta for momenta (error
#: h^6 / 16) and 2 eta for SGLD, whose shared noise halves it
CELLS = {
    ("sgld", "leimkuhler_matthews"): 4.0,
    ("sgld", "euler"): 2.0,
    ("sghmc", "splitting"): 16.0,
    ("sghmc", "baoab"): 16.0,
    ("msgnht", "aboba"): 16.0,
}


class Normal(Model):
    """N(0, scale^2 I), of which nothing is known before the run."""

    def __init__(self, scale, guessed=True):
        self.scale, self.guessed = scale, guessed
        self.shapes = {"theta": (D,)}

    @property
    def tuning(self):
        return ManyModes(self, start="random", guessed=self.guessed)

    def init(self, rng):
        return self.scale * rng.standard_normal(D)

    def log_prior(self, theta):
        return -0.5 * ((theta / self.scale) ** 2).sum(1)

    def log_lik(self, theta, batch):
        return 0.0 * theta[:, :1]


def run(scale=1.0, guessed=True, previous=None, **settings):
    options = {"sampler": "sghmc", "step_size": "auto", "n_chains": 4, "n_draws": 50,
               "thinning": 2, "burn_in": 1000, "random_state": 0}  # fmt: skip
    data = Data({"x": torch.zeros(1, 1, dtype=torch.float64)}, 1)
    problem = Problem(Normal(scale, guessed), data, torch.float64, "cpu", previous)
    return draw(problem, Settings(**(options | settings)))


@pytest.mark.parametrize("scale", [0.1, 10.0])
@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_the_step_has_the_wanted_energy_error(cell, scale):
    """From first guesses that are too large by a factor of up to 15, or far too small; within 1.35.

    The square of the error averages about 100 steps, so it is known to some 20%, and eta, which
    grows like its cube root, to 7%, or 3.5% in the mean of four chains. Tuning aims at an error
    that falls a hundredfold in 1,000 steps, so 100 steps ago it was 1.6 times as large, and eta
    lags by up to 17%. The bound is this lag and four standard errors. Eta has the unit of the
    variance.
    """
    sampler, integrator = cell
    found = run(scale, sampler=sampler, integrator=integrator)
    error = 1.5e-3 if sampler == "msgnht" else 5e-4
    exact = scale**2 * (CELLS[cell] * error) ** (1 / 3)
    assert 1 / 1.35 < found.step_size / exact < 1.35


def test_steps_that_are_too_long_for_a_moment_leave_no_trace():
    """No chain of 64 is far away when the burn-in ends, and no friction far above 0.1.

    While a step is sought, it is too long now and then. Momenta heated up without limit, and the
    frictions that answered to 26 in one chain of 30, and to 1e5 in one of 100, whose step was then
    a hundredth of the right one. They fall by 9e-4 a step only. Capped momenta raise a friction by
    9e-3 in a step: 0.9 for the 100 steps of the tuning's memory. Scales are known to 11% (half of
    an eta's 7% and the lag of 17%); the smallest allowed is 0.6 of the one for this error.
    """
    found = run(0.1, sampler="msgnht", integrator="aboba", n_chains=64, n_draws=1)
    assert found.state.sampler["a"].max() < 1.0
    exact = 0.01 * (CELLS["msgnht", "aboba"] * 1.5e-3) ** (1 / 3)
    scale = np.sqrt(exact / found.state.last_eta)
    assert found.state.sampler["scale"].min() > 0.6 * scale


def test_a_first_error_that_is_small_by_chance_hardly_lengthens_steps():
    """It made them 20 times as long, and one chain of 1,000 never came back from where they led.

    One such error lengthens a step by a quarter at most, and the next error corrects it. A scale
    that is 50 times too small has such errors only, and needs 18 steps. Without noise both end
    where the error is the wanted one; 1% is for the rounding of the last correction.
    """

    def found(right, ratios=()):
        state = {"scale": torch.ones(1, 1), "trust": torch.zeros(1, 1)}
        for k in range(30):
            ratio = ratios[k] if k < len(ratios) else (state["scale"] / right) ** 6
            adapt(state, torch.as_tensor(ratio).reshape(1, 1), progress=0.0)
            assert state["scale"].item() < 1.26 * right
        return state["scale"].item()

    assert found(1.0, [1e-8]) == pytest.approx(1.0, rel=0.01)
    assert found(50.0) == pytest.approx(50.0, rel=0.01)


def test_the_step_that_was_found_is_kept():
    """It is that of the end of the burn-in, whatever comes after."""
    assert run(n_draws=3).step_size == run(n_draws=60).step_size


def test_draws_have_the_right_spread():
    """Within 3%: the splitting's bias at this step, of 1% or less, and 0.3% of MCSE.

    50 draws of 100 chains and 20 coordinates, 20 steps apart. The first guess alone, a
    hundredth of the right step size, has ten times shorter steps.
    """
    start = 0.1 * np.random.default_rng(0).standard_normal((100, D))
    draws = run(n_chains=100, thinning=20, init=start).draws
    assert abs(draws.std() - 1.0) < 0.03


@pytest.mark.parametrize(
    ("settings", "eta"),
    [
        ({"guessed": False}, 0.005),
        ({"step_size": 0.01}, 0.01),
        ({"sampler": SGHMC(diffusion=1.0)}, 0.005),  # D sets the friction of a step from eta
        ({"burn_in": 0}, 0.005),
    ],
    ids=["known", "given", "diffusion", "no burn-in"],
)
def test_steps_that_are_not_guessed_stay(settings, eta):
    assert run(**settings).step_size == eta


def test_chains_find_their_steps_alone():
    """The same draws in one group and in two, and warm starts keep each chain's step."""
    with joblib.parallel_config(backend="threading"):
        together, apart = run(), run(n_jobs=2)
    np.testing.assert_array_equal(together.draws, apart.draws)
    later = run(previous=together.state, burn_in="auto")
    assert later.step_size == together.step_size
    given = run(previous=together.state, step_size=0.01, burn_in=0)
    assert given.step_size == 0.01
