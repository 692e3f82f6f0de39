"""From settings to draws: the path that every estimator and ``sample`` take."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray

from .._data.minibatch import Data
from .._data.ranks import Ranks
from .._exceptions import SamplingError, more, not_allowed, warn
from ..models._protocol import Model
from ..samplers import Sampler
from ..schedules import Schedule, as_schedule
from . import auto
from .accelerators import Workload, choose, offers
from .chains import SCHEDULE_STEPS, Plan
from .data_parallel import check_same_run, grid_of_run
from .jobs import ChainState, Job, Result, moves_of
from .lengths import Lengths, start_rows
from .memory import check_memory
from .progress import Board, OnProgress, watched
from .settings import LARGEST, MOST_STEPS, SMALLEST, Settings, is_auto
from .streams import Call, Summary, usable
from .target import Target
from .tuned import STREAM_BATCH, Tuned, chosen, tuned

Array = NDArray[Any]

#: most chains that a report of diverged chains names
NAMED_CHAINS = 5
#: fewest steps of a call of a stream whose rows become a Gaussian, which takes longer than they do;
#: and of the first one
LEAST_STEPS, FIRST_STEPS = 20, 500
#: number of points in the trace of the sampling threshold, and of draws for each median
TRACE_POINTS, TRACE_DRAWS = 50, 5
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
    #: names of the accelerators that the run used
    accelerators: tuple[str, ...]
    #: ``alpha(theta)`` is alpha_t / eta of the sampling threshold at a position (1, n_parameters)
    alpha: Callable[[torch.Tensor], float]
    #: whether these are rows of a stream whose earlier rows are summarised by a Gaussian; if there
    #: were earlier ones, ``moved`` takes positions that were drawn then to the posterior of now
    filtered: bool = False
    moved: Callable[[Array], Array] | None = None
    #: whether these rows need not be kept, since their Gaussian says the same
    settled: bool = True

    def threshold_trace(self) -> dict[str, Array]:
        """alpha_t along the run: eta of each step times alpha_t / eta, the median of some draws."""
        flat = self.draws.reshape(-1, self.draws.shape[2])
        spaced = np.unique(np.linspace(0, len(flat) - 1, TRACE_DRAWS).astype(int))
        theta = torch.from_numpy(flat[spaced]).to(self.target.like)
        ratio = np.median([self.alpha(one[None]) for one in theta])
        step = np.unique(np.geomspace(1, self.n_steps, TRACE_POINTS).astype(int))
        eta = self.plan.step_size.values(step - 1, self.plan.n_steps)
        return {"step": step, "noise_ratio": ratio * eta}


def draw(
    model: Model,
    data: Data,
    settings: Settings,
    *,
    dtype: torch.dtype,
    device: str,
    previous: ChainState | None = None,
    stream: Call | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Run the chains that ``settings`` describe.

    ``previous`` are earlier chains to continue. ``stream`` is given if the rows are a part of a
    stream; the run then takes one pass over those that are new. ``on_progress`` is called while
    chains run in this process; if they run in workers, only with ``verbose``, from a thread; if
    ranks share the rows, on rank 0.
    """
    model = model.bound(data)
    sampler, cell = chosen(model, data, settings, stream=stream is not None)
    if stream is not None:
        settings = replace(settings, sampler=sampler)  # whatever the rows of one call suggest
    temperature = as_schedule("temperature", settings.temperature)
    level = float(temperature.values(np.zeros(1, dtype=int), 1)[0])
    _check_pair(sampler, model, level)
    grid = grid_of_run(model, data, settings, sampler)
    previous = _continuable(previous, model, settings, stream is not None)
    n_asked = settings.n_chains
    if previous is not None:
        settings = replace(settings, n_chains=len(previous.theta))  # the surviving chains
    summary = None
    if stream is not None and auto.summarises(model, sampler, cell, settings, level):
        summary = Summary.of(previous, stream, data)
    with auto.explained():
        if summary is not None:
            data = replace(data, total=0.0)  # what other rows have said is the prior of these
            model = summary.prior_of(model)
            if is_auto(settings.batch_size):
                settings = replace(settings, batch_size=STREAM_BATCH)
        going = stream if summary is None else None
        found = tuned(
            model,
            data,
            settings,
            sampler,
            cell,
            temperature=level,
            like=torch.empty(0, dtype=dtype, device=device),
            warm=None if going is None else usable(previous),
            rows_seen=None if going is None else going.seen,
        )
    sampler, cell, warm = found.sampler, found.cell, found.warm
    if summary is not None:
        warm.total = data.total
        previous = summary.brought_along(previous, warm)
    same_moves = previous is not None and previous.moves == moves_of(sampler, cell)
    found = replace(found, minibatches=found.minibatches.over(grid.rows))
    for attempt in range(1 + REPEATS):
        plan = _plan(
            settings,
            found,
            temperature=temperature,
            # a sampler that finds its step size needs a burn-in for it
            going_on=same_moves if sampler.finds_step else previous is not None,
            stream=stream,
        )
        _check_plan(plan, sampler, tuned=same_moves)
        if stream is None:
            found = replace(found, target=found.target.with_model(model.prepared(plan.n_steps)))
        job = _job(found, plan, settings.attempt(attempt), previous)
        check_same_run(grid, job.work, plan, job.accelerators)
        results = _run_groups(job, on_progress if grid.first else None, grid.chains)
        doubtful = plan.all_needed and (
            any(result.diverged for result in results)
            or found.too_long(np.concatenate([result.draws for result in results]), level)
        )
        if not doubtful or attempt == REPEATS:
            break
        found = found.at(found.step_size / 4.0)
    run = _combine(
        results,
        job,
        doubtful=doubtful,
        n_asked=n_asked,
        rows_seen=data.total if stream is None else stream.seen,
    )
    return run if summary is None else summary.added_to(run, found.target.model, data, warm)


def _job(found: Tuned, plan: Plan, settings: Settings, previous: ChainState | None) -> Job:
    """The run of all chains, with what can make it faster."""
    work = Workload(
        target=found.target,
        sampler=found.sampler,
        cell=found.cell,
        minibatches=found.minibatches,
        n_steps=plan.n_steps,
        n_chains=settings.n_chains,
        torch_numbers=previous is not None and previous.torch_numbers,
    )
    return Job(
        work=work,
        plan=plan,
        settings=settings,
        warm=found.warm,
        previous=previous,
        accelerators=choose(settings.compiled, offers(work)),
        group=list(range(settings.n_chains)),
        seeds=settings.seeds(),
    )


def _run_groups(job: Job, on_progress: OnProgress | None, ranks: Ranks) -> list[Result]:
    """Run the chains of a job as one group in this process, or as several in workers or ranks."""
    groups = job.settings.groups(ranks.size)
    if ranks.size > 1:
        return ranks.gathered(job.of(groups[ranks.rank])(on_progress))
    if len(groups) == 1:
        return [job(on_progress)]
    watch: AbstractContextManager[Board | None] = nullcontext()
    if on_progress is not None and job.settings.verbose:
        watch = watched(on_progress, len(groups), job.plan.n_steps)
    with watch as board:
        run = Parallel(n_jobs=len(groups))  # more workers would have nothing to do
        return list(run(delayed(_run_one)(job.of(g), board, i) for i, g in enumerate(groups)))


def _run_one(job: Job, board: Board | None, group: int) -> Result:
    """Run a job in a worker: as a function, whose name joblib's backends can use as a key."""
    return job(None if board is None else partial(board.write, group))


def _check_plan(plan: Plan, sampler: Sampler, *, tuned: bool) -> None:
    """Refuse a run of too many steps, or whose schedules leave the allowed range.

    ``tuned`` means that the sampler has found its step size in an earlier run.
    """
    if plan.n_steps > MOST_STEPS:
        raise not_allowed(
            f"n_draws={plan.n_draws!r} is not allowed with thinning={plan.thinning!r} and "
            f"burn_in={plan.burn_in!r}: that takes {plan.n_steps:.3g} steps, more than "
            f"{MOST_STEPS:.0e}; give smaller numbers, or scale the features."
        )
    _check_range("step_size", plan.step_size, plan.n_steps)
    _check_range("temperature", plan.temperature, plan.n_steps)
    if plan.auto and plan.burn_in == 0 and sampler.finds_step and not tuned:
        raise not_allowed(
            f"burn_in=0 is not allowed with step_size='auto' and {type(sampler).__name__}, which "
            "finds its step size in the burn-in: give burn_in='auto', or step_size a number."
        )
    if (sampler.full_data or not sampler.cools) and plan.coldest == 0.0:
        raise not_allowed(
            f"temperature 0 is not allowed with sampler={type(sampler).__name__}, and the "
            "schedules of this run reach it: give a temperature that stays positive, and a "
            "step_size whose schedule does not explore."
        )


def _check_range(name: str, schedule: Schedule, n_steps: int) -> None:
    """Refuse a schedule whose values, over the run, leave those that chains can compute with."""
    steps = np.unique(np.linspace(0, n_steps - 1, SCHEDULE_STEPS).astype(int))
    with np.errstate(over="ignore"):
        values = schedule.values(steps, n_steps)
    low, high = float(values.min()), float(values.max())
    if not high <= LARGEST or (low < SMALLEST and (low > 0.0 or name == "step_size")):
        raise not_allowed(
            f"{name}={schedule!r} is not allowed: over {n_steps} steps its values are between "
            f"{low:g} and {high:g}; they must stay between {SMALLEST:g} and {LARGEST:g}."
        )


def _check_pair(sampler: Sampler, model: Model, temperature: float) -> None:
    """Refuse a sampler that cannot sample this model at this temperature."""
    if (sampler.full_data or not sampler.cools) and temperature == 0.0:
        raise not_allowed(
            f"temperature=0 is not allowed with {type(sampler).__name__}: give a positive number."
        )
    if sampler.full_data and model.after_step is not None:
        raise not_allowed(
            f"sampler={type(sampler).__name__} is not allowed with {type(model).__name__}, because "
            "its latent variables change at every step: give another sampler."
        )
    if sampler.full_data and not has_density(model):
        raise not_allowed(
            f"sampler={type(sampler).__name__} is not allowed: {type(model).__name__} has no "
            "density, only estimates of its gradient; give another sampler."
        )
    if sampler.needs_potential and not has_density(model):
        raise not_allowed(
            f"sampler={type(sampler).__name__} is not allowed with {type(model).__name__}, because "
            "this model has no density given its latent variables: give another sampler."
        )
    if model.n_parameters < sampler.least_parameters:
        raise not_allowed(
            f"sampler={type(sampler).__name__} is not allowed with {model.n_parameters} parameter: "
            f"its dynamics need at least {sampler.least_parameters}, because a direction on a line "
            "cannot turn; give another sampler, such as 'sghmc'."
        )
    if model.project is not None and not (sampler.needs_metric or sampler.full_data):
        raise not_allowed(
            f"sampler={type(sampler).__name__} is not allowed with {type(model).__name__}, because "
            "its parameters are restricted to a part of the space: give sampler='rsgld'."
        )
    if sampler.needs_conditionals and not model.conjugate:
        raise not_allowed(
            f"sampler={type(sampler).__name__} is not allowed: {type(model).__name__} has no "
            "conditional distributions to draw from with this likelihood and prior; give "
            "sampler='sgld' or another one."
        )
    if sampler.needs_metric and model.metric is None:
        raise not_allowed(
            f"sampler={type(sampler).__name__} is not allowed: {type(model).__name__} has no "
            "metric; give another sampler."
        )


def has_density(model: Model) -> bool:
    """Whether the model has a density, given its latent variables, not only gradients."""
    kind = type(model)
    latent = model.after_step is not None and kind.prior_potential is Model.prior_potential
    return kind.log_lik is not Model.log_lik and not latent


def _continuable(
    previous: ChainState | None, model: Model, settings: Settings, stream: bool
) -> ChainState | None:
    """The earlier chains; None if the number of chains or of parameters has changed."""
    if previous is None:
        return None
    if previous.fits(settings.n_chains, model.n_parameters):
        return previous
    if stream:
        raise not_allowed(
            f"n_chains={settings.n_chains} with {model.n_parameters} parameters is not allowed "
            f"here: earlier calls had {previous.n_chains} chains of {previous.theta.shape[1]} "
            "parameters. Keep n_chains and the parameters that set the size of the model "
            "(fit_intercept, layers), or start a new stream with a clone of the estimator.",
            "a-later-call-of-partial_fit-differs",
        )
    return None


def _plan(
    settings: Settings,
    found: Tuned,
    *,
    temperature: Schedule,
    going_on: bool,
    stream: Call | None,
) -> Plan:
    """Numbers of steps and draws. ``going_on`` means continuing chains, without a burn-in."""
    warm, target, minibatches = found.warm, found.target, found.minibatches
    step_size = as_schedule("step_size", found.step_size)
    model, itemsize = target.model, target.like.element_size()
    tuning = auto.tuning_of(model)
    n_draws = settings.n_draws
    if is_auto(n_draws):
        n_draws = auto.draws_kept(model, settings.n_chains, itemsize)
    if stream is not None:
        n_steps = math.ceil(stream.new / minibatches.size)  # one pass
        if warm.total is not None:
            n_steps = max(n_steps, LEAST_STEPS if going_on else FIRST_STEPS)
        n_draws = min(n_draws, n_steps)
        thinning = n_steps // n_draws
        burn_in = n_steps - n_draws * thinning
        return Plan(
            step_size=step_size,
            temperature=temperature,
            n_draws=n_draws,
            burn_in=burn_in,
            thinning=thinning,
            stream=True,
        )
    if settings.kept.dir is None:
        size = 2 if settings.kept.dtype == "bfloat16" else itemsize
        check_memory(settings.n_chains, n_draws, model.n_kept, size)
    burn_in, thinning = tuning.lengths(warm, minibatches.data.n_rows, minibatches.size, n_draws)
    lengths = Lengths(0 if going_on else burn_in, n_draws, thinning).asked(settings)
    descends = not going_on and found.sampler.cools and tuning.descends(warm.init)
    return Plan(
        step_size=step_size,
        temperature=temperature,
        n_draws=lengths.n_draws,
        burn_in=lengths.burn_in,
        thinning=lengths.thinning,
        descent=lengths.burn_in // 2 if descends else 0,
        start_rows=start_rows(settings.max_steps, minibatches.size),
        auto=warm.step_size is not None,
        all_needed=settings.auto and tuning.one_mode and not found.sampler.finds_step,
        given_starts=not isinstance(warm.init, str),
    )


def _combine(
    results: list[Result], job: Job, *, doubtful: bool, n_asked: int, rows_seen: float
) -> Run:
    """Combine the results of the groups of a job's chains."""
    plan, previous = job.plan, job.previous
    alive = [result for result in results if len(result.draws)]
    diverged = {chain: step for result in results for chain, step in result.diverged.items()}
    report = _divergence_report(diverged, job, results[0].state.last_eta)
    if not alive or (plan.all_needed and diverged):
        raise SamplingError(report + more("chains-diverged"))
    # groups keep equal numbers of draws, except with mixing distance, where the start of
    # collection depends on the positions of the chains
    kept = min(result.draws.shape[1] for result in alive)
    if kept == 0:
        raise SamplingError(
            f"no draw was kept in {plan.n_steps} steps: the sampling threshold of "
            f"thinning={plan.thinning!r} was not reached; give a smaller step_size, more steps or "
            "a larger noise_ratio." + more("no-draw-was-kept")
        )
    if diverged:
        kept_others = " The other chains were kept; their draws may be biased."
        warn(report + kept_others, "chains-diverged")
    _warn_of_doubts(alive, job, doubtful)
    first = alive[0]

    def stacked(pick: Callable[[Result], Array]) -> Array:
        parts = [pick(result) for result in alive]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def by_name(pick: Callable[[Result], dict[str, Array]]) -> dict[str, Array]:
        parts = [pick(result) for result in alive]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    state = ChainState(
        theta=stacked(lambda r: r.state.theta),
        sampler=by_name(lambda r: r.state.sampler),
        model=by_name(lambda r: r.state.model),
        rng={
            "noise": stacked(lambda r: r.state.rng["noise"]),
            "rows": [bits for result in alive for bits in result.state.rng["rows"]],
        },
        last_eta=first.state.last_eta,
        moves=first.state.moves,
        n_chains=n_asked,
        warm=job.warm if plan.stream else None,
        rows_seen=rows_seen,
        n_drawn=kept + (previous.n_drawn if previous is not None and plan.stream else 0),
    )
    return Run(
        draws=stacked(lambda r: r.draws[:, :kept]),
        weights=None if first.weights is None else first.weights[:kept],
        statistics=by_name(lambda r: r.statistics),
        state=state,
        target=job.target,
        step_size=float(np.mean([result.step_size for result in alive])),
        batch_size=job.work.minibatches.size,
        n_steps=max(result.n_steps for result in results),
        plan=plan,
        accelerators=job.accelerators,
        alpha=job.alpha(),
    )


def _warn_of_doubts(results: list[Result], job: Job, doubtful: bool) -> None:
    """Warn if the steps' energy errors or the sampler's statistics say that draws are biased."""
    names = results[0].statistics
    doubts = job.work.sampler.doubts(
        {name: np.concatenate([result.statistics[name] for result in results]) for name in names}
    )
    if doubtful:
        doubts = (
            f"The steps of {type(job.work.sampler).__name__} are too large, although their size is "
            f"{4**-REPEATS:g} of the usual one: the curvature of the posterior differs too much "
            "between its parts. The draws are biased. Give a narrower prior."
        )
    if doubts is not None:
        warn(doubts, "the-steps-are-too-large")


def _divergence_report(diverged: dict[int, int], job: Job, step_size: float) -> str:
    """A message that says which chains diverged, at which step, and what to change."""
    plan, sampler = job.plan, repr(job.work.sampler)
    where = ", ".join(f"chain {c} by step {k}" for c, k in [*diverged.items()][:NAMED_CHAINS])
    if len(diverged) > NAMED_CHAINS:
        where += f" and {len(diverged) - NAMED_CHAINS} others"
    given = "" if sampler.endswith("()") else f", sampler {sampler}"
    more_steps = "" if job.settings.max_steps is None else ", a larger max_steps"
    remedy = "Reduce step_size (try a tenth), or give step_size='auto'"
    if plan.all_needed:
        remedy = f"Runs with {4**REPEATS} times this step diverged, too. Give a narrower prior"
    elif plan.auto:
        remedy = (
            f"Give burn_in='auto'{more_steps} or more than {plan.burn_in} steps, or a step_size "
            f"below {step_size:g}"
        )
    return (
        f"{len(diverged)} of {len(job.group)} chains diverged ({where} of {plan.n_steps}; "
        f"last step size {step_size:g}{given}). {remedy}; scaling the features to unit variance "
        "helps too."
    )
