"""How long a run is: its burn-in, its draws and their thinning, within the budget ``max_steps``."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace

from .._exceptions import not_allowed
from ..schedules import MixingDistance
from .settings import Settings, is_auto

#: what a descent before the chains' first step may cost, as a share of ``max_steps``: several times
#: what the descents of fits with automatic lengths take (docs/networks.md)
START_SHARE = 0.1


@dataclass(frozen=True)
class Lengths:
    """Number of steps before the first draw, number of draws, and steps between two of them."""

    burn_in: int
    n_draws: int
    thinning: int | MixingDistance

    def asked(self, settings: Settings) -> Lengths:
        """These automatic lengths, with those that ``settings`` give, within its ``max_steps``."""
        automatic = [name for name in LENGTHS if is_auto(getattr(settings, name))]
        given = {name: getattr(settings, name) for name in LENGTHS if name not in automatic}
        return replace(self, **given).within(settings.max_steps, automatic)

    @property
    def n_steps(self) -> int:
        if isinstance(self.thinning, MixingDistance):
            return self.thinning.n_steps
        return self.burn_in + self.n_draws * self.thinning

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
        self._check(max_steps, automatic)
        assert not isinstance(self.thinning, MixingDistance)
        burn_in, n_draws, thinning = self.burn_in, self.n_draws, self.thinning
        if "burn_in" in automatic:
            # rounded up, because a sampler may need a burn-in, however short
            shorter = math.ceil(burn_in * max_steps / self.n_steps)
            burn_in = min(shorter, max_steps - self._least_of_draws(automatic))
        room = max_steps - burn_in
        if "thinning" in automatic:
            thinning = max(1, room // n_draws)
        if "n_draws" in automatic:
            n_draws = min(n_draws, room // thinning)
        if "burn_in" in automatic:  # what the draws leave
            burn_in = min(self.burn_in, max_steps - n_draws * thinning)
        return replace(self, burn_in=burn_in, n_draws=n_draws, thinning=thinning)

    def _least_of_draws(self, automatic: Collection[str]) -> int:
        """Fewest steps that the draws can take."""
        if isinstance(self.thinning, MixingDistance):
            return self.thinning.n_steps
        n_draws = 1 if "n_draws" in automatic else self.n_draws
        return n_draws * (1 if "thinning" in automatic else self.thinning)

    def _check(self, max_steps: int, automatic: Collection[str]) -> None:
        """Refuse lengths that were given and do not fit."""
        least = self._least_of_draws(automatic)
        if not isinstance(self.thinning, MixingDistance):
            least += min(1, self.burn_in) if "burn_in" in automatic else self.burn_in
        if least <= max_steps:
            return
        given = [f"{n}={getattr(self, n)!r}" for n in LENGTHS if n not in automatic]
        if not given:
            raise not_allowed(
                f"max_steps={max_steps} is not allowed here, because a burn-in and a draw take "
                f"{least} steps: give max_steps={least} or more."
            )
        raise not_allowed(
            f"max_steps={max_steps} is not allowed with {', '.join(given)}, because that takes at "
            f"least {least} steps: give max_steps={least} or more, or fewer steps by "
            f"{' and '.join(n for n in LENGTHS if n not in automatic)}."
        )


#: the parameters that are lengths
LENGTHS = tuple(field.name for field in fields(Lengths))


def start_rows(max_steps: int | None, batch_size: int) -> int | None:
    """Most rows whose gradients a descent may compute for a chain; None for no bound."""
    return None if max_steps is None else math.ceil(START_SHARE * max_steps) * batch_size
