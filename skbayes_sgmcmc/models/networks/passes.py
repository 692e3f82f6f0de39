"""Other ways forward and back through networks: in bfloat16, or one chain after the other.

All classes have the ``forward`` and ``backward`` of :class:`~skbayes_sgmcmc.models.Network`. In
bfloat16 positions, losses and sums of gradients stay as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Rounded:
    """For a network with gradients of its own: all numbers in it are rounded."""

    def __init__(self, network: Any):
        self.network = network

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        f, tape = self.network.forward(theta.bfloat16(), x.bfloat16())
        return f.to(theta.dtype), tape

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        gradient = torch.zeros_like(out, dtype=torch.bfloat16)
        self.network.backward(tape, delta.bfloat16(), gradient)
        out.add_(gradient)


class Autocast:
    """For a network by autograd: torch knows which operations bear it."""

    def __init__(self, network: Any):
        self.network = network

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        with torch.autocast(theta.device.type, torch.bfloat16):
            return self.network.forward(theta, x)

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        self.network.backward(tape, delta, out)


class InTurn:
    """One chain after the other, whatever ``passes`` would do with several."""

    def __init__(self, passes: Any):
        self.passes = passes

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        rows = x.expand(len(theta), *x.shape[1:])
        found = [
            self.passes.forward(*one) for one in zip(theta.split(1), rows.split(1), strict=True)
        ]
        return torch.cat([f for f, _ in found]), [tape for _, tape in found]

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        for one, slope, into in zip(tape, delta.split(1), out.split(1), strict=True):
            self.passes.backward(one, slope, into)
