"""Predictions averaged over draws, with bounded memory for any number of rows and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import Bunch

from .._arrays import Array
from .._limits import LIMITS, slices

if TYPE_CHECKING:
    from torch import Tensor


#: ``predict(draws, rows)``, for a slice of draws, returns the outputs (draws, rows, outputs)
Predict = Callable[[slice, Any], Array]


def blocks(
    n_rows: int, n_draws: int, n_outputs: int, most_draws: float = math.inf
) -> Iterator[tuple[slice, list[slice]]]:
    """Blocks of rows and, for each, blocks of draws, of ``LIMITS.block_numbers`` at most."""
    at_once = LIMITS.block_numbers // n_outputs
    rows_at_once = max(1, min(n_rows, at_once // min(n_draws, 64)))
    draws_at_once = int(max(1, min(at_once // rows_at_once, most_draws)))
    draws = list(slices(n_draws, draws_at_once))
    for rows in slices(n_rows, rows_at_once):
        yield rows, draws


def tensor_of(draws: Array) -> Tensor:
    """Draws as a tensor. Those of a read-only file are copied: tensors can be written to."""
    import torch

    draws = draws.view()
    with suppress(ValueError):
        draws.flags.writeable = True
    return torch.from_numpy(np.require(draws, requirements="W"))


def average(predict: Predict, x: Any, n_draws: int, n_outputs: int, weights: Array | None) -> Array:
    """Weighted mean of the outputs over draws, shape (rows, n_outputs)."""
    out = np.zeros((x.shape[0], n_outputs))
    for rows, draw_blocks in blocks(x.shape[0], n_draws, n_outputs):
        part = x[rows]
        for draws in draw_blocks:
            values = predict(draws, part)
            if weights is None:
                out[rows] += values.sum(axis=0, dtype=np.float64)
            else:
                out[rows] += np.tensordot(weights[draws], values, axes=1)
        if weights is None:
            out[rows] /= n_draws
    return out


def uncertainty(
    predict: Predict, x: Any, n_draws: int, sizes: Sequence[int], weights: Array | None
) -> Bunch:
    """Total, aleatoric and epistemic uncertainty in nats, each of shape (rows, targets).

    ``sizes`` are the numbers of classes of the targets, which have these outputs one after another.
    The total uncertainty is the entropy of the averaged probabilities. The aleatoric uncertainty is
    the average over draws of the entropy of each draw's probabilities. The epistemic uncertainty is
    the difference: the mutual information between label and parameters.
    """

    def with_entropy(draws: slice, part: Any) -> Array:
        p = predict(draws, part)
        return np.concatenate([p, entropies(p)], axis=2)

    def entropies(p: Array) -> Array:
        parts = np.split(p, np.cumsum(sizes)[:-1], axis=-1)
        return np.stack([entropy(part) for part in parts], axis=-1)

    n_outputs = sum(sizes)
    averaged = average(with_entropy, x, n_draws, n_outputs + len(sizes), weights)
    total, aleatoric = entropies(averaged[:, :n_outputs]), averaged[:, n_outputs:]
    return Bunch(total=total, aleatoric=aleatoric, epistemic=np.maximum(total - aleatoric, 0.0))


def entropy(p: Array) -> Array:
    """Entropy in nats over the last axis."""
    return -np.sum(p * np.log(np.where(p > 0.0, p, 1.0)), axis=-1)


def smallest_set(proba: Array, coverage: float) -> Array:
    """Which classes are in the smallest set of each row (rows, classes) with this probability."""
    order = np.argsort(-proba, axis=1, kind="stable")
    falling = np.take_along_axis(proba, order, axis=1)
    needed = falling.cumsum(axis=1) - falling < coverage  # by the classes before it
    found = np.zeros(proba.shape, bool)
    np.put_along_axis(found, order, needed, axis=1)
    return found
