"""Averages over draws of networks, calibrated with rows that shorter runs have not seen."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from .._arrays import Array
from .._callbacks import leave_callbacks
from .._data.rows import first_equal
from .._exceptions import SamplingError, silent, warn
from .._limits import LIMITS
from .._validation import check_random_state, is_auto
from ._classes import columns, logs
from ._fitting import Task
from ._mixing import short_name
from ._network import NetworkClassifier

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class CalibrationRules:
    """How much is spent on the power; docs/project/network_defaults.md has what it brings."""

    #: "auto" calibrates fits of at least so many rows
    least_rows: int = 50
    #: a fifth of the rows is held out from a shorter run; so many times until there are enough of
    #: them
    folds: int = 5
    most_folds: int = 3
    enough_rows: int = 4000
    #: share of the fit's steps that a shorter run takes, but at least so many, and its draws
    share: float = 1 / 8
    least_steps: int = 750
    draws: int = 50
    #: share of the fit's most steps that all runs together take at most
    budget: float = 1 / 2
    #: standard deviation of the log power a priori, with mean zero; and its bounds
    log_power_sd: float = 0.25
    most_log_power: float = 2.0


CALIBRATION = CalibrationRules()


class CalibratedClassifier(NetworkClassifier):
    """Base class of classifiers with a ``predict_proba`` that held-out rows calibrate.

    The average over the draws of a network at temperature 1 is often underconfident. Its
    probabilities are raised to a power, and normalised.
    """

    calibrate: Any
    calibration_power_: float = 1.0

    def _run(self, task: Task) -> None:
        self.calibration_power_ = 1.0
        super()._run(task)

    def _calibrate(self, task: Task) -> None:
        """Find the power of the average over the draws, if this fit is calibrated."""
        if not self._calibrates(task):
            return
        rng = check_random_state(self.random_state)
        parts = self._held_out(task.rows.x, task.rows.target, rng)
        if not parts:
            return
        n_steps = self._steps_of_a_run()
        # of short fits fewer runs, since shorter ones would find other powers
        parts = parts[: max(1, math.floor(CALIBRATION.budget * self._most_steps / n_steps))]
        seeds = rng.randint(np.iinfo(np.int32).max, size=len(parts)).tolist()
        try:
            runs = zip(parts, seeds, strict=True)
            found = [self._given_others(task, rows, seed, n_steps) for rows, seed in runs]
        except SamplingError:
            warn(
                f"the probabilities of {short_name(self)} are not calibrated: the chains of a "
                "shorter run diverged. Reduce step_size, or give calibrate=False.",
                "chains-diverged",
            )
            return
        rows = np.concatenate(parts)
        given = task.rows.some(rows)
        proba, codes = self._classes.parts(np.concatenate(found)), columns(given.target)
        self.calibration_power_ = best_power(proba, codes, given.weights())

    def _calibrates(self, task: Task) -> bool:
        """Whether this fit is calibrated."""
        if self.calibrate != "auto":
            return bool(self.calibrate)
        X, settings = task.rows.x, task.settings
        plain = is_auto(settings.step_size) and settings.temperature == 1.0
        plain = plain and X.shape[0] >= CALIBRATION.least_rows
        # memory maps are arrays, too: joblib makes them of what workers share. Other files and
        # sparse matrices would be read again
        return plain and isinstance(X, np.ndarray) and X.nbytes <= LIMITS.calibrated_bytes

    def _held_out(self, X: Any, codes: Array, rng: np.random.RandomState) -> list[Array]:
        """Rows that are held out together.

        Every class keeps a row, without which a shorter run would not know the class. Copies of a
        row, as oversampling makes them, are held out with it: a run that has seen one knows all.
        """
        first = first_copies(X, codes)
        firsts = [np.unique(column, return_index=True)[1] for column in columns(codes)]
        others = np.setdiff1d(first, first[np.concatenate(firsts)])
        size = max(1, len(others) // CALIBRATION.folds)
        enough = math.ceil(CALIBRATION.enough_rows / size)
        n_parts = min(CALIBRATION.most_folds, enough, len(others) // size)
        order = rng.permutation(others)
        parts = [order[k * size : (k + 1) * size] for k in range(n_parts)]
        return [np.flatnonzero(np.isin(first, part)) for part in parts]

    def _steps_of_a_run(self) -> int:
        """Steps of a shorter run."""
        least = min(CALIBRATION.least_steps, CALIBRATION.budget * self._most_steps)
        return math.ceil(max(CALIBRATION.share * self._most_steps, least))

    def _given_others(self, task: Task, rows: Array, seed: int, n_steps: int) -> Array:
        """Probabilities (rows, outputs) of some rows, given the others, by a shorter run."""
        others = np.setdiff1d(np.arange(task.rows.n_rows), rows)
        one: Any = copy.copy(self)
        one.n_draws = min(CALIBRATION.draws, self.n_draws_, n_steps)
        one.thinning = max(1, n_steps // (2 * one.n_draws))
        one.burn_in = max(1, n_steps - one.n_draws * one.thinning)
        if self.max_steps is not None:
            one.max_steps = one.burn_in + one.n_draws * one.thinning
        one.random_state, one.verbose, one.warm_start = seed, 0, False
        one.compiled = bool(self.compiled_)  # what is compiled for one run is there for the others
        one.checkpoint = one.storage = None
        leave_callbacks(one)
        with silent():
            given = task.rows.some(others)
            one._run(Task(one._make_model(given, first=True), given, one._settings()))
        held_out = one._mean_proba(task.rows.x[rows])
        one_more = partial(with_one_more_draw, n_draws=one.n_chains_ * one.n_draws_)
        return self._classes.in_each(one_more, held_out)

    def _mean_proba(self, x: Any) -> Array:
        proba, power = super()._mean_proba(x), self.calibration_power_
        if power == 1.0:
            return proba
        return self._classes.in_each(partial(softmax, axis=1), power * logs(proba))

    def _ensemble(self, chosen: Array, weights: Array) -> nn.Module:
        from torch.nn import Sequential

        from ..models.networks.ensemble import Power

        mean = super()._ensemble(chosen, weights)
        power = self.calibration_power_
        return mean if power == 1.0 else Sequential(mean, Power(power, self._classes.sizes))


def first_copies(X: Any, codes: Array) -> Array:
    """For each row, the place of the first one that it is a copy of, which may be its own.

    Copies have equal values and labels. If some rows have equal values only, as in tables of a few
    categories, rows of equal values are observations of their own, and none is a copy.
    """
    first = first_equal(X, np.float32)  # as networks see them
    return first if np.array_equal(codes[first], codes) else np.arange(len(codes))


def with_one_more_draw(proba: Array, n_draws: int) -> Array:
    """Averages over draws (rows, classes), and over one more that finds all classes as probable.

    An average over n draws is known to about 1 / n. A single row with a class that no draw of a
    short run thought possible would otherwise outweigh all others.
    """
    return (n_draws * proba + 1.0 / proba.shape[1]) / (n_draws + 1)


def best_power(proba: list[Array], codes: list[Array], weight: Array) -> float:
    """The power, a posteriori, with which probabilities (rows, classes) predict the codes best.

    Both have an array for each target, and all targets have the same power. Its logarithm is normal
    a priori, so that few rows do not move it far from 1.
    """
    log_p, rows = list(map(logs, proba)), np.arange(len(weight))

    def potential(log_power: float) -> float:
        power = np.exp(log_power)
        given = [log_softmax(power * z, axis=1)[rows, c] for z, c in zip(log_p, codes, strict=True)]
        return float(0.5 * (log_power / CALIBRATION.log_power_sd) ** 2 - weight @ sum(given))

    bounds = (-CALIBRATION.most_log_power, CALIBRATION.most_log_power)
    return float(np.exp(minimize_scalar(potential, bounds=bounds, method="bounded").x))
