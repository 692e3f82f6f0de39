"""Displays of regressions: forests of coefficients, partial effects, predictive checks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _cases import cases
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.inspection import (
    CoefficientDisplay,
    PartialEffectDisplay,
    PredictiveCheckDisplay,
    RelevanceDisplay,
    TopicDisplay,
)

pytestmark = [
    pytest.mark.usefixtures("figures"),
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
]
#: max_steps bounds the descents to the starts, too
TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "max_steps": 90,
        "random_state": 0}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((80, 3)), columns=["a", "b", "site"])
    X["site"] = np.arange(80.0) % 4
    return X, rng.poisson(np.exp(1.0 + 0.5 * X["a"]))


@pytest.fixture(scope="module")
def fitted(data):
    return sk.BayesianGLMRegressor(likelihood="poisson", groups="site", **TINY).fit(*data)


def test_coefficients_are_those_of_the_summary(fitted):
    for exponentiate in (False, True):
        display = CoefficientDisplay.from_estimator(
            fitted, parameters=["coef", "effect_site"], coverage=0.8, exponentiate=exponentiate
        )
        assert display.names.tolist() == ["a", "b", *(f"site[{j}]" for j in range(4))]
        summary = fitted.summary(coverage=0.8, exponentiate=exponentiate)
        rows = [list(summary["name"]).index(name) for name in display.names]
        middle = "median" if exponentiate else "mean"
        for key, column in (("middle", middle), ("lower", "lower"), ("upper", "upper")):
            np.testing.assert_allclose(getattr(display, key), np.asarray(summary[column])[rows])
        assert display.ax_.get_xlabel() == ("ratio of means" if exponentiate else "coefficient")
        assert display.ax_.get_xscale() == ("log" if exponentiate else "linear")
        shown = [text.get_text() for text in display.ax_.get_yticklabels()]
        assert shown == display.names.tolist()


def test_coefficients_with_the_name_of_another_block_are_told_apart(data):
    """As in the summary: a column may have the name of the intercept. A block is shown once."""
    X, y = data
    reg = sk.BayesianGLMRegressor(**TINY).fit(X.rename(columns={"b": "intercept"}), y)
    blocks = ["coef", "intercept", "coef"]
    display = CoefficientDisplay.from_estimator(reg, parameters=blocks)
    assert display.names.tolist() == ["a", "coef[intercept]", "site", "intercept"]
    assert set(display.names) <= set(reg.summary()["name"])


@cases(
    "estimator, target, first",
    [
        (sk.SparseBayesianRegressor, lambda y: y, "a"),
        (sk.SparseBayesianRegressor, lambda y: np.column_stack([y, y]), "output 0: a"),
        (sk.SparseBayesianClassifier, lambda y: y > 2, "a"),
        (sk.SparseBayesianClassifier, lambda y: np.minimum(y, 2), "class 0: a"),
    ],
)
def test_coefficients_of_sparse_linear_models_are_shown(data, estimator, target, first):
    """In the units of the data, as coef_: their draws are weights of standardised features."""
    X, y = data
    fitted = estimator(**TINY).fit(X * [1.0, 10.0, 1.0], target(y))
    for each in (fitted, fitted.compress()):
        display = CoefficientDisplay.from_estimator(each, exponentiate=False)
        np.testing.assert_allclose(display.middle, fitted.coef_.ravel(), rtol=1e-6)
        assert display.names[0] == first and len(display.names) == fitted.coef_.size
    ratios = CoefficientDisplay.from_estimator(fitted, exponentiate=True)
    assert ratios.ax_.get_xlabel() == "ratio"
    network = estimator(hidden_layer_sizes=2, **TINY).fit(X, target(y))
    with pytest.raises(ValueError, match="parameters='coef' is not allowed"):
        CoefficientDisplay.from_estimator(network)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_ratios_beyond_the_largest_number_are_infinite(data):
    """Of separable classes with a wide prior: as in the summary, without a warning of numpy."""
    X, _ = data
    clf = sk.BayesianLogisticRegression(prior_scale=1e6, **TINY).fit(
        1e-6 * X[["a", "b"]], X["a"] > 0
    )
    display = CoefficientDisplay.from_estimator(clf, parameters="coef", exponentiate=True)
    assert display.middle[0] == np.inf
    display.plot()


def test_partial_effects_are_means_over_rows(fitted, data):
    """At one value: E[y | x, draw], averaged over the rows, and its quantiles over the draws."""
    X, _ = data
    display = PartialEffectDisplay.from_estimator(fitted, X, ["a", 1], n_points=4, coverage=0.5)
    assert display.names == ["a", "b"]
    value, posterior = display.grids[0, 2], fitted.posterior_
    effects = posterior.pooled("effect_site")[:, X["site"].astype(int)]
    coef = posterior.pooled("coef")
    f = value * coef[:, :1] + np.outer(coef[:, 1], X["b"]) + effects
    mean = np.exp(f + posterior.pooled("intercept")[:, None]).mean(axis=1)
    assert display.mean[0, 2] == pytest.approx(mean.mean())
    assert display.lower[0, 2] == pytest.approx(np.quantile(mean, 0.25))
    assert display.upper[0, 2] == pytest.approx(np.quantile(mean, 0.75))
    assert len(display.axes_) == 2 and display.axes_[1].get_xlabel() == "b"
    for alone in (1, "b"):  # one feature needs no list
        (name,) = PartialEffectDisplay.from_estimator(fitted, X, alone, n_points=4).names
        assert name == "b"


def test_partial_effects_of_a_class_are_its_mean_probabilities(data):
    """At one value: p(class | x, draw), averaged over rows, and its quantiles over draws."""
    X, y = data[0][["a", "b"]], np.where(data[1] > 2, "many", "few")
    clf = sk.BayesianLogisticRegression(**TINY).fit(X, y)
    for label, column in ((None, 1), ("many", 1), ("few", 0)):
        display = PartialEffectDisplay.from_estimator(clf, X, "a", label=label, n_points=4)
        changed = X.assign(a=display.grids[0, 2])
        p = clf.predict_proba_samples(changed)[:, :, column].mean(axis=1)
        assert display.mean[0, 2] == pytest.approx(p.mean())
        assert display.upper[0, 2] == pytest.approx(np.quantile(p, 0.95))
        assert display.ax_.get_ylabel() == f"probability of {label or 'many'!r}"


def test_partial_effects_of_one_of_several_targets(data):
    """The first one if none is named; axes say which."""
    X, y = data[0][["a", "b"]], np.column_stack([data[1], -100.0 * data[1]])
    reg = sk.BayesianMLPRegressor(hidden_layer_sizes=3, **TINY).fit(X, y)
    for label, column in ((None, 0), (0, 0), (1, 1)):
        display = PartialEffectDisplay.from_estimator(reg, X, "a", label=label, n_points=4)
        means = reg.predict_mean_samples(X.assign(a=display.grids[0, 2]))
        assert display.mean[0, 2] == pytest.approx(means[:, :, column].mean(), rel=1e-6)
        assert display.ax_.get_ylabel() == f"mean of y[{column}]"
    with pytest.raises(ValueError, match="label=2 is not allowed"):
        PartialEffectDisplay.from_estimator(reg, X, "a", label=2)


def test_a_new_figure_is_high_enough_for_its_names():
    """At least .2 inches each, which is what a label of the default size takes."""
    names = [f"x{j}" for j in range(40)]
    few = CoefficientDisplay(np.array(names[:5]), *np.zeros((3, 5))).plot()
    many = CoefficientDisplay(np.array(names), *np.zeros((3, 40))).plot()
    assert many.figure_.get_figheight() >= 40 * 0.2 > few.figure_.get_figheight()


def test_predictive_checks_of_rows_in_lists():
    """They have no shape."""
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    reg = sk.BayesianGLMRegressor(n_chains=2, n_draws=5, random_state=0).fit(X, y)
    shown = [
        PredictiveCheckDisplay.from_estimator(reg, *rows, random_state=0).mean
        for rows in ((X, y), (X.tolist(), y.tolist()))
    ]
    assert np.array_equal(*shown)


def test_predictive_check_counts_targets(fitted, data):
    """Bins of whole numbers hold every target; the band holds the bars of data from the model."""
    X, y = data
    new = fitted.sample_y(X, random_state=1)[:, 0]
    display = PredictiveCheckDisplay.from_estimator(fitted, X, new, random_state=0, coverage=0.99)
    assert display.observed.sum() == 80
    assert display.edges[0] == new.min() - 0.5
    assert display.observed[0] == (new == new.min()).sum()
    # each of about ten bars leaves a 99% interval with a probability of one in a hundred
    outside = (display.observed < display.lower) | (display.observed > display.upper)
    assert outside.sum() <= 2
    wrong = PredictiveCheckDisplay.from_estimator(fitted, X, 0 * y + 30, random_state=0)
    assert wrong.observed.max() == 80 > wrong.upper.max()


def test_bad_input(fitted, data):
    X, y = data
    for change, message in (
        ({"parameters": "slope"}, "parameters='slope'"),
        ({"coverage": 1.0}, "coverage=1.0"),
        ({"exponentiate": 2}, "exponentiate=2"),
    ):
        with pytest.raises(ValueError, match=message):
            CoefficientDisplay.from_estimator(fitted, **change)
    for features, message in (
        (["c"], "features with 'c'"),
        ([3], "features with 3"),
        (1.5, "features with 1.5"),
        (None, "features with None"),
    ):
        with pytest.raises(ValueError, match=message):
            PartialEffectDisplay.from_estimator(fitted, X, features)
    with pytest.raises(ValueError, match="label=1 is not allowed with a regressor"):
        PartialEffectDisplay.from_estimator(fitted, X, ["a"], label=1)
    clf = sk.BayesianLogisticRegression(**TINY).fit(X, y > 2)
    with pytest.raises(ValueError, match="label='many'"):
        PartialEffectDisplay.from_estimator(clf, X, ["a"], label="many")
    with pytest.raises(ValueError, match="regressor with one output"):
        PredictiveCheckDisplay.from_estimator(clf, X, y)
    with pytest.raises(ValueError, match="n_bins=0"):
        PredictiveCheckDisplay.from_estimator(fitted, X, y, n_bins=0)


def test_displays_take_pipelines(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), sk.BayesianGLMRegressor(**TINY)).fit(X, y)
    assert CoefficientDisplay.from_estimator(pipeline).names.tolist() == ["a", "b", "site"]
    assert PartialEffectDisplay.from_estimator(pipeline, X, [0]).names == ["a"]
    assert PredictiveCheckDisplay.from_estimator(pipeline, X, y).observed.sum() == 80


def test_displays_have_the_names_that_steps_before_the_estimator_give(data):
    """Scalers keep those of the table, vectorizers have words; a step without names gives none."""
    X, y = data
    features = X[["a", "b"]]
    glm = make_pipeline(StandardScaler(), sk.BayesianGLMRegressor(**TINY)).fit(features, y)
    assert CoefficientDisplay.from_estimator(glm).names.tolist() == ["a", "b"]
    assert PartialEffectDisplay.from_estimator(glm, features, features="b").names == ["b"]
    assert not hasattr(glm[-1], "feature_names_in_")
    network = sk.BayesianMLPRegressor(hidden_layer_sizes=2, **TINY)
    mlp = make_pipeline(StandardScaler(), network).fit(features, y)
    shown = RelevanceDisplay.from_estimator(mlp).ax_.get_yticklabels()
    assert {label.get_text() for label in shown} == {"a", "b"}
    nameless = FunctionTransformer(np.asarray)
    plain = make_pipeline(nameless, sk.BayesianGLMRegressor(**TINY)).fit(features, y)
    assert CoefficientDisplay.from_estimator(plain).names.tolist() == ["x0", "x1"]
    words = ["red green", "green blue", "blue red"] * 5
    lda = make_pipeline(CountVectorizer(), sk.LatentDirichletAllocation(2, **TINY)).fit(words)
    axes = TopicDisplay.from_estimator(lda, n_words=3).axes_[0]
    assert {label.get_text() for label in axes.get_yticklabels()} == {"red", "green", "blue"}
