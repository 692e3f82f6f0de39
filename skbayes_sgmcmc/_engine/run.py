"""From settings to draws: the one path that every estimator and ``sample`` take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray

from .._data.minibatch import Data, Minibatches
from .._exceptions import SamplingError, warn
from ..models._protocol import Model
from ..samplers import Sampler, resolve
from ..schedules import Schedule, as_schedule
from . import auto
from .chains import Plan
from .jobs import ChainState, Job, OnProgress, Result
from .memory import check_memory
from .settings import Settings, is_auto
from .target import Coordinates, Target

Array = NDArray[Any]

#: rows in a minibatch of a stream
STREAM_BATCH = 100


@dataclass
class Run:
    """What a run returns: draws of theta, their weights, statistics and the final state."""

    draws: Array
    weights: Array | None
    statistics: dict[str, Array]
    state: ChainState
    target: Target
    step_size: float
    batch_size: int
    n_steps: int
    temperature: float
    plan: Plan
    #: ``alpha(theta)`` is the sampling threshold's alpha_t / eta at one position (1, n_parameters)
    alpha: Callable[[torch.Tensor], float]


def draw(
    model: Model,
    data: Data,
    settings: Settings,
    *,
    dtype: torch.dtype,
    device: str,
    previous: ChainState | None = None,
    rows_seen: float | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Run the chains that ``settings`` describe.

    ``previous`` continues earlier chains; ``rows_seen`` says that these are rows of a stream, of
    which there have been so many, these included: one pass of steps is taken over them.
    ``on_progress`` hears only of chains that run as one group in this process.
    """
    stream = rows_seen is not None
    model = model.bound(data)
    sampler, _, cell = resolve(settings.sampler, settings.integrator, plain=not settings.auto)
    temperature = as_schedule("temperature", settings.temperature)
    level = float(temperature.values(np.zeros(1, dtype=int), 1)[0])
    _check_pair(sampler, model, level)
    previous = _continuable(previous, model, settings, stream)
    n_asked = settings.n_chains
    if previous is not None:
        settings = replace(settings, n_chains=len(previous.theta))  # those that survived
    warm = previous.warm if previous is not None and stream else None
    if warm is None or (warm.step_size is not None) != settings.auto:
        # total=0: as the posterior of these rows alone. Taken for all of a stream, they would be
        # too sure of themselves, and without a maximum where the prior no longer counts.
        rows = replace(data, total=0.0) if stream else data
        warm = auto.warm_up(model, rows, sampler, cell, settings, level, stream=stream)
    target = _target(model, data, warm, level, torch.empty(0, dtype=dtype, device=device))
    if stream and is_auto(settings.batch_size):
        settings = replace(settings, batch_size=STREAM_BATCH)
    minibatches = auto.minibatches(
        target,
        sampler,
        warm,
        batch_size=settings.batch_size,
        shared=settings.shared_minibatch,
        temperature=level,
    )
    eta: Any = settings.step_size
    if warm.step_size is not None:
        eta = warm.step_size
        if rows_seen is not None:
            eta = min(eta, model.unit() * _stream_step(sampler, model, minibatches, rows_seen))
    plan = _plan(
        settings,
        as_schedule("step_size", eta),
        temperature,
        warm,
        minibatches,
        target,
        previous,
        math.ceil(data.n_rows / minibatches.size) if stream else None,
    )
    if not stream:
        target = target.with_model(model.prepared(plan.n_steps))
    seeds = settings.seeds()
    shared = (target, sampler, cell, minibatches, plan, settings, warm, previous)
    jobs = [Job(*shared, group, [seeds[c] for c in group]) for group in settings.groups()]
    if len(jobs) == 1:
        results = [jobs[0](on_progress)]
    else:
        results = list(Parallel(n_jobs=settings.n_jobs)(delayed(job)(None) for job in jobs))
    run = _combine(results, settings.n_chains, jobs[0], level)
    run.state.n_chains = n_asked
    run.state.warm = warm if stream else None
    run.state.rows_seen = data.total if rows_seen is None else rows_seen
    run.state.n_drawn = run.draws.shape[1] + (previous.n_drawn if previous and stream else 0)
    return run


def _check_pair(sampler: Sampler, model: Model, temperature: float) -> None:
    """Refuse a sampler that can't sample this model at this temperature."""
    if sampler.full_data and temperature == 0.0:
        raise ValueError("temperature=0 is not allowed with MALA: give a positive number.")
    if sampler.full_data and model.after_step is not None:
        raise ValueError(
            f"sampler={type(sampler).__name__} is not allowed with {type(model).__name__}, whose "
            "latent variables move at every step: give another sampler."
        )
    if sampler.full_data and type(model).log_lik is Model.log_lik:
        raise ValueError(
            f"sampler={type(sampler).__name__} is not allowed: {type(model).__name__} has no "
            "density, but estimates of its gradient; give another sampler."
        )
    if model.project is not None and not (sampler.needs_metric or sampler.full_data):
        raise ValueError(
            f"sampler={type(sampler).__name__} is not allowed with {type(model).__name__}, whose "
            "parameters are restricted to a part of space: give sampler='rsgld'."
        )
    if sampler.needs_metric and model.metric is None:
        raise ValueError(
            f"sampler={type(sampler).__name__} is not allowed: {type(model).__name__} has no "
            "metric; give another sampler."
        )


def _target(
    model: Model, data: Data, warm: auto.AutoValues, temperature: float, like: torch.Tensor
) -> Target:
    """The target in the coordinates, and with the gradient estimator, that were found."""
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
        dtype=like.dtype,
        device=str(like.device),
    )


def _continuable(
    previous: ChainState | None, model: Model, settings: Settings, stream: bool
) -> ChainState | None:
    """The earlier chains, unless parameters have changed their number or length."""
    if previous is None:
        return None
    if previous.fits(settings.n_chains, model.n_parameters):
        return previous
    if stream:
        raise ValueError(
            f"n_chains={settings.n_chains} with {model.n_parameters} parameters is not allowed "
            f"here: earlier calls had {previous.n_chains} chains of {previous.theta.shape[1]} "
            "parameters. Keep n_chains and what makes the model's size (fit_intercept, layers) as "
            "they were, or start a new stream with a clone of the estimator."
        )
    return None


def _stream_step(
    sampler: Sampler, model: Model, minibatches: Minibatches, rows_seen: float
) -> float:
    """Largest step size, in whitened coordinates, that makes good use of a stream's rows.

    With 2 n / rows seen, the t-th of equal minibatches counts for about 2/t: the chains are a
    stochastic Newton method that forgets where the first rows sent it, at a gradient noise (of
    variance 1/n a step) that inflates the variance by eta N / (2n) <= 1. When rows come again the
    step goes on falling until that is 0.1. A momentum sampler moves by eta / friction a step. A
    model may have it fall more slowly, as (n / rows seen)^forgetting.
    """
    n = minibatches.size
    rate = max(2.0 * (n / rows_seen) ** model.forgetting, 0.2 * n / minibatches.data.total)
    return float(rate * getattr(sampler, "friction", 1.0))


def _plan(
    settings: Settings,
    step_size: Schedule,
    temperature: Schedule,
    warm: auto.AutoValues,
    minibatches: Minibatches,
    target: Target,
    previous: ChainState | None,
    n_steps: int | None,
) -> Plan:
    model, itemsize = target.model, target.like.element_size()
    n_draws = settings.n_draws
    if is_auto(n_draws):
        n_draws = auto.auto_draws(model, settings.n_chains, itemsize)
    if n_steps is not None:
        n_draws = min(n_draws, n_steps)
        thinning = n_steps // n_draws
        burn_in = n_steps - n_draws * thinning
        return Plan(step_size, temperature, n_draws, burn_in, thinning, stream=True)
    if settings.kept.dir is None:
        size = 2 if settings.kept.dtype == "bfloat16" else itemsize
        check_memory(settings.n_chains, n_draws, model.n_kept, size)
    burn_in, thin = auto.auto_lengths(
        model, settings.auto, warm.step_size, minibatches.data.n_rows, minibatches.size, n_draws
    )
    if previous is not None:
        burn_in = 0
    if not is_auto(settings.burn_in):
        burn_in = settings.burn_in
    thinning = thin if is_auto(settings.thinning) else settings.thinning
    finds_modes = model.many_modes and isinstance(warm.init, str) and warm.init == "map"
    descent = burn_in // 2 if finds_modes and previous is None else 0
    return Plan(step_size, temperature, n_draws, burn_in, thinning, descent)


def _combine(
    results: list[Result],
    n_chains: int,
    job: Job,
    temperature: float,
) -> Run:
    plan = job.plan
    alive = [result for result in results if len(result.draws)]
    diverged = {chain: step for result in results for chain, step in result.diverged.items()}
    report = _divergence_report(diverged, n_chains, plan.n_steps, results[0].state.last_eta)
    if not alive:
        raise SamplingError(report)
    # groups collect alike, except by mixing distance, whose start depends on where a chain is
    kept = min(result.draws.shape[1] for result in alive)
    if kept == 0:
        raise SamplingError(
            f"no draw was kept in {plan.n_steps} steps: the sampling threshold was not reached; "
            "give a smaller step_size, more steps or a larger noise_ratio."
        )
    if diverged:
        warn(report + " The other chains were kept.")
    first = alive[0]

    def stacked(pick: Callable[[Result], Array]) -> Array:
        parts = [pick(result) for result in alive]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def by_name(pick: Callable[[Result], dict[str, Array]]) -> dict[str, Array]:
        parts = [pick(result) for result in alive]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    state = ChainState(
        stacked(lambda r: r.state.theta),
        by_name(lambda r: r.state.sampler),
        by_name(lambda r: r.state.model),
        {
            "noise": stacked(lambda r: r.state.rng["noise"]),
            "rows": [bits for result in alive for bits in result.state.rng["rows"]],
        },
        first.state.last_eta,
        first.state.moves,
        n_chains,
    )
    return Run(
        stacked(lambda r: r.draws[:, :kept]),
        None if first.weights is None else first.weights[:kept],
        by_name(lambda r: r.statistics),
        state,
        job.target,
        first.state.last_eta,
        job.minibatches.size,
        max(result.n_steps for result in results),
        temperature,
        plan,
        job.alpha(),
    )


def _divergence_report(
    diverged: dict[int, int], n_chains: int, n_steps: int, step_size: float
) -> str:
    """Which chains left the finite numbers, when, and what to change."""
    where = ", ".join(f"chain {c} by step {k}" for c, k in diverged.items())
    return (
        f"{len(diverged)} of {n_chains} chains left the finite numbers ({where} of {n_steps}; last "
        f"step size {step_size:g}). Reduce step_size (try a tenth), or give step_size='auto'; "
        "scaling the features to unit variance helps too."
    )
