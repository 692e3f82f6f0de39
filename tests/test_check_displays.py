"""Displays that check a fit: coverage of intervals, residuals, phases of a schedule."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, BayesianMLPRegressor
from skbayes_sgmcmc.diagnostics import noise_variances
from skbayes_sgmcmc.inspection import IntervalCoverageDisplay, NoisePhaseDisplay, ResidualDisplay
from skbayes_sgmcmc.schedules import Constant, Polynomial

pytestmark = pytest.mark.usefixtures("figures")
CHECKS = [IntervalCoverageDisplay, ResidualDisplay]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    return X, X @ [1.0, -2.0] + 0.5 * rng.standard_normal(200)


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    return make_pipeline(StandardScaler(), BayesianGLMRegressor(n_draws=250, random_state=0)).fit(
        X, y
    )


def test_coverage_is_the_share_inside_predict_interval(fitted, data):
    X, y = data
    y = y + np.where(np.arange(200) < 60, 1.0, 0.0)  # intervals are not right
    display = IntervalCoverageDisplay.from_estimator(fitted, X, y, coverages=[0.3, 0.9])
    for p, observed in zip([0.3, 0.9], display.observed, strict=True):
        lower, upper = fitted[-1].predict_interval(fitted[:-1].transform(X), coverage=p).T
        assert observed == np.mean((lower <= y) & (y <= upper))
    np.testing.assert_allclose(display.error, np.sqrt([0.3 * 0.7 / 200, 0.9 * 0.1 / 200]))


def test_coverage_of_the_true_model_is_within_its_band(fitted, data):
    """At most 3.5 standard errors at 9 points of one curve; with noise twice as large, it isn't.

    Intervals of probability p of N(0, 1/4) contain N(0, 1) with probability 2 Phi(q_p / 2) - 1.
    """
    X, y = data
    good = IntervalCoverageDisplay.from_estimator(fitted, X, y)
    assert (np.abs(good.observed - good.coverages) < 3.5 * good.error).all()
    rng = np.random.default_rng(1)
    wild = X @ [1.0, -2.0] + rng.standard_normal(200)
    bad = IntervalCoverageDisplay.from_estimator(fitted, X, wild, coverages=[0.5, 0.9])
    expected = 2.0 * norm.cdf(norm.ppf(0.5 + 0.5 * bad.coverages) / 2.0) - 1.0
    error = np.sqrt(expected * (1.0 - expected) / 200)
    assert (np.abs(bad.observed - expected) < 4.0 * error).all()
    assert (bad.observed < bad.coverages - 4.0 * bad.error).all()


def test_residuals_are_about_the_median_in_units_of_y(fitted, data):
    X, y = data
    display = ResidualDisplay.from_estimator(fitted, X, y, coverage=0.8)
    rows = fitted[:-1].transform(X)
    lower, median, upper = fitted[-1].predict_quantiles(rows, [0.1, 0.5, 0.9]).T
    for name, expected in {
        "median": median,
        "residual": y - median,
        "lower": lower - median,
        "upper": upper - median,
    }.items():
        np.testing.assert_allclose(getattr(display, name), expected, atol=1e-12)
    inside, outside = display.ax_.get_lines()[1:]
    assert len(inside.get_xdata()) + len(outside.get_xdata()) == 200
    assert np.isin(outside.get_ydata(), (y - median)[(y < lower) | (y > upper)]).all()
    assert len(outside.get_xdata()) == np.sum((y < lower) | (y > upper))


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("display", CHECKS)
def test_what_is_not_allowed(display, fitted, data):
    X, y = data
    classifier = BayesianLogisticRegression(n_draws=250, random_state=0).fit(X, X[:, 0] > 1)
    with pytest.raises(ValueError, match="fitted regressor"):
        display.from_estimator(classifier, X, y)
    name = "coverages" if display is IntervalCoverageDisplay else "coverage"
    with pytest.raises(ValueError, match=f"{name}=1.5"):
        display.from_estimator(fitted, X, y, **{name: 1.5 if name == "coverage" else [1.5]})
    two = BayesianMLPRegressor(
        hidden_layer_sizes=(2,), sampler="psgld", n_draws=2, burn_in=2, thinning=1, random_state=0
    )
    two.fit(X[:50], np.stack([y[:50], y[:50]], 1))
    with pytest.raises(ValueError, match="one output"):
        display.from_estimator(two, X, y)


def test_displays_draw_on_given_axes_with_given_options(fitted, data):
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 2)
    for ax, display in zip(axes, CHECKS, strict=True):
        shown = display.from_estimator(fitted, *data, ax=ax, color="C3")
        assert shown.ax_ is ax and shown.figure_ is ax.figure
        assert "C3" in {line.get_color() for line in ax.get_lines()}


@pytest.mark.parametrize("schedule", [Constant(0.5), Polynomial(1.0, 0.01)])
def test_phases_are_the_noise_variances_of_each_step(schedule):
    scores = np.random.default_rng(0).standard_normal((100, 3)) * [1.0, 2.0, 3.0]
    covariance, sizes = np.cov(scores.T), {"n": 100, "batch_size": 10, "temperature": 0.7}
    display = NoisePhaseDisplay.from_covariance(
        covariance, step_size=schedule, n_steps=1000, **sizes
    )
    assert display.steps[0] == 0 and display.steps[-1] == 999
    for i in (0, 50, -1):
        eta = schedule.values(display.steps[[i]], 1000)[0]
        gradient, injected = noise_variances(covariance, step_size=eta, **sizes)
        assert display.smallest[i] == pytest.approx(gradient.min())
        assert display.largest[i] == pytest.approx(gradient.max())
        assert display.injected[i] == pytest.approx(injected)
    assert display.ax_.get_xscale() == display.ax_.get_yscale() == "log"


def test_parameters_of_phases_are_checked():
    given = {"step_size": 0.1, "n_steps": 10, "n": 5, "batch_size": 2}
    for name, value in {"step_size": -1.0, "n_steps": 0, "n": -1, "batch_size": 0}.items():
        with pytest.raises(ValueError, match=name):
            NoisePhaseDisplay.from_covariance(np.eye(2), **given | {name: value})
