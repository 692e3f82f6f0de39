"""Latent variables of priors with learned scales: groups of coefficients, their state and draws."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._metric import State
from ...priors.learned_scale import LearnedScale, bounded, tempered_gamma
from .._constants import Constant
from .._sums import add_at

#: most coefficients of a group that are added up at once
ROW = 256


class ScaleGroups:
    """Groups of coefficients, each with a normal prior of a learned scale.

    Parameters
    ----------
    prior : LearnedScale
        The hyperprior.
    group : array of int of shape (n_parameters,)
        Group of every coefficient. Coefficients with the group -1 have the scale 1.
    typical : array of shape (n_groups,)
        s_0 of every group.
    n_shared : int, default=0
        The first ``n_shared`` groups have a common b. Their s_0 must be equal.

    Notes
    -----
    The state of a chain has the entries ``scales`` (n_groups,), ``prior_rate`` (n_parameters,), one
    over the square of the scale of every coefficient, and with shared groups ``shared_scale``,
    which is sqrt(b / a).

    At a temperature T the joint density of the coefficients, log s of all groups and log b is
    raised to the power 1/T. Without shared groups, integrating the scales out then leaves exactly
    the marginal density of the coefficients to the power 1/T.
    """

    def __init__(self, prior: LearnedScale, group: Array, typical: Array, n_shared: int = 0):
        self.prior = prior
        self.typical = np.asarray(typical, dtype=float)
        self.n_groups, self.n_shared = len(self.typical), n_shared
        index = np.where(group < 0, self.n_groups, group)
        self.counts = np.bincount(index, minlength=self.n_groups + 1)
        self._index, self._fixed = Constant(index), Constant(np.flatnonzero(group < 0))
        self._counts, self._typical = Constant(self.counts[:-1]), Constant(self.typical)
        rows, group_of_row = _rows_of(index, self.counts[:-1])
        self._rows, self._group_of_row = Constant(rows), Constant(group_of_row)

    # state ----------------------------------------------------------------------------------------

    @property
    def recorded(self) -> dict[str, tuple[int, ...]]:
        """Names of the entries of the state that are kept with every draw, and their shapes."""
        return {"scales": (self.n_groups,)} | ({"shared_scale": ()} if self.n_shared else {})

    def init_state(self, theta: Tensor) -> State:
        """The latent variables before the first step: all scales are typical."""
        state = {
            "scales": self._typical.like(theta).repeat(len(theta), 1),
            "prior_rate": torch.empty_like(theta),
        }
        if self.n_shared:
            state["shared_scale"] = state["scales"][:, :1].clone()
        self._spread(state)
        return state

    def _spread(self, state: State) -> None:
        """Write the rate of every coefficient to ``prior_rate``."""
        rates = torch.nn.functional.pad(state["scales"].pow(-2), (0, 1), value=1.0)
        torch.index_select(rates, 1, self._index.index(rates), out=state["prior_rate"])

    def draw(self, theta: Tensor, state: State, rng: ChainRandom, temperature: float) -> None:
        """Draw b, then the scales, from their conditional distributions, in place."""
        a, n = float(self.prior.shape), self.n_shared
        u = rng.uniform(self.n_groups + 1, dtype=torch.float64).cpu().numpy()
        b = np.repeat(self.prior.rate(self.typical)[None], len(theta), axis=0)
        if n:
            precision = state["scales"][:, :n].double().cpu().numpy() ** -2
            rate = 1.0 / self.typical[0] ** 2 + precision.sum(1)
            shared = tempered_gamma(np.array(a * (n + 1)), rate, temperature, u[:, -1])
            b[:, :n] = shared[:, None]
            state["shared_scale"].copy_(torch.from_numpy(bounded(np.sqrt(shared[:, None] / a))))
        squares = self.squares(theta).cpu().numpy()
        scales = self.prior.draw_scales(squares, self.counts[:-1], b, temperature, u[:, :-1])
        state["scales"].copy_(torch.from_numpy(scales))
        self._spread(state)

    def squares(self, theta: Tensor) -> Tensor:
        """|w|^2 of every group, (chains, n_groups), in float64."""
        squares = torch.nn.functional.pad(theta.double().square(), (0, 1))
        sums = squares[:, self._rows.index(theta)].sum(2)
        found = sums.new_zeros(self.n_groups, len(theta))
        return add_at(found, self._group_of_row.index(theta), sums.t()).t()

    # densities ------------------------------------------------------------------------------------

    def gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        """Write scale * grad(-log p(theta | scales)) to ``out``."""
        torch.addcmul(theta.new_zeros(()), theta, state["prior_rate"], value=scale, out=out)

    def potential(self, theta: Tensor, state: State) -> Tensor:
        """-log p(theta | scales), of shape (chains,), in float64."""
        quadratic = (state["prior_rate"] * theta * theta).sum(1, dtype=torch.float64)
        counts = self._counts.like(quadratic)
        logs = (counts * torch.log(state["scales"].double())).sum(1)
        return 0.5 * quadratic + logs + 0.5 * math.log(2.0 * math.pi) * theta.shape[1]

    def log_density(self, theta: Tensor) -> Tensor:
        """log p(theta), with the scales integrated out, of shape (chains,)."""
        prior, n = self.prior, self.n_shared
        squares = self.squares(theta)
        counts = self._counts.like(squares)
        b = torch.from_numpy(prior.rate(self.typical)).to(squares)
        found = prior.log_density(squares[:, n:], counts[n:], b[n:]).sum(1)
        if n:
            found = found + prior.log_shared_density(squares[:, :n], counts[:n], self.typical[0])
        fixed = theta[:, self._fixed.index(theta)]
        rest = 0.5 * (fixed * fixed).sum(1) + 0.5 * math.log(2.0 * math.pi) * fixed.shape[1]
        return (found - rest).to(theta.dtype)


def _rows_of(index: Array, counts: Array) -> tuple[Array, Array]:
    """Places of the coefficients of each group, in rows of a matrix, and the group of each row.

    A row is filled up with the place after the last coefficient. A group has as many rows as it
    needs, because a GPU adds up a row at once, and what is added at one index one after another.
    """
    width = int(min(ROW, counts.max(initial=1)))
    n_rows = -(-counts // width)
    rows = np.full((int(n_rows.sum()), width), len(index))
    order = np.argsort(index, kind="stable")[: int(counts.sum())]
    first = np.cumsum(counts) - counts
    within = np.arange(len(order)) - np.repeat(first, counts)
    start = np.repeat(np.cumsum(n_rows) - n_rows, counts)
    rows[start + within // width, within % width] = order
    return rows, np.repeat(np.arange(len(counts)), n_rows)
