"""Passes through networks in bfloat16; positions, losses and sums of gradients stay as they are.

Both classes have the ``forward`` and ``backward`` of :class:`~skbayes_sgmcmc.models.Network`.
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
