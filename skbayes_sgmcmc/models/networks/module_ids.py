"""Ids that an embedding of a module does not have: which id, which embedding, which ids it has.

Torch's own error names neither. Modules are looked at only after a call has failed.
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from ..._data.layout import Layout
from ..._exceptions import explained

Method = TypeVar("Method", bound=Callable[..., Any])

#: what torch raises for an id that is out of range
OUT_OF_RANGE = IndexError, RuntimeError


class UnknownId(ValueError):
    """An embedding has no row for an id of X."""


def with_checked_ids(method: Method) -> Method:
    """A method of a network for positions and rows (chains or 1, rows, ...), which names such ids.

    Other errors stay as they are.
    """

    @functools.wraps(method)
    def checked(network: Any, theta: Tensor, x: Tensor, *more: Any) -> Any:
        try:
            return method(network, theta, x, *more)
        except OUT_OF_RANGE:
            check_ids(network.module, network.layout, x.flatten(0, 1))
            raise

    return cast(Method, checked)


def check_ids(module: nn.Module, layout: Layout, rows: Tensor) -> None:
    """Raise :class:`UnknownId` for the first id of some rows that an embedding does not have.

    The module is called once more, and each embedding looks at its ids.
    """
    handles = [
        part.register_forward_pre_hook(
            lambda part, args, name=name: _look(name, part.num_embeddings, args[0], len(rows))
        )
        for name, part in module.named_modules()
        if isinstance(part, nn.Embedding | nn.EmbeddingBag)
    ]
    if not handles:
        return
    args, kwargs = layout.split(rows)
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    except UnknownId:
        raise
    except Exception:  # another fault, which the caller knows
        return
    finally:
        for handle in handles:
            handle.remove()


def _look(name: str, n_known: int, ids: Any, n_rows: int) -> None:
    wrong = ((ids < 0) | (ids >= n_known)).nonzero()
    if len(wrong) == 0:
        return
    first = tuple(wrong[0])
    row = ids[first[0]].tolist()
    named = isinstance(row, list) and len(ids) == n_rows
    which = f"its row {reprlib.repr(row)}" if named else "one of its rows"
    message = (
        f"X is not allowed: {which} gives the embedding {name!r} of the module the id "
        f"{ids[first]}; with num_embeddings={n_known} it has ids from 0 to {n_known - 1}. Build it "
        "with a row for every id, or replace ids that it does not have, such as those of unknown "
        "words, by one that it has."
    )
    raise explained(UnknownId(message), "a-module-is-not-allowed")
