"""What a pipeline's scalers do to rows, as a torch module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .._arrays import Array


class Scaling(nn.Module):
    """Rows x to (x - center) / scale, column by column.

    Parameters
    ----------
    center, scale : array of shape (n_features,)
        For each column.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, center: Array, scale: Array):
        super().__init__()
        self.register_buffer("center", torch.tensor(center, dtype=torch.float32, device="cpu"))
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        """Rows (n, n_features) as the last step gets them."""
        return (x - self.center) / self.scale
