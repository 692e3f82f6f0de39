"""Denormal numbers, which are too small to be normalised and make processors many times slower.

Where there is no noise (in a descent, or at temperature 0) the prior pulls weights that no data
reach towards zero, and they pass through such numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Count denormal numbers as zero in this thread, if the processor can."""
    before = _flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushed() -> bool:
    # torch has a function to set the mode, and none to read it
    denormal = torch.tensor(1e-310, dtype=torch.float64)
    return bool(denormal * 0.5 == 0.0)
