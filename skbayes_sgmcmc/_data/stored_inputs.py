"""Inputs of networks that stay where they are: standardised when a minibatch is gathered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._limits import LIMITS, slices
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
        scaled = np.asarray(rows - self.center)
        scaled /= self.scale
        return scaled.reshape(-1, *self.shape[1:])

    def as_field(self, dtype: torch.dtype, device: str) -> Any:
        """The rows as a field of minibatches; a copy of those in memory, unless it is too large."""
        field = ScaledField(self, dtype, device)
        small = dtype.itemsize * math.prod(self.shape) <= LIMITS.auto_bytes
        # arrays and memory maps alike: joblib sends the former as the latter
        held = self.rows.searched if small else self.rows.in_memory and device != "cpu"
        return field.whole() if held else field


class ScaledField(Field):
    """Stored rows as a field of minibatches."""

    def __init__(self, inputs: ScaledRows, dtype: torch.dtype, device: str):
        super().__init__(inputs.shape, dtype, device)
        self.inputs = inputs

    @property
    def source(self) -> StoredRows:  # no attribute, which a checkpoint's digest would read again
        return self.inputs.rows

    def __getitem__(self, chosen: Any) -> Tensor:
        if isinstance(chosen, slice):
            chosen = range(*chosen.indices(len(self.inputs)))
        found = torch.empty(len(chosen), *self.shape[1:], dtype=self.dtype)
        at_once = max(1, len(chosen))
        if self.source.searched:  # those of a part stay in the cache until they are rounded
            at_once = max(1, LIMITS.cache_numbers // self.row_numbers)
        for part in slices(len(chosen), at_once):
            found[part] = torch.from_numpy(self._read(chosen[part]))
        return found.to(self.device)

    def _read(self, chosen: Any) -> Array:
        """Standardised rows, by their numbers."""
        if isinstance(chosen, range):
            chosen = slice(chosen.start, chosen.stop, chosen.step)
        return np.ascontiguousarray(self.inputs[chosen])
