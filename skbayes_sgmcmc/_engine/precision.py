"""Whether the gradients of steps may be computed in single precision.

It halves the time of steps that take all rows. Positions, noise and draws stay in double precision.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from .._data.chain_random import ChainRandom
from .._data.minibatch import Minibatches
from .._limits import LIMITS
from ..samplers import Sampler
from .target import Coordinates, Evaluator, Target

#: largest error of a gradient, in units in which it moves the mean by as many posterior sds. It is
#: a third of the Monte Carlo error of 1,000 effective draws
LARGEST_ERROR = 1e-2
#: draws of the Gaussian approximation at which it is measured, once as they are and once in the
#: tails, this many times as far from the centre
DRAWS, TAIL = 4, 3.0


def single_is_enough(
    target: Target, minibatches: Minibatches, sampler: Sampler, temperature: float
) -> bool:
    """Whether single precision pays in steps that take all rows, and changes nothing that counts.

    In whitened coordinates the potential is about |phi|^2 / 2 and a posterior sd sqrt(T/N), so an
    error b of the gradient moves the mean by b / sqrt(T/N) sds. The error is measured, because
    bounds say little: columns that are far from zero, or nearly collinear, lose digits.
    """
    coordinates = target.coordinates
    if coordinates is None or target.like.dtype != torch.float64:
        return False
    if not minibatches.full or target.like.device.type != "cpu" or temperature == 0.0:
        return False
    if sampler.needs_potential or sampler.full_data or target.model.after_step is not None:
        return False  # their densities would be those of other numbers
    if _products(target, minibatches, coordinates) < LIMITS.single_products:
        return False
    batch = next(minibatches.chunk(None, 1, ChainRandom([])))
    if not all(hasattr(field, "to") for field in batch.fields.values()):
        return False  # rows in a file
    return _error(target, minibatches, temperature) <= LARGEST_ERROR


def _products(target: Target, minibatches: Minibatches, coordinates: Coordinates) -> int:
    """About how many multiplications the gradient of one chain takes."""
    n_parameters = target.model.n_parameters
    if coordinates.root.ndim == 1:
        return minibatches.numbers
    return n_parameters * (minibatches.size + 2 * n_parameters)


def _error(target: Target, minibatches: Minibatches, temperature: float) -> float:
    """Largest error of a gradient's coordinate in single precision, in posterior sds."""
    sd = math.sqrt(temperature / target.n)
    draws = np.random.default_rng(0).standard_normal((DRAWS, target.model.n_parameters))
    phi = torch.from_numpy(sd * np.concatenate([draws, TAIL * draws])).to(target.like)
    rng = ChainRandom([])
    state = target.model.init_state(target.to_theta(phi))
    found = []
    with torch.no_grad():
        for dtype in (None, torch.float32):
            rows = minibatches.in_precision(dtype)
            evaluator = Evaluator(target, rows, rng, state, split=False)
            evaluator.batch = next(rows.chunk(None, 1, rng))
            found.append(evaluator.gradient(phi).clone())
    error = (found[1] - found[0]).abs().max().item() / sd
    return error if math.isfinite(error) else math.inf
