"""The protocol for models of your own: subclass :class:`Model`, give its rows as :class:`Data`.

:class:`CurvedModel`, :class:`MetricModel` and :class:`ManyModes` add ``step_size="auto"``.
"""

from .._data.minibatch import Batch, Data
from .._metric import DiagonalMetric, Metric
from ._gaussian_tuning import CurvedModel, MetricModel
from ._protocol import DensityModel, Model
from ._tuning import ManyModes, Tuning

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
