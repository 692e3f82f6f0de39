"""Posterior draws that store only their nonzero numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._arrays import Array
from .posterior_samples import PosteriorSamples
from .storage import decode


class CompressedSamples(PosteriorSamples):
    """Draws with some blocks, those of many zeros as :class:`Kept`, with one row per draw."""

    def __init__(self, posterior: PosteriorSamples, names: Sequence[str]):
        self.size = posterior.n_chains, posterior.n_draws
        self.weights, self.statistics = posterior.weights, dict(posterior.statistics)
        self._shapes = {name: posterior.shapes[name] for name in names}
        #: pooled draws (n_chains * n_draws, size), as arrays or :class:`Kept`
        self.blocks = {name: _compressed(posterior.draws[name]) for name in names}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)  # without the draws, which are made of the blocks

    @property
    def draws(self) -> Mapping[str, Array]:  # type: ignore[override]
        """All draws by name. Each block is decompressed at every access."""
        return _Draws(self)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._shapes

    @property
    def n_chains(self) -> int:
        return self.size[0]

    @property
    def n_draws(self) -> int:
        return self.size[1]

    def __getitem__(self, name: str) -> Array:
        return self.select(name, slice(None)).reshape(*self.size, *self._shapes[name])

    def select(self, name: str, draws: Any) -> Array:
        rows = self.blocks[name][np.arange(self.size[0] * self.size[1])[draws]]
        return decode(rows.reshape(-1, *self._shapes[name]))


class Kept:
    """Rows (n, size) stored as their nonzero numbers, with one bit for every position.

    This is smaller than a CSR matrix, which has an index for every nonzero number, if at most 96%
    of the numbers are zero.
    """

    def __init__(self, rows: Array):
        kept = rows != 0
        self.size = rows.shape[1]
        self.values = rows[kept]
        self.places = np.packbits(kept, axis=1)
        self.stops = np.cumsum(kept.sum(axis=1))

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.places.nbytes + self.stops.nbytes

    def __getitem__(self, chosen: Array) -> Array:
        """The rows with the indices ``chosen``."""
        kept = np.unpackbits(self.places[chosen], axis=1, count=self.size).view(bool)
        rows = np.zeros(kept.shape, self.values.dtype)
        starts = np.concatenate([[0], self.stops[:-1]])
        for row, places, i in zip(rows, kept, chosen, strict=True):
            row[places] = self.values[starts[i] : self.stops[i]]
        return rows


class _Draws(Mapping[str, Array]):
    """Mapping that decompresses a block when it is accessed."""

    def __init__(self, samples: CompressedSamples):
        self._samples = samples

    def __getitem__(self, name: str) -> Array:
        return self._samples[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._samples.blocks)

    def __len__(self) -> int:
        return len(self._samples.blocks)


def _compressed(draws: Array) -> Any:
    """Draws (chains, draws, *shape) as a new array of pooled rows, or as Kept if smaller."""
    rows = draws.reshape(draws.shape[0] * draws.shape[1], -1)
    kept = Kept(rows)
    return kept if kept.nbytes < rows.nbytes else np.array(rows, order="C")
