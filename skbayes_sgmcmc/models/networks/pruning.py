"""Magnitude pruning inside sampling."""

from __future__ import annotations

import math
from typing import Any

import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from ..._validation import check_int, check_layers, check_real

#: share of the final sparsity that a run must come to, and that the automatic period comes to
REACHED, SETTLED = 0.9, 0.99
#: automatic start, in shares of a run, and the share of the rest after which it is settled: at half
#: of a run
TRAINING, GROWTH = 1 / 4, 1 / 3


class Pruning(BaseEstimator):
    r"""Set the smallest coefficients of sparse layers to zero while sampling.

    After step k of a run the share :math:`s_k = S (1 - D^{(k-k_0)/f})` of smallest magnitude, over
    all sparse layers of a chain and to the nearest whole number but the last, is zero, with k_0 the
    ``start``. Which coefficients these are, and how many, is decided again every ``interval``
    steps. They are set to zero after every step, so that one of them comes back only where a single
    step takes it beyond others: ``start`` has to leave time for them to be learned first.

    Parameters
    ----------
    sparsity : float, default=0.9
        S, the share at the end, in [0, 1).
    decay : float, default=0.99
        D, in (0, 1).
    period : float or "auto", default="auto"
        f, in steps; "auto": such that 0.99 S is reached after a third of the steps from the start.
    start : int or "auto", default="auto"
        Step k_0 after which the share begins to grow; "auto": a quarter of the run.
    interval : int, default=50
        Steps between two choices of the coefficients.
    layers : "auto", "all" or list of str, default="auto"
        Layers whose weights are pruned, by the names that :class:`SpikeSlab` takes. "auto": those
        of a spike-and-slab prior, or all layers with another prior.

    References
    ----------
    Deng, Zhang, Liang & Lin (2019), An adaptive empirical Bayesian method for sparse deep learning,
    algorithm 1.

    Examples
    --------
    >>> from skbayes_sgmcmc import Pruning
    >>> round(Pruning(sparsity=0.9, decay=0.99, period=50, start=0).rate(5000), 3)
    0.571
    """

    def __init__(
        self,
        sparsity: float = 0.9,
        decay: float = 0.99,
        period: float | str = "auto",
        start: int | str = "auto",
        interval: int = 50,
        layers: Any = "auto",
    ):
        self.sparsity = sparsity
        self.decay = decay
        self.period = period
        self.start = start
        self.interval = interval
        self.layers = layers

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is the object's."""
        check_real(f"{name}.sparsity", self.sparsity, low=0.0, high=1.0, closed="left")
        check_real(f"{name}.decay", self.decay, low=0.0, high=1.0)
        check_int(f"{name}.interval", self.interval)
        if not _is_auto(self.start):
            check_int(f"{name}.start", self.start, low=0)
        if not _is_auto(self.period):
            check_real(f"{name}.period", self.period, low=0.0)
        check_layers(f"{name}.layers", self.layers, ("auto", "all"))

    def for_run(self, n_steps: int) -> Pruning:
        """The schedule with the numbers of a run of so many steps.

        Raises
        ------
        ValueError
            The steps are too few for it.
        """
        start = int(TRAINING * n_steps) if isinstance(self.start, str) else self.start
        period = self.period
        if isinstance(period, str):
            growth = GROWTH * max(n_steps - start, 1)
            period = growth * math.log(self.decay) / math.log(1.0 - SETTLED)
        chosen = Pruning(self.sparsity, self.decay, period, start, self.interval, self.layers)
        choices = max(n_steps - 1 - start, 0) // self.interval
        reached = chosen.rate(start + choices * self.interval)
        if reached < REACHED * self.sparsity:
            raise ValueError(
                f"prune={self!r} is not allowed with a run of {n_steps} steps, in which the share "
                f"of zeros only comes to {reached:.3g}: give more steps (burn_in, n_draws, "
                "thinning), period='auto', or a smaller start or interval."
            )
        return chosen

    def rate(self, k: int) -> float:
        """Share of zeros after step k."""
        # for_run has chosen them
        assert not isinstance(self.period, str) and not isinstance(self.start, str)
        past = max(k - self.start, 0) / self.period
        return float(self.sparsity * (1.0 - self.decay**past))

    def chooses(self, k: int) -> bool:
        """Whether step k is one after which the zeros are chosen."""
        assert not isinstance(self.start, str)
        return k >= self.start and (k - self.start) % self.interval == 0

    def zeros(self, beta: Tensor, k: int, before: int = 0) -> Tensor:
        """Where a coefficient is to be zero, for beta (chains, coefficients).

        There are no fewer than ``before``, so that a run that goes on with pruned chains keeps
        them so, though its schedule begins anew.
        """
        size = beta.shape[1]
        n_zeros = max(round(self.rate(k) * size), min(before, round(self.sparsity * size)))
        n_zeros = min(n_zeros, size - 1)
        if n_zeros == 0:
            return torch.zeros_like(beta, dtype=torch.bool)
        magnitude = beta.abs()
        largest_zero = magnitude.kthvalue(n_zeros, dim=1, keepdim=True).values
        return magnitude <= largest_zero


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"
