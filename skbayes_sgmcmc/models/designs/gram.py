"""Weighted sums of products of columns, in the precision of the rows where that is enough."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._arrays import Array

#: mean squares below which single precision may have lost some
SMALL_SQUARE = 1e-30


def gram_with_ones(blocks: Iterator[tuple[slice, Array]], weight: Array, width: int) -> Array:
    """Sum over rows of weight * z z', for z = (x, 1) with ``width`` numbers in x, in float64.

    Blocks of rows in float32 are multiplied in float32: first shifted near the columns' means, and
    the sums are shifted back in float64, so that columns with a mean that is much larger than their
    spread lose nothing. Where squares leave the range of float32, the block is taken in float64.
    """
    total = np.zeros((width + 1, width + 1))
    top = float(np.abs(weight).max(initial=0.0))
    if not top > 0.0:
        return total if top == 0.0 else total + np.nan
    buffer: Array | None = None
    for rows, x in blocks:
        if buffer is None or len(buffer) < len(x):
            buffer = np.empty((len(x), width + 1), x.dtype)
        scaled = weight[rows] / top
        with np.errstate(all="ignore"):
            part = _products(x, scaled, buffer[: len(x)])
            if part is None:
                wide = x.astype(np.float64)
                part = _products(wide, scaled, np.empty((len(x), width + 1)))
        assert part is not None
        total += part
    return top * total


def _products(x: Array, weight: Array, z: Array) -> Array | None:
    """The sum for one block, or None if its precision is not enough; ``z`` is memory for it."""
    p = x.shape[1]
    shift = _shift(x)
    near = x if shift is None else np.subtract(x, shift, out=z[:, :p])
    z[:, p] = 1.0
    low, high = weight.min(), weight.max()
    if low >= 0.0 or high <= 0.0:  # a matrix by itself: half of the multiplications
        size = np.sqrt(np.abs(weight)).astype(x.dtype)
        np.multiply(near, size[:, None], out=z[:, :p])
        z[:, p] = size
        product = z.T @ z if low >= 0.0 else -(z.T @ z)
    else:
        z[:, :p] = near
        product = (z * weight[:, None].astype(x.dtype)).T @ z
    if x.dtype != np.float64:
        squares = np.diagonal(product)[:p, None]
        if not np.isfinite(product).all() or left_range(squares, z[:, :p], square=True):
            return None
    found = product.astype(np.float64)
    if shift is None:
        return np.asarray(found)
    away = shift.astype(np.float64)
    moved = np.outer(away, found[p])
    moved[:, :p] += 0.5 * found[p, p] * away[:, None] * away
    found[:p] += moved
    found[:, :p] += moved.T
    return np.asarray(found)


def _shift(x: Array) -> Array | None:
    """Means of some rows, if a column's is 10 sds from zero, so that rounding would count."""
    some = x[:256].astype(np.float64)
    mean = some.mean(0)
    if (np.abs(mean) <= 10.0 * some.std(0)).all():
        return None
    return np.asarray(mean.astype(x.dtype))


def left_range(sums: Array, x: Array, *, square: bool) -> bool:
    """Whether single precision may not hold sums over rows x, or over their squares."""
    if not np.isfinite(sums).all():
        return True
    if not square:
        return False
    small = (np.abs(sums) < SMALL_SQUARE * len(x)).all(axis=1)
    return bool(small.any() and (x[:, small] != 0.0).any())
