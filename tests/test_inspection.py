"""The displays: their numbers are the estimators', and as theory has them; what they refuse."""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from _cases import cases
from _posteriors import with_posterior
from scipy.special import logsumexp
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
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


@pytest.fixture
def weighted(network):
    """The same with weights that differ much."""
    return with_posterior(network, weights=np.geomspace(1.0, 0.05, network.n_draws_))


# learning curves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["network", "weighted", "logistic"])
def test_every_point_of_the_curve_is_the_estimator_with_so_many_draws(kind, iris, request):
    """Also with weights and for single chains. Bound: rounding of sums in another order."""
    X, y = iris
    if kind == "logistic":
        clf = BayesianLogisticRegression(n_draws=6, n_chains=2, random_state=0).fit(X[::3], y[::3])
    else:
        clf = request.getfixturevalue(kind)
    display = LearningCurveDisplay.from_estimator(clf, X, y, per_chain=True)
    assert display.draws_per_chain.tolist() == list(range(1, clf.posterior_.n_draws + 1))
    chains = [slice(None), *(slice(c, c + 1) for c in range(clf.posterior_.n_chains))]
    for c, which in enumerate(chains):
        curves = display.values
        if c:
            curves = {name: values[c - 1] for name, values in display.chain_values.items()}
        for t in display.draws_per_chain:
            part = with_posterior(clf, slice(0, t), which)
            nll = log_loss(y, part.predict_proba(X), labels=clf.classes_)
            assert curves["nll"][t - 1] == pytest.approx(nll, rel=1e-6)
            assert curves["accuracy"][t - 1] == pytest.approx(part.score(X, y), abs=1e-12)
            assert curves["error"][t - 1] == pytest.approx(1.0 - part.score(X, y), abs=1e-12)


def test_weights_change_the_curve(network, weighted, iris):
    """Where there are none to differ, at the first draw, the curves agree (float32: 1e-6)."""
    plain, other = (LearningCurveDisplay.from_estimator(c, *iris) for c in (network, weighted))
    assert other.values["nll"][0] == pytest.approx(plain.values["nll"][0], rel=1e-6)
    assert np.abs(other.values["nll"] - plain.values["nll"]).max() > 1e-3


def test_draws_of_weight_zero_do_not_count(network, iris):
    """Before the first draw that counts there is no prediction."""
    weights = np.r_[0.0, 0.0, np.ones(network.n_draws_ - 2)]
    display = LearningCurveDisplay.from_estimator(with_posterior(network, weights=weights), *iris)
    later = LearningCurveDisplay.from_estimator(with_posterior(network, slice(2, None)), *iris)
    for name, values in display.values.items():
        assert np.isnan(values[:2]).all()
        np.testing.assert_allclose(values[2:], later.values[name], rtol=1e-6)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("weights", [None, np.geomspace(1.0, 0.05, 12)])
def test_curve_of_a_regressor(n_outputs, weights, limits):
    """Its points: RMSE of ``predict``, and the likelihood of the mixture that the draws make.

    In small blocks, too. Networks are in float32, whose rounding changes a mean of log densities of
    order one by 1e-7, however small their mean is.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.column_stack([X[:, 0] ** 2, 10.0 * X[:, 1]])[:, :n_outputs]
    y = np.squeeze(y + 0.1 * rng.standard_normal(y.shape))
    reg = BayesianMLPRegressor(n_chains=2, **TINY).fit(X[:30], y[:30])
    reg = with_posterior(reg, weights=weights)
    display = LearningCurveDisplay.from_estimator(reg, X, y, per_chain=True)
    for t in (1, 7, 12):
        for c, which in enumerate([slice(None), slice(0, 1), slice(1, 2)]):
            part = with_posterior(reg, slice(0, t), which)
            rmse, nll = (
                display.chain_values[m][c - 1, t - 1] if c else display.values[m][t - 1]
                for m in ("rmse", "nll")
            )
            assert rmse == pytest.approx(root_mean_squared_error(y, part.predict(X)), rel=1e-6)
            log_lik = np.concatenate(list(part._log_lik_blocks(X, y)), axis=1)
            share = part.posterior_.pooled_weights()
            share = np.full(len(log_lik), 1.0 / len(log_lik)) if share is None else share
            expected = -logsumexp(log_lik, axis=0, b=share[:, None]).mean()
            assert nll == pytest.approx(expected, rel=1e-6, abs=1e-6)
    limits(block_numbers=60)
    parts = LearningCurveDisplay.from_estimator(reg, X, y)
    for name, values in display.values.items():
        np.testing.assert_allclose(parts.values[name], values, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match=r"y of shape \(60, 3\) is not allowed"):
        LearningCurveDisplay.from_estimator(reg, X, np.ones((60, 3)))
    with pytest.raises(ValueError, match="y contains NaN"):  # its curves were NaN, without a word
        LearningCurveDisplay.from_estimator(reg, X, np.full((60, 2), np.nan))


@pytest.mark.parametrize("limit", [1, 60, 500])
def test_blocks_are_small_and_do_not_show(weighted, iris, limit, limits, monkeypatch):
    """The same curve whatever the block, which stays below the limit (or is one row and draw)."""
    rows = [each[::6] for each in iris]
    whole = LearningCurveDisplay.from_estimator(weighted, *rows)
    sizes, predict = [], type(weighted)._predict_block

    def recorded(self, draws, x):
        p = predict(self, draws, x)
        sizes.append(p.size)
        return p

    limits(block_numbers=limit)
    monkeypatch.setattr(type(weighted), "_predict_block", recorded)
    parts = LearningCurveDisplay.from_estimator(weighted, *rows)
    for name, values in whole.values.items():
        np.testing.assert_allclose(parts.values[name], values, rtol=1e-6, atol=1e-12)
    assert len(sizes) > 1
    n_chains, n_classes = weighted.n_chains_, len(weighted.classes_)
    assert max(sizes) <= max(limit, n_chains * n_classes)


def test_lines_of_the_curves(network, iris):
    """One line a metric, and one a chain where asked for; given axes are used."""
    display = LearningCurveDisplay.from_estimator(network, *iris)
    assert [ax.get_ylabel() for ax in display.axes_] == ["error", "NLL (nats per row)"]
    assert [len(ax.lines) for ax in display.axes_] == [1, 1]
    np.testing.assert_array_equal(display.lines_[1].get_ydata(), display.values["nll"])
    _, ax = plt.subplots()
    assert display.plot(ax, metric="accuracy", per_chain=True) is display
    assert display.ax_ is ax and display.figure_ is ax.figure
    assert len(ax.lines) == 1 + network.n_chains_
    np.testing.assert_array_equal(
        [line.get_ydata() for line in display.chain_lines_], display.chain_values["accuracy"]
    )
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "BayesianMLPClassifier",
        "single chains",
    ]
    assert len(display.plot(ax, metric=["error", "nll"], color="k").figure_.axes) == 3
    assert display.lines_[0].get_color() == "k"


def test_pipelines_and_searches_are_looked_into(iris):
    X, y = iris
    pipe = make_pipeline(StandardScaler(), BayesianMLPClassifier(n_chains=2, **TINY))
    search = GridSearchCV(pipe, {"bayesianmlpclassifier__step_size": [0.01, 0.03]}, cv=2)
    search.fit(X, y)
    display = LearningCurveDisplay.from_estimator(search, X, y)
    assert display.values["accuracy"][-1] == pytest.approx(search.score(X, y), abs=1e-12)
    assert display.name == "BayesianMLPClassifier"
    reliability = ReliabilityDisplay.from_estimator(search, X, y)
    assert reliability.name == "BayesianMLPClassifier"
    uncertainty = search.best_estimator_[-1].predict_uncertainty(
        search.best_estimator_[0].transform(X)
    )
    entropies = EntropyHistogramDisplay.from_estimator(search, X, X[:10])
    np.testing.assert_allclose(entropies.entropy, uncertainty.total, atol=1e-12)
    assert WeightHistogramDisplay.from_estimator(search, "bias_1").axes_.shape == (1,)


# calibration --------------------------------------------------------------------------------------


def test_calibration_error_by_hand():
    """Bins of two: {0.6, 0.5} with 1 of 2 right in (1/3, 2/3], {0.9, 1} with 1 of 2 above."""
    proba = np.array([[0.6, 0.4], [0.5, 0.5], [0.1, 0.9], [0.0, 1.0]])
    y = ["a", "b", "a", "b"]
    assert expected_calibration_error(y, proba, n_bins=3) == pytest.approx(
        0.5 * abs(0.5 - 0.55) + 0.5 * abs(0.5 - 0.95)
    )
    display = ReliabilityDisplay.from_predictions(y, proba, n_bins=3)
    assert display.counts.tolist() == [0, 2, 2]
    np.testing.assert_allclose(display.confidence, [np.nan, 0.55, 0.95])
    np.testing.assert_allclose(display.accuracy, [np.nan, 0.5, 0.5])
    assert expected_calibration_error(y, proba[:, 1], n_bins=3) == pytest.approx(
        display.expected_calibration_error
    )
    # an edge belongs to the bin below: 0.5 of two bins is in the first
    assert ReliabilityDisplay.from_predictions(y, proba, n_bins=2).counts.tolist() == [1, 3]


@pytest.mark.parametrize("n_classes", [2, 5])
def test_calibrated_predictions_have_no_error_but_chance(n_classes):
    """Labels drawn from the predictions themselves.

    Then a bin of n_m rows has an accuracy off by a normal number of variance v_m / n_m, with v_m
    the mean of c (1 - c), and ECE is a sum of half-normals, whose mean and sd are known.
    Bound: 4 sd.
    """
    rng, n, n_bins = np.random.default_rng(1), 40_000, 10
    p = rng.dirichlet(np.ones(n_classes), size=n)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    c = p.max(axis=1)
    place = np.minimum(np.ceil(c * n_bins).astype(int) - 1, n_bins - 1)
    rows = np.bincount(place, minlength=n_bins)
    variance = np.bincount(place, c * (1.0 - c), minlength=n_bins) / n**2
    mean = np.sum(np.sqrt(2.0 / np.pi * variance))
    sd = np.sqrt(np.sum((1.0 - 2.0 / np.pi) * variance))
    display = ReliabilityDisplay.from_predictions(y, p, n_bins=n_bins)
    assert display.counts.tolist() == rows.tolist()
    assert mean < 0.01
    assert abs(display.expected_calibration_error - mean) < 4.0 * sd


@pytest.mark.parametrize("sure", [0.95, 0.75])
def test_overconfident_predictions_have_the_known_error(sure):
    """Right with probability 0.7: the error is ``sure`` - 0.7. Bound: 4 sd of the accuracy."""
    rng, n = np.random.default_rng(2), 20_000
    guess, right = rng.integers(2, size=n), rng.random(n) < 0.7
    proba = np.where(guess[:, None] == [0, 1], sure, 1.0 - sure)
    error = expected_calibration_error(np.where(right, guess, 1 - guess), proba)
    assert abs(error - (sure - 0.7)) < 4.0 * np.sqrt(0.21 / n)


def test_reliability_of_any_classifier(iris):
    """Also of one that knows only the classes' frequencies, and so is calibrated on its rows."""
    X, y = iris
    dummy = DummyClassifier(strategy="prior").fit(X, y)
    display = ReliabilityDisplay.from_estimator(dummy, X, y)
    assert display.name == "DummyClassifier"
    assert display.expected_calibration_error < 1e-12
    some = display.counts > 0
    np.testing.assert_allclose(display.line_.get_ydata(), display.accuracy[some])
    heights = [bar.get_height() for bar in display.bars_]
    np.testing.assert_allclose(heights, display.counts / len(y))
    # a second curve on the same axes: one diagonal and one name of the bars in the legend
    display.plot(display.ax_, name="again", marker="x")
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert sorted(texts) == [
        "DummyClassifier, ECE 0.000",
        "again, ECE 0.000",
        "calibrated",
        "share of the rows",
    ]


def test_labels_missing_in_y_need_classes():
    proba = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1]])
    with pytest.raises(ValueError, match=r"proba of shape \(2, 3\) .* classes \[0, 1\]"):
        expected_calibration_error([0, 1], proba)
    assert expected_calibration_error([0, 1], proba, classes=[0, 1, 2]) == pytest.approx(0.3)


def test_probabilities_may_be_off_by_rounding():
    # scipy's softmax of float64 logits gives 1 + 2e-16 for some
    above = np.nextafter(1.0, 2.0)
    assert expected_calibration_error([0, 1], [[above, 0.0], [0.0, above]]) == pytest.approx(0.0)
    assert expected_calibration_error([0, 1], [0.0, above]) == pytest.approx(0.0)


@cases(
    "changes, message",
    [
        ({"n_bins": 0}, "n_bins=0 is not allowed"),
        ({"n_bins": 2.5}, "n_bins=2.5"),
        ({"n_bins": True}, "n_bins=True"),
        ({"proba": [[0.5, 0.6], [0.5, 0.5]]}, "rows sum to 1"),
        ({"proba": [[-0.5, 1.5], [0.5, 0.5]]}, "between 0 and 1"),
        ({"proba": [[np.nan, 0.5], [0.5, 0.5]]}, "NaN"),
        ({"proba": [[0.5, 0.5]]}, "inconsistent numbers of samples"),
        ({"proba": np.full((2, 2, 2), 0.5)}, "dim 3"),
        ({"y_true": [[0, 1], [1, 0]]}, "1d array"),
        ({"classes": [0, 0]}, r"classes=\[0, 0\] is not allowed: give each class once"),
        ({"classes": [0, 2]}, r"y has labels \[1\] that are not in classes_=\[0, 2\]"),
    ],
)
def test_bad_predictions(changes, message):
    good = {"y_true": [0, 1], "proba": [[0.5, 0.5], [0.5, 0.5]]}
    for function in (expected_calibration_error, ReliabilityDisplay.from_predictions):
        with pytest.raises(ValueError, match=message):
            function(**(good | changes))


# entropies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["total", "aleatoric", "epistemic"])
def test_the_same_rows_cannot_be_told_apart(network, iris, kind):
    """Every pair of rows is there both ways, so the AUROC is 1/2 but for rounding."""
    display = EntropyHistogramDisplay.from_estimator(network, iris[0], iris[0], kind=kind)
    assert display.auroc == pytest.approx(0.5, abs=1e-12)
    assert display.ax_.get_xlabel().startswith({"total": "predictive"}.get(kind, kind))


@pytest.mark.parametrize(("kind", "least"), [("total", 0.9), ("epistemic", 0.99)])
def test_rows_far_out_are_told_apart(kind, least):
    """Far along a feature that was constant in the fit.

    Its coefficient's posterior is the prior N(0, 1), so a row at 20 has log odds N(0, 20^2): single
    draws are sure, of opposite classes. That is a mutual information near log 2, which no row of
    well separated classes comes near, and a total entropy near log 2 that only rows at the boundary
    reach. (The average of 400 draws is 1/2 up to 0.025, so the entropy is log 2 up to 0.001.)
    """
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    X = np.column_stack([rng.standard_normal(200) + 4.0 * (2 * y - 1), np.zeros(200)])
    clf = BayesianLogisticRegression(n_draws=100, n_chains=4, random_state=0).fit(X, y)
    far = X + np.array([0.0, 20.0])
    display = EntropyHistogramDisplay.from_estimator(clf, X, far, kind=kind, labels=("in", "far"))
    assert display.auroc > least
    back = EntropyHistogramDisplay.from_estimator(clf, far, X, kind=kind)
    assert back.auroc == pytest.approx(1.0 - display.auroc)
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["in", "far"]


def test_entropies_of_right_and_of_wrong_labels(iris):
    """With the labels of the rows: those that are predicted, and the others."""
    X, y = iris[0][:, :2], iris[1]  # two classes overlap in these features
    clf = BayesianLogisticRegression(n_draws=50, n_chains=2, random_state=0).fit(X, y)
    display, wrong = EntropyHistogramDisplay.from_estimator(clf, X, y=y), clf.predict(X) != y
    entropy = clf.predict_uncertainty(X).total
    np.testing.assert_array_equal(display.entropy, entropy[~wrong])
    np.testing.assert_array_equal(display.entropy_other, entropy[wrong])
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["right", "wrong"] and display.auroc > 0.5
    with pytest.raises(ValueError, match="y is not allowed: 0 of .* predicted labels are wrong"):
        EntropyHistogramDisplay.from_estimator(clf, X[~wrong], y=y[~wrong])
    for both in ({}, {"X_other": X, "y": y}):
        with pytest.raises(ValueError, match="X_other and y are not allowed together"):
            EntropyHistogramDisplay.from_estimator(clf, X, **both)
    with pytest.raises(ValueError, match="X_other of one dimension is not allowed: give labels as"):
        EntropyHistogramDisplay.from_estimator(clf, X, y)


def test_area_under_the_curve_with_ties():
    """The same as scikit-learn's, with many ties."""
    rng = np.random.default_rng(0)
    low, high = rng.integers(5, size=40) / 4.0, rng.integers(7, size=60) / 4.0
    display = EntropyHistogramDisplay(low, high)
    expected = roc_auc_score(np.repeat([0, 1], [40, 60]), np.r_[low, high])
    assert display.auroc == pytest.approx(expected)
    display.plot(bins=6)
    assert [len(display.counts_[0]), len(display.edges_)] == [6, 7]
    assert [counts.sum() for counts in display.counts_] == [40, 60]


def test_entropies_of_predictions():
    """log 2 of equal probabilities, 0 of sure ones; both without spread."""
    display = EntropyHistogramDisplay.from_predictions(np.eye(2), np.full((3, 2), 0.5))
    np.testing.assert_allclose(display.entropy, 0.0)
    np.testing.assert_allclose(display.entropy_other, np.log(2.0))
    assert display.auroc == 1.0
    assert EntropyHistogramDisplay.from_predictions(np.eye(2), np.eye(2)).auroc == 0.5
    with pytest.raises(ValueError, match="proba_other of 3 classes .* proba has 2; give the same"):
        EntropyHistogramDisplay.from_predictions(np.eye(2), np.eye(3))


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
