"""Random numbers from a compiled, counter-based generator (extra ``fast``).

Philox4x32 (Salmon et al. 2011) makes four 32-bit words for each value of a counter. It is used with
seven rounds, the smallest number that passes BigCrush. The Box-Muller transform turns the four
words into four normals in float32. A normal takes about a quarter of the time of torch's generator.
The code is in ``_kernels/``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from .._arrays import Array


class Philox:
    """The random stream of a 64-bit key; ``counter`` is the next unused value of its counter."""

    def __init__(self, key: int):
        self.key = key
        self.counter = 0

    def normal(self, out: Tensor) -> None:
        """Fill a contiguous float32 tensor."""
        from .._kernels.philox import fill_normal

        self._fill(fill_normal, out)

    def uniform(self, out: Tensor) -> None:
        """Fill a contiguous tensor with multiples of 2^-24 in [0, 1)."""
        from .._kernels.philox import fill_uniform

        self._fill(fill_uniform, out)

    def distinct(self, n: int, n_steps: int, size: int) -> Array:
        """Integers below n of shape (n_steps, size), without repeats in a row."""
        from .._kernels.philox import distinct

        out = np.empty((n_steps, size), np.int64)
        counter = distinct(out, n, np.uint64(self.key), np.uint64(self.counter))
        self.counter = int(counter)
        return out

    def _fill(self, fill: Any, out: Tensor) -> None:
        flat = out.view(-1).numpy()
        fill(flat, np.uint64(self.key), np.uint64(self.reserve(len(flat))))

    def reserve(self, n: int) -> int:
        """Reserve n numbers, and return the value of the counter at which they begin."""
        from .._kernels.philox import BLOCK

        begin = self.counter
        self.counter += -(-n // (4 * BLOCK)) * BLOCK
        return begin

    def get_state(self) -> Array:
        return np.array([self.key, self.counter], dtype=np.uint64)

    def set_state(self, state: Array) -> None:
        self.key, self.counter = state.tolist()
