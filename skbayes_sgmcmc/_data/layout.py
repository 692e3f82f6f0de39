"""How the inputs of a module lie in rows of numbers: arrays of any rank, integers, several arrays.

Estimators hold X as rows of floating-point numbers. A layout says which numbers of a row belong to
which argument of the module, with their shapes and types. Whole numbers up to 2^24 are exact in all
precisions of the chains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._arrays import Array
from .._conversion import explained_conversion
from .._exceptions import not_allowed, size_not_allowed
from .._table_columns import of_tensor
from .._validation import BOUNDS
from .images import flat_rows

#: what to do with rows of several lengths, such as those of texts
PADDING = (
    "Pad them to one length (a Dataset does so in its __getitem__), and give a mask of what counts "
    "as another array, as in X={'input_ids': ..., 'attention_mask': ...}"
)


@dataclass(frozen=True)
class Argument:
    """One argument of the module."""

    #: name of the argument, or its place
    key: str | int
    #: shape of a row
    shape: tuple[int, ...]
    #: type of its numbers: "float" (that of the chains), "int" (int64) or "bool"
    kind: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def check_whole(self, name: str, values: Array) -> None:
        """Refuse fractions and large numbers, unless the argument has floating-point numbers."""
        if self.kind == "float" or values.dtype.kind == "b":
            return
        if values.dtype.kind == "f" and not np.array_equal(values, np.round(values)):
            raise not_allowed(
                f"{name} is not allowed: it has fractions, and the estimator was fitted to whole "
                "numbers."
            )
        # the magnitude of the least int64 is none
        largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
        if largest > BOUNDS.whole:
            raise size_not_allowed(
                f"{name} is not allowed: its largest magnitude is {largest:.0f}; whole "
                "numbers that a module gets may be at most 2**24."
            )


@dataclass(frozen=True)
class Layout:
    """The arguments of a module, in their order in a row."""

    arguments: tuple[Argument, ...]
    #: whether X is a tuple or a mapping of arrays. Otherwise X is one array, rows reach the module
    #: in the shape of the only argument, and flat rows are allowed, too
    several: bool = False

    @classmethod
    def of(cls, X: Any) -> Layout:
        """The layout of X, a mapping or a tuple of arrays, or an array of any rank."""
        if not is_several(X):
            return cls((_argument(0, X),))
        return cls(tuple(_argument(key, values) for key, values in _items(X)), several=True)

    @property
    def size(self) -> int:
        """Number of numbers in a row."""
        return sum(argument.size for argument in self.arguments)

    @property
    def whole(self) -> Array:
        """Which numbers of a row are integers or booleans, (numbers,)."""
        return np.concatenate([np.full(a.size, a.kind != "float") for a in self.arguments])

    def with_floats(self) -> Layout:
        """The same shapes, with floating-point numbers only."""
        return replace(self, arguments=tuple(replace(a, kind="float") for a in self.arguments))

    def flat(self, X: Any) -> Array:
        """Several arrays as rows of numbers.

        Raises
        ------
        ValueError
            X does not have the arguments of this layout, their shapes, or whole numbers.
        """
        if not is_several(X):
            raise not_allowed(
                f"X of type {type(X).__name__} is not allowed: give {self.expected()}."
            )
        arrays = dict(_items(X))
        if arrays.keys() != {a.key for a in self.arguments}:
            raise not_allowed(
                f"X with {', '.join(map(repr, arrays))} is not allowed: give {self.expected()}."
            )
        lengths = {key: len(values) for key, values in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise not_allowed(
                f"X is not allowed: its arrays have different numbers of rows, {lengths}."
            )
        return np.concatenate([_rows_of(a, arrays[a.key]) for a in self.arguments], axis=1)

    def row(self, x: Any) -> Array:
        """One row, given as the arguments of the module or as a single array, in float32."""
        if self.several:
            return self.flat(one_row(x))[0].astype(np.float32)
        argument, x = self.arguments[0], of_tensor(x)
        if isinstance(x, np.ndarray) and x.shape == argument.shape and argument.kind == "float":
            return x.astype(np.float32, copy=False).reshape(-1)  # the usual case, made fast
        return _rows_of(argument, np.asarray(x)[None])[0].astype(np.float32)

    def expected(self) -> str:
        """What X has to be, for messages about several arrays."""
        listed = ", ".join(f"{a.key!r} (rows of shape {a.shape})" for a in self.arguments)
        named = isinstance(self.arguments[0].key, str)
        return f"a {'mapping' if named else 'tuple'} of the arrays {listed}"

    def split(self, rows: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments of the module, for a tensor of rows."""
        if not self.several:
            return (_typed(rows, self.arguments[0].kind),), {}
        parts = rows.split([a.size for a in self.arguments], dim=-1)
        shaped = {
            a.key: _typed(part.reshape(*rows.shape[:-1], *a.shape), a.kind)
            for a, part in zip(self.arguments, parts, strict=True)
        }
        named = {key: value for key, value in shaped.items() if isinstance(key, str)}
        return tuple(v for key, v in shaped.items() if key not in named), named

    def packed(self, x: Any) -> Any:
        """A tensor (rows, numbers), for a tensor or several; the reverse of :meth:`split`."""
        import torch

        if not self.several:
            return x.flatten(1)
        given = [x[a.key].to(torch.float32) for a in self.arguments]
        return torch.cat([values.reshape(len(values), -1) for values in given], dim=1)


#: rows that reach the module as they are
PLAIN = Layout((Argument(0, (), "float"),))


def is_several(X: Any) -> bool:
    """Whether X is a mapping or a tuple of arrays; a tuple of vectors is a sequence of rows."""
    if isinstance(X, Mapping):
        return not hasattr(X, "shape")  # some sparse matrices are mappings
    shaped = isinstance(X, tuple) and len(X) > 0 and all(hasattr(each, "shape") for each in X)
    return shaped and max(len(each.shape) for each in X) > 1


def _items(X: Any) -> Sequence[tuple[str | int, Any]]:
    pairs = X.items() if isinstance(X, Mapping) else enumerate(X)
    return [(key, of_tensor(values)) for key, values in pairs]


def one_row(x: Any) -> dict[str | int, Array]:
    """The arrays of a row that is a mapping or a sequence of them, each with an axis of one row."""
    return {key: np.asarray(values)[None] for key, values in _items(x)}


def of_sequence(name: str, values: Any) -> Array:
    """A list of rows as an array; an error names ``name`` and the row of another shape."""
    with explained_conversion(name, values, PADDING):
        return np.asarray(values)


def _argument(key: str | int, values: Any) -> Argument:
    array = of_sequence(f"X[{key!r}]", values)
    if array.ndim == 0:
        raise not_allowed(
            f"X[{key!r}] is not allowed: give an array with the rows on its first axis."
        )
    kind = {"i": "int", "u": "int", "b": "bool", "f": "float"}.get(array.dtype.kind)
    if kind is None:
        raise not_allowed(
            f"X[{key!r}] of type {array.dtype} is not allowed: give numbers, such as token ids.",
            "a-column-is-not-numeric",
        )
    return Argument(key, array.shape[1:], kind)


def _rows_of(argument: Argument, values: Any) -> Array:
    """An array of an argument as rows (rows, numbers) in floating point."""
    array = np.asarray(values)
    if array.shape[1:] != argument.shape:
        raise not_allowed(
            f"X[{argument.key!r}] with rows of shape {array.shape[1:]} is not allowed: the first "
            f"rows of fit have the shape {argument.shape}. Give rows of this shape; rows of words "
            "are padded, with a mask of what counts as another array.",
            "rows-have-different-shapes",
        )
    argument.check_whole(f"X[{argument.key!r}]", array)
    kind = array.dtype if array.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    return flat_rows(array).astype(kind, copy=False)


def _typed(rows: Any, kind: str) -> Any:
    """A tensor of rows as the module gets it: a copy, which it may write into."""
    if kind == "float":
        return rows.clone()
    import torch

    return rows.round().to(torch.int64 if kind == "int" else torch.bool)
