"""From the CPU to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(values: Tensor, device: torch.device) -> Tensor:
    """The values on a device, sent without waiting for what it does."""
    if device.type == "cpu":
        return values
    if device.type == "cuda":
        values = values.pin_memory()  # CUDA waits for other memory
    return values.to(device, non_blocking=True)
