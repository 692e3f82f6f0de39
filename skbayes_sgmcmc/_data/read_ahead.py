"""Reading blocks of a file in a thread, while earlier ones are computed with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Part = TypeVar("Part")


def read_ahead(
    read: Callable[[Item], Part], items: Iterable[Item], *, ahead: bool = True
) -> Iterator[tuple[Item, Part]]:
    """Every item and ``read(item)``, in order; with ``ahead``, a thread reads one item in advance.

    An error of a reading is raised here, where its part is asked for. The thread ends with the
    loop, however that ends.
    """
    if not ahead:
        for item in items:
            yield item, read(item)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as pool:
        waiting = None
        for item in items:
            coming = item, pool.submit(read, item)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = coming
        if waiting is not None:
            yield waiting[0], waiting[1].result()
