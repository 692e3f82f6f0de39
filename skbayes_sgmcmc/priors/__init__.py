"""Priors of parameters, as objects to give as ``prior``."""

from .factorised import PRIORS, Laplace, Normal, Prior
from .spike_slab import SpikeSlab

__all__ = ["PRIORS", "Laplace", "Normal", "Prior", "SpikeSlab"]
