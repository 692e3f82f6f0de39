"""Numbers too small to be normalised, with which processors compute many times slower.

Weights that no data reach fade towards zero under their prior, through such numbers, as long as
there is no noise: in a descent, or at temperature 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Within it they count as zero in this thread, where the processor can do that."""
    before = _flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushed() -> bool:
    # torch tells how to set it, and not how it is set
    denormal = torch.tensor(1e-310, dtype=torch.float64)
    return bool(denormal * 0.5 == 0.0)
