"""Predictions averaged over draws, with memory bounded whatever the number of rows and draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch, gen_batches

Array = NDArray[Any]

#: numbers in one block of (draws, rows, outputs)
BLOCK_NUMBERS = 2**21

#: ``predict(draw slice, rows)`` returns the outputs (draws, rows, outputs) of one block
Predict = Callable[[slice, Any], Array]


def blocks(n_rows: int, n_draws: int, n_outputs: int) -> Iterator[tuple[slice, list[slice]]]:
    """Row blocks and, for each, draw blocks, such that one block has at most ``BLOCK_NUMBERS``."""
    rows_at_once = max(1, min(n_rows, BLOCK_NUMBERS // (n_outputs * min(n_draws, 64))))
    draws_at_once = max(1, BLOCK_NUMBERS // (n_outputs * rows_at_once))
    draws = list(gen_batches(n_draws, draws_at_once))
    for rows in gen_batches(n_rows, rows_at_once):
        yield rows, draws


def average(predict: Predict, x: Any, n_draws: int, n_outputs: int, weights: Array | None) -> Array:
    """Weighted mean over draws of the outputs, (rows, n_outputs)."""
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
    predict: Predict, x: Any, n_draws: int, n_outputs: int, weights: Array | None
) -> Bunch:
    """Entropies in nats of the averaged probabilities, and their split; each of shape (rows,).

    total: entropy of the mean; aleatoric: mean of the draws' entropies; epistemic: the
    difference, the mutual information between label and parameters.
    """

    def with_entropy(draws: slice, part: Any) -> Array:
        p = predict(draws, part)
        return np.concatenate([p, entropy(p)[:, :, None]], axis=2)

    averaged = average(with_entropy, x, n_draws, n_outputs + 1, weights)
    total, aleatoric = entropy(averaged[:, :-1]), averaged[:, -1]
    return Bunch(total=total, aleatoric=aleatoric, epistemic=np.maximum(total - aleatoric, 0.0))


def entropy(p: Array) -> Array:
    """Entropy in nats over the last axis."""
    return -np.sum(p * np.log(np.where(p > 0.0, p, 1.0)), axis=-1)
