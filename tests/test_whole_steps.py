"""Steps of MCLMC that are compiled as a whole are those of the sampler and of its integrators."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from _cases import cases
from _posteriors import assert_same_draws
from sklearn.datasets import load_diabetes, load_wine

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from skbayes_sgmcmc._engine.accelerators.whole_steps import WholeSteps
from skbayes_sgmcmc._engine.chains import Chains
from skbayes_sgmcmc._engine.descent import Descent
from skbayes_sgmcmc._engine.lengths import Plan
from skbayes_sgmcmc._limits import LIMITS
from skbayes_sgmcmc.models.designs.batches import ChosenRows
from skbayes_sgmcmc.models.designs.indicators import IndicatorBatch
from skbayes_sgmcmc.models.networks.compiled import PerceptronGradient
from skbayes_sgmcmc.models.networks.learned_scales import GIBBS_EVERY
from skbayes_sgmcmc.samplers import MCLMC, Step
from skbayes_sgmcmc.schedules import Exponential, Polynomial

pytest.importorskip("numba")

from skbayes_sgmcmc._kernels import mclmc

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

ROWS = {
    BayesianMLPClassifier: load_wine(return_X_y=True),
    BayesianMLPRegressor: [part[:150] for part in load_diabetes(return_X_y=True)],
}
#: all rows also with a given step size
SETTINGS = {
    "hidden_layer_sizes": (5, 4), "sampler": "mclmc", "n_chains": 3, "burn_in": 90, "n_draws": 15,
    "thinning": 2, "batch_size": 200, "compiled": True, "random_state": 0,
}  # fmt: skip
#: the burn-in ends after two steps, and every step gives a draw; so short that rounding stays small
TINY = {"burn_in": 2, "n_draws": GIBBS_EVERY + 5, "thinning": 1, "step_size": 1e-6}


def fit(kind, weighted=False, indicators=False, **parameters):
    X, y = ROWS[kind]
    if indicators:
        many = np.eye(90)[np.random.default_rng(1).integers(90, size=len(y))]
        X = np.hstack([X, many])
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    model = kind(**(SETTINGS | parameters))
    if kind is BayesianMLPClassifier:
        model.set_params(calibrate=False)
    model.fit(X, y, sample_weight=weight)
    assert model.compiled_ == (("perceptron",) if model.compiled else ())
    return model


def assert_same(a, b):
    assert_same_draws(a, b, rtol=1e-3, atol=1e-4)


# steps --------------------------------------------------------------------------------------------


def of_steps(batch, steps, n_chains):
    """The rows of some steps, of those that a batch has of several; all, if steps share them."""
    if batch.shared:
        return batch
    chains = slice(steps.start * n_chains, steps.stop * n_chains)

    def some(part):
        if isinstance(part, float):
            return part
        if isinstance(part, torch.Tensor):
            return part[chains]
        rest = ChosenRows(part.rest._design, part.rest._indices[chains])
        return IndicatorBatch(
            type(part.some)(part.some.x[chains]), part.places, rest, part.constant
        )

    fields = {name: some(field) for name, field in batch.fields.items()}
    return replace(batch, fields=fields, weight=some(batch.weight))


@pytest.fixture
def compared(monkeypatch):
    """Blocks are taken by three steps, which are compared with those of the integrator.

    It returns the relative differences of the tensors after each three, by name, and the numbers of
    steps of the blocks.
    """
    found, lengths, take = defaultdict(list), [], WholeSteps.__call__

    def steps(self, sampler, theta, state, step, evaluator):
        lengths.append(len(step.all_progress))
        positions, whole = [], evaluator.batch
        many = theta.shape[1] > 90 * SETTINGS["hidden_layer_sizes"][0]
        assert isinstance(whole.fields["x"], IndicatorBatch) == many
        for start in range(0, lengths[-1], 3):
            part = slice(start, start + 3)
            xi, progress = step.xi[:, part].contiguous(), step.all_progress[part]
            known = step.same_target or (step.same_rows and start > 0)
            given = replace(step, xi=xi, all_progress=progress, same_target=known)
            single, its_state = theta.clone(), {name: x.clone() for name, x in state.items()}
            for i in range(len(progress)):
                same = known or (step.same_rows and i > 0)
                changed = {"xi": xi[:, i], "progress": progress[i], "same_target": same}
                evaluator.batch = of_steps(whole, slice(start + i, start + i + 1), len(theta))
                self.integrator(sampler, single, its_state, replace(given, **changed))
            evaluator.batch = of_steps(whole, part, len(theta))
            positions.append(take(self, sampler, theta, state, given, evaluator))
            assert torch.equal(positions[-1][:, -1], theta)
            for name, expected in (its_state | {"theta": single}).items():
                values, size = state.get(name, theta), expected.abs().max().clamp(min=1e-30)
                found[name].append(float((values - expected).abs().max() / size))
        return torch.cat(positions, 1)

    monkeypatch.setattr(WholeSteps, "__call__", steps)
    return found, lengths


def assert_rounded(found):
    """What is counted is equal; the rest, but for rounding.

    A gradient rounds a part of 3e-7, and three steps of a rough posterior a thousand times as much.
    Energies are sums over rows, and the digits that they lose are lost in what tuning finds. A few
    of its first errors are all rounding.
    """
    for name, differences in found.items():
        assert np.median(differences) < 5e-6, name
        if name in ("steps", "undone", "k"):
            assert max(differences) == 0.0, name
        elif name not in ("trust", "errors"):
            assert max(differences) < (0.05 if name == "scale" else 0.005), name


@pytest.mark.parametrize("integrator", ["minimal_norm", "leapfrog"])
@pytest.mark.parametrize(
    "kind, parameters",
    [
        (BayesianMLPClassifier, {}),
        (BayesianMLPClassifier, {"prior_scale": 1.0, "activation": "tanh", "weighted": True}),
        (BayesianMLPRegressor, {}),
        (BayesianMLPRegressor, {"prior_scale": [0.5, 1.0, 2.0], "weighted": True}),
        (BayesianMLPRegressor, {"noise": "infer", "temperature": 0.5}),
        (BayesianMLPRegressor, {"likelihood": "student_t"}),
        (BayesianMLPRegressor, {"likelihood": "zero_inflated_negative_binomial", "weighted": True}),
        (BayesianMLPRegressor, {"noise": 50.0, "sampler": MCLMC(energy_error=0.02, length=2.0)}),
        (BayesianMLPRegressor, {"step_size": 1e-4, "burn_in": 0}),
        # minibatches, with the scaling by their noise and without
        (BayesianMLPClassifier, {"batch_size": 30, "weighted": True}),
        (BayesianMLPRegressor, {"batch_size": 40}),
        (BayesianMLPRegressor, {"batch_size": 40, "sampler": MCLMC(noise_scaling=False)}),
        (BayesianMLPRegressor, {"batch_size": 40, "step_size": 1e-4, "sampler": MCLMC(length=2.0)}),
        # rows that are looked up
        (BayesianMLPClassifier, {"indicators": True}),
        (BayesianMLPRegressor, {"indicators": True, "batch_size": 40}),
        # other numbers at every step
        (BayesianMLPRegressor, {"step_size": Polynomial(first=1e-3, last=1e-5)}),
        (BayesianMLPRegressor, {"step_size": 1e-4, "temperature": Exponential(2.0, 1.0)}),
    ],
    ids=str,
)
def test_steps_are_those_of_the_sampler(compared, kind, parameters, integrator):
    """Through a whole fit: tuned steps, and those that follow."""
    fit(kind, integrator=integrator, **parameters)
    found, lengths = compared
    assert sum(lengths) == parameters.get("burn_in", 90) + 30
    assert_rounded(found)


@cases("settings", [{"step_size": 10.0, "burn_in": 0}, {"burn_in": 40}])
def test_steps_that_are_undone(compared, monkeypatch, settings):
    """Because the step size that was given is too large, or the first one when it is found."""
    prepare, undone = MCLMC.prepare, []

    def long(self, theta, state, step):
        prepare(self, theta, state, step)
        state["scale"].mul_(1000.0 if step.tuning else 1.0)
        undone.append(state["undone"])

    monkeypatch.setattr(MCLMC, "prepare", long)
    monkeypatch.setattr(
        MCLMC, "end_burn_in", lambda self, state: None
    )  # which forgets their number
    fit(BayesianMLPClassifier, **settings)
    assert undone[-1].sum() > 0.0
    assert_rounded(compared[0])


def test_noise_that_depends_on_the_row_later(compared, monkeypatch, limits):
    """Rows get a noise of their own in the middle of the burn-in, and a block ends before it."""
    monkeypatch.setattr(Plan, "annealed", True)
    limits(waited_products=0)
    fit(BayesianMLPRegressor, prior_scale=1.0, burn_in=240, n_draws=2)
    found, lengths = compared
    assert_rounded(found)
    most = LIMITS.least_steps
    assert most < 120 < 2 * most
    assert lengths == [most, 120 - most, most, 120 - most, 4]


# runs ---------------------------------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch):
    """The chains of all fits, as they were at the end."""
    found, run = [], Chains.run

    def kept(chains, on_chunk=None):
        run(chains, on_chunk)
        found.append(chains)

    monkeypatch.setattr(Chains, "run", kept)
    return found


def test_scales_are_drawn_after_the_same_steps(compared, runs):
    """Blocks end with their draws, and with the burn-in; a draw has the scales that follow it."""
    whole, single = (fit(BayesianMLPClassifier, compiled=c, **TINY) for c in (True, False))
    assert_same(whole, single)
    assert compared[1] == [1, 1, GIBBS_EVERY - 1, 6]
    assert vars(runs[0].cursor) == vars(runs[1].cursor)
    for part in ("state", "model_state"):
        ends = [getattr(chains, part) for chains in runs]
        assert {name: x.dtype for name, x in ends[0].items()} == {
            name: x.dtype for name, x in ends[1].items()
        }


@cases("batch_size", [200, 40])
def test_either_goes_on_from_the_other(batch_size):
    """Each reads all that the other has left: later draws are the same to rounding."""
    found, settings = [], TINY | {"batch_size": batch_size, "warm_start": True}
    for first, then in ((True, False), (False, True), (False, False)):
        model = fit(BayesianMLPRegressor, compiled=first, **settings)
        found.append(model.set_params(compiled=then).fit(*ROWS[BayesianMLPRegressor]))
    for other in found[:2]:
        assert_same(other, found[2])


@pytest.mark.usefixtures("threads")
@cases("batch_size", [200, 40])
def test_groups_of_chains_give_the_same_draws(batch_size):
    settings = TINY | {"batch_size": batch_size}
    assert_same(
        fit(BayesianMLPRegressor, **settings), fit(BayesianMLPRegressor, n_jobs=3, **settings)
    )


def test_a_chain_that_is_lost_leaves_the_others_alone(monkeypatch):
    settings = {"burn_in": 64, "n_draws": 100, "thinning": 1, "prior_scale": 1.0}
    whole, take = fit(BayesianMLPRegressor, **settings), WholeSteps.__call__

    def spoilt(self, sampler, theta, state, step, evaluator):
        if len(theta) == 3:
            theta[1] = torch.nan
        return take(self, sampler, theta, state, step, evaluator)

    monkeypatch.setattr(WholeSteps, "__call__", spoilt)
    others = fit(BayesianMLPRegressor, **settings)
    for name, draws in whole.posterior_.draws.items():
        np.testing.assert_array_equal(others.posterior_[name], draws[[0, 2]])


@cases(
    "parameters",
    [{"prior": "laplace", "prior_scale": 1.0}, {"sampler": "sghmc"}],
)
def test_other_steps_have_compiled_gradients_only(runs, parameters):
    fit(BayesianMLPRegressor, **(TINY | {"n_draws": 2} | parameters))
    engine = runs[-1].engine
    assert engine.block is None
    assert engine.target.model._kernel is not None


# parts of a step ----------------------------------------------------------------------------------


def directions(n_chains, d):
    """Unit vectors, and normal ones."""
    u, g = torch.randn(2, n_chains, d, generator=torch.manual_seed(d))
    return u / torch.linalg.vector_norm(u, dim=1, keepdim=True), g


@cases("d", [2, 3, 8, 1001])
@cases("delta", [1e-8, 0.01, 1.0, 300.0])
def test_turns_by_a_gradient(d, delta):
    """For every delta, also along the force, without one, and against one that is not large.

    A large force against which u points exactly turns u to any side, which rounding decides.
    """
    u, g = directions(5, d)
    g[1], g[2], g[3] = -u[1], 0.0, u[3] * min(1.0, 0.1 / delta)
    scaling = torch.ones(5, d)
    scaling[4] = torch.linspace(0.5, 2.0, d)
    epsilon = torch.linspace(0.5, 2.0, 5)[:, None] * delta
    step = Step(n=3.0 * (d - 1), gradient=None, likelihood=None, potential=None)
    expected, turned = u.clone(), torch.zeros(5, 1)
    MCLMC().turn({"u": expected, "scaling": scaling}, step, g, epsilon, 1.0, turned)
    for c in range(5):
        given = (each[c].numpy() for each in (u, g, scaling))
        found = mclmc.turn(*given, float(epsilon[c]), -3.0)
        np.testing.assert_allclose(found, float(turned[c]), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(u, expected, rtol=2e-6, atol=2e-6)


@cases("d", [2, 8, 1001])
def test_turns_by_chance(d):
    """Between no turn at all and a direction that has nothing of the last one."""
    u, xi = directions(4, d)
    epsilon = torch.tensor([[0.0], [1e-3], [1.0], [20.0]])
    expected = u.clone()
    MCLMC().refresh(expected, xi, epsilon, torch.ones_like(epsilon))
    for c in range(4):
        mclmc.turn_by_chance(u[c].numpy(), xi[c].numpy(), 2.0 * float(epsilon[c]))
    torch.testing.assert_close(u, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (BayesianMLPClassifier, {"weighted": True}),
        (BayesianMLPRegressor, {}),
        (BayesianMLPRegressor, {"indicators": True, "prior_scale": 0.7}),
    ],
)
def test_descents_are_those_of_torch(monkeypatch, kind, parameters):
    """Hundreds of steps from the same start, with the same rows."""
    ends, counts, run, advance = [], [], Descent.run, Descent._advance
    monkeypatch.setattr(Descent, "run", lambda self: ends.append(run(self)) or ends[-1])
    monkeypatch.setattr(
        Descent, "_advance", lambda *given: counts.append(given[-1]) or advance(*given)
    )
    calls, gradient = [], PerceptronGradient.add_gradient
    monkeypatch.setattr(
        PerceptronGradient, "add_gradient", lambda *given: calls.append(1) or gradient(*given)
    )
    for compiled in (True, False):
        fit(kind, compiled=compiled, burn_in=2, n_draws=2, **parameters)
    assert len(calls) == 1 and sum(counts) > 200  # the one is for the first step of the chains
    torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-3)
