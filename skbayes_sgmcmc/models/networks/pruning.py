"""Magnitude pruning during sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ..._exceptions import not_allowed
from ..._sklearn import BaseEstimator
from ..._validation import check_int, check_layers, check_real, check_unless


class Pruning(BaseEstimator):
    r"""Magnitude pruning during sampling: the smallest coefficients are set to zero.

    After step k, the fraction :math:`s_k = S (1 - D^{(k-k_0)/f})` of coefficients with the smallest
    magnitude, pooled over all pruned layers of a chain, is set to zero. The count is rounded, and
    at least one coefficient remains. The coefficients to prune are chosen anew every ``interval``
    steps, and are set to zero after every step. A pruned coefficient returns only if a single step
    makes it larger than others, so ``start`` must leave enough steps to learn the coefficients
    first.

    Parameters
    ----------
    sparsity : float, default=0.9
        S, the final fraction of zeros, in [0, 1).
    decay : float, default=0.99
        D, in (0, 1).
    period : float or "auto", default="auto"
        f, in steps. With "auto", the fraction reaches 0.99 S after a third of the steps that follow
        ``start``.
    start : int or "auto", default="auto"
        Step k_0: the fraction grows from here on. "auto" is a quarter of the run.
    interval : int, default=50
        Number of steps from one choice of the pruned coefficients to the next.
    layers : "auto", "all" or list of str, default="auto"
        Layers with pruned weights, named as in :class:`SpikeSlab`. "auto" prunes the layers of
        a spike-and-slab prior, or all layers with another prior.

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
        layers: Sequence[str] | Literal["auto", "all"] = "auto",
    ):
        self.sparsity = sparsity
        self.decay = decay
        self.period = period
        self.start = start
        self.interval = interval
        self.layers = layers

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is that of the object."""
        check_real(f"{name}.sparsity", self.sparsity, low=0.0, high=1.0, closed="left")
        check_real(f"{name}.decay", self.decay, low=0.0, high=1.0)
        check_int(f"{name}.interval", self.interval)
        check_unless("auto", check_int, f"{name}.start", self.start, low=0)
        check_unless("auto", check_real, f"{name}.period", self.period, low=0.0)
        check_layers(f"{name}.layers", self.layers, ("auto", "all"))

    def for_run(self, n_steps: int) -> Pruning:
        """The schedule for a run of ``n_steps`` steps, with numbers in place of "auto".

        Raises
        ------
        ValueError
            The run has too few steps to reach the sparsity.
        """
        start = int(0.25 * n_steps) if isinstance(self.start, str) else self.start
        period = self.period
        if isinstance(period, str):
            growth = 1 / 3 * max(n_steps - start, 1)
            period = growth * math.log(self.decay) / math.log(1.0 - 0.99)
        chosen = Pruning(self.sparsity, self.decay, period, start, self.interval, self.layers)
        choices = max(n_steps - 1 - start, 0) // self.interval
        reached = chosen.rate(start + choices * self.interval)
        if reached < 0.9 * self.sparsity:
            raise not_allowed(
                f"prune={self!r} is not allowed with a run of {n_steps} steps, because the "
                f"fraction of zeros only reaches {reached:.3g}: give more steps (burn_in, n_draws, "
                "thinning), period='auto', or a smaller start or interval."
            )
        return chosen

    def rate(self, k: int) -> float:
        """Fraction of zeros after step k."""
        # for_run has replaced "auto" by numbers
        assert not isinstance(self.period, str) and not isinstance(self.start, str)
        past = max(k - self.start, 0) / self.period
        return float(self.sparsity * (1.0 - self.decay**past))

    def chooses(self, k: int) -> bool:
        """Whether the pruned coefficients are chosen anew after step k."""
        assert not isinstance(self.start, str)
        return k >= self.start and (k - self.start) % self.interval == 0

    def zeros(self, beta: Tensor, k: int, before: int = 0) -> Tensor:
        """Mask of the coefficients to prune, for beta of shape (chains, coefficients).

        ``before`` is the number of coefficients that are pruned already. At least this many are
        pruned, up to the final sparsity: a run that continues pruned chains starts its schedule
        anew, but does not undo their pruning.
        """
        size = beta.shape[1]
        n_zeros = max(round(self.rate(k) * size), min(before, round(self.sparsity * size)))
        n_zeros = min(n_zeros, size - 1)
        if n_zeros == 0:
            return torch.zeros_like(beta, dtype=torch.bool)
        magnitude = beta.abs()
        largest_zero = magnitude.kthvalue(n_zeros, dim=1, keepdim=True).values
        return magnitude <= largest_zero
