"""The sampling threshold (Welling & Teh 2011, section 4.2) of a run, at one position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..diagnostics import sampling_threshold
from ..models._scores import largest_score_variance, score_covariance
from ..samplers import Sampler
from .target import Target

if TYPE_CHECKING:
    from .run import Run

Array = NDArray[Any]

#: number of points in the trace of the sampling threshold, and of draws for each median
TRACE_POINTS, TRACE_DRAWS = 50, 5


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


def threshold_trace(run: Run) -> dict[str, Array]:
    """alpha_t along the run: eta of each step times the median of alpha_t / eta over some draws."""
    flat = run.draws.reshape(-1, run.draws.shape[2])
    spaced = np.unique(np.linspace(0, len(flat) - 1, TRACE_DRAWS).astype(int))
    theta = torch.from_numpy(flat[spaced]).to(run.target.like)
    ratio = np.median([run.alpha(one[None]) for one in theta])
    step = np.unique(np.geomspace(1, run.n_steps, TRACE_POINTS).astype(int))
    eta = run.plan.step_size.values(step - 1, run.plan.n_steps)
    return {"step": step, "noise_ratio": ratio * eta}
