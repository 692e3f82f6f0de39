"""Words for rows that can't be converted to numbers: which column or row, and what to give."""

from __future__ import annotations

import datetime
import numbers
import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from ._exceptions import explained, listed, not_allowed
from ._table_columns import check_no_mask, column_names, is_missing, not_finite

#: what to do with rows of several lengths, unless an estimator knows better
EQUAL_ROWS = "Give rows of one length"
#: what to do with text, of estimators that take it
NAME_CATEGORIES = "Name what holds categories in categorical_features, or leave it out"
#: and in later rows, which need the columns of the fit
GIVE_NUMBERS = "Give numbers, which it had in fit"
#: what to give where datasets are refused
ITS_ROWS = "Give an array of its rows, such as numpy.stack([x for x, _ in dataset])."
#: packages whose classes, and those derived from them, are datasets
OF_DATASETS = ("datasets", "torch.utils.data")
#: by the name of an array of items that are no numbers: what to give, or which estimator takes them
OTHER_THAN_NUMBERS = {
    "X": "; CountVectorizer of scikit-learn makes rows of texts",
    "y": "; for classes, use a classifier such as BayesianLogisticRegression",
}
#: shortens long values, but not a Timestamp with a time zone
WHOLE_DATES = reprlib.Repr()
WHOLE_DATES.maxother = 60


@contextmanager
def explained_conversion(
    name: str, values: Any, remedy: str = EQUAL_ROWS, of_text: str | None = None
) -> Iterator[None]:
    """Replace errors of a conversion to numbers by one that says which values are to blame.

    NumPy's own name neither the column nor the row. Errors with another cause stay as they are.
    ``remedy`` and ``of_text`` say what to do with rows of several lengths and with text.
    """
    _check_no_dates(name, values)
    check_no_mask(name, values)
    try:
        yield
    except (TypeError, ValueError) as error:
        _check_no_dataset(name, values)
        kind = TypeError if isinstance(error, TypeError) else ValueError
        if reason := differing_shapes(name, values, remedy):
            raise explained(kind(reason), "rows-have-different-shapes") from error
        if reason := _too_many_axes(values, error):
            raise explained(kind(reason)) from error
        if reason := _not_numeric(name, values, of_text):
            raise explained(kind(reason), "a-column-is-not-numeric") from error
        # tables with pandas' NA are no numbers, but convert if these are filled; of arrays of
        # objects with NaN, scikit-learn says "Input contains NaN", whatever their name
        refused = str(error).startswith((f"Input {name} contains", "Input contains NaN"))
        looked_at = refused or not _is_numeric(values)
        if looked_at and (reason := not_finite(name, values)):
            raise not_allowed(reason) from None
        explained(error)
        raise


def _check_no_dates(name: str, values: Any) -> None:
    """Refuse dates and durations, which NumPy converts to numbers of a unit that nobody named."""
    if hasattr(values, "indptr") or not hasattr(values, "__getitem__"):
        return
    try:
        kind = _kind(values).strip("O") or _kind(np.asarray(values[:1]))
    except Exception:  # no sequence of rows, or rows of several lengths
        return
    if kind in {*"mM"}:
        what = "durations" if kind == "m" else "dates"
        remedy = ".dt.total_seconds() of pandas" if kind == "m" else "the days since one of them"
        raise not_allowed(
            f"{name} is not allowed: it holds {what}, which are no numbers. Give {name} in a unit "
            f"of your choice, for instance by {remedy}.",
            "a-column-is-not-numeric",
        )


def is_dataset(X: Any) -> bool:
    """Whether X is a dataset of torch or Hugging Face, without importing either."""
    modules = (f"{base.__module__}." for base in type(X).__mro__)
    return any(name.startswith(f"{package}.") for name in modules for package in OF_DATASETS)


def _check_no_dataset(name: str, values: Any) -> None:
    """Refuse datasets, whose items NumPy takes for rows."""
    if is_dataset(values):
        raise not_allowed(
            f"{name}={type(values).__name__} is not allowed: only BayesianModuleClassifier and "
            f"BayesianModuleRegressor take datasets. {ITS_ROWS}"
        ) from None


def differing_shapes(name: str, values: Any, remedy: str = EQUAL_ROWS) -> str | None:
    """An error's text that names two items of a sequence with different shapes, if any."""
    if not _is_sequence(values):
        return None
    first: tuple[int, ...] | None = None
    for row, item in enumerate(values):
        try:
            shape = tuple(np.shape(item))
        except ValueError:
            return f"{name} is not allowed: the parts of row {row} have different shapes. {remedy}."
        if first is None:
            first = shape
        if shape != first:
            return (
                f"{name} is not allowed: its rows have different shapes, {first} of row 0 and "
                f"{shape} of row {row}. {remedy}."
            )
    if first and not isinstance(values, list | tuple):  # NumPy does not look into such arrays
        return f"{name} is not allowed: it is a sequence of arrays. Give numpy.stack({name})."
    return None


def _too_many_axes(values: Any, error: Exception) -> str | None:
    """scikit-learn's error of rows that are themselves arrays, and what to do with them."""
    if np.ndim(values) <= 2 or "Found array with dim" not in str(error):
        return None
    return (
        f"{error} Give numpy.reshape(X, (len(X), -1)); BayesianCNNClassifier takes images, and "
        "BayesianModuleClassifier and BayesianModuleRegressor rows of any shape."
    )


def _is_sequence(values: Any) -> bool:
    """Whether values are a list, a tuple, or one axis of Python objects."""
    if isinstance(values, list | tuple):
        return True
    return _kind(values) == "O" and np.ndim(values) == 1


def _kind(values: Any) -> str:
    """Letter of the type of an array's items; "" for what has no such type."""
    return str(getattr(getattr(values, "dtype", None), "kind", ""))


def _not_numeric(name: str, values: Any, of_text: str | None) -> str | None:
    """An error's text that names the columns that are not numeric, if there are any."""
    if _is_numeric(values):
        return None
    table = np.asarray(values, dtype=object)
    if table.ndim == 0:
        values = table.item()  # which may have been put into an array on the way
        give = "X.collect()" if hasattr(values, "collect_schema") else "an array of numbers"
        if isinstance(values, dict):
            give = f"pandas.DataFrame({name})"
        of_pyarrow = type(values).__module__.partition(".")[0] == "pyarrow"
        if name == "X" and (of_pyarrow or isinstance(values, str | os.PathLike)):
            give += ", or ParquetRows(path) for Parquet files"
        elif name == "X" and hasattr(values, "__next__"):
            give += "; partial_fit takes an array for each block of rows"
        return f"{name}={reprlib.repr(values)} is not allowed: give {give}."
    if table.ndim == 1:
        found = _first_no_number(table)
        other = OTHER_THAN_NUMBERS.get(name, "")
        if name == "X" and isinstance(table[0], dict | tuple):  # records, as of files or databases
            other = "; pandas.DataFrame(X) is a table of such rows"
        if name == "X" and hasattr(values, "to_frame"):  # a column, or a row, of a table
            other += ". A table of one column is table[['name']], and of one row "
            other += "table[[0]]" if _of_polars(values) else "table.iloc[[0]]"
        return found and f"{name} is not allowed: item {found[0]}. Give numbers{other}."
    if table.ndim != 2:
        return None
    names = column_names(values, table.shape[1])
    columns = dict(zip(names, table.T, strict=True))
    return _columns_without_numbers(name, columns, _of_polars(values), of_text)


def _of_polars(values: Any) -> bool:
    """Whether a table or a column is one of polars, without importing it."""
    return type(values).__module__.partition(".")[0] == "polars"


def _columns_without_numbers(
    name: str, columns: dict[Any, Any], of_polars: bool, of_text: str | None = None
) -> str | None:
    """An error's text that names those of some columns of objects that are not numeric.

    ``of_text``: what to do with text, if the caller knows better.
    """
    found = {label: _first_no_number(column) for label, column in columns.items()}
    bad = {label: first for label, first in found.items() if first is not None}
    if not bad:
        return None
    named = listed(map(repr, bad))
    which = f"columns {named} are" if len(bad) > 1 else f"column {named} is"
    where = f"in column {next(iter(bad))!r}, " if len(bad) > 1 else ""
    row, value = next(iter(bad.values()))
    given = of_text if isinstance(value, str) else None
    remedy = given or f"{_remedy(value, of_polars)}, or leave it out"
    return f"{name} is not allowed: its {which} not numeric ({where}row {row}). {remedy}."


def refuse_columns(columns: dict[Any, Any], of_text: str | None = None) -> NoReturn:
    """Raise an error of columns of X, by their names, that hold no numbers.

    ``of_text``: what to do with text.
    """
    # as objects, which say what they are
    values = {label: np.asarray(column, dtype=object) for label, column in columns.items()}
    of_polars = any(map(_of_polars, columns.values()))
    text = _columns_without_numbers("X", values, of_polars, of_text)
    kind = ValueError if any(isinstance(v, str) for v in next(iter(values.values()))) else TypeError
    unreal = f"X is not allowed: its columns {listed(map(repr, columns))} are not real numbers."
    raise explained(kind(text or unreal), "a-column-is-not-numeric")


def _remedy(value: Any, of_polars: bool) -> str:
    """How to make numbers of values like this one, which is no number."""
    is_period = hasattr(value, "to_timestamp")  # of pandas
    if isinstance(value, datetime.date | np.datetime64) or is_period:
        days = "(column - column.min()).dt.total_days() of polars"
        if not of_polars:  # columns of pandas may hold dates as objects
            d = "column.dt.to_timestamp()" if is_period else "pandas.to_datetime(column)"
            days = f"(d - d.min()).dt.days, with d = {d}"
        return f"Give numbers in its place, such as the days since the first date, by {days}"
    if isinstance(value, datetime.time):
        hours = "column.map(lambda t: t.hour + t.minute / 60)"
        if of_polars:
            hours = "column.dt.hour() + column.dt.minute() / 60"
        return f"Give numbers in its place, such as the hours since midnight, by {hours}"
    if isinstance(value, datetime.timedelta | np.timedelta64):
        column = "column" if of_polars else "pandas.to_timedelta(column)"
        return f"Give numbers in its place, for instance by {column}.dt.total_seconds()"
    if isinstance(value, list | tuple | dict | set | np.ndarray):
        items = "column.apply(pandas.Series)"
        if of_polars:
            items = "polars.DataFrame(column.to_list(), orient='row')"
        return f"Give a column for each item in its place, for instance by {items}"
    return (
        "Encode what is no number, for instance by scikit-learn's OneHotEncoder in a "
        "ColumnTransformer"
    )


def _is_numeric(values: Any) -> bool:
    """Whether all values are numbers; arrays of numbers, which may be large, are not copied."""
    if hasattr(values, "indptr") or _kind(values) in {*"biufc"}:
        return True
    try:
        np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _first_no_number(values: Any) -> tuple[str, Any] | None:
    """The first item that is no number, as text with its place, and as it is; or None."""
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        for row, value in enumerate(values):
            why = _why_no_number(value)
            if why is not None:
                return f"{row} has {WHOLE_DATES.repr(value)}{why}", value
    return None


def _why_no_number(value: Any) -> str | None:
    """Python's reason, left out for text, that a value is no number; None if it is one."""
    if isinstance(value, numbers.Number) or is_missing(value):
        return None
    try:
        float(value)
    except (TypeError, ValueError) as error:
        return "" if isinstance(value, str) else f": {error}"
    return None
