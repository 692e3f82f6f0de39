"""Base classes for models of your own.

Subclass :class:`Model`, and give its rows as :class:`Data`. :class:`CurvedModel`,
:class:`MetricModel` and :class:`ManyModes` add support for ``step_size="auto"``.
"""

from .._data.minibatch import Batch, Data
from .._metric import DiagonalMetric, Metric
from ._protocol import Model
from .density import DensityModel
from .tuning.base import ManyModes, Tuning
from .tuning.gaussian import CurvedModel
from .tuning.metric import MetricModel

__all__ = [
    "Batch",
    "CurvedModel",
    "Data",
    "DensityModel",
    "DiagonalMetric",
    "ManyModes",
    "Metric",
    "MetricModel",
    "Model",
    "Tuning",
]
