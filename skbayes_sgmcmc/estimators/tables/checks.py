"""Checks of rows and targets that make no copies: large tables stay in memory maps and files."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..._arrays import Array
from ..._conversion import explained_conversion
from ..._data.kept_rows import KeptRows
from ..._data.parquet import ParquetRows
from ..._data.rows import StoredRows, is_stored
from ..._exceptions import not_allowed
from ..._labels import label_array
from ..._limits import LIMITS
from ..._table_columns import (
    as_table,
    by_name,
    check_no_mask,
    column_names,
    is_table,
    not_finite,
    of_tensor,
)
from ..._validation import (
    check_array,
    check_magnitude,
    check_sample_weight,
    check_some_weight,
    check_X_y,
    validate_data,
)
from .columns import with_codes, with_numbers

#: types of X that are used as they are
DTYPES = (np.float64, np.float32)


def validate_x(estimator: Any, X: Any) -> Any:
    """X as an array, a CSR matrix or stored rows, with the columns of the fit."""
    rows, known = _rows(estimator, X, reset=False)
    if isinstance(rows, StoredRows):
        _check_columns(estimator, rows, known, reset=False)
        return rows
    accepted: dict[str, Any] = {"accept_sparse": estimator._sparse(), "dtype": DTYPES}
    if known:
        return _summed(check_array(rows, **accepted))
    return _summed(validate_data(estimator, rows, reset=False, **accepted))


def validate_xy(
    estimator: Any, X: Any, y: Any, *, reset: bool, weight: Any = None, **of_y: Any
) -> tuple[Any, Array]:
    """X as :func:`validate_x` returns it, and y; ``of_y`` are options of scikit-learn's check."""
    rows, known = _rows(estimator, X, reset=reset, weight=weight, more=not reset)
    y = y[:] if is_stored(y) or hasattr(y, "chunks") else y
    y = y if of_y.get("y_numeric") else label_array("y", y)
    if isinstance(rows, StoredRows):
        _check_columns(estimator, rows, known, reset=reset)
        # the targets are checked along with a column of zeros, which takes no memory
        blank = np.broadcast_to(np.float32(0.0), (len(rows), 1))
        return rows, check_X_y(blank, y, dtype=DTYPES, **of_y)[1]
    of_y |= {"accept_sparse": estimator._sparse(), "dtype": DTYPES}
    if known:
        X, y = check_X_y(rows, y, estimator=estimator, **of_y)
    else:
        X, y = validate_data(estimator, rows, y, reset=reset, **of_y)
    X = _summed(X)
    check_magnitude("X", X)
    return X, y


def validate_numbers(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Array]:
    """X and y as :func:`validate_xy` returns them, with y as finite numbers."""
    y = of_tensor(y)
    with explained_conversion("y", y):
        X, y = validate_xy(estimator, X, y, y_numeric=True, **options)
        # scikit-learn leaves arrays of text as they are; torch warns of arrays to read only, and
        # refuses reversed ones
        y = np.require(y, np.float64, ["C", "W"])
        if reason := not_finite("y", y):  # scikit-learn does not see None
            raise not_allowed(reason)
    check_magnitude("y", y)
    return X, y


def _summed(X: Any) -> Any:
    """X with one entry for each number of a sparse matrix, which may be the sum of several.

    Products with rows are the same, but squares of columns are not.
    """
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()  # not that of the user
        X.sum_duplicates()
    return X


def _rows(
    estimator: Any, X: Any, *, reset: bool, weight: Any = None, more: bool = False
) -> tuple[Any, bool]:
    """Rows with codes in place of labels, and whether their columns have been checked."""
    if isinstance(X, ParquetRows):
        if not reset and hasattr(estimator, "feature_names_in_"):
            X = by_name(X, estimator.feature_names_in_)
        head = X.header
        validate_data(estimator, head, reset=reset, skip_check_array=True)
        rows = with_codes(estimator, _table(X), reset=reset, more=more, head=head)
        return with_numbers(estimator, rows, reset=reset, weight=weight, head=head)[0], True
    check_no_mask("X", X)
    X = as_table(_table(X))
    if is_table(X):
        if X.shape[1] == 0:
            raise not_allowed("X without columns is not allowed: give at least one feature.")
        names = column_names(X, 0)
        name, times = Counter(names).most_common(1)[0] if names else ("", 1)
        if times > 1:
            raise not_allowed(
                f"X with {times} columns {name!r} is not allowed: give each column a name of its "
                "own, or X as an array."
            )
        if not reset and hasattr(estimator, "feature_names_in_"):
            X = by_name(X, estimator.feature_names_in_)
    rows = with_codes(estimator, X, reset=reset, more=more)
    return with_numbers(estimator, rows, reset=reset, weight=weight)


def _check_columns(estimator: Any, rows: StoredRows, known: bool, *, reset: bool) -> None:
    """Check the number of columns, and names that the fit had; rows are checked when read."""
    if known:
        check_array(rows[:1], dtype=DTYPES)
    else:
        validate_data(estimator, rows[:1], reset=reset, dtype=DTYPES)


def _table(X: Any) -> Any:
    """Tables that numpy does not hold as stored rows, or as an array if they are small."""
    if not is_stored(X):
        return X
    rows = X if isinstance(X, StoredRows) else StoredRows(X)
    if rows.nbytes > LIMITS.held_bytes or rows.searched:
        return rows
    # whole numbers stay exact, since they may be labels
    return np.asarray(X[:]) if X.dtype.kind in "iu" else rows[:]


def weighted(X: Any, target: Array, sample_weight: Any, factors: Array | None = None) -> KeptRows:
    """Rows of positive weight, which is multiplied by ``factors``."""
    if sample_weight is None and factors is None:
        return KeptRows(X, target)
    weight = check_sample_weight(sample_weight, X.shape[0])
    if factors is not None:
        weight = weight * factors
    rows, positive = KeptRows(X, target, weight), weight > 0
    check_some_weight(weight)  # a class may have the weight zero
    return rows if positive.all() else rows.some(positive)
