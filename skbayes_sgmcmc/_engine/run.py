"""From a problem to draws: the path that every estimator and ``sample`` take."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from joblib import Parallel, delayed

from .._arrays import Array
from .._exceptions import SamplingError, listed, more, warn
from ..models._threads import few_threads
from .accelerators import Choice, choose, offers
from .combinations import check_plan
from .data_parallel import Grid, check_ranks, check_same_run, grid_of_run
from .jobs import Job, Result, moves_of
from .lengths import Plan
from .problem import ChainState, Problem
from .progress import Board, OnProgress, watched
from .recipe import Recipe, explained_factorisations, plan_of, recipe_of, request_of
from .settings import Settings
from .settled import can_tell, fall_of_potential, settled
from .spread import excess_temperature
from .strays import stray_draws
from .target import Target
from .threshold import threshold_trace

#: how often a run with an automatic step size is repeated with smaller steps if chains diverge, or
#: if the energy errors of its steps are too large
REPEATS = 3


@dataclass(frozen=True, kw_only=True)
class Run:
    """Result of a run: draws of theta, their weights, statistics and the final state."""

    draws: Array
    weights: Array | None
    statistics: dict[str, Array]
    state: ChainState
    target: Target
    step_size: float
    batch_size: int
    n_steps: int
    plan: Plan
    #: the accelerators that the run used, and why not the others
    accelerators: Choice
    recipe: Recipe

    @property
    def tells(self) -> bool:
        """Whether the draws are enough for what follows."""
        return can_tell(self.plan, self.draws)

    def fall_of_potential(self) -> float | None:
        """How far the potential falls over the draws, in its sds; None if that is usual."""
        return fall_of_potential(self.target, self.draws, self.plan.first_temperature)

    def stray_draws(self) -> tuple[float, float] | None:
        """The share of the draws that left the posterior, and how far; None if none did."""
        return stray_draws(self.target, self.draws, self.plan.first_temperature)

    def excess_temperature(self) -> float | None:
        """The temperature that draws imply, over the run's; None if it is not higher."""
        return excess_temperature(self.target, self.draws, self.plan.first_temperature)

    def threshold_trace(self) -> dict[str, Array] | None:
        """The noise of the gradients and of the sampler along the run; None if it is unknown."""
        return threshold_trace(self.recipe, self.plan, self.state, self.step_size, self.n_steps)


def draw(problem: Problem, settings: Settings, on_progress: OnProgress | None = None) -> Run:
    """Run the chains that ``settings`` describe. The problem's model is bound to its rows.

    ``on_progress`` is called while chains run in this process; if they run in workers, only with
    ``verbose``, from a thread; if other processes share the run, in the first.
    """
    # the chains choose theirs by the rows of a step
    with few_threads(problem.model, problem.data.n_rows, settings.n_chains):
        return _draw(problem, settings, on_progress)


def _draw(problem: Problem, settings: Settings, on_progress: OnProgress | None) -> Run:
    request = request_of(problem, settings)
    check_ranks(problem, settings, request.sampler)
    n_requested, settings = settings.n_chains, problem.of_chains(settings)
    with explained_factorisations():
        recipe = recipe_of(problem, replace(request, settings=settings))
    return sampled(problem, recipe, settings, n_requested, on_progress)


def sampled(
    problem: Problem,
    recipe: Recipe,
    settings: Settings,
    n_requested: int,
    on_progress: OnProgress | None,
    plan: Callable[..., Plan] = plan_of,
) -> Run:
    """Run the chains of a recipe, for as many steps as ``plan(recipe, settings, going_on)`` says.

    ``n_requested`` is the number of chains that were requested; some may have diverged.
    """
    grid = grid_of_run()
    recipe = replace(recipe, minibatches=recipe.minibatches.over(grid.rows))
    sampler, previous = recipe.sampler, problem.previous
    same_moves = previous is not None and previous.moves == moves_of(sampler, recipe.cell)
    # a sampler that finds its step size needs a burn-in for it
    going_on = same_moves if sampler.finds_step else previous is not None
    for attempt in range(1 + REPEATS):
        steps = plan(recipe, settings, going_on=going_on)
        check_plan(steps, sampler, step_known=same_moves)
        if not steps.more_rows:
            prepared = problem.model.prepared(steps.n_steps)
            recipe = replace(recipe, target=recipe.target.with_model(prepared))
        recipe = replace(recipe, n_steps=steps.n_steps)
        job = Job(
            recipe=recipe,
            plan=steps,
            settings=settings.attempt(attempt),
            previous=previous,
            accelerators=choose(settings.compiled, offers(recipe)),
            group=list(range(settings.n_chains)),
            seeds=settings.seeds(),
        )
        last, results = _run_parts(job, grid, on_progress)
        doubtful = steps.all_needed and (
            any(result.diverged for result in results)
            or recipe.too_long([result.draws for result in results], steps.first_temperature)
        )
        if not doubtful or attempt == REPEATS:
            break
        recipe = recipe.at(recipe.step_size / 4.0)
    return _combine(results, job, last, n_requested, doubtful=doubtful)


def _run_parts(job: Job, grid: Grid, on_progress: OnProgress | None) -> tuple[Plan, list[Result]]:
    """Run the parts of a job's plan until one is enough; return this part, and its results.

    Chains that diverge in a part are not in the next one.
    """
    diverged: dict[int, int] = {}
    parts, names, checkpoints = job.plan.parts(), job.group, job.settings
    for number, part in enumerate(parts):
        path = checkpoints.attempt(number).checkpoint
        job = replace(job, plan=part, settings=replace(job.settings, checkpoint=path))
        check_same_run(grid, job.recipe, part, job.accelerators.used)
        own = job.of(grid.own(job.group))
        results = grid.every(_run_groups(own, on_progress if grid.first else None))
        alive = [result for result in results if len(result.draws)]
        lost = {chain: step for result in results for chain, step in result.diverged.items()}
        diverged |= {names[chain]: step for chain, step in lost.items()}
        if part is parts[-1] or not alive or grid.by_first(partial(_enough, job, alive)):
            break
        names = [name for chain, name in enumerate(names) if chain not in lost]
        job = job.after(_state(alive))
    first, *others = results
    return job.plan, [
        replace(first, diverged=diverged),
        *(replace(result, diverged={}) for result in others),
    ]


def _enough(job: Job, results: list[Result]) -> bool:
    """Whether a run ends with the draws of a part, which need not be settled in the last ones."""
    kept = min(result.draws.shape[1] for result in results)
    draws = _stacked(results, lambda r: r.draws[:, :kept])
    given = job.target, draws, job.plan.first_temperature
    if job.plan.ends_early:
        return settled(*given)
    return not can_tell(job.plan, draws) or fall_of_potential(*given) is None


def _run_groups(job: Job, on_progress: OnProgress | None) -> list[Result]:
    """Run the chains of a job as one group in this process, or as several in workers."""
    groups = job.settings.groups()
    if len(groups) == 1:
        return [job(on_progress)]
    watch: AbstractContextManager[Board | None] = nullcontext()
    if on_progress is not None and job.settings.verbose:
        watch = watched(on_progress, len(groups), job.plan.end)
    with watch as board:
        run = Parallel(n_jobs=len(groups))  # more workers would have nothing to do
        return list(run(delayed(_run_one)(job.of(g), board, i) for i, g in enumerate(groups)))


def _run_one(job: Job, board: Board | None, group: int) -> Result:
    """Run a job in a worker: as a function, because joblib's backends use its name as a key."""
    return job(None if board is None else partial(board.write, group))


def _combine(
    results: list[Result], job: Job, plan: Plan, n_requested: int, *, doubtful: bool
) -> Run:
    """Combine the results of the groups of a job's chains, for the plan of the last part."""
    alive = [result for result in results if len(result.draws)]
    diverged = {chain: step for result in results for chain, step in result.diverged.items()}
    report = _divergence_report(diverged, job, results[0].state.last_eta)
    if not alive or (plan.all_needed and diverged):
        raise SamplingError(report + more("chains-diverged"))
    # groups keep equal numbers of draws, except with mixing distance, where the start of
    # collection depends on the positions of the chains
    kept = min(result.draws.shape[1] for result in alive)
    if kept == 0:
        raise SamplingError(_no_draw_report(plan) + more("no-draw-was-kept"))
    if diverged:
        kept_others = " The other chains were kept; their draws may be biased."
        warn(report + kept_others, "chains-diverged")
    _warn_of_doubts(alive, job, doubtful)
    first = alive[0]
    return Run(
        draws=_stacked(alive, lambda r: r.draws[:, :kept]),
        weights=None if first.weights is None else first.weights[:kept],
        statistics=_by_name(alive, lambda r: r.statistics),
        state=replace(_state(alive), n_chains=n_requested, n_rows=job.target.n, n_draws=kept),
        target=job.target,
        step_size=float(np.mean([result.step_size for result in alive])),
        batch_size=job.recipe.minibatches.size,
        n_steps=plan.taken + max(result.n_steps for result in results),
        plan=plan,
        accelerators=job.accelerators,
        recipe=job.recipe,
    )


def _state(alive: list[Result]) -> ChainState:
    """The state of the chains of all groups."""
    first = alive[0].state
    return ChainState(
        theta=_stacked(alive, lambda r: r.state.theta),
        sampler=_by_name(alive, lambda r: r.state.sampler),
        model=_by_name(alive, lambda r: r.state.model),
        rng={
            "noise": _stacked(alive, lambda r: r.state.rng["noise"]),
            "rows": [bits for result in alive for bits in result.state.rng["rows"]],
        },
        last_eta=first.last_eta,
        moves=first.moves,
        n_chains=first.n_chains,
    )


def _stacked(results: list[Result], pick: Callable[[Result], Array]) -> Array:
    parts = [pick(result) for result in results]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _by_name(results: list[Result], pick: Callable[[Result], dict[str, Array]]) -> dict[str, Array]:
    parts = [pick(result) for result in results]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _warn_of_doubts(results: list[Result], job: Job, doubtful: bool) -> None:
    """Warn if the steps' energy errors or the sampler's statistics say that draws are biased."""
    doubts = job.recipe.sampler.doubts(_by_name(results, lambda r: r.statistics))
    if doubtful:
        name = type(job.recipe.sampler).__name__
        doubts = (
            f"The steps of {name} are too large, although their size is {4**-REPEATS:g} of the "
            "usual one: the curvature of the posterior differs too much between its parts. The "
            "draws are biased. Give a narrower prior."
        )
    if doubts is not None:
        warn(doubts, "the-steps-are-too-large")


def _no_draw_report(plan: Plan) -> str:
    """A message that says why no draw was kept, and what to change."""
    rule = plan.by_distance
    if rule is None:
        what = f"step_size={plan.step_size!r}"
        why = "explores at every step that would give one; give less exploration, or more steps."
    elif rule.distance is None:
        what = f"the sampling threshold of thinning={rule!r}"
        why = "was not reached; give a smaller step_size, more steps or a larger noise_ratio."
    else:
        what = f"the distance of thinning={rule!r}"
        why = "is more than all step sizes after the burn-in; give a smaller one, or more steps."
    return f"no draw was kept in {plan.end} steps: {what} {why}"


def _divergence_report(diverged: dict[int, int], job: Job, step_size: float) -> str:
    """A message that says which chains diverged, at which step, and what to change."""
    plan, sampler = job.plan, repr(job.recipe.sampler)
    where = listed((f"chain {c} by step {k}" for c, k in diverged.items()), most=5)
    given = "" if sampler.endswith("()") else f", sampler {sampler}"
    more_steps = "" if job.settings.max_steps is None else ", a larger max_steps"
    knows_scales = job.recipe.target.model.tuning is not None  # a density of one's own does not
    remedy = "Reduce step_size (try a tenth)"
    if knows_scales or job.recipe.sampler.finds_step:
        remedy += f", or give {job.recipe.automatic_step}"
    if plan.all_needed:
        remedy = f"Runs with {4**REPEATS} times this step diverged, too. Give a narrower prior"
    elif plan.auto:
        remedy = (
            f"Give burn_in='auto'{more_steps} or more than {plan.burn_in} steps, or a step_size "
            f"below {step_size:g}"
        )
    return (
        f"{len(diverged)} of {len(job.group)} chains diverged ({where} of {plan.n_steps}; "
        f"last step size {step_size:g}{given}). {remedy}"
        + ("; scaling the features to unit variance helps too." if knows_scales else ".")
    )
