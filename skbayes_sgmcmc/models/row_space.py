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
from numpy.typing import NDArray

from .._data.chain_random import ChainRandom
from .._limits import LIMITS

Array = NDArray[Any]


@dataclass(frozen=True)
class RowSpace:
    """Coordinates of the coefficients, for one matrix of features.

    Attributes
    ----------
    units : array of shape (n_features,)
        Prior sds of the coefficients, for a common scale of 1.
    axes : array of shape (n_features, rank)
        V, with orthonormal columns.
    """

    units: Array
    axes: Array

    @staticmethod
    def pays(X: Any, k: int) -> bool:
        """Whether k predictors of rows X are sampled faster, and at all, in such coordinates."""
        n_features = X.shape[1]
        for some in (X[:n_features], X):  # the first rows tell of most tables
            n_rows = _distinct(some)  # a row of weight two counts as two rows
            if 2 * n_rows > n_features:
                return False
        numbers = n_rows * n_features if not sp.issparse(X) else X.nnz * n_rows / X.shape[0]
        few = k * (n_rows + 1) <= LIMITS.full_hessian and n_rows**2 <= 4 * numbers
        return bool(few and 8 * n_rows * n_features <= LIMITS.auto_bytes)

    @classmethod
    def of(cls, X: Any, units: Array, weight: Array | None = None) -> Self:
        """Those of rows X, (rows, n_features), which are principal axes of the weighted rows."""
        X = X.multiply(units).tocsr() if sp.issparse(X) else X.astype(np.float64) * units
        if weight is not None:
            root = np.sqrt(weight)[:, None]
            X = X.multiply(root).tocsr() if sp.issparse(X) else X * root
        products = X @ X.T
        products = products.toarray() if sp.issparse(products) else products
        squares, turned = scipy.linalg.eigh(products)
        # the others are rounding, and move no predictor by as much as the prior's sd times 1e-6
        clear = squares > max(1e-12 * squares[-1], np.finfo(float).tiny)
        axes = np.asarray(X.T @ (turned[:, clear] / np.sqrt(squares[clear])))
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


def _distinct(X: Any) -> int:
    """Number of different rows."""
    if not sp.issparse(X):
        return len(np.unique(X, axis=0))
    ends = zip(X.indptr[:-1], X.indptr[1:], strict=True)
    return len({(X.indices[a:b].tobytes(), X.data[a:b].tobytes()) for a, b in ends})
