"""Learning curves during the fit: those of the draws, each evaluated once, whatever happens."""

from __future__ import annotations

import copy
import pickle

import joblib
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from _inside import Interrupt
from _posteriors import assert_same_draws
from sklearn.datasets import load_digits, make_moons
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.inspection import LearningCurve, LearningCurveDisplay, _callback
from skbayes_sgmcmc.samplers import PSGLD
from skbayes_sgmcmc.schedules import Polynomial

pytest.importorskip("sklearn.callback")
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

DIGITS, LABELS = load_digits(return_X_y=True)
X, y, X_test, y_test = DIGITS[:150], LABELS[:150], DIGITS[150:230], LABELS[150:230]
#: 2 chunks of burn-in and 5 of draws, with the chunks of the fixture below
#: max_steps bounds the descents to the starts, too
SHORT = {"n_chains": 2, "burn_in": 128, "n_draws": 40, "thinning": 8, "max_steps": 448,
         "random_state": 0}  # fmt: skip


def norm_module():
    return nn.Sequential(nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 10))


def line_module():
    return nn.Linear(64, 1)


ESTIMATORS = {
    "logistic": lambda **p: sk.BayesianLogisticRegression(step_size=0.01, **(SHORT | p)),
    "mlp": lambda **p: sk.BayesianMLPClassifier(
        hidden_layer_sizes=5, init="random", calibrate=False, **(SHORT | p)
    ),
    "cnn": lambda **p: sk.BayesianCNNClassifier(
        conv_channels=2, hidden_layer_sizes=(), calibrate=False, **(SHORT | p)
    ),
    "batch norm": lambda **p: sk.BayesianModuleClassifier(norm_module, **(SHORT | p)),
    "mlp regressor": lambda **p: sk.BayesianMLPRegressor(
        hidden_layer_sizes=5, init="random", **(SHORT | p)
    ),
    "module regressor": lambda **p: sk.BayesianModuleRegressor(line_module, **(SHORT | p)),
}
EVERY = pytest.mark.parametrize("name", ESTIMATORS)


@pytest.fixture(autouse=True)
def short_chunks_and_no_screen(limits):
    limits(chunk_steps=64)
    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def fitted(name, curve, **parameters):
    return ESTIMATORS[name](**parameters).set_callbacks(curve).fit(X, y)


def assert_curves_are_those_of(estimator, curve):
    """As computed after the fit: sums of the same numbers, in other portions."""
    after = LearningCurveDisplay.from_estimator(estimator, X_test, y_test)
    assert set(curve.values) == set(after.values)
    for ours, theirs in (
        (curve.values, after.values),
        (curve.chain_values, after.chain_values),
        (curve.draw_values, after.draw_values),
    ):
        for metric, values in theirs.items():
            assert values.shape[-1] == estimator.posterior_.n_draws
            np.testing.assert_allclose(ours[metric], values, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("cnn", "batch norm") else ())
        for name in ESTIMATORS
    ],
)
def test_curves_are_those_after_the_fit(name):
    """And the draws are, bit for bit, those of a fit without the callback."""
    curve = LearningCurve(X_test, y_test)
    estimator = fitted(name, curve)
    assert_curves_are_those_of(estimator, curve)
    without = ESTIMATORS[name]().fit(X, y)
    assert_same_draws(without, estimator)


@pytest.mark.parametrize(
    "parameters",
    [
        {"storage": sk.Storage("bfloat16"), "n_chains": 1},
        {"storage": sk.Storage(dir=True)},
        {"step_size": Polynomial(first=0.1, last=0.001), "sampler": "sgld"},
        {"step_size": 0.01, "thinning": sk.MixingDistance(n_steps=400, distance=0.05)},
    ],
    ids=["bfloat16", "on disk", "weighted", "mixing distance"],
)
def test_curves_of_any_kind_of_draws(parameters, tmp_path):
    if getattr(parameters.get("storage"), "dir", None):
        parameters = {"storage": sk.Storage(dir=tmp_path)}
    curve = LearningCurve(X_test, y_test)
    clf = fitted("batch norm", curve, **parameters)
    assert len(curve.log) > 1
    assert_curves_are_those_of(clf, curve)


def test_the_curve_of_a_run_that_goes_on_is_that_of_its_last_part():
    """Later parts keep no draws of earlier ones, and may have fewer when they first report."""
    moons, labels = make_moons(60, noise=0.2, random_state=0)
    curve = LearningCurve(moons[::5], labels[::5])
    clf = sk.BayesianMLPClassifier(n_chains=2, calibrate=False, random_state=0)
    clf.set_callbacks(curve).fit(moons, labels)
    assert clf.n_steps_ > 1500  # more than the first part
    after = LearningCurveDisplay.from_estimator(clf, moons[::5], labels[::5])
    for metric, values in after.values.items():
        np.testing.assert_allclose(curve.values[metric], values, rtol=1e-6, atol=1e-12)
    for entry in curve.log:
        assert entry["nll"] == curve.values["nll"][entry["n_draws"] - 1]


@pytest.mark.slow
def test_statistics_of_batch_norms_are_those_of_the_last_part():
    """They are made once for each draw, and those of an earlier part stood beside later draws."""
    moons, labels = make_moons(60, noise=0.2, random_state=0)
    found = []
    for watched in (False, True):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
        clf = sk.BayesianModuleClassifier(
            module, sampler="mclmc", sample_parameters="all", n_chains=1, max_steps=3000
        )
        if watched:
            clf.set_callbacks(LearningCurve(moons[::5], labels[::5]))
        found.append(clf.set_params(random_state=0).fit(moons, labels))
    assert found[0].n_steps_ > 1500  # more than the first part
    assert_same_draws(*found)


@EVERY
def test_each_draw_is_evaluated_once_while_they_come(name, monkeypatch):
    """As many predictions as draws times rows; the fit's own checks come after them."""
    curve, evaluated = LearningCurve(X_test, y_test), []
    estimator = ESTIMATORS[name]()
    predict = type(estimator)._predict_block

    def counted(self, draws, x):
        evaluated.append(len(draws) * len(x))
        return predict(self, draws, x)

    monkeypatch.setattr(type(estimator), "_predict_block", counted)
    for check in ("_check_mixing", "_check_finite", "_check_sense"):
        monkeypatch.setattr(type(estimator), check, lambda *_: None)
    estimator.set_callbacks(curve).fit(X, y)
    assert sum(evaluated) == 2 * 40 * len(X_test)
    # one report a chunk of 64 steps that had draws: 8 draws each
    assert [entry["n_draws"] for entry in curve.log] == [8, 16, 24, 32, 40]
    assert [entry["step"] for entry in curve.log] == [192, 256, 320, 384, 448]
    for entry in curve.log:
        for metric, values in curve.values.items():
            assert entry[metric] == values[entry["n_draws"] - 1]
    assert estimator.n_steps_ == 448


def test_memory_is_one_running_sum_for_each_chain():
    """Its arrays: sums (2, 80, 10), the held-out rows, and 5 curves of 40 for 3 metrics."""
    curve = LearningCurve(X_test, y_test)
    fitted("mlp", curve)
    held = {name: value for name, value in vars(curve.curves).items() if name != "X"}
    numbers = sum(v.size for v in held.values() if isinstance(v, np.ndarray))
    assert numbers == 2 * 80 * 10 + 80
    assert sum(v.size for v in held["_found"].values()) == 3 * 5 * 40


# what may happen ----------------------------------------------------------------------------------


def test_parallel_chains_report_at_their_end():
    curve = LearningCurve(X_test, y_test)
    with joblib.parallel_config("threading"):
        clf = fitted("mlp", curve, n_jobs=2)
    assert [entry["n_draws"] for entry in curve.log] == [40]
    assert_curves_are_those_of(clf, curve)


def test_a_resumed_fit_has_the_whole_curve(tmp_path):
    """After an interrupt with 24 draws, they are scored at the first report of the second run."""
    parameters = {"checkpoint": tmp_path / "fit.npz"}
    first, second = LearningCurve(X_test, y_test), LearningCurve(X_test, y_test)
    clf = ESTIMATORS["batch norm"](**parameters).set_callbacks(first, Interrupt(320 / 448 - 0.05))
    with pytest.raises(KeyboardInterrupt, match="call fit again"):
        clf.fit(X, y)
    assert [entry["n_draws"] for entry in first.log] == [8, 16, 24]
    clf = fitted("batch norm", second, **parameters)
    assert [entry["n_draws"] for entry in second.log] == [32, 40]
    assert_curves_are_those_of(clf, second)
    for metric, values in first.values.items():
        np.testing.assert_allclose(second.values[metric][:24], values, rtol=1e-6)


class Breaking(PSGLD):
    """Chain 1 diverges at step 300."""

    steps = 0

    def euler(self, theta, state, step):
        super().euler(theta, state, step)
        Breaking.steps += 1
        if Breaking.steps == 300:
            theta[1] = np.nan


@pytest.mark.parametrize("name", ["mlp", "batch norm"])
def test_a_chain_that_diverges_takes_its_draws_along(name):
    curve, Breaking.steps = LearningCurve(X_test, y_test), 0
    clf = fitted(name, curve, n_chains=3, sampler=Breaking(), step_size=0.01)
    assert clf.n_chains_ == 2 and curve.draw_values["nll"].shape == (2, 40)
    assert_curves_are_those_of(clf, curve)


def test_streams_report_at_the_end_of_each_call():
    """A call of 150 rows takes 2 steps; the curve is that of the draws that are kept."""
    curve = LearningCurve(X_test, y_test)
    clf = ESTIMATORS["batch norm"]().set_callbacks(curve)
    for _ in range(2):
        clf.partial_fit(X, y, classes=range(10))
        assert [entry["n_draws"] for entry in curve.log] == [clf.n_draws_] and clf.n_draws_ > 1
        assert_curves_are_those_of(clf, curve)


def test_each_fit_begins_anew_and_a_search_leaves_the_last():
    curve = LearningCurve(X_test, y_test)
    search = GridSearchCV(
        ESTIMATORS["logistic"]().set_callbacks(curve), {"prior_scale": [0.1, 1.0]}, cv=2
    ).fit(X, y)
    assert curve.values["accuracy"][-1] == pytest.approx(search.score(X_test, y_test), abs=1e-12)
    assert curve.log[0]["n_draws"] < curve.log[-1]["n_draws"] == 40


def test_a_record_can_be_pickled_with_its_estimator():
    clf = fitted("mlp", LearningCurve(X_test, y_test))
    loaded = pickle.loads(pickle.dumps(clf))
    (curve,) = loaded._skl_callbacks
    assert_curves_are_those_of(loaded, curve)


# errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (X_test[:, :5], y_test, "5 features"),
        (X_test, y_test[:-1], "inconsistent numbers"),
        (X_test, y_test + 5, r"y has labels \[10"),
    ],
)
def test_bad_rows_are_refused_before_any_step(rows, labels, message):
    curve, steps = LearningCurve(rows, labels), Interrupt(0.0)
    clf = ESTIMATORS["mlp"]().set_callbacks(curve, steps)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)
    assert not hasattr(clf, "classes_") and not hasattr(clf, "_callback_fit_ctx")


def test_estimators_of_others_are_refused():
    dummy = DummyClassifier().fit(X, y)
    with pytest.raises(ValueError, match=r"estimator=DummyClassifier\(\) is not allowed"):
        LearningCurve(X_test, y_test).setup(dummy, None)


def test_without_callbacks_in_scikit_learn(monkeypatch):
    monkeypatch.setattr(_callback, "HAS_CALLBACKS", False)
    with pytest.raises(ImportError, match="scikit-learn 1.9 or newer"):
        LearningCurve(X_test, y_test)


# views --------------------------------------------------------------------------------------------


def test_display_of_a_callback():
    curve = LearningCurve(X_test, y_test)
    with pytest.raises(ValueError, match="give a LearningCurve that has recorded draws"):
        LearningCurveDisplay.from_callback(curve)
    clf = fitted("mlp", curve)
    display = LearningCurveDisplay.from_callback(curve, metric="nll", per_draw=True, per_chain=True)
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), curve.values["nll"])
    np.testing.assert_array_equal(
        display.draw_lines_[0].get_ydata(), curve.draw_values["nll"].ravel()
    )
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["BayesianMLPClassifier", "single chains", "single draws"]
    # a draw alone: the estimator with that draw
    alone = copy.copy(clf)
    alone.posterior_ = sk.PosteriorSamples(
        {name: values[1:, 7:8] for name, values in clf.posterior_.draws.items()}
    )
    assert display.draw_values["accuracy"][1, 7] == pytest.approx(alone.score(X_test, y_test))


def test_verbose_prints_each_report(capsys):
    curve = LearningCurve(X_test, y_test, verbose=1)
    fitted("mlp", curve)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(curve.log)
    error, nll = curve.log[0]["error"], curve.log[0]["nll"]
    assert lines[0].startswith("[BayesianMLPClassifier] step 192: 8 draws per chain, error ")
    assert f"error {error:.4f}" in lines[0] and f"nll {nll:.4f}" in lines[0]


def test_scikit_learns_own_monitor_scores_the_fit_so_far():
    """It asks for a fitted copy at each report, which predicts as if the fit ended there."""
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="accuracy")
    clf = fitted("logistic", monitor)
    scores = [row["accuracy"] for row in monitor.get_logs().data]
    assert clf.score(X, y) in scores
    assert len(scores) > 5
