"""How often minibatches draw each row."""

from __future__ import annotations

import numpy as np
from sklearn.utils import gen_batches

from .._arrays import Array
from .._limits import LIMITS

#: rows of a block
BLOCK = 1024


class RowOdds:
    """Frequencies with which rows are drawn, and the weights that they then have.

    ``size`` (n_rows,) are positive numbers in proportion to the frequencies.
    """

    def __init__(self, size: Array):
        self.n_rows = len(size)
        self._cumulative = np.cumsum(size)
        self._cumulative /= self._cumulative[-1]
        self._weights = size.sum() / (len(size) * size)

    @staticmethod
    def of(size: Array) -> RowOdds:
        """The class that suits so many rows."""
        return RowOdds(size) if len(size) <= LIMITS.searched_rows else OddsOfManyRows(size)

    def rows(self, u: Array) -> Array:
        """Numbers of the rows at which the cumulative frequencies pass u, in [0, 1)."""
        found = np.searchsorted(self._cumulative, u, side="right")
        return np.minimum(found, self.n_rows - 1)

    def weights(self, rows: Array) -> Array:
        """One over the number of rows times their frequencies."""
        return np.asarray(self._weights[rows])


class OddsOfManyRows(RowOdds):
    """The same in four instead of sixteen bytes a row: sums within blocks, and sums of blocks.

    What is drawn and how it is weighted is what these sums say, so that their rounding leaves means
    unbiased.
    """

    def __init__(self, size: Array):
        self.n_rows = n_rows = len(size)
        self._within = np.empty(n_rows, np.float32)
        for block in gen_batches(n_rows, BLOCK):
            self._within[block] = np.cumsum(size[block], dtype=float)
        last = np.minimum(np.arange(BLOCK, n_rows + BLOCK, BLOCK), n_rows) - 1
        self._ends = np.cumsum(self._within[last], dtype=float)

    def rows(self, u: Array) -> Array:
        left = u * self._ends[-1]
        block = np.minimum(np.searchsorted(self._ends, left, side="right"), len(self._ends) - 1)
        left = left - np.where(block > 0, self._ends[block - 1], 0.0)
        first, last = block * BLOCK, np.minimum((block + 1) * BLOCK, self.n_rows) - 1
        while (first < last).any():  # the first row of the block with a larger sum
            middle = (first + last) // 2
            beyond = self._within[middle] > left
            first, last = np.where(beyond, first, middle + 1), np.where(beyond, middle, last)
        return np.asarray(first)

    def weights(self, rows: Array) -> Array:
        before = np.where(rows % BLOCK > 0, self._within[rows - 1].astype(float), 0.0)
        size = self._within[rows].astype(float) - before  # exact
        return np.asarray(self._ends[-1] / (self.n_rows * size))
