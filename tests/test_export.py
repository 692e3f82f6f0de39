"""to_torch and to_onnx: what is exported predicts as the estimator does, for any number of rows.

Tolerances are float32's: probabilities are sums of a few rounded products, and differ by about 1e-6
at most where features are of order one.
"""

from __future__ import annotations

import errno
import functools
import json
import logging
import os
import sys
import warnings

import numpy as np
import pytest
import torch
from _cases import cases
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.schedules import BlockDecay

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

X, y = load_digits(return_X_y=True)
X, y = X[:400], y[:400]
#: max_steps bounds the descents to the starts, too
SHORT = {"n_chains": 2, "n_draws": 4, "burn_in": 60, "thinning": 5, "max_steps": 80,
         "random_state": 0}  # fmt: skip
ATOL = 5e-6


class Shifted(nn.Module):
    """Batch norm, whose statistics each draw has of its own, and a buffer that all draws share."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(64, 6), nn.BatchNorm1d(6)
        self.last = nn.Linear(6, 10)
        self.register_buffer("shift", torch.linspace(-1.0, 1.0, 6))

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x)) + self.shift))


def logistic(**parameters):
    return sk.BayesianLogisticRegression(**SHORT, **parameters)


#: estimator and its labels, by what is special about them; dates were a TypeError of json
CLASSIFIERS = {
    "two_classes": (logistic(), np.array(["2024-01-30", "2024-02-01"], "M8[D]")[y % 2]),
    "logistic": (logistic(), y % 3),
    "no_intercept": (logistic(fit_intercept=False), y % 3),
    "ordinal": (sk.BayesianOrdinalClassifier(**SHORT), y % 4),
    "mlp": (sk.BayesianMLPClassifier(hidden_layer_sizes=(7, 5), **SHORT), y),
    "tanh": (
        sk.BayesianMLPClassifier(hidden_layer_sizes=5, activation="tanh", calibrate=False, **SHORT),
        y,
    ),
    "raw": (
        sk.BayesianMLPClassifier(hidden_layer_sizes=5, standardize=False, calibrate=False, **SHORT),
        y,
    ),
    "weighted": (
        sk.BayesianMLPClassifier(
            hidden_layer_sizes=5,
            step_size=BlockDecay(1e-2, every=35, factor=0.2),
            calibrate=False,
            **SHORT,
        ),
        y,
    ),
    "bfloat16": (
        sk.BayesianMLPClassifier(
            hidden_layer_sizes=5, storage=sk.Storage("bfloat16"), calibrate=False, **SHORT
        ),
        y,
    ),
    "cnn": (sk.BayesianCNNClassifier(conv_channels=2, hidden_layer_sizes=(), **SHORT), y),
    "norms": (sk.BayesianModuleClassifier(Shifted, standardize=True, **SHORT), y),
}


@functools.cache
def classifier(name):
    """A classifier of the table, fitted once."""
    estimator, labels = CLASSIFIERS[name]
    return estimator.fit(X, labels)


@pytest.fixture
def fitted(request):
    return classifier(request.param)


@pytest.fixture(scope="module")
def student():
    clf = sk.BayesianMLPClassifier(hidden_layer_sizes=5, **SHORT).fit(X, y)
    return clf.distill(X, n_epochs=3, random_state=0)


def rows(n=None):
    return torch.tensor(X[:n], dtype=torch.float32)


def regressor(targets):
    clf = sk.BayesianMLPRegressor(
        hidden_layer_sizes=5,
        prior_scale="fan_in",
        noise="infer",
        sampler="psgld",
        dtype="float64",
        **SHORT,
    )
    return clf.fit(X, targets)


def by_onnx(estimator, path, **options):
    """What onnxruntime makes of the file, as a function of rows."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    sk.to_onnx(estimator, path, **options)
    session = runtime.InferenceSession(path)
    return lambda x: session.run(None, {"X": np.asarray(x, np.float32)})


# torch --------------------------------------------------------------------------------------------


@cases("name", CLASSIFIERS)
def test_module_predicts_as_the_estimator(name):
    fitted = classifier(name)
    module = sk.to_torch(fitted)
    assert not module.training
    p = module(rows())
    assert p.dtype == torch.float32 and not p.requires_grad
    np.testing.assert_allclose(p, fitted.predict_proba(X), rtol=0, atol=ATOL)


@pytest.mark.parametrize("fitted", ["weighted"], indirect=True)
def test_weights_of_draws_count(fitted):
    """Else the test above would not see them: their plain average is another one by far more."""
    plain = fitted.predict_proba_samples(X).mean(axis=0)
    assert np.abs(sk.to_torch(fitted)(rows()).numpy() - plain).max() > 100 * ATOL


@cases("name", ["mlp", "student"])
def test_torch_export_for_any_number_of_rows(name, student):
    """To ONNX, others go by the same way in test_onnx_predicts_as_the_estimator."""
    estimator, n = student if name == "student" else classifier(name), torch.export.Dim("n")
    program = torch.export.export(sk.to_torch(estimator), (rows(3),), dynamic_shapes=({0: n},))
    for size in (2, 57):
        p = program.module()(rows(size))
        np.testing.assert_allclose(p, estimator.predict_proba(X[:size]), rtol=0, atol=ATOL)


@pytest.mark.parametrize("fitted", ["cnn"], indirect=True)
def test_images_may_have_their_shape(fitted):
    module = sk.to_torch(fitted)
    torch.testing.assert_close(module(rows().view(-1, 1, 8, 8)), module(rows()), rtol=0, atol=0)


@pytest.mark.parametrize("fitted", ["norms"], indirect=True)
def test_a_module_has_the_draws_and_nothing_else(fitted):
    """Eight draws of parameters and statistics, the shared buffer, standardisation, weights."""
    held = sum(v.numel() for v in sk.to_torch(fitted).state_dict().values())
    drawn = (64 * 6 + 6) + 2 * 6 + 2 * 6 + (6 * 10 + 10)
    count, shared, inputs, weights = 1, 6, 2 * 64, 8
    assert held == 8 * drawn + count + shared + inputs + weights


@pytest.mark.parametrize("targets", [X[:, 20], X[:, [20, 30]]], ids=["one", "two"])
def test_regressors_have_a_mean_and_a_deviation(targets):
    reg = regressor(100.0 + targets)
    expected = reg.predict(X, return_std=True)
    for found, by_estimator in zip(sk.to_torch(reg)(rows()), expected, strict=True):
        assert tuple(found.shape) == by_estimator.shape
        np.testing.assert_allclose(found, by_estimator, rtol=ATOL)


@pytest.mark.parametrize("fitted", ["weighted"], indirect=True)
def test_fewer_draws_are_spaced_and_keep_their_weights(fitted):
    """Three of eight pooled draws, the middles of thirds: 1, 4 and 6."""
    weights = fitted.posterior_.pooled_weights()[[1, 4, 6]]
    p = fitted.predict_proba_samples(X)[[1, 4, 6]]
    expected = np.tensordot(weights / weights.sum(), p, axes=1)
    np.testing.assert_allclose(sk.to_torch(fitted, n_draws=3)(rows()), expected, rtol=0, atol=ATOL)
    one = sk.to_torch(fitted, n_draws=1)(rows())
    np.testing.assert_allclose(one, fitted.predict_proba_samples(X)[4], rtol=0, atol=ATOL)


# ONNX ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fitted", ["two_classes", "cnn", "norms"], indirect=True)
def test_onnx_predicts_as_the_estimator(fitted, tmp_path):
    """And has its classes. Networks: in test_onnx_has_names_and_classes_and_prints_nothing."""
    predict = by_onnx(fitted, tmp_path / "model.onnx")
    for size in (1, 57, len(X)):
        (p,) = predict(X[:size])
        np.testing.assert_allclose(p, fitted.predict_proba(X[:size]), rtol=0, atol=ATOL)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    (classes,) = pytest.importorskip("onnx").load(tmp_path / "model.onnx").metadata_props
    assert list(map(str, json.loads(classes.value))) == list(map(str, fitted.classes_))


def test_onnx_of_what_was_fitted_on_images_takes_images(tmp_path):
    """Of the shape that they had in ``fit``; a student's as in ``distill``, in the same file."""
    images, others = X[:100].reshape(-1, 8, 8), X[:100].reshape(-1, 1, 8, 8)
    clf = sk.BayesianCNNClassifier(conv_channels=2, hidden_layer_sizes=(), calibrate=False, **SHORT)
    student = clf.fit(images, y[:100]).distill(others, n_epochs=1, random_state=0)
    for estimator, given in ((clf, images), (student, others)):
        (p,) = by_onnx(estimator, tmp_path / "a.onnx")(given[:57])
        np.testing.assert_allclose(p, estimator.predict_proba(X[:57]), rtol=0, atol=ATOL)


def test_onnx_of_a_module_takes_rows_as_fit_did(tmp_path):
    def module():
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10))

    clf = sk.BayesianModuleClassifier(module, input_shape=(1, 8, 8), **SHORT)
    images = X[:100].reshape(-1, 1, 8, 8)
    (p,) = by_onnx(clf.fit(images, y[:100]), tmp_path / "a.onnx")(images[:57])
    np.testing.assert_allclose(p, clf.predict_proba(X[:57]), rtol=0, atol=ATOL)
    p = sk.to_torch(clf.fit(X[:100], y[:100]))(rows(57))
    np.testing.assert_allclose(p, clf.predict_proba(X[:57]), rtol=0, atol=ATOL)


@pytest.mark.parametrize("fitted", ["mlp"], indirect=True)
def test_onnx_has_names_and_classes_and_prints_nothing(fitted, tmp_path, capfd):
    """No word of torchvision or of torch's own deprecations, and filters are as they were."""
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = list(logger.filters), list(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside = list(warnings.filters)
        sk.to_onnx(fitted, tmp_path / "a.onnx", n_draws=2)
        assert warnings.filters == inside
    assert (list(logger.filters), list(warnings.filters)) == before
    assert capfd.readouterr() == ("", "")
    model = onnx.load(tmp_path / "a.onnx")
    assert [value.name for value in model.graph.input] == ["X"]
    assert [value.name for value in model.graph.output] == ["probabilities"]
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["classes"]) == list(range(10))
    runtime = pytest.importorskip("onnxruntime")
    (p,) = runtime.InferenceSession(tmp_path / "a.onnx").run(None, {"X": rows(57).numpy()})
    np.testing.assert_allclose(p, sk.to_torch(fitted, n_draws=2)(rows(57)), rtol=0, atol=ATOL)
    # two draws of each weight, and products of all draws at once
    shapes = [tuple(values.dims) for values in model.graph.initializer]
    assert (2, 64, 7) in shapes
    assert sum(node.op_type in ("MatMul", "Gemm") for node in model.graph.node) <= 4


def test_onnx_of_a_regressor(tmp_path):
    reg = regressor(X[:, 20])
    found = by_onnx(reg, str(tmp_path / "model.onnx"))(X)
    for values, by_estimator in zip(found, reg.predict(X, return_std=True), strict=True):
        # sums of the size of the targets' spread may be near zero
        np.testing.assert_allclose(values, by_estimator, rtol=ATOL, atol=ATOL * X[:, 20].std())


# pipelines ----------------------------------------------------------------------------------------

SCALERS = [
    (StandardScaler(),),
    (StandardScaler(with_mean=False), "passthrough"),
    (MinMaxScaler((-1.0, 2.0)), RobustScaler()),
    (MaxAbsScaler(), StandardScaler(with_std=False)),
    (RobustScaler(with_centering=False, with_scaling=False),),
]


@cases("steps", SCALERS)
def test_scalers_of_a_pipeline_are_part_of_the_module(steps):
    pipe = make_pipeline(*steps, logistic()).fit(X, y % 3)
    np.testing.assert_allclose(sk.to_torch(pipe)(rows()), pipe.predict_proba(X), rtol=0, atol=ATOL)


def test_onnx_of_a_search_over_a_pipeline(tmp_path):
    """The file takes rows as the search does. A first step that does nothing was an error."""
    pipe = make_pipeline("passthrough", StandardScaler(), logistic(step_size=0.1))
    search = GridSearchCV(pipe, {"bayesianlogisticregression__prior_scale": [0.5]}, cv=2)
    search.fit(X, y % 3)
    (p,) = by_onnx(search, tmp_path / "a.onnx")(X)
    np.testing.assert_allclose(p, search.predict_proba(X), rtol=0, atol=ATOL)


@cases("step", [PCA(4), MinMaxScaler(clip=True)])
def test_other_steps_are_refused_with_the_two_lines_to_write(step):
    name = type(step).__name__
    pipe = make_pipeline(step, logistic()).fit(X, y % 3)
    message = rf"the step '\w+' \({name}\) .* pipeline\[-1\], .* pipeline\[:-1\].transform\(X\)"
    with pytest.raises(ValueError, match=message):
        sk.to_torch(pipe)


# what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fitted", ["mlp"], indirect=True)
def test_refused(fitted, student, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"estimator=LogisticRegression\(\) is not allowed"):
        sk.to_torch(LogisticRegression())
    with pytest.raises(NotFittedError):
        sk.to_torch(sk.BayesianMLPClassifier())
    for n_draws in (0, 9, 2.0):
        with pytest.raises(ValueError, match=f"n_draws={n_draws} is not allowed: .* at most 8"):
            sk.to_torch(fitted, n_draws=n_draws)
    with pytest.raises(
        ValueError, match="n_draws=2 is not allowed: a student has no draws; give n_draws=None"
    ):
        sk.to_torch(student, n_draws=2)
    with pytest.raises(ValueError, match=r"path='.*none/a.onnx' is not allowed: its folder"):
        sk.to_onnx(fitted, tmp_path / "none" / "a.onnx")
    with pytest.raises(ValueError, match="is not allowed: it is a folder; give the name of a file"):
        sk.to_onnx(fitted, tmp_path)
    with pytest.raises(ValueError, match="path=3 is not allowed: give the name of a file"):
        sk.to_onnx(fitted, 3)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="a.onnx' could not be writt"):
        patch.setattr(os, "replace", full)
        sk.to_onnx(classifier("two_classes"), tmp_path / "a.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"install the extra 'skbayes-sgmcmc\[onnx\]'"):
        sk.to_onnx(fitted, tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())
