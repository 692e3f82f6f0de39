"""The last look at the draws of a run: they must move, and be small enough to be summarised."""

from __future__ import annotations

import math

import numpy as np

from .._arrays import Array
from .._exceptions import SamplingError, more
from .._limits import LIMITS, slices
from .posterior_samples import PosteriorSamples


def extremes(posterior: PosteriorSamples) -> tuple[list[int], float]:
    """Pooled draws with the largest and smallest values, and the largest magnitude.

    At most 2^24 numbers of each name are looked at.
    """
    n_draws = posterior.n_pooled
    chosen, ends = {0, n_draws - 1}, []
    for name, shape in posterior.shapes.items():
        size = max(1, math.prod(shape))
        draws = posterior.spaced(min(n_draws, 2**24 // size + 1))[0]
        for some in slices(len(draws), -(-LIMITS.block_numbers // size)):
            values = posterior.select(name, draws[some]).reshape(len(draws[some]), -1)
            high, low = values.max(1, initial=0.0), values.min(1, initial=0.0)
            chosen |= {int(draws[some][high.argmax()]), int(draws[some][low.argmin()])}
            ends += [float(high.max()), -float(low.min())]
    return sorted(chosen), max(ends) if np.isfinite(ends).all() else math.inf


def check_magnitude(largest: float) -> None:
    """Raise ``SamplingError`` if draws of this magnitude have no means or standard deviations."""
    if not largest < 1e150:  # squares of larger draws overflow
        raise SamplingError(
            "the draws are too large for finite means, standard deviations and predictions "
            f"(largest magnitude {largest:.3g}): reduce step_size (try a tenth), or give "
            "dtype='float64'." + more("chains-diverged")
        )


def moves(draws: Array) -> bool:
    """Whether some coordinate of some chain moves by more than rounding errors."""
    flat = draws.reshape(*draws.shape[:2], -1)
    rounding = 100 * np.finfo(draws.dtype).eps
    for some in slices(flat.shape[2], 64):  # mostly, the first ones move
        part = flat[:, :, some]
        if (np.ptp(part, axis=1) > rounding * np.abs(part).max(axis=1)).any():
            return True
    return False
