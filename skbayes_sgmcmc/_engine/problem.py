"""What a run samples, and the chains that it leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from .._arrays import Array
from .._data.chain_random import from_torch
from .._data.minibatch import Data
from ..models._protocol import Model
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
class ChainState:
    """State of the chains after a run, as plain arrays, where warm starts continue.

    ``moves`` identifies the sampler and the integrator that the state ``sampler`` belongs to.
    ``n_chains`` is the requested number of chains; some of them may have diverged. ``n_rows`` is
    the sum of the weights of the rows, and ``n_draws`` the number of draws of each chain.
    ``memory`` is what a stream needs to know later (``streams.py``).
    """

    theta: Array
    sampler: dict[str, Array]
    model: dict[str, Array]
    rng: dict[str, Any]
    last_eta: float
    moves: str
    n_chains: int
    n_rows: float = 0.0
    n_draws: int = 0
    memory: Any = None

    def fits(self, n_chains: int, n_parameters: int) -> bool:
        """Whether a run with these numbers of chains and parameters can continue this state."""
        return (self.n_chains, self.theta.shape[1]) == (n_chains, n_parameters)

    @property
    def torch_numbers(self) -> bool:
        """Whether the random numbers come from torch instead of the compiled generator."""
        return from_torch(self.rng)


@dataclass(frozen=True)
class Problem:
    """What a run samples: the posterior of a model given rows, from earlier chains or anew."""

    #: prior and likelihood
    model: Model
    data: Data
    #: precision of the positions
    dtype: torch.dtype
    #: device of the positions
    device: str
    #: earlier chains to continue, as many and with as many parameters as now
    previous: ChainState | None = None

    @property
    def like(self) -> torch.Tensor:
        """An empty tensor of this precision, on this device."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def bound(self) -> Problem:
        """The same with the model that knows the rows."""
        return replace(self, model=self.model.bound(self.data))

    def of_chains(self, settings: Settings) -> Settings:
        """Settings of as many chains as have survived."""
        if self.previous is None:
            return settings
        return replace(settings, n_chains=len(self.previous.theta))
