r"""More features than rows: coefficients in the space of the rows, and what no row informs.

With a normal prior of sd s, the coefficients are :math:`V a + s \nu`. The columns of V span the
rows, so that the likelihood depends on a alone, and :math:`\nu` keeps its prior: it is a standard
normal vector without a part along V. Chains sample a, as many numbers as there are rows. A learned
s depends on a alone, too, if :math:`\nu` is integrated out, which is drawn for every kept draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.rows import first_equal
from ..._limits import LIMITS


@dataclass(frozen=True)
class RowSpace:
    """Coordinates of the coefficients, for one matrix of features."""

    #: prior sds of the coefficients, for a common scale of 1, (n_features,)
    units: Array
    #: V, with orthonormal columns, (n_features, rank)
    axes: Array

    @classmethod
    def of(cls, X: Any, k: int, units: Array, weight: Array | None = None) -> Self | None:
        """Those of rows X, (rows, n_features), which are principal axes of the weighted rows.

        None if k predictors of these rows are not sampled faster in such coordinates.
        """
        n_features = X.shape[1]
        if 2 * _different(X[:n_features])[0].shape[0] > n_features:  # true of most tables
            return None
        rows, place = _different(X)  # a row of weight two is the same as two rows
        n_rows, numbers = rows.shape[0], rows.nnz if sp.issparse(rows) else rows.size
        few = 2 * n_rows <= n_features and k * (n_rows + 1) <= LIMITS.full_hessian
        fits = 8 * n_rows * max(n_features, X.shape[0]) <= LIMITS.auto_bytes
        if not (few and fits and n_rows**2 <= 4 * numbers):
            return None
        root = np.sqrt(np.bincount(place, weight))[:, None]
        if sp.issparse(rows):
            rows = rows.multiply(units).multiply(root).tocsr()
            products = (rows @ rows.T).toarray()
        else:
            rows = rows.astype(np.float64) * units * root
            products = rows @ rows.T
        squares, turned = scipy.linalg.eigh(products)
        # the others are rounding, and move no predictor by as much as the prior's sd times 1e-6
        clear = squares > max(1e-12 * squares[-1], np.finfo(float).tiny)
        if not clear.any():  # no row says anything
            return None
        axes = np.asarray(rows.T @ (turned[:, clear] / np.sqrt(squares[clear])))
        largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
        return cls(units, axes * np.sign(largest))

    @property
    def rank(self) -> int:
        return self.axes.shape[1]

    def rows(self, X: Any) -> Array:
        """Features of rows in these coordinates, (rows, rank)."""
        return np.asarray(X @ (self.units[:, None] * self.axes))

    def beyond(self, n_draws: int, k: int, scale: Any, rng: ChainRandom) -> Array:
        """s times nu of every chain and draw, (chains, n_draws, n_features * k)."""
        n = len(self.units)
        free = rng.normal(n_draws, n * k, dtype=torch.float64).cpu().numpy()
        flat = free.reshape(-1, n)  # all in one product of matrices
        flat -= (flat @ self.axes) @ self.axes.T
        flat = flat.reshape(*free.shape[:2], k, n) * np.asarray(scale)[..., None, None]
        return flat.swapaxes(2, 3).reshape(free.shape)

    def coefficients(self, within: Array, beyond: Array) -> Array:
        """Coefficients (..., k, n_features), from a and s nu, which are (..., n, k)."""
        found = beyond.swapaxes(-1, -2).copy()
        flat = within.swapaxes(-1, -2).reshape(-1, self.rank)
        found += (flat @ self.axes.T.astype(flat.dtype)).reshape(found.shape)
        found *= self.units.astype(found.dtype)
        return np.asarray(found)


def _different(X: Any) -> tuple[Any, Array]:
    """The rows without repetitions, and the place of each row of X among them."""
    kept, place = np.unique(first_equal(X, X.dtype), return_inverse=True)
    return X[kept], place
