"""Data on the device, and the minibatches drawn from it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._limits import LIMITS, slices
from .chain_random import ChainRandom
from .fields import Field
from .ranks import ALONE, NoRandom, Ranks
from .read_ahead import read_ahead
from .row_odds import RowOdds
from .sending import sent


@dataclass(slots=True)
class Batch:
    """The rows of one step.

    Attributes
    ----------
    fields : dict
        The fields of :class:`Data` for these rows, with a leading chain axis unless ``shared``.
    weight : Tensor or float
        Exponents of the rows' likelihoods, importance weights included. 1.0 if all are one.
    shared : bool
        Whether all chains have the same rows.
    size : int
        Number of rows of each chain: of a minibatch that processes share, those of this one.
    """

    fields: dict[str, Any]
    weight: Tensor | float
    shared: bool
    size: int

    def to(self, dtype: torch.dtype) -> Batch:
        """The same rows in another precision; whole numbers stay what they are."""

        def changed(part: Any) -> Any:
            whole = isinstance(part, float) or not part.dtype.is_floating_point
            return part if whole else part.to(dtype)

        fields = {name: changed(field) for name, field in self.fields.items()}
        return replace(self, fields=fields, weight=changed(self.weight))

    def by_chain(self, name: str) -> Any:
        """A field with a leading axis of chains, which has length 1 if they share the field.

        Rows that are no tensor know themselves which chains they belong to.
        """
        field = self.fields[name]
        return field[None] if self.shared and isinstance(field, Tensor) else field

    def by_row(self) -> Batch:
        """The same rows, each as the only row of a chain: the first chain's rows come first."""

        def alone(part: Any) -> Any:
            if isinstance(part, float):
                return part
            if not isinstance(part, Tensor):
                return part.by_row()
            return (part if self.shared else part.flatten(0, 1)).unsqueeze(1)

        fields = {name: alone(field) for name, field in self.fields.items()}
        return Batch(fields, alone(self.weight), False, 1)


@dataclass
class Data:
    """The rows of a model on one device, as named fields with the rows on the first axis.

    Attributes
    ----------
    fields : dict
        Tensors (rows, ...), or a :class:`Field` each.
    n_rows : int
        Number of rows.
    weight : Tensor of shape (n_rows,) or None, default=None
        Sample weights. None means that all are one.
    total : float, default=0.0
        N: the sum of the weights, or the size of the stream that these rows are a part of. 0 means
        the sum of the weights.
    augment : callable or None, default=None
        ``augment(fields, rng)`` returns changed fields. It is applied to every minibatch, on the
        device.
    """

    fields: dict[str, Any]
    n_rows: int
    weight: Tensor | None = None
    total: float = 0.0
    augment: Callable[[dict[str, Any], ChainRandom], dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        if self.total == 0.0:
            self.total = self.held

    @property
    def held(self) -> float:
        """The sum of the weights of these rows."""
        return float(self.n_rows if self.weight is None else self.weight.sum())

    @property
    def scale(self) -> float:
        """N divided by the sum of the weights; it is above 1 only for a part of a stream."""
        return self.total / self.held

    @property
    def row_numbers(self) -> int:
        """How many numbers a row has."""
        return sum(_row_numbers(field) for field in self.fields.values())

    def part(self, n_rows: int) -> Data:
        """``n_rows`` random rows, always the same ones, that stand for all: N does not change."""
        rows = np.random.default_rng(0).choice(self.n_rows, n_rows, replace=False)
        rows.sort()  # in their order in memory
        return replace(self.select(rows), augment=None)

    def select(self, rows: Array) -> Data:
        """The rows of these numbers, in memory; N does not change."""
        return Data(*self._taken(rows), self.total, self.augment)

    def _taken(self, rows: Any) -> tuple[dict[str, Any], int, Tensor | None]:
        """Fields, number and weights of some rows, for a slice or numbers."""
        fields = {name: field[rows] for name, field in self.fields.items()}
        n_rows = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        return fields, n_rows, None if self.weight is None else self.weight[rows]

    @property
    def _no_tensors(self) -> list[Field]:
        return [field for field in self.fields.values() if isinstance(field, Field)]

    @property
    def run(self) -> int:
        """Rows that are read at once where rows cannot be read one by one; 0 where they can."""
        return max((field.run for field in self._no_tensors), default=0)

    @property
    def ahead(self) -> bool:
        """Whether blocks are read in advance, by a thread."""
        return any(field.ahead for field in self._no_tensors)

    @property
    def lazy(self) -> bool:
        """Whether rows are fetched step by step."""
        return any(field.lazy for field in self._no_tensors)

    @property
    def by_tensor(self) -> bool:
        """Whether rows are gathered by indices that are a tensor of their device."""
        fields = self.fields.values()
        return all(isinstance(field, Tensor) or field.by_tensor for field in fields)

    def blocks(self) -> Iterator[tuple[slice, Data]]:
        """Consecutive blocks of rows, each with its share of N, for sums over many rows.

        They bound the memory that such sums take, and read every row once. Few rows are one block:
        these data.
        """
        fields = self.fields.values()
        numbers = max(1, self.row_numbers)
        width = sum(int(np.prod(field.shape[1:])) for field in fields)
        # what is found for each may be an array of the width: a block has 16 times as many numbers
        n_rows = min(max(LIMITS.block_numbers, 16 * width) // numbers, LIMITS.narrow_rows)
        if n_rows >= self.n_rows:
            yield slice(0, self.n_rows), self
            return
        yield from read_ahead(self.block, slices(self.n_rows, n_rows), ahead=self.ahead)

    def block(self, rows: slice) -> Data:
        """Consecutive rows, with their share of N."""
        block = Data(*self._taken(rows))
        block.total = self.scale * block.held
        return block

    def all_rows(self) -> Batch:
        """Every row, as one batch shared by the chains."""
        weight = 1.0 if self.weight is None else self.weight
        fields = {k: v.whole() if isinstance(v, Field) else v for k, v in self.fields.items()}
        return Batch(fields, weight, True, self.n_rows)


class Minibatches:
    """Minibatches of ``size`` rows for every chain, drawn uniformly without replacement.

    Parameters
    ----------
    data : Data
        The rows.
    size : int
        Number of rows in a minibatch. With ``data.n_rows`` or more, all rows are used.
    odds : RowOdds or None, default=None
        Expected frequencies with which rows are drawn, by stratified sampling. Rows are weighted by
        1 / (n_rows * frequency), so means remain unbiased. None draws uniformly.

    Notes
    -----
    Rows of files that are slow to search are read in runs of consecutive rows, once for many steps.
    Without ``odds``, the minibatches of a chunk of steps are drawn from at least
    ``LIMITS.pool_runs`` runs that begin at random rows: every row still has the same probability,
    but in files that are sorted the minibatches of a chunk resemble each other. With it, all
    minibatches are drawn from one pool of ``LIMITS.pool_numbers`` numbers that is drawn before the
    first step.
    """

    def __init__(self, data: Data, size: int, *, odds: RowOdds | None = None):
        self.data = data
        self.full = size >= data.n_rows
        self.size = min(size, data.n_rows)
        self.factor = data.n_rows / self.size
        self.odds = None if self.full else odds
        #: numbers of these rows among those of the odds; None: they are the same
        self._numbers: Array | None = None
        self._run = 0 if self.full else data.run
        self._pool: tuple[Array, Data] | None = None
        self._ranks = ALONE
        #: the precision of rows in steps that take all of them; None: that of the data
        self.dtype: torch.dtype | None = None
        #: how many numbers are gathered for one minibatch of one chain
        self.numbers = self.size * data.row_numbers

    def over(self, ranks: Ranks) -> Self:
        """The same minibatches; this process has its share of their rows."""
        return self if ranks is self._ranks else self._with(_ranks=ranks)

    def whole(self) -> Self:
        """The same minibatches; this process has every row of them."""
        return self.over(ALONE)

    def uniform(self, size: int) -> Minibatches:
        """Minibatches of another size, divided alike unless there are fewer rows than processes."""
        found = Minibatches(self.data, size)
        return found.over(self._ranks) if size >= self._ranks.size else found

    def smaller(self, size: int) -> Self:
        """Minibatches of fewer rows as they are, drawn alike; this process has all of them."""
        data = replace(self.data, augment=None)
        found = self.whole()._with(data=data, size=size, factor=data.n_rows / size)
        found.numbers = size * data.row_numbers
        return found

    @property
    def divided(self) -> bool:
        """Whether other processes have other rows of every minibatch."""
        return self._ranks.size > 1

    def add_up(self, *tensors: Tensor) -> None:
        """Replace sums over this process's rows of a minibatch by those over all rows."""
        self._ranks.add_up(*tensors)

    def follow_first(self, *tensors: Tensor) -> None:
        """Replace tensors by those of the first process: other processors may round otherwise."""
        self._ranks.follow_first(*tensors)

    def random(self, rng: ChainRandom, name: str) -> Any:
        """Random numbers for the rows' gradients of a model; an error if processes share rows."""
        return NoRandom(name) if self.divided else rng

    def in_precision(self, dtype: torch.dtype | None) -> Self:
        """The same minibatches, all rows at every step, in this precision."""
        return self if dtype is self.dtype else self._with(dtype=dtype)

    def _with(self, **changed: Any) -> Self:
        found = copy.copy(self)
        vars(found).pop("_whole", None)
        vars(found).update(changed)
        return found

    @cached_property
    def _whole(self) -> Batch:
        """Every row, or this process's share of them."""
        data = self.data
        if self.divided:
            data = data.block(self._ranks.share(data.n_rows))
        rows = data.all_rows()
        return rows if self.dtype is None else rows.to(self.dtype)

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        held = [*self.data.fields.values(), self.data.weight]
        return next((t.device for t in held if isinstance(t, Tensor)), torch.device("cpu"))

    def indices(self, n_steps: int, rng: ChainRandom) -> Any:
        """Row indices of shape (chains, n_steps, size); None: all rows at every step.

        They are a tensor where rows and random numbers are on a GPU, otherwise an array.
        """
        if self.full:
            return None
        if self._run:
            return self._pooled(n_steps, rng)
        if self.odds is None:
            return rng.distinct(self.data.n_rows, n_steps, self.size, there=self.data.by_tensor)
        return np.stack([self._weighted(n_steps, of_chain) for of_chain in rng.rows])

    def independent(self, n_rows: int, rng: np.random.Generator) -> Array:
        """Indices of so many rows, drawn one by one with the probabilities."""
        assert self.odds is not None
        return self.odds.rows(rng.random(n_rows))

    def _weighted(self, n_steps: int, rng: np.random.Generator, size: int | None = None) -> Array:
        # one draw in each of `size` equal strata of the cumulative probability. This is unbiased,
        # and a row is in every minibatch if its probability fills a stratum
        size = self.size if size is None else size
        u = (np.arange(size) + rng.random((n_steps, size))) / size
        assert self.odds is not None
        return self.odds.rows(u)

    def _pooled(self, n_steps: int, streams: ChainRandom) -> Array:
        """Row indices (chains, n_steps, size) from few runs of rows, or from the one pool."""
        n_rows = self.data.n_rows
        most = min(n_rows, max(self.size, LIMITS.pool_numbers * self.size // self.numbers))
        if self.odds is not None:
            pool = self._weighted(1, np.random.default_rng(0), most)[0]
            pools = np.broadcast_to(pool, (len(streams.rows), most))
            if self._pool is None:
                kept = np.unique(pool)
                self._pool = kept, self.data.select(kept)
        else:
            most = max(self.size, min(n_steps * self.size, most // 8))
            run = min(self._run, max(1, most // LIMITS.pool_runs))
            n_runs = -(-most // run)
            starts = np.stack([rng.integers(0, n_rows, n_runs) for rng in streams.rows])
            pools = (starts[:, :, None] + np.arange(run)).reshape(len(starts), -1) % n_rows
        within = streams.distinct(pools.shape[1], n_steps, self.size)
        return np.stack([pool[w] for pool, w in zip(pools, within, strict=True)])

    def _held(self, by_step: Array) -> tuple[Minibatches, Array]:
        """Minibatches of the rows of some steps, which are read now, and their new indices."""
        rows, data = self._pool or (np.unique(by_step), None)
        view = copy.copy(self)
        view.data = self.data.select(rows) if data is None else data
        view._numbers = rows
        return view, np.searchsorted(rows, by_step)

    def chunk(self, indices: Any, n_steps: int, rng: ChainRandom) -> Iterator[Batch]:
        """One batch per step, for the row indices that :meth:`indices` returns."""
        if indices is None:
            whole = batch = self._whole
            for _ in range(n_steps):
                if self.data.augment is not None:
                    batch = replace(whole, fields=self.data.augment(whole.fields, rng))
                yield batch
            return
        by_step = indices.swapaxes(0, 1)[..., self._ranks.share(self.size)]  # (steps, chains, size)
        if self._run:
            view, by_step = self._held(by_step)
            yield from view._gathered(by_step, rng)
        else:
            yield from self._gathered(by_step, rng)

    def at_once(self, n_chains: int) -> int:
        """Number of steps whose rows are gathered together: not more than fit into the cache."""
        most = LIMITS.cache_numbers if self.device.type == "cpu" else LIMITS.pool_numbers
        return max(1, most // (n_chains * self.numbers))

    def _gathered(self, by_step: Any, rng: ChainRandom) -> Iterator[Batch]:
        """One batch per step, for row indices (steps, chains, rows)."""
        at_once = self.at_once(by_step.shape[1])
        if self.data.lazy:
            at_once = len(by_step)  # rows that are fetched step by step, in advance
        for start in range(0, len(by_step), at_once):
            yield from self.gather(by_step[start : start + at_once], rng)

    def together(self, indices: Array | None) -> Batch:
        """The rows of several steps, (chains, steps, size), as those of so many more chains.

        The chains of the first step come first. None: all rows, which the steps share.
        Augmentations leave them as they are.
        """
        if indices is None:
            return self._whole
        by_step = indices.swapaxes(0, 1)
        return next(self.gather(by_step.reshape(1, -1, by_step.shape[2]), None))

    def batch_of(self, rows: Array) -> Batch:
        """The rows of these numbers, as they are, in one batch that all chains share."""
        return next(self.gather(rows[None], None))

    def gather(self, by_step: Any, rng: ChainRandom | None) -> Iterator[Batch]:
        """Batches for row indices (n_steps, chains, size), or (n_steps, size) for all chains.

        ``rng`` is for augmentations. None: rows stay as they are.
        """
        shared = by_step.ndim == 2
        if isinstance(by_step, Tensor):
            index = by_step
            flat = index.reshape(-1)
        else:
            by_step = np.ascontiguousarray(by_step)
            index = torch.from_numpy(by_step)
            flat = sent(index.reshape(-1), self.device)
        columns: dict[str, Sequence[Any]] = {}
        for name, values in self.data.fields.items():
            if isinstance(values, Tensor):
                rows = values.index_select(0, flat)
                columns[name] = rows.view(*index.shape, *values.shape[1:]).unbind(0)
            else:
                columns[name] = values.gather(by_step)
        weights = self._weights(flat, by_step)
        for k in range(len(by_step)):
            fields = {name: column[k] for name, column in columns.items()}
            if self.data.augment is not None and rng is not None:
                fields = self.data.augment(fields, rng)
            weight = 1.0 if weights is None else weights[k]
            yield Batch(fields, weight, shared, by_step.shape[-1])

    def _weights(self, flat: Tensor, by_step: Any) -> Sequence[Tensor] | None:
        weight = self.data.weight
        if weight is None and self.odds is None:
            return None
        chosen: Any = 1.0
        if weight is not None:
            chosen = weight.index_select(0, flat)
        if self.odds is not None:
            rows = by_step if self._numbers is None else self._numbers[by_step]
            odds = torch.from_numpy(self.odds.weights(rows.reshape(-1)))
            # in the precision and on the device of the data, because weights multiply residuals
            chosen = chosen * sent(odds.to(tensor_like(self.data).dtype), self.device)
        return chosen.view(by_step.shape).unbind(0)


def input_rows(x: Any, dtype: torch.dtype, device: str) -> Any:
    """A field of inputs: a dense tensor, or rows that are fetched by minibatch."""
    if hasattr(x, "as_field"):
        return x.as_field(dtype, device)
    x = x.toarray() if hasattr(x, "toarray") else x
    return torch.from_numpy(np.ascontiguousarray(x)).to(device, dtype)


def tensor_like(data: Data) -> Tensor:
    """A tensor of the data's floating point type, on its device."""
    fields = [f if isinstance(f, Tensor) else f.tensor_like() for f in data.fields.values()]
    return next((f for f in fields if f.is_floating_point()), torch.empty(0, device="cpu"))


def _row_numbers(field: Any) -> int:
    return int(np.prod(field.shape[1:])) if isinstance(field, Tensor) else int(field.row_numbers)
