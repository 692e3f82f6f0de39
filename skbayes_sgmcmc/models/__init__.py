"""Base classes for models of your own.

Subclass :class:`Model`, and give its rows as :class:`Data`. :class:`CurvedModel`,
:class:`MetricModel` and :class:`ManyModes` add support for ``step_size="auto"``.
"""

from .._data.minibatch import Batch, Data
from .._metric import DiagonalMetric, Metric
from ._gaussian_tuning import CurvedModel
from ._metric_tuning import MetricModel
from ._protocol import Model
from ._tuning import ManyModes, Tuning
from .density import DensityModel

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
