"""Gradients that are recorded once as a CUDA graph and then replayed.

For small models on a GPU, the time of a step is the time to launch its many operations. A replay
launches all of them at once, in the memory in which they were recorded, so positions and
minibatches are copied there first. A recording is compared with the gradient itself before it is
used. It is made only with ``compiled=True``, because its speed has not been measured on a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..._data.minibatch import Batch
from ..._exceptions import not_allowed
from ..recipe import Recipe
from ..target import Evaluator
from ._base import Accelerator, Engine

#: types of devices that can record
DEVICES = ("cuda",)
#: calls before the recording, in which libraries choose algorithms and allocate memory
WARM_UP = 3
#: largest difference between a replayed gradient and the gradient itself, relative to its largest
#: entry
TOLERANCE = 1e-3


def record(compute: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], Any]]:
    """The result of ``compute()``, and a function that computes it again in the same memory."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            compute()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()
    return result, graph.replay


class GraphedEvaluator(Evaluator):
    """An :class:`Evaluator` that records the first gradient and replays it for the others.

    Raises
    ------
    ValueError
        The gradient cannot be recorded.
    """

    _replay: Callable[[], Any] | None = None

    def gradient(self, phi: Tensor) -> Tensor:
        if self._replay is None:
            try:
                self._record(phi)
                self._compare(phi)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise not_allowed(
                    "compiled=True is not allowed here: the gradient can't be recorded as a CUDA "
                    f"graph ({error}); give compiled='auto'."
                ) from error
        return self._again(phi, self.batch)

    def _record(self, phi: Tensor) -> None:
        given = self.batch
        # the memory that replays read: positions, rows and weights
        self._phi, self._inputs, self._filled = phi.clone(), _changed(given, Tensor.clone), given
        self._result, self._replay = record(lambda: self._eager(self._phi, self._inputs))
        self._recorded_aux = self.aux

    def _compare(self, phi: Tensor) -> None:
        """Refuse a recording that is wrong for another position and another minibatch."""
        shifts, rows = itertools.count(1), 0 if self.batch.shared else 1
        batch = _changed(self.batch, lambda field: field.roll(next(shifts), rows))
        moved = 0.9 * phi + 0.01
        expected = self._eager(moved, batch).clone()
        self._result.fill_(torch.nan)
        found = self._again(moved, batch)
        bound = TOLERANCE * float(expected.abs().max())
        if not torch.allclose(found, expected, rtol=0.0, atol=bound):
            raise RuntimeError("a replay differs from it")

    def _eager(self, phi: Tensor, batch: Batch) -> Tensor:
        given, self.batch = self.batch, batch
        try:
            return super().gradient(phi)
        finally:
            self.batch = given

    def _again(self, phi: Tensor, batch: Batch) -> Tensor:
        assert self._replay is not None
        self._phi.copy_(phi)
        if batch is not self._filled:  # it is the same batch if every step uses all rows
            inputs, self._filled = self._inputs, batch
            for name, field in inputs.fields.items():
                field.copy_(batch.fields[name])
            if isinstance(inputs.weight, Tensor) and isinstance(batch.weight, Tensor):
                inputs.weight.copy_(batch.weight)
        self._replay()
        self.aux = self._recorded_aux
        return self._result


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
        if recipe.target.model.after_step is not None:
            # a step may replace the tensors of latent variables
            return "the model has latent variables."
        if not all(isinstance(field, Tensor) for field in recipe.target.data.fields.values()):
            return "it is for dense rows of networks."
        if recipe.minibatches.ranks.size > 1:
            return "several ranks share the minibatches."
        return None

    def pays(self, recipe: Recipe) -> bool:
        return False  # not measured yet

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        return replace(engine, evaluator=GraphedEvaluator)
