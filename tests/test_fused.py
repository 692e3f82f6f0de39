"""The compiled steps of SGLD and pSGLD do what the samplers' own steps do, on the same normals."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _cases import cases
from _inside import inside
from sklearn.datasets import make_classification

from skbayes_sgmcmc import BayesianMLPClassifier
from skbayes_sgmcmc._data.philox import Philox
from skbayes_sgmcmc._engine.accelerators import fused_steps as _fused
from skbayes_sgmcmc._limits import LIMITS
from skbayes_sgmcmc.samplers import PSGLD, SGLD, Step
from skbayes_sgmcmc.samplers.integrators import euler
from skbayes_sgmcmc.schedules import Polynomial

pytest.importorskip("numba")
from skbayes_sgmcmc._kernels.philox import BLOCK

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

N_STEPS = 44


@pytest.fixture(scope="module")
def data():
    return make_classification(120, 30, n_informative=10, n_classes=3, random_state=0)


@pytest.fixture(autouse=True)
def short_runs_count(limits):
    limits(worth_steps=0)


class Plain:
    """The sampler's own Euler step with the normals that the compiled one makes: a portion a step.

    (The loop over steps would ask for those of several steps at once, which are others.)
    """

    def __call__(self, sampler, theta, state, step):
        normals = torch.empty(theta.shape, dtype=torch.float32)
        for row, stream in zip(normals, step.streams, strict=True):
            stream.normal(row)
        step.xi = normals.to(theta.dtype)
        euler(sampler, theta, state, step)


@pytest.fixture
def plain(monkeypatch):
    """``draws`` of a run by :class:`Plain`."""

    def equip(self, engine, work):
        return replace(engine, integrator=Plain(), philox=True, own_noise=True)

    def run(*args, **parameters):
        with monkeypatch.context() as patch:
            patch.setattr(_fused.FusedSteps, "equip", equip)
            return draws(*args, **parameters)

    return run


@pytest.fixture
def calls(monkeypatch):
    """Steps that the compiled code takes."""
    made, step = [], _fused.FusedEuler.__call__

    def counted(self, *args):
        made.append(args)
        return step(self, *args)

    monkeypatch.setattr(_fused.FusedEuler, "__call__", counted)
    return made


def fitted(data, **parameters):
    """A network of 2587 parameters: more than one block of normals, and not whole blocks."""
    assert 4 * BLOCK < 2587 < 8 * BLOCK
    defaults = {
        "hidden_layer_sizes": 76, "step_size": 0.003, "batch_size": 20, "n_chains": 3,
        "burn_in": 20, "n_draws": 12, "thinning": 2, "random_state": 0, "dtype": "float64",
    }  # fmt: skip
    clf = BayesianMLPClassifier(**(defaults | parameters)).fit(*data)
    sizes = {name: values[0, 0].size for name, values in clf.posterior_.draws.items()}
    assert sum(size for name, size in sizes.items() if not name.startswith("scale_")) == 2587
    return clf


def draws(data, **parameters):
    posterior = fitted(data, **parameters).posterior_
    parts = [values.reshape(*values.shape[:2], -1) for values in posterior.draws.values()]
    return np.concatenate(parts, axis=2)


PSGLDS = [
    PSGLD(adapt=adapt, lag=lag, cap=cap)
    for adapt, lag, cap in product(("burn_in", "always"), (True, False), (None, 2.0))
] + [PSGLD(start="zero", with_prior=True)]


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("sampler", [SGLD(), *PSGLDS], ids=repr)
def test_compiled_steps_are_the_samplers(data, plain, calls, sampler, dtype):
    """Draw by draw over 44 steps of three chains, across burn-in's end.

    A step's rounding (1e-16, or 6e-8 in float32, of numbers of order 1) is multiplied by less than
    ten over so few steps; another normal or a wrong scale would show as 1e-2.
    """
    parameters = {"sampler": sampler, "integrator": "euler", "dtype": dtype}
    compiled = draws(data, **parameters)
    assert len(calls) == N_STEPS and compiled.dtype == dtype
    expected = plain(data, **parameters)
    assert len(calls) == N_STEPS
    bound = 1e-11 if dtype == "float64" else 2e-4
    np.testing.assert_allclose(compiled, expected, rtol=0, atol=bound)
    assert np.abs(compiled[:, -1] - compiled[:, 0]).max() > 1e-2


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "sampler": "sgld", "integrator": "euler"},
        {"n_chains": 1},
        {"batch_size": 120},
        {"step_size": Polynomial(first=0.01, last=0.001)},
        {"init": "map", "burn_in": 20},
        {"prior": "laplace", "prior_scale": 0.5},
        {"prior_scale": 100.0, "sampler": PSGLD(regularization=1e-2, decay=0.9)},
        {"prior_scale": "learned"},
    ],
    ids=lambda parameters: "-".join(parameters),
)
def test_compiled_steps_in_other_runs(data, plain, calls, parameters):
    """No noise, one chain, all rows, changing steps and temperatures, and other bounds on G."""
    compiled = draws(data, **parameters)
    assert len(calls) == N_STEPS
    np.testing.assert_allclose(compiled, plain(data, **parameters), rtol=0, atol=1e-11)


def test_no_likelihood_gradient_leaves_a_bounded_step(data, plain, calls):
    """V = 0 at a feature that is zero in every row: G is its cap there, and not infinite."""
    X, y = data[0].copy(), data[1]
    X[:, 3] = 0.0
    compiled = draws((X, y))
    np.testing.assert_allclose(compiled, plain((X, y)), rtol=0, atol=1e-11)
    assert np.isfinite(compiled).all()


# chains, threads and where a run goes on ----------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sampler", [SGLD(), PSGLD()], ids=repr)
def test_threads_do_not_change_the_bits(limits, sampler, dtype):
    """Parts begin where blocks of the counter do, so that each parameter has its own normal.

    The gradient is made without products, whose sums torch may order by the number of threads.
    """
    limits(thread_numbers=3000)
    n_parameters = 3 * 4 * BLOCK + 4321
    curvature = torch.linspace(0.1, 2.0, n_parameters, dtype=dtype)

    def run(n_threads):
        before = torch.get_num_threads()
        torch.set_num_threads(n_threads)
        try:
            fused = _fused.FusedEuler()
        finally:
            torch.set_num_threads(before)
        streams = [Philox(key) for key in (3, 4)]
        theta = torch.ones(2, n_parameters, dtype=dtype)
        step = Step(
            n=10.0,
            gradient=lambda theta: theta * curvature,
            likelihood=lambda: curvature.expand(2, -1).contiguous(),
            potential=None,
            eta=0.01,
            noise=0.001,
            streams=streams,
        )
        state = sampler.init_state(theta, step) if isinstance(sampler, PSGLD) else {}
        for _ in range(3):
            fused(sampler, theta, state, step)
        return theta, [stream.counter for stream in streams]

    (alone, at), (together, there) = run(1), run(3)
    assert torch.equal(alone, together)
    assert at == there == [3 * 6 * BLOCK] * 2
    # no two parameters share a normal: of float32 numbers a few in ten thousand coincide
    moved = alone - torch.ones_like(alone)
    assert len(torch.unique(moved)) > 0.99 * moved.numel()


def test_a_warm_start_goes_on_with_new_numbers(data, calls):
    """Two runs of n draws without burn-in are one of 2n: the counter and V go on.

    Runs must end where a portion of row numbers does.
    """
    n = LIMITS.cache_numbers // (2587 + 20)
    parameters = {"sampler": PSGLD(adapt="always"), "burn_in": 0, "thinning": 1}
    whole = draws(data, **parameters, n_draws=2 * n)
    clf = fitted(data, **parameters, n_draws=n, warm_start=True)
    first = clf.posterior_["weight_1"]
    clf.fit(*data)
    assert len(calls) == 4 * n
    both = np.concatenate([first, clf.posterior_["weight_1"]], axis=1).reshape(3, 2 * n, -1)
    np.testing.assert_allclose(both, whole[:, :, : both.shape[2]], rtol=0, atol=1e-11)


# where it is not used -----------------------------------------------------------------------------


class MySGLD(SGLD):
    """A user's sampler, whose Euler step may be another."""


@cases(
    "parameters",
    [
        {"sampler": "sghmc", "integrator": "euler"},
        {"sampler": "sgnht", "integrator": "euler"},
        {"sampler": "msgnht", "integrator": "euler"},
        {"sampler": "sgld", "integrator": "leimkuhler_matthews"},
        {"sampler": PSGLD(divergence=True)},
        {"sampler": MySGLD()},
        {"compiled": False},
    ],
)
def test_other_runs_are_left_to_torch(data, calls, parameters):
    assert np.isfinite(draws(data, **parameters)).all()
    assert not calls


def test_runs_too_small_to_be_worth_compiling_are_left_to_torch(data, calls, limits):
    """``worth_steps`` counts parameters, steps and chains; the generator is torch's then."""
    numbers = 2587 * N_STEPS * 3
    limits(worth_steps=numbers + 1)
    small = draws(data)
    assert not calls
    np.testing.assert_array_equal(small, draws(data, compiled=False))
    limits(worth_steps=numbers)
    assert np.abs(draws(data) - small).max() > 1e-2
    assert len(calls) == N_STEPS


@pytest.mark.parametrize("sampler", ["sgld", "psgld"])
def test_compiled_code_can_be_asked_for(data, calls, limits, sampler):
    """``compiled=True`` takes what "auto" takes where it pays, however short the run is."""
    limits(worth_steps=10**9)
    draws(data, sampler=sampler, compiled=True)
    assert len(calls) == N_STEPS


def test_without_numba_torch_takes_over(data, calls, monkeypatch):
    expected = draws(data, compiled=False)
    for name in [name for name in sys.modules if "._kernels" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    np.testing.assert_array_equal(draws(data), expected)
    assert not calls


def test_the_integrator_has_to_be_euler():
    """What stands in for Leimkuhler and Matthews' step would be another method."""
    from skbayes_sgmcmc.samplers import Cell

    for integrator, applies in ((euler, True), (SGLD.leimkuhler_matthews, False)):
        recipe = inside("Recipe")(
            target=SimpleNamespace(like=torch.empty(0), model=SimpleNamespace(needs_gamma=False)),
            sampler=SGLD(),
            cell=Cell(integrator, 0.1),
            minibatches=None,
            values=None,
            step_size=0.1,
            n_steps=10,
            n_chains=1,
        )
        assert (_fused.FusedSteps().why_not(recipe) is None) == applies
