"""Rows of a stream that are kept, because later ones may change what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .._arrays import Array
from .._limits import LIMITS, slices

#: bounds of the factors that correct the weights of chosen rows
FACTORS = 0.1, 10.0


@dataclass(frozen=True, slots=True)
class StreamRules:
    """What a stream keeps, and when its rows become a Gaussian (docs/results/streams.md).

    ``LIMITS`` has the numbers of rows.
    """

    # Rows that are kept ---------------------------------------------------------------------------

    #: most moments of first and second order that a choice of rows preserves; beyond, only some
    moments: int = 300
    #: fewest chosen rows for each of these moments, which change weights by a third
    rows_per_moment: int = 8
    #: rows that a kept one stands for, on average, from which on means are off by more than half
    #: an sd
    many: int = 10

    # The Gaussian that replaces them --------------------------------------------------------------

    #: most parts of a stream that are looked at, and fewest, unless rows are too many to be kept;
    #: after each part, there are at least an eighth more rows than before it
    past_means: int = 8
    least_parts: int = 3
    spacing: float = 1.125
    #: standard deviations by which a chi-square may exceed its mean
    far: float = 5.0
    #: mean square of a coordinate of draws, in sds of the Gaussian, that tells they are not of it;
    #: of few draws of one chain it is above 9 three times in a thousand
    far_draws: float = 9.0
    #: relative change of the curvature within a posterior sd if the mean is still a good start
    most_change: float = 0.3
    #: expected error, in sds, of a Gaussian that is used far from its mean, which a warning tells
    most_stretched: float = 2.0
    #: fewest steps of a part before its rows become a Gaussian, which takes longer; and of
    #: the first one
    least_steps: int = 20
    first_steps: int = 500


STREAM = StreamRules()


@dataclass(frozen=True)
class KeptRows:
    """Rows with weights; a row may stand for several."""

    #: array or sparse matrix (rows, columns)
    x: Any
    #: class indices (rows,) or targets (rows, k); rows without any are not kept
    target: Any
    #: weights, (rows,); None: all are one
    weight: Array | None = None
    #: number of rows that they stand for, if not for themselves
    n_seen: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return float(self.n_rows if self.weight is None else self.weight.sum())

    def some(self, rows: Array) -> KeptRows:
        """Some of the rows, by their numbers."""
        weight = None if self.weight is None else self.weight[rows]
        return KeptRows(self.x[rows], self.target[rows], weight)

    def are_few(self, n_parameters: int) -> bool:
        """Whether the rows are in memory, and not too many to be kept."""
        dense = isinstance(self.x, np.ndarray) and not isinstance(self.x, np.memmap)
        held = dense or (sp.issparse(self.x) and type(self.x.data) is np.ndarray)
        return held and self.target is not None and self.n_rows <= self._most(n_parameters)

    def stand_for_many(self, before: KeptRows | None, n_parameters: int) -> bool:
        """Whether they stand for very many, which those ``before`` did not yet."""
        limit = STREAM.many * self._most(n_parameters)
        return self._seen > limit and (before is None or before._seen <= limit)

    @property
    def _seen(self) -> int:
        return self.n_seen or self.n_rows

    def at_most(self, n_parameters: int) -> KeptRows:
        """These rows if they are few, or half as many as may be kept, which stand for them."""
        most = self._most(n_parameters)
        return self if self.n_rows <= most else self.chosen(most // 2)

    def _most(self, n_parameters: int) -> int:
        return max(LIMITS.kept_numbers // self.x.shape[1], LIMITS.kept_per_parameter * n_parameters)

    def and_new(self, new: KeptRows) -> KeptRows:
        """These rows, followed by new ones."""
        sparse = sp.issparse(self.x) or sp.issparse(new.x)
        weight = None
        if self.weight is not None or new.weight is not None:
            weight = np.concatenate([self.weights(), new.weights()])
        return KeptRows(
            sp.vstack([self.x, new.x], format="csr") if sparse else np.concatenate([self.x, new.x]),
            np.concatenate([self.target, new.target]),
            weight,
            self._seen + new._seen,
        )

    def weights(self) -> Array:
        """The weights, also if all are one."""
        return np.ones(self.n_rows) if self.weight is None else self.weight

    def chosen(self, n_rows: int) -> KeptRows:
        """About ``n_rows`` of the rows, with weights that preserve moments of all of them.

        Rows are drawn without replacement, half of them in proportion to their weights and half to
        their leverage, so that rare values stay (Drineas et al. 2008). Their weights are then
        corrected such that weighted sums of the columns, of the targets, and of their squares and
        products, are those of all rows (calibration, Deville and Sarndal 1992). A log likelihood
        that is quadratic in them is preserved exactly; another one up to its difference from the
        closest quadratic function.
        """
        rng = np.random.default_rng(round(self.total))
        all_weights = self.weights()
        columns = _Columns(self.x, self.target, all_weights)
        probability = _inclusion(all_weights, columns.leverages(), n_rows)
        # systematic sampling in a random order: as many rows as the probabilities sum to
        order = rng.permutation(len(probability))
        steps = np.floor(np.cumsum(probability[order]) + rng.random())
        taken = np.sort(order[np.diff(steps, prepend=0.0) > 0.0])
        weight = all_weights[taken] / probability[taken]
        weight = weight * columns.factors(taken, weight)
        return KeptRows(self.x[taken], self.target[taken], weight, self._seen)


class _Columns:
    """Columns and targets of rows, standardised, and their products."""

    def __init__(self, x: Any, target: Array, weight: Array):
        self.x, self.weight = x, weight
        if target.dtype.kind in "iu":  # classes: one column for each but the first
            target = np.equal.outer(target, np.arange(1, target.max(initial=1) + 1))
        self.target = target.reshape(len(target), -1).astype(float)
        self.n_targets = self.target.shape[1]
        self.width = x.shape[1] + self.n_targets
        self.center, self.scale = np.zeros(self.width), np.ones(self.width)
        first, second = np.zeros(self.width), np.zeros(self.width)
        for block in self.blocks():
            first += weight[block] @ self.plain(block)
        self.center = first / weight.sum()
        for block in self.blocks():
            second += weight[block] @ self.plain(block) ** 2
        self.scale = np.sqrt(second / weight.sum())
        self.scale[self.scale == 0.0] = 1.0

    def blocks(self) -> list[slice]:
        return list(slices(len(self.target), LIMITS.block_rows))

    def plain(self, chosen: Any) -> Array:
        """Columns and targets of some rows, (rows, width)."""
        x = self.x[chosen]
        x = x.toarray() if sp.issparse(x) else x
        found = np.concatenate([x, self.target[chosen]], axis=1, dtype=float)
        return (found - self.center) / self.scale

    def leverages(self) -> Array:
        """Leverages of all rows in a weighted regression on a constant and the columns."""
        gram = np.zeros((self.width + 1, self.width + 1))
        for block in self.blocks():
            design = _with_constant(self.plain(block))
            gram += (design * self.weight[block, None]).T @ design
        root = _inverse_root(gram)
        parts = [
            np.square(_with_constant(self.plain(block)) @ root).sum(1) for block in self.blocks()
        ]
        return self.weight * np.concatenate(parts)

    def moments(self, chosen: Any, limit: int) -> Array:
        """A constant, columns and products of some rows, (rows, at most ``limit``)."""
        plain = self.plain(chosen)
        d = self.width
        if 1 + d > limit:
            return np.ones((len(plain), 1))
        found = _with_constant(plain)
        if 1 + d + d * (d + 1) // 2 <= min(limit, STREAM.moments):
            i, j = np.triu_indices(d)
            return np.concatenate([found, plain[:, i] * plain[:, j]], axis=1)
        if 1 + 2 * d <= limit:
            found = np.concatenate([found, plain**2], axis=1)
        if found.shape[1] + self.n_targets * d <= limit:
            of_targets = [plain * plain[:, [d - 1 - k]] for k in range(self.n_targets)]
            found = np.concatenate([found, *of_targets], axis=1)
        return found

    def factors(self, taken: Array, weight: Array) -> Array:
        """Factors of the weights of some rows with which their moments are those of all rows."""
        limit = len(taken) // STREAM.rows_per_moment
        wanted: Any = 0.0
        for block in self.blocks():
            wanted = wanted + self.weight[block] @ self.moments(block, limit)
        parts = [taken[block] for block in self.blocks() if block.start < len(taken)]
        weights = [weight[block] for block in self.blocks() if block.start < len(taken)]
        gram, held = np.zeros((len(wanted), len(wanted))), np.zeros(len(wanted))
        for part, of_part in zip(parts, weights, strict=True):
            found = self.moments(part, limit)
            gram += (found * of_part[:, None]).T @ found
            held += of_part @ found
        unit = 1.0 / np.sqrt(np.maximum(gram.diagonal(), np.finfo(float).tiny))
        root = unit[:, None] * _inverse_root(unit[:, None] * gram * unit)
        slope = root @ (root.T @ (wanted - held))
        found = np.concatenate([self.moments(part, limit) @ slope for part in parts])
        factors = np.clip(1.0 + found, *FACTORS)
        return np.asarray(factors * (self.weight.sum() / (weight @ factors)))


def _inverse_root(gram: Array) -> Array:
    """R with R R' the inverse of a Gram matrix, without directions that hardly occur in it."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-10 * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def _with_constant(columns: Array) -> Array:
    return np.concatenate([np.ones((len(columns), 1)), columns], axis=1)


def _inclusion(weight: Array, leverage: Array, n_rows: int) -> Array:
    """Probabilities, of sum ``n_rows``, with which rows are taken; certain ones have 1."""
    size = 0.5 * weight / weight.sum() + 0.5 * leverage / leverage.sum()
    certain = np.zeros(len(size), dtype=bool)
    while True:
        left = n_rows - certain.sum()
        found = np.where(certain, 1.0, left * size / size[~certain].sum())
        above = found > 1.0
        if not above.any():
            return np.asarray(found)
        certain |= above
