"""Functions compiled by numba, which other modules import inside functions where they are used.

Indices are unsigned, because numba then omits Python's rule for negative indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from .._arrays import Array
from ._kept import keep

#: sums may be reordered and multiplications fused; infinities and NaN keep their meaning. Functions
#: are inlined where they are called: the process that compiles them would otherwise call copies of
#: their own, whose sums have another order than in the code that later processes load
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"reassoc", "contract", "nsz"},
    "error_model": "numpy",
    "forceinline": True,
}
#: copied to where it is called, where the compiler sees that arrays do not overlap; long functions
#: with few callers compile sooner so, because a part is also compiled by itself
inlined = numba.njit(inline="always", **OPTIONS)
#: a part of other functions, which is compiled sooner than copies of it
part = numba.njit(**OPTIONS)
#: a part whose sums stay in their order, for differences of numbers that are nearly equal
exact = numba.njit(**(OPTIONS | {"fastmath": {"contract"}}))


@inlined
def copy(source, out):
    """Copy numbers, in a third of the code: numba compiles a message for ``out[:] = source``."""
    for i in range(len(out)):
        out[i] = source[i]


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, and keep its code for later processes."""
    return keep(numba.njit(function, **OPTIONS))


def polynomial(coefficients: Array) -> Callable[..., Any]:
    """A compiled polynomial with these coefficients, highest first."""
    first, *others = coefficients
    others = tuple(others)

    @part
    def evaluate(x):
        p = first
        for c in others:
            p = p * x + c
        return p

    return evaluate
