"""A step is a function of tensors that never replaces one, and asks none for its values.

What is watched are the steps of fits: from the first of a chunk, when the states are complete, to
the end of its last one, with rows, noise, gradients, latent variables and draws. So steps could be
recorded on a GPU, where the memory that a recording reads must stay and nobody waits.
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
import torch
from _cases import cases
from _inside import inside, limits
from _stand_in_device import INDEXED, WAITS
from _targets import MetricDensity
from torch.utils._python_dispatch import TorchDispatchMode

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianICA,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    DeepPoissonFactorAnalysis,
    LatentDirichletAllocation,
    Pruning,
    SparseBayesianRegressor,
    SpikeSlab,
    sample,
)
from skbayes_sgmcmc.samplers import PSGLD, SGHMC, TABLE, DiagonalMetric

Chains = inside("Chains")

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

aten = torch.ops.aten
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = X @ [1.0, -1.0, 0.0] + 0.3 * RNG.standard_normal(60)
LABELS = (Y > 0.0).astype(int)
COUNTS = RNG.poisson(np.exp(0.5 + X[:, 0]))
WORDS = RNG.poisson(1.0, (30, 12))
SHORT = {"n_chains": 2, "burn_in": 23, "n_draws": 5, "thinning": 4, "random_state": 0}
NET = {"hidden_layer_sizes": (4, 4), "batch_size": 20, "init": "random"} | SHORT
CELLS = [(name, each) for name, (_, cells) in TABLE.items() for each in cells if name != "gibbs"]
NETWORK_CELLS = [cell for cell in CELLS if cell[0] not in ("rsgld", "mala")]


class Watch(TorchDispatchMode):
    """Looks at the steps of all chains."""

    def __init__(self, monkeypatch, waits):
        super().__init__()
        self.waits, self.chains, self.chunks = waits, None, 0
        prepare, loop = Chains._prepare, Chains._loop

        def prepared(chains):
            prepare(chains)
            self.begin(chains)
            self.stack.enter_context(self)

        def watched(chains, *args):
            with ExitStack() as self.stack:
                loop(chains, *args)
            self.end(chains)

        monkeypatch.setattr(Chains, "_prepare", prepared)
        monkeypatch.setattr(Chains, "_loop", watched)

    @staticmethod
    def tensors(chains):
        found = {"phi": chains.phi}
        found |= {f"sampler {name}": tensor for name, tensor in chains.state.items()}
        return found | {f"model {name}": tensor for name, tensor in chains.model_state.items()}

    def begin(self, chains):
        now = self.tensors(chains)
        if chains is self.chains:  # a chunk may begin with more entries, or with fewer
            self.same(now, self.kept)
        self.chains, self.kept = chains, now
        self.places = {name: each.data_ptr() for name, each in now.items()}

    def end(self, chains):
        now = self.tensors(chains)
        assert now.keys() == self.kept.keys()
        self.same(now, self.kept)
        assert {name: each.data_ptr() for name, each in now.items()} == self.places
        self.chunks += 1

    @staticmethod
    def same(now, before):
        replaced = [name for name in now if name in before and now[name] is not before[name]]
        assert not replaced, replaced

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.waits:
            name = function.overloadpacket
            assert name not in WAITS, f"{function} waits"
            if name in INDEXED:
                masks = [each for each in args[1] if each is not None and each.dtype == torch.bool]
                assert not masks, f"{function} with a mask waits"
        return function(*args, **(kwargs or {}))


def watch(monkeypatch, fit, *, waits=True):
    """Watch the steps of a fit in chunks of five, five of them in the burn-in."""
    found = Watch(monkeypatch, waits)
    with limits(chunk_steps=5):
        fit()
    assert found.chunks >= 8


def metric(theta):
    return DiagonalMetric(1.0 + theta.square(), 2.0 * theta)


@cases("sampler, integrator", CELLS)
def test_every_cell_of_the_table(monkeypatch, sampler, integrator):
    """On a density with a metric, by autograd; networks have a temperature of one."""
    model = MetricDensity(lambda theta: -0.5 * theta.square().sum(1), 2, metric)
    settings = {"sampler": sampler, "integrator": integrator, "temperature": 0.5}
    watch(monkeypatch, lambda: sample(model, step_size=0.01, **SHORT | settings))


@cases("sampler, integrator", NETWORK_CELLS)
@pytest.mark.parametrize("step_size", ["auto", 1e-5])
def test_every_cell_on_default_networks(monkeypatch, sampler, integrator, step_size):
    """With learned scales, noise that depends on x, and step sizes that chains find."""
    reg = BayesianMLPRegressor(sampler=sampler, integrator=integrator, step_size=step_size, **NET)
    watch(monkeypatch, lambda: reg.fit(X, Y))


def after(kind, *data, **settings):
    return lambda: kind(**SHORT | settings).fit(*data)


MODELS = {
    "all rows": after(BayesianMLPRegressor, X, Y, **NET | {"batch_size": 60}),
    "a longer burn-in": after(BayesianMLPRegressor, X, Y, **NET | {"burn_in": 410}),
    "student t": after(BayesianMLPRegressor, X, Y, **NET, likelihood="student_t", noise="infer"),
    "classes": after(BayesianMLPClassifier, X, LABELS, **NET, prior_scale="fan_in"),
    "spikes that follow": after(SparseBayesianRegressor, X, Y, prior=SpikeSlab(adaptation="sa")),
    "spikes that are drawn": after(
        SparseBayesianRegressor, X, Y, prior=SpikeSlab(adaptation="gibbs"), hidden_layer_sizes=(4,)
    ),
    "whitened": after(BayesianLogisticRegression, X, LABELS, sampler="sghmc", batch_size=20),
    "three classes": after(BayesianLogisticRegression, X, LABELS + (X[:, 2] > 1.0), step_size=0.1),
    "counts": after(BayesianGLMRegressor, X, COUNTS, likelihood="poisson", sampler="sghmc"),
    "components": after(BayesianICA, X, sampler="rsgld", step_size=0.01, init="random"),
    "divergence": after(BayesianMLPRegressor, X, Y, **NET, sampler=PSGLD(divergence=True)),
    "estimated noise": after(
        BayesianLogisticRegression,
        X,
        LABELS,
        sampler=SGHMC(gradient_variance="estimate"),
        batch_size=20,
        step_size=0.1,
    ),
    "noise of rows": after(
        BayesianLogisticRegression,
        X,
        LABELS,
        sampler=SGHMC(gradient_variance="fisher"),
        batch_size=20,
        step_size=0.1,
    ),
    "known noise": after(
        BayesianLogisticRegression, X, LABELS, sampler=SGHMC(gradient_variance=np.full(4, 0.1))
    ),
}
#: what waits, and why: documents are sampled on the CPU, word by word; how many weights are pruned
#: is known only from those that are, which is asked once in ``interval`` steps
WAITING = {
    "documents": after(LatentDirichletAllocation, WORDS, n_components=2, step_size=0.01),
    "deep documents": after(DeepPoissonFactorAnalysis, WORDS, n_components=2, step_size=0.01),
    "pruned": after(
        SparseBayesianRegressor, X, Y, hidden_layer_sizes=(4,), prune=Pruning(interval=5)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_steps_of_models(monkeypatch, name):
    watch(monkeypatch, MODELS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", WAITING)
def test_steps_that_wait_replace_nothing(monkeypatch, name):
    watch(monkeypatch, WAITING[name], waits=False)
