"""The protocol for models of your own: subclass :class:`Model`, give its rows as :class:`Data`."""

from .._data.minibatch import Batch, Data
from .._metric import DiagonalMetric, Metric
from ._protocol import DensityModel, Model

__all__ = ["Batch", "Data", "DensityModel", "DiagonalMetric", "Metric", "Model"]
