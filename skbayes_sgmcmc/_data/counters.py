"""Random numbers of chains as functions of a key and a counter, for devices other than the CPU.

Philox4x32-10 makes four words for each value of a counter (``philox_words.py``). A chain has its
own key, and for each kind of number its own counter, so its numbers depend neither on the other
chains, nor on how many are made at once, nor on whether a run was interrupted. All chains' numbers
are made together: a GPU with Triton takes one launch for the normals of all, other devices take
torch's operations, with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._limits import LIMITS
from .philox_words import MASK, as_positive, as_uniform, box_muller, words
from .sending import sent

Array = NDArray[Any]

#: kinds of numbers, each with a counter of its own
KINDS = NORMAL, UNIFORM, GAMMA, ROWS = tuple(range(4))
#: attempts at a gamma variate. Each is accepted with a probability of at least 0.95, and after the
#: last, which fails once in 10^10, the variate is the mode
ATTEMPTS = 8


class CounterStream:
    """The random numbers of one chain: a 64-bit key, and the next unused counter of each kind."""

    def __init__(self, key: int):
        self.key = key
        self.next = [0] * len(KINDS)

    def get_state(self) -> Array:
        return np.array([self.key, *self.next], dtype=np.uint64)

    def set_state(self, state: Array) -> None:
        if is_counted(state):
            self.key, *self.next = state.tolist()
        else:  # a CPU's generator cannot continue at a number: a seed
            seed = np.random.SeedSequence(state.tolist()).generate_state(1, np.uint64)
            self.key, self.next = int(seed[0]), [0] * len(KINDS)


def is_counted(state: Array) -> bool:
    """Whether the last axis of an array is the state of a :class:`CounterStream`."""
    return bool(state.dtype == np.uint64 and state.shape[-1] == 1 + len(KINDS))


class Counted:
    """The numbers of several chains, made together on a device."""

    def __init__(self, streams: Sequence[CounterStream], device: str):
        self.streams, self.device = streams, torch.device(device)
        halves = [[stream.key & MASK, stream.key >> 32] for stream in streams]
        self.keys = sent(torch.tensor(halves, dtype=torch.int64).reshape(-1, 2), self.device)

    def normal(self, rows: int, n: int) -> Tensor:
        """Standard normals (chains, rows, n) in float32; each row begins with a new counter."""
        width = -(-n // 4)
        begin = self._reserve(NORMAL, [rows * width] * len(self.streams))
        fill = _kernel(self.device)
        if fill is not None:
            out = torch.empty(len(self.keys), rows, n, device=self.device)
            fill(out, self.keys, begin)
            return out
        found = [box_muller(w).flatten(2)[..., :n]
                 for w in self._words(NORMAL, begin, rows, width)]  # fmt: skip
        return torch.cat(found, 1)

    def uniform(self, rows: int, n: int, dtype: torch.dtype) -> Tensor:
        """Uniform numbers (chains, rows, n) in [0, 1), of 53 bits in float64 and 24 in float32."""
        found = self.ragged_uniform([rows] * len(self.streams), dtype, n)
        return found.view(len(self.streams), rows, n)

    def ragged_uniform(self, sizes: Sequence[int], dtype: torch.dtype, n: int = 1) -> Tensor:
        """Uniform numbers (sum of sizes, n): ``sizes[c]`` rows of chain c, one after another."""
        each = 2 if dtype == torch.float64 else 4
        width = -(-n // each)
        begin = self._reserve(UNIFORM, [size * width for size in sizes])
        longest = max(sizes, default=0) * width
        counters = begin[:, None] + torch.arange(longest, device=self.device)
        w = words(self.keys, counters, UNIFORM)
        u = as_uniform(w, dtype).view(len(sizes), -1, each * width)[..., :n]
        return torch.cat([of_chain[:size] for of_chain, size in zip(u, sizes, strict=True)])

    def gamma(self, concentration: Tensor) -> Tensor:
        """Gamma variates of scale 1 for concentrations (chains, *shape); Marsaglia & Tsang 2000."""
        a = concentration.reshape(len(self.keys), -1)
        n = a.shape[1] * ATTEMPTS
        begin = self._reserve(GAMMA, [n] * len(self.streams))
        first = begin[:, None] + ATTEMPTS * torch.arange(a.shape[1], device=self.device)
        small = a < 1.0
        d = torch.where(small, a + 1.0, a) - 1.0 / 3.0
        found, missing = d.clone(), torch.ones_like(small)
        for attempt in range(ATTEMPTS):
            w = words(self.keys, first + attempt, GAMMA)
            x = box_muller(w)[..., 0].to(a)
            u = as_positive(w)
            v = (1.0 + x / (3.0 * d.sqrt())) ** 3
            bound = 0.5 * x * x + d * (1.0 - v + v.clamp(min=1e-30).log())
            good = missing & (v > 0.0) & (u[..., 2].to(a).log() < bound)
            found = torch.where(good, d * v, found)
            missing = missing & ~good
            if attempt == 0:
                power = torch.where(small, u[..., 3].to(a) ** (1.0 / a), 1.0)
        return (found * power).view_as(concentration)

    def distinct(self, n: int, n_steps: int, size: int) -> Tensor:
        """Integers below n (chains, n_steps, size), without repeats in a step; n is below 2^31."""
        every = 4 * size > n  # the order of n random numbers; else the first different integers
        length = n if every else _enough(n, size)
        width = -(-length // 2)
        begin = self._reserve(ROWS, [n_steps * width] * len(self.streams))
        found = []
        for w in self._words(ROWS, begin, n_steps, width):
            numbers = (w[..., ::2] << 31 | w[..., 1::2] >> 1).flatten(2)[..., :length]
            first = numbers.argsort(-1) if every else _first_different(numbers.remainder_(n))
            found.append((first if every else numbers.gather(-1, first[..., :size]))[..., :size])
        return torch.cat(found, 1)

    def _words(self, kind: int, begin: Tensor, rows: int, width: int) -> Iterator[Tensor]:
        """Words (chains, some rows, width, 4) of all rows, for as many as are made at once."""
        chains = len(self.keys)
        at_once = max(1, LIMITS.pool_numbers // (4 * width * chains))
        for start in range(0, rows, at_once):
            some = min(at_once, rows - start)
            place = torch.arange(start * width, (start + some) * width, device=self.device)
            w = words(self.keys, begin[:, None] + place, kind)
            yield w.view(chains, some, width, 4)

    def _reserve(self, kind: int, counts: Sequence[int]) -> Tensor:
        """The first counter of each chain (chains,), for so many numbers."""
        begin = [stream.next[kind] for stream in self.streams]
        for stream, count in zip(self.streams, counts, strict=True):
            stream.next[kind] += count
        if len(set(begin)) == 1:  # nothing is sent
            return torch.full((len(begin),), begin[0], dtype=torch.int64, device=self.device)
        return sent(torch.tensor(begin, dtype=torch.int64), self.device)


@cache
def _kernel(device: torch.device) -> Any:
    """The kernel of normals if it runs on a device and gives torch's bits, else None."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    try:
        from ._kernels_triton import fill_normal

        return fill_normal if is_right(fill_normal, device) else None
    except Exception:  # Triton compiles with a compiler of C, which a machine may lack
        return None


def is_right(fill: Any, device: torch.device) -> bool:
    """Whether ``fill`` gives the bits of :func:`box_muller` for some counters."""
    keys = torch.tensor([[1, 2], [3, 4]], device=device)
    begin = torch.tensor([5, 2**32 - 7], device=device)
    found = torch.full((2, 3, 1022), torch.nan, device=device)
    fill(found, keys, begin)
    w = words(keys, begin[:, None] + torch.arange(3 * 256, device=device), NORMAL)
    return torch.equal(found, box_muller(w).view(2, 3, -1)[..., :1022])


def _enough(n: int, size: int) -> int:
    """How many integers below n have ``size`` different ones, but for one time in 10^12."""
    length = -n * math.log1p(-size / n)
    return math.ceil(length + 8.0 * math.sqrt(length - size) + 16.0)


def _first_different(numbers: Tensor) -> Tensor:
    """Places (..., n) of numbers (..., n): the first of equal ones in order, then the others."""
    length = numbers.shape[-1]
    shift = length.bit_length()
    place = torch.arange(length, device=numbers.device)
    ordered = (numbers << shift | place).sort(-1).values
    at = ordered & ((1 << shift) - 1)
    at[..., 1:] += ((ordered >> shift).diff(dim=-1) == 0) * length
    return at.sort(-1).values % length
