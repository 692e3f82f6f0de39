"""Figures of fitted estimators (with matplotlib, extra ``plot``), calibration and attacks."""

from ._adversarial import AdversarialCurveDisplay, fgsm
from ._callback import LearningCurve
from ._coefficients import CoefficientDisplay
from ._entropy import EntropyHistogramDisplay
from ._instability import InstabilityDisplay
from ._interval_coverage import IntervalCoverageDisplay
from ._learning_curve import LearningCurveDisplay
from ._noise_phases import NoisePhaseDisplay
from ._partial_effects import PartialEffectDisplay
from ._predictive_check import PredictiveCheckDisplay
from ._relevance import RelevanceDisplay
from ._reliability import ReliabilityDisplay, expected_calibration_error
from ._residuals import ResidualDisplay
from ._topics import TopicDisplay
from ._weights import WeightHistogramDisplay

__all__ = [
    "AdversarialCurveDisplay",
    "CoefficientDisplay",
    "EntropyHistogramDisplay",
    "InstabilityDisplay",
    "IntervalCoverageDisplay",
    "LearningCurve",
    "LearningCurveDisplay",
    "NoisePhaseDisplay",
    "PartialEffectDisplay",
    "PredictiveCheckDisplay",
    "RelevanceDisplay",
    "ReliabilityDisplay",
    "ResidualDisplay",
    "TopicDisplay",
    "WeightHistogramDisplay",
    "expected_calibration_error",
    "fgsm",
]
