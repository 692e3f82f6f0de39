"""Models whose rows have walls at known distances, as those of classes and of counts have."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import Array
from ..._data.minibatch import Data
from ..tuning.gaussian import CurvedModel

#: what sds are divided by at least
SMALLEST = np.finfo(float).tiny


class WalledModel(CurvedModel):
    """Base class of models that say how far each row's wall is, in units of its predictor."""

    def _margins(self, center: Array, data: Data) -> tuple[Array, Any] | None:
        """How far (rows,) the centre is before each row's wall, and what the walls' directions are.

        The second is for the two methods below.
        """
        raise NotImplementedError

    def _sds_of_margins(self, root: Array, walls: Any, data: Data) -> Array:
        """Sds (rows,) of the margins for theta ~ N(., root root')."""
        raise NotImplementedError

    def _largest_moves(self, directions: Array, walls: Any, data: Data) -> Array:
        """By how much (rows,) ``directions`` (n_parameters, m) move the margins at the most."""
        raise NotImplementedError

    def walls(self, center: Array, root: Array, data: Data) -> tuple[Array, Array] | None:
        found = self._margins(center, data)
        if found is None:
            return None
        margin, walls = found
        sd = self._sds_of_margins(root, walls, data)
        certain = np.where(margin > 0.0, margin, np.inf)
        # of a row of weight 1: a weight of two must mean the same as two rows
        return certain / np.maximum(sd, SMALLEST), data.scale * sd

    def wall_correlations(self, center: Array, root: Array, data: Data) -> Array:
        found = self._margins(center, data)
        assert found is not None
        sds = np.sqrt(np.square(root).sum(1))
        scaled = root @ (root / np.maximum(sds, SMALLEST)[:, None]).T
        largest = self._largest_moves(scaled, found[1], data)
        return largest / np.maximum(self._sds_of_margins(root, found[1], data), SMALLEST)
