"""ParquetRows: Parquet files as X, read group by group."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, ParquetRows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1003, 3))
NAMES = ["a", "b", "c"]
Y = (X[:, 0] - X[:, 2] + RNG.logistic(size=len(X)) > 0.0).astype(int)
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def table(values=X, kind=np.float64):
    columns = {name: values[:, j].astype(kind) for j, name in enumerate(NAMES)}
    return pa.table(columns | {"y": Y[: len(values)]})


@pytest.fixture
def path(tmp_path):
    """Groups of 100 rows, the last of three."""
    pq.write_table(table(), tmp_path / "rows.parquet", row_group_size=100)
    return tmp_path / "rows.parquet"


@pytest.fixture
def folder(tmp_path):
    """The same rows in three files with groups of different sizes."""
    for k, (start, stop) in enumerate([(0, 250), (250, 251), (251, 1003)]):
        part = table().slice(start, stop - start)
        pq.write_table(part, tmp_path / f"{k}.parquet", row_group_size=70 + 31 * k)
    return tmp_path


# rows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["path", "folder"])
def test_slices_are_those_of_the_table(source, request):
    """Within a group, across groups and files, empty, and with negative ends."""
    rows = ParquetRows(request.getfixturevalue(source), NAMES)
    assert rows.shape == X.shape and len(rows) == len(X) and rows.dtype == np.float64
    ends = RNG.integers(0, 1004, (40, 2))
    for start, stop in [*ends, (0, 1003), (99, 101), (-5, None), (7, 7), (1000, 2000)]:
        found = rows[start:stop]
        np.testing.assert_array_equal(found, X[start:stop])
        assert found.flags.c_contiguous
    np.testing.assert_array_equal(rows.column("y"), Y)


def test_columns_are_chosen_and_ordered(path):
    np.testing.assert_array_equal(ParquetRows(path, ["c", "a"])[:50], X[:50, [2, 0]])
    assert ParquetRows(path).columns == (*NAMES, "y")


@pytest.mark.parametrize(("kind", "expected"), [("f4", "f4"), ("i2", "f8"), ("?", "f8")])
def test_types(kind, expected, tmp_path):
    """float32 if all columns are; whole numbers and truth values as float64."""
    values = (3.0 * X).round() if kind != "?" else X > 0.0
    pq.write_table(table(values, kind), tmp_path / "x.parquet")
    rows = ParquetRows(tmp_path / "x.parquet", NAMES)
    assert rows.dtype == np.dtype(expected)
    np.testing.assert_array_equal(rows[:100], values[:100].astype(kind).astype(expected))


def test_one_group_is_in_memory_at_a_time(path):
    rows = ParquetRows(path, NAMES)
    rows[:]
    assert rows._last[1].nbytes <= 100 * 3 * 8


# estimators ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
def test_fits_are_those_of_the_array(path, large, limits):
    """Draws from a table that is read at once are the array's.

    Otherwise minibatches come from a pool of rows: means agree within the error of 200 draws.
    """
    if large:
        limits(held_bytes=0)
    run = {"n_chains": 2, "n_draws": 100, "random_state": 0}
    rows = ParquetRows(path, NAMES)
    found = BayesianLogisticRegression(**run).fit(rows, rows.column("y"))
    expected = BayesianLogisticRegression(**run).fit(X, Y)
    if not large:
        np.testing.assert_array_equal(found.posterior_["coef"], expected.posterior_["coef"])
    sd = expected.posterior_.std("coef")
    assert (np.abs(found.coef_ - expected.coef_) < 4.5 * sd * np.sqrt(2.0 / 100.0)).all()
    # variances of logits are in single precision
    np.testing.assert_allclose(found.predict_proba(rows), found.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("large", [False, True])
def test_columns_have_their_names(path, large, limits):
    """As those of a DataFrame: in any order, and no others. Before, their places counted alone."""
    if large:
        limits(held_bytes=0)
    rows = ParquetRows(path, NAMES)
    run = {"n_chains": 1, "n_draws": 20, "burn_in": 20, "batch_size": 100, "random_state": 0}
    clf = BayesianLogisticRegression(**run).fit(rows, rows.column("y"))
    assert clf.feature_names_in_.tolist() == NAMES
    expected = clf.predict_proba(rows)
    for same in (ParquetRows(path, NAMES[::-1]), table().select(["b", "c", "a"])):
        np.testing.assert_allclose(clf.predict_proba(same), expected, atol=1e-6)
    for columns in (["a", "b", "y"], ["a", "b"]):
        with pytest.raises(ValueError, match="feature names should match"):
            clf.predict(ParquetRows(path, columns))
    clf.partial_fit(ParquetRows(path, NAMES[::-1]), Y, classes=[0, 1])


@pytest.mark.filterwarnings("error:X does not have valid feature names")
def test_groups_of_files_have_names(tmp_path):
    columns = {"x": X[:60, 0], "g": np.arange(60) % 4, "e": np.full(60, 2.0)}
    pq.write_table(pa.table(columns), tmp_path / "g.parquet")
    run = {"n_chains": 1, "n_draws": 20, "burn_in": 20, "random_state": 0}
    reg = BayesianGLMRegressor(likelihood="poisson", groups="g", exposure="e", **run)
    rows = ParquetRows(tmp_path / "g.parquet", ["x", "g", "e"])
    found = reg.fit(rows, Y[:60]).predict(rows)
    np.testing.assert_array_equal(reg.fit(pa.table(columns), Y[:60]).predict(rows), found)
    np.testing.assert_array_equal(reg.predict(rows.select(["e", "x", "g"])), found)


def test_other_processes_open_the_file(path):
    rows = pickle.loads(pickle.dumps(ParquetRows(str(path), NAMES)))
    np.testing.assert_array_equal(rows[95:205], X[95:205])


# faults -------------------------------------------------------------------------------------------


def test_a_missing_value_is_refused_with_its_row(tmp_path):
    columns = {"a": pa.array([None if k == 733 else k for k in range(1003)]), "b": X[:, 1]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=100)
    rows = ParquetRows(tmp_path / "x.parquet")
    assert np.isnan(rows[733:734][0, 0])
    with pytest.raises(ValueError, match="NaN"):
        BayesianLogisticRegression().fit(rows, Y)


def test_bad_input_is_refused_by_name(path, tmp_path):
    with pytest.raises(ValueError, match=r"columns=\['nothing'\].*'a', 'b', 'c', 'y'"):
        ParquetRows(path, ["nothing"])
    with pytest.raises(ValueError, match=r"columns=\[\] is not allowed"):
        ParquetRows(path, [])
    with pytest.raises(FileNotFoundError, match="no such file"):
        ParquetRows(tmp_path / "nothing.parquet")
    pq.write_table(pa.table({"s": ["x", "y"]}), tmp_path / "s.parquet")
    with pytest.raises(ValueError, match="column 's' of type string is not allowed"):
        ParquetRows(tmp_path / "s.parquet")
    pq.write_table(table().slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="it has no row"):
        ParquetRows(tmp_path / "empty.parquet")
    with pytest.raises(IndexError, match="in their order"):
        ParquetRows(path)[::2]


def test_a_file_that_changes_is_refused(path):
    rows = ParquetRows(path, NAMES)
    rows[:10]
    pq.write_table(table(X[:500]), path)
    with pytest.raises(RuntimeError, match="has changed since it was opened"):
        rows[500:510]


def test_without_pyarrow_the_extra_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"skbayes-sgmcmc\[parquet\]"):
        ParquetRows(path)
