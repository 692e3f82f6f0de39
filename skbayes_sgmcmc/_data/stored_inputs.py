"""Inputs of networks whose rows stay where they are: standardised when a minibatch is gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .rows import StoredRows

Array = NDArray[Any]


class ScaledRows:
    """Stored rows minus a centre, divided by a scale, in the shape that a network gets.

    Parameters
    ----------
    rows : StoredRows
        The rows.
    center, scale : array
        Numbers for each column, or one.
    row_shape : sequence of int
        Shape of a row as the network gets it.
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


class ScaledField:
    """Stored rows as a field of minibatches."""

    def __init__(self, rows: ScaledRows, dtype: torch.dtype, device: str):
        self.inputs, self.dtype, self.device = rows, dtype, device
        self.shape = rows.shape
        self.row_numbers = int(np.prod(rows.shape[1:]))
        self.searched, self.run = rows.rows.searched, rows.rows.run
        self.ahead = rows.rows.ahead

    def tensor_like(self) -> Tensor:
        """An empty tensor of these rows' dtype and device."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def whole(self) -> Tensor:
        """Every row."""
        return self[:]

    def block(self, rows: slice) -> Tensor:
        """Consecutive rows."""
        return self[rows]

    def rows(self, indices: Array) -> Tensor:
        """Rows by their numbers."""
        return self._tensor(self.inputs.take(indices))

    def gather(self, indices: Array) -> Sequence[Tensor]:
        """Rows (chains, rows, ...) of each step, for indices (steps, chains, rows).

        If the chains share the rows, neither has an axis of chains.
        """
        found = self.rows(indices.reshape(-1))
        return found.view(*indices.shape, *self.shape[1:]).unbind(0)

    def __getitem__(self, rows: slice) -> Tensor:
        return self._tensor(self.inputs[rows])

    def _tensor(self, rows: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.device, self.dtype)
