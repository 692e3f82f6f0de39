"""Threads of matrix products: small ones are faster with one.

Threads wait for each other at the end of every operation. On a busy machine a logistic regression
of 569 rows took minutes with two of torch's, and takes 2 s with one.

The threads of the BLAS of NumPy and SciPy wait for the next product without giving up their
processors, and so do those of torch. Where the two take turns, as before a fit's chains, the ones
compute while the others hold the processors: 0.4 ms become 10 ms (project/performance.md).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from threadpoolctl import ThreadpoolController

from .._limits import LIMITS

if TYPE_CHECKING:
    from ._protocol import Model


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


#: torch's number of threads before :func:`few_threads`
_found: ContextVar[int | None] = ContextVar("found", default=None)


@contextmanager
def few_threads(model: Model, n_rows: int, n_chains: int) -> Iterator[None]:
    """Let torch compute with one thread, if log p of all chains takes few multiplications.

    The number of threads belongs to the thread of Python that sets it.
    """
    found = torch.get_num_threads()
    few = model.row_products * n_rows * n_chains <= LIMITS.threaded_products
    if found == 1 or not (few and model.counts_products):
        yield
        return
    torch.set_num_threads(1)
    token = _found.set(found)
    try:
        yield
    finally:
        _found.reset(token)
        torch.set_num_threads(found)


def allowed_threads() -> int:
    """Number of threads of torch that the user has set, for work that is shared out by chains."""
    return _found.get() or torch.get_num_threads()
