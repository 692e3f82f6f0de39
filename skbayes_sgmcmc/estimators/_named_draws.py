"""Draws of a run under the names that users know, and those of a stream joined to earlier ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .._arrays import Array
from .._draws.posterior_samples import PosteriorSamples, Seen

#: blocks that the names of their coordinates do not need
UNNAMED = ("coef", "components", "cutpoints")


class Named:
    """Draws by name, with the quantities that the model derives from each draw exactly once."""

    def __init__(self, model: Any, data: Any):
        self.model, self.data = model, data
        self.seen = Seen()
        self.derived: dict[str, Array] = {}

    def __call__(self, draws: Array) -> dict[str, Array]:
        """Name draws (chains, draws, n_kept); mostly they begin with those of the call before."""
        before = self.seen.before(draws)
        if before == 0:
            self.derived = {}
        if draws.shape[1] > before:
            new = self.model.derive(draws[:, before:], self.data)
            for name, values in self.derived.items():
                new[name] = np.concatenate([values, new[name]], axis=1)
            self.derived = new
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
            return self.model.unpack(draws) | self.derived


def labels_of(name: str, axes: dict[str, list[Any]]) -> list[str]:
    """Names of the flattened coordinates of a block of draws, from the labels along its axes."""
    places = [": ".join(map(str, place)) for place in itertools.product(*axes.values())]
    return places if name in UNNAMED else [f"{name}[{place}]" for place in places]


def attributes(posterior: PosteriorSamples, n_steps: int) -> dict[str, Any]:
    """Fitted attributes that every estimator has."""
    return {
        "posterior_": posterior,
        "n_chains_": posterior.n_chains,
        "n_draws_": posterior.n_draws,
        "n_steps_": n_steps,
    }


def newest(
    old: PosteriorSamples,
    new: PosteriorSamples,
    n_drawn: int,
    limit: int | str,
    steps: tuple[float, float],
) -> PosteriorSamples:
    """The newest ``limit`` draws of a stream, without the first half of all draws.

    The first half of a stream's draws is its burn-in, during which the target was a different one.
    ``steps`` are the step sizes of old and of new draws, which are their weights beside others'.
    """
    if old.n_chains != new.n_chains or old.draws.keys() != new.draws.keys():
        return new  # a chain has diverged, or the prior has changed
    if isinstance(limit, str):
        limit = 1000  # draws of each chain, with n_draws="auto"
    kept = max(new.n_draws, min(limit, (n_drawn + 1) // 2))
    weights = None
    if old.weights is not None or new.weights is not None:
        pairs = zip((old, new), steps, strict=True)
        each = [np.full(p.n_draws, step) if p.weights is None else p.weights for p, step in pairs]
        weights = np.concatenate(each)[-kept:]
    draws = {name: np.concatenate([old[name], new[name]], axis=1)[:, -kept:] for name in new.draws}
    return PosteriorSamples(draws, weights, new.statistics)


def joined(
    estimator: Any,
    new: PosteriorSamples,
    part: Any,
    named: Named,
    previous: Any,
    n_draws: int | str,
) -> tuple[PosteriorSamples, Array | None]:
    """The newest draws of a stream, with earlier ones moved to the posterior of now.

    ``part`` is what a call of the stream has drawn (``Part`` of the engine), ``new`` its draws. The
    same draws as positions are returned, too, if a later call moves them again.
    """
    kept, found, moved = part.run.draws, new, part.moved
    if previous is not None and (moved is not None or not part.filtered):
        old, memory = estimator.posterior_, previous.memory
        positions = None if memory is None else memory.kept
        if moved is not None and positions is not None:
            before = moved(positions)
            draws = estimator._in_order(Named(named.model, named.data)(before), previous)
            old = PosteriorSamples(draws, old.weights, old.statistics)
            if len(before) == len(kept):
                kept = np.concatenate([before, kept], axis=1)
        drawn = part.run.state.memory.n_drawn * (1 if moved is None else 2)
        steps = estimator.step_size_, part.run.step_size
        found = newest(old, new, drawn, n_draws, steps)  # draws that were moved are no burn-in
    return found, kept[:, -found.n_draws :].copy() if part.filtered else None
