"""Fits and predictions on a GPU: the CPU's results, without waiting for the GPU at every step.

Every test runs on a stand-in for a device (``_stand_in_device.py``), whose arithmetic is the CPU's,
and on a GPU if there is one: ``pytest -m gpu`` runs those. What only a GPU shows is in
``test_gpu_only.py``.
"""

from __future__ import annotations

import contextlib
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _inside import inside
from _modules import module
from _stand_in_device import NAME, stand_in, unordered, waited
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch.utils._python_dispatch import _disable_current_modes

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data import chain_random
from skbayes_sgmcmc._data.minibatch import Data, Minibatches
from skbayes_sgmcmc.augmentation import (
    Compose,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomRotation,
)
from skbayes_sgmcmc.models._constants import Constant
from skbayes_sgmcmc.samplers import MCLMC, TABLE

Chains = inside("Chains")

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

X, y = load_digits(return_X_y=True)
X, y = X[:60], y[:60] % 3
COUNTS = np.random.default_rng(0).poisson(0.3, size=(24, 12))
SIGNALS = np.random.default_rng(1).laplace(size=(60, 3))
#: long enough for all parts of a step, and too short for rounding to grow
SHORT = {
    "n_chains": 2, "burn_in": 4, "n_draws": 3, "thinning": 2, "batch_size": 20, "random_state": 0,
    "compiled": False, "dtype": "float64",
}  # fmt: skip
STEP = SHORT | {"step_size": 1e-3}
MOMENTUM = STEP | {"sampler": "sghmc"}
#: rounding of float64 in sums of hundreds of numbers, which ten steps leave below this
RTOL = 1e-8
IMAGES = {"conv_channels": 2, "hidden_layer_sizes": 5}
AUGMENT = Compose([RandomCrop(1), RandomFlip(), RandomRotation(), RandomErasing()])


CASES = {
    "logistic": (sk.BayesianLogisticRegression(**SHORT), X, y),
    "logistic, learned": (sk.BayesianLogisticRegression(prior_scale="learned", **STEP), X, y),
    "logistic, two classes": (sk.BayesianLogisticRegression(**SHORT), X, y > 0),
    "glm": (sk.BayesianGLMRegressor(sampler="sgld", **SHORT), X, y + 0.5),
    "glm, exact": (
        sk.BayesianGLMRegressor(sampler="gibbs", **SHORT | {"batch_size": "auto"}),
        X,
        y + 0.5,
    ),
    "glm, counts": (sk.BayesianGLMRegressor(likelihood="poisson", **SHORT), X, y),
    "mlp": (sk.BayesianMLPClassifier(hidden_layer_sizes=5, prior_scale=1.0, **STEP), X, y),
    "mlp, learned": (sk.BayesianMLPClassifier(hidden_layer_sizes=5, **MOMENTUM), X, y),
    "mlp regressor": (sk.BayesianMLPRegressor(hidden_layer_sizes=5, **MOMENTUM), X, y + 0.5),
    "cnn": (sk.BayesianCNNClassifier(**IMAGES, **STEP), X, y),
    "cnn, augmented": (sk.BayesianCNNClassifier(**IMAGES, augment=AUGMENT, **STEP), X, y),
    "module": (sk.BayesianModuleClassifier(module, **STEP), X, y),
    "module regressor": (sk.BayesianModuleRegressor(module, **STEP), X, y + 0.5),
    "last layer": (
        sk.BayesianModuleClassifier(module, sample_parameters="last_layer", **STEP),
        X,
        y,
    ),
    "sparse": (sk.SparseBayesianClassifier(hidden_layer_sizes=5, **STEP), X, y),
    "sparse regressor": (sk.SparseBayesianRegressor(hidden_layer_sizes=5, **STEP), X, y + 0.5),
    "ica": (sk.BayesianICA(**SHORT), SIGNALS, None),
    "logistic, sparse rows": (sk.BayesianLogisticRegression(**SHORT), sp.csr_matrix(X), y),
    "lda": (sk.LatentDirichletAllocation(3, doc_sweeps=1, **SHORT), COUNTS, None),
    "dpfa": (sk.DeepPoissonFactorAnalysis((4, 3), doc_sweeps=2, **SHORT), COUNTS, None),
}
#: parts of their steps are on the CPU: the words of a minibatch are counted, conditionals drawn
ON_THE_CPU = {"lda", "dpfa", "glm, exact"}
#: of the samplers that take steps, whatever the model; the first of each in the default tier
CELLS = [
    pytest.param(name, integrator, marks=[pytest.mark.slow] if place else [])
    for name, (kind, cells) in TABLE.items()
    for place, integrator in enumerate(cells)
    if not kind.needs_conditionals
]


@pytest.fixture(params=["stand-in", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
        yield "cuda"
    else:
        with stand_in(monkeypatch):
            yield NAME


@pytest.fixture
def given_noise(monkeypatch):
    """Noise that is the same on every device: the CPU counts, too."""
    monkeypatch.setattr(chain_random, "counts", lambda device: True)


def fitted(name, device, **parameters):
    estimator, x, targets = CASES[name]
    with _disable_current_modes() if device == "cpu" else contextlib.nullcontext():
        return clone(estimator).set_params(device=device, **parameters).fit(x, targets)


def results(estimator, x):
    """Predictions of every kind that the estimator has."""
    kinds = ("predict_proba", "predict", "transform")
    return [getattr(estimator, kind)(x) for kind in kinds if hasattr(estimator, kind)]


def assert_same_draws(found, expected):
    for name, draws in expected.posterior_.draws.items():
        np.testing.assert_allclose(
            found.posterior_[name], draws, rtol=RTOL, atol=RTOL * np.abs(draws).max(), err_msg=name
        )


# the CPU's results, without waiting ---------------------------------------------------------------


class Waits:
    """What the steps of a fit wait for, except the first ones; keeping a draw is a wait.

    On a GPU a wait is an error. The first chunk of steps sends constants to the device.
    """

    def __init__(self, device, monkeypatch):
        self.found, self.device = [], device
        loop, keep = Chains._loop, Chains._keep

        def watched_loop(chains, first, *rest):
            before = len(waited)
            self.watch(first > 0)
            try:
                loop(chains, first, *rest)
            finally:
                self.watch(False)
            if first > 0:
                self.found.extend(waited[before:])

        def unwatched_keep(chains, *args):
            before = len(waited)
            self.watch(False)
            keep(chains, *args)
            self.watch(True)
            del waited[before:]

        monkeypatch.setattr(Chains, "_loop", watched_loop)
        monkeypatch.setattr(Chains, "_keep", unwatched_keep)

    def watch(self, on):
        if self.device == "cuda":
            torch.cuda.set_sync_debug_mode("error" if on else "default")


@pytest.mark.parametrize("name", CASES)
def test_draws_and_predictions_are_those_of_the_cpu(name, device, given_noise, monkeypatch):
    """The same noise gives the same draws; no step waits; what is stored is the CPU's.

    Nothing is added in the order of arrival of threads, so that a GPU repeats its draws. Learned
    scales of networks are drawn on the CPU, once in 50 steps: not in these.
    """
    expected = fitted(name, "cpu")
    with monkeypatch.context() as patch:
        waits = None if name in ON_THE_CPU else Waits(device, patch)
        found = fitted(name, device)
    assert waits is None or waits.found == []
    assert unordered == []
    assert_same_draws(found, expected)
    loaded = pickle.loads(pickle.dumps(found)).set_params(device="cpu")
    assert not tensors_elsewhere(loaded)
    x = CASES[name][1]
    for model in (found, loaded):
        for ours, theirs in zip(results(model, x), results(expected, x), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sampler, integrator", CELLS)
def test_every_cell_of_the_table(sampler, integrator, device, given_noise, monkeypatch):
    name = "ica" if sampler == "rsgld" else "logistic" if sampler == "mala" else "mlp"
    choice = {"sampler": sampler, "integrator": integrator, "step_size": 1e-3}
    expected = fitted(name, "cpu", **choice)
    with monkeypatch.context() as patch:
        waits = Waits(device, patch)
        found = fitted(name, device, **choice)
    assert waits.found == []
    assert_same_draws(found, expected)


def test_a_step_that_waits_is_noticed(device, monkeypatch):
    """The control: a sampler that looks at a number of the device."""
    drift = MCLMC.drift

    def curious(self, theta, *rest):
        float(theta.sum())
        drift(self, theta, *rest)

    monkeypatch.setattr(MCLMC, "drift", curious)
    waits = Waits(device, monkeypatch)
    if device == "cuda":
        with pytest.raises(RuntimeError, match="synchroniz"):
            fitted("mlp", device, sampler="mclmc")
    else:
        fitted("mlp", device, sampler="mclmc")
        assert len(waits.found) >= 6  # each of three draws takes two steps


@pytest.mark.parametrize("sampler", ["sgld", "sghmc", "msgnht", "mclmc"])
def test_steps_that_chains_find_themselves(sampler, device, given_noise):
    """Steps of the burn-in adapt; MCLMC measures its energies."""
    choice = {"sampler": sampler, "step_size": "auto", "init": "random"}
    assert_same_draws(fitted("mlp", device, **choice), fitted("mlp", "cpu", **choice))


def test_a_density_of_the_users(device, given_noise):
    def log_density(theta):
        return -0.5 * (theta**2).sum(1)

    run = SHORT | {"step_size": 0.1}
    del run["batch_size"]
    found = sk.sample(log_density, 3, device=device, **run)
    np.testing.assert_allclose(
        found["theta"], sk.sample(log_density, 3, device="cpu", **run)["theta"], rtol=RTOL
    )


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_products_in_bfloat16(name, device):
    """They run there; how exact they are is the subject of test_precision.py."""
    clf = fitted(name, device, dtype="float32", precision="bfloat16")
    assert np.isfinite(clf.predict_proba(X)).all()


def test_rows_without_fractions_are_gathered_where_they_are(device):
    rows = torch.arange(20, device=device)
    (batch,) = Minibatches(Data({"x": rows}, 20), 2).gather(np.array([[[1, 5]]]), None)
    assert batch.fields["x"].device == rows.device
    assert batch.fields["x"].cpu().tolist() == [[1, 5]]


def test_steps_of_a_stream(device, given_noise):
    ours, theirs = (clone(CASES["mlp"][0]).set_params(device=d) for d in (device, "cpu"))
    for clf in (ours, theirs):
        for rows in (slice(30), slice(30, None)):
            clf.partial_fit(X[rows], y[rows], classes=np.arange(3))
    assert_same_draws(ours, theirs)


def test_a_distilled_network(device):
    """It is trained there, and is finite: its training has random numbers of the device."""
    student = fitted("mlp", device).distill(X, n_epochs=2, random_state=0)
    assert np.isfinite(student.predict_proba(X)).all()


# between devices ----------------------------------------------------------------------------------


def test_constants_of_models_go_to_workers_without_the_device(device):
    constant = Constant(np.arange(3.0))
    constant.like(torch.zeros(1, device=device))
    loaded = pickle.loads(pickle.dumps(constant))
    assert not tensors_elsewhere(loaded)
    assert loaded.like(torch.zeros(1), 2.0).tolist() == [0.0, 2.0, 4.0]


def tensors_elsewhere(estimator):
    """Tensors in the attributes of an object, and of theirs, that are not on the CPU."""
    found, seen, todo = [], set(), [estimator]
    while todo:
        at = todo.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, torch.Tensor):
            found += [at] if at.device.type != "cpu" else []
        elif isinstance(at, dict):
            todo += at.values()
        elif isinstance(at, list | tuple):
            todo += at
        elif hasattr(at, "__dict__"):
            todo += vars(at).values()
    return found


@pytest.mark.parametrize("way", ["there", "back"])
def test_chains_go_on_on_another_device(way, device, given_noise):
    """With the state of sampler and generator, as they go on where they are."""
    first, second = (("cpu", device), (device, "cpu"))[way == "back"]
    moved, stayed = (fitted("mlp", d, warm_start=True, burn_in=0) for d in (first, "cpu"))
    assert_same_draws(moved.set_params(device=second).fit(X, y), stayed.fit(X, y))
