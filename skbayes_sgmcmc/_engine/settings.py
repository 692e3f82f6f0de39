"""The sampling parameters that all estimators and ``sample`` share, and the checks on them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._draws.storage import Storage, check_writable
from .._exceptions import not_allowed
from .._limits import LIMITS
from .._validation import (
    BOUNDS,
    check_choice,
    check_int,
    check_numbers,
    check_positions,
    check_random_state,
    check_real,
    check_unless,
    is_auto,
    is_whole,
)
from ..samplers import TABLE, resolve
from ..schedules import MixingDistance, Schedule, as_schedule, number_if_constant
from .devices import resolve_device
from .memory import check_network_memory as check_network_memory

#: the words that ``init`` may be
STARTS = "auto", "random", "map", "gaussian"
#: share of the rows that stop the descent of a chain
VALIDATION_FRACTION = 0.15


@dataclass
class Settings:
    """The sampling parameters that all estimators and ``sample`` share; see the estimators."""

    sampler: Any = "sgld"
    integrator: str = "auto"
    step_size: Any = "auto"
    preconditioner: Any = "auto"
    gradient: str = "auto"
    batch_size: Any = "auto"
    n_chains: int = 4
    n_draws: Any = "auto"
    burn_in: Any = "auto"
    thinning: Any = "auto"
    max_steps: int | None = None
    temperature: Any = 1.0
    init: Any = "auto"
    validation_fraction: float = VALIDATION_FRACTION
    compiled: Any = "auto"
    device: str = "auto"
    dtype: Any = "auto"
    precision: str = "full"
    storage: Storage | None = None
    checkpoint: Any = None
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    def __post_init__(self) -> None:
        self.temperature = number_if_constant(self.temperature)

    @classmethod
    def of(cls, estimator: Any, **others: Any) -> Settings:
        """The shared parameters of an estimator, checked.

        Parameters that the estimator lacks have their defaults. ``others`` replace the estimator's
        values.
        """
        names = [field.name for field in fields(cls) if hasattr(estimator, field.name)]
        settings = cls(**{name: getattr(estimator, name) for name in names} | others)
        settings.check(estimator._samplers())
        return settings

    def check(self, samplers: Iterable[str] = tuple(TABLE), starts: Iterable[str] = STARTS) -> None:
        """Raise ``ValueError`` if a parameter is not allowed, before sampling starts.

        ``samplers`` and ``starts`` are the names that errors list for ``sampler`` and ``init``.
        """
        if not isinstance(self.integrator, str):
            raise not_allowed(
                f"integrator={self.integrator!r} is not allowed: give 'auto' or the name of one."
            )
        if not is_auto(self.sampler):
            resolve(self.sampler, self.integrator, listed=samplers)
        check_unless("auto", as_schedule, "step_size", self.step_size)
        as_schedule("temperature", self.temperature)
        for name in ("step_size", "temperature"):
            value = getattr(self, name)
            if not is_auto(value) and not isinstance(value, Schedule) and value != 0:
                low, high = BOUNDS.smallest_step, BOUNDS.largest_step
                check_real(name, value, low=low, high=high, closed="both")
        for name, low, high in (
            ("batch_size", 1, math.inf),
            ("n_draws", 1, BOUNDS.steps),
            ("burn_in", 0, BOUNDS.steps),
        ):
            check_unless("auto", check_int, name, getattr(self, name), low=low, high=high)
        if isinstance(self.thinning, MixingDistance):
            self.thinning.check("thinning")
        else:
            check_unless("auto", check_int, "thinning", self.thinning, high=BOUNDS.steps)
        check_real("validation_fraction", self.validation_fraction, low=0.0, high=1.0)
        check_unless(None, check_int, "max_steps", self.max_steps, high=BOUNDS.steps)
        check_int("n_chains", self.n_chains, high=BOUNDS.count)
        if not isinstance(self.init, str):
            listed = ", ".join(repr(start) for start in starts)
            check_numbers("init", self.init, f"{listed} or an array")
            check_positions("init", self.init)
        if self.preconditioner is not None and not isinstance(self.preconditioner, str):
            allowed = "None, 'auto', 'hessian', 'diagonal' or an array"
            check_numbers("preconditioner", self.preconditioner, allowed)
        if not is_auto(self.device):
            resolve_device(self.device)
        check_choice("compiled", self.compiled, ("auto", True, False))
        check_choice("dtype", self.dtype, ("auto", "float32", "float64"))
        check_choice("precision", self.precision, ("full", "bfloat16"))
        if self.precision != "full" and self.dtype == "float64":
            raise not_allowed(
                f"dtype='float64' is not allowed with precision={self.precision!r}: give 'float32'."
            )
        if not isinstance(self.storage, Storage | None):
            raise not_allowed(
                f"storage={self.storage!r} is not allowed: give None or "
                "Storage(dtype=..., dir=...)."
            )
        self.kept.check("storage")
        check_random_state(self.random_state)
        if not isinstance(self.verbose, bool | np.bool_):
            check_int("verbose", self.verbose, low=0)
        jobs = self.n_jobs
        if jobs is not None and not (is_whole(jobs) and 0 < abs(jobs) <= BOUNDS.jobs):
            raise not_allowed(
                f"n_jobs={jobs!r} is not allowed: give None, a whole number of at least 1 and at "
                f"most {BOUNDS.jobs}, or a negative one, which counts from the number of "
                "processors."
            )
        if self.checkpoint is not None:
            self._check_checkpoint()

    def _check_checkpoint(self) -> None:
        given = self.checkpoint
        name = os.fspath(given) if isinstance(given, str | os.PathLike) else ""
        if not isinstance(name, str) or not name or "\0" in name:
            raise not_allowed(f"checkpoint={given!r} is not allowed: give a file name.")
        refused = f"checkpoint={name!r} is not allowed"
        try:
            path = Path(name).resolve()  # the file that a symbolic link names
            if not path.parent.is_dir():
                raise not_allowed(f"{refused}: its folder does not exist.")
            if path.is_dir():
                raise not_allowed(f"{refused}: it is a folder; give a file name.")
            os.stat(path)
        except FileNotFoundError:
            pass
        except (OSError, RuntimeError) as error:  # e.g. a name that is too long, or links in a ring
            reason = getattr(error, "strerror", None) or error
            raise not_allowed(f"{refused} ({reason}): give another file name.") from None
        check_writable(refused, path.parent)

    @property
    def kept(self) -> Storage:
        """How draws are stored."""
        return Storage() if self.storage is None else self.storage

    def attempt(self, number: int) -> Settings:
        """Those of a run that is repeated, which has a checkpoint file of its own."""
        if number == 0 or self.checkpoint is None:
            return self
        path = Path(self.checkpoint)
        return replace(self, checkpoint=path.with_stem(f"{path.stem}.again-{number}"))

    def seeds(self) -> list[np.random.SeedSequence]:
        """One seed per chain."""
        state = self.random_state
        if state is None or isinstance(state, np.random.RandomState):
            # draws from the global or the given RandomState, like scikit-learn's estimators
            entropy = int(check_random_state(state).randint(np.iinfo(np.int32).max))
        else:
            entropy = int(state)
        return np.random.SeedSequence(entropy).spawn(self.n_chains)

    def groups(self) -> list[list[int]]:
        """Groups of chains that run as one batch: one for each of ``n_jobs``."""
        count = 1
        if self.n_jobs not in (None, 1):
            from joblib import effective_n_jobs

            count = min(effective_n_jobs(self.n_jobs), self.n_chains)
        return [part.tolist() for part in np.array_split(np.arange(self.n_chains), count)]

    @property
    def likely_steps(self) -> int:
        """About how many steps a run takes: as given, or those of networks by default."""
        lengths = self.burn_in, self.n_draws, self.thinning
        n_steps = LIMITS.default_steps
        if all(is_whole(length) for length in lengths):
            n_steps = self.burn_in + self.n_draws * self.thinning
        return n_steps if self.max_steps is None else min(n_steps, self.max_steps)

    @property
    def auto(self) -> bool:
        return is_auto(self.step_size)

    def resolve_dtype(
        self, device: str, n_parameters: int, *, single_precision: bool = False
    ) -> torch.dtype:
        if is_auto(self.dtype):
            small = device == "cpu" and n_parameters <= 100_000
            return torch.float64 if small and not single_precision else torch.float32
        return getattr(torch, self.dtype)
