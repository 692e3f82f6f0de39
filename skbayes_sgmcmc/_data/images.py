"""Conversion of images to rows of numbers, and checks of their shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._arrays import Array
from .._conversion import explained_conversion
from .._exceptions import not_allowed
from .._table_columns import check_no_mask, of_tensor


def flat_rows(X: Any) -> Array:
    """Rows of any shape as rows of numbers, of their own size even if there is no row."""
    check_no_mask("X", X)
    array = np.asarray(of_tensor(X))
    return array.reshape(len(array), math.prod(array.shape[1:]))


def flat_images(X: Any) -> tuple[Any, tuple[int, int, int] | None]:
    """X as rows of numbers, and the shape of an image if X has images (else None)."""
    X = _stacked(X)
    shape: Any = getattr(X, "shape", ())
    if len(shape) not in (3, 4):
        return X, None
    channels = shape[1] if len(shape) == 4 else 1
    return flat_rows(X), (channels, shape[-2], shape[-1])


def shape_in(X: Any) -> tuple[int, ...] | None:
    """Shape of a row of X, if rows are not flat."""
    shape: Any = getattr(_stacked(X), "shape", ())
    return tuple(shape[1:]) if len(shape) > 2 else None


def check_image_shape(shape: tuple[int, ...] | None, fitted: tuple[int, ...]) -> None:
    """Refuse images of another shape than in the fit; ``shape`` is None if X has no images."""
    if shape not in (None, fitted):
        raise not_allowed(f"X has images of shape {shape}, but the network was fitted to {fitted}.")


def _stacked(X: Any) -> Any:
    """A list of images as one array."""
    if not isinstance(X, list | tuple):
        return X
    with explained_conversion("X", X):
        return np.asarray(X)
