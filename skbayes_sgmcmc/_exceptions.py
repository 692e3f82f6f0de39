"""Errors and warnings of the package."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Error = TypeVar("Error", bound=Exception)

#: where docs/warnings.md explains most errors: those of one parameter, or of the data
NOT_ALLOWED = "a-parameter-or-the-data-are-not-allowed"
#: and those of a later call of ``partial_fit``
LATER_CALL = "a-later-call-of-partial_fit-differs"
#: remedies if a run does not fit into the memory of its device; draws are on the host
FIT_REMEDY = "give a smaller batch_size, fewer n_chains, or dtype='float32'"

#: with code between a user's line and ours
_LIBRARIES = (
    __name__.partition(".")[0], "sklearn", "joblib",
    "concurrent", "contextlib", "multiprocessing", "threading",
)  # fmt: skip
#: what may take a warning instead of the user: (name, message, section, category) -> whether it did
Taker = Callable[[str, str, str, type[Warning]], bool]
#: the fit that runs, if one does: the texts of its warnings, what returns its estimator's name, and
#: what takes its warnings, if it is a part of a search
_fit: ContextVar[tuple[list[str], Callable[[], str], Taker | None] | None] = ContextVar(
    "fit", default=None
)
#: whether warnings of the package are left out
_silent: ContextVar[bool] = ContextVar("silent", default=False)
#: how messages and notes begin to send the reader to docs/warnings.md
MORE = "More: skbayes_sgmcmc.explain"
#: how messages about it begin, if it is the host's or that of another device
FULL, FULL_DEVICE = "memory is full", "the device's memory is full"


class SamplingError(RuntimeError):
    """There is no posterior to return: chains diverged to values that are not finite.

    With a given step size these are all chains. With an automatic one it may be one of them.

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


def listed(names: Iterable[str], most: int = 3) -> str:
    """The first of some names as a message lists them, and how many more there are."""
    names = [*names]
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


@contextmanager
def explain_full_memory(remedy: str) -> Iterator[None]:
    """Replace errors of a full memory by a ``MemoryError`` that says what to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        if reason.startswith((FULL, FULL_DEVICE)) or not _is_full(error):
            raise
        if isinstance(error, _device_error()):
            message = f"{FULL_DEVICE}: {remedy}, or device='cpu'; other programs may also hold some"
        else:
            message = f"{FULL}: {remedy}; other programs may also hold some"
        message += f" of it. ({reason})"
        raise MemoryError(message + more("the-memory-is-full")) from error


def _is_full(error: Exception) -> bool:
    """Whether an error says that memory is full: numpy's, torch's of a GPU, torch's of a CPU."""
    # on a CPU torch's is a RuntimeError, and only its text tells what it is
    of_memory = isinstance(error, (MemoryError, _device_error()))
    return of_memory or "DefaultCPUAllocator" in str(error)


def _device_error() -> type[Exception]:
    """The class of torch's error of a full memory that is not the host's."""
    import torch

    return torch.OutOfMemoryError


def more(section: str) -> str:
    """End of a message: where the documentation explains it (a heading of docs/warnings.md)."""
    return f' {MORE}("{section}")'


def explained(error: Error, section: str = NOT_ALLOWED) -> Error:
    """The error with a note of where it is explained, unless it has one: ``raise explained(...)``.

    A note is the last line of a traceback and no part of ``str(error)``. Pickles keep it.
    """
    if not any(MORE in note for note in getattr(error, "__notes__", ())):
        error.add_note(more(section).lstrip())
    return error


def not_allowed(message: str, section: str = NOT_ALLOWED) -> ValueError:
    """A ``ValueError`` with the note of where it is explained: ``raise not_allowed(...)``."""
    return explained(ValueError(message), section)


def undefined(of: object, method: str) -> NotImplementedError:
    """An error of a user's subclass without a method: ``raise undefined(self, "change(x, u)")``."""
    return explained(NotImplementedError(f"{type(of).__name__} has no method {method}"))


def module_not_allowed(message: str) -> ValueError:
    """The same for a torch module."""
    return not_allowed(message, "a-module-is-not-allowed")


def size_not_allowed(message: str) -> ValueError:
    """The same for numbers that are too large or too small."""
    return not_allowed(message, "numbers-are-too-large-or-too-small")


def later_not_allowed(message: str) -> ValueError:
    """The same for what a later call of ``partial_fit`` must keep."""
    return not_allowed(message, LATER_CALL)


@contextmanager
def explained_errors(section: str = NOT_ALLOWED) -> Iterator[None]:
    """Add the note to errors of other packages' checks; decorates functions, too."""
    try:
        yield
    except (TypeError, ValueError) as error:
        explained(error, section)
        raise


@contextmanager
def extra(name: str, needs: str) -> Iterator[None]:
    """Explain a failed import of what an extra installs; ``needs`` says what needs it."""
    try:
        yield
    except ImportError as error:
        message = f"{needs}: install the extra 'skbayes-sgmcmc[{name}]'."
        raise explained(ImportError(message), "an-extra-is-missing") from error


def warn(message: str, section: str, category: type[SamplingWarning] = SamplingWarning) -> None:
    """Issue a :class:`SamplingWarning` that points to the line of the user's code.

    It begins with the name of the estimator that is fitted, unless the message has it already.
    ``section`` is the heading of docs/warnings.md that explains it, as in a link.
    """
    if _silent.get():
        return
    message += more(section)
    fit = _fit.get()
    if fit is not None:
        texts, name_of, take = fit
        name = name_of()
        message = message if name in message else f"{name}: {message}"
        texts.append(message)
        if take is not None and take(name, message, section, category):
            return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and is_library(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def collected_warnings(name: Callable[[], str], take: Taker | None = None) -> Iterator[list[str]]:
    """Collect the texts of all warnings of a fit, which are issued unless ``take`` takes them.

    ``name`` returns the name of its estimator, which takes a few milliseconds.
    """
    texts: list[str] = []
    token = _fit.set((texts, name, take))
    try:
        yield texts
    finally:
        _fit.reset(token)


@contextmanager
def silent() -> Iterator[None]:
    """Issue no warning of the package: those of a run that is only a part of a fit."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def heard() -> bool:
    """Whether warnings are issued: checks of a run that is only a part of a fit are left out."""
    return not _silent.get()


def is_library(module: str) -> bool:
    """Whether code of this module stands between a user's line and ours."""
    return module.partition(".")[0] in _LIBRARIES
