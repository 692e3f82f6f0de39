"""Denormal numbers, which make processors many times slower.

They occur where there is no noise, that is, in a descent or at temperature 0. The prior then pulls
weights that the data do not inform towards zero, and these weights pass through denormal numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat denormal numbers as zero in this thread, if the processor supports it."""
    before = _flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushed() -> bool:
    # torch has a function that sets the mode, but none that reads it
    denormal = torch.tensor(1e-310, dtype=torch.float64, device="cpu")
    return bool(denormal * 0.5 == 0.0)
