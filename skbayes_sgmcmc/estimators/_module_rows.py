"""Rows of the estimators of torch modules: arrays of any rank, several arrays, datasets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.images import shape_in
from .._data.layout import PLAIN, Layout, as_array, is_several, of_sequence
from .._exceptions import not_allowed
from .._validation import check_sizes
from ._network import NetworkEstimator

Array = NDArray[Any]


class ModuleRows(NetworkEstimator):
    """Mixin of estimators whose rows may be the arguments of a torch module."""

    module: Any
    input_shape: Any
    n_workers: int

    def _row_shape(self) -> tuple[int, ...]:
        """Shape of a row as the module gets it; several arguments lie in one flat row."""
        if self.input_shape is not None:
            return check_sizes("input_shape", self.input_shape)
        one = self._layout != PLAIN and not self._layout.several
        return self._layout.fields[0].shape if one else super()._row_shape()

    def _fit_inputs(self, X: Array, weight: Array | None) -> None:
        super()._fit_inputs(X, weight)
        if self.standardize and self._layout.several:  # whole numbers stay as they are
            self._x_center = np.where(self._layout.whole, 0.0, self._x_center)
            self._x_scale = np.where(self._layout.whole, 1.0, self._x_scale)

    def _validate_xy(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        if is_dataset_like(X):
            return self._validate_dataset(X, y, reset=reset)
        X = _as_arrays(X)
        if reset:
            X = self._by_name(X)
            self._layout = self._layout_of(X)
        flat, y = super()._validate_xy(self._flat(X), as_array(y), reset=reset)
        if reset:
            self._shape_in = None if self._layout.several else shape_in(X)
        return flat, y

    def _validate_dataset(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        from .._data.datasets import layout_of_items, targets_of

        if self.standardize:
            raise not_allowed(
                "standardize=True is not allowed with a dataset, which is never in memory as a "
                "whole: scale its items, and give standardize=False."
            )
        if reset:
            self._layout, self._shape_in = layout_of_items(X), None
        y = targets_of(X, self.n_workers) if y is None else np.asarray(as_array(y))
        if len(y) != len(X):
            raise not_allowed(
                f"y of length {len(y)} is not allowed: the dataset has {len(X)} items."
            )
        # the targets are checked along with rows of zeros, which take no memory
        blank = np.broadcast_to(np.float32(0.0), (len(X), self._layout.size))
        _, y = super()._validate_xy(blank, y, reset=reset)
        return self._dataset_rows(X), y

    def _dataset_rows(self, X: Any) -> Any:
        from .._data.datasets import DatasetRows
        from .._data.layout import Field

        layout = self._layout
        if layout == PLAIN:  # the fit was to an array of rows
            layout = Layout((Field(0, (self.n_features_in_,), "float"),))
        return DatasetRows(X, layout, self._row_shape(), self.n_workers)

    def _validate_rows(self, X: Any) -> Any:
        if is_dataset_like(X):
            return self._dataset_rows(X)
        return super()._validate_rows(self._flat(_as_arrays(X)))

    def _layout_of(self, X: Any) -> Layout:
        """What of a row of X is which argument of the module."""
        if is_several(X):
            if self.input_shape is not None:
                raise not_allowed(
                    f"input_shape={self.input_shape!r} is not allowed with several arrays, whose "
                    "rows reach the module in the shapes that they have: give input_shape=None."
                )
            return Layout.of(X)
        shaped = shape_in(X) is not None
        whole = isinstance(X, np.ndarray) and X.dtype.kind in "iub" and X.ndim > 1
        if not shaped and not whole:
            return PLAIN  # rows of numbers, which scikit-learn checks
        layout = Layout.of(X)
        if self.standardize:
            layout = layout.with_floats()
        given = None if self.input_shape is None else check_sizes("input_shape", self.input_shape)
        shape = layout.fields[0].shape
        if given is not None and given != shape:
            self._check_shape(X, shape, given)
            layout = Layout((replace(layout.fields[0], shape=given),))
        return layout

    def _by_name(self, X: Any) -> Any:
        """A table whose columns are arguments of the module, as a mapping of columns."""
        from ..models.networks.module import argument_names

        columns = list(getattr(X, "columns", ()))
        named = len(columns) > 1 and set(columns) <= set(argument_names(self.module))
        return {name: X[name].to_numpy() for name in columns} if named else X

    def _flat(self, X: Any) -> Any:
        """X as rows of numbers."""
        layout = self._layout
        if layout.several and hasattr(X, "columns"):
            X = {name: X[name].to_numpy() for name in X.columns}
        if layout.several or is_several(X):
            return layout.flat(X)
        shape = shape_in(X)
        if shape is not None:
            self._check_shape(X, shape, self._row_shape())
            X = np.asarray(X).reshape(len(X), -1)
        if isinstance(X, np.ndarray) and X.dtype.kind in "iuf":
            layout.fields[0].check_whole("X", X)
        return X

    def _check_shape(self, X: Any, shape: tuple[int, ...], given: tuple[int, ...]) -> None:
        """Refuse rows that are not flat and have another shape than ``given``."""
        if len(shape) == 1 or shape == given:
            return
        if self.input_shape is None:
            raise not_allowed(
                f"X of shape {(len(X), *shape)} is not allowed: the estimator was fitted to rows "
                f"of shape {given}."
            )
        raise not_allowed(
            f"X of shape {(len(X), *shape)} is not allowed with input_shape={self.input_shape!r}: "
            f"give input_shape={shape}, or rows of numbers."
        )


def _as_arrays(X: Any) -> Any:
    """Lists and tensors as arrays; everything else as it is."""
    rows = isinstance(X, list) or (isinstance(X, tuple) and not is_several(X))
    return of_sequence("X", X) if rows else as_array(X)


def is_dataset_like(X: Any) -> bool:
    """Whether X is a map-style dataset, without importing torch for what is an array or a table."""
    if isinstance(X, np.ndarray | list | tuple) or type(X) is dict or hasattr(X, "__array__"):
        return False
    from .._data.datasets import is_dataset

    return is_dataset(X)
