r"""Likelihood of numbers of successes in a known number of trials."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import logit
from torch import Tensor

from ..._arrays import Array
from ..._exceptions import not_allowed
from . import predictive
from .base import Likelihood, refuse_targets
from .slopes import Compiled


class Binomial(Likelihood):
    r"""Binomial distribution of one output, the log odds of a success.

    .. math::
        p(y|f) = \binom{n}{y} p^y (1 - p)^{n - y},\quad p = \frac{1}{1 + e^{-(f + c)}}

    The trials n of a row are known: they are the second column of its targets and, in
    :meth:`predictive`, the second output. c is the logit of the typical probability, (1,).
    """

    n_outputs = 1

    def __init__(self, typical: Array):
        self.center = float(logit(typical[0]))

    @staticmethod
    def check_targets(y: Array) -> None:
        bad = y[(y[:, 0] < 0.0) | (y[:, 0] != np.floor(y[:, 0])), 0]
        refuse_targets(bad, "likelihood='binomial'", "whole numbers, 0 or more")
        above = np.flatnonzero(y[:, 0] > y[:, 1])
        if len(above):
            successes, trials = y[above[0]]
            raise not_allowed(
                f"y with {successes:g} successes in n_trials of {trials:g} (row {above[0]}) is not "
                "allowed: give numbers of successes in y, and in the column n_trials numbers that "
                "are at least as large."
            )

    @staticmethod
    def typical_means(y: Array, weight: Array | None) -> Array:
        """Share of successes; half a trial more of both outcomes if one of them is missing."""
        successes, trials = np.average(y, axis=0, weights=weight)
        least = 0.5 / (len(y) if weight is None else float(weight.sum()))
        failures = max(trials - successes, least)
        successes = max(successes, least)
        return np.array([successes / (successes + failures)])

    @staticmethod
    def bounds_intercept(y: Array) -> bool:
        return bool((y[:, 0] > 0.0).any() and (y[:, 0] < y[:, 1]).any())

    def log_density(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        logits, successes, trials = f[..., 0] + self.center, y[..., 0], y[..., 1]
        ways = torch.lgamma(trials + 1.0) - torch.lgamma(successes + 1.0)
        ways = ways - torch.lgamma(trials - successes + 1.0)
        return ways + successes * logits - trials * torch.nn.functional.softplus(logits)

    def compiled(self, y: Array) -> Compiled | None:
        return Compiled("shares", self.center, y[:, 0] / np.maximum(y[:, 1], 1.0), weight=y[:, 1])

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, None]:
        expected = torch.sigmoid(f + self.center).mul_(y[..., 1:])
        return torch.sub(expected, y[..., :1], out=f), None

    def predictive(self, f: Tensor, own: Tensor) -> predictive.Predictive:
        logits = f[..., :1] + self.center
        return predictive.Binomial(f[..., 1:], torch.sigmoid(logits), torch.sigmoid(-logits))
