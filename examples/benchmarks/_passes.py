"""Counts the passes of a fit over all of its rows, and the processor time that they take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc._data.rows import StoredRows
from skbayes_sgmcmc.estimators.tables import checks as _tables


class Passes:
    """How many passes there were over at least ``n_rows`` rows, and their seconds.

    A pass is a loop over blocks of all rows, with what is computed from each block; a check that
    all rows are finite; or a reading of random rows from all over a file that is not searched.
    """

    def __init__(self, n_rows):
        self.n_rows, self.count, self.seconds, self._within = n_rows, 0, 0.0, False

    @contextmanager
    def one(self, counts):
        if self._within or not counts:
            yield
            return
        self._within, began = True, time.process_time()
        try:
            yield
        finally:
            self._within = False
            self.count += 1
            self.seconds += time.process_time() - began


@contextmanager
def counted(n_rows) -> Iterator[Passes]:
    """The passes of all fits in this context."""
    found, originals = Passes(n_rows), (Data.blocks, StoredRows.take, _tables.validate_data)

    def blocks(data):
        with found.one(data.n_rows == n_rows):
            yield from originals[0](data)

    def take(rows, numbers):
        with found.one(len(rows) == n_rows and not rows.searched):
            return originals[1](rows, numbers)

    def validate_data(estimator, X, *others, **options):
        with found.one(X.shape[0] == n_rows):
            return originals[2](estimator, X, *others, **options)

    Data.blocks, StoredRows.take, _tables.validate_data = blocks, take, validate_data
    try:
        yield found
    finally:
        Data.blocks, StoredRows.take, _tables.validate_data = originals
