"""Errors and warnings of the package."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: remedies if a run does not fit into the memory of its device; draws are on the host
FIT_REMEDY = (
    "give a smaller batch_size, fewer n_chains, dtype='float32', or device='cpu'; other programs "
    "may also hold memory of the device"
)


#: whose code is between a user's line and ours
_LIBRARIES = (
    __name__.partition(".")[0], "sklearn", "joblib",
    "concurrent", "contextlib", "multiprocessing", "threading",
)  # fmt: skip
#: texts of the warnings of the fit that runs, if one does
_texts: ContextVar[list[str] | None] = ContextVar("texts", default=None)
#: whether warnings of the package are left out
_silent: ContextVar[bool] = ContextVar("silent", default=False)
#: how messages about it begin
FULL = "the device's memory is full"


class SamplingError(RuntimeError):
    """There is no posterior to return: every chain diverged to values that are not finite.

    It is also raised before chains begin if the approximation that they need is not finite.
    """


class SamplingWarning(UserWarning):
    """The draws may be unreliable; the message gives the reason and what to change."""


class RandomLayerWarning(SamplingWarning):
    """A module has dropout or other random layers, which are switched off; the message names them.

    Silence it with ``warnings.simplefilter("ignore", RandomLayerWarning)`` where this is known.
    """


class CheckpointError(ValueError):
    """A checkpoint file is damaged or belongs to another fit. The file is left untouched."""


@contextmanager
def explain_full_memory(remedy: str) -> Iterator[None]:
    """Replace errors of a full memory by a ``MemoryError`` that says what to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        if reason.startswith(FULL) or not _is_full(error):
            raise
        message = f"{FULL}: {remedy}. ({reason})"
        raise MemoryError(message + more("the-memory-is-full")) from error


def _is_full(error: Exception) -> bool:
    """Whether an error says that memory is full: numpy's, torch's of a GPU, torch's of a CPU."""
    import torch

    # on a CPU torch's is a RuntimeError, of which only the text tells what it is
    of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return of_memory or "DefaultCPUAllocator" in str(error)


def more(section: str) -> str:
    """End of a message: where the documentation explains it (a heading of docs/warnings.md)."""
    return f" More: docs/warnings.md#{section}"


def warn(message: str, section: str, category: type[SamplingWarning] = SamplingWarning) -> None:
    """Issue a :class:`SamplingWarning` that points to the line of the user's code.

    ``section`` is the heading of docs/warnings.md that explains it, as in a link.
    """
    if _silent.get():
        return
    message += more(section)
    texts = _texts.get()
    if texts is not None:
        texts.append(message)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_library(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the texts of all warnings of the package, which are issued nonetheless."""
    texts: list[str] = []
    token = _texts.set(texts)
    try:
        yield texts
    finally:
        _texts.reset(token)


@contextmanager
def silent() -> Iterator[None]:
    """Issue no warning of the package: those of a run that is only a part of a fit."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES
