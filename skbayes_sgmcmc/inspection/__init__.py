"""Figures of fitted estimators; drawing one needs matplotlib, of the extra ``plot``."""

from ._callback import LearningCurve
from ._entropy import EntropyHistogramDisplay
from ._learning_curve import LearningCurveDisplay
from ._reliability import ReliabilityDisplay, expected_calibration_error
from ._weights import WeightHistogramDisplay

__all__ = [
    "EntropyHistogramDisplay",
    "LearningCurve",
    "LearningCurveDisplay",
    "ReliabilityDisplay",
    "WeightHistogramDisplay",
    "expected_calibration_error",
]
