"""The steps of a run: its burn-in, draws and thinning, within ``max_steps``, and its schedules."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace

import numpy as np

from .._arrays import Array
from .._exceptions import not_allowed
from .._validation import is_auto
from ..schedules import MixingDistance, Schedule
from .settings import Settings

#: what a descent before the chains' first step may cost, as a share of ``max_steps``: several times
#: what the descents of fits with automatic lengths take (docs/project/network_defaults.md)
START_SHARE = 0.1
#: fewest steps of a burn-in that begins with a simpler density, which samplers learn from: those
#: that scale by past gradients forget them in 100 steps, a quarter of it
SHORTEST_ANNEALED = 400
#: fewest steps with all rows of a run that ends early, and the share of every later part in which
#: steps are tuned again and no draws are kept (docs/results/early_ends.md)
SHORTEST_RUN = 1500
TUNED_AGAIN = 0.25
#: how many times its steps a run takes in addition, at most, if its potential still falls (see
#: there, too)
LONGER = 3


@dataclass(frozen=True)
class Lengths:
    """Number of steps before the first draw, number of draws, and steps between two of them."""

    burn_in: int
    n_draws: int
    thinning: int | MixingDistance

    def with_given(self, settings: Settings) -> Lengths:
        """These automatic lengths, with those that ``settings`` give, within its ``max_steps``."""
        automatic = [name for name in LENGTHS if is_auto(getattr(settings, name))]
        given = {name: getattr(settings, name) for name in LENGTHS if name not in automatic}
        found = replace(self, **given)
        if found.by_distance is not None and "burn_in" in automatic:
            # a part of the steps that are given
            found = replace(found, burn_in=min(found.burn_in, found.n_steps // 2))
        return found.within(settings.max_steps, automatic)

    @property
    def by_distance(self) -> MixingDistance | None:
        """What decides which steps give draws; None if it is ``every`` so many."""
        return self.thinning if isinstance(self.thinning, MixingDistance) else None

    @property
    def every(self) -> int:
        assert not isinstance(self.thinning, MixingDistance)
        return self.thinning

    @property
    def n_steps(self) -> int:
        if self.by_distance is not None:
            return self.by_distance.n_steps
        return self.burn_in + self.n_draws * self.every

    def within(self, max_steps: int | None, automatic: Collection[str]) -> Lengths:
        """These lengths, or shorter ones of at most ``max_steps`` steps.

        Only those named by ``automatic`` change: burn-in and thinning in proportion, and the number
        of draws where they would otherwise be less than a step apart.

        Raises
        ------
        ValueError
            The others take too many steps.
        """
        if max_steps is None or self.n_steps <= max_steps:
            return self
        shortest = {"burn_in": min(1, self.burn_in), "n_draws": 1, "thinning": 1}
        least = replace(self, **{name: shortest[name] for name in automatic})
        if least.n_steps > max_steps:
            raise self._too_long(max_steps, least.n_steps, automatic)
        burn_in, n_draws, thinning = self.burn_in, self.n_draws, self.every
        if "burn_in" in automatic:
            # rounded up, because a sampler may need a burn-in, however short
            shorter = math.ceil(burn_in * max_steps / self.n_steps)
            burn_in = min(shorter, max_steps - least.n_draws * least.every)
        room = max_steps - burn_in
        if "thinning" in automatic:
            thinning = max(1, room // n_draws)
        if "n_draws" in automatic:
            n_draws = min(n_draws, room // thinning)
        if "burn_in" in automatic:  # what the draws leave
            burn_in = min(self.burn_in, max_steps - n_draws * thinning)
        return replace(self, burn_in=burn_in, n_draws=n_draws, thinning=thinning)

    def longer_by(self, max_steps: int | None) -> int:
        """How many times these steps a run may take in addition, within ``max_steps``."""
        if max_steps is None:
            return LONGER
        return min(LONGER, (max_steps - self.n_steps) // max(self.n_steps, 1))

    def _too_long(self, max_steps: int, least: int, automatic: Collection[str]) -> ValueError:
        """The error of lengths that were given and do not fit."""
        given = [f"{n}={getattr(self, n)!r}" for n in LENGTHS if n not in automatic]
        if not given:
            return not_allowed(
                f"max_steps={max_steps} is not allowed here, because a burn-in and a draw take "
                f"{least} steps: give max_steps={least} or more."
            )
        return not_allowed(
            f"max_steps={max_steps} is not allowed with {', '.join(given)}, because that takes at "
            f"least {least} steps: give max_steps={least} or more, or fewer steps by "
            f"{' and '.join(n for n in LENGTHS if n not in automatic)}."
        )


#: the parameters that are lengths
LENGTHS = tuple(field.name for field in fields(Lengths))


def start_rows(max_steps: int | None, batch_size: int) -> int | None:
    """Most gradients of rows that a descent may compute for a chain; None for no bound."""
    return None if max_steps is None else math.ceil(START_SHARE * max_steps) * batch_size


@dataclass(frozen=True, kw_only=True)
class Plan(Lengths):
    """Plan of a run: the number of steps, their step sizes, and which of them give draws."""

    step_size: Schedule
    temperature: Schedule
    #: number of first steps, taken at temperature 0, while every chain finds a mode
    descent: int = 0
    #: most gradients of rows that an optimiser takes for a chain before these steps; None: as many
    #: as it asks for; 0: there is no optimiser
    start_rows: int | None = None
    #: whether the step size is "auto", so that samplers may change it in the burn-in
    auto: bool = False
    #: whether the run ends as soon as a chain diverges. The others have stayed where the step is
    #: small enough, which makes them a biased sample
    all_needed: bool = False
    #: whether chains start at positions that were given, which a simpler density would lead away
    given_starts: bool = False
    #: whether more rows will come, so that samplers that adapt in the burn-in go on adapting
    more_rows: bool = False
    #: whether the run ends as soon as its draws are settled (``settled.py``)
    ends_early: bool = False
    #: and after how many steps it may
    shortest: int = SHORTEST_RUN
    #: how many times these steps follow if the potential still falls
    longer: int = 0
    #: of a part of a run: steps of the parts before it; 0 in the first one
    taken: int = 0
    #: and most steps of all parts; 0: there is one part
    most_steps: int = 0
    #: whether it takes nothing but positions from the part before it
    anew: bool = False

    @property
    def end(self) -> int:
        """The most steps of the whole run."""
        return self.most_steps or self.n_steps

    def parts(self) -> list[Plan]:
        """The parts of the run; later ones follow only if they must.

        A run that ends early does so after one of several, each as long as all before it together.
        The last of them ends where the plan does, and its draws come from the second half of the
        run, as those of the plan.

        If the potential still falls then, a longer run of the same plan follows, from the positions
        that were reached. It tunes its steps anew, but does not begin with a simpler density.
        """
        found = self._early_parts() if self.ends_early else [self]
        if self.longer:
            taken = found[-1].taken + found[-1].n_steps
            more = replace(
                self,
                burn_in=self.longer * self.burn_in,
                thinning=self.longer * self.every,
                ends_early=False,
                taken=taken,
                anew=True,
            )
            found.append(replace(more, most_steps=taken + more.n_steps))
        return found

    def _early_parts(self) -> list[Plan]:
        """The parts of a run that ends early, but for the one that follows them."""
        n = int(math.log2(min(max(self.n_steps / self.shortest, 1.0), self.every)))
        burn_in = self.burn_in >> n
        found = [self._part(burn_in, self.n_steps >> n, 0)]
        for _ in range(n):
            taken = found[-1].taken + found[-1].n_steps
            found.append(self._part(int(TUNED_AGAIN * taken), taken, taken))
        found[-1] = replace(found[-1], ends_early=False)
        return found

    def _part(self, burn_in: int, n_steps: int, taken: int) -> Plan:
        thinning = max(1, (n_steps - burn_in) // self.n_draws)
        descent = 0 if taken else min(self.descent, burn_in // 2)
        return replace(
            self, burn_in=burn_in, thinning=thinning, descent=descent, taken=taken,
            most_steps=self.n_steps,
        )  # fmt: skip

    @property
    def annealed(self) -> bool:
        """Whether a model may begin with a simpler density than its own."""
        return self.burn_in >= SHORTEST_ANNEALED and not (self.given_starts or self.anew)

    @property
    def first_temperature(self) -> float:
        """Temperature of the first step."""
        return float(self.temperature.values(np.zeros(1, dtype=int), self.n_steps)[0])

    @property
    def grid(self) -> Array:
        """The steps at which schedules are checked: a thousand at most."""
        return np.unique(np.linspace(0, self.n_steps - 1, 1000).astype(int))

    @property
    def coldest(self) -> float:
        """The lowest temperature, at the steps of a grid; 0 while the step size explores."""
        steps = self.grid
        if self.step_size.exploring(steps, self.n_steps).any():
            return 0.0
        return float(self.temperature.values(steps, self.n_steps).min())

    @property
    def weighted(self) -> bool:
        """Whether draws are weighted by their step sizes."""
        return self.step_size.weights_draws and self.by_distance is None
