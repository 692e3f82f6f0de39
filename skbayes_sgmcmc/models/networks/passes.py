"""Other forward and backward passes of networks: in bfloat16, or one chain after another.

All classes have the methods ``forward`` and ``backward`` of
:class:`~skbayes_sgmcmc.models.networks.network.Network`. In bfloat16, positions, losses and sums of
gradients keep their precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Rounded:
    """Passes in bfloat16 of a network with its own gradients; all its numbers are rounded."""

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
    """Passes in bfloat16 of a network that uses autograd; torch chooses suitable operations."""

    def __init__(self, network: Any):
        self.network = network

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        with torch.autocast(theta.device.type, torch.bfloat16):
            return self.network.forward(theta, x)

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        self.network.backward(tape, delta, out)


class InTurn:
    """Passes of one chain after another, even if ``passes`` could take several together."""

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
