"""From the CPU to a device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def sent(values: Tensor, device: torch.device) -> Tensor:
    """The values on a device, sent without waiting for what it does."""
    if device.type == "cpu":
        return values
    if device.type == "cuda":
        values = values.pin_memory()  # CUDA waits for other memory
    return values.to(device, non_blocking=True)


def exported(values: Any) -> Tensor:
    """Numbers as exported modules hold them: in single precision, on the CPU."""
    return torch.tensor(values, dtype=torch.float32, device="cpu")
