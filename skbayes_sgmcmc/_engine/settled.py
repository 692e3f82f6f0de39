"""When a run has enough draws: what they predict no longer moves, next to how far it spreads."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._data.minibatch import Batch
from .._draws.storage import decode
from .._limits import LIMITS, slices
from .lengths import Plan
from .target import Target


@dataclass(frozen=True, slots=True)
class SettlingRules:
    """From where on draws are settled; docs/results/early_ends.md has what it saves and costs."""

    #: number of training rows, evenly spaced
    rows: int = 100
    #: largest difference of the means of the two halves of the draws, in sds of all draws: the
    #: median over the rows. The Monte Carlo error of the mean over all draws is half of it
    moved: float = 0.15
    #: largest gain in the mean log likelihood of a row from the first half to the second. Chains
    #: that still learn gain, however small the difference is beside the spread of the draws
    gain: float = 0.006
    #: fall of the potential while draws are kept, in units of its own sd in a posterior of so many
    #: parameters, sqrt(d / 2), and in standard errors between chains; and how many of a chain's
    #: draws it is computed for, at either end
    fall: float = 2.0
    sure_fall: float = 2.0
    fall_draws: int = 6
    #: fewest draws that show whether the potential falls, or how far they are spread
    enough_draws: int = 12


SETTLING = SettlingRules()


def settled(target: Target, draws: Array, temperature: float) -> bool:
    """Whether draws (chains, draws, n_kept) are enough.

    Judged by the log likelihood of some training rows given each draw, in the first half of the
    draws and in the second.
    """
    half = draws.shape[1] // 2
    if half == 0 or fall_of_potential(target, draws, temperature) is not None:
        return False
    d, batch = target.model.n_parameters, target.some_rows(SETTLING.rows)
    theta = decode(draws[:, : 2 * half, :d])
    # (halves, draws, rows)
    logs = log_likelihoods(target, theta.swapaxes(0, 1).reshape(-1, d), batch)
    logs = logs.reshape(2, -1, batch.size)
    before, after = logs.mean(axis=1)
    spread = logs.std(axis=(0, 1)).clip(np.finfo(float).tiny)
    weight = batch.weight.double().cpu().numpy() if isinstance(batch.weight, Tensor) else None
    gain = float(np.average(after - before, weights=weight))
    moved = float(np.median(np.abs(after - before) / spread))
    return gain <= SETTLING.gain and moved <= SETTLING.moved


def can_tell(plan: Plan, draws: Array) -> bool:
    """Whether there are enough draws, above temperature 0, of a posterior of all rows."""
    enough = draws.shape[1] >= SETTLING.enough_draws
    return enough and plan.first_temperature != 0.0 and not plan.more_rows


def log_likelihoods(target: Target, theta: Array, batch: Batch) -> Array:
    """Log likelihoods of rows given each of some positions, (positions, rows)."""
    parts = slices(len(theta), max(1, LIMITS.sampled_rows // batch.size))
    with torch.no_grad():
        found = [
            target.model.log_lik(torch.from_numpy(theta[p]).to(target.like), batch) for p in parts
        ]
    return torch.cat(found).double().cpu().numpy()


def fall_of_potential(target: Target, draws: Array, temperature: float) -> float | None:
    """How far the potential falls over the draws, in its sds; None if that is nothing unusual."""
    n_chains, n_draws, d = *draws.shape[:2], target.model.n_parameters
    third = np.linspace(0, n_draws // 3, SETTLING.fall_draws).astype(int)
    with np.errstate(all="ignore"):  # draws that are not finite are an error of their own
        first, last = (
            target.log_joint_of_rows(draws[:, part, :d].reshape(-1, d), LIMITS.sampled_rows)
            .astype(float)
            .reshape(n_chains, -1)
            .mean(axis=1)
            for part in (third, n_draws - 1 - third)
        )
        falls = (last - first) / (temperature * math.sqrt(0.5 * d))
        fall, error = float(falls.mean()), 0.0
        if n_chains > 1:  # potentials that wander for long rise in some chains
            error = float(falls.std(ddof=1)) / math.sqrt(n_chains)
    return fall if fall > max(SETTLING.fall, SETTLING.sure_fall * error) else None
