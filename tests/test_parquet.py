"""ParquetRows: Parquet files as X, read group by group."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayes_sgmcmc as sk

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
    rows = sk.ParquetRows(request.getfixturevalue(source), NAMES)
    assert rows.shape == X.shape and len(rows) == len(X) and rows.dtype == np.float64
    ends = RNG.integers(0, 1004, (40, 2))
    for start, stop in [*ends, (0, 1003), (99, 101), (-5, None), (7, 7), (1000, 2000)]:
        found = rows[start:stop]
        np.testing.assert_array_equal(found, X[start:stop])
        assert found.flags.c_contiguous
    np.testing.assert_array_equal(rows.column("y"), Y)


def test_columns_are_chosen_and_ordered(path):
    np.testing.assert_array_equal(sk.ParquetRows(path, ["c", "a"])[:50], X[:50, [2, 0]])
    assert sk.ParquetRows(path).columns == (*NAMES, "y")


@pytest.mark.parametrize(("kind", "expected"), [("f4", "f4"), ("i2", "f8"), ("?", "f8")])
def test_types(kind, expected, tmp_path):
    """float32 if all columns are; whole numbers and truth values as float64."""
    values = (3.0 * X).round() if kind != "?" else X > 0.0
    pq.write_table(table(values, kind), tmp_path / "x.parquet")
    rows = sk.ParquetRows(tmp_path / "x.parquet", NAMES)
    assert rows.dtype == np.dtype(expected)
    np.testing.assert_array_equal(rows[:100], values[:100].astype(kind).astype(expected))


def test_one_group_is_in_memory_at_a_time(path):
    rows = sk.ParquetRows(path, NAMES)
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
    run = {"n_chains": 2, "n_draws": 100, "batch_size": 100, "random_state": 0}
    run |= {"burn_in": 200, "thinning": 5}
    rows = sk.ParquetRows(path, NAMES)
    found = sk.BayesianLogisticRegression(**run).fit(rows, rows.column("y"))
    expected = sk.BayesianLogisticRegression(**run).fit(X, Y)
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
    rows = sk.ParquetRows(path, NAMES)
    run = {"n_chains": 1, "n_draws": 20, "burn_in": 20, "batch_size": 100, "random_state": 0}
    clf = sk.BayesianLogisticRegression(**run).fit(rows, rows.column("y"))
    assert clf.feature_names_in_.tolist() == NAMES
    expected = clf.predict_proba(rows)
    for same in (sk.ParquetRows(path, NAMES[::-1]), table().select(["b", "c", "a"])):
        np.testing.assert_allclose(clf.predict_proba(same), expected, atol=1e-6)
    for columns in (["a", "b", "y"], ["a", "b"]):
        with pytest.raises(ValueError, match="feature names should match"):
            clf.predict(sk.ParquetRows(path, columns))
    clf.partial_fit(sk.ParquetRows(path, NAMES[::-1]), Y, classes=[0, 1])


@pytest.mark.filterwarnings("error:X does not have valid feature names")
def test_groups_of_files_have_names(tmp_path):
    columns = {"x": X[:60, 0], "g": np.arange(60) % 4, "e": np.full(60, 2.0)}
    pq.write_table(pa.table(columns), tmp_path / "g.parquet")
    run = {"n_chains": 1, "n_draws": 20, "burn_in": 20, "random_state": 0}
    reg = sk.BayesianGLMRegressor(likelihood="poisson", groups="g", exposure="e", **run)
    rows = sk.ParquetRows(tmp_path / "g.parquet", ["x", "g", "e"])
    found = reg.fit(rows, Y[:60]).predict(rows)
    np.testing.assert_array_equal(reg.fit(pa.table(columns), Y[:60]).predict(rows), found)
    np.testing.assert_array_equal(reg.predict(rows.select(["e", "x", "g"])), found)


def test_other_processes_open_the_file(path):
    rows = pickle.loads(pickle.dumps(sk.ParquetRows(str(path), NAMES)))
    np.testing.assert_array_equal(rows[95:205], X[95:205])


# faults -------------------------------------------------------------------------------------------


def test_a_missing_value_is_refused_with_its_row(tmp_path):
    columns = {"a": pa.array([None if k == 733 else k for k in range(1003)]), "b": X[:, 1]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=100)
    rows = sk.ParquetRows(tmp_path / "x.parquet")
    assert np.isnan(rows[733:734][0, 0])
    with pytest.raises(ValueError, match="NaN"):
        sk.BayesianLogisticRegression().fit(rows, Y)


def test_bad_input_is_refused_by_name(path, tmp_path):
    with pytest.raises(ValueError, match=r"columns=\['nothing'\].*'a', 'b', 'c', 'y'"):
        sk.ParquetRows(path, ["nothing"])
    with pytest.raises(ValueError, match=r"columns=\[\] is not allowed"):
        sk.ParquetRows(path, [])
    with pytest.raises(FileNotFoundError, match="no such file"):
        sk.ParquetRows(tmp_path / "nothing.parquet")
    pq.write_table(pa.table({"s": ["x", "y"]}), tmp_path / "s.parquet")
    with pytest.raises(ValueError, match="column 's' of type string is not allowed"):
        sk.ParquetRows(tmp_path / "s.parquet")
    pq.write_table(table().slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="it has no row"):
        sk.ParquetRows(tmp_path / "empty.parquet")
    with pytest.raises(IndexError, match="in their order"):
        sk.ParquetRows(path)[::2]


def test_a_file_that_changes_is_refused(path):
    rows = sk.ParquetRows(path, NAMES)
    rows[:10]
    sent = pickle.dumps(rows)
    pq.write_table(table(X[:500]), path)
    with pytest.raises(RuntimeError, match="has changed since it was opened"):
        rows[500:510]
    with pytest.raises(RuntimeError, match="have other sizes than where it was opened"):
        pickle.loads(sent)
    path.unlink()
    with pytest.raises(RuntimeError, match="is not there any more. Put it back"):
        rows.column("y")
    pq.write_table(table(), path, row_group_size=100)
    bits = bytearray(path.read_bytes())
    bits[200:2000] = bytes(1800)
    path.write_bytes(bits)
    with pytest.raises(RuntimeError, match=r"rows.parquet' of X could not be read"):
        sk.ParquetRows(path, NAMES)[:]
    path.write_text("a,b\n1,2")
    with pytest.raises(ValueError, match="rows.parquet' is not allowed:.*Give Parquet files"):
        sk.ParquetRows(path)


def test_gaps_of_labels_stay_gaps(tmp_path):
    """NumPy reads a gap of a dictionary as its last item: rows got that label in silence."""
    labels = pa.array(["u", None, "v"] * 20).dictionary_encode()
    pq.write_table(pa.table({"x": X[:60, 0], "y": labels}), tmp_path / "y.parquet")
    rows = sk.ParquetRows(tmp_path / "y.parquet", ["x"])
    assert rows.column("y")[:3].tolist() == ["u", None, "v"]
    with pytest.raises(ValueError, match="the value of row 1 is missing"):
        sk.BayesianLogisticRegression().fit(rows, rows.column("y"))


# files that differ --------------------------------------------------------------------------------


@pytest.fixture
def beside(tmp_path):
    """Rows of a folder with a file of X, and a second of the same rows with other columns."""

    def make(columns, names=NAMES):
        pq.write_table(table(X[:60]), tmp_path / "0.parquet")
        pq.write_table(pa.table(columns), tmp_path / "1.parquet")
        return sk.ParquetRows(tmp_path, names)

    return make


def test_types_of_numbers_and_orders_of_columns_may_differ(beside):
    """The first file's type does not count for all: float32 there cut numbers of the second."""
    single = {"c": X[:60, 2].astype("f4"), "y": Y[:60] > 0, "b": X[:60, 1], "a": pa.nulls(60)}
    rows = beside(single)
    assert rows.dtype == np.float64
    expected = np.c_[np.full(60, np.nan), X[:60, 1], X[:60, 2].astype("f4")]
    np.testing.assert_array_equal(rows[60:], expected)
    np.testing.assert_array_equal(rows.column("y"), np.r_[Y[:60], Y[:60]])
    rows = beside({"a": np.arange(60), "b": X[:60, 1], "c": X[:60, 2]}, ["a"])
    np.testing.assert_array_equal(rows.column("a"), np.r_[X[:60, 0], np.arange(60)])


@pytest.mark.parametrize("kind", ["M8[s]", "m8[s]", "U9"])
def test_values_of_another_kind_are_refused(kind, beside):
    """Dates, durations and texts such as "1" in a later file became numbers in silence."""
    other = {name: np.arange(60).astype(kind) for name in [*NAMES, "y"]}
    with pytest.raises(ValueError, match=r"column 'a' of type .* is not allowed, in '.*1.parquet'"):
        beside(other)
    rows = beside(other | dict.fromkeys(NAMES, X[:60, 0]))
    with pytest.raises(ValueError, match=r"it holds numbers in '.*0.parquet' and .*1.parquet'"):
        rows.column("y")


def test_a_missing_column_is_refused(beside):
    """Targets of such a file were NaN, and its rows an error of pyarrow without its name."""
    columns = dict.fromkeys(["a", "c"], X[:60, 0])
    with pytest.raises(ValueError, match="column 'b' is not allowed: the file '.*1.parquet'"):
        beside(columns)
    with pytest.raises(ValueError, match="column 'y' is not allowed: the file '.*1.parquet'"):
        beside(columns, ["a"]).column("y")
    with pytest.raises(ValueError, match=r"name='z' is not allowed: the columns are \['a', 'b'"):
        beside(columns, ["a"]).column("z")


def test_folders_give_values(tmp_path):
    """As in pandas: the column was missing, or an error of pyarrow."""
    for year in (1, 2):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(table(X[:60]), tmp_path / f"year={year}" / "0.parquet")
    rows = sk.ParquetRows(tmp_path, ["year", "a"])
    years = np.repeat([1, 2], 60)
    np.testing.assert_array_equal(rows[:], np.c_[years, np.tile(X[:60, 0], 2)])
    np.testing.assert_array_equal(rows.column("year"), years)


def test_sources(path, folder, monkeypatch):
    """An iterator of paths was empty for targets, and a relative path another's in other places."""
    rows = sk.ParquetRows(iter(sorted(folder.glob("?.parquet"))), NAMES)
    np.testing.assert_array_equal(rows.column("y"), Y)
    monkeypatch.chdir(folder)
    rows = sk.ParquetRows("0.parquet", NAMES)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(rows.select(["a"])[:], X[:250, :1])
    dataset = pytest.importorskip("pyarrow.dataset")
    given = dataset.dataset(path)
    np.testing.assert_array_equal(sk.ParquetRows(given, NAMES)[:], X)
    for other in (dataset.dataset(table()), [], [3], None):
        with pytest.raises(
            ValueError, match="source=.* is not allowed: .*(Parquet|path of a file)"
        ):
            sk.ParquetRows(other)
    with pytest.raises(ValueError, match=r"give pyarrow.dataset.dataset\('file:.*'parquet'\)"):
        sk.ParquetRows(f"file://{path}")
    there = dataset.dataset(f"file://{path}", format="parquet")
    np.testing.assert_array_equal(sk.ParquetRows(there, NAMES)[:], X)
    filtered = given.filter(dataset.field("a") > 0.0)
    with pytest.raises(ValueError, match="it has a filter"):
        sk.ParquetRows(filtered)
    dataset.write_dataset(filtered, folder / "some", format="parquet")
    np.testing.assert_array_equal(sk.ParquetRows(folder / "some", NAMES)[:], X[X[:, 0] > 0.0])
    for columns, expected in ("ab", r"give a list, \['ab'\]"), (["a", "a"], "2 columns 'a'"):
        with pytest.raises(ValueError, match=expected):
            sk.ParquetRows(path, columns)


@pytest.mark.parametrize("name", [None, "id"])
def test_the_index_of_a_frame_is_no_feature(name, tmp_path):
    """pandas writes one that is not 0, 1, ... as a column, which became a feature in silence."""
    pandas = pytest.importorskip("pandas")
    index = pandas.Index(np.arange(60)[::-1], name=name)
    pandas.DataFrame(X[:60], index, NAMES).to_parquet(tmp_path / "x.parquet")
    rows = sk.ParquetRows(tmp_path / "x.parquet")
    assert rows.columns == tuple(NAMES)
    np.testing.assert_array_equal(rows.column(name or "__index_level_0__"), index)


def test_models_that_read_all_rows_take_files(path):
    """They failed with AttributeError. Names stay with the columns."""
    ica = sk.BayesianICA(n_draws=5, burn_in=5, thinning=1, n_chains=1, random_state=0)
    rows = sk.ParquetRows(path, NAMES)
    sources = ica.fit(rows).transform(rows)
    np.testing.assert_array_equal(ica.transform(table().select(NAMES)), sources)
    with pytest.raises(ValueError, match="same order"):
        ica.transform(rows.select(NAMES[::-1]))


def test_other_libraries_are_told_what_to_take(path):
    """Steps of pipelines and splits would lose the columns' names, and failed without a reason."""
    rows = sk.ParquetRows(path, NAMES)
    with pytest.raises(TypeError, match=r"Give X\[:\], an array, or a table"):
        make_pipeline(StandardScaler(), sk.BayesianLogisticRegression()).fit(rows, Y)
    with pytest.raises(TypeError, match=r"searches and splits do, give X\[:\]"):
        train_test_split(rows, Y)
    with pytest.raises(TypeError, match=r"give X\[start:stop\]"):  # not an empty list
        list(rows)
    with pytest.raises(ValueError, match=r"X='.*' is not allowed: .* or ParquetRows\(path\)"):
        sk.BayesianLogisticRegression().fit(str(path), Y)
