"""Displays of parameters, and what displays refuse."""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from _cases import cases
from _posteriors import with_posterior
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import (
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    PosteriorSamples,
    inspection,
)
from skbayes_sgmcmc.inspection import (
    AdversarialCurveDisplay,
    EntropyHistogramDisplay,
    IntervalCoverageDisplay,
    LearningCurveDisplay,
    PartialEffectDisplay,
    PredictiveCheckDisplay,
    ReliabilityDisplay,
    ResidualDisplay,
    WeightHistogramDisplay,
    _weights,
    expected_calibration_error,
)
from skbayes_sgmcmc.inspection._common import Display

#: budgets too small to mix, on purpose: what is looked at holds for any draws
pytestmark = [
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.usefixtures("figures"),
]

#: max_steps bounds the descents to the starts, too
TINY = {"hidden_layer_sizes": 5, "burn_in": 50, "thinning": 5, "n_draws": 12, "max_steps": 110,
        "random_state": 0}  # fmt: skip


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def network(iris):
    """A network after few steps, whose single draws are poor and unlike."""
    X, y = iris
    return BayesianMLPClassifier(n_chains=3, calibrate=False, **TINY).fit(X[::3], y[::3])


# parameters ---------------------------------------------------------------------------------------


def test_histograms_of_the_parameters(network):
    """One panel a block, with NumPy's densities of all draws."""
    display = WeightHistogramDisplay.from_estimator(network, bins=20)
    assert list(display.densities) == list(network.posterior_.draws)
    assert [ax.get_title() for ax in display.axes_] == list(network.posterior_.draws)
    for name, draws in network.posterior_.draws.items():
        density, edges = np.histogram(draws, 20, density=True)
        np.testing.assert_allclose(display.densities[name], density)
        np.testing.assert_allclose(display.edges[name], edges)
    some = WeightHistogramDisplay.from_estimator(network, ["bias_2", "weight_1"])
    assert list(some.densities) == ["bias_2", "weight_1"]


def test_weights_count_in_the_histograms(network):
    """All weight on one draw: the histogram of that draw."""
    weights = np.zeros(network.n_draws_)
    weights[3] = 2.0
    one = with_posterior(network, weights=weights)
    display = WeightHistogramDisplay.from_estimator(one, "weight_1")
    values, edges = network.posterior_["weight_1"][:, 3], display.edges["weight_1"]
    expected = np.histogram(values, edges, density=True)[0]
    np.testing.assert_allclose(display.densities["weight_1"], expected)


@pytest.mark.parametrize("weights", [None, np.geomspace(1.0, 0.05, 12)])
def test_large_blocks_are_sampled(network, weights, limits):
    """A sample of 2,000 puts a share q into a bin with an sd of sqrt(q (1 - q) / 2000) or, with
    weights of 1 on average and largest ratio r, at most sqrt(r) of it. Bound: 4 sd."""
    estimator = with_posterior(network, weights=weights)
    whole = WeightHistogramDisplay.from_estimator(estimator, "weight_1", bins=5)
    limits(plotted_numbers=100)
    posterior, rng = estimator.posterior_, np.random.RandomState(0)
    assert posterior["weight_1"].size > 100
    values, per_number = _weights._numbers(posterior, "weight_1", rng)
    assert values.shape == (100,)
    assert (per_number is None) == (weights is None)
    limits(plotted_numbers=2000)
    draws = np.tile(posterior["weight_1"], (1, 1, 1, 20))  # more numbers, the same histogram
    large = with_posterior(estimator)
    large.posterior_ = PosteriorSamples({"weight_1": draws}, posterior.weights)
    part = WeightHistogramDisplay.from_estimator(large, bins=whole.edges["weight_1"].size - 1)
    values, per_number = _weights._numbers(large.posterior_, "weight_1", rng)
    share = np.histogram(values, whole.edges["weight_1"], weights=per_number)[0]
    share = share / share.sum()
    q = whole.densities["weight_1"] * np.diff(whole.edges["weight_1"])
    ratio = 1.0 if weights is None else weights.max() / weights.mean()
    assert (np.abs(share - q) < 4.0 * np.sqrt(ratio * q * (1.0 - q) / 2000)).all()
    assert part.densities["weight_1"].shape == (5,)


def test_panels_in_a_grid_or_inside_given_axes():
    """Six blocks make rows of four; unused cells are empty."""
    densities = {f"block {i}": np.ones(3) for i in range(6)}
    display = WeightHistogramDisplay(
        densities, {name: np.linspace(0.0, 1.0, 4) for name in densities}
    )
    assert len(display.plot().figure_.axes) == 6
    figure, (left, right) = plt.subplots(1, 2)
    display.plot(left)
    assert display.figure_ is figure
    assert len(figure.axes) == 8
    assert all(ax.get_position().x1 <= right.get_position().x0 for ax in display.axes_)
    with pytest.raises(ValueError, match="ax with 2 axes is not allowed: give 6 axes, one for"):
        display.plot([left, right])
    with pytest.raises(ValueError, match="ax with 1 axes"):
        display.plot(plt.figure().add_axes((0.1, 0.1, 0.8, 0.8)))


# errors -------------------------------------------------------------------------------------------

#: displays of estimators, and what ``from_estimator`` of most takes in addition
DISPLAYS = [d for d in Display.__subclasses__() if hasattr(d, "from_estimator")]
ROWS = {
    **dict.fromkeys((AdversarialCurveDisplay, LearningCurveDisplay, ReliabilityDisplay), "Xy"),
    **dict.fromkeys((IntervalCoverageDisplay, PredictiveCheckDisplay, ResidualDisplay), "Xy"),
    EntropyHistogramDisplay: "XX",
    PartialEffectDisplay: "X0",
}


def rows_for(display, iris):
    given = {"X": iris[0], "y": iris[1], "0": [0]}
    return [given[name] for name in ROWS.get(display, "")]


def test_all_displays_have_the_base():
    names = {display.__name__ for display in Display.__subclasses__()}
    assert names == {name for name in inspection.__all__ if name.endswith("Display")}


@cases("display", DISPLAYS)
@cases("in_pipeline", [False, True])
def test_unfitted_estimators(display, in_pipeline, iris):
    clf = BayesianMLPClassifier()
    clf = make_pipeline(StandardScaler(), clf) if in_pipeline else clf
    with pytest.raises(NotFittedError, match="not fitted"):
        display.from_estimator(clf, *rows_for(display, iris))
    assert not plt.get_fignums()


@cases("display", [d for d in DISPLAYS if d is not ReliabilityDisplay])
def test_estimators_of_others(display, iris):
    dummy = DummyClassifier().fit(*iris)
    with pytest.raises(ValueError, match=r"estimator=DummyClassifier\(\) is not allowed"):
        display.from_estimator(dummy, *rows_for(display, iris))


def test_regressors_have_no_entropy_or_reliability():
    X = np.arange(20.0)[:, None]
    reg = BayesianMLPRegressor(n_chains=1, **TINY).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="give a classifier"):
        EntropyHistogramDisplay.from_estimator(reg, X, X)
    with pytest.raises(ValueError, match="give a classifier with predict_proba"):
        ReliabilityDisplay.from_estimator(reg, X, X[:, 0])


@cases("display", DISPLAYS)
def test_missing_matplotlib(display, iris, monkeypatch):
    """An error that names the extra, before any work: the estimator is not looked at."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    name = display.__name__
    with pytest.raises(ImportError, match=rf"{name}\.from_estimator .*skbayes-sgmcmc\[plot\]"):
        display.from_estimator(None, *rows_for(display, iris))


def test_missing_matplotlib_in_plot(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"EntropyHistogramDisplay.plot needs matplotlib"):
        EntropyHistogramDisplay(np.zeros(2), np.ones(2)).plot()
    # what needs no figure works
    assert expected_calibration_error([0, 1], [0.0, 1.0]) == 0.0


@cases("call, message", [
        (lambda c, X, y: LearningCurveDisplay.from_estimator(c, X, y, metric="rmse"),
         "metric='rmse' is not allowed: give one of 'error', 'accuracy', 'nll'"),
        (lambda c, X, y: LearningCurveDisplay.from_estimator(c, X, y, metric=[]), "metric=None"),
        (lambda c, X, y: LearningCurveDisplay.from_estimator(c, X[:9], y), "inconsistent numbers"),
        (lambda c, X, y: LearningCurveDisplay.from_estimator(c, X[:, :2], y), "2 features"),
        (lambda c, X, y: LearningCurveDisplay.from_estimator(c, X, np.full(len(X), "rose")),
         r"y has labels \['rose'\]"),
        (lambda c, X, y: ReliabilityDisplay.from_estimator(c, X, y, n_bins=-1), "n_bins=-1"),
        (lambda c, X, y: ReliabilityDisplay.from_estimator(c, X, np.full(len(X), "rose")),
         r"y has labels \['rose'\]"),
        (lambda c, X, y: EntropyHistogramDisplay.from_estimator(c, X, X, kind="both"),
         "kind='both' .* 'total', 'aleatoric', 'epistemic'"),
        (lambda c, X, y: EntropyHistogramDisplay.from_estimator(c, X, X, bins=0), "bins=0"),
        (lambda c, X, y: WeightHistogramDisplay.from_estimator(c, "coef"),
         "names='coef' is not allowed: give one of 'weight_1', 'bias_1', 'weight_2', 'bias_2'"),
        (lambda c, X, y: WeightHistogramDisplay.from_estimator(c, []), "names=None"),
        (lambda c, X, y: WeightHistogramDisplay.from_estimator(c, bins="many"), "bins='many'"),
    ])  # fmt: skip
def test_bad_parameters(call, message, network, iris):
    with pytest.raises(ValueError, match=message):
        call(network, *iris)
