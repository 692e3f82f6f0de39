"""Threads of NumPy's matrix products.

The threads of the BLAS of NumPy and SciPy wait for the next product without giving up their
processors, and so do those of torch. Where the two take turns, as before a fit's chains, the ones
compute while the others hold the processors: 0.4 ms become 10 ms. docs/performance.md has figures.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


class _Users:
    """Who needs single threads, over all threads of Python: the first sets, the last restores.

    The number of threads is one for the whole process. If fits in several threads restored what
    each of them found, the last could restore the single thread of another.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.found: Any = None  # what the last one restores


_users = _Users()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def serial_products() -> Iterator[None]:
    """Let NumPy and SciPy compute products in one thread."""
    with _users.lock:
        if _users.count == 0:
            _users.found = _blas().limit(limits=1)
        _users.count += 1
    try:
        yield
    finally:
        with _users.lock:
            _users.count -= 1
            if _users.count == 0:
                _users.found.restore_original_limits()
