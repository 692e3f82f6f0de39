"""The compiled turns of MCLMC do what the sampler's own turns do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cases import cases
from sklearn.datasets import make_regression

from skbayes_sgmcmc import BayesianMLPRegressor
from skbayes_sgmcmc._engine.accelerators import fused_turns
from skbayes_sgmcmc._limits import LIMITS
from skbayes_sgmcmc.samplers import MCLMC

pytest.importorskip("numba")

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: per rounding of the sums and of what is multiplied by them
BOUNDS = {torch.float32: 2e-6, torch.float64: 1e-14}


def directions(n_chains, d, dtype):
    """Two sets of unit vectors u and of gradients, the second set for two ways to turn them."""
    rng = torch.Generator().manual_seed(d)
    u, g = torch.randn(2, n_chains, d, generator=rng, dtype=torch.float64).to(dtype)
    return u / torch.linalg.vector_norm(u, dim=1, keepdim=True), g


@cases("dtype", BOUNDS)
@cases("d", [2, 3, 8, 1001])
@cases("delta", [1e-8, 0.01, 1.0, 300.0])
def test_turns_by_a_gradient(dtype, d, delta):
    """For every delta, also along the force, without one, and against one that is not large.

    A large force against which u points exactly turns u to any side, which rounding decides.
    """
    u, g = directions(5, d, dtype)
    g[1], g[2], g[3] = -u[1], 0.0, u[3] * min(1.0, 0.1 / delta)
    epsilon = torch.linspace(0.5, 2.0, 5, dtype=dtype)[:, None] * delta
    ends = []
    for sampler in (MCLMC(), fused_turns.CompiledMCLMC()):
        direction, turned = u.clone(), torch.full((5, 1), 0.25, dtype=dtype)
        sampler.turn_by(direction, g, epsilon, -3.0, turned)
        ends.append((direction, turned))
    bound = BOUNDS[dtype]
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=bound, atol=bound)
    torch.testing.assert_close(ends[0][1], ends[1][1], rtol=bound, atol=bound)
    sizes = torch.linalg.vector_norm(ends[1][0], dim=1)
    torch.testing.assert_close(sizes, torch.ones_like(sizes), rtol=0, atol=bound)


@cases("dtype", BOUNDS)
@cases("d", [2, 8, 1001])
def test_turns_by_chance(dtype, d):
    """Between no turn at all and a direction that has nothing of the last one."""
    u, xi = directions(4, d, dtype)
    epsilon = torch.tensor([0.0, 1e-3, 1.0, 1e3], dtype=dtype)[:, None]
    length = torch.full_like(epsilon, 2.0)
    ends = [u.clone(), u.clone()]
    MCLMC().refresh(ends[0], xi, epsilon, length)
    fused_turns.CompiledMCLMC().refresh(ends[1], xi, epsilon, length)
    torch.testing.assert_close(*ends, rtol=BOUNDS[dtype], atol=BOUNDS[dtype])


def test_a_chain_without_a_gradient_leaves_the_others_alone():
    u, g = directions(3, 9, torch.float64)
    g[1, 4] = torch.nan
    whole, others, sums = u.clone(), u[[0, 2]].clone(), torch.zeros(3, 1, dtype=torch.float64)
    epsilon, turn_by = torch.full_like(sums, 0.1), fused_turns.CompiledMCLMC().turn_by
    turn_by(whole, g, epsilon, -1.0, sums)
    turn_by(others, g[[0, 2]], epsilon[:2], -1.0, torch.zeros(2, 1, dtype=torch.float64))
    assert whole[1].isnan().any() and sums[1].isnan()
    assert torch.equal(whole[[0, 2]], others)


def draws(compiled, **parameters):
    X, y = make_regression(60, 4, noise=5.0, random_state=0)
    settings = {"hidden_layer_sizes": (5,), "sampler": "mclmc", "n_chains": 3, "burn_in": 40}
    settings |= {"n_draws": 20, "thinning": 1, "dtype": "float64", "random_state": 0}
    model = BayesianMLPRegressor(**(settings | parameters), compiled=compiled).fit(X, y)
    assert model.compiled_ == (("fused_turns",) if compiled else ())
    posterior = model.posterior_
    return np.concatenate([x.reshape(3, 20, -1) for x in posterior.draws.values()], axis=2)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"integrator": "leapfrog"},
        {"batch_size": 20},  # coordinates in which gradients' noise is even
        {"sampler": MCLMC(energy_error=0.01, length=2.0)},  # the sampler's own parameters
    ],
    ids=str,
)
def test_fits_with_compiled_turns(parameters):
    """Draw by draw over sixty steps, in which a rounding grows by less than 1e4."""
    np.testing.assert_allclose(
        draws(True, **parameters), draws(False, **parameters), rtol=1e-9, atol=1e-9
    )


@pytest.mark.usefixtures("threads")
def test_groups_of_chains_give_the_same_draws():
    """Up to the rounding of the networks' products, which are those of all chains of a group."""
    np.testing.assert_allclose(draws(True), draws(True, n_jobs=3), rtol=1e-9, atol=1e-9)


def test_auto_compiles_long_runs_of_small_networks(limits):
    """A run is long by its steps, and by the numbers of a step."""
    X, y = make_regression(60, 4, noise=5.0, random_state=0)

    def used():
        return BayesianMLPRegressor(
            hidden_layer_sizes=(5,), noise="infer", prior_scale=1.0, sampler="mclmc", n_chains=3,
            burn_in=40, n_draws=20, thinning=1, random_state=0,
        ).fit(X, y).compiled_  # fmt: skip

    n_parameters = 4 * 5 + 5 + 5 + 1 + 1
    worth = 60 * (LIMITS.turn_numbers + 3 * n_parameters)
    assert used() == ()
    limits(worth_turns=worth + 1)
    assert used() == ()
    limits(worth_turns=worth)
    assert used() == ("fused_turns",)
    limits(thread_numbers=n_parameters)
    assert used() == ()
