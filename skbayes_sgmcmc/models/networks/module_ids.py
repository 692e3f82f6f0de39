"""Ids that an embedding of a module does not have: which id, which embedding, which ids it has."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from ..._data.layout import Layout

Method = TypeVar("Method", bound=Callable[..., Any])


class UnknownId(ValueError):
    """An embedding has no row for an id of X."""


@contextmanager
def explained_ids(module: nn.Module | None, layout: Layout, rows: Tensor) -> Iterator[None]:
    """Replace torch's error of an id that is out of range, which names neither it nor the layer.

    Nothing is looked at before a call of the module with these rows has failed.
    """
    try:
        yield
    except (IndexError, RuntimeError) as error:
        reason = None if module is None else _unknown_id(module, layout, rows)
        if reason is None:
            raise
        raise UnknownId(reason) from error


def with_explained_ids(method: Method) -> Method:
    """The same for a method of a network, for positions and rows (chains or 1, rows, ...)."""

    @functools.wraps(method)
    def explained(network: Any, theta: Tensor, x: Tensor, *more: Any) -> Any:
        with explained_ids(network.module, network.layout, x.flatten(0, 1)):
            return method(network, theta, x, *more)

    return cast(Method, explained)


def _unknown_id(module: nn.Module, layout: Layout, rows: Tensor) -> str | None:
    """An error's text for the first id that an embedding does not have, or None if all are there.

    The module is called once more, and each embedding shows its ids.
    """
    handles = [
        part.register_forward_pre_hook(
            lambda part, args, name=name: _look(name, part.num_embeddings, args[0], len(rows))
        )
        for name, part in module.named_modules()
        if isinstance(part, nn.Embedding | nn.EmbeddingBag)
    ]
    if not handles:
        return None
    args, kwargs = layout.arguments(rows)
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    except UnknownId as found:
        return str(found)
    except Exception:  # another fault, of which the caller knows
        return None
    finally:
        for handle in handles:
            handle.remove()
    return None


def _look(name: str, n_known: int, ids: Any, n_rows: int) -> None:
    wrong = ((ids < 0) | (ids >= n_known)).nonzero()
    if len(wrong) == 0:
        return
    first = tuple(wrong[0])
    row = ids[first[0]].tolist()
    named = isinstance(row, list) and len(ids) == n_rows
    which = f"its row {reprlib.repr(row)}" if named else "one of its rows"
    raise UnknownId(
        f"X is not allowed: {which} gives the embedding {name!r} of the module the id "
        f"{ids[first]}; with num_embeddings={n_known} it has ids from 0 to {n_known - 1}. Build it "
        "with a row for every id, or replace ids that it does not have, such as those of unknown "
        "words, by one that it has."
    )
