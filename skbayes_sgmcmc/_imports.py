"""Imports that an interrupt must not leave half done.

Torch and numba can't be imported again in a process where their first import was interrupted: the
second one ends the process, or leaves modules without some of their names.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let an interrupt (Ctrl-C) wait for the end of the block.

    Python tells the main thread alone of it, so blocks of others need no protection.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    waiting: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *arguments: waiting.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting:
            handler(*waiting[0])


def imported_whole(name: str, package: str | None = None) -> Any:
    """The module of this name; an interrupt waits until it is imported."""
    with interrupts_deferred():
        return import_module(name, package)
