"""Posterior draws of which only the numbers that are not zero are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .samples import PosteriorSamples
from .storage import decode

Array = NDArray[Any]

#: share of zeros from which on a block is smaller as CSR: each number that is kept has an index
WORTH = 0.5


class CompressedSamples(PosteriorSamples):
    """Draws whose blocks of many zeros are CSR matrices, one row a draw.

    Parameters
    ----------
    posterior : PosteriorSamples
        The draws.
    names : sequence of str
        The blocks that are kept.

    Attributes
    ----------
    blocks : dict of str to array or CSR matrix of shape (n_chains * n_draws, size)
        Pooled draws.
    shapes : dict of str to tuple
        Of one draw of each block.
    """

    def __init__(self, posterior: PosteriorSamples, names: Sequence[str]):
        self.size = posterior.n_chains, posterior.n_draws
        self.weights, self.statistics = posterior.weights, dict(posterior.statistics)
        self.shapes = {name: posterior.draws[name].shape[2:] for name in names}
        self.blocks = {name: _compressed(posterior.draws[name]) for name in names}

    @property
    def draws(self) -> Mapping[str, Array]:  # type: ignore[override]
        """All draws by name; made anew at each use."""
        return {name: self[name] for name in self.blocks}

    @property
    def n_chains(self) -> int:
        return self.size[0]

    @property
    def n_draws(self) -> int:
        return self.size[1]

    def __getitem__(self, name: str) -> Array:
        return self.select(name, slice(None)).reshape(*self.size, *self.shapes[name])

    def select(self, name: str, draws: Any) -> Array:
        rows = self.blocks[name][np.arange(self.size[0] * self.size[1])[draws]]
        dense = rows.toarray() if sp.issparse(rows) else rows
        return decode(dense.reshape(-1, *self.shapes[name]))


def _compressed(draws: Array) -> Any:
    """(chains, draws, *shape) as pooled rows: CSR if that is smaller."""
    rows = draws.reshape(draws.shape[0] * draws.shape[1], -1)
    if np.count_nonzero(rows) > WORTH * rows.size:
        return np.ascontiguousarray(rows)
    return sp.csr_matrix(rows)
