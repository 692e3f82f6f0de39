"""Design matrices, dense or sparse: all rows of a model, and batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.fields import Field
from ..._data.rows import StoredCSR, StoredRows
from ..._data.sending import sent
from ..._draws.storage import dtype_name
from ..._limits import LIMITS, slices
from .batches import (
    ChosenRows,
    CSRBatch,
    DenseBatch,
    SharedDenseBatch,
    SparseBatch,
    StoredBatch,
    TripletBatch,
)
from .gram import gram_with_ones, left_range


class _Dense(Field):
    """Sums over all rows of a dense matrix, block by block.

    Products are in the precision of the rows as they are stored, and their sums in float64. A
    column of ones and factors that are not stored count without a copy of the rows.
    """

    #: whether the last column, of ones, is not stored
    intercept = False
    #: what rows are multiplied by, if that is not stored
    factor: Array | None = None

    def _stored_blocks(self) -> Iterator[tuple[slice, Array]]:
        """Consecutive blocks of rows as they are stored, in float32 or float64."""
        raise NotImplementedError

    def completed_blocks(self) -> Iterator[tuple[slice, Array]]:
        """The same with the column of ones and the factors, in the precision of the design."""
        return self._stored_blocks()

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Consecutive blocks of complete rows, as arrays in float64 or CSR matrices.

        Sums over all rows go by blocks, which avoids a second copy of X in float64.
        """
        for rows, x in self.completed_blocks():
            yield rows, x.astype(np.float64, copy=False)

    def _moved(self, w: Array, *, exact: bool = False) -> Iterator[tuple[slice, Array]]:
        """Blocks of X w, for w (columns, m); ``exact``: without the rounding of w."""
        w, m = np.asarray(w, dtype=np.float64), w.shape[1]
        for rows, x in self._stored_blocks():
            # products of larger coefficients leave single precision
            if x.dtype != np.float64 and not np.abs(w).max(initial=0.0) < 1e30:
                x = x.astype(np.float64)
            near = w.astype(x.dtype)
            if exact and x.dtype != np.float64:
                near = np.hstack([near, (w - near).astype(x.dtype)])
            moved = x @ near[: x.shape[1]]
            if self.intercept:
                moved += near[-1]
            if near.shape[1] > m:
                moved = moved[:, :m].astype(np.float64) + moved[:, m:]
            if self.factor is not None:
                moved *= self.factor[rows, None]
            yield rows, moved

    def moved_squares(self, w: Array) -> Array:
        """Squared lengths of the rows of X w, for w (columns, m)."""
        found = np.empty(self.shape[0])
        for rows, moved in self._moved(w):
            found[rows] = np.einsum("ij,ij->i", moved, moved, dtype=np.float64)
        return found

    def times(self, w: Array) -> Array:
        """X w for an array (columns, k)."""
        product = np.empty((self.shape[0], w.shape[1]))
        # what rounding takes from w would move the predictors of all rows alike
        for rows, moved in self._moved(w, exact=True):
            product[rows] = moved
        return product

    def transposed_times(self, r: Array, *, square: bool = False) -> Array:
        """X' r, or (X*X)' r, for an array (rows, k)."""
        if self.factor is not None:
            r = r * self._factors(square=square)[:, None]
        total = np.zeros((self.shape[1], r.shape[1]))
        for rows, x in self._stored_blocks():
            with np.errstate(over="ignore", invalid="ignore"):
                part = (np.square(x) if square else x).T @ r[rows].astype(x.dtype)
                if x.dtype != np.float64 and left_range(part, x, square=square):
                    wide = x.astype(np.float64)
                    part = (np.square(wide) if square else wide).T @ r[rows]
            total[: x.shape[1]] += part
        if self.intercept:
            total[-1] = r.sum(0)
        return total

    def gram(self, weight: Array) -> Array:
        """X' diag(weight) X."""
        if self.factor is not None:
            weight = weight * self._factors(square=True)
        stored = self.shape[1] - int(self.intercept)
        total = gram_with_ones(self._stored_blocks(), weight, stored)
        return total[: self.shape[1], : self.shape[1]]

    def _factors(self, *, square: bool) -> Array:
        assert self.factor is not None
        factor = self.factor.astype(np.float64)
        return factor * factor if square else factor


class DenseDesign(_Dense):
    """All rows of a dense matrix on one device, as minibatches need them."""

    by_tensor = True

    def __init__(self, x: Tensor):
        super().__init__(x.shape, x.dtype, x.device)
        self.x = x

    def scale_rows(self, factor: Array) -> DenseDesign:
        """Multiply every row by its factor, in place, and return the design."""
        self.x.mul_(torch.from_numpy(factor[:, None]).to(self.x))
        return self

    def held(self) -> DenseDesign:
        """All rows as minibatches need them, in one array."""
        return self

    def whole(self) -> SharedDenseBatch:
        return SharedDenseBatch(self.x)

    def gather(self, indices: Any) -> Sequence[DenseBatch | SharedDenseBatch]:
        """Batches for row indices (steps, chains, rows), or (steps, rows) if shared."""
        flat = indices.reshape(-1)
        if not isinstance(flat, Tensor):
            flat = sent(torch.from_numpy(flat), self.x.device)
        return dense_batches(self.x.index_select(0, flat), indices)

    def __getitem__(self, chosen: Any) -> DenseDesign:
        return DenseDesign(self.x[chosen])

    def _stored_blocks(self) -> Iterator[tuple[slice, Array]]:
        for rows in slices(self.shape[0], LIMITS.block_rows):
            yield rows, self.x[rows].cpu().numpy()


class StoredDesign(_Dense):
    """All rows of a dense matrix that stays where it is, in memory or in a file.

    When they are read, rows get their precision, a last column of ones if ``intercept``, and are
    multiplied by their ``factor`` (rows,), if there is one. ``device`` is that of minibatches.
    """

    def __init__(
        self,
        source: StoredRows,
        dtype: torch.dtype,
        device: str,
        intercept: bool,
        factor: Array | None = None,
    ):
        n_rows, n_columns = source.shape
        super().__init__((n_rows, n_columns + int(intercept)), dtype, device)
        self.source, self.intercept, self.factor = source, intercept, factor

    def scale_rows(self, factor: Array) -> StoredDesign:
        """The design with every row multiplied by its factor."""
        return StoredDesign(self.source, self.dtype, self.device, self.intercept, factor)

    def held(self) -> DenseDesign:
        """All rows as minibatches need them, in one array: a copy."""
        every = slice(0, self.shape[0])
        return DenseDesign(self._completed(self.source[every], every).to(self.device))

    def whole(self) -> StoredBatch:
        return StoredBatch(self)

    def gather(self, indices: Array) -> Sequence[DenseBatch | SharedDenseBatch]:
        return dense_batches(self._taken(indices.reshape(-1)).to(self.device), indices)

    def __getitem__(self, chosen: Any) -> StoredDesign:
        """A design of some rows, which are read now."""
        source = StoredRows(self.source[chosen])
        factor = None if self.factor is None else self.factor[chosen]
        return StoredDesign(source, self.dtype, self.device, self.intercept, factor)

    def _taken(self, indices: Array) -> Tensor:
        return self._completed(self.source.take(indices), indices)

    def _completed(self, x: Array, rows: Any) -> Tensor:
        """Rows as they are stored, with the column of ones, factors and the precision."""
        out = torch.empty(len(x), self.shape[1], dtype=self.dtype, device="cpu")
        columns = out.numpy()
        with np.errstate(over="ignore"):  # what is not finite is refused
            columns[:, : x.shape[1]] = x
        if self.intercept:
            columns[:, -1] = 1.0
        if self.factor is not None:
            columns *= self.factor[rows, None]
        return out

    def _stored_blocks(self) -> Iterator[tuple[slice, Array]]:
        return self.source.blocks(LIMITS.block_rows)

    def completed_blocks(self) -> Iterator[tuple[slice, Array]]:
        for rows, x in self._stored_blocks():
            yield rows, self._completed(x, rows).numpy()


def dense_batches(rows: Tensor, indices: Any) -> Sequence[DenseBatch | SharedDenseBatch]:
    """Batches of gathered rows for indices (steps, chains, rows), or (steps, rows) if shared."""
    if indices.ndim == 3 and indices.shape[1] > 1:
        return [DenseBatch(x) for x in rows.view(*indices.shape, rows.shape[1]).unbind(0)]
    by_step = rows.view(len(indices), len(rows) // len(indices), rows.shape[1])
    return [SharedDenseBatch(x) for x in by_step.unbind(0)]


class SparseDesign(Field):
    """All rows of a CSR matrix, which is never converted to a dense matrix as a whole."""

    #: whether the matrix has all columns and factors
    complete = True

    def __init__(self, x: Any, dtype: torch.dtype, device: str, n_ones: int = 0):
        super().__init__((x.shape[0], x.shape[1] + n_ones), dtype, device)
        self.csr = x.tocsr()
        self.row_numbers = 3 * max(1, x.nnz // max(x.shape[0], 1))

    @property
    def x(self) -> Any:
        """The matrix."""
        return self.csr

    def scale_rows(self, factor: Array) -> SparseDesign:
        scaled = sp.diags(factor.astype(np.float64)) @ self.csr
        return SparseDesign(scaled, self.dtype, self.device)

    def held(self) -> SparseDesign:
        return self

    def whole(self) -> SparseBatch:
        return self.gather(np.arange(self.shape[0])[None], often=True)[0]

    def gather(self, indices: Array, *, often: bool = False) -> Sequence[SparseBatch]:
        """Batches for row indices (steps, chains, rows), or (steps, rows) if shared.

        ``often``: whether they are for many steps.
        """
        shared, on_cpu = indices.ndim == 2, torch.device(self.device).type == "cpu"
        if on_cpu and self.complete and len(indices) == 1 and not often:
            return [ChosenRows(self, indices[0])]
        x, per_step = self.beside(indices), int(np.prod(indices.shape[1:]))
        if on_cpu:
            starts = range(0, x.shape[0], per_step)
            parts = [x] if len(indices) == 1 else [x[a : a + per_step] for a in starts]
            return [CSRBatch(part, self.shape[1], shared, often) for part in parts]
        row = np.tile(np.arange(per_step), len(indices))
        sizes = np.diff(x.indptr[::per_step]).tolist()
        triplets = zip(
            self._tensor(np.repeat(row, np.diff(x.indptr))).split(sizes),
            self._tensor(x.indices).split(sizes),
            self._tensor(x.data, self.dtype).split(sizes),
            strict=True,
        )
        return [TripletBatch(*part, per_step, self.shape[1], shared) for part in triplets]

    def beside(self, indices: Array) -> Any:
        """Rows of indices as in :meth:`gather`, one below the other.

        Unless all chains share them, each chain has a block of columns.
        """
        x, size = self._taken(indices.reshape(-1)), indices.shape[-1]
        chains = 1 if indices.ndim == 2 else indices.shape[1]
        column = x.indices
        if chains > 1:
            # SciPy would copy numbers that are longer than they need to be
            short = chains * self.shape[1] <= np.iinfo(np.int32).max
            starts = np.arange(chains, dtype=np.int32 if short else np.int64) * self.shape[1]
            blocks = np.repeat(starts, size)
            column = column + np.repeat(np.tile(blocks, len(indices)), np.diff(x.indptr))
        values = x.data.astype(dtype_name(self.dtype), copy=False)
        return sp.csr_matrix((values, column, x.indptr), (x.shape[0], chains * self.shape[1]))

    @cached_property
    def parts(self) -> tuple[Array, Array, Array]:
        """Values in the precision of the design, columns, and where rows start."""
        return self.csr.data.astype(dtype_name(self.dtype)), self.csr.indices, self.csr.indptr

    def _tensor(self, values: Array, dtype: torch.dtype = torch.int64) -> Tensor:
        return sent(torch.from_numpy(values).to(dtype), torch.device(self.device))

    def _taken(self, rows: Any) -> Any:
        """Rows by a slice or by their numbers, as a CSR matrix."""
        return self.x[rows]

    def __getitem__(self, chosen: Any) -> SparseDesign:
        return SparseDesign(self._taken(chosen), self.dtype, self.device)

    def blocks(self, n_rows: int | None = None) -> Iterator[tuple[slice, Any]]:
        for rows in slices(self.shape[0], n_rows or LIMITS.block_rows):
            yield rows, self._taken(rows)

    def moved_squares(self, w: Array) -> Array:
        """Squared lengths of the rows of X w, for w (columns, m)."""
        moved = (np.square(x @ w).sum(1) for _, x in self.blocks())
        return np.concatenate([np.asarray(each) for each in moved])

    def gram(self, weight: Array) -> Array:
        return (self.x.T @ sp.diags(weight) @ self.x).toarray()

    def times(self, w: Array) -> Array:
        return np.asarray(self.x @ w)

    def transposed_times(self, r: Array, *, square: bool = False) -> Array:
        x = self.x.multiply(self.x) if square else self.x
        return np.asarray(x.T @ r)


class StoredSparseDesign(SparseDesign):
    """All rows of a CSR matrix that is used as it is; see :class:`StoredDesign`."""

    complete = False

    def __init__(
        self,
        x: Any,
        dtype: torch.dtype,
        device: str,
        intercept: bool,
        factor: Array | None = None,
    ):
        super().__init__(x, dtype, device, int(intercept))
        self.csr = StoredCSR(self.csr)
        self.intercept, self.factor = intercept, factor
        self.row_numbers += 3 * int(intercept)

    @property
    def x(self) -> Any:
        return self.csr.matrix

    def scale_rows(self, factor: Array) -> StoredSparseDesign:
        return StoredSparseDesign(self.x, self.dtype, self.device, self.intercept, factor)

    def held(self) -> SparseDesign:
        """All rows as minibatches need them, in one matrix: a copy."""
        return self[:]

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

    def _parts(self) -> Iterator[tuple[slice, SparseDesign]]:
        for rows, x in self.blocks(LIMITS.narrow_rows):
            yield rows, SparseDesign(x, self.dtype, self.device)


Design = DenseDesign | StoredDesign | SparseDesign


def make_design(x: Any, *, dtype: torch.dtype, device: str, intercept: bool) -> Design:
    """A design from dense rows or a CSR matrix, with a last column of ones if ``intercept``.

    Many rows stay where they are.
    """
    if sp.issparse(x):
        stored = StoredSparseDesign(x, dtype, device, intercept)
        return stored.held() if x.data.nbytes <= LIMITS.held_bytes else stored
    source = x if isinstance(x, StoredRows) else StoredRows(np.asarray(x))
    design = StoredDesign(source, dtype, device, intercept)
    small = design.shape[0] * design.shape[1] * dtype.itemsize <= LIMITS.held_bytes
    on_device = source.in_memory and device != "cpu"
    return design.held() if small or on_device else design
