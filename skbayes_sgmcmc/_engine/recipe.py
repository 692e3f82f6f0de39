"""How a run samples a problem: every "auto" resolved, in one place.

What "auto" *means* depends on the posterior, and the model's ``tuning`` defines it
(``models/tuning/base.py``). The sampler supplies what "auto" needs to know about it
(``samplers/_protocol.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._data.minibatch import Data, Minibatches
from .._exceptions import SamplingError, more
from .._limits import LIMITS
from .._validation import BOUNDS, is_auto
from ..models._protocol import Model
from ..models._threads import serial_products
from ..models.tuning.auto import AUTO
from ..models.tuning.base import AutoValues, Request, Tuning
from ..samplers import Cell, Sampler, resolve
from ..schedules import as_schedule
from .combinations import check_pair, check_request
from .energy import ENERGY, allowed_error, energy_error
from .lengths import SHORTEST_RUN, Lengths, Plan, start_rows
from .memory import check_memory
from .precision import single_is_enough
from .problem import Problem
from .settings import Settings
from .target import GRADIENTS, Coordinates, Target


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a run samples."""

    #: the density, in the coordinates of the run
    target: Target
    sampler: Sampler
    cell: Cell
    #: the rows of each step
    minibatches: Minibatches
    #: the resolved values of "auto"
    values: AutoValues
    #: eta
    step_size: Any
    n_chains: int
    #: whether the run continues chains with random numbers from torch
    torch_numbers: bool = False
    #: number of steps of each chain; 0 while there is no plan
    n_steps: int = 0

    @property
    def device(self) -> str:
        return self.target.like.device.type

    @property
    def automatic_step(self) -> str:
        """What to give for an automatic step size."""
        return tuning_of(self.target.model).automatic_step(self.sampler)

    def at(self, eta: float) -> Recipe:
        """The same with another automatic step size."""
        values, sampler, share = self.values, self.sampler, eta / self.step_size
        if self.minibatches.full:  # the noise of minibatches needs its friction
            sampler = sampler.for_steps(share)
        spacing = None if values.spacing is None else sampler.spacing(eta)
        relaxation = None if values.relaxation is None else values.relaxation / share
        values = replace(values, step_size=eta, spacing=spacing, relaxation=relaxation)
        return replace(self, sampler=sampler, values=values, step_size=eta)

    def too_long(self, draws: Sequence[Array], temperature: float) -> bool:
        """Whether energy errors of the steps, at the draws of all groups, are too large."""
        c, usual, target = self.sampler.squared_length, self.cell.step, self.target
        known = self.minibatches.full and target.model.after_step is None and temperature > 0.0
        draws = [of_group for of_group in draws if of_group.size]
        if c is None or usual is None or not known or not draws:
            return False
        given = target, self.minibatches, draws, c * self.step_size, temperature
        allowed = allowed_error(c, usual)
        if energy_error(*given, ENERGY.first_draws) <= ENERGY.small_share * allowed:
            return False
        return not energy_error(*given) <= allowed


def tuning_of(model: Model) -> Tuning:
    """The model's tuning, or the base class if the model has none."""
    return model.tuning or Tuning(model)


def request_of(problem: Problem, settings: Settings, *, more_rows: bool = False) -> Request:
    """The sampler, given or "auto", and what else "auto" depends on; checked.

    ``more_rows``: whether later runs bring other rows.
    """
    model, data = problem.model, problem.data
    level = as_schedule("temperature", settings.temperature).values(np.zeros(1, dtype=int), 1)
    sampler, cell = _sampler_of(model, data, settings, more_rows=more_rows)
    check_pair(sampler, model, float(level[0]))
    return Request(sampler, cell, float(level[0]), settings, more_rows)


def _sampler_of(
    model: Model, data: Data, settings: Settings, *, more_rows: bool = False, whole: bool = False
) -> tuple[Sampler, Cell]:
    """The sampler and its cell of the table. ``whole``: every step was found to need all rows."""
    sampler = settings.sampler
    if is_auto(sampler):
        tuning = tuning_of(model)
        sampler = tuning.default_sampler(data, settings, more_rows=more_rows, whole=whole)
    found, cell = resolve(sampler, settings.integrator, plain=not settings.auto)
    many = model.n_parameters > LIMITS.full_hessian and model.scaled is None
    if is_auto(settings.sampler) and many:
        found = found.for_many_parameters()
    return found, cell


@serial_products()
def recipe_of(
    problem: Problem,
    request: Request,
    *,
    values: AutoValues | None = None,
    batch_size: int | None = None,
) -> Recipe:
    """Find what "auto" means for these rows, but for what is given."""
    settings, sampler, cell = request.settings, request.sampler, request.cell
    model, data = problem.model, problem.data
    if values is None or (values.step_size is not None) != settings.auto:
        values = _resolved(model, data, request)
    target = _target(problem, values, request.temperature)
    size = settings.batch_size if batch_size is None else batch_size
    minibatches = minibatches_of(target, sampler, values, size, request.temperature)
    if minibatches.full and GRADIENTS[target.gradient]:
        target = target.without_control_variates()
        minibatches = Minibatches(target.data, minibatches.size)
        if is_auto(settings.sampler):
            better, its_cell = _sampler_of(model, data, settings, whole=True)
            if type(better) is not type(sampler):
                sampler, cell = better, its_cell
                request = replace(request, sampler=sampler, cell=cell)
                tuning_of(model).set_step(values, data, request)
    if is_auto(settings.dtype) and single_is_enough(
        target, minibatches, sampler, request.temperature
    ):
        minibatches = minibatches.in_precision(torch.float32)
    known = values.step_size
    eta = settings.step_size if known is None else known
    recipe = Recipe(
        target=target,
        sampler=sampler,
        cell=cell,
        minibatches=minibatches,
        values=replace(values, anchor=None),  # the target has it
        step_size=eta,
        n_chains=settings.n_chains,
        torch_numbers=problem.previous is not None and problem.previous.torch_numbers,
    )
    if values.spacing is None or cell.step is None or request.more_rows:
        return recipe
    return replace(recipe, step_size=cell.step).at(eta)  # with the friction for this step


def _resolved(model: Model, data: Data, request: Request) -> AutoValues:
    """Centre, preconditioner, gradient estimator, starts and step size."""
    check_request(request, model)
    # total=0 approximates the posterior of these rows alone. If they stood for all that will come,
    # the approximation would be too narrow, and it might have no maximum because the prior would
    # hardly count.
    rows = replace(data, total=0.0) if request.more_rows else data
    tuning = tuning_of(model)
    values = (tuning.automatic if request.settings.auto else tuning.given)(rows, request)
    found = [each for each in (values.center, values.root) if each is not None]
    if not all(np.isfinite(each).all() for each in found):
        raise _no_approximation()
    eta = values.step_size
    if eta is not None and not BOUNDS.smallest_step <= eta <= BOUNDS.largest_step:
        raise _no_approximation()
    return values


@contextmanager
def explained_factorisations() -> Iterator[None]:
    """Explain factorisations that fail. Overflow is silent: what is not finite is refused."""
    try:
        with np.errstate(all="ignore"):
            yield
    except np.linalg.LinAlgError as error:
        raise _no_approximation() from error


def _no_approximation() -> SamplingError:
    return SamplingError(
        "The posterior could not be approximated by a Gaussian within the range of floating-point "
        "numbers: X, y, sample_weight, noise, prior_scale or temperature is extreme. Give moderate "
        "values; or give step_size a number, with init='random' and gradient='minibatch'."
        + more("no-gaussian-approximation")
    )


def _target(problem: Problem, values: AutoValues, temperature: float) -> Target:
    """The target, with the resolved coordinates and gradient estimator."""
    coordinates, model = None, problem.model
    if values.root is not None:
        center = np.zeros(model.n_parameters) if values.center is None else values.center
        given = center, values.root, problem.like, values.few
        coordinates = Coordinates.from_arrays(*given, model.scaled)
    return Target(
        model,
        problem.data,
        coordinates=coordinates,
        gradient=values.gradient,
        center=values.center,
        temperature=temperature,
        anchor=values.anchor,
        dtype=problem.dtype,
        device=problem.device,
    )


def minibatches_of(
    target: Target,
    sampler: Sampler,
    values: AutoValues,
    batch_size: int | str,
    temperature: float,
) -> Minibatches:
    """The minibatches of a run, of the given size or large enough for little gradient noise."""
    data, tuning = target.data, tuning_of(target.model)

    def to_theta(phi: Array) -> Tensor:
        return target.to_theta(torch.from_numpy(phi).to(target.like))

    size: int | None = None
    if sampler.full_data:
        size = data.n_rows
    elif not isinstance(batch_size, str):
        size = int(batch_size)
    elif values.step_size is None:
        size = AUTO.batch_size
    elif values.batch_size is not None:
        size = values.batch_size
    elif tuning.fits_whole(target.without_control_variates().data) or sampler.needs_potential:
        size = data.n_rows  # for which the sampler was chosen, with the rows as they are
    odds = None
    if size is None or size < data.n_rows:
        odds = tuning.row_odds(data, values, temperature)
    if size is None:
        size = tuning.batch_size(data, sampler, values, odds, temperature, to_theta)
    return Minibatches(data, size, odds=odds)


def plan_of(recipe: Recipe, settings: Settings, *, going_on: bool) -> Plan:
    """Numbers of steps and draws. ``going_on`` means continuing chains.

    With many modes, these have no burn-in. With one, it is short, and the posterior may have moved.
    """
    values, target, minibatches = recipe.values, recipe.target, recipe.minibatches
    model, itemsize = target.model, target.like.element_size()
    tuning = tuning_of(model)
    n_draws = draws_kept(model, settings, itemsize)
    if settings.kept.dir is None:
        size = 2 if settings.kept.dtype == "bfloat16" else itemsize
        check_memory(settings.n_chains, n_draws, model.n_kept, size)
    burn_in, thinning = tuning.lengths(values, minibatches.data.n_rows, minibatches.size, n_draws)
    if going_on and not tuning.one_mode:
        burn_in = 0
    lengths = Lengths(burn_in, n_draws, thinning).with_given(settings)
    descends = not going_on and recipe.sampler.cools and tuning.descends(values.init)
    free = not (going_on or descends) and _is_free(settings)
    extends = free and model.extends and minibatches.full
    # minibatches are of many rows, which chains learn slowly: little in each of the first steps
    shortest = SHORTEST_RUN if minibatches.full else max(SHORTEST_RUN, lengths.n_steps // 2)
    return Plan(
        step_size=as_schedule("step_size", recipe.step_size),
        temperature=as_schedule("temperature", settings.temperature),
        n_draws=lengths.n_draws,
        burn_in=lengths.burn_in,
        thinning=lengths.thinning,
        descent=lengths.burn_in // 2 if descends else 0,
        start_rows=start_rows(settings.max_steps, minibatches.size),
        auto=values.step_size is not None,
        all_needed=settings.auto and tuning.one_mode and not recipe.sampler.finds_step,
        given_starts=not isinstance(values.init, str),
        ends_early=free and model.ends_early,
        shortest=shortest,
        longer=lengths.longer_by(settings.max_steps) if extends else 0,
    )


def _is_free(settings: Settings) -> bool:
    """Whether the length of a run is its own, and not that of a schedule."""
    free = settings.auto and is_auto(settings.burn_in) and is_auto(settings.thinning)
    return free and isinstance(settings.temperature, Real)


def draws_kept(model: Model, settings: Settings, itemsize: int) -> int:
    """Draws per chain: as given, or the tuning's number, or fewer if that would need a GiB."""
    if not is_auto(settings.n_draws):
        return int(settings.n_draws)
    fitting = LIMITS.auto_bytes // (settings.n_chains * model.n_kept * itemsize)
    return int(min(tuning_of(model).most_draws, max(50, fitting)))
