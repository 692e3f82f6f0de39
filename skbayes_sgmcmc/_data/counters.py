"""Random numbers of chains as functions of a key and a counter, for devices other than the CPU.

Philox4x32-10 makes four words for each value of a counter (``philox_words.py``). A chain has its
own key, and for each kind of number its own counter, so its numbers depend neither on the other
chains, nor on how many are made at once, nor on whether a run was interrupted. All chains' numbers
are made together: a GPU with Triton takes one launch for the normals of all, other devices take
torch's operations, with the same bits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._limits import LIMITS
from .philox_words import MASK, as_positive, as_uniform, box_muller, words
from .sending import sent

#: kinds of numbers, each with a counter of its own
KINDS = NORMAL, UNIFORM, GAMMA, ROWS = tuple(range(4))
#: attempts at a gamma variate. Each is accepted with a probability of at least 0.95, and after the
#: last, which fails once in 10^10, the variate is the mode
ATTEMPTS = 8


def is_counted(state: Array) -> bool:
    """Whether an array is the state of :class:`Counted`."""
    return bool(state.dtype == np.uint64 and state.shape[-1] == 1 + len(KINDS))


def _begun(keys: Sequence[int]) -> Array:
    """The state of chains with these keys that have taken no numbers."""
    state = np.zeros((len(keys), 1 + len(KINDS)), dtype=np.uint64)
    state[:, 0] = keys
    return state


class Counted:
    """The numbers of several chains, made together on a device.

    A chain has a 64-bit key, and the next unused counter of each kind of number. They are on the
    device, where steps that were recorded go on counting.
    """

    def __init__(self, keys: Sequence[int], device: str):
        self.device = torch.device(device)
        self.set_state(_begun(keys))
        #: which of the chains that share the counters these are; None: all of them
        self._chosen: Tensor | None = None

    def set_state(self, state: Array) -> None:
        """Go on from a state (chains, 1 + kinds) that :meth:`get_state` has returned."""
        if not is_counted(state):  # a CPU's generator cannot continue at a number: a seed
            seeds = [np.random.SeedSequence(of_chain.tolist()) for of_chain in state]
            state = _begun([int(seed.generate_state(1, np.uint64)[0]) for seed in seeds])
        halves = np.stack([state[:, 0] & np.uint64(MASK), state[:, 0] >> np.uint64(32)], 1)
        self.keys = sent(torch.from_numpy(halves.astype(np.int64)), self.device)
        counters = np.ascontiguousarray(state[:, 1:].T.astype(np.int64))
        #: the next counters (kinds, chains)
        self.counters = sent(torch.from_numpy(counters), self.device)

    def get_state(self) -> Array:
        """Key and counters of each chain (chains, 1 + kinds)."""
        counters = self.counters if self._chosen is None else self.counters[:, self._chosen]
        keys = self.keys[:, :1] | self.keys[:, 1:] << 32
        return torch.cat([keys, counters.t()], 1).cpu().numpy().astype(np.uint64)

    def select(self, chains: Sequence[int]) -> Counted:
        """Some of the chains; what they count, all of them count."""
        chosen, places = copy.copy(self), torch.tensor(chains, dtype=torch.int64, device="cpu")
        places = sent(places, self.device)
        chosen.keys = self.keys[places]
        chosen._chosen = places if self._chosen is None else self._chosen[places]
        return chosen

    def normal(self, rows: int, n: int) -> Tensor:
        """Standard normals (chains, rows, n) in float32; each row begins with a new counter."""
        width = -(-n // 4)
        begin = self._reserve(NORMAL, rows * width)
        kernels = _kernels(self.device)
        if kernels is not None:
            out = torch.empty(len(self.keys), rows, n, dtype=torch.float32, device=self.device)
            kernels.fill_normal(out, self.keys, begin)
            return out
        found = [box_muller(w).flatten(2)[..., :n]
                 for w in self._rows_of_words(NORMAL, begin, rows, width)]  # fmt: skip
        return torch.cat(found, 1)

    def uniform(self, rows: int, n: int, dtype: torch.dtype) -> Tensor:
        """Uniform numbers (chains, rows, n) in [0, 1), of 53 bits in float64 and 24 in float32."""
        width = -(-n // _each(dtype))
        begin = self._reserve(UNIFORM, rows * width)
        return self._uniforms(begin, rows * width, dtype).view(len(self.keys), rows, -1)[..., :n]

    def ragged_uniform(self, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Uniform numbers (sum of sizes,): ``sizes[c]`` of chain c, one chain after another."""
        counts = torch.tensor(sizes, dtype=torch.int64, device="cpu")
        begin = self._reserve(UNIFORM, sent(counts, self.device))
        u = self._uniforms(begin, max(sizes, default=0), dtype)[:, :: _each(dtype)]
        return torch.cat([of_chain[:size] for of_chain, size in zip(u, sizes, strict=True)])

    def _uniforms(self, begin: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """All uniform numbers of so many words of each chain."""
        return as_uniform(self._words(UNIFORM, begin, count), dtype).flatten(1)

    def gamma(self, concentration: Tensor) -> Tensor:
        """Gamma variates of scale 1 for concentrations (chains, *shape); Marsaglia & Tsang 2000."""
        a = concentration.reshape(len(self.keys), -1, 1)
        n = a.shape[1] * ATTEMPTS
        begin = self._reserve(GAMMA, n)
        w = self._words(GAMMA, begin, n).view(len(self.keys), -1, ATTEMPTS, 4)
        small = a < 1.0
        d = torch.where(small, a + 1.0, a) - 1.0 / 3.0
        x, u = box_muller(w)[..., 0].to(a), as_positive(w)
        v = (1.0 + x / (3.0 * d.sqrt())) ** 3
        bound = 0.5 * x * x + d * (1.0 - v + v.clamp(min=1e-30).log())
        good = (v > 0.0) & (u[..., 2].to(a).log() < bound)
        first = good.to(torch.uint8).argmax(2, keepdim=True)  # 0 if none is good
        found = torch.where(good.any(2, keepdim=True), d * v.gather(2, first), d)
        power = torch.where(small, u[..., :1, 3].to(a) ** (1.0 / a), 1.0)
        return (found * power).view_as(concentration)

    def distinct(self, n: int, n_steps: int, size: int) -> Tensor:
        """Integers below n (chains, n_steps, size), without repeats in a step; n is below 2^31."""
        every = 4 * size > n  # the order of n random numbers; else the first different integers
        length = n if every else _enough(n, size)
        width = -(-length // 2)
        begin = self._reserve(ROWS, n_steps * width)
        found = []
        for w in self._rows_of_words(ROWS, begin, n_steps, width):
            numbers = (w[..., ::2] << 31 | w[..., 1::2] >> 1).flatten(2)[..., :length]
            first = numbers.argsort(-1) if every else _first_different(numbers.remainder_(n))
            found.append((first if every else numbers.gather(-1, first[..., :size]))[..., :size])
        return torch.cat(found, 1)

    def _rows_of_words(self, kind: int, begin: Tensor, rows: int, width: int) -> Iterator[Tensor]:
        """Words (chains, some rows, width, 4) of all rows, for as many as are made at once."""
        chains = len(self.keys)
        at_once = max(1, LIMITS.pool_numbers // (4 * width * chains))
        for start in range(0, rows, at_once):
            some = min(at_once, rows - start)
            w = self._words(kind, begin + start * width, some * width)
            yield w.view(chains, some, width, 4)

    def _words(self, kind: int, begin: Tensor, count: int) -> Tensor:
        """Words (chains, count, 4) of counters that follow each other."""
        kernels = _kernels(self.device)
        if kernels is None:
            counters = begin[:, None] + torch.arange(count, device=self.device)
            return words(self.keys, counters, kind)
        out = torch.empty(len(self.keys), count, 4, dtype=torch.int64, device=self.device)
        kernels.fill_words(out, self.keys, begin, kind)
        return out

    def _reserve(self, kind: int, count: Any) -> Tensor:
        """The first counter of each chain (chains,), for so many words."""
        counters, chosen = self.counters[kind], self._chosen
        if chosen is None:
            begin = counters.clone()
            counters.add_(count)
        else:
            begin = counters[chosen]
            counters[chosen] = begin + count
        return begin


def _each(dtype: torch.dtype) -> int:
    """How many uniform numbers the words of one counter make."""
    return 2 if dtype == torch.float64 else 4


@cache
def _kernels(device: torch.device) -> Any:
    """The kernels of words and normals if they run on a device and give torch's bits, else None."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    try:
        from . import _kernels_triton

        return _kernels_triton if are_right(_kernels_triton, device) else None
    except Exception:  # Triton compiles with a compiler of C, which a machine may lack
        return None


def are_right(kernels: Any, device: torch.device) -> bool:
    """Whether kernels give the bits of :func:`words` and :func:`box_muller` for some counters."""
    keys = torch.tensor([[1, 2], [3, 4]], device=device)
    begin = torch.tensor([5, 2**32 - 7], device=device)
    found = torch.full((2, 3, 1022), torch.nan, dtype=torch.float32, device=device)
    kernels.fill_normal(found, keys, begin)
    counters = begin[:, None] + torch.arange(3 * 256, device=device)
    normal = box_muller(words(keys, counters, NORMAL)).view(2, 3, -1)[..., :1022]
    w = torch.zeros(2, 300, 4, dtype=torch.int64, device=device)
    kernels.fill_words(w, keys, begin, ROWS)
    return torch.equal(found, normal) and torch.equal(w, words(keys, counters[:, :300], ROWS))


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
