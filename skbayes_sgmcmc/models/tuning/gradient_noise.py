"""How much noise minibatches of a nearly Gaussian posterior have: everywhere, and in its tails."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..._arrays import Array
from .auto import AUTO


def largest_second_moment(rows: Array, root: Array, rng: np.random.Generator) -> float:
    """Largest eigenvalue of the mean of root' r r' root over rows r, by power iteration."""
    vector: Array = rng.standard_normal((root.shape[1],))
    value = 0.0
    for _ in range(20):
        vector /= max(float(np.linalg.norm(vector)), np.finfo(float).tiny)
        vector = root.T @ (rows.T @ (rows @ (root @ vector))) / len(rows)
        value = float(np.linalg.norm(vector))
    return value


def noise_in_tail(
    gradients: Callable[[Array], Array], root: Array, vector: Array, sd: float
) -> float:
    """Variance of single rows' gradients along a ray from the centre, where the posterior ends.

    Control variates are linear, so the noise grows with the square of the distance. Along the
    coefficient of a rare feature the true gradient becomes constant instead: where the noise is
    larger than what is injected, chains are thrown far into this tail. The posterior ends where its
    density has fallen like a Gaussian's at ``farthest_draw`` sds; the steep side's end is nearer.
    """
    length = float(np.linalg.norm(vector))
    if not (length > 0.0 and sd > 0.0):
        return 0.0
    ray, fallen, force, variance = vector / length, 0.0, 0.0, 0.0
    for distance in (2, 4, 6, 8):
        with np.errstate(all="ignore"):
            along = gradients(sd * distance * ray) @ (root @ ray)
            new_force, new = distance + float(along.mean()) / sd, float(along.var())
        drop = 0.5 * (force + new_force) * 2.0
        if not math.isfinite(drop):
            return variance
        if fallen + drop >= 0.5 * AUTO.farthest_draw**2:
            return variance + (new - variance) * (0.5 * AUTO.farthest_draw**2 - fallen) / drop
        fallen, force, variance = fallen + drop, new_force, new
    return variance
