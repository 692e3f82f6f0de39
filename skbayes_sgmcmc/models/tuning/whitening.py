"""Roots of preconditioners, and the curvature that they leave."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..._arrays import Array
from ..._data.minibatch import Data
from .._linalg import inverse_root, is_sparse, largest_of_symmetric, pairs_of_symmetric
from .auto import AUTO

if TYPE_CHECKING:
    from .gaussian import CurvedModel


def root_of(precision: Array, linked: Array | None) -> Array:
    """A root of the inverse of a precision, and a sparse one if that is nearly as good.

    Learned scales link all their coefficients, but hardly. Where groups come first, rows link
    each to itself and to the features alone: ``linked`` says which, if it is known.
    """
    if linked is not None:
        with suppress(np.linalg.LinAlgError):  # some links alone may leave no positive curvature
            root = inverse_root(np.where(linked, precision, 0.0))
            if is_sparse(root) and _whitens(root, precision):
                return root
    return inverse_root(precision)


def _whitens(root: Array, precision: Array) -> bool:
    """Whether a root leaves curvatures that are near one in all directions."""

    def times(vector: Array) -> Array:
        return np.asarray(root.T @ (precision @ (root @ vector)))

    values, _ = pairs_of_symmetric(times, len(root), AUTO.few_directions)
    bound = AUTO.curvature
    return bool(len(values)) and 1.0 / bound <= values.min() and values.max() <= bound


def between(root: Array, prior: Array) -> Array:
    """A diagonal root between that of the posterior and that of the prior's curvature.

    It is for few rows: directions that these say nothing of have the prior's curvature, and others
    that of rows. With the geometric mean, both are off by the same factor. Of six text-like and
    dense tables, the ratio of the largest to the smallest curvature left was at most 14, and 30
    with either.
    """
    known = prior > 0.0
    return np.where(known, np.sqrt(root / np.sqrt(np.where(known, prior, 1.0))), root)


@dataclass(frozen=True)
class Whitened:
    """A posterior in coordinates with a root that is a matrix (P, P), or a diagonal (P,).

    With ``few`` = V, c, the root is diag(root) (1 - V diag(c) V').
    """

    model: CurvedModel
    data: Data
    root: Array
    few: tuple[Array, Array] | None = None

    def times(self, theta: Array) -> Callable[[Array], Array]:
        """The product of root' H/N root at ``theta`` with a vector."""
        model, data, root, few = self.model, self.data, self.root, self.few

        def changed(vector: Array) -> Array:
            return vector if few is None else vector - few[0] @ (few[1] * (vector @ few[0]))

        def product(vector: Array) -> Array:
            moved = root @ vector if root.ndim == 2 else root * changed(vector)
            image = model.hessian_times(theta, moved, data)
            image = (image + model.prior_hessian_times(theta, moved)) / data.total
            return np.asarray(root.T @ image if root.ndim == 2 else changed(root * image))

        return product

    def largest(self, theta: Array, n_steps: int = 30) -> float:
        """Largest eigenvalue of the curvature at ``theta``, which iteration finds from below."""
        if self.root.ndim == 2 and len(self.root) <= AUTO.whole_curvature:
            return 1.05 * self._largest_of_all(theta)
        return 1.05 * largest_of_symmetric(self.times(theta), len(self.root), n_steps)

    def _largest_of_all(self, theta: Array) -> float:
        """The same of the whole matrix, which takes few parameters a single pass over the rows."""
        model, root = self.model, self.root
        prior = np.stack([model.prior_hessian_times(theta, column) for column in root.T], 1)
        matrix = root.T @ (model.hessian(theta, self.data) @ root + prior) / self.data.total
        return float(np.linalg.eigvalsh(matrix)[-1]) if np.isfinite(matrix).all() else math.nan

    def typical(self, center: Array, temperature: float) -> float:
        """Median of :meth:`largest` over draws of the approximation.

        It is 1 for a Gaussian posterior. If the curvature varies strongly between positions, as
        with separable classes under a wide prior, the whitened posterior has a larger curvature at
        most of its draws.
        """
        rng, found = np.random.default_rng(0), []
        for _ in range(5):
            away = self.root @ rng.standard_normal(len(self.root))
            theta = center + away * math.sqrt(temperature / self.data.total)
            found.append(self.largest(theta, n_steps=8))
        return float(np.median(found))

    def few_directions(self, center: Array) -> tuple[Array, Array] | None:
        """V and c such that diag(root) (1 - V diag(c) V') whitens what diag(root) leaves.

        The directions V have a curvature that is far from one: large ones would shorten the steps
        of all, and small ones be forgotten late.
        """
        width = len(self.root)
        n_steps = min(AUTO.few_directions, max(8, AUTO.few_numbers // width))
        values, vectors = pairs_of_symmetric(self.times(center), width, n_steps)
        away = (values > AUTO.curvature) | ((values > 0.0) & (values < 1.0 / AUTO.curvature))
        if not away.any():
            return None
        return vectors[:, away], 1.0 - values[away] ** -0.5
