"""Devices that are not there, full ones, and tensors that all go where they should.

Torch's device "meta" computes shapes without numbers and refuses tensors of any other device: it
shows, without a GPU, that nothing is left behind on the CPU.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import _stand_in_device
import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from _modules import module
from _stand_in_device import NAME, stand_in
from sklearn.datasets import load_digits
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc._draws.prediction import blocks
from skbayes_sgmcmc._engine import devices
from skbayes_sgmcmc._limits import LIMITS
from skbayes_sgmcmc.models.linear.logistic import LogisticModel
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.model import NetworkModel

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

X, y = load_digits(return_X_y=True)
X, y = X[:120], y[:120]
#: max_steps bounds the descents to the starts, too
TINY = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 2, "max_steps": 10,
        "random_state": 0}  # fmt: skip


NETWORKS = {
    "mlp": sk.BayesianMLPClassifier(
        hidden_layer_sizes=5, prior_scale="fan_in", sampler="psgld", **TINY
    ),
    "mlp regressor": sk.BayesianMLPRegressor(
        hidden_layer_sizes=5, activation="tanh", prior_scale="fan_in", sampler="psgld", **TINY
    ),
    "cnn": sk.BayesianCNNClassifier(conv_channels=2, **TINY),
    "module": sk.BayesianModuleClassifier(module, prior_scale="fan_in", **TINY),
    "module regressor": sk.BayesianModuleRegressor(module, noise=0.5, prior="laplace", **TINY),
}


def fresh(name, **parameters):
    kind = NETWORKS[name]
    return type(kind)(**(kind.get_params(deep=False) | parameters))


@pytest.fixture(scope="module", params=NETWORKS)
def fitted(request):
    return fresh(request.param).fit(X, y)


# devices that are not there -----------------------------------------------------------------------


@cases("device", ["cuda", "cuda:7", "mps", "xla", "nowhere", "meta", "", None, 3])
def test_a_device_that_is_not_there_is_refused_before_any_work(device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("it is there")
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("it is there")
    clf = sk.BayesianModuleClassifier(lambda: pytest.fail("the module was built"), device=device)
    for method in (clf.fit, clf.partial_fit):
        with pytest.raises(ValueError, match=f"device={device!r} is not available here: give 'au"):
            method(X, y)
    assert not hasattr(clf, "n_features_in_")
    with pytest.raises(ValueError, match="is not available here"):
        sk.sample(lambda theta: -(theta**2).sum(1), 2, device=device)


def test_a_model_fitted_on_another_device_predicts_where_there_is_none(fitted):
    """On the CPU, whatever device the estimator names; a new fit there says what is missing."""
    before = fitted.predict(X)
    loaded = pickle.loads(pickle.dumps(fitted)).set_params(device="cuda:7")
    np.testing.assert_array_equal(loaded.predict(X), before)
    with pytest.raises(ValueError, match="device='cuda:7' is not available"):
        loaded.fit(X, y)
    np.testing.assert_array_equal(loaded.predict(X), before)


def test_predictions_by_name_of_the_cpu(fitted):
    before = fitted.predict(X)
    named = pickle.loads(pickle.dumps(fitted)).set_params(device="cpu")
    np.testing.assert_array_equal(named.predict(X), before)


def test_predictions_are_made_on_the_device(fitted, replaced, monkeypatch):
    """All of the network's work is done there: only the way back from "meta" is impossible."""
    replaced("prediction_device", lambda *_: "meta")
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        fitted.predict(X)
    monkeypatch.undo()
    fitted.predict(X)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_computed_on_the_device(name, monkeypatch):
    """Of the prior and of the likelihood, and log p of rows: no tensor of theirs is on the CPU."""
    found = []
    monkeypatch.setattr(
        NetworkModel, "likelihood_gradient", lambda self, *_, **__: found.append(self) or {}
    )
    fresh(name).fit(X, y)
    monkeypatch.undo()
    model = found[0]
    rows = torch.empty(7, 1, 8, 8) if name == "cnn" else torch.empty(7, 64)
    targets = torch.zeros(7, 1) if "regressor" in name else torch.zeros(7, dtype=torch.int64)
    batch = Batch({"x": rows.to("meta"), "y": targets.to("meta")}, 1.0, True, 7)
    theta = torch.empty(2, model.n_parameters, device="meta")
    out = torch.empty_like(theta)
    state = model.init_state(theta)
    model.prior_gradient(theta, state, out, 1.0)
    model.likelihood_gradient(theta, batch, state, None, out=out, scale=1.0)
    assert model.log_lik(theta, batch).shape == (2, 7)
    assert out.device.type == "meta"


# what "auto" means --------------------------------------------------------------------------------

RECORDS = Path(__file__).parents[1] / "docs" / "results" / "runs" / "gpu.jsonl"
FIT_RECORDS = [
    record
    for record in map(json.loads, RECORDS.read_text().splitlines())
    if record["name"].startswith("fits-")
]


@pytest.fixture
def fits(monkeypatch):
    """The ordinary fits of gpu.py: estimators with their rows, a9a's by its shape."""
    monkeypatch.syspath_prepend(str(RECORDS.parents[3] / "examples" / "benchmarks"))
    import _gpu_fits

    a9a = sp.random(32_561, 123, density=0.01, format="csr", random_state=0)
    rows = {}, a9a, np.arange(32_561) % 2
    monkeypatch.setitem(
        _gpu_fits.FITS, "logistic a9a", ("BayesianLogisticRegression", lambda: rows)
    )
    return _gpu_fits.made


@cases("name", sorted({record["settings"]["fit"] for record in FIT_RECORDS}))
def test_auto_takes_the_faster_device_of_measured_fits(name, fits):
    """Never more than a tenth slower than the CPU, and the GPU where it is a tenth faster.

    The seconds are those of docs/results/gpu.md. Some fits took longer than the limit there.
    """
    estimator, X, y = fits(name)
    task = estimator._task(X, y, None)
    pays = devices.pays(task.settings, task.model, task.rows.x.shape[0])
    numbers = {
        r["settings"]["on"]: r["numbers"] for r in FIT_RECORDS if r["settings"]["fit"] == name
    }
    exact = {on: found["wall"] for on, found in numbers.items()}
    if exact["cpu"] is None:
        assert exact["cuda"] is None and not pays
        return
    slowest = exact["cuda"] or np.inf
    assert (slowest if pays else exact["cpu"]) <= 1.1 * exact["cpu"]
    assert pays or exact["cpu"] <= 1.1 * slowest


@pytest.mark.parametrize("width, pays", [(10, False), (400, True)])
def test_auto_grows_with_the_network(width, pays):
    """784-400-10 takes the GPU by default and 784-10-10 does not; a short run never does."""
    clf = sk.BayesianMLPClassifier(hidden_layer_sizes=width)
    task = clf._task(np.zeros((200, 784)) + np.arange(784), np.arange(200) % 10, None)
    assert devices.pays(task.settings, task.model, 200) == pays
    assert not devices.pays(replace(task.settings, max_steps=100), task.model, 200)


def test_convolutions_of_modules_are_counted(monkeypatch):
    """At each place of the image; 8 x 8 pixels after one of 3 x 3 without padding leave 6 x 6."""

    def convolutions(n_outputs):
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, n_outputs))

    clf = sk.BayesianModuleClassifier(convolutions, input_shape=(1, 8, 8))
    model = clf._task(X, y, None).model
    assert model.row_products == 9 * 4 * 36 + 144 * 10


def test_draws_are_sent_to_a_device_once_for_all_blocks_of_rows(limits, monkeypatch):
    """Sending them again for each block took most of the time of predictions on a GPU."""
    clf = fresh("mlp").fit(X, y)
    proba, sent = clf.predict_proba(X), []
    copied = _stand_in_device._copied
    monkeypatch.setattr(
        _stand_in_device, "_copied",
        lambda function, args, kwargs: sent.append(args[0].shape) or copied(function, args, kwargs),
    )  # fmt: skip
    limits(block_numbers=2**10)
    with stand_in(monkeypatch):
        np.testing.assert_allclose(clf.set_params(device=NAME).predict_proba(X), proba, rtol=1e-5)
    n_parameters = sum(clf._make_network(10).sizes)
    draws = [shape for shape in sent if shape[-1:] == (n_parameters,)]
    assert len([shape for shape in sent if shape[-1:] == (64,)]) > 3  # blocks of rows
    assert draws == [(clf.posterior_.n_pooled, n_parameters)]


def test_auto_takes_a_gpu_for_large_fits_and_predictions(monkeypatch):
    """On a stand-in: ``device_`` says so, and the same model predicts on the CPU without it."""
    clf = fresh("mlp", compiled=False, random_state=0)
    with stand_in(monkeypatch):
        monkeypatch.setattr(devices, "gpu", lambda: NAME)
        assert clf.fit(X, y).device_ == "cpu"
        assert devices.prediction_device("auto", 1e9) == "cpu"
        for limit in ("gpu_recorded_step", "gpu_run", "gpu_prediction"):
            monkeypatch.setattr(LIMITS, limit, 1)
        assert clf.fit(X, y).device_ == NAME
        products = 8 * len(X) * clf._make_network(10).row_products
        assert devices.prediction_device("auto", products, clf.device_) == NAME
        proba = clf.predict_proba(X)
        monkeypatch.setattr(devices, "gpu", lambda: None)
        np.testing.assert_allclose(clf.predict_proba(X), proba, rtol=1e-5)


@pytest.mark.parametrize("rows, device", [(10_000, "cuda"), (100, "cpu")])
def test_auto_predicts_on_the_gpu_of_the_fit_where_that_was_faster(rows, device, monkeypatch):
    """Blocks of 100 draws x 10,000 rows of 784-400-400-10, which took .54 s instead of 1.16 s.

    Predictions come in blocks of bounded memory, each of which is far from the size of the call.
    """
    network, n_draws, n_outputs = MLP((784, 400, 400, 10), "relu"), 100, 10
    monkeypatch.setattr(devices, "gpu", lambda: "cuda")
    some, draws = next(iter(blocks(rows, n_draws, n_outputs)))
    size = (some.stop - some.start) * (draws[0].stop - draws[0].start)
    products = size * network.row_products
    assert devices.prediction_device("auto", products, "cuda") == device


# full devices -------------------------------------------------------------------------------------


def full_after(calls, function):
    """The function until it has been called so often, then a full device, in torch's words."""
    done = []

    def limited(*args, **kwargs):
        done.append(1)
        if len(done) > calls:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMo")
        return function(*args, **kwargs)

    return limited


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("calls", [0, 5])
@pytest.mark.parametrize("kind", ["network", "logistic"])
def test_a_full_device_during_a_fit(kind, calls, n_jobs, monkeypatch):
    """The remedy is named, and the estimator is as it was before: fitted to other rows, or not."""
    if kind == "network":
        clf, model = fresh("mlp", n_jobs=n_jobs), NetworkModel
    else:
        clf = sk.BayesianLogisticRegression(step_size=0.01, n_jobs=n_jobs, compiled=False, **TINY)
        model = LogisticModel
    with joblib.parallel_config("threading"):
        for before in (False, True):
            if before:
                clf.fit(X[:60, :30], y[:60])
            held, proba = dict(vars(clf)), before and clf.predict_proba(X[:, :30])
            with monkeypatch.context() as patch:
                gradient = full_after(calls, model.likelihood_gradient)
                patch.setattr(model, "likelihood_gradient", gradient)
                with pytest.raises(MemoryError, match=r"smaller batch_size, fewer n_chains.*2\.00"):
                    clf.fit(X, y)
            assert vars(clf) == held
            if before:
                np.testing.assert_array_equal(clf.predict_proba(X[:, :30]), proba)


def test_a_full_device_during_a_prediction(monkeypatch):
    clf = fresh("mlp").fit(X, y)
    proba = clf.predict_proba(X)
    with monkeypatch.context() as patch:
        patch.setattr(MLP, "outputs", full_after(0, MLP.outputs))
        with pytest.raises(MemoryError, match=r"predict fewer rows at once.*2\.00 GiB"):
            clf.predict_proba(X)
    np.testing.assert_array_equal(clf.predict_proba(X), proba)


def test_a_full_device_during_sample():
    def density(theta):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(MemoryError, match="fewer n_chains"):
        sk.sample(density, 2)


# numbers of any kind ------------------------------------------------------------------------------


@cases("name", NETWORKS)
def test_rows_of_any_kind_of_number(name):
    """Pixels from 0 to 16 are exact in all of them.

    Whole numbers and float16 are widened to float64, so that nothing changes; float32 stays, and
    means of it are rounded at 1e-7, which four steps leave below 1e-3: that grows with each step.
    """
    short = {"burn_in": 2, "n_draws": 2, "max_steps": 10}
    expected = fresh(name).set_params(**short).fit(X, y).predict(X)
    for dtype in ("int8", "uint16", "int64", "float16", "float32"):
        rows = X.astype(dtype)
        found = fresh(name).set_params(**short).fit(rows, y).predict(rows)
        atol = 1e-3 * np.abs(expected).max() if dtype == "float32" and "regressor" in name else 0.0
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=dtype)
