"""Sums by index that are the same on every call, also on a GPU."""

from __future__ import annotations

from torch import Tensor


def add_at(out: Tensor, index: Tensor, terms: Tensor) -> Tensor:
    """Add ``terms[i]`` to ``out[index[i]]`` for all i, in place, in a fixed order.

    CUDA's ``index_add_`` and ``scatter_add_`` add in the order of arrival of its threads, which
    changes the last bits from run to run. ``index_put_`` sorts the indices first.
    """
    if out.device.type == "cpu":
        return out.index_add_(0, index, terms)
    return out.index_put_((index,), terms, accumulate=True)
