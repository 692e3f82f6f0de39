"""Tables with columns that are refused, and messages that name them."""

from __future__ import annotations

import re
from datetime import date, time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from _cases import cases
from _frames import AGE, CITIES, GAPS, KIND, MEMBER, REAL, ROOMS, SMALL, TINY, N, frame
from sklearn.base import clone
from sklearn.feature_selection import RFE

import skbayes_sgmcmc as sk
from skbayes_sgmcmc.inspection import PartialEffectDisplay, RelevanceDisplay, fgsm

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


# what is refused ----------------------------------------------------------------------------------

BASE = pd.DataFrame({"age": AGE, "city": CITIES})
WHEN = pd.Timestamp("2026-01-01") + pd.to_timedelta(ROOMS, unit="D")
LISTS = pd.Series([[1.0, 2.0]] * N)


@cases("rows", [BASE["city"], BASE.iloc[0]])
def test_a_column_or_a_row_is_no_table(rows):
    """The message was about texts only."""
    with pytest.raises(ValueError, match=r"one column is table\[\['name'\]\], and of one row"):
        sk.BayesianGLMRegressor().fit(rows, REAL)
    with pytest.raises(ValueError, match="CountVectorizer") as error:
        sk.BayesianGLMRegressor().fit([*CITIES], REAL)
    assert "table" not in str(error.value)


@cases(
    "column, message, remedy",
    [
        (WHEN, r"'z' is not numeric \(row 0 has Timestamp.*days since", (WHEN - WHEN.min()).days),
        (WHEN.tz_localize("UTC"), r"'z' is not numeric \(row 0 has Timestamp.*days since", None),
        (WHEN - WHEN.min(), r"'z' is not numeric.*Timedelta.*total_seconds", None),
        (LISTS, r"'z' is not numeric \(row 0 has \[1.0, 2.0\].*column for each item", 1.0),
        ([1.0, "?"] * (N // 2), r"'z' holds text \('\?' in row 1\) and other values", None),
        ([np.inf] * N, "infinity: the value of row 0 in column 'z' is infinite", None),
        ([None] * N, "every value of column 'z' is missing. Leave the column out", None),
        (pd.Categorical([None] * N, ["a"]), "every value of column 'z' is missing", None),
        (pd.to_datetime([None] * N), "every value of column 'z' is missing", None),
    ],
)
def test_columns_without_a_meaning_are_refused(column, message, remedy):
    with pytest.raises((TypeError, ValueError), match=message):
        sk.BayesianGLMRegressor().fit(BASE.assign(z=column), REAL)
    if remedy is not None:
        sk.BayesianGLMRegressor(**TINY).fit(BASE.assign(z=remedy), REAL)


@cases("values", [WHEN, WHEN.tz_localize("UTC"), WHEN.to_pydatetime(), WHEN.date])
def test_remedies_of_dates_are_those_of_every_column_of_pandas(values):
    """Dates that are objects have no .dt, before they are converted."""
    column = pd.Series(values, dtype=None if hasattr(values, "tz") else object)
    with pytest.raises(TypeError, match=re.escape("(d - d.min()).dt.days, with d = pandas.to_dat")):
        sk.BayesianGLMRegressor().fit(BASE.assign(z=column), REAL)
    d = pd.to_datetime(column)
    sk.BayesianGLMRegressor(**TINY).fit(BASE.assign(z=(d - d.min()).dt.days), REAL)
    spans = pd.Series((WHEN - WHEN.min()).to_pytimedelta(), dtype=object)
    with pytest.raises(
        TypeError, match=re.escape("pandas.to_timedelta(column).dt.total_seconds()")
    ):
        sk.BayesianGLMRegressor().fit(BASE.assign(z=spans), REAL)
    seconds = pd.to_timedelta(spans).dt.total_seconds()
    sk.BayesianGLMRegressor(**TINY).fit(BASE.assign(z=seconds), REAL)


@cases("library", ["pandas", "polars"])
def test_the_remedy_of_times_of_day_is_hours(library):
    times = [time(i % 24, i % 60) for i in range(N)]
    table = pytest.importorskip(library).DataFrame({"z": times})
    with pytest.raises(TypeError, match="the hours since midnight, by column.") as error:
        sk.BayesianGLMRegressor().fit(table, REAL)
    remedy = re.search(r"by (.*), or leave it out", str(error.value)).group(1)
    hours = eval(remedy, {"column": table["z"]})
    assert hours[61] == 13.0 + 1.0 / 60.0
    sk.BayesianGLMRegressor(**TINY).fit(hours.to_frame(), REAL)


def test_a_table_without_columns():
    with pytest.raises(ValueError, match="X without columns is not allowed"):
        sk.BayesianGLMRegressor().fit(BASE[[]], REAL)


def test_the_remedy_of_periods_is_the_days_to_their_starts():
    column = pd.Series(WHEN.to_period("M"))
    with pytest.raises(TypeError, match=re.escape("with d = column.dt.to_timestamp()")):
        sk.BayesianGLMRegressor().fit(BASE.assign(z=column), REAL)
    d = column.dt.to_timestamp()
    sk.BayesianGLMRegressor(**TINY).fit(BASE.assign(z=(d - d.min()).dt.days), REAL)


def test_items_of_polars_are_no_numbers():
    """NumPy makes a matrix of a column of arrays or structs: with one item, it had been numbers."""
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({"age": AGE, "city": CITIES.tolist()})
    reg = sk.BayesianGLMRegressor(**TINY)
    lists = (
        np.ones((N, 1)),
        np.ones((N, 2)),
        [{"a": 1.0}] * N,
        [{"a": 1.0, "b": 2.0}] * N,
        [[1.0]] * N,
    )
    for values in lists:
        column = pl.Series("z", values)
        with pytest.raises(TypeError, match=r"'z' is not numeric.*a column for each item"):
            reg.fit(table.with_columns(column), REAL)
        with pytest.raises(ValueError, match="column 'z' holds dates, durations, lists, or"):
            sk.BayesianGLMRegressor(groups="z").fit(table.with_columns(column), REAL)
        items = pl.DataFrame(column.to_list(), orient="row")
        reg.fit(pl.concat([table, items], how="horizontal"), REAL)
    dates = pl.Series("z", WHEN.date.tolist())
    with pytest.raises(TypeError, match=r"\(column - column.min\(\)\).dt.total_days\(\) of polars"):
        reg.fit(table.with_columns(dates), REAL)
    reg.fit(table.with_columns((dates - dates.min()).dt.total_days()), REAL)
    with pytest.raises(ValueError, match=r"is not allowed: give X\.collect\(\)"):
        reg.fit(table.lazy(), REAL)


@cases("values", [[[1, 2]] * N, [np.ones(2)] * N, [{"a": 1}] * N])
def test_labels_of_groups_are_no_lists(values):
    with pytest.raises(ValueError, match="column 'z' holds dates, durations, lists, or"):
        sk.BayesianGLMRegressor(groups="z").fit(BASE.assign(z=values), REAL)
    text = BASE.assign(z=pd.Series(values).astype(str))
    sk.BayesianGLMRegressor(groups="z", **TINY).fit(text, REAL)


def test_text_that_was_left_out_of_the_categories_may_be_named():
    for given in (None, ["rooms"]):
        reg = sk.BayesianGLMRegressor(categorical_features=given, **TINY)
        with pytest.raises(ValueError, match="'city' is not numeric.*categories in categorical_f"):
            reg.fit(BASE.assign(rooms=ROOMS), REAL)
    named = reg.set_params(categorical_features=["rooms", "city"])
    named.fit(BASE.assign(rooms=ROOMS), REAL)


def test_remedies_of_mixed_columns():
    mixed = pd.Series([1.0, "?"] * (N // 2))
    for mended in (mixed.astype(str), pd.to_numeric(mixed, errors="coerce")):
        sk.BayesianGLMRegressor(**TINY).fit(BASE.assign(z=mended), REAL)


@cases(
    "given, message",
    [
        ("city", "give 'from_dtype', None, or a list"),
        ([1.5], "give 'from_dtype', None, or a list"),
        (["age", 1], "give 'from_dtype', None, or a list"),
        (["town"], "X has 2 columns, 'age', 'city'"),
        ([2], "X has 2 columns"),
        ([True], "X has 2 columns"),
    ],
)
def test_parameters_that_are_no_columns(given, message):
    with pytest.raises(
        ValueError, match=f"categorical_features={re.escape(repr(given))}.*{message}"
    ):
        sk.BayesianGLMRegressor(categorical_features=given).fit(BASE, REAL)


def test_names_that_occur_twice():
    X = pd.concat([BASE, BASE[["age"]]], axis=1)
    for regressor in (sk.BayesianGLMRegressor(), sk.BayesianGLMRegressor(offset="age")):
        with pytest.raises(ValueError, match="X with 2 columns 'age' is not allowed: give each"):
            regressor.fit(X, REAL)
    sk.BayesianGLMRegressor(**TINY).fit(X.set_axis(["age", "city", "years"], axis=1), REAL)


@cases(
    "pair, name",
    [
        ({"city": CITIES, "city=Oslo": AGE}, "city=Oslo"),
        ({"age": np.where(GAPS["age"], np.nan, AGE), "age missing": ROOMS}, "age missing"),
        ({"a": np.char.add("b=", KIND), "a=b": KIND}, "a=b=a"),
    ],
)
def test_names_that_encoded_columns_would_share(pair, name):
    X, (first, second) = pd.DataFrame(pair), pair
    message = f"columns {first!r} and {second!r} is not allowed: once encoded, both have .*{name!r}"
    with pytest.raises(ValueError, match=message):
        sk.BayesianGLMRegressor(**TINY).fit(X, REAL)
    names = sk.BayesianGLMRegressor(**TINY).fit(X.rename(columns={second: "x"}), REAL).summary()
    assert len(set(names["name"])) == len(names["name"])


def test_dates_and_texts_that_look_alike():
    days = [date(2026, 1, 1), "2026-01-01", "none"]
    column = pd.Categorical.from_codes(ROOMS % 3, pd.Index(days, dtype=object))
    X = pd.DataFrame({"day": column})
    with pytest.raises(ValueError, match="column 'day' holds text .* and other values"):
        sk.BayesianGLMRegressor(**TINY).fit(X, REAL)
    reg = sk.BayesianGLMRegressor(**TINY).fit(X.astype(str), REAL)
    assert reg.summary()["name"][:2] == ["day=2026-01-01", "day=none"]


def test_missing_values_elsewhere_are_named():
    """Targets, weights, groups and exposures have no gaps, and each says so by its name."""
    X = frame().assign(hours=1.0, school="s")
    gap = np.where(np.arange(N) == 3, np.nan, 1.0)
    counts = ROOMS.astype(float)
    reg = sk.BayesianGLMRegressor(likelihood="poisson", **TINY)
    nullable = pd.Series(ROOMS, dtype="Int64").mask(np.isnan(gap))
    for y in (counts * gap, (counts * gap).astype(object), nullable):
        with pytest.raises(ValueError, match="y contains NaN: the value of row 3 is missing"):
            reg.fit(X[["age", "city"]], y)
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        reg.fit(X[["age", "city"]], counts, gap)
    exposed = clone(reg).set_params(exposure="hours")
    message = "X contains NaN: the value of row 3 in column 'hours', exposure, is missing .nan"
    with pytest.raises(ValueError, match=message):
        exposed.fit(X[["age", "city", "hours"]].assign(hours=gap), counts)
    exposed.fit(X[["age", "city", "hours"]], counts)
    with pytest.raises(
        ValueError, match="infinity: the value of row 0 in column 'hours', exposure,"
    ):
        exposed.fit(X[["age", "city", "hours"]].assign(hours=np.inf), counts)
    with pytest.raises(ValueError, match=message):
        exposed.predict(X[["age", "city", "hours"]].assign(hours=gap))
    grouped = clone(reg).set_params(groups="school")
    message = "X contains NaN: the value of row 3 in column 'school', groups='school', is missing"
    with pytest.raises(ValueError, match=message):
        grouped.fit(X[["age", "city", "school"]].assign(school=X["school"].where(gap == 1)), counts)


def test_infinite_labels_are_named_with_their_row():
    """The row had been that among distinct categories, and labels too large for floats."""
    labels = np.where(np.arange(N) == 7, np.inf, ROOMS % 2)
    reg = sk.BayesianGLMRegressor(categorical_features=["z"])
    with pytest.raises(ValueError, match="infinity: the value of row 7 in column 'z' is infinite"):
        reg.fit(BASE.assign(z=labels).drop(columns="city"), REAL)
    for y in (labels, labels.astype(object)):
        with pytest.raises(ValueError, match="y contains infinity: the value of row 7 is infinite"):
            sk.BayesianLogisticRegression().fit(BASE, y)


def test_selectors_would_lose_the_columns():
    with pytest.raises(ValueError, match=r"categorical_features=\[1\] is not allowed inside RFE"):
        RFE(sk.BayesianGLMRegressor(categorical_features=[1])).fit(
            np.c_[AGE, ROOMS, KIND == "a"], REAL
        )


def test_rows_that_stay_in_files_have_no_categories(tmp_path):
    table = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", float, (N, 2))
    table[:] = np.c_[AGE, ROOMS]
    reg = sk.BayesianGLMRegressor(categorical_features=[1], **TINY).fit(table, REAL)  # read
    assert reg._columns.width == 5
    with pytest.raises(ValueError, match="with categorical_features=.*give a DataFrame"):
        reg.set_params().fit(sp.csr_matrix(table), REAL)


def test_exports_and_attacks_say_what_to_do():
    clf = sk.BayesianLogisticRegression(**TINY).fit(frame(), REAL > 0.0)
    for call in (
        lambda: sk.to_torch(clf),
        lambda: fgsm(clf, frame(), REAL > 0.0, eps=0.1),
        lambda: clf.distill(frame()),
    ):
        with pytest.raises(ValueError, match=r"is not allowed for an estimator.*pipeline\[-1\]"):
            call()
    sk.to_torch(sk.BayesianLogisticRegression(**TINY).fit(BASE[["age"]], REAL > 0.0))


@cases("chosen", [[1], ["rooms"], [False, True]])
def test_partial_effects_are_those_of_numbers(chosen):
    """Rows with gaps count as if they had the value of the grid; categories have no grid."""
    pytest.importorskip("matplotlib")
    X = pd.DataFrame({"age": np.where(GAPS["age"], np.nan, AGE), "rooms": ROOMS})
    reg = sk.BayesianGLMRegressor(categorical_features=chosen, **SMALL).fit(X, REAL)
    display = PartialEffectDisplay.from_estimator(reg, X, "age", n_points=3)
    weight = reg.coef_[reg._columns.labels.index("age")]
    assert np.allclose(np.diff(display.mean[0]) / np.diff(display.grids[0]), weight)
    shares = pd.get_dummies(ROOMS).iloc[np.unique(np.linspace(0, N - 1, 100).astype(int))].mean()
    level = reg.intercept_ + shares.to_numpy() @ reg.coef_[2:]
    assert np.allclose(display.mean[0], level + weight * display.grids[0])
    with pytest.raises(ValueError, match="features with 'rooms' .* the column holds categories"):
        PartialEffectDisplay.from_estimator(reg, X, ["age", "rooms"])


def test_relevance_is_that_of_columns():
    pytest.importorskip("matplotlib")
    reg = sk.BayesianMLPRegressor(hidden_layer_sizes=3, **TINY).fit(frame(), REAL)
    assert reg.posterior_["scale_weight_1"].shape == (2, 5, 5)
    assert set(RelevanceDisplay.from_estimator(reg).names) == set(frame().columns)
    assert "scale_weight_1[city]" in str(reg.summary())


def test_columns_are_selected_as_a_whole():
    """The sparse estimators select columns of X, by the largest probability of their indicators."""
    clf = sk.SparseBayesianClassifier(threshold=0.0, **TINY).fit(frame(), REAL > 0.0)
    assert clf.inclusion_probability_.shape == (5,)
    rho = clf.posterior_.pooled("rho_weight_1").max(axis=2)[:, 2:6].max(axis=1)
    assert clf.inclusion_probability_[1] == pytest.approx(rho.mean(), rel=1e-5)
    assert list(clf.get_feature_names_out()) == list(frame().columns)
    assert clf.transform(frame()).shape == (N, 5)
    assert list(clf.set_output(transform="pandas").transform(frame())) == list(frame().columns)


def test_columns_of_other_parameters_stay_beside_categories():
    """Exposures, groups and slopes by name, with the same draws as from an encoded table."""
    X = frame()[["city", "age", "rooms"]].assign(hours=1.0 + MEMBER, school=KIND, city=CITIES)
    parameters = {"exposure": "hours", "groups": "school", "group_slopes": "age"}
    reg = sk.BayesianGLMRegressor(likelihood="poisson", **parameters, **SMALL).fit(X, ROOMS)
    assert set(reg.posterior_.draws) >= {"effect_school", "effect_school_age", "sd_school"}
    assert reg.coef_.shape == (8,)
    assert (reg.coef_[-2:] == 0.0).all()
    assert reg._labels()["scale"] == ["scale[numbers]", "scale[city]"]
    with pytest.raises(ValueError, match="group_slopes='city' is not allowed: the column holds"):
        clone(reg).set_params(group_slopes="city").fit(X, ROOMS)
    with pytest.raises(ValueError, match="not allowed with exposure: the column 'hours'"):
        clone(reg).set_params(categorical_features=["hours"]).fit(X, ROOMS)
    more = reg.predict(X.assign(hours=2.0 * X["hours"]))
    assert np.allclose(more, 2.0 * reg.predict(X))


def test_text_in_arrays_needs_the_numbers_of_its_columns():
    """Those that a ColumnTransformer passes on, for instance; the remedy of the error works."""
    X = frame()[["city", "rooms"]].to_numpy(dtype=object)
    reg = sk.BayesianGLMRegressor(**TINY)
    with pytest.raises(ValueError, match="its column 0 is not .* Name what .* categorical_feat"):
        reg.fit(X, REAL)
    reg.set_params(categorical_features=[0]).fit(X, REAL)
    assert "x0=Oslo" in list(reg.summary()["name"])


@pytest.mark.parametrize("others", [["a", "b"], [1.0, 2.0]], ids=["encoded", "plain"])
def test_text_where_fit_had_numbers_asks_for_numbers(others):
    """Encoders and ``categorical_features``, or to leave the column out, are no help by then."""
    table = pd.DataFrame({"age": np.arange(20.0), "other": np.resize(others, 20)})
    reg = sk.BayesianGLMRegressor(n_chains=2, n_draws=20, random_state=0)
    reg.fit(table, np.arange(20) % 3)
    later = table.assign(age="old")
    for call in (reg.predict, lambda rows: reg.partial_fit(rows, np.arange(20) % 3)):
        with pytest.raises(ValueError, match="'age' is not numeric .*which it had in fit"):
            call(later)


def test_lazy_frames_are_to_be_collected():
    """In fit and later; the remedy of the error works."""
    table = pytest.importorskip("polars").DataFrame({"age": np.arange(20.0)})
    reg = sk.BayesianGLMRegressor(**TINY)
    with pytest.raises(ValueError, match=r"give X.collect\(\)"):
        reg.fit(table.lazy(), np.arange(20) % 3)
    reg.fit(table.lazy().collect(), np.arange(20) % 3)
    with pytest.raises(ValueError, match=r"give X.collect\(\)"):
        reg.predict(table.lazy())
