"""Rows of one minibatch, or of all rows: their products with coefficients.

Coefficients ``w`` have shape (chains, columns) for one output, else (chains, columns, outputs). A
batch has the methods ``logits(w)``, which returns (chains, rows) or (chains, rows, outputs), and
``accumulate(out, r, scale)``, which adds scale * X' r to ``out``. One output is a separate case,
because views cost as much as arithmetic at the sizes of a minibatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._draws.storage import dtype_name
from .._sums import add_at

if TYPE_CHECKING:
    from .design import SparseDesign, StoredDesign


class DesignBatch:
    """Base class of the rows of a minibatch."""

    def dense(self) -> Tensor:
        """The rows as one matrix; if chains have their own rows, the first chain's come first."""
        raise NotImplementedError

    def by_row(self) -> DenseBatch:
        """The same rows, each as the only row of a chain."""
        return DenseBatch(self.dense().unsqueeze(1))


class DenseBatch(DesignBatch):
    """Different rows for each chain: x is (chains, rows, columns)."""

    def __init__(self, x: Tensor):
        self.x = x

    def dense(self) -> Tensor:
        return self.x.flatten(0, 1)

    def logits(self, w: Tensor) -> Tensor:
        if w.ndim == 3:
            # with few outputs, a third of the time of X w
            return torch.bmm(w.transpose(1, 2), self.x.transpose(1, 2)).transpose(1, 2)
        if w.device.type != "cpu":
            return torch.bmm(self.x, w.unsqueeze(2)).squeeze(2)
        # faster than a batched matrix-vector product at the sizes of a minibatch
        return torch.mul(self.x, w.unsqueeze(1)).sum(2)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        if out.ndim == 3:
            # into rows of their own: a third of the time of adding to a transposed matrix
            out.add_(torch.bmm(r.transpose(1, 2), self.x).transpose(1, 2), alpha=scale)
        else:
            out.unsqueeze(1).baddbmm_(r.unsqueeze(1), self.x, alpha=scale)


class SharedDenseBatch(DesignBatch):
    """Rows that all chains share, or rows of a single chain: x is (rows, columns)."""

    def __init__(self, x: Tensor):
        self.x, self.transposed, self.dtype = x, x.t(), x.dtype

    def to(self, dtype: torch.dtype) -> SharedDenseBatch:
        """The same rows in another precision."""
        return SharedDenseBatch(self.x.to(dtype))

    def dense(self) -> Tensor:
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


class StoredBatch(DesignBatch):
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
            yield rows, SharedDenseBatch(torch.from_numpy(x).to(self.design.device))


class SparseBatch(DesignBatch):
    """Sparse rows: how coefficients and residuals are laid out for products with them.

    All chains see the rows if ``shared``. Else each chain has its own part of the rows and its own
    columns, so that the matrix has as many blocks of columns as there are chains.
    """

    n_rows: int
    n_columns: int
    shared: bool

    def triplets(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, column and value of every number."""
        raise NotImplementedError

    def _times(self, w: Tensor) -> Tensor:
        """The product with w (all columns, m)."""
        raise NotImplementedError

    def _transposed_times(self, r: Tensor, n: int) -> Tensor:
        """The transposed product (n, m) with r (rows, m), for all n columns."""
        raise NotImplementedError

    def dense(self) -> Tensor:
        row, column, value = self.triplets()
        x = value.new_zeros(self.n_rows, self.n_columns)
        return x.index_put_((row, column % self.n_columns), value, accumulate=True)

    def logits(self, w: Tensor) -> Tensor:
        chains, outputs = w.shape[0], 1 if w.ndim == 2 else w.shape[2]
        if self.shared:
            z = self._times(_beside(w))
            return z.t() if w.ndim == 2 else z.view(-1, chains, outputs).permute(1, 0, 2)
        z = self._times(w.reshape(-1, outputs))
        return z.view(chains, -1) if w.ndim == 2 else z.view(chains, -1, outputs)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        chains, outputs = out.shape[0], 1 if out.ndim == 2 else out.shape[2]
        if not self.shared:
            flat = self._transposed_times(r.reshape(-1, outputs), chains * self.n_columns)
            product = flat.view(out.shape)
        else:
            beside = self._transposed_times(_beside(r), self.n_columns)
            product = beside.view(-1, chains, outputs).permute(1, 0, 2)
            product = product[..., 0] if out.ndim == 2 else product
        out.add_(product, alpha=scale)


def _beside(parts: Tensor) -> Tensor:
    """Vectors of all chains, (chains, n) or (chains, n, outputs), beside each other: (n, m)."""
    return (parts.t() if parts.ndim == 2 else parts.permute(1, 0, 2)).reshape(parts.shape[1], -1)


class Product(torch.autograd.Function):
    """A sparse matrix of SciPy times w, for log joint densities that users differentiate."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, matrix: Any) -> Tensor:
        ctx.matrix = matrix
        return torch.from_numpy(matrix @ w.detach().numpy())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return Product.apply(g, ctx.matrix.T), None


class CSRBatch(SparseBatch):
    """Sparse rows on a CPU, as a CSR matrix of SciPy.

    Unless they are ``shared``, such that all chains see all rows, the matrix has a block of
    ``n_columns`` columns for each chain. ``often`` says that a copy by columns is worth its time:
    for 3,000 rows of 120 numbers and four chains, a product takes 1.2 ms, and 0.6 by columns.
    """

    def __init__(self, x: Any, n_columns: int, shared: bool, often: bool = False):
        self.x, self.n_rows, self.n_columns, self.shared = x, x.shape[0], n_columns, shared
        self._factor, self._transposed = (x.tocsc() if often else x), x.T

    @property
    def dtype(self) -> torch.dtype:
        return torch.from_numpy(self.x.data).dtype

    def to(self, dtype: torch.dtype) -> CSRBatch:
        """The same rows in another precision."""
        often = self._factor is not self.x
        return CSRBatch(self.x.astype(dtype_name(dtype)), self.n_columns, self.shared, often)

    def for_kernels(self) -> tuple[Array, Array, Array, Array, int]:
        """Values, columns and starts of rows, which rows, and the width of a chain's block."""
        x, width = self.x, 0 if self.shared else self.n_columns
        return x.data, x.indices, x.indptr, np.arange(self.n_rows), width

    def triplets(self) -> tuple[Tensor, Tensor, Tensor]:
        row = torch.from_numpy(np.repeat(np.arange(self.n_rows), np.diff(self.x.indptr)))
        return row, torch.from_numpy(self.x.indices).long(), torch.from_numpy(self.x.data)

    def _times(self, w: Tensor) -> Tensor:
        found: Tensor = Product.apply(w, self._factor)
        return found

    def _transposed_times(self, r: Tensor, n: int) -> Tensor:
        return torch.from_numpy(self._transposed @ r.numpy())


class ChosenRows(CSRBatch):
    """Rows of a design on a CPU by their numbers, copied when a product needs them.

    ``indices`` are the rows of each chain, (chains, rows), or of all, (rows,).
    """

    def __init__(self, design: SparseDesign, indices: Array):
        self._design, self._indices = design, indices
        self.n_rows, self.n_columns, self.shared = indices.size, design.shape[1], indices.ndim == 1

    @cached_property
    def x(self) -> Any:
        return self._design.beside(self._indices[None])

    @property
    def _factor(self) -> Any:
        return self.x

    @cached_property
    def _transposed(self) -> Any:
        return self.x.T

    def for_kernels(self) -> tuple[Array, Array, Array, Array, int]:
        return *self._design.parts, self._indices.reshape(-1), 0


class TripletBatch(SparseBatch):
    """Sparse rows on other devices, as triplets (row, column, value)."""

    def __init__(
        self,
        row: Tensor,
        column: Tensor,
        value: Tensor,
        n_rows: int,
        n_columns: int,
        shared: bool,
    ):
        self.row, self.column, self.value = row, column, value[:, None]
        self.n_rows, self.n_columns, self.shared = n_rows, n_columns, shared

    def triplets(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.row, self.column, self.value[:, 0]

    def _times(self, w: Tensor) -> Tensor:
        terms = w.index_select(0, self.column).mul_(self.value)
        return add_at(w.new_zeros(self.n_rows, w.shape[1]), self.row, terms)

    def _transposed_times(self, r: Tensor, n: int) -> Tensor:
        terms = r.index_select(0, self.row).mul_(self.value)
        return add_at(r.new_zeros(n, r.shape[1]), self.column, terms)
