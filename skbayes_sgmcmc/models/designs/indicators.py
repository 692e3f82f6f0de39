"""Rows that mostly hold the same values, such as indicators of many categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.fields import Field
from ..._limits import LIMITS, slices
from .batches import DenseBatch, DesignBatch, SharedDenseBatch, SparseBatch
from .design import SparseDesign, dense_batches


class IndicatorDesign(Field):
    """All rows: dense columns, and a CSR matrix of what differs from a constant in the others.

    ``places`` are those of the dense columns, and ``constant`` (columns,) is zero there.
    """

    def __init__(self, dense: Tensor, places: Tensor, rest: SparseDesign, constant: Tensor):
        super().__init__(rest.shape, dense.dtype, dense.device)
        self.dense, self.places, self.rest, self.constant = dense, places, rest, constant
        self.row_numbers = dense.shape[1] + rest.row_numbers

    def __getitem__(self, chosen: Any) -> IndicatorDesign:
        return IndicatorDesign(self.dense[chosen], self.places, self.rest[chosen], self.constant)

    def whole(self) -> IndicatorBatch:
        return self._batch(SharedDenseBatch(self.dense), self.rest.whole())

    def gather(self, indices: Array) -> Sequence[IndicatorBatch]:
        """Batches for row indices (steps, chains, rows), or (steps, rows) if shared."""
        dense = dense_batches(self.dense[indices.reshape(-1)], indices)
        # one step at a time: the sparse rows of one are not copied
        rest = (self.rest.gather(step[None])[0] for step in indices)
        return [self._batch(*parts) for parts in zip(dense, rest, strict=True)]

    def _batch(self, dense: DenseBatch | SharedDenseBatch, rest: SparseBatch) -> IndicatorBatch:
        return IndicatorBatch(dense, self.places, rest, self.constant)


class IndicatorBatch(DesignBatch):
    """The rows of a minibatch, for coefficients (chains, columns, outputs)."""

    def __init__(
        self,
        some: DenseBatch | SharedDenseBatch,
        places: Tensor,
        rest: SparseBatch,
        constant: Tensor,
    ):
        self.some, self.places, self.rest, self.constant = some, places, rest, constant
        self.dtype = constant.dtype

    def to(self, dtype: torch.dtype) -> IndicatorBatch:
        """The same rows, which all chains share, in another precision."""
        parts: Any = self.some, self.rest
        some, rest = (part.to(dtype) for part in parts)
        return IndicatorBatch(some, self.places, rest, self.constant.to(dtype))

    def dense(self) -> Tensor:
        found = self.rest.dense() + self.constant
        found[:, self.places] = self.some.dense()
        return found

    def logits(self, w: Tensor) -> Tensor:
        usual = (self.constant @ w).unsqueeze(1)
        return self.some.logits(w[:, self.places]) + self.rest.logits(w) + usual

    def accumulate(self, out: Tensor, r: Tensor, scale: float) -> None:
        self.rest.accumulate(out, r, scale)
        some = out.new_zeros(len(out), len(self.places), out.shape[2])
        self.some.accumulate(some, r, scale)
        out.index_add_(1, self.places, some)
        out.addcmul_(self.constant[:, None], r.sum(1, keepdim=True), value=scale)


class ShiftedRows:
    """Rows of a CSR matrix plus the same constant (columns,), such as standardised ones."""

    def __init__(self, x: Any, constant: Array):
        self.x, self.constant, self.shape = x, constant, x.shape
        share = np.bincount(x.indices, minlength=x.shape[1]) / max(x.shape[0], 1)
        #: columns that are the constant in most rows
        self.rare = share <= LIMITS.lookup_share

    @property
    def is_sparse(self) -> bool:
        """Whether enough columns are the constant in most rows."""
        return int(self.rare.sum()) >= LIMITS.worth_lookups

    def toarray(self) -> Array:
        return np.asarray(self.x.toarray() + self.constant)


def sparse_design(x: Any, dtype: torch.dtype) -> SparseDesign | IndicatorDesign:
    """The design of a CSR matrix, or of shifted rows, on a CPU.

    Columns of the latter that are often other than the constant are dense.
    """
    if sp.issparse(x):
        return SparseDesign(x, dtype, "cpu")
    csr, places = x.x, np.flatnonzero(~x.rare)
    dense = torch.from_numpy(csr[:, places].toarray() + x.constant[places]).to(dtype)
    kept = x.rare[csr.indices]
    starts = np.concatenate([[0], kept.cumsum()])[csr.indptr]
    rest = sp.csr_matrix((csr.data[kept], csr.indices[kept], starts), csr.shape)
    constant = torch.from_numpy(np.where(x.rare, x.constant, 0.0)).to(dtype)
    return IndicatorDesign(
        dense, torch.from_numpy(places), SparseDesign(rest, dtype, "cpu"), constant
    )


def indicator_design(x: Tensor) -> IndicatorDesign | None:
    """The design of rows on a CPU, if enough columns mostly have one value; else None."""
    if x.ndim != 2 or x.shape[1] < LIMITS.worth_lookups or not len(x):
        return None
    rows = x.numpy()
    some = np.sort(rows[:: -(-len(rows) // LIMITS.sampled_rows)], axis=0)
    constant = some[len(some) // 2]
    rare = (some != constant).mean(0) <= LIMITS.lookup_share
    if rare.sum() < LIMITS.worth_lookups:
        return None
    constant = np.where(rare, constant, 0).astype(rows.dtype)
    parts = [
        _differences(rows[part], rare, constant) for part in slices(len(rows), LIMITS.block_rows)
    ]
    rest = SparseDesign(sp.vstack(parts, format="csr"), x.dtype, "cpu")
    places = torch.from_numpy(np.flatnonzero(~rare))
    return IndicatorDesign(x[:, places], places, rest, torch.from_numpy(constant))


def _differences(x: Array, rare: Array, constant: Array) -> Any:
    """A CSR matrix of what differs from the constant in these columns."""
    differs = (x != constant) & rare
    at = np.flatnonzero(differs)  # a tenth of the time of numpy.nonzero
    columns = at % x.shape[1]
    starts = np.concatenate([[0], differs.sum(1).cumsum()])
    return sp.csr_matrix((x.ravel()[at] - constant[columns], columns, starts), x.shape)
