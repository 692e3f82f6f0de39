"""X that can't be converted to numbers, or has ids that a module does not know: errors name it.

Before, they were NumPy's and torch's own, which say neither which column or row it is nor what to
do.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from torch import nn
from torch.utils.data import TensorDataset

import skbayes_sgmcmc as sk

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
TINY = {"n_chains": 2, "n_draws": 3, "burn_in": 2, "thinning": 1, "random_state": 0,
        "step_size": 1e-3, "prior_scale": "fan_in"}  # fmt: skip
LABELS = np.arange(24) % 3


# columns that are not numeric ---------------------------------------------------------------------

FRAME = pd.DataFrame(
    {"age": [1.0, 2.0, 3.0, 4.0], "city": ["Oslo", "Rome", "Bern", "Oslo"], "pet": list("ccdd")}
)
CLASSES = [0, 1, 0, 1]


def test_predictions_name_such_columns_too():
    clf = sk.BayesianLogisticRegression(n_draws=20, n_chains=2)
    clf.fit(FRAME.assign(city=[1.0, 0.0, 2.0, 3.0], pet=0.5), CLASSES)
    late = FRAME.assign(city=[1.0, 0.0, "?", 3.0], pet=0.5)
    with pytest.raises(ValueError, match=r"its column 'city' is not numeric \(row 2 has '\?'\)"):
        clf.predict(late)


@cases(
    "X, message",
    [
        (FRAME.to_numpy(), "columns 1, 2 are not numeric"),
        (np.array([["1", "x"], ["2", "y"]] * 2), "column 1 is not numeric"),
        ([[1.0, "Oslo"], [2.0, "Rome"]] * 2, r"column 1 is not numeric \(row 0 has 'Oslo'\)"),
        (FRAME[["age", "city"]].astype({"city": "category"}), "column 'city' is not numeric"),
        (FRAME.set_axis(["city"] * 3, axis=1), "columns? 'city'"),  # names that occur twice
        (FRAME[["city"]].assign(many=1.0, **dict.fromkeys("abcd", "x")), "'b' and 2 more are not"),
        (["a text", "another"], r"item 0 has 'a text'\. Give numbers; CountVectorizer"),
        ("rows.csv", "X='rows.csv' is not allowed: give an array of numbers"),
        ({"a": [1.0, 2.0]}, r"X=.* is not allowed: give pandas.DataFrame\(X\)"),
        ([{"a": 1.0}, {"a": 2.0}], r"; pandas.DataFrame\(X\) is a table of such rows"),
        (np.zeros(4, dtype=[("a", "f8"), ("b", "f8")]), r"; pandas.DataFrame\(X\) is a table"),
    ],
)
def test_arrays_and_lists_of_text(X, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sk.BayesianLogisticRegression(categorical_features=None).fit(X, CLASSES[: len(X)])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            ["low", "high", "low", "low"],
            r"y is not allowed: item 0 has 'low'\. Give numbers; for classes, use a classifier "
            r"such as BayesianLogisticRegression\.\nMore",
        ),
        ([1.0, 2.0, "?", 3.0], r"y is not allowed: item 2 has '\?'"),
        ([[1.0], [1.0, 2.0], [3.0], [4.0]], r"y is .* \(1,\) of row 0 and \(2,\) of row 1"),
    ],
)
def test_targets_of_regressors(y, message):
    for regressor in (sk.BayesianGLMRegressor(), sk.BayesianModuleRegressor(nn.Linear(4, 1))):
        with pytest.raises(ValueError, match=message):
            regressor.fit(np.eye(4), y)


def test_dates_and_objects_keep_the_class_of_the_error():
    """Python says ``TypeError`` of what is no text: scikit-learn's checks expect it."""
    when = FRAME[["age"]].assign(when=pd.Timestamp("2026-01-01"))
    with pytest.raises(TypeError, match=r"\(row 0 has Timestamp\('2026-01-01 00:00:00'\): "):
        sk.BayesianLogisticRegression().fit(when, CLASSES)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_other_tables(library):
    package = pytest.importorskip(library)
    table = (package.DataFrame if library == "polars" else package.table)(
        {"age": [1.0, 2.0, 3.0, 4.0], "city": list("abab")}
    )
    with pytest.raises(ValueError, match="column 'city' is not numeric"):
        sk.BayesianLogisticRegression(categorical_features=None).fit(table, CLASSES)


def test_other_faults_keep_their_errors():
    """Numbers are never to blame for an error of another kind; neither is missing text."""
    clf = sk.BayesianLogisticRegression(n_draws=20, n_chains=2).fit(np.eye(4), CLASSES)
    with pytest.raises(ValueError, match="X has 2 features, but"):
        clf.predict([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        clf.predict(np.array([[1.0, None, 2.0, 3.0]], dtype=object))
    with pytest.raises(ValueError, match="Complex data not supported"):
        clf.predict(np.eye(4) * 1j)


# missing values, dates and durations --------------------------------------------------------------

NUMBERS = pd.Series(np.arange(40.0) % 7)
GAP = NUMBERS.index != 7
KINDS = ["Int64", "Float64", "boolean", "int64[pyarrow]", "double[pyarrow]", "bool[pyarrow]"]


@cases("kind", [*KINDS, float, object])
def test_missing_values_are_called_missing(kind):
    """The message has row, column and both remedies, which work; it has no word of encoding."""
    pytest.importorskip("pyarrow")
    income = (NUMBERS > 2).astype(kind).where(GAP)
    X, y = pd.DataFrame({"age": NUMBERS, "income": income}), (NUMBERS > 3).astype(int)
    message = (
        r"Input X contains NaN: the value of row 7 in column 'income' is missing \((<NA>|nan)\)\. "
        "Leave the row out, or put SimpleImputer"
    )
    clf = sk.BayesianModuleClassifier(nn.Linear(2, 2), **TINY)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)
    make_pipeline(SimpleImputer(), clf).fit(X, y)
    clf.fit(X[GAP], y[GAP])
    with pytest.raises(ValueError, match=message):
        clf.predict(X)


@cases("masked", ["X", "y", "images", "weights"])
def test_masked_values_are_refused(masked):
    """Conversions to arrays drop the mask, and what is under it counted as a value."""
    rng = np.random.default_rng(0)
    X, y, weights = rng.standard_normal((40, 3)), np.arange(40) % 2, np.ones(40)
    images = rng.standard_normal((40, 1, 4, 4))
    of = {"X": X, "y": y, "images": images, "weights": weights}[masked]
    given = np.ma.masked_array(
        of, mask=np.arange(of.size).reshape(of.shape) // (of.size // 40) == 7
    )
    run = {"n_chains": 1, "n_draws": 5, "burn_in": 5, "thinning": 1, "max_steps": 10}
    estimator = (sk.BayesianCNNClassifier if masked == "images" else sk.BayesianLogisticRegression)(
        **run
    )

    def fit(rows):
        X_given = given if masked in ("X", "images") else X
        y_given = given if masked == "y" else y
        some = {"sample_weight": given[rows]} if masked == "weights" else {}
        return estimator.fit(X_given[rows], y_given[rows], **some)

    name = {"images": "X", "weights": "sample_weight"}.get(masked, masked)
    with pytest.raises(
        ValueError, match=f"{name} is not allowed: the values of row 7 are"
    ) as error:
        fit(slice(None))
    code = re.search(r"their numbers are (.*)\.$", str(error.value))[1]
    fit(np.delete(np.arange(40), eval(code, {"numpy": np, name: given})))


@cases(
    "X, message",
    [
        ([[1.0, 2.0], [np.nan, 3.0]], "NaN: the value of row 1 in column 0 is missing"),
        ([[1.0, 2.0], [3.0, -np.inf]], r"infinity: the value of row 1 in column 1 is infinite"),
        (sp.csr_array([[1.0, 0.0], [0.0, np.nan]]), "row 1 in column 1 is missing"),
        (pd.DataFrame({"a": ["x", "y"], "b": [1.0, None]}), "column 'a' is not numeric"),
    ],
)
def test_numbers_that_are_not_finite_have_a_place(X, message):
    with pytest.raises(ValueError, match=message):
        sk.BayesianLogisticRegression(categorical_features=None).fit(X, [0, 1])


TWO = (NUMBERS > 3).astype(int)
TARGETS = {
    "Int64": TWO.astype("Int64"),
    "boolean": (TWO > 0).astype("boolean"),
    "int64[pyarrow]": TWO.astype("int64[pyarrow]"),
    "category": TWO.astype("category"),
    "objects": TWO.astype(object),
    "string": TWO.map({0: "a", 1: "b"}).astype("string"),
    "string[pyarrow]": TWO.map({0: "a", 1: "b"}).astype("string[pyarrow]"),
    "dates": pd.Timestamp("2026-01-01") + pd.to_timedelta(TWO, unit="D"),
    "list of text": TWO.map({0: "a", 1: "b"}),
}


@cases("kind", TARGETS)
def test_targets_of_all_types(kind):
    """They are classes, in the order of their labels, and a missing one is named."""
    y, X = TARGETS[kind], NUMBERS.to_frame()
    as_given = list if kind == "list of text" else pd.Series
    clf = sk.BayesianLogisticRegression(n_draws=20, n_chains=2, random_state=0).fit(X, as_given(y))
    assert [*clf.classes_] == sorted(set(y.to_numpy()))
    assert clf.score(X, as_given(y)) > 0.9
    gaps = y.astype(object).where(GAP, None) if kind == "objects" else y.where(GAP)
    message = "Input y contains NaN: the value of row 7 is missing.*Leave the row out"
    with pytest.raises(ValueError, match=message):
        clf.fit(X, as_given(gaps))
    with pytest.raises(ValueError, match=message):
        clf.score(X, as_given(gaps))
    if kind in ("Int64", "boolean", "int64[pyarrow]", "category", "objects"):
        with pytest.raises(ValueError, match=message):
            sk.BayesianGLMRegressor().fit(X, gaps)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_durations_and_dates_are_no_numbers(unit):
    """As numbers they would be counted in the unit of their storage; the remedy is a number."""
    X, waits = NUMBERS.to_frame(), pd.to_timedelta(1.0 + NUMBERS, unit="h").astype(f"m8[{unit}]")
    reg, clf = sk.BayesianGLMRegressor(random_state=0), sk.BayesianLogisticRegression()
    dates = pd.Timestamp("2026-01-01") + waits
    with pytest.raises(ValueError, match=r"y is not allowed: it holds durations.*total_seconds"):
        reg.fit(X, waits)
    for when in (dates, dates.dt.tz_localize("UTC")):
        with pytest.raises(ValueError, match="y is not allowed: it holds dates"):
            reg.fit(X, when)
    with pytest.raises(TypeError, match=r"column 'x0' is not numeric .*total_seconds"):
        clf.fit(waits.to_frame(), TWO)
    with pytest.raises(ValueError, match="X is not allowed: it holds durations"):
        sk.BayesianICA().fit(waits.to_frame())
    with pytest.raises(ValueError, match="X is not allowed: it holds dates"):
        clf.fit(dates.to_frame().to_numpy(), TWO)
    with pytest.raises(ValueError, match="sample_weight is not allowed: it holds durations"):
        clf.fit(X, TWO, waits)
    reg.fit(X, waits.dt.total_seconds())
    assert reg.coef_[0] == pytest.approx(3600.0, rel=1e-3)
    with pytest.raises(ValueError, match="y is not allowed: it holds durations"):
        reg.predict_log_density(X, waits)


# labels of classes --------------------------------------------------------------------------------


def test_classes_are_compared_as_they_are_given():
    """Neighbours of 2^53 in int64 and uint64, whose common type of NumPy is float64."""
    X, codes = NUMBERS.to_frame(), np.arange(40) % 3
    first, later = codes.astype("uint64") + np.uint64(2**53), codes.astype("int64") + 2**53
    clf = sk.BayesianLogisticRegression(n_draws=20, n_chains=2).partial_fit(X, first)
    clf.partial_fit(X, later)
    assert clf.classes_.tolist() == [2**53, 2**53 + 1, 2**53 + 2]
    assert clf.score(X, later) == clf.score(X, first) == clf.score(X, later.astype(object))
    with pytest.raises(ValueError, match=r"labels \[9007199254740995\] that are not in classes"):
        clf.partial_fit(X, later + 1)
    with pytest.raises(ValueError, match="label 9007199254740992 is a float64"):
        sk.BayesianLogisticRegression().fit(X, codes + 2.0**53)


def test_weights_are_those_of_classes_as_they_are_given():
    """scikit-learn's function takes "01" for 1, and 0.5 for 0."""
    X, y = NUMBERS.to_frame(), np.array(["01", "02"])[TWO]
    kind = {"n_draws": 20, "n_chains": 2, "random_state": 0}
    text = sk.BayesianLogisticRegression(class_weight={"01": 3.0}, **kind).fit(X, y)
    codes = sk.BayesianLogisticRegression(class_weight={0: 3.0}, **kind).fit(X, TWO)
    np.testing.assert_array_equal(text.predict_proba(X), codes.predict_proba(X))
    with pytest.raises(ValueError, match=r"class_weight=\{1: 3.0\}.*\['01', '02'\]"):
        sk.BayesianLogisticRegression(class_weight={1: 3.0}, **kind).fit(X, y)


# rows of several lengths --------------------------------------------------------------------------

RAGGED = [[1, 2, 3], [1, 2, 3], [1, 2]]


@cases(
    "X, message",
    [
        ([np.zeros((2, 3)), np.zeros((2, 4))], r"\(2, 3\) of row 0 and \(2, 4\) of row 1"),
        ([[[1, 2], [3]], [[1, 2], [3]]], "the parts of row 0 have different shapes"),
        (
            np.array([np.zeros(3), np.zeros(2)], dtype=object),
            r"\(3,\) of row 0 and \(2,\) of row 1",
        ),
        (pd.Series([[1, 2], [3]]).to_numpy(), r"\(2,\) of row 0 and \(1,\) of row 1"),
        (pd.Series([np.zeros(3), np.zeros(3)]).to_numpy(), r"Give numpy\.stack\(X\)"),
    ],
)
def test_nested_rows(X, message):
    with pytest.raises(ValueError, match=message):
        sk.BayesianLogisticRegression().fit(X, [0, 1])


def embedding(n_known=20):
    """A classifier of texts by the mean of the embeddings of their words."""

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(n_known, 4), nn.Linear(4, 3)

        def forward(self, ids):
            return self.head(self.embed(ids).mean(1))

    torch.manual_seed(0)
    return Words()


@pytest.mark.parametrize("estimator", [sk.BayesianLogisticRegression(), sk.BayesianICA()])
def test_rows_that_are_arrays_say_who_takes_them(estimator):
    """scikit-learn's own error ends before the remedy."""
    with pytest.raises(
        ValueError, match=r"dim 3, .* numpy.reshape\(X, \(len\(X\), -1\)\); BayesianCNN"
    ):
        estimator.fit(np.zeros((24, 2, 2)), LABELS)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_modules_say_how_to_pad(kind):
    """For rows of words, rows of one length are made by padding, with a mask."""
    X = [kind(row) for row in RAGGED]
    clf = sk.BayesianModuleClassifier(embedding(), **TINY)
    message = r"\(3,\) of row 0 and \(2,\) of row 2\. Pad them to one length .* give a mask"
    for given in (X, tuple(X)):
        with pytest.raises(ValueError, match="X is not allowed: its rows .*" + message):
            clf.fit(given, [0, 1, 2])
    with pytest.raises(ValueError, match=r"X\['ids'\] is not allowed: its rows .*" + message):
        clf.fit({"ids": X}, [0, 1, 2])


# ids that an embedding does not have --------------------------------------------------------------

IDS = np.random.default_rng(0).integers(0, 20, (24, 6))


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_of_ids_are_whole_numbers(kind):
    """As arrays of them are; before, they reached the embedding as floating-point numbers."""
    as_array = sk.BayesianModuleClassifier(embedding(), **TINY).fit(IDS, LABELS)
    as_list = sk.BayesianModuleClassifier(embedding(), **TINY).fit(kind(IDS.tolist()), LABELS)
    np.testing.assert_array_equal(as_list.predict_proba(IDS.tolist()), as_array.predict_proba(IDS))


@cases("chosen", ["all", "last_layer"])
@cases("chain_method", ["vectorized", "sequential"])
@cases("value, row", [(20, 0), (20, 7), (-1, 7)])
def test_unknown_ids_are_named(chosen, chain_method, value, row):
    """In ``fit``, whichever row it is, in predictions, in streams and in datasets."""
    X = IDS.copy()
    X[row, 2] = value
    numbers = ", ".join(map(str, X[row]))
    message = rf"X is not allowed: its row \[{numbers}\] gives the embedding 'embed' of the module "
    message += rf"the id {value}; with num_embeddings=20 it has ids from 0 to 19\. Build it"
    clf = sk.BayesianModuleClassifier(
        embedding(), sample_parameters=chosen, chain_method=chain_method, **TINY
    )
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(LABELS))
    for fit in (lambda: clf.fit(X, LABELS), lambda: clf.fit(data)):
        with pytest.raises(ValueError, match=message):
            fit()
    clf.fit(IDS, LABELS)
    before = clf.predict_proba(IDS)
    for call in (clf.predict, clf.predict_uncertainty, lambda X: clf.partial_fit(X, LABELS)):
        with pytest.raises(ValueError, match=message):
            call(X)
    np.testing.assert_array_equal(clf.predict_proba(IDS), before)


def test_other_errors_of_a_module_stay_as_they_are():
    """The ids are known; what fails is something else."""

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = embedding()

        def forward(self, ids):
            if int(ids.max()) == 19:
                raise IndexError("of the module itself")
            return self.net(ids)

    X = np.minimum(IDS, 18)
    clf = sk.BayesianModuleClassifier(Broken(), chain_method="sequential", **TINY).fit(X, LABELS)
    with pytest.raises(IndexError, match="of the module itself"):
        clf.predict(X + 1)


# labels of several types --------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [list, np.array, pd.Series])
def test_labels_of_several_types_are_refused(wrap):
    """Before, the error was that of a comparison, and lists became text without a word."""
    labels = wrap([1, "a"] * 12) if wrap is list else wrap([1, "a"] * 12, dtype=object)
    clf = sk.BayesianLogisticRegression()
    with pytest.raises(ValueError, match="y is not allowed.*several types, such as 'a' and 1"):
        clf.fit(np.arange(24.0)[:, None], labels)
    with pytest.raises(ValueError, match="classes is not allowed.*several types"):
        clf.partial_fit(np.arange(24.0)[:, None], LABELS, classes=[0, 1, "a"])
