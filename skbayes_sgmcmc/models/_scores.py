"""Scores (gradients of the log likelihood of single rows) at one position, and their variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._data.minibatch import Data, Minibatches
from .._limits import LIMITS
from ._linalg import largest_eigenvalue
from ._protocol import Model

Array = NDArray[Any]


def largest_score_variance(model: Model, data: Data, theta: Tensor) -> float:
    """Largest eigenvalue of M^(1/2) V_s M^(1/2) at one position, where M is the model's metric.

    V_s is the covariance of the scores of single rows. Power iteration with V_s M needs no matrix
    of parameters by parameters.
    """
    scores = scores_of(model, data, theta)
    scores -= scores.mean(axis=0)
    metric = model.metric(theta)

    def times(v: Array) -> Array:
        moved = metric.times(torch.from_numpy(v)[None].to(theta))[0].double().cpu().numpy()
        return np.asarray(scores.T @ (scores @ moved) / max(len(scores) - 1, 1))

    return largest_eigenvalue(times, scores.shape[1])


def scores_of(model: Model, data: Data, theta: Tensor) -> Array:
    """Weighted scores (rows, n_parameters) of some rows at one position."""
    some = min(data.n_rows, LIMITS.sampled_rows)
    rows = np.unique(np.linspace(0, data.n_rows - 1, some).astype(int))
    batch = Minibatches(data, len(rows)).batch_of(rows)
    with torch.no_grad():
        scores = np.asarray(model.scores(theta, batch).cpu(), dtype=float)
    if data.weight is not None:
        scores *= np.asarray(torch.as_tensor(batch.weight).cpu(), dtype=float)[:, None]
    return scores
