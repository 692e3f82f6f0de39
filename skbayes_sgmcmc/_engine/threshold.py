"""The sampling threshold (Welling & Teh 2011, section 4.1) of a run, at one position."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..diagnostics import sampling_threshold
from ..models._scores import largest_score_variance, score_covariance
from ..samplers import Sampler
from .target import Target

Array = NDArray[Any]


def threshold_per_step(
    target: Target,
    sampler: Sampler,
    root: Array | None,
    theta: torch.Tensor,
    *,
    batch_size: int,
    temperature: float,
) -> float:
    """alpha_t / eta at one position theta (1, n_parameters).

    ``root`` is the root of the preconditioner; None means that there is no preconditioner.
    """
    model, data = target.model, target.data
    if sampler.uses_metric(model.metric):
        covariance = np.atleast_2d(largest_score_variance(model, data, theta))
    else:
        covariance = score_covariance(model, data, theta)
    return sampling_threshold(
        covariance,
        step_size=1.0,
        n=target.n,
        batch_size=batch_size,
        temperature=max(temperature, 1e-12),
        root=root,
    )
