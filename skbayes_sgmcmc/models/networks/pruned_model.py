"""Networks with magnitude pruning of some blocks of weights during sampling."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from ..._data.chain_random import ChainRandom
from ..._metric import State
from .blocks import Blocks
from .model import NetworkModel
from .pruning import Pruning


class PrunedNetworkModel(NetworkModel):
    """A network, as :class:`NetworkModel`, with magnitude pruning of blocks of these names.

    Without ``pruning``, nothing is pruned. The state of a chain has the entry ``zeros``, a mask of
    the pruned coefficients of the blocks.
    """

    marginal = False

    def __init__(
        self,
        *parts: Any,
        pruning: Pruning | None = None,
        pruned_blocks: Sequence[str] = (),
        **options: Any,
    ):
        super().__init__(*parts, **options)
        self.pruning = pruning
        self.ends_early = self.extends = False
        self.pruned = Blocks(pruned_blocks, self.places())

    def prepared(self, n_steps: int) -> Self:
        if self.pruning is None:
            return self
        model = copy.copy(self)
        model.pruning = self.pruning.for_run(n_steps)
        return model

    def init_state(self, theta: Tensor) -> State:
        state = super().init_state(theta)
        if self.pruning is None:
            return state
        return state | {"zeros": theta.new_zeros(len(theta), self.pruned.n, dtype=torch.bool)}

    def after_step(
        self,
        theta: Tensor,
        state: State,
        aux: dict[str, Tensor],
        k: int,
        rng: ChainRandom,
        temperature: float,
    ) -> bool:
        """Prune after step k."""
        if self.pruning is None:
            return False
        pruned = self.pruned
        if self.pruning.chooses(k):
            before = int(state["zeros"].sum(1).max())
            state["zeros"].copy_(self.pruning.zeros(pruned.coefficients(theta), k, before))
        for part, zeros in zip(pruned.slices, state["zeros"].split(pruned.sizes, 1), strict=True):
            theta[:, part].masked_fill_(zeros, 0.0)
        return True  # the pruned coefficients were moved
