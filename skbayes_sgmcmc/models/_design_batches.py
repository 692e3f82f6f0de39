"""Rows of one minibatch, or of all rows: their products with coefficients.

Coefficients ``w`` have shape (chains, columns) for one output, else (chains, columns, outputs). A
batch has the methods ``logits(w)``, which returns (chains, rows) or (chains, rows, outputs), and
``accumulate(out, r, scale)``, which adds scale * X' r to ``out``. One output is a separate case,
because views cost as much as arithmetic at the sizes of a minibatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ._sums import add_at

if TYPE_CHECKING:
    from ._design import StoredDesign


class DenseBatch:
    """Different rows for each chain: x is (chains, rows, columns)."""

    def __init__(self, x: Tensor):
        self.x = x

    def logits(self, w: Tensor) -> Tensor:
        if w.ndim == 3:
            # with few outputs, a third of the time of X w
            return torch.bmm(w.transpose(1, 2), self.x.transpose(1, 2)).transpose(1, 2)
        # faster than a batched matrix-vector product at the sizes of a minibatch
        return torch.mul(self.x, w.unsqueeze(1)).sum(2)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        if out.ndim == 3:
            # into rows of their own: a third of the time of adding to a transposed matrix
            out.add_(torch.bmm(r.transpose(1, 2), self.x).transpose(1, 2), alpha=scale)
        else:
            out.unsqueeze(1).baddbmm_(r.unsqueeze(1), self.x, alpha=scale)


class SharedDenseBatch:
    """Rows that all chains share, or rows of a single chain: x is (rows, columns)."""

    def __init__(self, x: Tensor, transposed: Tensor):
        self.x = x
        self.transposed = transposed
        self.dtype = x.dtype

    def to(self, dtype: torch.dtype) -> SharedDenseBatch:
        """The same rows in another precision."""
        x = self.x.to(dtype)
        return SharedDenseBatch(x, x.t())

    def dense(self) -> Tensor:
        """The rows as one matrix."""
        return self.x

    def logits(self, w: Tensor) -> Tensor:
        if w.ndim == 2:
            return torch.mm(w, self.transposed)
        # rows last in memory: sums over the outputs then add up whole vectors of rows
        chains, columns, outputs = w.shape
        flat = w.transpose(1, 2).reshape(chains * outputs, columns)
        return torch.mm(flat, self.transposed).view(chains, outputs, -1).transpose(1, 2)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        if out.ndim == 2:
            out.addmm_(r, self.x, alpha=scale)
            return
        chains, columns, outputs = out.shape
        flat = r.transpose(1, 2).reshape(chains * outputs, -1)
        product = torch.mm(flat, self.x).view(chains, outputs, columns)
        out.add_(product.transpose(1, 2), alpha=scale)


class StoredBatch:
    """All rows of a stored design, which are read block by block in every product."""

    def __init__(self, design: StoredDesign):
        self.design = design

    def dense(self) -> Tensor:
        return self.design.held().x

    def logits(self, w: Tensor) -> Tensor:
        return torch.cat([batch.logits(w) for _, batch in self._batches()], 1)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        for rows, batch in self._batches():
            batch.accumulate(out, r[:, rows], scale)

    def _batches(self) -> Iterator[tuple[slice, SharedDenseBatch]]:
        for rows, x in self.design.completed_blocks():
            at = torch.from_numpy(x).to(self.design.device)
            yield rows, SharedDenseBatch(at, at.t())


class SparseBatch:
    """Rows as triplets (row, column, value); unless shared, columns are offset by chain."""

    def __init__(
        self,
        row: Tensor,
        column: Tensor,
        value: Tensor,
        n_rows: int,
        n_columns: int,
        shared: bool,
    ):
        self.row = row
        self.column = column
        self.value = value[:, None]
        self.n_rows = n_rows
        self.n_columns = n_columns
        self.shared = shared

    def dense(self) -> Tensor:
        x = self.value.new_zeros(self.n_rows, self.n_columns)
        x[self.row, self.column] = self.value[:, 0]
        return x

    def logits(self, w: Tensor) -> Tensor:
        chains, outputs = w.shape[0], 1 if w.ndim == 2 else w.shape[2]
        if self.shared:  # (columns, chains * outputs): every chain sees every row
            flat = (w.t() if w.ndim == 2 else w.permute(1, 0, 2)).reshape(-1, chains * outputs)
        else:
            flat = w.reshape(-1, outputs)
        terms = flat.index_select(0, self.column).mul_(self.value)
        z = add_at(flat.new_zeros(self.n_rows, flat.shape[1]), self.row, terms)
        if self.shared:
            return z.t() if w.ndim == 2 else z.view(-1, chains, outputs).permute(1, 0, 2)
        return z.view(chains, -1) if w.ndim == 2 else z.view(chains, -1, outputs)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        chains, outputs = out.shape[0], 1 if out.ndim == 2 else out.shape[2]
        if not self.shared:
            terms = r.reshape(-1, outputs).index_select(0, self.row).mul_(self.value)
            add_at(out.view(-1, outputs), self.column, terms, scale)
            return
        stacked = (r.t() if r.ndim == 2 else r.permute(1, 0, 2)).reshape(-1, chains * outputs)
        terms = stacked.index_select(0, self.row).mul_(self.value)
        product = stacked.new_zeros(self.n_columns, chains * outputs)
        add_at(product, self.column, terms)
        if out.ndim == 2:
            out.add_(product.t(), alpha=scale)
        else:
            out.add_(product.view(-1, chains, outputs).permute(1, 0, 2), alpha=scale)
