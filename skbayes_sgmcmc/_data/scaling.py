"""Means and standard deviations of columns, for standardisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.sparsefuncs import mean_variance_axis

Array = NDArray[Any]

#: bits of a number's range that are left for sums and small spreads
SPARE_BITS = 30
#: deviations from a constant, in units of its last bit, up to which numbers are taken as constant
ROUNDING = 10.0


def center_and_scale(X: Array, weight: Array | None, axis: Any = 0) -> tuple[Array, Array]:
    """Weighted mean and standard deviation along ``axis``; a scale of 1 for constants.

    Constants whose rounding errors are above 1, such as times in nanoseconds, have a larger scale.
    """
    # squares of numbers near the ends of the range overflow, or are zero: multiplied by powers of
    # two, which rounds nothing, the numbers are of the order of one
    unit = _unit(X, axis)
    center, sd = _moments(X if unit is None else np.ldexp(X, -unit), weight, axis)
    if unit is not None:
        center, sd = np.ldexp(center, unit), np.ldexp(sd, unit)
    rounding = ROUNDING * np.finfo(X.dtype).eps * np.abs(center)
    return center[0], np.where(sd == 0.0, np.maximum(1.0, rounding), sd)[0]


def sparse_scale(X: Any, weight: Array | None) -> Array:
    """Weighted standard deviations of the columns of a CSR matrix; 1 for constants."""
    variance = mean_variance_axis(X, axis=0, weights=weight)[1]
    return np.where(variance > 0.0, np.sqrt(variance), 1.0)


def _unit(X: Array, axis: Any) -> Any:
    """Powers of two near the largest numbers along ``axis``; None: squares of X are safe."""
    largest = np.maximum(X.max(axis=axis, keepdims=True), -X.min(axis=axis, keepdims=True))
    powers = np.frexp(largest)[1]
    limit = np.finfo(X.dtype).maxexp // 2 - SPARE_BITS
    return None if (np.abs(powers) <= limit).all() else powers


def _moments(X: Array, weight: Array | None, axis: Any) -> tuple[Array, Array]:
    """Means and standard deviations; 0 for constants, whatever rounding leaves."""
    center = _mean(X, weight, axis).astype(X.dtype)
    away = X - center
    variance = _mean(np.square(away, out=away), weight, axis).astype(X.dtype)
    constant = variance <= (ROUNDING * np.finfo(X.dtype).eps * np.abs(center)) ** 2
    return center, np.where(constant, 0.0, np.sqrt(variance))


def _mean(X: Array, weight: Array | None, axis: Any) -> Array:
    # summed in float64, because a float32 sum of many numbers loses the last ones
    if weight is None:
        return np.asarray(X.mean(axis=axis, dtype=np.float64, keepdims=True))
    weight = weight.astype(np.float64).reshape(-1, *[1] * (X.ndim - 1))
    mean = np.average(X, axis=axis, weights=np.broadcast_to(weight, X.shape), keepdims=True)
    return np.asarray(mean)
