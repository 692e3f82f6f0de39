"""Columns of tables as they are given: of NumPy, SciPy, pandas, polars and pyarrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ._arrays import Array
from ._exceptions import not_allowed
from ._limits import LIMITS


def column_names(table: Any, n_columns: int) -> list[Any]:
    """Names of the columns; numbers if the table has none."""
    for attribute in ("column_names", "columns"):  # first pyarrow's: its columns are the values
        if hasattr(table, attribute):
            return list(getattr(table, attribute))
    return list(range(n_columns))


def is_table(values: Any) -> bool:
    """Whether each column has a type of its own: tables of pandas, polars and pyarrow."""
    shape = getattr(values, "shape", None)
    known = any(hasattr(values, name) for name in ("iloc", "with_columns", "column_names"))
    return known and isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[0], int)


def of_tensor(values: Any) -> Any:
    """Tensors as arrays; everything else as it is."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        half = values.dtype.is_floating_point and values.dtype.itemsize == 2
        return values.float().numpy() if half else values.numpy()  # NumPy has no bfloat16
    return values


def as_table(X: Any) -> Any:
    """Tables of narwhals, batches of pyarrow and Parquet files as tables; tensors as arrays.

    Later columns would otherwise be found by their places, whatever they are called.
    """
    if type(X).__module__.startswith("narwhals."):
        X = X.to_native()
    if type(X).__name__ == "ParquetRows":
        return X.table()
    if type(X).__name__ == "RecordBatch" and hasattr(X, "column_names"):
        import pyarrow

        return pyarrow.Table.from_batches([X])
    return of_tensor(X)


def by_name(table: Any, names: Any) -> Any:
    """The table with its columns in the order of ``names``, if these are its columns' names."""
    own = column_names(table, 0)
    if own == list(names) or set(own) != set(names):
        return table
    return table.select(list(names)) if hasattr(table, "select") else table[list(names)]


def as_array(column: Any) -> Array:
    """The values of a column. NumPy would read gaps of a dictionary of pyarrow as its last item."""
    dictionary: Any = getattr(column, "type", None)
    if hasattr(dictionary, "value_type") and hasattr(dictionary, "index_type"):
        column = column.cast(dictionary.value_type)
    return np.asarray(of_tensor(column))


def declares_categories(column: Any) -> bool:
    """Whether a column is a Categorical, an Enum, or a dictionary of pyarrow."""
    dtype: Any = getattr(column, "dtype", None) or getattr(column, "type", None)
    dtype = getattr(dtype, "pyarrow_dtype", dtype)
    kinds = ("CategoricalDtype", "Categorical", "Enum", "DictionaryType")
    return type(dtype).__name__ in kinds


def holds_text(values: Array) -> bool:
    """Whether an array has texts, among other things."""
    if values.dtype.kind == "O":
        return any(isinstance(value, str) for value in values.flat)
    return values.dtype.kind in "UST"


def column_of(table: Any, j: int) -> Any:
    """Column ``j`` in the type that it has in the table: an array, or what converts to one."""
    if sp.issparse(table):
        return table[:, [j]].toarray()[:, 0]
    if hasattr(table, "iloc"):
        return table.iloc[:, j]
    column = table.column(j) if hasattr(table, "column_names") else table[:, j]
    if type(getattr(column, "dtype", None)).__name__ in ("Array", "Struct"):
        import polars  # NumPy would make a matrix of such a column

        return polars.Series(column.name, column.to_list(), dtype=polars.Object)
    return column


def with_column(table: Any, j: int, values: Array) -> Any:
    """A table of the same kind with other values in column ``j``."""
    if sp.issparse(table):
        one = sp.csr_matrix(values[:, None])
        return sp.hstack([table[:, :j], one, table[:, j + 1 :]], format="csr")
    if hasattr(table, "iloc"):
        table = table.copy(deep=False)
        table.isetitem(j, values)
        return table
    if hasattr(table, "column_names"):
        return table.set_column(j, table.column_names[j], [values])
    if hasattr(table, "with_columns"):
        return table.with_columns(**{table.columns[j]: values})
    table = np.array(table, dtype=np.promote_types(table.dtype, values.dtype))
    table[:, j] = values
    return table


# missing values -----------------------------------------------------------------------------------


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT, or the NA of pandas."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # NA has no truth value, nor have arrays
        return type(value).__name__ == "NAType"


def missing_of(values: Array) -> Array:
    """Which items of an array are missing."""
    if values.dtype.kind in "OT":
        found = np.fromiter(map(is_missing, values.flat), bool, values.size)
        return found.reshape(values.shape)
    if values.dtype.kind in "fcmM":
        return np.isnan(values)
    return np.zeros(values.shape, dtype=bool)


def check_no_mask(name: str, values: Any) -> None:
    """Refuse masked values: conversions to arrays drop masks in silence."""
    if not np.ma.is_masked(values):
        return
    row = int(np.flatnonzero(values.mask.reshape(len(values), -1).any(axis=1))[0])
    axes = tuple(range(1, values.ndim))
    masked = f"numpy.ma.getmaskarray({name})" + (f".any(axis={axes})" if axes else "")
    raise not_allowed(
        f"{name} is not allowed: the values of row {row} are masked. Leave such rows out of all "
        f"arrays: their numbers are numpy.flatnonzero({masked})."
    )


def first_missing(values: Array) -> int | None:
    """The number of the first row of an array with a missing value; None if there is none."""
    found = missing_of(values).ravel()
    return int(found.argmax()) // max(1, values.size // len(values)) if found.any() else None


def first_not_finite(table: Any) -> int | None:
    """The number of the first row with a missing or infinite number; None if there is none."""
    if sp.issparse(table):
        bad = np.flatnonzero(~np.isfinite(table.data))
        return int(np.searchsorted(table.indptr, bad[0], side="right")) - 1 if len(bad) else None
    try:
        rows = np.asarray(table)
        if rows.dtype.kind == "O":
            return first_missing(rows)
        with np.errstate(all="ignore"):
            # in their own precision, which is quicker; sums that overflow are looked into
            if rows.ndim not in (1, 2) or np.isfinite(rows.sum()):
                return None
        rows = rows.reshape(len(rows), -1)
        for some in LIMITS.blocks(*rows.shape):
            finite = np.isfinite(rows[some].astype(np.float64)).all(axis=1)
            if not finite.all():
                return some.start + int(finite.argmin())
    except (TypeError, ValueError):  # no numbers
        pass
    return None


def not_finite(name: str, values: Any) -> str | None:
    """An error's text that names the first value that is missing or infinite, if there is one."""
    if sp.issparse(values):
        values = values.tocsr()
    row = first_not_finite(values)
    if row is None:
        return None
    one = values[row : row + 1]
    items = one.toarray()[0] if sp.issparse(one) else np.asarray(one).ravel()
    labels = column_names(values, len(items))
    j = next(j for j, item in enumerate(items) if is_missing(item) or item in (np.inf, -np.inf))
    where = f" in column {labels[j]!r}" if len(np.shape(values)) > 1 else ""
    remedy = "Leave the row out"
    if name == "X" and is_missing(items[j]):
        remedy += ", or put SimpleImputer of scikit-learn before the estimator in a pipeline"
    return missing_value(name, row, items[j], where, remedy)


def missing_value(name: str, row: int, value: Any, where: str, remedy: str) -> str:
    """An error's text for one value, with more words on its place and on what to do."""
    kind, what = ("NaN", "missing") if is_missing(value) else ("infinity", "infinite")
    return (
        f"Input {name} contains {kind}: the value of row {row}{where} is {what} ({value!s}). "
        f"{remedy}."
    )
