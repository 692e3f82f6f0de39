"""Energy errors of a run's steps, at the draws that it has kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._data.minibatch import Minibatches
from .._draws.storage import decode
from .._limits import LIMITS
from .target import Evaluator, Target


@dataclass(frozen=True, slots=True)
class EnergyRules:
    """What is measured, and what is allowed."""

    #: most draws that a step starts from; and first, which are enough if the error is a
    #: small share of what is allowed: with 4,000 draws, a default fit of breast_cancer took a tenth
    #: more
    draws: int = 4000
    first_draws: int = 500
    small_share: float = 0.2
    #: largest energy error, in units of that of the table's step in a normal posterior. Fits of
    #: separable classes with priors of any width were right up to 60 of these units with SGHMC and
    #: 200 with SGLD, and wrong from 90 and 1900
    largest_error: float = 50.0


ENERGY = EnergyRules()


def allowed_error(squared_length: float, usual_step: float) -> float:
    """The largest mean square of Delta / sqrt(d); on N(0, I) it is about (c eta)^3 / 16."""
    return ENERGY.largest_error * (squared_length * usual_step) ** 3 / 16.0


def energy_error(
    target: Target,
    minibatches: Minibatches,
    draws: Sequence[Array],
    squared: float,
    temperature: float,
    n_draws: int = ENERGY.draws,
) -> float:
    """Mean square of a step's energy error Delta, divided by the number of parameters d.

    A leapfrog step of the squared length ``squared`` with a new momentum starts at some of the
    ``draws``, arrays (chains, draws, n_kept) of groups of chains. Delta is estimated as in
    ``samplers/_tuning.py``. Where the posterior's curvature is larger than at the centre of its
    Gaussian approximation, as at the border of the coefficients that separate the classes, draws
    are there or have been thrown from there.
    """
    d, rows = target.model.n_parameters, minibatches.size
    chains = [chain for of_group in draws for chain in of_group]
    each = max(1, min(n_draws, LIMITS.checked_products // (rows * d)) // len(chains))
    some = [one[np.unique(np.linspace(0, len(one) - 1, each).astype(int))] for one in chains]
    theta = torch.from_numpy(decode(np.concatenate(some))[:, :d])
    phi = target.from_theta(theta.to(target.like))
    xi = torch.from_numpy(np.random.default_rng(0).standard_normal(phi.shape)).to(phi)
    rng, noise, h = ChainRandom([]), temperature / target.n, math.sqrt(squared)
    found, batch = [], next(minibatches.chunk(None, 1, rng))
    with torch.no_grad():
        for part in LIMITS.blocks(len(phi), rows):
            state = target.model.init_state(target.to_theta(phi[part]))
            evaluator = Evaluator(target, minibatches, rng, state, split=False)
            evaluator.batch = batch
            before = evaluator.gradient(phi[part]).clone()
            moved = h * (math.sqrt(noise) * xi[part] - 0.5 * h * before)
            after = evaluator.gradient(phi[part] + moved)
            growth = after.double().square().sum(1) - before.double().square().sum(1)
            found.append((squared / (8.0 * noise) * growth).square())
    return float(torch.cat(found).mean()) / d
