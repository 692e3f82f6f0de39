"""Replayed steps and gradients: the same draws as without, with a stand-in for CUDA's recorder.

The stand-in computes at every replay what was recorded, from the memory that the recording read and
into the memory that it returned, as a CUDA graph does. What only a GPU can show is not tested here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from _inside import limits
from _modules import module
from _posteriors import assert_same_draws
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data import chain_random
from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc._engine.accelerators import cuda_graphs as _graphs
from skbayes_sgmcmc._engine.accelerators import model_kernels, recorded_steps
from skbayes_sgmcmc.models._protocol import Model
from skbayes_sgmcmc.priors import LearnedScale
from skbayes_sgmcmc.samplers import PSGLD, TABLE
from skbayes_sgmcmc.schedules import BlockDecay, Polynomial

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

X, y = load_digits(return_X_y=True)
X, y = X[:300], y[:300]
SETTINGS = {
    "sampler": "sghmc", "prior_scale": "fan_in", "step_size": 0.01, "batch_size": 50,
    "n_chains": 2, "n_draws": 5, "burn_in": 10, "thinning": 3, "random_state": 0,
}  # fmt: skip


class Recorder:
    """Stands in for ``_graphs.record``; counts recordings and replays."""

    def __init__(self):
        self.recordings = self.replays = 0

    def __call__(self, compute):
        compute()
        results = compute()
        self.recordings += 1

        def replay():
            self.replays += 1
            for result, again in zip(results, compute(), strict=True):
                if again is not result:
                    result.copy_(again)

        return results, replay


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    monkeypatch.setattr(_graphs, "DEVICES", ("cpu",))
    monkeypatch.setattr(_graphs, "record", found)
    # as on a GPU, where gradients that are compiled for CPUs do not apply
    monkeypatch.setattr(model_kernels, "why_no_cpu", lambda recipe: "it needs a CPU.")
    return found


FIVE = {"hidden_layer_sizes": 5}
SPLITTING = {"sampler": "msgnht", "integrator": "splitting"}
LEARNED = {"prior_scale": LearnedScale()}
MCLMC = {"sampler": "mclmc", "step_size": 1e-3, "init": "random"}
NETWORKS = {
    "mlp": (sk.BayesianMLPClassifier, FIVE),
    "all rows": (sk.BayesianMLPClassifier, FIVE | {"batch_size": 1000}),
    "likelihood apart": (sk.BayesianMLPClassifier, FIVE | {"sampler": PSGLD(divergence=True)}),
    "splitting": (sk.BayesianMLPClassifier, FIVE | SPLITTING),
    "regressor": (
        sk.BayesianMLPRegressor,
        FIVE | {"activation": "tanh", "prior_scale": "fan_in", "sampler": "psgld"},
    ),
    "learned scales": (sk.BayesianMLPRegressor, FIVE | LEARNED),
    "learned scales, all rows": (sk.BayesianMLPRegressor, FIVE | LEARNED | {"batch_size": 1000}),
    "mclmc": (sk.BayesianMLPRegressor, FIVE | LEARNED | MCLMC),
    "mclmc, all rows": (sk.BayesianMLPRegressor, FIVE | LEARNED | MCLMC | {"batch_size": 1000}),
    "leapfrog": (sk.BayesianMLPClassifier, FIVE | MCLMC | {"integrator": "leapfrog"}),
    "student t": (
        sk.BayesianMLPRegressor,
        FIVE | LEARNED | {"likelihood": "student_t", "noise": "infer"},
    ),
    "cnn": (sk.BayesianCNNClassifier, FIVE | {"conv_channels": 2}),
    "module": (sk.BayesianModuleClassifier, {"module": module}),
}


def fitted(name, compiled):
    kind, parameters = NETWORKS[name]
    weight = np.linspace(0.5, 1.5, len(X))
    return kind(**(SETTINGS | parameters), compiled=compiled).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("name", NETWORKS)
def test_draws_are_the_same(recorder, name):
    plain = fitted(name, False).posterior_
    assert recorder.recordings == 0
    graphed = fitted(name, True).posterior_
    # one of each function, and of what later chunks read without the share of delayed outputs
    assert 1 <= recorder.recordings <= 4 and recorder.replays >= 25
    for block, draws in plain.draws.items():
        np.testing.assert_array_equal(graphed[block], draws)


def test_only_who_asks_is_recorded_for(recorder):
    fitted("mlp", "auto")
    assert recorder.recordings == 0


def test_a_record_that_does_not_follow_is_refused(monkeypatch, recorder):
    def blind(compute):
        (result,) = compute()
        values = result.clone()
        return (result,), lambda: result.copy_(values)

    monkeypatch.setattr(_graphs, "record", blind)
    with pytest.raises(ValueError, match="compiled=True is not allowed here: .*a replay differs"):
        fitted("mlp", True)


@pytest.mark.parametrize("forgotten", ["phi", "fields"])
def test_a_record_that_follows_half_of_its_inputs_is_refused(monkeypatch, recorder, forgotten):
    again = _graphs.GraphedEvaluator._again

    def forgetful(self, name, phi, batch):
        if forgotten == "phi":
            return again(self, name, self._phi.clone(), batch)
        return again(self, name, phi, self._filled)

    monkeypatch.setattr(_graphs.GraphedEvaluator, "_again", forgetful)
    with pytest.raises(ValueError, match="a replay differs"):
        fitted("mlp", True)


def test_what_can_not_be_recorded_is_refused(monkeypatch, recorder):
    def record(compute):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(_graphs, "record", record)
    clf = sk.BayesianMLPClassifier(compiled=True, **SETTINGS)
    with pytest.raises(ValueError, match=r"can't be recorded as a CUDA graph \(operation not"):
        clf.fit(X, y)
    with pytest.raises(NotFittedError):
        clf.predict(X)


def test_full_memory_stays_an_error_of_memory(monkeypatch, recorder):
    def record(compute):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(_graphs, "record", record)
    with pytest.raises(MemoryError):
        fitted("mlp", True)


def test_sparse_models_are_recorded(recorder):
    """Equal up to the rounding of compiled latent variables, which go with the recording."""
    prior = sk.SpikeSlab(adaptation="gibbs")
    fits = [
        sk.SparseBayesianClassifier(
            hidden_layer_sizes=5, prior=prior, compiled=compiled, **SETTINGS | {"dtype": "float64"}
        ).fit(X, y)
        for compiled in (False, True)
    ]
    assert recorder.recordings == 1 and "cuda_graph" in fits[1].compiled_
    assert_same_draws(*fits, rtol=1e-6, atol=1e-9)


class Replacing(Model):
    """A normal density of another width after every step, in a tensor of its own each time."""

    shapes = {"theta": (3,)}  # noqa: RUF012

    def init(self, rng):
        return rng.standard_normal(3)

    def init_state(self, theta):
        return {"rate": torch.ones_like(theta)}

    def prior_gradient(self, theta, state, out, scale):
        out.copy_(theta * state["rate"] * scale)

    def log_lik(self, theta, batch):
        return theta[:, :1] * 0.0

    def after_step(self, theta, state, aux, k, rng, temperature):
        state["rate"] = state["rate"] + 0.5
        self.kept = [*getattr(self, "kept", []), state["rate"]]  # so that its memory is not reused
        return True


def test_a_model_that_replaces_its_latent_variables_is_recorded_anew(recorder):
    """Against what models are asked to do, and still with draws that are right."""
    budget = {"n_draws": 8, "burn_in": 2, "n_chains": 2, "step_size": 0.1, "random_state": 0}
    data = Data({"x": torch.zeros(1, 1)}, 1)
    draws = [
        sk.sample(Replacing(), data=data, sampler="sghmc", compiled=compiled, **budget)["theta"]
        for compiled in (False, True)
    ]
    np.testing.assert_array_equal(*draws)
    assert recorder.recordings == 10  # one in each step


def test_rows_of_another_kind_are_not_recorded(recorder):
    with pytest.raises(ValueError, match="cuda_graph: it is for dense rows of networks"):
        sk.BayesianLogisticRegression(compiled=True, **SETTINGS | {"prior_scale": 1.0}).fit(X, y)
    assert recorder.recordings == 0


# whole steps --------------------------------------------------------------------------------------


class StepRecorder(Recorder):
    """Stands in for recordings of whole steps, which leave Python as it was.

    What a step leaves for the latent variables is in the memory of the recording.
    """

    def __init__(self):
        super().__init__()
        self.of_gradients = Recorder()

    def __call__(self, compute):
        if not isinstance(compute, partial):
            return self.of_gradients(compute)
        compute()
        compute()
        self.recordings += 1
        evaluator = compute.func.__self__._chains.evaluator
        left = evaluator.aux

        def replay():
            self.replays += 1
            before = evaluator.aux
            compute()
            for name, values in evaluator.aux.items():
                left[name].copy_(values)
            evaluator.aux = before

        return (), replay


@pytest.fixture
def step_recorder(monkeypatch, recorder):
    found = StepRecorder()
    monkeypatch.setattr(_graphs, "record", found)
    for each in (chain_random, recorded_steps):
        monkeypatch.setattr(each, "counts", lambda device: True)
    return found


GIVEN = {"prior_scale": 1.0, "step_size": 1e-3}
#: no network of NETWORKS
OTHERS = {
    "logistic": (sk.BayesianLogisticRegression, GIVEN | {"preconditioner": None}),
    "logistic, learned": (sk.BayesianLogisticRegression, GIVEN | {"prior_scale": "learned"}),
    "counts": (sk.BayesianGLMRegressor, GIVEN | {"likelihood": "poisson", "preconditioner": None}),
    "sparse": (sk.SparseBayesianClassifier, FIVE | {"dtype": "float64"}),
    "sparse regressor": (sk.SparseBayesianRegressor, FIVE | {"dtype": "float64"}),
    "ica": (sk.BayesianICA, {"prior_scale": 1.0, "step_size": 1e-3, "n_components": 3}),
}


def both(name, **settings):
    """Fits with and without recordings, long enough for several chunks."""
    kind, parameters = (NETWORKS | OTHERS)[name]
    given = SETTINGS | {"n_draws": 30} | parameters | settings
    if "sparse" in name:
        given.pop("prior_scale")
    if name == "ica":
        given["sampler"] = "rsgld"
    with limits(device_steps=32):
        return [kind(**given, compiled=compiled).fit(X, y) for compiled in (False, True)]


@pytest.mark.parametrize("name", [*NETWORKS, *OTHERS])
def test_steps_are_the_same_when_recorded(step_recorder, name):
    """Rows, noise and latent variables, too; more than half of the 100 steps are replays."""
    plain, recorded = both(name)
    assert recorded.compiled_ == ("cuda_steps",) and plain.compiled_ == ()
    assert step_recorder.recordings >= 1 and step_recorder.replays > 50
    assert_same_draws(plain, recorded)


def test_steps_of_another_size_are_recorded_anew(step_recorder):
    """A step size that is halved every 25 steps; one that always changes is never recorded."""
    halved = BlockDecay(0.01, every=25, factor=0.5)
    for schedule, replayed in ((halved, True), (Polynomial(0.01, 0.001), False)):
        step_recorder.recordings = step_recorder.replays = 0
        plain, recorded = both("mlp", step_size=schedule)
        assert (step_recorder.recordings >= 4) == replayed == (step_recorder.replays > 50)
        assert_same_draws(plain, recorded)


def test_a_recorded_step_that_does_not_follow_is_refused(monkeypatch, step_recorder):
    def blind(compute):
        whole = isinstance(compute, partial)
        return ((), lambda: None) if whole else step_recorder(compute)

    monkeypatch.setattr(_graphs, "record", blind)
    with pytest.raises(ValueError, match="steps can't be recorded .*a replay differs from it"):
        fitted("module", True)


@pytest.mark.filterwarnings("default::skbayes_sgmcmc.SamplingWarning")
def test_fits_go_on_without_recordings(monkeypatch, step_recorder):
    """Of models that "auto" records: their draws are those without."""

    def refuse(compute):
        compute()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(_graphs, "record", refuse)
    with pytest.warns(sk.SamplingWarning, match=r"can't be recorded .*\(operation not permitted"):
        plain, other = both("logistic")
    assert_same_draws(plain, other)


#: the cells of the table whose steps are recorded
CELLS = [
    (sampler, integrator)
    for sampler, (kind, cells) in TABLE.items()
    for integrator, cell in cells.items()
    if not (kind.full_data or cell.whole_chunks)
]


def fused_and_plain(name, *cell, **settings):
    """Draws of a fit whose recorded updates are compiled, and those without recordings."""
    if cell:
        settings |= {"sampler": cell[0], "integrator": cell[1]}
    with limits(worth_fusing=0):
        plain, fused = both(name, dtype="float64", **settings)
    assert fused.compiled_ == ("cuda_steps", "fused_updates")
    return fused.posterior_, plain.posterior_


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, cell",
    [("likelihood apart", ()), ("mclmc", ())]
    + [("ica" if cell[0] == "rsgld" else "mlp", cell) for cell in CELLS],
)
def test_fused_updates_are_the_same_to_rounding(monkeypatch, step_recorder, name, cell):
    """Torch traces every operation between the gradients; the compiler is another matter."""
    monkeypatch.setattr(recorded_steps, "BACKEND", "eager")
    fused, plain = fused_and_plain(name, *cell)
    for block, draws in plain.draws.items():
        np.testing.assert_allclose(fused[block], draws, rtol=1e-6, atol=1e-9)


@dataclass
class OneStep:
    """What an update looks at."""

    eta: float
    gradient: Callable
    likelihood: Callable
    value_and_gradient: Callable
    variance: Callable


@pytest.mark.slow
def test_updates_are_compiled_however_often_others_were(monkeypatch):
    """Torch stops to compile a function after eight times; every fit has the same functions."""
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    def sine(x):
        return x.sin()

    def integrator(sampler, theta, state, step):
        gradient = step.gradient(theta)
        theta.add_(gradient, alpha=-step.eta)

    monkeypatch.setattr(recorded_steps, "BACKEND", backend)
    for k in range(1, 12):
        step = OneStep(0.1 * k, sine, sine, sine, sine)
        theta = torch.ones(2, 3)
        with torch.no_grad():
            recorded_steps.FusedUpdate(integrator)(None, theta, {}, step)
        assert len(compiled) == k
        torch.testing.assert_close(theta, 1.0 - 0.1 * k * torch.ones(2, 3).sin())


def test_short_runs_are_not_fused(step_recorder):
    with limits(worth_fusing=10**9):
        assert both("mlp")[1].compiled_ == ("cuda_steps",)
