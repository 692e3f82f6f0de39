"""Fields of :class:`~.minibatch.Data` that are no tensors: rows of another kind, or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array


class Field:
    """The rows of one field: what data and minibatches ask of them.

    A subclass says in ``__getitem__`` what some rows are, for a slice or an array of numbers:
    tensors, or a smaller field, which then has its own ``whole`` and ``gather``. ``shape`` is that
    of all rows; ``dtype`` and ``device`` are those of the rows of minibatches.
    """

    #: the ``StoredRows`` that are read, if rows are not in memory
    source: Any = None
    #: whether rows are fetched step by step, in advance where there are workers
    lazy = False
    #: whether ``gather`` takes indices that are a tensor of the rows' device
    by_tensor = False

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: Any):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device
        #: numbers that are gathered for one row
        self.row_numbers = int(np.prod(self.shape[1:]))

    @property
    def run(self) -> int:
        """Rows that are read at once where they cannot be read by number; 0 where they can."""
        return 0 if self.source is None or self.source.searched else self.source.run

    @property
    def ahead(self) -> bool:
        """Whether blocks of rows are read in advance, by a thread."""
        return self.source is not None and self.source.ahead

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory, and not in a file."""
        return self.source is None or self.source.in_memory

    def __getitem__(self, chosen: Any) -> Any:
        raise NotImplementedError

    def tensor_like(self) -> Tensor:
        """An empty tensor of these rows' dtype and device."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def whole(self) -> Any:
        """Every row, as one batch that the chains share."""
        return self[:]

    def gather(self, indices: Array) -> Any:
        """Rows (chains, rows, ...) of each step, for indices (steps, chains, rows).

        If the chains share the rows, neither has an axis of chains.
        """
        found = self[indices.reshape(-1)]
        return found.view(*indices.shape, *found.shape[1:]).unbind(0)
