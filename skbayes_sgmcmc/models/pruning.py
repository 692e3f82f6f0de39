"""Magnitude pruning inside sampling."""

from __future__ import annotations

import math

import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from .._validation import check_int, check_real

#: share of the final sparsity that a run must come to, and that the automatic period comes to at
#: half of the run
REACHED, SETTLED = 0.9, 0.99


class Pruning(BaseEstimator):
    r"""Set the smallest coefficients of sparse layers to zero while sampling.

    After step k the share :math:`s_k = S (1 - D^{k/f})` of smallest magnitude, over all sparse
    layers of a chain, is zero. Which ones these are is decided again every ``interval`` steps, and
    a coefficient that has grown beyond others comes back then.

    Parameters
    ----------
    sparsity : float, default=0.9
        S, the share at the end, in [0, 1).
    decay : float, default=0.99
        D, in (0, 1).
    period : float or "auto", default="auto"
        f, in steps; "auto": such that 0.99 S is reached at half of the run.
    start : int, default=0
        Steps before the first coefficients are pruned, e.g. a training without it.
    interval : int, default=50
        Steps between two choices of the coefficients.

    References
    ----------
    Deng, Zhang, Liang & Lin (2019), An adaptive empirical Bayesian method for sparse deep learning,
    algorithm 1.

    Examples
    --------
    >>> from skbayes_sgmcmc import Pruning
    >>> round(Pruning(sparsity=0.9, decay=0.99, period=50).rate(5000), 3)
    0.571
    """

    def __init__(
        self,
        sparsity: float = 0.9,
        decay: float = 0.99,
        period: float | str = "auto",
        start: int = 0,
        interval: int = 50,
    ):
        self.sparsity = sparsity
        self.decay = decay
        self.period = period
        self.start = start
        self.interval = interval

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is the object's."""
        check_real(f"{name}.sparsity", self.sparsity, low=0.0, high=1.0, closed="left")
        check_real(f"{name}.decay", self.decay, low=0.0, high=1.0)
        check_int(f"{name}.start", self.start, low=0)
        check_int(f"{name}.interval", self.interval)
        if not (isinstance(self.period, str) and self.period == "auto"):
            check_real(f"{name}.period", self.period, low=0.0)

    def for_run(self, n_steps: int) -> Pruning:
        """The schedule with the numbers of a run of so many steps.

        Raises
        ------
        ValueError
            The steps are too few for it.
        """
        if not isinstance(self.period, str):
            chosen = self
        else:
            half = max(n_steps - self.start, 1) / 2
            period = half * math.log(self.decay) / math.log(1.0 - SETTLED)
            chosen = Pruning(self.sparsity, self.decay, period, self.start, self.interval)
        reached = chosen.rate(n_steps)
        if reached < REACHED * self.sparsity:
            raise ValueError(
                f"prune={self!r} is not allowed with a run of {n_steps} steps, in which the share "
                f"of zeros only comes to {reached:.3g}: give more steps (burn_in, n_draws, "
                "thinning), period='auto', or a smaller start."
            )
        return chosen

    def rate(self, k: int) -> float:
        """Share of zeros after step k."""
        assert not isinstance(self.period, str)  # for_run has chosen it
        past = max(k - self.start, 0) / self.period
        return float(self.sparsity * (1.0 - self.decay**past))

    def mask(self, beta: Tensor, k: int) -> Tensor:
        """1 where a coefficient is kept, else 0, for beta (chains, coefficients)."""
        n_zeros = int(self.rate(k) * beta.shape[1])
        if n_zeros == 0:
            return torch.ones_like(beta)
        magnitude = beta.abs()
        largest_zero = magnitude.kthvalue(n_zeros, dim=1, keepdim=True).values
        return (magnitude > largest_zero).to(beta.dtype)
