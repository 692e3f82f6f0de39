r"""Priors of group effects: blocks of coefficients, each with one scale of its own.

In a model with grouped rows, the coefficients are :math:`\theta = (e_1, \ldots, e_T, w)`: the
effects of T terms, such as an intercept for each group, and then the coefficients of the features
with all that belongs to them. The effects of a term have the prior :math:`N(0, s_t^2)`. Its scale
is given or learned, as that of the features is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ...priors.factorised import Normal
from .coefficient_priors import CoefficientPrior, FixedScales, JoinedPriors, LearnedScales


@dataclass(frozen=True)
class GroupTerm:
    """Effects that share one scale: an intercept, or the slope of one feature, for each group."""

    #: what the groups are, and the feature if the term is a slope: the draws of the effects are
    #: called "effect_<name>", and those of their sd "sd_<name>"
    name: str
    #: number of groups
    n_groups: int
    #: prior sd of the effects in multiples of ``unit``, or its hyperprior
    scale: Any
    #: unit of the effects: one over the sd of the feature, if the term is a slope
    unit: float = 1.0

    def prior(self) -> CoefficientPrior:
        if isinstance(self.scale, (int, float)):
            return FixedScales(Normal(), self.scale * self.unit, self.n_groups, 1, 0)
        learned = LearnedScales(self.scale, np.full(self.n_groups, self.unit), 1, 0)
        learned.apart = True
        return learned


class GroupedCoefficients(JoinedPriors):
    """The prior of group effects, followed by that of the features' coefficients.

    ``features`` is the prior of these, of the intercept and of its own parameters.
    """

    isotropic = False
    normal = None
    precision = None

    def __init__(self, terms: Sequence[GroupTerm], features: CoefficientPrior):
        self.terms, self.features = terms, features
        each = [*(term.prior() for term in terms), features]
        super().__init__(each, np.cumsum([term.n_groups for term in terms]).tolist())
        #: names that the parts' own draws have in the model
        self.names = [f"sd_{term.name}" for term in terms] + ["scale"]
        self.effects = [f"{what}_{term.name}" for term in terms for what in ("effect", "sd")]
        self.smooth = all(prior.smooth for prior in each)
        self.tails = max(prior.tails for prior in each)
        self.shapes = features.shapes
        self.recorded = {
            name: shape
            for name, prior in zip(self.names, each, strict=True)
            for shape in prior.recorded.values()
        }

    # draws of the scales --------------------------------------------------------------------------

    def draw_recorded(self, theta: Array, rng: ChainRandom, temperatures: Array) -> Array:
        each = [prior.draw_recorded(own, rng, temperatures) for prior, own in self._split(theta)]
        return np.concatenate(each, axis=-1)

    def move_recorded(self, recorded: Array, before: Array, now: Array) -> Array:
        sizes = [sum(map(math.prod, prior.recorded.values())) for _, prior in self.parts]
        scales = np.split(recorded, np.cumsum(sizes)[:-1], axis=-1)
        parts = zip(scales, self._split(before, now), strict=True)
        found = [prior.move_recorded(own, *places) for own, (prior, *places) in parts]
        return np.concatenate(found, axis=-1)

    def unpack(self, parts: dict[str, Array]) -> dict[str, Array]:
        for term in self.terms:
            if f"sd_{term.name}" in parts:
                parts[f"sd_{term.name}"] = parts[f"sd_{term.name}"] * term.unit
        return self.features.unpack(parts)
