"""Priors of parameters, which estimators take as ``prior``."""

from .factorised import Laplace, Normal, Prior
from .learned_scale import LearnedScale
from .spike_slab import SpikeSlab

__all__ = ["Laplace", "LearnedScale", "Normal", "Prior", "SpikeSlab"]
