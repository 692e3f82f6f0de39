"""What stands for missing numbers: conditional means, given the numbers of a row that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..._arrays import Array
from ..._limits import LIMITS

#: most rounds of EM, and the change of a correlation that ends them
ROUNDS, SETTLED = 20, 1e-3
#: most columns: the time of a row grows with the cube of their number
MOST_COLUMNS = 100


@dataclass(frozen=True, eq=False)
class NormalNumbers:
    """A normal distribution of columns of numbers (docs/results/gaps.md).

    Its mean and covariance are found by EM (Dempster, Laird and Rubin 1977) from at most
    ``LIMITS.sampled_rows`` rows of the first fit. The covariance is shrunk towards its diagonal, as
    by d + 1 rows of d independent columns, so that few rows do not make up relations.
    """

    #: numbers of the columns
    places: list[int]
    #: what columns are standardised by, and their smallest and largest values then, (2, d) each
    units: Array
    ends: Array
    #: mean (d,) and covariance (d, d) of the standardised columns
    mean: Array
    covariance: Array

    @classmethod
    def learned(cls, places: Sequence[int], values: Array) -> Self | None:
        """The distribution of columns (rows, d) with gaps; None if it can say nothing."""
        d = values.shape[1]
        if not 1 < d <= MOST_COLUMNS:
            return None
        with np.errstate(all="ignore"):  # squares of large numbers may overflow
            units = np.stack([np.nanmean(values, axis=0), np.nanstd(values, axis=0)])
            units[1, units[1] == 0.0] = 1.0
            ends = np.stack([np.nanmin(values, axis=0), np.nanmax(values, axis=0)]) - units[0]
            found = cls([*places], units, ends / units[1], np.zeros(d), np.eye(d))
            some = found._standardised(values[:: -(-len(values) // LIMITS.sampled_rows)])
            for _ in range(ROUNDS):
                before, found = found, found._next(some)
                if np.abs(found.covariance - before.covariance).max() < SETTLED:
                    break
        return found if np.isfinite(found.covariance).all() else None

    def filled(self, values: Array) -> Array:
        """Columns (rows, d) of other rows, with conditional means in the place of gaps."""
        z = self._completed(self._standardised(values))[0]
        return np.where(np.isnan(values), z * self.units[1] + self.units[0], values)

    def _standardised(self, values: Array) -> Array:
        return np.asarray((values - self.units[0]) / self.units[1])

    def _next(self, z: Array) -> Self:
        """The distribution after a round of EM."""
        filled, unknown = self._completed(z)
        n, d = z.shape
        covariance = np.cov(filled.T, bias=True).reshape(d, d) + unknown
        alone = np.diag(np.maximum(np.diag(covariance), 1e-6))  # constants have no variance
        covariance = (n * covariance + (d + 1) * alone) / (n + d + 1)
        return type(self)(self.places, self.units, self.ends, filled.mean(axis=0), covariance)

    def _completed(self, z: Array) -> tuple[Array, Array]:
        """Rows without gaps, and the mean covariance of what was missing, given the rest.

        Rows with the same gaps go together.
        """
        out, unknown, (low, high) = z.copy(), np.zeros_like(self.covariance), self.ends
        patterns, which = np.unique(np.isnan(z), axis=0, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        starts = np.searchsorted(which.ravel()[order], np.arange(len(patterns) + 1))
        for number, gap in enumerate(patterns):
            if not gap.any():
                continue
            rows, there = order[starts[number] : starts[number + 1]], ~gap
            shared = self.covariance[np.ix_(there, gap)]
            slopes = np.linalg.solve(self.covariance[np.ix_(there, there)], shared)
            means = self.mean[gap] + (z[np.ix_(rows, there)] - self.mean[there]) @ slopes
            # beyond the values of the first rows, means are guesses
            out[np.ix_(rows, gap)] = means.clip(low[gap], high[gap])
            rest = self.covariance[np.ix_(gap, gap)] - shared.T @ slopes
            unknown[np.ix_(gap, gap)] += len(rows) / len(z) * rest
        return out, unknown
