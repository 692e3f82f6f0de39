"""Rows of Parquet files, which are read when they are needed."""

from __future__ import annotations

import os
import reprlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from .._arrays import Array
from .._exceptions import explained, extra, not_allowed
from .._table_columns import as_array
from .rows import state_of

#: the section of docs/warnings.md on files
UNREADABLE = "the-rows-cannot-be-read"
#: letters of NumPy's types of numbers, and of truth values
NUMBERS = "fiub"


class ParquetRows:
    """A table of numbers in Parquet files that estimators read part by part, as ``X``.

    Parquet files consist of groups of rows, and a group is decompressed whenever a row of it is
    read. Write them with groups of tens of thousands of rows
    (``pyarrow.parquet.write_table(table, path, row_group_size=50_000)``): the group that was read
    last is kept in memory, and nothing else.

    Parameters
    ----------
    source : path, sequence of paths or pyarrow.dataset.Dataset
        A file, a folder of files, several files, or a dataset of Parquet files of pyarrow. A folder
        with folders such as ``year=2024`` has a column ``year``.
    columns : sequence of str or None, default=None
        Names of the columns, in the order that they have in X. None: all columns, but not the index
        of a DataFrame that pandas has written.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns.
    shape : tuple of int
        Numbers of rows and columns.
    dtype : numpy.dtype
        float32 if all columns are, otherwise float64.

    Raises
    ------
    ValueError
        If a column does not exist or does not hold numbers, in one of the files; if there is no
        row, or no Parquet file.
    RuntimeError
        When rows are read: a file has changed, or is damaged.

    See Also
    --------
    BayesianLogisticRegression, BayesianGLMRegressor : Estimators that take such tables, as others.

    Notes
    -----
    A missing value is NaN, which estimators refuse with the number of its row. Columns have their
    names, as those of a DataFrame have: predictions take them in any order. The order of columns
    and the types of numbers may differ between files.

    Steps of scikit-learn, such as a StandardScaler, do not read it part by part. Give pipelines and
    searches ``pandas.read_parquet(path, columns=...)``, which keeps the names, or the array
    ``X[:]``.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq, tempfile, os
    >>> from skbayes_sgmcmc import BayesianLogisticRegression, ParquetRows
    >>> x = np.random.default_rng(0).standard_normal(2000)
    >>> path = os.path.join(tempfile.mkdtemp(), "rows.parquet")
    >>> pq.write_table(pa.table({"x": x, "buys": x > 0.5}), path, row_group_size=500)
    >>> X = ParquetRows(path, columns=["x"])
    >>> X.shape
    (2000, 1)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X, X.column("buys"))
    >>> bool(clf.coef_[0, 0] > 5.0)
    True
    """

    def __init__(self, source: Any, columns: Iterable[str] | None = None):
        if isinstance(columns, str):
            raise not_allowed(f"columns={columns!r} is not allowed: give a list, [{columns!r}].")
        source = _source(source)
        self._given = source, columns if columns is None else tuple(columns)
        dataset = _dataset(source)
        self._files = _files(source, dataset)
        known = dataset.schema.names
        self.columns = _features(dataset.schema) if self._given[1] is None else self._given[1]
        unknown = [name for name in self.columns if name not in known]
        if unknown or not self.columns:
            named = _short(source)
            raise not_allowed(f"columns={list(self.columns)} is not allowed: {named} has {known}.")
        for names, where in (self.columns, "columns"), (known, _short(source)):
            name, times = Counter(names).most_common(1)[0]
            if times > 1:
                raise not_allowed(
                    f"{where} with {times} columns {name!r} is not allowed: give each its own name."
                )
        #: a table of pyarrow with these columns and no row
        self.header = dataset.schema.empty_table().select(list(self.columns))
        self.dtype = _common_type({name: _types(self._files, name) for name in self.columns})
        with _read(source):
            self._groups = [
                (file, part) for file in self._files for part in file.fragment.split_by_row_group()
            ]
        sizes = [part.row_groups[0].num_rows for _, part in self._groups]
        self._ends = np.cumsum(sizes, dtype=np.int64)
        if not len(self._ends) or self._ends[-1] == 0:
            raise not_allowed(f"source={_short(source)} is not allowed: it has no row.")
        self.shape = int(self._ends[-1]), len(self.columns)
        #: as datasets of h5py and zarr name the smallest parts that are read
        self.chunks = max(sizes), len(self.columns)
        self._last: tuple[int, Array] | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return _opened, (*self._given, self._sizes())

    def _sizes(self) -> list[int | None]:
        """Bytes of each file; None of files that are not on a disk."""
        return [file.state and file.state[1] for file in self._files]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} rows, columns={list(self.columns)})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        """Refuse to become an array in silence, which would lose the columns' names."""
        raise explained(
            TypeError(
                "ParquetRows is no array: only estimators of this package read it part by part. "
                "Give X[:], an array, or a table with the columns' names, such as "
                f"pandas.read_parquet(path, columns={list(self.columns)})."
            )
        )

    def __getitem__(self, rows: slice) -> Array:
        """Consecutive rows, as an array of shape (rows, columns)."""
        start, stop, step = rows.indices(len(self)) if isinstance(rows, slice) else (0, 0, 0)
        if step != 1:
            # an IndexError for X[0] would end loops over the rows, as if there were none
            kind = IndexError if isinstance(rows, slice) else TypeError
            raise explained(
                kind(
                    "rows are read in their order: give X[start:stop]. To choose rows, as searches "
                    "and splits do, give X[:], an array, or a table such as "
                    f"pandas.read_parquet(path, columns={list(self.columns)})."
                )
            )
        found = np.empty((max(0, stop - start), self.shape[1]), self.dtype)
        at = start
        while at < stop:
            group = int(np.searchsorted(self._ends, at, side="right"))
            first = int(self._ends[group - 1]) if group else 0
            end = min(stop, int(self._ends[group]))
            found[at - start : end - start] = self._decoded(group)[at - first : end - first]
            at = end
        return found

    def select(self, columns: Iterable[str]) -> ParquetRows:
        """The same rows with these columns, in this order."""
        return type(self)(self._given[0], columns)

    def column(self, name: str) -> Array:
        """All values of a column, in memory: targets, or weights; shape (rows,)."""
        known = sorted(set().union(*(file.columns for file in self._files)))
        if name not in known:
            raise not_allowed(f"name={name!r} is not allowed: the columns are {known}.")
        of_kind = {_kind(one): file for file, one in _types(self._files, name).items()}
        if len(of_kind) > 1:
            (kind, file), (other, another) = list(of_kind.items())[:2]
            raise not_allowed(
                f"column {name!r} is not allowed: it holds {kind} in {file.path!r} and {other} in "
                f"{another.path!r}. Give it one type in all files."
            )
        parts = [file.table(file.fragment, [name])[name] for file in self._files]
        return np.concatenate([as_array(part) for part in parts])

    def table(self) -> Any:
        """All rows in memory, as a table of pyarrow with the names of the columns."""
        import pyarrow

        return pyarrow.table(dict(zip(self.columns, self[:].T, strict=True)))

    def _decoded(self, group: int) -> Array:
        """All rows of a group, in the precision of X."""
        with self._lock:
            kept = self._last
        if kept is not None and kept[0] == group:
            return kept[1]
        file, part = self._groups[group]
        read = file.table(part, self.columns)
        rows = np.empty((part.row_groups[0].num_rows, len(self.columns)), self.dtype)
        for place, name in enumerate(self.columns):
            rows[:, place] = _numbers(read[name])
        with self._lock:
            self._last = group, rows
        return rows


@dataclass(eq=False)
class _File:
    """A Parquet file: its path, its part of a dataset of pyarrow, and its columns."""

    path: str
    fragment: Any
    #: that of the file, and of columns that the names of folders give to all its rows
    schema: Any
    columns: dict[str, Any] = field(init=False)
    state: tuple[int, int, int] | None = field(init=False)

    def __post_init__(self) -> None:
        #: types of the columns by their names
        self.columns = dict(zip(self.schema.names, self.schema.types, strict=True))
        self.state = state_of(self.path)

    def table(self, part: Any, names: Iterable[str]) -> Any:
        """These columns of a part of the file."""
        self._check_unchanged()
        try:
            return part.to_table(schema=self.schema, columns=list(names))
        except (OSError, ValueError) as error:  # those of pyarrow are derived from ValueError
            self._check_unchanged()
            raise explained(
                RuntimeError(
                    f"the file {self.path!r} of X could not be read ({_reason(error)}). Write it "
                    "again, and make a new ParquetRows of it."
                ),
                UNREADABLE,
            ) from error

    def _check_unchanged(self) -> None:
        found = state_of(self.path)
        if found == self.state:
            return
        what = "has changed since it was opened. Make a new ParquetRows of it, and fit again."
        if found is None:
            what = "is not there any more. Put it back, or make a new ParquetRows of other files."
        raise explained(RuntimeError(f"the file {self.path!r} of X {what}"), UNREADABLE)


def _opened(source: Any, columns: Any, sizes: list[int | None]) -> ParquetRows:
    """The rows in another process, which may be on another machine; files must be the same."""
    rows = ParquetRows(source, columns)
    if rows._sizes() != sizes:
        raise explained(
            RuntimeError(
                f"the files of X in {_short(source)} have other sizes than where it was opened. "
                "Make a new ParquetRows of them, and fit again."
            ),
            UNREADABLE,
        )
    return rows


def _source(source: Any) -> Any:
    """A dataset of pyarrow, an absolute path, or a list of them: other processes use it again."""
    with extra("parquet", "Parquet files need pyarrow"):
        from pyarrow import dataset
    if isinstance(source, dataset.Dataset):
        return source
    one = isinstance(source, str | bytes | os.PathLike)
    paths: list[Any] = [source] if one else []
    if not one:  # an iterator is read once
        paths = list(source) if isinstance(source, Iterable) else [None]
    if not all(isinstance(path, str | bytes | os.PathLike) for path in paths):
        raise not_allowed(
            f"source={_short(source)} is not allowed: give the path of a file, several paths, or a "
            "dataset of pyarrow."
        )
    paths = [os.fsdecode(path) for path in paths]
    for path in paths:
        if "://" in path:
            raise not_allowed(
                f"source={path!r} is not allowed: give "
                f"pyarrow.dataset.dataset({path!r}, format='parquet')."
            )
    paths = [os.path.abspath(path) for path in paths]
    for path in paths:
        if not os.path.exists(path):
            raise explained(
                FileNotFoundError(f"source={path!r} is not allowed: there is no such file."),
                UNREADABLE,
            )
    return paths[0] if one else paths


def _dataset(source: Any) -> Any:
    from pyarrow import dataset

    if isinstance(source, dataset.Dataset):
        return source
    path = source[0] if isinstance(source, list) and len(source) == 1 else source
    folders = isinstance(path, str) and os.path.isdir(path)
    with _read(source):
        return dataset.dataset(path, format="parquet", partitioning="hive" if folders else None)


def _files(source: Any, dataset: Any) -> list[_File]:
    from pyarrow.dataset import FileSystemDataset, ParquetFileFormat, get_partition_keys

    parquet = isinstance(dataset, FileSystemDataset)
    if not parquet or not isinstance(dataset.format, ParquetFileFormat):
        raise not_allowed(
            f"source={_short(source)} is not allowed: give a dataset of Parquet files."
        )
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:  # of a dataset with a filter
        raise not_allowed(
            f"source={_short(source)} is not allowed: it has a filter. Give a folder of its rows, "
            "written by pyarrow.dataset.write_dataset(source, folder, format='parquet')."
        ) from error
    if not fragments:
        raise not_allowed(f"source={_short(source)} is not allowed: it has no Parquet file.")
    found = []
    for fragment in fragments:
        with _read(source):
            schema = fragment.physical_schema
        for name in get_partition_keys(fragment.partition_expression):
            if name not in schema.names:
                schema = schema.append(dataset.schema.field(name))
        found.append(_File(fragment.path, fragment, schema))
    return found


def _features(schema: Any) -> tuple[str, ...]:
    """Names of all columns but those that pandas reads as the index of a DataFrame."""
    of_index = (schema.pandas_metadata or {}).get("index_columns", [])
    return tuple(name for name in schema.names if name not in of_index)


@contextmanager
def _read(source: Any) -> Iterator[None]:
    """Explain errors of files that are not in the format."""
    try:
        yield
    except (OSError, ValueError) as error:
        remedy = (
            "Give Parquet files, and no others: a folder may hold other files, so give a list of "
            "the paths."
        )
        if "duplicate" in str(error):
            remedy = "Write the file with another name for each column."
        raise not_allowed(
            f"source={_short(source)} is not allowed: {_reason(error)}. {remedy}", UNREADABLE
        ) from error


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".")


def _short(source: Any) -> str:
    """A source in messages: text of many paths is shortened."""
    return repr(source) if isinstance(source, str) else reprlib.repr(source)


def _types(files: list[_File], name: str) -> dict[_File, Any]:
    """Types of a column in the files, without those that have only gaps there."""
    for file in files:
        if name not in file.columns:
            raise not_allowed(
                f"column {name!r} is not allowed: the file {file.path!r} does not have it, and "
                "others do. Leave out the column, or the file: give a list of the paths."
            )
    types = {file: _plain(file.columns[name]) for file in files}
    return {file: kind for file, kind in types.items() if str(kind) != "null"} or types


def _plain(kind: Any) -> Any:
    """The type of a column's values: that of the items of a dictionary."""
    return kind.value_type if hasattr(kind, "index_type") else kind


def _kind(kind: Any) -> str:
    """What a column holds, in a word: numbers of all types go together."""
    return "numbers" if _numeric(kind) is not None else str(kind).removeprefix("large_")


def _numeric(kind: Any) -> np.dtype[Any] | None:
    """NumPy's type of numbers and truth values; None for other values."""
    try:
        found = np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return None
    return found if found.kind in NUMBERS else None


def _numbers(values: Any) -> Array:
    """A column of pyarrow as numbers, with NaN for gaps."""
    plain = values.cast(_plain(values.type))
    return np.asarray((plain.cast("float64", safe=False) if plain.null_count else plain).to_numpy())


def _common_type(types: dict[str, dict[_File, Any]]) -> np.dtype[Any]:
    """The type of X: that of its columns, which are numbers or truth values in all files."""
    found = []
    for name, kinds in types.items():
        for file, kind in kinds.items():
            one = _numeric(kind)
            if one is None:
                raise not_allowed(
                    f"column {name!r} of type {kind} is not allowed, in {file.path!r}: X holds "
                    "numbers. Leave it out of columns=, or encode it.",
                    "a-column-is-not-numeric",
                )
            found.append(one)
    single = all(one == np.float32 for one in found)
    return np.dtype(np.float32 if single else np.float64)
