"""Step sizes at walls, where the gradient of a row with a huge value begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..._arrays import Array
from ..._data.minibatch import Data
from .auto import AUTO

if TYPE_CHECKING:
    from ...samplers import Sampler
    from .gaussian import CurvedModel


def step_at_walls(
    model: CurvedModel,
    sampler: Sampler,
    data: Data,
    known: Data,
    center: Array,
    root: Array,
    temperature: float,
    eta: float,
) -> float:
    """``eta``, or the largest step size at which no row throws a coefficient half the way back.

    A row with a huge value and a class beyond doubt for most draws adds nothing to the
    curvature of typical draws, theta ~ N(center, root root'). A chain that comes to where this
    class is in doubt is thrown back by the row's whole gradient; far enough, and seldom enough, to
    make the posterior's sds too large and to move its mean. Throws of one sd do no harm. A row of
    many columns throws each coefficient less far than it throws its own logit. ``known`` are the
    rows, or what is known of them.
    """

    def largest(distance: Array, force: Array) -> Array:
        thrown = np.maximum(0.5 * distance, 1.0)
        return sampler.largest_step(force / temperature, thrown)

    near: list[tuple[Array, ...]] = []  # rows, distances and forces of each block
    for block, part in known.blocks():
        found = model.walls(center, root, part)
        if found is None:
            return eta
        distance, force = found
        rows = np.flatnonzero((distance < AUTO.farthest_wall) & (force > 0.0))
        rows = rows[largest(distance[rows], force[rows]) < eta]
        near.append((rows + block.start, distance[rows], force[rows]))
    rows, distance, force = (np.concatenate(parts) for parts in zip(*near, strict=True))
    if not len(rows):
        return eta
    limits = largest(distance, force)
    order = np.argsort(limits)
    worst, others = np.sort(order[: AUTO.worst_rows]), limits[order[AUTO.worst_rows :]]
    share = model.wall_correlations(center, root, data.select(rows[worst]))
    return float(min(eta, largest(distance[worst], share * force[worst]).min(), *others[:1]))
