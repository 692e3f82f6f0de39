"""Targets of survival models: times, or pairs of bounds of times."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import Array
from .._conversion import explained_conversion
from .._exceptions import not_allowed
from .._table_columns import missing_of
from .._validation import check_array, check_magnitude

#: the section of docs/warnings.md
SECTION = "bounds-of-times-are-not-allowed"


def as_columns(y: Any) -> Any:
    """Times, or their bounds as two columns: these may be a pair of arrays, (lower, upper)."""
    if not isinstance(y, tuple) or [len(getattr(each, "shape", ())) for each in y] != [1, 1]:
        return y
    if len(y[0]) != len(y[1]):
        raise not_allowed(
            f"y with {len(y[0])} lower and {len(y[1])} upper bounds is not allowed: give a "
            "lower and an upper bound for each row.",
            SECTION,
        )
    return np.column_stack(y)


def bounds_of(y: Any) -> Array:
    """Lower and upper bounds (rows, 2) of times; an upper bound of 0 stands for infinity."""
    y = as_columns(y)
    with explained_conversion("y", y):
        found = check_array(
            y, dtype=np.float64, ensure_2d=False, ensure_all_finite=False, input_name="y"
        )
    columns = 1 if found.ndim == 1 else found.shape[1]
    if columns > 2:
        raise not_allowed(
            f"y with {columns} columns is not allowed: give times, or the lower and the upper "
            "bound of each, as by numpy.column_stack([lower, upper]).",
            SECTION,
        )
    low, high = np.broadcast_to(found.reshape(-1, columns), (len(found), 2)).T
    kinds = {
        "a missing bound": (
            missing_of(low) | missing_of(high),
            "give 0 for a lower bound that is not known, and inf for an upper one",
        ),
        "a bound that is no time": (
            (low < 0.0) | (high <= 0.0) | (low == np.inf),
            "give positive times, 0 as a lower or inf as an upper bound; for others, "
            "likelihood='normal'",
        ),
        "bounds in the wrong order": (low > high, "give the lower bound first"),
        "bounds that say nothing": (
            (low == 0.0) & (high == np.inf),
            "leave out rows with the bounds 0 and inf",
        ),
    }
    for what, (bad, remedy) in kinds.items():
        if bad.any():
            row = int(bad.argmax())
            value = f"{low[row]:g}" if columns == 1 else f"({low[row]:g}, {high[row]:g})"
            raise not_allowed(
                f"y with {what}, {value} in row {row}, is not allowed: {remedy}.", SECTION
            )
    bounds = np.column_stack([low, np.where(high == np.inf, 0.0, high)])
    check_magnitude("y", bounds)
    return bounds
