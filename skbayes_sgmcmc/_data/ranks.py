"""The processes that share the rows of each minibatch: the ranks of ``torch.distributed``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor

from .._exceptions import SamplingError, more, not_allowed

T = TypeVar("T")

#: the place in the code of gloo with which its errors begin
PLACE = re.compile(r"^\[[^\]]*\] ")


class RankError(SamplingError):
    """Another rank has stopped, or does not answer within the timeout of the process group.

    ``how`` says how it was found, and ``then`` what had happened until then, and what to do.
    """

    def __init__(self, how: str, then: str = "; start all ranks again."):
        super().__init__(how + then + more("a-rank-has-stopped"))
        self.how = how


class Ranks:
    """The ranks of a process group; None is this process alone, which shares nothing.

    Every rank takes the same steps with the same noise. Of each minibatch it has its share of the
    rows, and the sums over the shares are added up. All methods that exchange something must be
    called by all ranks, in the same order.
    """

    def __init__(self, group: Any = None):
        self.group = group
        #: number of this process, and of processes
        self.rank, self.size, self._first = 0, 1, 0
        if group is not None:
            self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
            self._first = dist.get_global_rank(group, 0)

    def share(self, n: int) -> slice:
        """The part of n things that is this rank's; the parts differ by one at most."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def add_up(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over the ranks."""
        if self.size > 1:
            for tensor in tensors:
                self._in_place(tensor, lambda whole: dist.all_reduce(whole, group=self.group))

    def follow_first(self, *tensors: Tensor) -> None:
        """Replace each tensor by that of rank 0, since rounding may have changed it."""
        if self.size > 1:
            for tensor in tensors:
                self._in_place(
                    tensor, lambda whole: dist.broadcast(whole, self._first, group=self.group)
                )

    def gathered(self, value: T) -> list[T]:
        """The values of all ranks, in their order."""
        found: list[Any] = [value]
        if self.size > 1:
            found *= self.size
            with self._explained():
                dist.all_gather_object(found, value, group=self.group)
        return found

    def by_first(self, compute: Callable[[], T]) -> T:
        """What ``compute`` returns on rank 0, on every rank; an error is raised on every rank."""
        if self.size == 1:
            return compute()
        answer: list[Any] = [None, None]
        if self.rank == 0:
            try:
                answer[0] = compute()
            except Exception as error:
                answer[1] = error
        with self._explained():
            dist.broadcast_object_list(answer, self._first, group=self.group)
        if answer[1] is not None:
            raise answer[1]
        found: T = answer[0]
        return found

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Raise ``ValueError`` on every rank if ranks differ in a fact."""
        every = self.gathered(dict(facts))
        for name in dict.fromkeys(key for each in every for key in each):
            values = [each.get(name) for each in every]
            if any(value != values[0] for value in values):
                listed = ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
                raise not_allowed(
                    f"data_parallel is not allowed here: the ranks differ in {name}: {listed}. "
                    "Give every rank the same data, parameters and versions.",
                    "ranks-are-missing-or-differ",
                )

    def _in_place(self, tensor: Tensor, exchange: Callable[[Tensor], Any]) -> None:
        whole = tensor.contiguous()  # as process groups want it
        with self._explained():
            exchange(whole)
        if whole is not tensor:
            tensor.copy_(whole)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            reason = PLACE.sub("", str(error)).partition(". ")[0].partition("\n")[0]
            raise RankError(
                f"rank {self.rank} of {self.size} lost the other ranks: one has stopped, or did "
                f"not answer in time ({reason})"
            ) from error


#: this process alone
ALONE = Ranks()


class NoRandom:
    """Stands in for random numbers, of the gradient of this name, where ranks would differ."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise not_allowed(
            f"data_parallel is not allowed with {self._name}: its gradient draws random numbers "
            "for every row, and ranks have different rows. Fit it in one process.",
            "ranks-are-missing-or-differ",
        )
