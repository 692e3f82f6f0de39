"""Generalised linear models: data that need a second look, and tools that read coefficients."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from _cases import cases
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SequentialFeatureSelector

from skbayes_sgmcmc import BayesianGLMRegressor

#: budgets too small to mix, on purpose, where draws are only compared with other draws
TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "random_state": 0}

tiny_fits = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def counts(n=60):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(n)
    return x, rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.5 + 0.6 * x))).astype(float)


# data that need a second look ---------------------------------------------------------------------


def mixes(reg, bound=1.02):
    return reg.summary()["r_hat"].max() <= bound


@pytest.mark.statistical
def test_separated_counts_have_a_wide_posterior():
    """All counts of rows with x < 0 are zero: the likelihood has no maximum, the posterior has one.

    R-hat as for other data. The slope is positive in at least 99.9% of the draws.
    """
    rng = np.random.default_rng(0)
    x = np.r_[-np.ones(15), np.ones(15)]
    y = np.where(x > 0, rng.poisson(4.0, 30), 0)
    reg = BayesianGLMRegressor(likelihood="poisson", prior_scale=1.0, random_state=0)
    reg.fit(x[:, None], y)
    assert mixes(reg)
    assert np.mean(reg.posterior_["coef"] > 0.0) > 0.999
    assert np.isfinite(reg.predict([[-1.0], [1.0]], return_std=True)).all()


def with_levels(n_levels, rows, sd):
    """Rows of some levels, their targets, and the errors of these, with the given sd."""
    rng = np.random.default_rng(n_levels)
    level = np.repeat(np.arange(n_levels), rows)
    errors = sd * rng.standard_normal(len(level))
    X = pd.DataFrame({"x": rng.standard_normal(len(level)), "level": pd.Categorical(level)})
    return X, X["x"] + rng.standard_normal(n_levels)[level] + errors, errors


@pytest.mark.statistical
@cases("sd", [1e-3, 1e-5, 0.0])
@cases("likelihood", ["normal", "student_t", "log_normal", "weibull", "gamma"])
def test_noise_far_below_the_spread_of_the_targets(likelihood, sd):
    """Columns that explain the targets, sums that contain them: chains mix, predictions are exact.

    To three times the errors, or to 1e-5 of the spread where there are none.
    """
    X, y, _ = with_levels(5, 40, sd)
    y = y if likelihood in ("normal", "student_t") else np.exp(0.5 * y)
    reg = BayesianGLMRegressor(likelihood=likelihood, random_state=0).fit(X, y)
    assert mixes(reg, 1.05)
    away = np.abs(reg.predict(X) - y) / np.maximum(1.0, np.abs(y))
    assert np.sqrt(np.mean(away**2)) < max(3.0 * sd, 1e-5)


@pytest.mark.statistical
@cases("n_levels, rows, sd", [(70, 3, 0.001), (200, 3, 0.03), (200, 6, 0.03)])
def test_levels_that_explain_the_targets(n_levels, rows, sd):
    """The noise is that of the errors: n_levels (rows - 1) of them, or more, give it to 10%."""
    X, y, errors = with_levels(n_levels, rows, sd)
    reg = BayesianGLMRegressor(random_state=0).fit(X, y)
    assert mixes(reg, 1.05)
    left = errors.reshape(n_levels, rows) - errors.reshape(n_levels, rows).mean(1, keepdims=True)
    known = np.sqrt((left**2).sum() / (n_levels * (rows - 1)))
    noise = reg.summary().to_frame().loc["noise", "mean"]
    assert noise == pytest.approx(known, rel=0.1)


@pytest.mark.statistical
def test_a_constant_column_keeps_its_prior():
    """N(0, 0.7^2), within 5 standard errors of the mean of 4,000 draws and 10% of the sd."""
    x, y = counts()
    reg = BayesianGLMRegressor(likelihood="poisson", prior_scale=0.7, random_state=0)
    draws = reg.fit(np.column_stack([x, np.full(len(x), 3.0)]), y).posterior_["coef"][..., 1]
    assert abs(draws.mean()) < 5.0 * 0.7 / math.sqrt(2000.0)  # at least 2,000 effective draws
    assert draws.std() == pytest.approx(0.7, rel=0.1)
    assert mixes(reg)


@pytest.mark.statistical
def test_poisson_counts_under_the_negative_binomial():
    """Counts with less than Poisson variance: the dispersion falls, predictions are Poisson's.

    Log densities agree within 0.05 nats: a dispersion of 0.03 at a mean of 5 costs 0.03 or less.
    """
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 200)
    y = rng.binomial(10, 1.0 / (1.0 + np.exp(-x)))
    fits = [
        BayesianGLMRegressor(likelihood=name, prior_scale=1.0, random_state=0).fit(x[:, None], y)
        for name in ("poisson", "negative_binomial")
    ]
    one, other = (reg.predict_log_density(x[:, None], y).mean() for reg in fits)
    assert other == pytest.approx(one, abs=0.05)
    assert mixes(fits[1])
    assert 0.3 * np.exp(fits[1].posterior_["log_dispersion"].mean()) < 0.05


@cases("parameter", ["groups", "exposure", "offset", "n_trials"])
def test_what_is_known_of_rows_is_a_column(parameter):
    """Labels of four groups were taken for the indices of four columns."""
    X = np.arange(60.0).reshape(12, 5)
    likelihood = "poisson" if parameter != "n_trials" else "binomial"
    for given in ([0, 1, 2] * 4, np.arange(12) % 3, 200):
        reg = BayesianGLMRegressor(likelihood=likelihood, **{parameter: given})
        with pytest.raises(ValueError, match=f"{parameter}=.* is a column of X: add it") as error:
            reg.fit(X, np.arange(12) % 2)
        assert len(str(error.value)) < 400


@cases("parameter", ["exposure", "offset"])
def test_exposures_are_numbers(parameter):
    """The message named categorical_features, which does not allow the column, either."""
    X = pd.DataFrame({"a": np.arange(12.0), "b": [*"abcabcabcabc"]})
    reg = BayesianGLMRegressor(likelihood="poisson", **{parameter: "b"})
    message = f"{parameter} is not allowed to name column 'b' of X, which is not numeric"
    with pytest.raises(ValueError, match=message):
        reg.fit(X, np.arange(12))


@cases("column", ["exposure", "offset", "n_trials"])
def test_missing_numbers_in_known_columns_are_refused(column):
    X = np.column_stack([np.arange(10.0), np.r_[np.ones(9), np.nan]])
    kind = "binomial" if column == "n_trials" else "poisson"
    with pytest.raises(ValueError, match="NaN"):
        BayesianGLMRegressor(likelihood=kind, **{column: 1}).fit(X, np.ones(10))


@cases(
    "parameters, message",
    [
        ({"exposure": "e", "offset": "e"}, "exposure and offset .*column 'e'"),
        ({"exposure": "e", "groups": "e"}, "exposure and groups='e'"),
        ({"offset": 0, "groups": ["g", "e"]}, "offset and groups='e'"),
        ({"groups": ["g", 1]}, "groups='g' and groups=1"),
    ],
)
def test_one_column_named_twice_is_refused(parameters, message):
    """Before, offsets and trials that are groups, too, were the codes of the groups."""
    x, y = counts(30)
    table = pd.DataFrame({"e": np.repeat([1.0, 2.0, 30.0], 10), "g": np.arange(30) % 5, "x": x})
    with pytest.raises(ValueError, match=message):
        BayesianGLMRegressor(likelihood="poisson", **parameters).fit(table, y)


@tiny_fits
@cases("trials", [-1.0, 2.5])
@cases("method", ["predict", "predict_interval", "sample_y"])
def test_trials_of_new_rows_are_whole_numbers(method, trials):
    """Before, only those of ``fit`` were: negative ones had negative means and infinite ends."""
    X = np.column_stack([np.arange(10.0), np.full(10, 4.0)])
    reg = BayesianGLMRegressor(likelihood="binomial", n_trials=1, **TINY).fit(X, np.arange(10) % 4)
    with pytest.raises(ValueError, match=f"n_trials with the value {trials:g}"):
        getattr(reg, method)([[1.0, trials]])


# tools of scikit-learn that read the coefficients -------------------------------------------------


def rates(n=400, seed=0):
    """A table with the exposure "time" and four features, the first of which matters; counts."""
    rng = np.random.default_rng(seed)
    time, X = rng.uniform(0.2, 3.0, n), rng.uniform(0.0, 2.0, (n, 4))
    frame = pd.DataFrame(np.column_stack([time, X]), columns=["time", *"abcd"])
    return frame, rng.poisson(time * np.exp(X[:, 0]))


@tiny_fits
def test_coefficients_have_the_width_of_x():
    """Zero for columns that are not features, wherever these are."""
    frame, y = rates()
    for order in (["time", *"abcd"], [*"ab", "time", *"cd"]):
        reg = BayesianGLMRegressor(likelihood="poisson", exposure="time", **TINY)
        reg.fit(frame[order], y)
        assert reg.coef_.shape == (reg.n_features_in_,)
        assert reg.coef_[order.index("time")] == 0.0
        others = [j for j, name in enumerate(order) if name != "time"]
        np.testing.assert_array_equal(reg.coef_[others], reg.posterior_.mean("coef"))


@tiny_fits
def test_features_are_selected_with_an_exposure():
    """SelectFromModel leaves out the exposure, too; with its name, later fits do not miss it."""
    frame, y = rates()
    reg = BayesianGLMRegressor(likelihood="poisson", exposure="time", **TINY)
    chosen = frame.columns[SelectFromModel(reg).fit(frame, y).get_support()]
    assert list(chosen) == ["a"]
    assert reg.fit(frame[["time", *chosen]], y).coef_[1] > 0.7
    with pytest.raises(ValueError, match="exposure='time' is not allowed"):
        reg.fit(frame[chosen], y)


@cases(
    "parameters, message",
    [
        ({"exposure": 0, "likelihood": "poisson"}, "exposure=0 is not allowed inside RFE"),
        ({"groups": 1}, "groups=1 is not allowed inside RFE"),
    ],
)
@cases("selector", [RFE, RFECV, SequentialFeatureSelector])
def test_selectors_that_drop_columns_are_refused(selector, parameters, message):
    """After the first column is gone, its index is that of another one."""
    frame, y = rates()
    with pytest.raises(ValueError, match=message):
        selector(BayesianGLMRegressor(**parameters)).fit(frame, y)


@tiny_fits
def test_selectors_work_where_all_columns_are_features():
    frame, y = rates()
    kept = RFE(BayesianGLMRegressor(**TINY), n_features_to_select=2).fit(frame, y).get_support()
    assert kept[:2].all()
