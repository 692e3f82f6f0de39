"""Priors of parameters, which estimators take as ``prior``."""

from .factorised import Laplace, Normal, Prior
from .spike_slab import SpikeSlab

__all__ = ["Laplace", "Normal", "Prior", "SpikeSlab"]
