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
from .._data.rows import StoredRows

Array = NDArray[Any]

#: rows of which sums over all rows are made up: few enough for a processor's cache
BLOCK = 4096
#: the same of sparse rows, whose sums may be long vectors
SPARSE_BLOCK = 2**16
#: rows of at most this many bytes are held once more, as minibatches need them: with their
#: column of ones, in the precision of the chains
HELD_BYTES = 2**26


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
        for rows, x in self.design._stored_blocks():
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


class _ByBlocks:
    """Figures of all rows of a matrix, block by block."""

    shape: tuple[int, ...]

    def _stored_blocks(self) -> Iterator[tuple[slice, Any]]:
        """Consecutive blocks of rows, in the precision of the design."""
        raise NotImplementedError

    def moved_squares(self, w: Array) -> Array:
        """Squared lengths of the rows of X w, for w (columns, m), in the precision of X."""
        found = np.empty(self.shape[0])
        for rows, x in self._stored_blocks():
            moved = np.asarray(x @ w.astype(x.dtype))
            found[rows] = np.einsum("ij,ij->i", moved, moved)
        return found


class _Dense(_ByBlocks):
    """Sums over all rows of a dense matrix, block by block."""

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Consecutive blocks of rows, as arrays in float64 or CSR matrices.

        Sums over all rows go by blocks, which avoids a second copy of X in float64.
        """
        for rows, x in self._stored_blocks():
            yield rows, x.astype(np.float64, copy=False)

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


class DenseDesign(_Dense):
    """All rows of a dense matrix on one device, as minibatches need them."""

    #: whether the rows are in memory
    in_memory = True

    def __init__(self, x: Tensor):
        self.x = x
        self.shape = tuple(x.shape)
        self.row_numbers = x.shape[1]

    def scale_rows(self, factor: Array) -> DenseDesign:
        """Multiply every row by its factor, in place, and return the design."""
        self.x.mul_(torch.from_numpy(factor[:, None]).to(self.x))
        return self

    def held(self) -> DenseDesign:
        """All rows as minibatches need them, in one array."""
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
        return _batches(self.x.index_select(0, flat), indices)

    def rows(self, indices: Array) -> DenseDesign:
        """A design of these rows."""
        return DenseDesign(self.x[torch.from_numpy(indices).to(self.x.device)])

    def block(self, rows: slice) -> DenseDesign:
        """A design of consecutive rows."""
        return DenseDesign(self.x[rows])

    def _stored_blocks(self) -> Iterator[tuple[slice, Array]]:
        for start in range(0, self.shape[0], BLOCK):
            rows = slice(start, start + BLOCK)
            yield rows, self.x[rows].cpu().numpy()


class StoredDesign(_Dense):
    """All rows of a dense matrix that stays where it is, in memory or in a file.

    Rows get their column of ones, their factors and their precision when they are read.

    Parameters
    ----------
    source : StoredRows
        The rows.
    dtype : torch.dtype
        Precision of the design.
    device : str
        Device of the minibatches.
    intercept : bool
        Whether a last column of ones is added.
    factor : array of shape (rows,) or None, default=None
        What rows are multiplied by.
    """

    def __init__(
        self,
        source: StoredRows,
        dtype: torch.dtype,
        device: str,
        intercept: bool,
        factor: Array | None = None,
    ):
        self.source, self.dtype, self.device = source, dtype, device
        self.intercept, self.factor = intercept, factor
        self.shape = (source.shape[0], source.shape[1] + int(intercept))
        self.row_numbers = self.shape[1]
        self.searched, self.run = source.searched, source.run

    @property
    def in_memory(self) -> bool:
        return self.source.in_memory

    def scale_rows(self, factor: Array) -> StoredDesign:
        """The design with every row multiplied by its factor."""
        return StoredDesign(self.source, self.dtype, self.device, self.intercept, factor)

    def held(self) -> DenseDesign:
        """All rows as minibatches need them, in one array: a copy."""
        return self.block(slice(0, self.shape[0]))

    def tensor_like(self) -> Tensor:
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def whole(self) -> StoredBatch:
        return StoredBatch(self)

    def gather(self, indices: Array) -> Sequence[DenseBatch | SharedDenseBatch]:
        return _batches(self._taken(indices.reshape(-1)).to(self.device), indices)

    def rows(self, indices: Array) -> DenseDesign:
        return DenseDesign(self._taken(indices).to(self.device))

    def block(self, rows: slice) -> DenseDesign:
        return DenseDesign(self._completed(self.source[rows], rows).to(self.device))

    def _taken(self, indices: Array) -> Tensor:
        return self._completed(self.source.take(indices), indices)

    def _completed(self, x: Array, rows: Any) -> Tensor:
        """Rows as they are stored, with the column of ones, factors and the precision."""
        out = torch.empty(len(x), self.shape[1], dtype=self.dtype)
        columns = out.numpy()
        columns[:, : x.shape[1]] = x
        if self.intercept:
            columns[:, -1] = 1.0
        if self.factor is not None:
            columns *= self.factor[rows, None]
        return out

    def _stored_blocks(self) -> Iterator[tuple[slice, Array]]:
        for start in range(0, self.shape[0], BLOCK):
            rows = slice(start, min(start + BLOCK, self.shape[0]))
            yield rows, self._completed(self.source[rows], rows).numpy()


def _batches(rows: Tensor, indices: Array) -> Sequence[DenseBatch | SharedDenseBatch]:
    """Batches of gathered rows for indices (steps, chains, rows), or (steps, rows) if shared."""
    if indices.ndim == 3 and indices.shape[1] > 1:
        return [DenseBatch(x) for x in rows.view(*indices.shape, -1).unbind(0)]
    by_step = rows.view(len(indices), -1, rows.shape[1])
    pairs = zip(by_step.unbind(0), by_step.transpose(1, 2).unbind(0), strict=True)
    return [SharedDenseBatch(x, transposed) for x, transposed in pairs]


class SparseDesign(_ByBlocks):
    """All rows of a CSR matrix, which is never converted to a dense matrix as a whole."""

    in_memory = True

    def __init__(self, x: Any, dtype: torch.dtype, device: str):
        self.x = x.tocsr()
        self.dtype = dtype
        self.device = device
        self.shape = x.shape
        self.row_numbers = 3 * max(1, x.nnz // max(x.shape[0], 1))

    def scale_rows(self, factor: Array) -> SparseDesign:
        self.x = sp.diags(factor.astype(np.float64)) @ self.x
        return self

    def held(self) -> SparseDesign:
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
        x = self._taken(indices.reshape(-1))
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

    def _taken(self, rows: Any) -> Any:
        """Rows by a slice or by their numbers, as a CSR matrix."""
        return self.x[rows]

    def rows(self, indices: Array) -> SparseDesign:
        return SparseDesign(self._taken(indices), self.dtype, self.device)

    def block(self, rows: slice) -> SparseDesign:
        return SparseDesign(self._taken(rows), self.dtype, self.device)

    def blocks(self, n_rows: int = BLOCK) -> Iterator[tuple[slice, Any]]:
        for start in range(0, self.shape[0], n_rows):
            rows = slice(start, start + n_rows)
            yield rows, self._taken(rows)

    def _stored_blocks(self) -> Iterator[tuple[slice, Any]]:
        return self.blocks()

    def gram(self, weight: Array) -> Array:
        return (self.x.T @ sp.diags(weight) @ self.x).toarray()

    def times(self, w: Array) -> Array:
        return np.asarray(self.x @ w)

    def transposed_times(self, r: Array, *, square: bool = False) -> Array:
        x = self.x.multiply(self.x) if square else self.x
        return np.asarray(x.T @ r)

    def row_squares(self, squares: Array) -> Array:
        return np.asarray(self.x.multiply(self.x) @ squares.sum(1)).reshape(-1)


class StoredSparseDesign(SparseDesign):
    """All rows of a CSR matrix that is used as it is; see :class:`StoredDesign`."""

    def __init__(
        self,
        x: Any,
        dtype: torch.dtype,
        device: str,
        intercept: bool,
        factor: Array | None = None,
    ):
        super().__init__(x, dtype, device)
        self.intercept, self.factor = intercept, factor
        self.shape = (x.shape[0], x.shape[1] + int(intercept))
        self.row_numbers += 3 * int(intercept)

    def scale_rows(self, factor: Array) -> StoredSparseDesign:
        return StoredSparseDesign(self.x, self.dtype, self.device, self.intercept, factor)

    def held(self) -> SparseDesign:
        """All rows as minibatches need them, in one matrix: a copy."""
        return self.block(slice(0, self.shape[0]))

    def _taken(self, rows: Any) -> Any:
        x = sp.csr_matrix(self.x[rows], dtype=np.float64)
        factor = np.ones(1) if self.factor is None else self.factor[rows].astype(np.float64)
        if self.factor is not None:
            x.data *= np.repeat(factor, np.diff(x.indptr))
        if self.intercept:
            ones = np.broadcast_to(factor, x.shape[:1])[:, None]
            x = sp.hstack([x, ones], format="csr")
        return x

    def gram(self, weight: Array) -> Array:
        parts = self._parts()
        return np.asarray(sum(part.gram(weight[rows]) for rows, part in parts))

    def times(self, w: Array) -> Array:
        return np.concatenate([part.times(w) for _, part in self._parts()])

    def transposed_times(self, r: Array, *, square: bool = False) -> Array:
        parts = self._parts()
        return np.asarray(sum(p.transposed_times(r[rows], square=square) for rows, p in parts))

    def row_squares(self, squares: Array) -> Array:
        return np.concatenate([part.row_squares(squares) for _, part in self._parts()])

    def _parts(self) -> Iterator[tuple[slice, SparseDesign]]:
        for rows, x in self.blocks(SPARSE_BLOCK):
            yield rows, SparseDesign(x, self.dtype, self.device)


Design = DenseDesign | StoredDesign | SparseDesign


def make_design(x: Any, *, dtype: torch.dtype, device: str, intercept: bool) -> Design:
    """A design from dense rows or a CSR matrix, with a last column of ones if ``intercept``.

    Many rows stay where they are.
    """
    if sp.issparse(x):
        stored = StoredSparseDesign(x, dtype, device, intercept)
        return stored.held() if x.data.nbytes <= HELD_BYTES else stored
    source = x if isinstance(x, StoredRows) else StoredRows(np.asarray(x))
    design = StoredDesign(source, dtype, device, intercept)
    small = design.shape[0] * design.shape[1] * dtype.itemsize <= HELD_BYTES
    on_device = source.in_memory and device != "cpu"
    return design.held() if small or on_device else design
