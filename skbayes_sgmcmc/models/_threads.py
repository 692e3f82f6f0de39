"""Threads of matrix products: small ones are faster with one.

Threads wait for each other at the end of every operation. On a busy machine a logistic regression
of 569 rows took minutes with two of torch's, and takes 2 s with one.

The threads of the BLAS of NumPy and SciPy wait for the next product without giving up their
processors, and so do those of torch. Where the two take turns, as before a fit's chains, the ones
compute while the others hold the processors: 0.4 ms become 10 ms (project/performance.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
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
    """Who needs single threads, over all threads of Python: what the first found is restored.

    If fits in several threads restored what each of them found, the last could restore the single
    thread of another.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.found: Any = None

    @contextmanager
    def one_more(self, find: Callable[[], Any], restore: Callable[[Any], Any]) -> Iterator[Any]:
        """What ``find`` returned to the first user; ``restore`` takes it after the last one."""
        with self.lock:
            if self.count == 0:
                self.found = find()
            self.count += 1
            found = self.found
        try:
            yield found
        finally:
            with self.lock:
                self.count -= 1
                if self.count == 0:
                    restore(found)


_blas_users, _torch_users = _Users(), _Users()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def serial_products() -> Iterator[None]:
    """Let NumPy and SciPy compute products in one thread."""
    limited = _blas_users.one_more(
        lambda: _blas().limit(limits=1), lambda found: found.restore_original_limits()
    )
    with limited:
        yield


#: torch's number of threads before :func:`few_threads`
_found: ContextVar[int | None] = ContextVar("found", default=None)


@contextmanager
def few_threads(model: Model, n_rows: int, n_chains: int) -> Iterator[None]:
    """Let torch compute with one thread, if log p of all chains takes few multiplications.

    The number of threads belongs to the thread of Python that sets it, and those that begin later
    begin with the latest: one that has never computed may find the single thread of another's fit.
    """
    few = model.row_products * n_rows * n_chains <= LIMITS.threaded_products
    if _found.get() is not None or not (few and model.counts_products):
        yield
        return
    own = torch.get_num_threads()
    with _torch_users.one_more(lambda: own, lambda _: None) as first:
        found = own if own > 1 else first
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
