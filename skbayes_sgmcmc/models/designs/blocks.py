"""What a model computes over all rows, added up or joined from blocks of rows.

Methods are written as if the rows given were all. Their last argument is the data. With these
decorators they read every row once, whether rows are in memory or in a file, and the memory that
they take does not grow with the number of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .._protocol import Anchor

Method = Callable[..., Any]


def summed_over_blocks(method: Method) -> Method:
    """For methods that return a sum over rows, or a tuple of such sums."""

    @functools.wraps(method)
    def over(model: Any, *given: Any) -> Any:
        *others, data = given
        return functools.reduce(_plus, (method(model, *others, b) for _, b in data.blocks()))

    return over


def joined_over_blocks(method: Method) -> Method:
    """For methods that return an array with the rows on its first axis, or a tuple of them."""

    @functools.wraps(method)
    def over(model: Any, *given: Any) -> Any:
        *others, data = given
        found: Any = None
        for rows, block in data.blocks():
            part = method(model, *others, block)
            if block is data:
                return part
            parts = part if isinstance(part, tuple) else (part,)
            if found is None:
                found = tuple(np.empty((data.n_rows, *p.shape[1:]), p.dtype) for p in parts)
            for whole, values in zip(found, parts, strict=True):
                whole[rows] = values
        return found if isinstance(part, tuple) else found[0]

    return over


def anchored_over_blocks(method: Method) -> Method:
    """For ``anchor``: its figures of rows are joined, and its sums are added up."""

    @functools.wraps(method)
    def over(model: Any, center: Any, data: Any, root: Any = None) -> Anchor:
        fields: dict[str, Any] = {}
        others: dict[str, Any] = {}
        sums: Any = None
        for rows, block in data.blocks():
            part: Anchor = method(model, center, block, root)
            if block is data:
                return part
            for joined, found in ((fields, part.fields), (others, part.rows)):
                for name, values in found.items():
                    if name not in joined:
                        joined[name] = values.new_empty(data.n_rows, *values.shape[1:])
                    joined[name][rows] = values
            own = part.gradient, part.hessian
            sums = own if sums is None else _plus(sums, own)
        return Anchor(fields, sums[0], sums[1], others)

    return over


def _plus(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(_plus(x, y) for x, y in zip(a, b, strict=True))
    return None if a is None else a + b
