"""Parts of streams: each is a run, and what it leaves is remembered for the next.

Where the posterior is nearly normal, rows are kept until a Gaussian says the same, which is then
the prior of later rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._arrays import Array
from .._data.kept_rows import STREAM, KeptRows
from .._data.minibatch import Data
from .._exceptions import later_not_allowed, warn
from .._limits import LIMITS
from .._validation import is_auto
from ..models._past import Past, PastMean
from ..models._protocol import Model
from ..models.tuning.auto import AUTO
from ..models.tuning.base import AutoValues, Request
from ..schedules import as_schedule
from .data_parallel import check_ranks
from .lengths import Plan
from .problem import ChainState, Problem
from .progress import OnProgress
from .recipe import Recipe, draws_kept, explained_factorisations, recipe_of, request_of, tuning_of
from .run import Run, sampled
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What later parts of a stream need to know of earlier ones."""

    #: the sum of the weights of all rows so far
    rows_seen: float
    #: number of draws of each chain so far
    n_drawn: int
    #: the values of "auto" of the last part; of the first one if rows do not become a Gaussian
    values: AutoValues | None = None
    #: draws (chains, draws, n_kept) as positions, if rows become a Gaussian
    kept: Array | None = None
    #: rows that are kept until then
    rows: KeptRows | None = None
    #: the Gaussian of rows that are no longer kept
    past: Past | None = None
    #: whether no class is missing
    complete: bool = True
    #: whether the posterior is normal
    normal: bool = False
    #: whether a warning has said that the Gaussian of earlier rows is used too far away
    warned: bool = False
    #: means given all rows of some parts
    past_means: tuple[PastMean, ...] = ()

    @classmethod
    def of(cls, state: ChainState | None) -> Memory:
        """That of earlier chains, which may be those of a fit."""
        if state is None:
            return cls(rows_seen=0.0, n_drawn=0)
        found: Memory = state.memory or cls(rows_seen=state.n_rows, n_drawn=state.n_draws)
        return found


def remembering(state: ChainState, **changes: Any) -> ChainState:
    """A state with a changed memory."""
    return replace(state, memory=replace(Memory.of(state), **changes))


@dataclass(frozen=True, kw_only=True)
class Part:
    """The run of a part of a stream."""

    run: Run
    #: whether a Gaussian summarises earlier rows
    filtered: bool = False
    #: function that takes earlier draws (chains, draws, n_kept) to the posterior of now
    moved: Callable[[Array], Array] | None = None
    #: whether these rows need not be kept, since their Gaussian says the same
    settled: bool = True


def draw_part(
    problem: Problem, settings: Settings, call: StreamCall, on_progress: OnProgress | None = None
) -> Part:
    """Take one pass over the new rows of a stream; see :func:`run.draw`."""
    request = request_of(problem, settings, more_rows=True)
    settings = replace(settings, sampler=request.sampler)  # whatever the rows of a part suggest
    check_ranks(problem, settings, request.sampler)
    _check_sizes(problem, settings)
    before = Memory.of(problem.previous)
    n_requested, settings = settings.n_chains, problem.of_chains(settings)
    summary = None
    if _summarises(problem.model, replace(request, settings=settings)):
        summary = Summary.of(problem.previous, call, problem.data)
    size = AUTO.batch_size if is_auto(settings.batch_size) else settings.batch_size
    with explained_factorisations():
        if summary is None:
            request = replace(request, settings=settings)
            recipe = recipe_of(problem, request, values=usable(before), batch_size=size)
            recipe = _with_falling_step(recipe, call.seen)
        else:
            settings = replace(settings, batch_size=size)
            request = replace(request, settings=settings, more_rows=False)
            # what other rows have said is the prior of these
            data = replace(problem.data, total=0.0)
            problem = replace(problem, data=data, model=summary.prior_of(problem.model))
            recipe = recipe_of(problem, request)
            recipe.values.total = data.total
            problem = replace(
                problem, previous=summary.brought_along(problem.previous, recipe.values)
            )
    plan = partial(_one_pass, n_rows=call.new)
    run = sampled(problem, recipe, settings, n_requested, on_progress, plan)
    drawn = run.state.n_draws + (0 if problem.previous is None else before.n_drawn)
    memory = Memory(rows_seen=call.seen, n_drawn=drawn, values=recipe.values)
    run = replace(run, state=replace(run.state, memory=memory))
    return Part(run=run) if summary is None else summary.added_to(run, problem, recipe.values)


def _check_sizes(problem: Problem, settings: Settings) -> None:
    """Refuse a part if its chains cannot continue the earlier ones."""
    previous, n_parameters = problem.previous, problem.model.n_parameters
    if previous is not None and not previous.fits(settings.n_chains, n_parameters):
        raise later_not_allowed(
            f"n_chains={settings.n_chains} with {n_parameters} parameters is not allowed "
            f"here: earlier calls had {previous.n_chains} chains of {previous.theta.shape[1]} "
            "parameters. Keep n_chains and the parameters that set the size of the model "
            "(fit_intercept, layers), or start a new stream with a clone of the estimator."
        )


def _summarises(model: Model, request: Request) -> bool:
    """Whether the rows of each part become a Gaussian, the prior of later rows."""
    kept = request.settings.kept
    as_they_are = kept.dtype == "auto" and kept.dir is None
    return as_they_are and request.temperature == 1.0 and tuning_of(model).summarises(request)


def _one_pass(recipe: Recipe, settings: Settings, *, n_rows: int, going_on: bool) -> Plan:
    """Steps that take each of the new rows once, and draws that are spread over them."""
    n_steps = math.ceil(n_rows / recipe.minibatches.size)
    if recipe.values.total is not None:
        n_steps = max(n_steps, STREAM.least_steps if going_on else STREAM.first_steps)
    target = recipe.target
    n_draws = min(draws_kept(target.model, settings, target.like.element_size()), n_steps)
    thinning = n_steps // n_draws
    return Plan(
        step_size=as_schedule("step_size", recipe.step_size),
        temperature=as_schedule("temperature", settings.temperature),
        n_draws=n_draws,
        burn_in=n_steps - n_draws * thinning,
        thinning=thinning,
        start_rows=0,
        more_rows=True,
    )


def _with_falling_step(recipe: Recipe, rows_seen: float) -> Recipe:
    """The recipe with an automatic step size that makes good use of the rows of a stream.

    In whitened coordinates, a step size of 2 n / rows seen gives the t-th of equal minibatches a
    weight of about 2/t. The chains are then a stochastic Newton method that forgets the effect of
    the first rows. The gradient noise, of variance 1/n per step, inflates the variance by
    eta N / (2n) <= 1. If rows come again, the step size falls until this inflation is 0.1. A
    sampler with friction moves by eta / friction per step. A model's tuning may let the step size
    fall more slowly, as (n / rows seen)^forgetting.
    """
    if recipe.values.step_size is None:
        return recipe
    n, tuning = recipe.minibatches.size, tuning_of(recipe.target.model)
    total = recipe.minibatches.data.total
    rate = max(2.0 * (n / rows_seen) ** tuning.forgetting, 0.2 * n / total)
    most = tuning.unit() * float(rate * recipe.sampler.resistance())
    return replace(recipe, step_size=min(recipe.step_size, most))


@dataclass(frozen=True)
class StreamCall:
    """What a run has to know of a stream: its rows are those kept of earlier calls and new ones."""

    #: the sum of the weights of all rows so far, including the new ones
    seen: float
    #: number of new rows
    new: int
    #: whether rows can be kept
    keep: bool
    #: whether there are more rows than can be kept
    full: bool
    #: whether no class is missing, without which nothing is like it will be
    complete: bool


@dataclass(frozen=True)
class StreamRows:
    """The rows of a call of a stream: those that were kept of earlier ones, and new ones."""

    #: all of them
    rows: KeptRows
    #: those of earlier calls
    earlier: KeptRows | None
    #: the chains to continue
    previous: ChainState | None
    #: whether the new rows are few enough to be kept
    keep: bool
    #: number of parameters of the model
    n_parameters: int

    @classmethod
    def of(cls, new: KeptRows, previous: ChainState | None, n_parameters: int) -> StreamRows:
        """New rows after those of earlier calls, which a Gaussian replaces if the new are many."""
        keep = new.are_few(n_parameters)
        if previous is not None and not keep:
            previous = remembering(previous, rows=None)
        earlier = Memory.of(previous).rows
        rows = new if earlier is None else earlier.and_new(new)
        return cls(rows, earlier, previous, keep, n_parameters)

    def call(self, data: Data, *, complete: bool) -> StreamCall:
        """What a run has to know, given the rows as data."""
        seen, new = data.total + Memory.of(self.previous).rows_seen, data.n_rows
        if self.earlier is not None:
            seen, new = seen - self.earlier.total, new - self.earlier.n_rows
        full = not self.rows.are_few(self.n_parameters)
        return StreamCall(seen, new, self.keep, full, complete)

    def kept(self) -> KeptRows:
        """The rows that the next call needs."""
        rows = self.rows.at_most(self.n_parameters)
        # callers may fill the arrays of the first part with the next one
        return deepcopy(rows) if self.earlier is None else rows

    def stand_for_many(self) -> bool:
        """Whether these stand for very many rows, which those of the last call did not yet."""
        return self.rows.stand_for_many(self.earlier, self.n_parameters)


def usable(memory: Memory) -> AutoValues | None:
    """The coordinates of a stream's first call, which all calls use if rows are not summarised."""
    values = memory.values
    return values if values is not None and values.total is None else None


@dataclass(frozen=True)
class Summary:
    """What a call knows of earlier ones: the rows that are kept are among its own."""

    call: StreamCall
    before: Memory
    #: the Gaussian of the last call, if draws were those of it. They are moved to that of now
    earlier: AutoValues | None = None
    #: the Gaussian of rows that are no longer kept. None: all are kept
    past: Past | None = None

    @classmethod
    def of(cls, previous: ChainState | None, stream: StreamCall, data: Data) -> Summary | None:
        """None if the rows stand for others, or if the calls before this one kept no summary."""
        before = Memory.of(previous)
        values = before.values
        if data.total != stream.seen:
            return None
        if previous is None:
            return cls(stream, before)
        if values is None or values.total is None:
            return None
        past = values.past() if before.rows is None else before.past
        usual = before.complete and _are_draws_of(values, before, previous.theta.shape[1])
        return cls(stream, before, values if usual else None, past)

    def prior_of(self, model: Model) -> Model:
        """The model with what is known from rows that are no longer kept as its prior."""
        values, nearly = self.before.values, self.before.normal
        near = values.center if values is not None and nearly else None
        found: Model = model.with_past(self.past, near)
        return found

    def brought_along(self, previous: ChainState | None, values: AutoValues) -> ChainState | None:
        """The chains' state where they would be in the posterior of now; None: begin anew."""
        if previous is None or self.earlier is None:
            return None
        return replace(previous, theta=values.moved(previous.theta, self.earlier))

    def added_to(self, run: Run, problem: Problem, values: AutoValues) -> Part:
        """A run with what later calls need to know."""
        call, data = self.call, problem.data
        means = _with_mean(self.before.past_means, values, call.seen)
        model = problem.model
        change = _change_of_curvature(model, data, values) if call.keep else math.inf
        least = 1 if call.full else STREAM.least_parts
        settled = not call.keep or (
            call.complete and _are_many(model, data) and _is_settled(values, means, least)
        )
        state = remembering(
            run.state,
            past=None if settled else self.past,
            complete=call.complete,
            normal=call.complete and change < STREAM.most_change,
            warned=self._is_stretched(values, change),
            past_means=means,
        )
        earlier, moved = self.earlier, None
        if earlier is not None:
            moved = partial(_moved_draws, model=model, values=values, earlier=earlier)
        run = replace(run, state=state)
        return Part(run=run, filtered=True, moved=moved, settled=settled)

    def _is_stretched(self, values: AutoValues, change: float) -> bool:
        """Whether the mean has left the region where the Gaussian of earlier rows holds; warn once.

        If the curvature changes by a share ``change`` within a sd, then the gradient of rows whose
        Gaussian is used z sds away is off by about change * z^2 / 2, in 1/sds. Rows in random order
        move many parameters by many sds together, but each by a fraction of one.
        """
        if self.past is None or self.before.warned or not self.call.keep:
            return self.before.warned
        assert values.center is not None
        distance, _ = self.past.potential(values.center)  # half the square of z
        at_random = 2.0 * distance < _limit(len(values.center))
        if at_random or distance * change < STREAM.most_stretched:
            return False
        warn(
            f"after {self.call.seen:g} rows, the posterior is {math.sqrt(2.0 * distance):.0f} sds "
            "from where earlier rows had it, and what is kept of these holds near there only. "
            "Means may be off by some sds: shuffle the rows of the stream, or fit all of them (X "
            "may be a memory map).",
            "the-rows-of-a-stream-are-not-in-random-order",
        )
        return True


def _moved_draws(draws: Array, model: Any, values: AutoValues, earlier: AutoValues) -> Array:
    """Draws (chains, draws, n_kept) of the earlier Gaussian as draws of that of now."""
    before, recorded = np.split(draws, [model.n_parameters], axis=-1)
    now = values.moved(before, earlier)
    recorded = model.move_recorded(recorded, before, now)
    return np.concatenate([now, recorded], axis=-1, dtype=draws.dtype)


def _are_draws_of(values: AutoValues, memory: Memory, n_parameters: int) -> bool:
    """Whether draws are as far from the mean as those of the Gaussian are.

    They are not where the posterior is no Gaussian, as while rows of a class have not come.
    """
    if memory.kept is None:
        return False
    theta = memory.kept[..., :n_parameters]
    squares = np.square(values.whitened(theta)).mean((0, 1))
    return bool(squares.max() < STREAM.far_draws)


def _with_mean(
    means: tuple[PastMean, ...], values: AutoValues, seen: float
) -> tuple[PastMean, ...]:
    """The last past means, with a new one when there are an eighth more rows."""
    if means and seen < STREAM.spacing * means[-1].seen:
        return means
    assert values.center is not None
    return (*means[-STREAM.past_means :], PastMean(seen, values.center))


def _are_many(model: Model, data: Data) -> bool:
    """Whether rows are worth to be replaced by a Gaussian."""
    least = max(LIMITS.stream_numbers, LIMITS.kept_per_parameter * model.n_parameters**2)
    return data.n_rows * data.row_numbers >= least


def _change_of_curvature(model: Any, data: Data, values: AutoValues) -> float:
    """Largest relative change of the curvature within a posterior sd.

    It is large while a class is missing, and for rare features.
    """
    assert values.center is not None and values.root is not None
    signs = np.random.default_rng(0).choice([-1.0, 1.0], model.n_parameters)
    away = values.root @ signs / math.sqrt(data.total)
    here, *there = [
        model.hessian_diagonal(theta, data) + model.prior_hessian(theta)
        for theta in (values.center, values.center + away, values.center - away)
    ]
    return float(max(np.abs(other / here - 1.0).max() for other in there))


def _is_settled(values: AutoValues, means: tuple[PastMean, ...], least: int) -> bool:
    """Whether the mean moves no further than rows in random order let it, in parts of the stream.

    The mean of N rows is away from that of n of them by 1/n - 1/N, in units of one row's variance,
    and the moves in parts of the stream are independent. Rows in another order move it further, and
    what earlier rows say far from where the mean was then is not in a Gaussian.
    """
    last = len(means) - 1
    if last < least:
        return False
    now, d = means[-1].seen, len(means[-1].mean)
    places = [values.whitened(each.mean) for each in means]  # in sds of now
    left = [now / each.seen for each in means]  # variances of what was not known then

    def moved(i: int, j: int) -> float:
        return float(np.square(places[j] - places[i]).sum()) / (left[i] - left[j])

    parts = sum(moved(i, i + 1) for i in range(last))
    return moved(0, last) < _limit(d) and parts < _limit(last * d)


def _limit(n: int) -> float:
    """What a chi-square of ``n`` degrees of freedom hardly exceeds."""
    return n + STREAM.far * math.sqrt(2.0 * n)
