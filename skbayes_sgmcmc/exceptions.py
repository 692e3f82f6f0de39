"""Errors and warnings of the package."""

from __future__ import annotations

import sys
import warnings


class SamplingError(RuntimeError):
    """Every chain left the finite numbers, so there is no posterior to return."""


class SamplingWarning(UserWarning):
    """The draws exist but should not be trusted blindly: the text has the number and the remedy."""


class CheckpointError(ValueError):
    """A checkpoint file is damaged or belongs to another fit; the file was left untouched."""


def warn(message: str) -> None:
    """Issue a :class:`SamplingWarning` at the line of the user's code that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_library(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, SamplingWarning, stacklevel=level)


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in (__name__.partition(".")[0], "sklearn", "joblib")
