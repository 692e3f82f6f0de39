"""Rows of a dataset that is never in memory as a whole: items are fetched by minibatch.

A dataset is map-style: it has a length and items by number, as ``torch.utils.data.Dataset`` and the
datasets of Hugging Face have. An item is (x, y), a mapping with a label, or x alone.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._conversion import ITS_ROWS
from .._exceptions import explained, not_allowed
from .._limits import LIMITS, slices
from .._table_columns import of_tensor
from .fields import Field
from .layout import Layout, is_several, one_row

#: names of the target in an item that is a mapping, and of a column or attribute with all targets
LABELS = ("labels", "label", "targets", "target", "y")


def split_item(item: Any) -> tuple[Any, Any]:
    """x and y of an item; y is None if the item has none."""
    if isinstance(item, tuple | list):  # first, because it is the usual case and quick to see
        if len(item) == 2:
            return item[0], item[1]
        # as those of a TensorDataset of rows alone
        return (item[0] if len(item) == 1 and hasattr(item[0], "shape") else item), None
    if isinstance(item, Mapping):
        names = [name for name in LABELS if name in item]
        x = {key: value for key, value in item.items() if key not in names}
        return x, item[names[0]] if names else None
    return item, None


class Items(torch.utils.data.Dataset[Any]):
    """Items of a dataset as arrays, with errors that name the item."""

    def __init__(self, dataset: Any, layout: Layout):
        self.dataset, self.layout = dataset, layout

    def __getitems__(self, indices: Sequence[int]) -> Array:
        """Rows (rows, numbers); torch's loaders ask for all rows of a minibatch at once."""
        rows, row = np.empty((len(indices), self.layout.size), np.float32), self.layout.row
        for place, item in enumerate(items_of(self.dataset, indices)):
            try:
                rows[place] = row(split_item(item)[0])
            except ValueError as error:
                raise not_allowed(
                    f"item {indices[place]} of the dataset: {error}", "the-rows-cannot-be-read"
                ) from None
        if not np.isfinite(rows).all():
            index = indices[int(np.isfinite(rows).all(axis=1).argmin())]
            raise not_allowed(
                f"item {index} of the dataset has values that are not finite.",
                "the-rows-cannot-be-read",
            )
        return rows


def items_of(dataset: Any, indices: Sequence[int]) -> Iterable[Any]:
    """Items of a dataset by their numbers, at once if it can; an error names the item."""
    at_once = getattr(dataset, "__getitems__", None)
    if at_once is not None:
        with suppress(Exception):  # they are then read one by one, to see which item it is
            items = list(at_once(indices))
            if len(items) == len(indices):
                return items
    return _one_by_one(dataset, indices)


def _one_by_one(dataset: Any, indices: Sequence[int]) -> Iterator[Any]:
    for index in indices:
        try:
            item = dataset[index]
        except Exception as error:
            lines = "".join(traceback.format_exception(error))
            raise explained(
                RuntimeError(f"item {index} of the dataset could not be read:\n{lines}"),
                "the-rows-cannot-be-read",
            ) from None
        yield item


class DatasetRows:
    """Rows of a dataset, in the shape that the module gets, fetched when they are indexed.

    ``layout`` says what of a row is which argument of the module. ``n_workers`` processes fetch
    items; 0: this one. ``rows`` are the numbers of the items that count; None: all.
    """

    def __init__(
        self,
        dataset: Any,
        layout: Layout,
        row_shape: Sequence[int],
        n_workers: int = 0,
        rows: Array | None = None,
    ):
        self.dataset, self.layout, self.n_workers = dataset, layout, n_workers
        self.row_shape = tuple(row_shape)
        self.rows = np.arange(length(dataset)) if rows is None else rows
        self.shape = (len(self.rows), layout.size)

    def __len__(self) -> int:
        return len(self.rows)

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        """Refused: what needs all rows at once gets them from the user."""
        raise not_allowed(
            f"X={type(self.dataset).__name__} is not allowed here, where all rows are needed at "
            f"once. {ITS_ROWS}"
        )

    def __getitem__(self, chosen: Any) -> Any:
        """Rows (rows, numbers) as an array, for a slice or numbers; fewer rows for a mask."""
        if isinstance(chosen, np.ndarray) and chosen.dtype == bool:
            parts = self.dataset, self.layout, self.row_shape, self.n_workers
            return DatasetRows(*parts, self.rows[chosen])
        numbers = np.arange(len(self))[chosen]
        found = [part.numpy() for part in self.batches(np.array_split(numbers, self._parts))]
        return np.concatenate(found) if found else np.empty((0, self.shape[1]), np.float32)

    @property
    def _parts(self) -> int:
        return max(1, 2 * self.n_workers)

    def batches(self, numbers: Sequence[Array]) -> Iterator[Tensor]:
        """Tensors (rows, numbers) of rows by their numbers; workers fetch some in advance."""
        items = Items(self.dataset, self.layout)
        wanted = [self.rows[part].tolist() for part in numbers if len(part)]
        if self.n_workers:
            yield from torch.utils.data.DataLoader(
                items,
                batch_sampler=wanted,
                num_workers=self.n_workers,
                collate_fn=torch.from_numpy,
            )
        else:
            yield from (torch.from_numpy(items.__getitems__(indices)) for indices in wanted)

    def as_field(self, dtype: torch.dtype, device: str) -> LoadedRows:
        """The rows as a field of minibatches."""
        return LoadedRows(self, dtype, device)


class LoadedRows(Field):
    """Rows of a dataset as a field of minibatches, in the shape that the module gets."""

    lazy = True

    def __init__(self, rows: DatasetRows, dtype: torch.dtype, device: str):
        super().__init__((len(rows), *rows.row_shape), dtype, device)
        self.rows = rows

    def gather(self, indices: Array) -> Steps:
        """Rows (chains, rows, ...) of each step in turn, for indices (steps, chains, rows)."""
        return Steps(self, indices)

    def shaped(self, rows: Tensor, *before: int) -> Tensor:
        """Flat rows as the module gets them, with other axes before."""
        return rows.to(self.device, self.dtype).view(*before, *self.rows.row_shape)

    def __getitem__(self, chosen: Any) -> Tensor:
        return self.shaped(torch.from_numpy(self.rows[chosen]), -1)


class Steps:
    """Rows of the steps of a run, which are asked for once and in their order."""

    def __init__(self, field: LoadedRows, indices: Array):
        self.field, self.shape = field, indices.shape[1:]
        self.found = field.rows.batches([step.reshape(-1) for step in indices])

    def __getitem__(self, step: int) -> Tensor:
        return self.field.shaped(next(self.found), *self.shape)


def length(dataset: Any) -> int:
    """Number of items of a dataset.

    Raises
    ------
    ValueError
        The dataset has no length or no items, or is a mapping of several datasets.
    """
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise not_allowed(
            "X=DataLoader is not allowed: give its dataset; batch_size and n_workers are "
            "parameters of the estimator."
        )
    if isinstance(dataset, Mapping):
        raise not_allowed(
            f"X={type(dataset).__name__} is not allowed: it holds several datasets, "
            f"{', '.join(map(repr, dataset))}. Give one of them."
        )
    try:
        n = len(dataset)
    except TypeError:
        raise not_allowed(
            f"X={type(dataset).__name__} is not allowed: a dataset needs __len__ and __getitem__ "
            "(map-style), because rows are drawn by their numbers."
        ) from None
    if n == 0:
        raise not_allowed(f"X={type(dataset).__name__} is not allowed: it has no items.")
    return n


def layout_of_items(dataset: Any) -> Layout:
    """The layout of a dataset's first item."""
    length(dataset)
    x, _ = split_item(dataset[0])
    if is_several(x) or isinstance(x, Mapping):
        return Layout.of(one_row(x))
    try:
        row = np.asarray(of_tensor(x))
    except ValueError:
        raise not_allowed(
            f"item 0 of the dataset is not allowed: its {len(x)} parts have different shapes. Give "
            "pairs (x, y) or, for several inputs, mappings of arrays with a label.",
            "the-rows-cannot-be-read",
        ) from None
    return Layout.of(row[None])


def targets_of(dataset: Any, n_workers: int) -> Array:
    """The targets of all items: of a column or attribute if there is one, else of each item.

    A column counts only if it agrees with some items: datasets may change their targets when an
    item is read, as those of torchvision do with a ``target_transform``.

    Raises
    ------
    ValueError
        Items have no target.
    """
    for name in LABELS:
        try:
            column = dataset[name] if _has_column(dataset, name) else getattr(dataset, name, None)
        except (TypeError, KeyError, IndexError):
            column = None
        if column is not None and np.shape(of_tensor(column))[:1] == (length(dataset),):
            targets = np.asarray(of_tensor(column))
            if _agree(targets, dataset):
                return targets
    return np.concatenate(list(_fetched_targets(dataset, n_workers)))


def _agree(targets: Array, dataset: Any) -> bool:
    """Whether the first, middle and last target are those of the items, where these have one."""
    some = sorted({0, len(targets) // 2, len(targets) - 1})
    found = (split_item(item)[1] for item in items_of(dataset, some))
    pairs = zip(targets[some], found, strict=True)
    return all(y is None or np.array_equal(np.asarray(of_tensor(y)), known) for known, y in pairs)


def _has_column(dataset: Any, name: str) -> bool:
    return name in (getattr(dataset, "column_names", None) or ())


class _Targets(torch.utils.data.Dataset[Any]):
    """Targets of items, with errors that name the item."""

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __getitems__(self, indices: Sequence[int]) -> Array:
        found: list[Array] = []
        for index, item in zip(indices, items_of(self.dataset, indices), strict=True):
            y = split_item(item)[1]
            if y is None:
                raise not_allowed(
                    f"y is missing: item {index} of the dataset has no target. Give y, items "
                    f"(x, y), or mappings with one of {', '.join(map(repr, LABELS))}."
                )
            found.append(np.asarray(of_tensor(y)))
            if found[-1].shape != found[0].shape:
                raise not_allowed(
                    f"item {index} of the dataset has a target of shape {found[-1].shape}, and "
                    f"item {indices[0]} one of shape {found[0].shape}: give targets of one shape."
                )
        return np.stack(found)


def _fetched_targets(dataset: Any, n_workers: int) -> Iterator[Array]:
    n = length(dataset)
    blocks = [list(range(n)[some]) for some in slices(n, LIMITS.module_rows)]
    yield from torch.utils.data.DataLoader(
        _Targets(dataset), batch_sampler=blocks, num_workers=n_workers, collate_fn=np.asarray
    )
