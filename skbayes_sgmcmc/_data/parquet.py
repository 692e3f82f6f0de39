"""Rows of Parquet files, which are read when they are needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._arrays import Array
from .._exceptions import explained, extra, not_allowed
from .rows import state_of


class ParquetRows:
    """A table of numbers in Parquet files that estimators read part by part, as ``X``.

    Parquet files consist of groups of rows, and a group is decompressed whenever a row of it is
    read. Write them with groups of tens of thousands of rows
    (``pyarrow.parquet.write_table(table, path, row_group_size=50_000)``): the group that was read
    last is kept in memory, and nothing else.

    Parameters
    ----------
    source : path, sequence of paths or pyarrow.dataset.Dataset
        A file, a folder of files, several files, or a dataset of pyarrow.
    columns : sequence of str or None, default=None
        Names of the columns, in the order that they have in X. None: all columns.

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
        If a column does not exist or does not hold numbers, or if there is no row.

    See Also
    --------
    BayesianLogisticRegression, BayesianGLMRegressor : Estimators that take such tables, as others.

    Notes
    -----
    A missing value is NaN, which estimators refuse with the number of its row. Columns have their
    names, as those of a DataFrame have: predictions take them in any order.

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
        self._given = source, columns if columns is None else tuple(columns)
        dataset = _dataset(source)
        known = dataset.schema.names
        self.columns = tuple(known) if columns is None else tuple(columns)
        unknown = [name for name in self.columns if name not in known]
        if unknown or not self.columns:
            raise not_allowed(f"columns={list(self.columns)} is not allowed: {source} has {known}.")
        #: a table of pyarrow with these columns and no row
        self.header = dataset.schema.empty_table().select(list(self.columns))
        types = self.header.schema.types
        self.dtype = _common_type(self.columns, types)
        self._groups = [
            part for file in dataset.get_fragments() for part in file.split_by_row_group()
        ]
        sizes = [part.row_groups[0].num_rows for part in self._groups]
        self._ends = np.cumsum(sizes, dtype=np.int64)
        if not len(self._ends) or self._ends[-1] == 0:
            raise not_allowed(f"source={source!r} is not allowed: it has no row.")
        self.shape = int(self._ends[-1]), len(self.columns)
        #: as datasets of h5py and zarr name the smallest parts that are read
        self.chunks = max(sizes), len(self.columns)
        self._files = list(dataset.files)
        self._states = [state_of(file) for file in self._files]
        self._last: tuple[int, Array] | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return type(self), self._given

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} rows, columns={list(self.columns)})"

    def __getitem__(self, rows: slice) -> Array:
        """Consecutive rows, as an array of shape (rows, columns)."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise explained(IndexError("rows are read in their order: give X[start:stop]."))
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
        self._check_unchanged()
        values = _dataset(self._given[0]).to_table(columns=[name])[name]
        return np.asarray(values.to_numpy())

    def _check_unchanged(self) -> None:
        for file, state in zip(self._files, self._states, strict=True):
            if state_of(file) != state:
                raise explained(
                    RuntimeError(
                        f"the file {file!r} of X has changed since it was opened. Make a new "
                        "ParquetRows of it, and fit again."
                    ),
                    "the-rows-cannot-be-read",
                )

    def _decoded(self, group: int) -> Array:
        """All rows of a group, in the precision of X."""
        with self._lock:
            kept = self._last
        if kept is not None and kept[0] == group:
            return kept[1]
        self._check_unchanged()
        table = self._groups[group].to_table(columns=list(self.columns))
        rows = np.empty((table.num_rows, len(self.columns)), self.dtype)
        for place, values in enumerate(table.columns):
            rows[:, place] = values.cast("float64" if values.null_count else values.type).to_numpy()
        with self._lock:
            self._last = group, rows
        return rows


def _dataset(source: Any) -> Any:
    with extra("parquet", "Parquet files need pyarrow"):
        from pyarrow import dataset
    if isinstance(source, dataset.Dataset):
        return source
    if not isinstance(source, str | os.PathLike | Iterable):
        raise not_allowed(
            f"source={source!r} is not allowed: give the path of a file, several paths, or a "
            "dataset of pyarrow."
        )
    paths = [source] if isinstance(source, str | os.PathLike) else list(source)
    paths = [os.fspath(path) for path in paths]
    for path in paths:
        if not os.path.exists(path):
            raise explained(
                FileNotFoundError(f"source={path!r} is not allowed: there is no such file."),
                "the-rows-cannot-be-read",
            )
    return dataset.dataset(paths[0] if len(paths) == 1 else paths, format="parquet")


def _common_type(names: Iterable[str], types: Iterable[Any]) -> np.dtype[Any]:
    """The type of X: that of its columns, which are numbers or truth values."""
    found = []
    for name, kind in zip(names, types, strict=True):
        try:
            one = np.dtype(kind.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            one = np.dtype(object)
        if one.kind not in "fiub":
            raise not_allowed(
                f"column {name!r} of type {kind} is not allowed: X holds numbers. Leave it out of "
                "columns=, or encode it.",
                "a-column-is-not-numeric",
            )
        found.append(one)
    single = all(one == np.float32 for one in found)
    return np.dtype(np.float32 if single else np.float64)
