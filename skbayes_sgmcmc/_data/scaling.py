"""Means and standard deviations of columns, for standardisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.sparsefuncs import mean_variance_axis

from .._arrays import Array
from .._limits import LIMITS
from .rows import StoredRows

#: deviations from a constant, in units of its last bit, that still count as constant
ROUNDING = 10.0
#: sd of a normal distribution over the median of the distances from its median
SD_OVER_MAD = 1.4826
#: distance between the quartiles of a normal distribution, in its sds
NORMAL_QUARTILES = 1.349
#: features have the same unit if their values are at most this many different ones
MOST_VALUES = 256
#: features that are mostly zero have the same unit if there are so many of them, and the sizes of
#: nine tenths of them, where they are not zero, differ by at most this factor; of the others, those
#: that are not further away than this have it, too
LEAST_WORDS = 10
ONE_UNIT = 10.0


def center_and_scale(X: Array, weight: Array | None, axis: Any = 0) -> tuple[Array, Array]:
    """Weighted mean and standard deviation along ``axis``; a scale of 1 for constants.

    Constants with rounding errors above 1, such as times in nanoseconds, have a larger scale.
    """
    if sp.issparse(X):
        center, sd = _of_csr(X, weight)
    elif axis == 0 and _is_large(X):
        center, sd = _by_blocks(X, weight)
    else:
        # squares of numbers near the ends of the range overflow, or are zero: multiplied by powers
        # of two, which rounds nothing, the numbers are of the order of one
        unit = _unit(X, axis)
        found = _moments(X if unit is None else np.ldexp(X, -unit), weight, axis)
        center, sd = (each[0] if unit is None else np.ldexp(each, unit)[0] for each in found)
    rounding = ROUNDING * np.finfo(X.dtype).eps * np.abs(center)
    return center, np.where(sd == 0.0, np.maximum(1.0, rounding), sd)


def robust_center_and_scale(y: Array, weight: Array | None) -> tuple[Array, Array]:
    """The same by medians, on which a few values of any size have no influence.

    The scale is that of the median distance from the median (MAD), among values that differ from it
    if most do not.
    """
    weight = np.ones(len(y)) if weight is None else weight
    center, scale = np.empty(y.shape[1]), np.ones(y.shape[1])
    for j, column in enumerate(y.T):
        center[j] = _median(column, weight)
        away = np.abs(column - center[j])
        rounding = ROUNDING * np.finfo(y.dtype).eps * abs(center[j])
        for some in (away >= 0.0, away > rounding):
            found = SD_OVER_MAD * _median(away[some], weight[some]) if some.any() else 0.0
            if found > rounding:
                scale[j] = found
                break
        else:
            scale[j] = max(1.0, rounding)
    return center, scale


def _median(values: Array, weight: Array) -> float:
    """Median of values; one of weight two counts as two."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order], dtype=np.float64)
    ends = [np.searchsorted(reached, 0.5 * reached[-1], side) for side in ("left", "right")]
    low, high = values[order[np.minimum(ends, len(values) - 1)]]
    return float(0.5 * low + 0.5 * high)


def _by_blocks(X: Any, weight: Array | None) -> tuple[Array, Array]:
    """Means and standard deviations as of :func:`_moments`, without a copy of X."""
    unit = _unit_of_columns(X)
    total = float(len(X) if weight is None else weight.sum(dtype=np.float64))

    def mean(of: Any) -> Array:
        found: Any = 0.0
        for rows, x in _blocks(X):
            values = of(x if unit is None else np.ldexp(x, -unit))
            if weight is None:
                found = found + values.sum(axis=0, dtype=np.float64)
            else:
                found = found + weight[rows].astype(np.float64) @ values
        return np.asarray(found / total)

    center = mean(lambda x: x).astype(X.dtype)
    both = mean(lambda x: np.hstack([np.square(x - center), x - center]))
    variance, drift = np.split(both, 2)
    sd = _sd(variance.astype(X.dtype), center, drift)
    return (center, sd) if unit is None else (np.ldexp(center, unit), np.ldexp(sd, unit))


def _of_csr(X: Any, weight: Array | None) -> tuple[Array, Array]:
    """Means and standard deviations as of :func:`_moments`, of a CSR matrix."""
    unit = _unit_of_columns(X)
    if unit is not None:
        X = sp.csr_matrix((np.ldexp(X.data, -unit[X.indices]), X.indices, X.indptr), X.shape)
    center, variance = (
        each.astype(X.dtype) for each in mean_variance_axis(X, axis=0, weights=weight)
    )
    sd = _sd(variance, center, 0.0)
    return (center, sd) if unit is None else (np.ldexp(center, unit), np.ldexp(sd, unit))


def _ends(X: Any) -> tuple[Array, Array]:
    """The smallest and the largest number of each column."""
    if sp.issparse(X):
        return X.min(axis=0).toarray()[0], X.max(axis=0).toarray()[0]
    if not _is_large(X):
        return X.min(axis=0), X.max(axis=0)
    ends = [(x.min(axis=0), x.max(axis=0)) for _, x in _blocks(X)]
    return np.min([e[0] for e in ends], axis=0), np.max([e[1] for e in ends], axis=0)


def _is_large(X: Any) -> bool:
    return isinstance(X, StoredRows) or X.nbytes > LIMITS.held_bytes


def _blocks(X: Any) -> Iterator[tuple[slice, Array]]:
    return (X if isinstance(X, StoredRows) else StoredRows(X)).blocks()


def scale_of_effects(
    X: Any,
    weight: Array | None,
    moments: tuple[Array, Array] | None = None,
    *,
    by_values: bool = False,
) -> Array:
    """The scale of every feature for priors of its effect; 1 for constants.

    It is the standard deviation, but one for all that have the same unit: the root mean square of
    theirs. Of many that are zero in most rows, such as counts or weights of words and indicators,
    the effect of a single one would otherwise be the larger, the rarer it is. With ``by_values``,
    as inputs of networks need it, pixels, ratings, yes and no are the same unit, too. ``moments``
    are the features' centres and scales, if they are known.
    """
    moments = center_and_scale(X, weight) if moments is None else moments
    center, scale = (each.astype(np.float64) for each in moments)
    share = _share_of_others(X, weight)
    size = np.hypot(center, scale) / np.sqrt(share.clip(np.finfo(float).tiny))
    rare = (share > 0.0) & (share < 0.5)
    if rare.sum() >= LEAST_WORDS:
        low, high = np.quantile(size[rare], (0.05, 0.95))
        if high <= ONE_UNIT * low:
            same = rare & (size <= ONE_UNIT * high) & (ONE_UNIT * size >= low)
            scale[same] = np.sqrt(np.mean(np.square(scale[same])))
    if by_values:
        scale = scale.astype(moments[1].dtype)
        varies = _of_few_values(X)
        if varies.any():
            scale[varies] = np.sqrt(np.mean(np.square(scale[varies], dtype=np.float64)))
    return scale


def _of_few_values(X: Any) -> Array:
    """Which features are not constant, if all their values are among a few; none of them otherwise.

    Half of them must have the smallest and the largest of these: pixels, ratings, yes or no. Pixels
    that are rarely other than black, divided by their own standard deviation, would be the largest
    numbers of all.
    """
    low, high = _ends(X)
    varies = low < high
    whole = (low == low.min()) & (high == high.max())
    some = X[:: -(-X.shape[0] // 1000)]
    values = np.unique(np.append(some.data, 0) if sp.issparse(X) else some)
    few = len(values) <= min(MOST_VALUES, 0.05 * X.shape[0] * X.shape[1])
    return varies & (few and whole.sum() >= varies.sum() / 2)


def _share_of_others(X: Any, weight: Array | None) -> Array:
    """Of every column, the share of rows by weight whose number is not zero."""
    if sp.issparse(X):
        others = ((X.data != 0.0).astype(np.float64), X.indices, X.indptr)
        found = sp.csr_matrix(others, shape=X.shape)
        return np.asarray(mean_variance_axis(found, axis=0, weights=weight)[0])
    weight = np.ones(len(X)) if weight is None else weight
    blocks = _blocks(X) if _is_large(X) else [(slice(None), X)]
    return np.asarray(sum(weight[rows] @ (x != 0.0) for rows, x in blocks) / weight.sum())


def _unit(X: Array, axis: Any) -> Any:
    """Powers of two near the largest numbers along ``axis``; None: squares of X are safe."""
    largest = np.maximum(X.max(axis=axis, keepdims=True), -X.min(axis=axis, keepdims=True))
    powers = np.frexp(largest)[1]
    limit = np.finfo(X.dtype).maxexp // 2 - 30  # bits for sums and small spreads
    return None if (np.abs(powers) <= limit).all() else powers


def _unit_of_columns(X: Any) -> Any:
    """The same for the columns of X, of which there may be no copy."""
    powers = _unit(np.stack(_ends(X)), 0)
    return None if powers is None else powers[0]


def _moments(X: Array, weight: Array | None, axis: Any) -> tuple[Array, Array]:
    """Means and standard deviations."""
    center = _mean(X, weight, axis).astype(X.dtype)
    away = X - center
    drift = _mean(away, weight, axis)
    variance = _mean(np.square(away, out=away), weight, axis).astype(X.dtype)
    return center, _sd(variance, center, drift)


def _sd(variance: Array, center: Array, drift: Array | float) -> Array:
    """Standard deviations; 0 for constants, whatever rounding leaves.

    ``drift`` is the mean distance from the centre, which sums of many rows round: that of 1,319
    equal numbers was 60 times the last bit away from them.
    """
    rounding = ROUNDING * np.finfo(center.dtype).eps * np.abs(center)
    return np.where(variance - np.square(drift) <= rounding**2, 0.0, np.sqrt(variance))


def _mean(X: Array, weight: Array | None, axis: Any) -> Array:
    # summed in float64, because a float32 sum of many numbers loses the last ones
    if weight is None:
        return np.asarray(X.mean(axis=axis, dtype=np.float64, keepdims=True))
    weight = weight.astype(np.float64).reshape(-1, *[1] * (X.ndim - 1))
    mean = np.average(X, axis=axis, weights=np.broadcast_to(weight, X.shape), keepdims=True)
    return np.asarray(mean)
