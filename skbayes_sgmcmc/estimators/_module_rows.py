"""Rows of the estimators of torch modules: arrays of any rank, several arrays, datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .._conversion import is_dataset
from .._data.images import flat_rows, shape_in
from .._data.layout import PLAIN, Field, Layout, is_several, of_sequence
from .._exceptions import not_allowed
from .._table_columns import as_array as values_of_column
from .._table_columns import column_names, is_table, of_tensor
from .._validation import check_sizes


def shape_of(layout: Layout, input_shape: Any) -> tuple[int, ...] | None:
    """Shape of a row as the module gets it; None if that is its flat shape."""
    if input_shape is not None:
        return check_sizes("input_shape", input_shape)
    one = layout != PLAIN and not layout.several
    return layout.fields[0].shape if one else None


def with_field(layout: Layout, n_features: int) -> Layout:
    """The layout, with a field if the fit was to an array of rows."""
    return Layout((Field(0, (n_features,), "float"),)) if layout == PLAIN else layout


def layout_of(X: Any, input_shape: Any, standardize: bool) -> Layout:
    """What of a row of X is which argument of the module."""
    if is_several(X):
        if input_shape is not None:
            raise not_allowed(
                f"input_shape={input_shape!r} is not allowed with several arrays: their "
                "rows reach the module in the shapes that they have. Give input_shape=None."
            )
        return Layout.of(X)
    shaped = shape_in(X) is not None
    whole = isinstance(X, np.ndarray) and X.dtype.kind in "iub" and X.ndim > 1
    if not shaped and not whole:
        return PLAIN  # rows of numbers, which scikit-learn checks
    layout = Layout.of(X)
    if standardize:
        layout = layout.with_floats()
    given = None if input_shape is None else check_sizes("input_shape", input_shape)
    shape = layout.fields[0].shape
    if given is not None and given != shape:
        _check_shape(X, shape, given, input_shape)
        layout = Layout((replace(layout.fields[0], shape=given),))
    return layout


def by_name(X: Any, module: Any) -> Any:
    """A table with a column for each argument of the module, as a mapping of columns."""
    from ..models.networks.module import argument_names

    columns = column_names(X, 0) if is_table(X) else []
    named = len(columns) > 1 and set(columns) <= set(argument_names(module))
    return _columns(X) if named else X


def _columns(X: Any) -> dict[str, Any]:
    """The columns of a table, as arrays."""
    return {name: values_of_column(X[name]) for name in column_names(X, 0)}


def flat(X: Any, layout: Layout, row_shape: Callable[[], Any], input_shape: Any) -> Any:
    """X as rows of numbers."""
    if layout.several and is_table(X):
        X = _columns(X)
    if layout.several or is_several(X):
        return layout.flat(X)
    shape = shape_in(X)
    if shape is not None:
        _check_shape(X, shape, row_shape(), input_shape)
        X = flat_rows(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "iuf":
        layout.fields[0].check_whole("X", X)
    return X


def _check_shape(X: Any, shape: Any, given: Any, input_shape: Any) -> None:
    """Refuse rows that are not flat and have another shape than ``given``."""
    if len(shape) == 1 or shape == given:
        return
    if input_shape is None:
        raise not_allowed(
            f"X of shape {(len(X), *shape)} is not allowed: the estimator was fitted to rows "
            f"of shape {given}."
        )
    raise not_allowed(
        f"X of shape {(len(X), *shape)} is not allowed with input_shape={input_shape!r}: "
        f"give input_shape={shape}, or rows of numbers."
    )


def as_arrays(X: Any) -> Any:
    """Lists and tensors as arrays; everything else as it is."""
    rows = isinstance(X, list) or (isinstance(X, tuple) and not is_several(X))
    return of_sequence("X", X) if rows else of_tensor(X)


def is_dataset_like(X: Any) -> bool:
    """Whether X is a dataset that is not an array, too."""
    return is_dataset(X) and not hasattr(X, "__array__")
