"""Replayed gradients: the same draws as without, with a stand-in for CUDA's recorder.

The stand-in computes at every replay what was recorded, from the memory that the recording read and
into the memory that it returned, as a CUDA graph does. What only a GPU can show is not tested here.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from torch import nn

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    BayesianModuleClassifier,
    SparseBayesianClassifier,
    SpikeSlab,
)
from skbayes_sgmcmc._engine.accelerators import cuda_graphs as _graphs
from skbayes_sgmcmc.samplers import PSGLD

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

X, y = load_digits(return_X_y=True)
X, y = X[:300], y[:300]
SETTINGS = {
    "sampler": "sghmc",
    "prior_scale": "fan_in",
    "step_size": 0.01,
    "batch_size": 50,
    "n_chains": 2,
    "n_draws": 5,
    "burn_in": 10,
    "thinning": 3,
    "random_state": 0,
}


class Recorder:
    """Stands in for ``_graphs.record``; counts recordings and replays."""

    def __init__(self):
        self.recordings = self.replays = 0

    def __call__(self, compute):
        compute()
        result = compute()
        self.recordings += 1

        def replay():
            self.replays += 1
            again = compute()
            if again is not result:
                result.copy_(again)

        return result, replay


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    monkeypatch.setattr(_graphs, "DEVICES", ("cpu",))
    monkeypatch.setattr(_graphs, "record", found)
    return found


def module(n_features, n_outputs):
    return nn.Sequential(
        nn.Linear(n_features, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, n_outputs)
    )


FIVE = {"hidden_layer_sizes": 5}
SPLITTING = {"sampler": "msgnht", "integrator": "splitting"}
NETWORKS = {
    "mlp": (BayesianMLPClassifier, FIVE),
    "all rows": (BayesianMLPClassifier, FIVE | {"batch_size": 1000}),
    "likelihood apart": (BayesianMLPClassifier, FIVE | {"sampler": PSGLD(divergence=True)}),
    "splitting": (BayesianMLPClassifier, FIVE | SPLITTING),
    "regressor": (
        BayesianMLPRegressor,
        FIVE | {"activation": "tanh", "prior_scale": "fan_in", "sampler": "psgld"},
    ),
    "cnn": (BayesianCNNClassifier, FIVE | {"conv_channels": 2}),
    "module": (BayesianModuleClassifier, {"module": module}),
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
    assert recorder.recordings == 1 and recorder.replays >= 25
    for block, draws in plain.draws.items():
        np.testing.assert_array_equal(graphed[block], draws)


def test_only_who_asks_is_recorded_for(recorder):
    fitted("mlp", "auto")
    assert recorder.recordings == 0


def test_a_record_that_does_not_follow_is_refused(monkeypatch, recorder):
    def blind(compute):
        result = compute()
        values = result.clone()
        return result, lambda: result.copy_(values)

    monkeypatch.setattr(_graphs, "record", blind)
    with pytest.raises(ValueError, match="compiled=True is not allowed here: .*a replay differs"):
        fitted("mlp", True)


@pytest.mark.parametrize("forgotten", ["phi", "fields"])
def test_a_record_that_follows_half_of_its_inputs_is_refused(monkeypatch, recorder, forgotten):
    again = _graphs.GraphedEvaluator._again

    def forgetful(self, phi, batch):
        if forgotten == "phi":
            return again(self, self._phi.clone(), batch)
        return again(self, phi, self._filled)

    monkeypatch.setattr(_graphs.GraphedEvaluator, "_again", forgetful)
    with pytest.raises(ValueError, match="a replay differs"):
        fitted("mlp", True)


def test_what_can_not_be_recorded_is_refused(monkeypatch, recorder):
    def record(compute):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(_graphs, "record", record)
    clf = BayesianMLPClassifier(compiled=True, **SETTINGS)
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


def test_other_models_are_not_recorded(recorder):
    # gradients with latent variables read tensors that a step may replace
    prior = SpikeSlab(adaptation=None)
    clf = SparseBayesianClassifier(hidden_layer_sizes=5, compiled=True, prior=prior, **SETTINGS)
    clf.fit(X, y)
    # rows of another kind than tensors
    with pytest.raises(ValueError, match="cuda_graph: it is for dense rows of networks"):
        BayesianLogisticRegression(compiled=True, **SETTINGS | {"prior_scale": 1.0}).fit(X, y)
    assert recorder.recordings == 0
