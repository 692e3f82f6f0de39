"""Draws that left the posterior for a while, which the medians of all draws do not show."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainccinv
from torch import Tensor

from .._arrays import Array
from .._draws.storage import decode
from .._limits import LIMITS
from .settled import log_likelihoods
from .target import Target


@dataclass(frozen=True, slots=True)
class StrayRules:
    """From where on a draw is astray; tests/test_strays.py has a test for each number."""

    #: number of training rows, evenly spaced
    rows: int = 200
    #: a log likelihood this many times further below the typical one than that of one draw in
    #: 1 / rare of a log-concave posterior. Draws of well-sampled networks reach 3
    far: float = 5.0
    rare: float = 1e-6
    #: least loss of a row. Of many rows, the noise of minibatches costs draws more than ``far``
    #: says, and their predictions little
    least: float = 0.5
    #: standard errors of a log likelihood that is estimated from some rows
    sure: float = 5.0
    #: fewest draws of a chain that are looked at, and the largest loss of a row
    fewest: int = 12
    most_lost: float = 1e9


STRAYS = StrayRules()


def stray_draws(target: Target, draws: Array, temperature: float) -> tuple[float, float] | None:
    """The share of the draws that are astray, and the largest mean loss of a row, or None.

    Losses are in log likelihood. Compared are draws of one chain, because the chains of networks
    are in different modes. Log densities of a log-concave posterior with k parameters vary by no
    more than a gamma variable of shape k (Fradelizi, Madiman & Wang 2016). Likelihoods vary in
    about as many directions as there are rows, at most.
    """
    n_chains, n_draws, d = *draws.shape[:2], target.model.n_parameters
    batch, data = target.some_rows(STRAYS.rows), target.data
    most = max(LIMITS.checked_products // (batch.size * d * n_chains), STRAYS.fewest)
    some = np.linspace(0, n_draws - 1, min(most, n_draws)).astype(int)
    with np.errstate(all="ignore"):
        logs = log_likelihoods(target, decode(draws[:, some, :d]).reshape(-1, d), batch)
        logs = logs.reshape(n_chains, len(some), batch.size)
        typical = np.argsort(logs.sum(axis=2), axis=1)[:, len(some) // 2]
        lost = logs[np.arange(n_chains), typical][:, None] - logs
        lost = np.nan_to_num(lost, nan=STRAYS.most_lost).clip(-STRAYS.most_lost, STRAYS.most_lost)
    if isinstance(batch.weight, Tensor):
        weight = batch.weight.double().cpu().numpy().reshape(-1)
        lost *= weight / weight.mean()
    mean = lost.mean(axis=2)
    error = lost.std(axis=2) * math.sqrt((1.0 - batch.size / data.n_rows) / batch.size)
    k = min(d, data.n_rows)
    usual = temperature * (float(gammainccinv(k, STRAYS.rare)) - k) / data.total
    astray = mean - STRAYS.sure * error > max(STRAYS.far * usual, STRAYS.least)
    return (float(astray.mean()), float(mean.max())) if astray.any() else None
