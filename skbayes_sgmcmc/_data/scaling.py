"""Means and standard deviations of columns, for standardisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def center_and_scale(X: Array, weight: Array | None, axis: Any = 0) -> tuple[Array, Array]:
    """Weighted mean and standard deviation along ``axis``; the scale of constants is 1."""
    center = _mean(X, weight, axis).astype(X.dtype)
    away = X - center
    variance = _mean(np.square(away, out=away), weight, axis).astype(X.dtype)
    constant = variance <= (10.0 * np.finfo(X.dtype).eps * np.abs(center)) ** 2
    return center[0], np.where(constant, 1.0, np.sqrt(variance))[0]


def _mean(X: Array, weight: Array | None, axis: Any) -> Array:
    # summed in float64, because a float32 sum of many numbers loses the last ones
    if weight is None:
        return np.asarray(X.mean(axis=axis, dtype=np.float64, keepdims=True))
    weight = weight.astype(np.float64).reshape(-1, *[1] * (X.ndim - 1))
    mean = np.average(X, axis=axis, weights=np.broadcast_to(weight, X.shape), keepdims=True)
    return np.asarray(mean)
