"""Random numbers, with an independent stream for each chain and a state that can be stored."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .counters import Counted, is_counted
from .philox import Philox


def counts(device: str) -> bool:
    """Whether random numbers on a device are functions of a counter, all chains' at once."""
    return torch.device(device).type != "cpu"


class TorchStream:
    """Normals and uniforms of one chain, from torch's generator on the CPU."""

    def __init__(self, key: int):
        self.generator = torch.Generator()
        self.generator.manual_seed(key >> 1)

    def normal(self, out: Tensor) -> None:
        out.normal_(generator=self.generator)

    def uniform(self, out: Tensor) -> None:
        out.uniform_(generator=self.generator)

    def gamma(self, concentration: Tensor) -> Tensor:
        return torch._standard_gamma(concentration, generator=self.generator)

    def get_state(self) -> Array:
        return np.asarray(self.generator.get_state())

    def set_state(self, state: Array) -> None:
        self.generator.set_state(torch.from_numpy(np.array(state)))


class ChainRandom:
    """Random numbers of all chains, with an independent stream for each.

    A chain gets the same numbers whatever other chains run at the same time.

    Parameters
    ----------
    seeds : sequence of SeedSequence
        One seed for each chain.
    device : str, default="cpu"
        Device on which normals and uniforms are made: on a CPU by one generator for each chain,
        elsewhere for all chains together (``counters.py``).
    philox : bool, default=False
        Use the compiled generator of ``philox.py`` (CPU only) for normals, uniforms and row
        indices, instead of torch's and numpy's generators.

    Notes
    -----
    Normals are drawn in float32 and then converted, which is six times faster than drawing them in
    float64. The largest normals that can occur are 5.8 (torch) and 6.8 (Philox).
    """

    def __init__(
        self, seeds: Sequence[np.random.SeedSequence], device: str = "cpu", *, philox: bool = False
    ):
        self.device = device
        self.rows: list[np.random.Generator] = []
        keys = []
        for seed in seeds:
            noise_seed, row_seed = seed.spawn(2)
            keys.append(int(noise_seed.generate_state(1, np.uint64)[0]))
            self.rows.append(np.random.Generator(np.random.PCG64(row_seed)))
        #: makes the numbers of all chains at once; None if each has a generator
        self.together = Counted(keys, device) if counts(device) and not philox else None
        kind: Any = Philox if philox else TorchStream
        #: generators of the chains, of one kind
        self.noise: list[Any] = [] if self.together is not None else [kind(key) for key in keys]

    def normal(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Standard normals of shape (chains, *shape)."""
        if self.together is not None:
            return self.together.normal(*_rows(shape)).view(-1, *shape).to(dtype)
        xi = torch.empty(len(self.noise), *shape, dtype=torch.float32, device=self.device)
        for block, stream in zip(xi, self.noise, strict=True):
            stream.normal(block)
        return xi.to(dtype)

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Uniform numbers in [0, 1) of shape (chains, *shape)."""
        if self.together is not None:
            return self.together.uniform(*_rows(shape), dtype).view(-1, *shape)
        u = torch.empty(len(self.noise), *shape, dtype=dtype, device=self.device)
        for block, stream in zip(u, self.noise, strict=True):
            stream.uniform(block)
        return u

    def ragged_uniform(self, sizes: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        """Uniform numbers in [0, 1): ``sizes[c]`` numbers for chain c, concatenated."""
        if self.together is not None:
            return self.together.ragged_uniform(sizes, dtype).view(-1)
        u = torch.empty(sum(sizes), dtype=dtype, device=self.device)
        for block, stream in zip(u.split(list(sizes)), self.noise, strict=True):
            stream.uniform(block)
        return u

    def gamma(self, concentration: Tensor) -> Tensor:
        """Gamma variates of scale 1 for concentrations (chains, *shape)."""
        if self.together is not None:
            return self.together.gamma(concentration)
        parts = []
        for block, stream in zip(concentration, self.noise, strict=True):
            assert isinstance(stream, TorchStream)
            parts.append(stream.gamma(block))
        return torch.stack(parts)

    def distinct(self, n: int, n_steps: int, size: int, *, there: bool = False) -> Any:
        """Integers below n of shape (chains, n_steps, size), without repeats in a step.

        ``there``: as a tensor of the device, if the numbers of all chains are made together.
        """
        if there and self.together is not None:
            return self.together.distinct(n, n_steps, size)
        return np.stack(
            [
                noise.distinct(n, n_steps, size)
                if isinstance(noise, Philox)
                else _distinct(n, n_steps, size, rows)
                for noise, rows in zip(self.noise or self.rows, self.rows, strict=True)
            ]
        )

    def select(self, chains: Sequence[int]) -> ChainRandom:
        """The streams of some chains (shared, not copied)."""
        chosen = copy.copy(self)
        chosen.rows = [self.rows[c] for c in chains]
        if self.together is not None:
            chosen.together = self.together.select(chains)
        else:
            chosen.noise = [self.noise[c] for c in chains]
        return chosen

    def tensors(self) -> list[Tensor]:
        """The tensors of the device that change when numbers are made."""
        return [] if self.together is None else [self.together.counters]

    def get_state(self) -> dict[str, Any]:
        """The state as arrays and plain numbers, for :meth:`set_state`."""
        if self.together is not None:
            noise = self.together.get_state()
        else:
            noise = np.stack([stream.get_state() for stream in self.noise])
        return {"noise": noise, "rows": [g.bit_generator.state for g in self.rows]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a stored state, with the generator that it belongs to."""
        if self.together is not None or is_counted(state["noise"]):
            self.noise, self.together = [], Counted([], self.device)
            self.together.set_state(state["noise"])
        else:
            kind: Any = TorchStream if from_torch(state) else Philox
            self.noise = [kind(0) for _ in state["noise"]]
            for stream, saved in zip(self.noise, state["noise"], strict=True):
                stream.set_state(saved)
        for rows, bits in zip(self.rows, state["rows"], strict=True):
            rows.bit_generator.state = bits


def _rows(shape: Sequence[int]) -> tuple[int, int]:
    """Number of steps, and of numbers for each: which these are does not depend on the steps."""
    return (shape[0] if len(shape) > 1 else 1), math.prod(shape[1:] if len(shape) > 1 else shape)


def from_torch(state: dict[str, Any]) -> bool:
    """Whether a state from :meth:`ChainRandom.get_state` is not of the compiled generator."""
    return bool(state["noise"].dtype != np.uint64) or is_counted(state["noise"])


def _distinct(n: int, n_steps: int, size: int, rng: np.random.Generator) -> Array:
    """Rows drawn uniformly without replacement, by the fastest of three methods."""
    if size**2 <= n:
        return redrawn_distinct(rng.integers(0, n, size=(n_steps, size)), n, rng)
    if size <= 128 and 4 * size <= n:  # repeats are likely, and few
        return first_distinct(n_steps, size, n, rng)
    return np.stack([rng.choice(n, size, replace=False, shuffle=False) for _ in range(n_steps)])


def redrawn_distinct(indices: Array, n: int, rng: np.random.Generator) -> Array:
    """Redraw the rows with repeated entries until there are none.

    The result is uniform without replacement. The method is fast if rows have few entries, so that
    repeats are rare.
    """
    repeated = _repeats(indices)
    while len(repeated):
        indices[repeated] = rng.integers(0, n, size=(len(repeated), indices.shape[1]))
        repeated = repeated[_repeats(indices[repeated])]
    return indices


def _repeats(indices: Array) -> Array:
    """Indices of the rows with repeated entries."""
    size = indices.shape[1]
    ordered = np.sort(indices, axis=1).reshape(-1)
    equal = np.flatnonzero(ordered[1:] == ordered[:-1])
    return np.unique(equal[equal % size != size - 1] // size)  # not across the end of a row


def first_distinct(n_rows: int, size: int, n: int, rng: np.random.Generator) -> Array:
    """For each row, the first ``size`` different numbers of a longer random sequence.

    The result is uniform without replacement. For short rows, this takes a fifth to a half of the
    time of numpy's partial shuffles.
    """
    # m numbers have n (1 - exp(-m / n)) different ones on average; a margin covers most rows
    length = -n * np.log1p(-size / n)
    length = int(length + 3.0 * np.sqrt(length - size) + 3.0)
    shift = length.bit_length()
    found = np.empty((n_rows, size), dtype=np.int64)
    todo = np.arange(n_rows)
    while len(todo):
        numbers = rng.integers(0, n, size=(len(todo), length))
        # sorted by number, then by place; the first of equal numbers is kept
        ordered = np.sort(numbers << shift | np.arange(length), axis=1)
        place = ordered & ((1 << shift) - 1)
        ordered >>= shift
        place[:, 1:] |= (ordered[:, 1:] == ordered[:, :-1]) * (1 << shift)
        place = np.sort(place, axis=1)[:, :size]
        enough = place[:, -1] < length
        found[todo[enough]] = np.take_along_axis(numbers[enough], place[enough], axis=1)
        todo = todo[~enough]
    return found
