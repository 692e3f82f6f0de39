"""Latent variables of priors with learned scales: groups of coefficients, their state and draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._data.chain_random import ChainRandom
from .._metric import State
from ..priors.learned_scale import LearnedScale, bounded, tempered_gamma
from ._constants import Constant
from ._sums import add_at

Array = NDArray[Any]


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
        self.index = torch.from_numpy(np.where(group < 0, self.n_groups, group))
        self.counts = np.bincount(self.index.numpy(), minlength=self.n_groups + 1)
        self._counts, self._typical = Constant(self.counts[:-1]), Constant(self.typical)

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
        torch.index_select(rates, 1, self.index.to(rates.device), out=state["prior_rate"])

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
        sums = theta.new_zeros(len(theta), self.n_groups + 1, dtype=torch.float64)
        start = torch.arange(len(theta), device=theta.device)[:, None] * sums.shape[1]
        place = start + self.index.to(theta.device)
        add_at(sums.view(-1), place.reshape(-1), theta.double().square().reshape(-1))
        return sums[:, :-1]

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
        fixed = theta[:, (self.index == self.n_groups).to(theta.device)]
        rest = 0.5 * (fixed * fixed).sum(1) + 0.5 * math.log(2.0 * math.pi) * fixed.shape[1]
        return (found - rest).to(theta.dtype)
