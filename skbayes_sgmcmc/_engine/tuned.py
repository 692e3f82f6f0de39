"""What the chains of a run have in common: the sampler, the target, the minibatches, the step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._data.minibatch import Data, Minibatches
from ..models._protocol import Model
from ..models._threads import serial_products
from ..models._tuning import AutoValues
from ..samplers import Cell, Sampler, resolve
from . import auto
from .energy import allowed_error, energy_error
from .precision import single_is_enough
from .settings import Settings, is_auto
from .target import GRADIENTS, Coordinates, Target

Array = NDArray[Any]

#: number of rows in a minibatch of a stream
STREAM_BATCH = 100


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Every "auto" of a run resolved, but the lengths."""

    sampler: Sampler
    cell: Cell
    warm: AutoValues
    target: Target
    minibatches: Minibatches
    step_size: Any

    def at(self, eta: float) -> Tuned:
        """The same with another automatic step size."""
        warm, sampler, share = self.warm, self.sampler, eta / self.step_size
        if self.minibatches.full:  # the noise of minibatches needs its friction
            sampler = sampler.for_steps(share)
        spacing = None if warm.spacing is None else sampler.spacing(eta)
        relaxation = None if warm.relaxation is None else warm.relaxation / share
        warm = replace(warm, step_size=eta, spacing=spacing, relaxation=relaxation)
        return replace(self, sampler=sampler, warm=warm, step_size=eta)

    def too_long(self, draws: Array, temperature: float) -> bool:
        """Whether energy errors of the steps, at these draws, are not those of sound ones."""
        c, usual, target = self.sampler.squared_length, self.cell.step, self.target
        known = self.minibatches.full and target.model.after_step is None and temperature > 0.0
        if c is None or usual is None or not known:
            return False
        found = energy_error(target, self.minibatches, draws, c * self.step_size, temperature)
        return not found <= allowed_error(c, usual)


def chosen(
    model: Model, data: Data, settings: Settings, *, stream: bool = False, whole: bool = False
) -> tuple[Sampler, Cell]:
    """The sampler and its cell of the table, given or "auto".

    ``whole`` means that every step was found to need all rows.
    """
    sampler = settings.sampler
    if is_auto(sampler):
        tuning = auto.tuning_of(model)
        sampler = tuning.default_sampler(data, settings, stream=stream, whole=whole)
    found, _, cell = resolve(sampler, settings.integrator, plain=not settings.auto)
    return found, cell


@serial_products()
def tuned(
    model: Model,
    data: Data,
    settings: Settings,
    sampler: Sampler,
    cell: Cell,
    *,
    temperature: float,
    like: torch.Tensor,
    warm: AutoValues | None,
    rows_seen: float | None,
) -> Tuned:
    """Find what "auto" means for these rows; ``warm`` are the values of a stream's earlier rows."""
    stream = rows_seen is not None
    if warm is None or (warm.step_size is not None) != settings.auto:
        # total=0 approximates the posterior of these rows alone. If they stood for all rows of the
        # stream, the approximation would be too narrow, and it might have no maximum because the
        # prior would hardly count.
        rows = replace(data, total=0.0) if stream else data
        warm = auto.warm_up(model, rows, sampler, cell, settings, temperature, stream=stream)
    target = _target(model, data, warm, temperature, like)
    minibatches = auto.minibatches(
        target,
        sampler,
        warm,
        batch_size=STREAM_BATCH if stream and is_auto(settings.batch_size) else settings.batch_size,
        shared=settings.shared_minibatch,
        temperature=temperature,
    )
    if minibatches.full and GRADIENTS[target.gradient]:
        target = target.without_control_variates()
        minibatches = Minibatches(target.data, minibatches.size)
        if is_auto(settings.sampler):
            better, its_cell = chosen(model, data, settings, whole=True)
            if type(better) is not type(sampler):
                sampler, cell = better, its_cell
                auto.set_step(warm, model, data, sampler, cell, settings, temperature)
    if is_auto(settings.dtype) and single_is_enough(target, minibatches, sampler, temperature):
        minibatches = minibatches.in_precision(torch.float32)
    warm = replace(warm, anchor=None)  # the target has it
    eta: Any = settings.step_size
    if warm.step_size is not None:
        eta = warm.step_size
        if rows_seen is not None:
            eta = min(eta, auto.stream_step(model, sampler, minibatches, rows_seen))
    found = Tuned(
        sampler=sampler,
        cell=cell,
        warm=warm,
        target=target,
        minibatches=minibatches,
        step_size=eta,
    )
    if warm.spacing is None or cell.step is None or rows_seen is not None:
        return found
    return replace(found, step_size=cell.step).at(eta)


def _target(
    model: Model, data: Data, warm: AutoValues, temperature: float, like: torch.Tensor
) -> Target:
    """The target, with the resolved coordinates and gradient estimator."""
    coordinates = None
    if warm.root is not None:
        center = np.zeros(model.n_parameters) if warm.center is None else warm.center
        coordinates = Coordinates.from_arrays(center, warm.root, like)
    return Target(
        model,
        data,
        coordinates=coordinates,
        gradient=warm.gradient,
        center=warm.center,
        temperature=temperature,
        anchor=warm.anchor,
        dtype=like.dtype,
        device=str(like.device),
    )
