"""Rows of the estimators of torch modules: arrays of any rank, several arrays, datasets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._conversion import is_dataset
from .._data.images import shape_in
from .._data.layout import PLAIN, Layout, is_several, of_sequence
from .._exceptions import not_allowed
from .._table_columns import as_array as values_of_column
from .._table_columns import column_names, is_table, of_tensor
from .._validation import check_sizes
from ..models.networks.module import argument_names


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
    shape = layout.arguments[0].shape
    if given is not None and given != shape:
        check_shape(X, shape, given, input_shape)
        layout = Layout((replace(layout.arguments[0], shape=given),))
    return layout


def by_name(X: Any, module: Any) -> Any:
    """A table with a column for each argument of the module, as a mapping of columns."""
    names = column_names(X, 0) if is_table(X) else []
    named = len(names) > 1 and set(names) <= set(argument_names(module))
    return columns(X) if named else X


def columns(X: Any) -> dict[str, Any]:
    """The columns of a table, as arrays."""
    return {name: values_of_column(X[name]) for name in column_names(X, 0)}


def check_shape(X: Any, shape: Any, given: Any, input_shape: Any) -> None:
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
