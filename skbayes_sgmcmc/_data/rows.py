"""Rows of a dense table that stays where it is: in memory, in a memory map, or in a file.

A table is anything with ``shape``, ``dtype`` and slicing: ``numpy.memmap``, datasets of h5py and
zarr, ``dask.array``. Its rows are read by number, or block by block in their order. Slices are all
that is asked of it: of a file that is slow to search, a block that holds wanted rows is read as a
whole, once.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._arrays import Array
from .._exceptions import explained, not_allowed
from .._limits import LIMITS, slices
from .._table_columns import first_not_finite
from .memory import whole_memory
from .read_ahead import read_ahead

#: floating-point types of rows that are used as they are
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def is_stored(X: Any) -> bool:
    """Whether X is a table that numpy does not hold, with rows that slicing reads."""
    if isinstance(X, StoredRows):
        return True
    if isinstance(X, np.ndarray | list | tuple | dict) or hasattr(X, "iloc"):
        return False
    shape, dtype = getattr(X, "shape", None), getattr(X, "dtype", None)
    plain = isinstance(shape, tuple) and len(shape) == 2 and isinstance(dtype, np.dtype)
    # sparse matrices have these too, but are no tables; nor are devices' arrays, which convert
    return plain and hasattr(X, "__getitem__") and not hasattr(X, "tocsr")


class StoredRows:
    """Rows of a table, read when they are indexed.

    The table is a C-contiguous array, a memory map, or anything with ``shape``, ``dtype`` and
    slicing. ``numbers`` are those of the rows that count, in increasing order, and ``columns`` the
    columns; None: all.
    """

    ndim = 2

    def __init__(self, table: Any, numbers: Array | None = None, columns: Array | None = None):
        if isinstance(table, np.ndarray) and table.strides[1] != table.itemsize:
            table = np.ascontiguousarray(table)  # rows are read as a whole
        if table.dtype.kind not in "fiub":
            raise not_allowed(
                f"X of type {type(table).__name__} with the dtype {table.dtype} is not allowed: "
                "give a table of numbers."
            )
        self._table, self.numbers, self.columns = table, numbers, columns
        #: type of the rows as they are read: whole numbers are read as float64
        self.dtype = table.dtype if table.dtype in FLOATS else np.dtype(np.float64)
        n_rows, n_columns = table.shape
        if isinstance(n_rows, float):  # NaN, after a choice of rows by their values
            raise not_allowed(
                "X of an unknown number of rows is not allowed: give X.compute_chunk_sizes() of "
                "dask."
            )
        self.shape = (
            n_rows if numbers is None else len(numbers),
            n_columns if columns is None else len(columns),
        )
        self._file = file_of(table)
        self._state = state_of(self._file)
        width = max(1, n_columns * table.dtype.itemsize)
        chunk = _chunk_rows(table)
        #: rows that are read at once from a table that is not searched: whole chunks of the file
        self.run = max(1, LIMITS.read_bytes // width // chunk) * chunk

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def table(self) -> Any:
        """The table; in another process, a memory map is opened when it is first needed."""
        if isinstance(self._table, Place):
            self._table = self._table.opened()
            self._state = state_of(self._file)
        return self._table

    def __getstate__(self) -> dict[str, Any]:
        if self._file is None or isinstance(self._table, Place):
            return vars(self)
        place = Place.of(self._table, self._file, self._state)
        if place is None:  # rows that other processes cannot find in the file
            return vars(self) | {"_table": np.array(self._table), "_file": None, "_state": None}
        return vars(self) | {"_table": place}

    @property
    def nbytes(self) -> int:
        return int(self.shape[0] * self.shape[1] * self.dtype.itemsize)

    @cached_property
    def searched(self) -> bool:
        """Whether rows can be read by number at little cost, as from memory.

        They can of memory maps of at most half of the memory: larger ones would be read from the
        disk row by row.
        """
        table = self.table
        return isinstance(table, np.ndarray) and (
            self._file is None or table.nbytes <= LIMITS.share_of_maps * (whole_memory() or np.inf)
        )

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory, and not in a file."""
        return self.searched and self._file is None

    @property
    def ahead(self) -> bool:
        """Whether blocks are read in advance, by a thread: not those of arrays and memory maps.

        Of a map the system itself reads pages in advance; a thread made its passes no quicker.
        """
        return self._file is None and not isinstance(self._table, np.ndarray)

    def __getitem__(self, chosen: Any) -> Any:
        """Rows as an array, for a slice or numbers; fewer rows or columns for a mask or a pair."""
        if isinstance(chosen, tuple):
            rows, columns = chosen
            if not isinstance(rows, slice) or rows != slice(None):
                raise explained(IndexError("columns are chosen of all rows: give X[:, columns]."))
            kept = np.arange(self.table.shape[1]) if self.columns is None else self.columns
            return StoredRows(self.table, self.numbers, kept[columns])
        if isinstance(chosen, np.ndarray) and chosen.dtype == bool:
            kept = np.flatnonzero(chosen) if self.numbers is None else self.numbers[chosen]
            return StoredRows(self.table, kept, self.columns)
        if not isinstance(chosen, slice):
            return self.take(np.asarray(chosen))
        start, stop, step = chosen.indices(len(self))
        if step == 1 and self.numbers is None:
            return self._consecutive(start, max(start, stop))
        return self.take(np.arange(start, stop, step))

    def take(self, numbers: Array) -> Array:
        """Rows (len(numbers), n_columns) by their numbers, in any order."""
        numbers = numbers if self.numbers is None else self.numbers[numbers]
        if self.searched:
            self.check_unchanged()
            return self._of_columns(np.take(self.table, numbers, axis=0))
        found = np.empty((len(numbers), self.shape[1]), self.dtype)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        runs = ordered // self.run
        for first in np.flatnonzero(np.diff(runs, prepend=-1)):
            last = np.searchsorted(runs, runs[first], side="right")
            low, high = ordered[first], ordered[last - 1] + 1
            found[order[first:last]] = self._read(low, high)[ordered[first:last] - low]
        return found

    def blocks(self, n_rows: int | None = None) -> Iterator[tuple[slice, Array]]:
        """Consecutive blocks of rows, in their order."""
        parts = slices(len(self), n_rows or self.run)
        yield from read_ahead(self.__getitem__, parts, ahead=self.ahead)

    def _consecutive(self, start: int, stop: int) -> Array:
        """Rows start to stop; a few columns of many rows are read without the other columns."""
        if self.columns is None or stop - start <= self.run:
            return self._read(start, stop)
        found = np.empty((stop - start, self.shape[1]), self.dtype)
        for at in range(start, stop, self.run):
            end = min(at + self.run, stop)
            found[at - start : end - start] = self._read(at, end)
        return found

    def _read(self, start: int, stop: int) -> Array:
        """Rows start to stop; those of tables that numpy does not hold are checked to be finite."""
        self.check_unchanged()
        found = np.asarray(self.table[int(start) : int(stop)])
        if len(found) != stop - start:
            raise explained(
                RuntimeError(
                    f"X has changed since the call began: rows {start} to {stop - 1} were asked "
                    f"for, and {len(found)} of them are there. Keep X as it is until the call ends."
                ),
                "the-rows-cannot-be-read",
            )
        found = found.astype(self.dtype, copy=False)
        if not isinstance(self.table, np.ndarray):  # arrays and maps were checked before the call
            row = first_not_finite(found)
            if row is not None:
                raise not_allowed(
                    f"X is not allowed: row {start + row} contains NaN or infinity. Leave such "
                    "rows out, or replace their missing values."
                )
        return self._of_columns(found)

    def _of_columns(self, rows: Array) -> Array:
        return rows if self.columns is None else rows[:, self.columns]

    def check_unchanged(self) -> None:
        """Raise ``RuntimeError`` if the file of a memory map is no longer as it was.

        To read beyond the end of a file that has shrunk would end the process.
        """
        if not isinstance(self._table, Place):  # which is compared when it is opened
            check_state(self._file, self._state)


@dataclass(frozen=True)
class Place:
    """Where the rows of a memory map are: what another process needs to map them."""

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    #: bytes before the first row, and of the whole file
    offset: int
    size: int

    @classmethod
    def of(cls, table: Any, file: Any, state: tuple[int, int, int] | None) -> Place | None:
        """The place of a map of consecutive rows; None of others, and if the file has changed."""
        if state is None or state_of(file) != state or not table.flags.c_contiguous:
            return None
        whole = table
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        # the offset of a slice is that of the map that it was cut from
        start = table.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        offset = start + whole.offset
        return cls(os.fspath(file), table.dtype, table.shape, offset, state[1])

    def opened(self) -> Array:
        """The map.

        Raises
        ------
        FileNotFoundError
            This machine has no such file, or one of another size.
        """
        found = state_of(self.path)
        if found is None or found[1] != self.size:
            what = "does not exist" if found is None else f"has {found[1]} bytes"
            raise explained(
                FileNotFoundError(
                    f"the file {self.path!r} of X, of {self.size} bytes, {what} on "
                    f"{socket.gethostname()!r}. Workers open memory maps by their path: put the "
                    "file there, or give X as an array, which is sent to them."
                ),
                "the-rows-cannot-be-read",
            )
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


class StoredCSR:
    """A CSR matrix; other processes get those of its arrays that are memory maps by their path."""

    def __init__(self, matrix: Any):
        self.shape = matrix.shape
        self._matrix: Any = matrix
        self._parts: tuple[Any, ...] = ()
        arrays = matrix.data, matrix.indices, matrix.indptr
        #: the file of each array, if it has one, and its state
        self._files = [(file := file_of(array), state_of(file)) for array in arrays]

    @property
    def matrix(self) -> Any:
        """The matrix; in another process, memory maps are opened when it is first needed.

        Raises ``RuntimeError`` if one of their files is no longer as it was.
        """
        for where in self._files:
            check_state(*where)
        if self._matrix is None:
            parts = [p.opened() if isinstance(p, Place) else p for p in self._parts]
            self._matrix = sp.csr_matrix(tuple(parts), shape=self.shape)
        return self._matrix

    def __getstate__(self) -> dict[str, Any]:
        parts = self._parts
        if not parts:
            arrays = self._matrix.data, self._matrix.indices, self._matrix.indptr
            known = zip(arrays, self._files, strict=True)
            parts = tuple(Place.of(each, *where) or np.array(each) for each, where in known)
        return {"shape": self.shape, "_matrix": None, "_parts": parts, "_files": self._files}


def file_of(table: Any) -> Any:
    """The file of a memory map, or None."""
    while isinstance(table, np.ndarray):
        if isinstance(table, np.memmap):
            return table.filename
        table = table.base
    return None


def bytes_in_memory(X: Any) -> float:
    """Bytes of an array in memory; infinite for other rows, such as those read from a file."""
    in_memory = isinstance(X, np.ndarray) and file_of(X) is None
    return X.nbytes if in_memory else math.inf


def first_equal(X: Any, dtype: Any) -> Array:
    """For each row, the place of the first one that equals it in this precision."""

    def digests() -> Iterator[int]:
        if sp.issparse(X):
            values = X.data.astype(dtype)
            for a, b in pairwise(X.indptr):
                yield hash((X.indices[a:b].tobytes(), values[a:b].tobytes()))
            return
        for part in slices(X.shape[0], LIMITS.module_rows):
            yield from (hash(row.tobytes()) for row in np.asarray(X[part], dtype=dtype))

    seen: dict[int, int] = {}
    with np.errstate(over="ignore"):
        return np.array([seen.setdefault(key, place) for place, key in enumerate(digests())])


def state_of(file: Any) -> tuple[int, int, int] | None:
    """Number of a file on its disk, its size, and when it was written to; None if there is none."""
    if file is None:
        return None
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def check_state(file: Any, state: tuple[int, int, int] | None) -> None:
    """Raise ``RuntimeError`` if the file of a map is not in this state any more."""
    found = state_of(file)
    # a map of a file that was deleted or replaced by another one keeps its rows
    if found is not None and found != state and found[:1] == (state or found)[:1]:
        raise explained(
            RuntimeError(
                f"the file {os.fspath(file)!r} of X has changed since the call began. "
                "Keep it as it is until the call ends; write new rows to another file."
            ),
            "the-rows-cannot-be-read",
        )


def _chunk_rows(table: Any) -> int:
    """Rows in a chunk of a file, which is read as a whole."""
    chunks = getattr(table, "chunks", None)
    if not isinstance(chunks, tuple) or not chunks:
        return 1
    first = chunks[0]
    return max(1, int(max(first) if isinstance(first, tuple) else first))
