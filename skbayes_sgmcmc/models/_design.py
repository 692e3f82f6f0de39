"""Design matrices, dense or sparse: products with coefficients, for one batch or for all rows.

Coefficients ``w`` have shape (chains, columns) for one output, else (chains, columns, outputs). A
batch has the methods ``logits(w)``, which returns (chains, rows) or (chains, rows, outputs), and
``accumulate(out, r, scale)``, which adds scale * X' r to ``out``. One output is a separate case,
because views cost as much as arithmetic at the sizes of a minibatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._data.minibatch import sent

Array = NDArray[Any]

#: rows of which sums over all rows are made up: few enough for a processor's cache
BLOCK = 4096


class DenseBatch:
    """Different rows for each chain: x is (chains, rows, columns)."""

    def __init__(self, x: Tensor):
        self.x = x

    def logits(self, w: Tensor) -> Tensor:
        if w.ndim == 3:
            return torch.bmm(self.x, w)
        # faster than a batched matrix-vector product at the sizes of a minibatch
        return torch.mul(self.x, w.unsqueeze(1)).sum(2)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        if out.ndim == 3:
            out.transpose(1, 2).baddbmm_(r.transpose(1, 2), self.x, alpha=scale)
        else:
            out.unsqueeze(1).baddbmm_(r.unsqueeze(1), self.x, alpha=scale)


class SharedDenseBatch:
    """Rows that all chains share, or rows of a single chain: x is (rows, columns)."""

    def __init__(self, x: Tensor, transposed: Tensor):
        self.x = x
        self.transposed = transposed

    def dense(self) -> Tensor:
        """The rows as one matrix."""
        return self.x

    def logits(self, w: Tensor) -> Tensor:
        if w.ndim == 2:
            return torch.mm(w, self.transposed)
        chains, columns, outputs = w.shape
        product = torch.matmul(self.x, w.permute(1, 0, 2).reshape(columns, chains * outputs))
        return product.view(-1, chains, outputs).permute(1, 0, 2)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        if out.ndim == 2:
            out.addmm_(r, self.x, alpha=scale)
            return
        chains, columns, outputs = out.shape
        stacked = r.permute(1, 0, 2).reshape(-1, chains * outputs)
        product = torch.matmul(self.transposed, stacked)
        out.add_(product.view(columns, chains, outputs).permute(1, 0, 2), alpha=scale)


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
        z = flat.new_zeros(self.n_rows, flat.shape[1]).index_add_(0, self.row, terms)
        if self.shared:
            return z.t() if w.ndim == 2 else z.view(-1, chains, outputs).permute(1, 0, 2)
        return z.view(chains, -1) if w.ndim == 2 else z.view(chains, -1, outputs)

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        chains, outputs = out.shape[0], 1 if out.ndim == 2 else out.shape[2]
        if not self.shared:
            terms = r.reshape(-1, outputs).index_select(0, self.row).mul_(self.value)
            out.view(-1, outputs).index_add_(0, self.column, terms, alpha=scale)
            return
        stacked = (r.t() if r.ndim == 2 else r.permute(1, 0, 2)).reshape(-1, chains * outputs)
        terms = stacked.index_select(0, self.row).mul_(self.value)
        product = stacked.new_zeros(self.n_columns, chains * outputs)
        product.index_add_(0, self.column, terms)
        if out.ndim == 2:
            out.add_(product.t(), alpha=scale)
        else:
            out.add_(product.view(-1, chains, outputs).permute(1, 0, 2), alpha=scale)


class DenseDesign:
    """All rows of a dense matrix on one device."""

    def __init__(self, x: Tensor):
        self.x = x
        self.shape = tuple(x.shape)
        self.row_numbers = x.shape[1]

    def scale_rows(self, factor: Array) -> DenseDesign:
        """Multiply every row by its factor, in place, and return the design."""
        self.x.mul_(torch.from_numpy(factor[:, None]).to(self.x))
        return self

    def tensor_like(self) -> Tensor:
        """An empty tensor of this design's dtype and device."""
        return self.x.new_empty(0)

    def whole(self) -> SharedDenseBatch:
        """Every row, as one batch shared by the chains."""
        return SharedDenseBatch(self.x, self.x.t())

    def gather(self, indices: Array) -> Sequence[DenseBatch | SharedDenseBatch]:
        """Batches for row indices (steps, chains, rows), or (steps, rows) if shared."""
        flat = sent(torch.from_numpy(indices.reshape(-1)), self.x.device)
        rows = self.x.index_select(0, flat)
        if indices.ndim == 3 and indices.shape[1] > 1:
            return [DenseBatch(x) for x in rows.view(*indices.shape, -1).unbind(0)]
        by_step = rows.view(len(indices), -1, self.shape[1])
        pairs = zip(by_step.unbind(0), by_step.transpose(1, 2).unbind(0), strict=True)
        return [SharedDenseBatch(x, transposed) for x, transposed in pairs]

    def rows(self, indices: Array) -> DenseDesign:
        """A design of these rows."""
        return DenseDesign(self.x[torch.from_numpy(indices).to(self.x.device)])

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Consecutive blocks of rows, as arrays in float64 or CSR matrices.

        Sums over all rows go by blocks, which avoids a second copy of X in float64.
        """
        for rows, x in self._stored_blocks():
            yield rows, x.astype(np.float64, copy=False)

    def _stored_blocks(self) -> Iterator[tuple[slice, Array]]:
        for start in range(0, self.shape[0], BLOCK):
            rows = slice(start, start + BLOCK)
            yield rows, self.x[rows].cpu().numpy()

    def gram(self, weight: Array) -> Array:
        """X' diag(weight) X."""
        total = np.zeros((self.shape[1], self.shape[1]))
        for rows, x in self.blocks():
            total += (x * weight[rows, None]).T @ x
        return total

    def times(self, w: Array) -> Array:
        """X w for an array (columns, k), with products in the precision of X."""
        product = np.empty((self.shape[0], w.shape[1]))
        for rows, x in self._stored_blocks():
            product[rows] = x @ w.astype(x.dtype)
        return product

    def transposed_times(self, r: Array, *, square: bool = False) -> Array:
        """X' r, or (X*X)' r, for an array (rows, k), with products in the precision of X."""
        total = np.zeros((self.shape[1], r.shape[1]))
        for rows, x in self._stored_blocks():
            total += (x * x if square else x).T @ r[rows].astype(x.dtype)
        return total

    def row_squares(self, squares: Array) -> Array:
        """Sum of ``squares`` (columns, k) times X*X over columns and k, shape (rows,)."""
        return np.concatenate([np.square(x) @ squares.sum(1) for _, x in self.blocks()])


class SparseDesign:
    """All rows of a CSR matrix, which is never converted to a dense matrix as a whole."""

    def __init__(self, x: Any, dtype: torch.dtype, device: str):
        self.x = x.tocsr()
        self.dtype = dtype
        self.device = device
        self.shape = x.shape
        self.row_numbers = 3 * max(1, x.nnz // max(x.shape[0], 1))

    def scale_rows(self, factor: Array) -> SparseDesign:
        self.x = sp.diags(factor) @ self.x
        return self

    def tensor_like(self) -> Tensor:
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def whole(self) -> SparseBatch:
        """Every row, as one batch shared by the chains."""
        return self.gather(np.arange(self.shape[0])[None])[0]

    def gather(self, indices: Array) -> Sequence[SparseBatch]:
        """Batches for row indices (steps, chains, rows), or (steps, rows) if shared."""
        shared = indices.ndim == 2
        per_step = int(np.prod(indices.shape[1:]))
        per_chain = indices.shape[-1]
        x = self.x[indices.reshape(-1)]
        lengths = np.diff(x.indptr)
        row = np.tile(np.arange(per_step), len(indices))
        offset = np.zeros_like(row) if shared else row // per_chain * self.shape[1]
        sizes = np.diff(x.indptr[::per_step]).tolist()
        parts = zip(
            self._tensor(np.repeat(row, lengths)).split(sizes),
            self._tensor(x.indices + np.repeat(offset, lengths)).split(sizes),
            self._tensor(x.data, self.dtype).split(sizes),
            strict=True,
        )
        return [SparseBatch(*part, per_step, self.shape[1], shared) for part in parts]

    def _tensor(self, values: Array, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.from_numpy(values).to(self.device, dtype)

    def rows(self, indices: Array) -> SparseDesign:
        return SparseDesign(self.x[indices], self.dtype, self.device)

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        for start in range(0, self.shape[0], BLOCK):
            rows = slice(start, start + BLOCK)
            yield rows, self.x[rows]

    def gram(self, weight: Array) -> Array:
        return (self.x.T @ sp.diags(weight) @ self.x).toarray()

    def times(self, w: Array) -> Array:
        return np.asarray(self.x @ w)

    def transposed_times(self, r: Array, *, square: bool = False) -> Array:
        x = self.x.multiply(self.x) if square else self.x
        return np.asarray(x.T @ r)

    def row_squares(self, squares: Array) -> Array:
        return np.asarray(self.x.multiply(self.x) @ squares.sum(1)).reshape(-1)


Design = DenseDesign | SparseDesign


def make_design(x: Any, *, dtype: torch.dtype, device: str, intercept: bool) -> Design:
    """A design from a dense array or a CSR matrix, with a last column of ones if ``intercept``."""
    if sp.issparse(x):
        if intercept:
            x = sp.hstack([x, np.ones((x.shape[0], 1))], format="csr")
        return SparseDesign(sp.csr_matrix(x, dtype=np.float64), dtype, device)
    ones = np.ones((x.shape[0], 1), dtype=x.dtype)
    dense = np.hstack([x, ones]) if intercept else np.asarray(x)
    return DenseDesign(torch.from_numpy(np.ascontiguousarray(dense)).to(device, dtype, copy=True))
