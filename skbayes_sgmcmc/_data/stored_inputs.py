"""Inputs of networks that stay where they are: standardised when a minibatch is gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .fields import Field
from .rows import StoredRows


class ScaledRows:
    """Stored rows minus a centre, divided by a scale, in the shape that a network gets.

    Centre and scale are numbers for each column, or one.
    """

    def __init__(self, rows: StoredRows, center: Array, scale: Array, row_shape: Sequence[int]):
        self.rows, self.center, self.scale = rows, center, scale
        self.shape = (len(rows), *row_shape)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: Any) -> Array:
        return self._scaled(self.rows[chosen])

    def take(self, numbers: Array) -> Array:
        return self._scaled(self.rows.take(numbers))

    def _scaled(self, rows: Array) -> Array:
        return np.asarray((rows - self.center) / self.scale).reshape(-1, *self.shape[1:])

    def as_field(self, dtype: torch.dtype, device: str) -> Any:
        """The rows as a field of minibatches; those in memory are copied to another device."""
        field = ScaledField(self, dtype, device)
        return field.whole() if self.rows.in_memory and device != "cpu" else field


class ScaledField(Field):
    """Stored rows as a field of minibatches."""

    def __init__(self, inputs: ScaledRows, dtype: torch.dtype, device: str):
        super().__init__(inputs.shape, dtype, device)
        self.inputs = inputs

    @property
    def source(self) -> StoredRows:  # no attribute, which a checkpoint's digest would read again
        return self.inputs.rows

    def __getitem__(self, chosen: Any) -> Tensor:
        rows = np.ascontiguousarray(self.inputs[chosen])
        return torch.from_numpy(rows).to(self.device, self.dtype)
