"""One warning for all fits of a search, where scikit-learn would show one for each.

Searches, scores by cross-validation and ensembles fit clones in calls of ``joblib.Parallel``,
perhaps in other processes. A clone that is made there gets the path of a file, where its fit
leaves its warnings. The file is read when the calls are over.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
import weakref
from collections import Counter
from collections.abc import Generator
from types import FrameType
from typing import Any

from ._exceptions import RandomLayerWarning, SamplingWarning, is_library, listed

#: classes of warnings, which files name
CATEGORIES = (SamplingWarning, RandomLayerWarning)
#: the file of each ``joblib.Parallel`` that runs
_files: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def search_file() -> str | None:
    """The file of the outermost call of ``joblib.Parallel`` that runs here, if there is one."""
    calls, frame = [], sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "joblib.parallel" and "self" in frame.f_locals:
            calls.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    for call in reversed(calls):
        path = _files.get(call.f_locals["self"]) or _begun(call)
        if path is not None:
            return path
    return None


def _begun(call: FrameType) -> str | None:
    """A new file for a call of ``joblib.Parallel``, if this is one with an end that can be seen."""
    parallel, tasks = call.f_locals["self"], call.f_locals.get("iterable")
    known = hasattr(parallel, "_managed_backend") and hasattr(parallel, "_backend")
    if call.f_code.co_name != "__call__" or not isinstance(tasks, Generator) or not known:
        return None
    user = call
    while user.f_back is not None and is_library(user.f_globals.get("__name__", "")):
        user = user.f_back
    line = {"filename": user.f_code.co_filename, "lineno": user.f_lineno}
    try:
        descriptor, path = tempfile.mkstemp(prefix="skbayes-", suffix=".warnings")
    except OSError:  # each fit then warns by itself
        return None
    os.close(descriptor)
    _files[parallel] = path
    if parallel._managed_backend:  # in a "with" of several calls: its end releases the backend
        release = parallel._backend.terminate

        def terminate() -> None:
            parallel._backend.terminate = release
            release()
            _end(path, line)

        parallel._backend.terminate = terminate
    else:  # nothing else holds the tasks of one call
        weakref.finalize(tasks, _end, path, line)
    return path


def leave(path: str, name: str, message: str, section: str, category: type[Warning]) -> bool:
    """Whether a warning was written to the file of a search, which will issue it.

    It is not if a filter makes an error of it or drops it, nor on another machine, which has no
    such file.
    """
    if _action(message, category) in ("error", "ignore"):
        return False
    try:
        with open(os.open(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as file:
            file.write(json.dumps([category.__name__, section, name, message]) + "\n")
    except OSError:
        return False
    return True


def _action(message: str, category: type[Warning]) -> str:
    """What the first filter for such a warning does with it."""
    filters = getattr(warnings, "_get_filters", lambda: warnings.filters)()
    for action, pattern, kind, *_ in filters:
        if issubclass(category, kind) and (pattern is None or pattern.match(message)):
            return str(action)
    return "default"


def _end(path: str, line: dict[str, Any]) -> None:
    """Issue one warning of each kind, at the user's line."""
    with open(path, encoding="utf-8") as file:
        found = [json.loads(each) for each in file]
    os.remove(path)
    kinds: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for category, section, name, message in found:
        kinds.setdefault((category, section), []).append((name, message))
    categories = {each.__name__: each for each in CATEGORIES}
    for (category, _), fits in kinds.items():
        text = fits[0][1]
        if len(fits) > 1:
            names = Counter(name for name, _ in fits).most_common()
            who = listed([f"{count} of {name}" for name, count in names], most=5)
            text = f"{len(fits)} fits gave this warning ({who}). The first: {text}"
        warnings.warn_explicit(text, categories[category], **line)
