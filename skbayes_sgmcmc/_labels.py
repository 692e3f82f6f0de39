"""Labels of classes and groups: compared as they are given, never as floating-point numbers."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrays import Array
from ._exceptions import NOT_ALLOWED, not_allowed, size_not_allowed
from ._limits import LIMITS
from ._table_columns import (
    as_array,
    check_no_mask,
    column_of,
    first_missing,
    is_missing,
    missing_value,
)


def label_array(name: str, values: Any, where: str = "", remedy: str = "Leave the row out") -> Any:
    """Labels as an array of the type that they have; missing and inexact ones are refused.

    ``where`` and ``remedy`` belong to the error of a missing label. What is no array of labels is
    returned as it is, for scikit-learn to refuse.
    """
    check_no_mask(name, values)
    listed = isinstance(values, list | tuple)
    try:  # of a list with texts and NaN, NumPy would make texts only
        array = np.asarray(values, dtype=object) if listed else as_array(values)
        exact = np.asarray(values) if listed else array
    except ValueError:
        return values
    if array.size == 0 or array.ndim == 0:
        return values
    row = first_missing(array)
    if row is not None:
        value = next(filter(is_missing, np.ravel(array[row])))
        raise not_allowed(missing_value(name, row, value, where, remedy))
    _check_one_type(name, array, where)
    if exact.dtype.kind == "O" and isinstance(exact.flat[0], numbers.Number):
        found = np.asarray(exact.tolist())  # whole numbers of Python, as columns of objects hold
        exact = found if found.dtype.kind in "biuf" else exact
    if exact.dtype.kind == "f" and not np.isfinite(exact).all():
        row = int(np.isinf(exact).reshape(len(exact), -1).any(axis=1).argmax())
        raise not_allowed(missing_value(name, row, np.inf, where, remedy))
    _check_exact(name, exact, where)
    return exact


def _check_one_type(name: str, values: Array, where: str) -> None:
    """Refuse texts among other labels, which have no order and which NumPy may make texts, too."""
    if values.dtype.kind != "O":
        return
    for column in values.reshape(len(values), -1).T.tolist():
        texts = [isinstance(label, str) for label in column]
        if any(texts) and not all(texts):
            text, other = column[texts.index(True)], column[texts.index(False)]
            raise not_allowed(
                f"{name} is not allowed: labels{where} are of several types, such as {text!r} and "
                f"{other!r}. Give numbers or text, for instance by .astype(str) of pandas."
            )


def _check_exact(name: str, values: Array, where: str) -> None:
    """Refuse floating-point numbers so large that neighbouring whole numbers are equal."""
    if values.dtype.kind != "f":
        return
    limit = 2 ** (np.finfo(values.dtype).nmant + 1)
    wrong = np.abs(values) >= limit
    if wrong.any():
        raise size_not_allowed(
            f"{name} is not allowed: the label {values[wrong][0]:.0f}{where} is a {values.dtype}, "
            f"and some whole numbers above {limit} are not, so different labels may be equal. Give "
            "labels as integers or as text; in a DataFrame, each column has its own type."
        )


def codes_of(values: Array, known: Any) -> NDArray[np.intp]:
    """Places of labels in ``known``, or -1; equal are those that are equal as Python objects."""
    if getattr(known, "dtype", None) is not None:
        if known.dtype.kind in "mM" and values.dtype.kind == known.dtype.kind:
            common = np.result_type(values, known)  # the finer unit
            values, known = values.astype(common), known.astype(common)
        known = known.tolist()
    place = {label: code for code, label in enumerate(known)}
    found = np.empty(len(values), dtype=np.intp)
    for start in range(0, len(values), LIMITS.narrow_rows):
        some = values[start : start + LIMITS.narrow_rows].tolist()
        found[start : start + LIMITS.narrow_rows] = [place.get(label, -1) for label in some]
    return found


def in_order(labels: Array, declared: Array | None) -> Array:
    """Labels in a declared order, if there is one."""
    if declared is None:
        return labels
    places = codes_of(labels, declared)
    if (places < 0).any():
        raise not_allowed(
            f"classes with {labels[places < 0].tolist()} is not allowed: the ordered categories "
            f"are {declared.tolist()}. Give classes that are among these."
        )
    return labels[np.argsort(places)]


def known_codes(
    y: Array,
    classes: Array,
    known: str = "classes_",
    remedy: str = "give labels of these classes only.",
    where: str = "",
    section: str = NOT_ALLOWED,
) -> NDArray[np.intp]:
    """Places of the labels y in ``classes``, which are called ``known``; others are refused."""
    codes = codes_of(y, classes)
    if (codes < 0).any():
        raise not_allowed(
            f"y has labels {np.unique(y[codes < 0]).tolist()}{where} that are not in "
            f"{known}={classes.tolist()}: {remedy}",
            section,
        )
    return codes


def declared_order(labels: Any) -> Array | None:
    """Categories in their order: of pandas' Categorical, polars' Enum or pyarrow's dictionary."""
    if hasattr(labels, "columns") and labels.shape[1] == 1:
        labels = column_of(labels, 0)
    dtype: Any = getattr(labels, "dtype", None)
    if hasattr(dtype, "pyarrow_dtype"):  # pandas with columns of pyarrow
        labels = getattr(labels, "array", labels).__arrow_array__()
    if getattr(getattr(labels, "type", None), "ordered", False):
        whole = labels.combine_chunks() if hasattr(labels, "chunks") else labels
        return np.asarray(whole.dictionary)
    ordered = getattr(dtype, "ordered", type(dtype).__name__ == "Enum")
    return np.asarray(dtype.categories) if ordered else None


def label_text(label: Any) -> str:
    """A label in names of draws: without the fraction of whole numbers."""
    whole = isinstance(label, float) and label.is_integer()
    return str(int(label) if whole else label)
