"""Gradients that are recorded once as a CUDA graph and then replayed.

For small models on a GPU, the time of a step is the time to launch its many operations. A replay
launches all of them at once, in the memory of the recording, so positions and minibatches are
copied there first; latent variables stay where they are. A recording is compared with the gradient
itself before it is used. ``recorded_steps.py`` records whole steps, and needs these gradients where
the numbers of a step change all the time, as in the burn-in of MCLMC.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..._data.minibatch import Batch
from ..._exceptions import not_allowed
from ..recipe import Recipe
from ..target import Evaluator
from ._base import Accelerator, Engine, why_no_share

Tensors = tuple[Tensor, ...]

#: types of devices that can record
DEVICES = ("cuda",)
#: calls before the recording, in which libraries choose algorithms and allocate memory
WARM_UP = 3
#: largest difference between a replayed gradient and the gradient itself, relative to its largest
#: entry
TOLERANCE = 1e-3


def places(tensors: Iterable[Tensor]) -> list[tuple[int, torch.Size]]:
    """Where tensors lie: a recording holds as long as they stay there, whatever they contain."""
    return [(tensor.data_ptr(), tensor.shape) for tensor in tensors]


def record(compute: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], Any]]:
    """The results of ``compute()``, and a function that computes them again in the same memory."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            compute()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with _no_collection(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = compute()
    return results, graph.replay


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage: to free an earlier recording while one is made spoils it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass
class Recording:
    """What a call of a method of the :class:`Evaluator` has left for the next ones.

    ``places`` is where the model's state was.
    """

    places: list[tuple[int, torch.Size]]
    results: Tensors
    aux: dict[str, Tensor]
    replay: Callable[[], Any]


class GraphedEvaluator(Evaluator):
    """An :class:`Evaluator` that records the first call of its methods and replays it for others.

    Latent variables are read where they were. A model that replaces them has another recording.

    Raises
    ------
    ValueError
        The gradient cannot be recorded.
    """

    def __init__(self, *parts: Any, **options: Any):
        super().__init__(*parts, **options)
        self._recordings: dict[str, Recording] = {}
        self._filled: Batch | None = None
        self._replays = True

    @contextmanager
    def without_replays(self) -> Iterator[None]:
        self._replays = False
        try:
            yield
        finally:
            self._replays = True

    def gradient(self, phi: Tensor) -> Tensor:
        return self._called("gradient", phi)[0]

    def value_and_gradient(self, phi: Tensor) -> tuple[Tensor, Tensor]:
        value, g = self._called("value_and_gradient", phi)
        return value, g

    def _called(self, name: str, phi: Tensor) -> Tensors:
        if not self._replays:
            return self._eager(name, phi, self.batch)
        known = self._recordings.get(name)
        if known is None or known.places != places(self.state.values()):
            try:
                self._recordings[name] = self._recorded(name, phi)
                self._compare(name, phi)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise not_allowed(
                    "compiled=True is not allowed here: the gradient can't be recorded as a CUDA "
                    f"graph ({error}); give compiled='auto'."
                ) from error
        return self._again(name, phi, self.batch)

    def _recorded(self, name: str, phi: Tensor) -> Recording:
        if self._filled is None:
            # the memory that replays read: positions, rows and weights
            self._phi, self._inputs = phi.clone(), _changed(self.batch, Tensor.clone)
            self._filled = self.batch
        results, replay = record(lambda: self._eager(name, self._phi, self._inputs))
        n = len(results) - len(self.aux)
        aux = dict(zip(self.aux, results[n:], strict=True))
        return Recording(places(self.state.values()), results[:n], aux, replay)

    def _compare(self, name: str, phi: Tensor) -> None:
        """Refuse a recording that is wrong for another position and another minibatch."""
        shifts, rows = itertools.count(1), 0 if self.batch.shared else 1
        batch = _changed(self.batch, lambda field: field.roll(next(shifts), rows))
        moved = 0.9 * phi + 0.01
        expected = [each.clone() for each in self._eager(name, moved, batch)]
        for result in self._recordings[name].results:
            result.fill_(torch.nan)
        for found, right in zip(self._again(name, moved, batch), expected, strict=False):
            bound = TOLERANCE * float(right.abs().max())
            if not torch.allclose(found, right, rtol=0.0, atol=bound):
                raise RuntimeError("a replay differs from it")

    def _eager(self, name: str, phi: Tensor, batch: Batch) -> Tensors:
        """The results of the method itself, followed by the tensors of ``aux``."""
        given, self.batch = self.batch, batch
        try:
            found = getattr(Evaluator, name)(self, phi)
        finally:
            self.batch = given
        results = found if isinstance(found, tuple) else (found,)
        return *results, *self.aux.values()

    def _again(self, name: str, phi: Tensor, batch: Batch) -> Tensors:
        recording = self._recordings[name]
        self._phi.copy_(phi)
        if batch is not self._filled:  # it is the same batch if every step uses all rows
            inputs, self._filled = self._inputs, batch
            for each, field in inputs.fields.items():
                field.copy_(batch.fields[each])
            if isinstance(inputs.weight, Tensor) and isinstance(batch.weight, Tensor):
                inputs.weight.copy_(batch.weight)
        recording.replay()
        self.aux = recording.aux
        return recording.results


def _changed(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """A copy of a batch with changed fields and weights."""
    weight = batch.weight
    return replace(
        batch,
        fields={name: change(field) for name, field in batch.fields.items()},
        weight=change(weight) if isinstance(weight, Tensor) else weight,
    )


class CUDAGraph(Accelerator):
    """Gradients as a CUDA graph, used only with ``compiled=True``."""

    name = "cuda_graph"
    numba = False

    def why_not(self, recipe: Recipe) -> str | None:
        if recipe.device not in DEVICES:
            return f"it needs a GPU, and the device is {recipe.device!r}."
        if not all(isinstance(field, Tensor) for field in recipe.target.data.fields.values()):
            return "it is for dense rows of networks."
        return why_no_share(recipe)

    def pays(self, recipe: Recipe) -> bool:
        return False  # measured for networks without latent variables only

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        return replace(engine, evaluator=GraphedEvaluator)
