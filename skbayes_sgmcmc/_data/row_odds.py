"""How often minibatches draw each row."""

from __future__ import annotations

import numpy as np

from .._arrays import Array


class RowOdds:
    """Frequencies with which rows are drawn, and the weights that they then have.

    ``size`` (n_rows,) are positive numbers in proportion to the frequencies.
    """

    def __init__(self, size: Array):
        self.n_rows = len(size)
        self._cumulative = np.cumsum(size)
        self._cumulative /= self._cumulative[-1]
        self._weights = size.sum() / (len(size) * size)

    def rows(self, u: Array) -> Array:
        """Numbers of the rows at which the cumulative frequencies pass u, in [0, 1)."""
        found = np.searchsorted(self._cumulative, u, side="right")
        return np.minimum(found, self.n_rows - 1)

    def weights(self, rows: Array) -> Array:
        """One over the number of rows times their frequencies."""
        return np.asarray(self._weights[rows])
