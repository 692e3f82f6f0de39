"""Warnings of fits that are plainly nonsense, although every number is finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import chdtri

from .._arrays import Array
from .._data.scaling import NORMAL_QUARTILES
from .._exceptions import warn
from .._validation import is_auto
from ._mixing import short_name

if TYPE_CHECKING:
    from .._draws.mixture import Mixture
    from .._engine.run import Run


@dataclass(frozen=True, slots=True)
class SenseRules:
    """From where on a fit is nonsense. Each bound has its test in tests/test_sense.py."""

    #: number of training rows with predictions to look at, and of draws that predict
    sample_size: int = 200
    #: fewer rows do not say what a sensible fit achieves
    fewest_rows: int = 10
    #: an error of the training rows that is this many times a constant's raises a warning. Where X
    #: says nothing of y, an honest fit is near 1
    worst_error: float = 1.2
    #: the same for the sd of the noise over that of the targets
    worst_noise: float = 1.5
    #: relative error of the kinetic temperature beyond the range of its chi-square distribution,
    #: and the probability of values beyond either end of this range. Three standard errors of the
    #: few momenta of small models are exceeded by one honest fit in 170
    worst_heat: float = 0.2
    rare_heat: float = 1e-6
    #: outputs that a warning names
    named: int = 5


SENSE = SenseRules()


def check_regression(
    estimator: Any, mixture: Mixture, X: Any, y: Array, weight: Array | None = None
) -> None:
    """Warn if predictions of training rows are worse than a constant, or all noise.

    What a chain predicts is the median of its draws, with their quartiles in its sd, since few
    rows leave some draws of log-linear models anywhere; the worst chain counts. Errors are in
    units of the sd of y, or of the row's own sd, which is larger where most counts are small.
    """
    weight = np.ones(len(y)) if weight is None else weight
    if min(len(y), weight.sum()) < SENSE.fewest_rows:
        return
    rows, times = np.unique(some_rows(weight), return_counts=True)
    n_chains = estimator.posterior_.n_chains
    draws = some_rows(mixture.weights, -(-SENSE.sample_size // n_chains) * n_chains)
    one = mixture.predictive(draws, X[rows])
    means = one.mean()
    variances = np.broadcast_to(one.variance(), means.shape)
    means, variances = (
        np.repeat(a.reshape(n_chains, -1, *a.shape[1:]), times, axis=2) for a in (means, variances)
    )
    target = y[rows].repeat(times, axis=0)
    spread = target.std(0)
    low, middle, high = np.quantile(means, [0.25, 0.5, 0.75], axis=1)
    own = np.sqrt(np.quantile(variances, 0.75, axis=1))
    own = np.hypot(own, (high - low) / NORMAL_QUARTILES)
    away = np.abs(middle - target)
    noise = np.median(own, axis=1).max(axis=0)
    error = root_mean_square(away).max(axis=0)
    with np.errstate(all="ignore"):
        unlikely = root_mean_square(away / np.maximum(own, spread)).max(axis=0)
    far = (spread > 0.0) & (unlikely > SENSE.worst_error)
    # of all rows: a few that are far off can make most of the sd
    sd = np.sqrt(np.average(np.square(y - np.average(y, 0, weight)), 0, weight))
    # few rows leave the noise wide open, and their sd may be far below that of a skewed
    # distribution: 3.6 sds of y with 12 rows of a gamma distribution of shape 1/2
    wide = (sd > 0.0) & ~far & (noise > SENSE.worst_noise * (1.0 + 20.0 / len(y)) * sd)
    found = []
    if far.any():
        of, worst = _outputs(far, error / np.where(far, spread, 1.0))
        found.append(
            f"its predictions{of} are further from the training targets than their mean is "
            f"(root mean square {error[worst]:.3g}; sd of y {spread[worst]:.3g})"
        )
    if wide.any():
        of, worst = _outputs(wide, noise / np.where(wide, sd, 1.0))
        found.append(
            f"the sd of its predictions{of} is larger than that of the targets "
            f"({noise[worst]:.3g}; sd of y {sd[worst]:.3g})"
        )
    if found:
        _nonsense(estimator, ", and ".join(found))


def check_classification(
    estimator: Any,
    proba: Array,
    log_proba: Array,
    codes: Array,
    mass: Array,
    n_directions: int,
    of: str = "",
) -> bool:
    """Warn if training rows are predicted worse than by the frequencies of the classes.

    Returns whether it warns. ``of`` says in the message which target this is.
    ``proba`` are the probabilities of some rows (rows, classes), averaged over draws, and
    ``log_proba`` averages of the logarithms of single draws' probabilities. A row stands for
    training rows with the total weight ``mass``. The data inform about at most
    ``n_directions`` of the parameters.

    Single draws are a nat times T / 2 worse than the best fit for each of these, summed over
    the training rows, while the best fit may be hardly better than the frequencies if X says
    little of y. Another nat is that of an intercept that next to nothing bounds on one side.
    Where one class is rare, or weights are small, this is as much as the log loss itself.
    Elsewhere it is little: draws of networks describe rows better than the frequencies do even
    if labels are random, with ratios of 0.06 to 0.92. Draws of steps that are too long can be
    far worse, although their average is near the frequencies.
    """
    total = float(mass.sum())
    if min(len(codes), total) < SENSE.fewest_rows:
        return False
    frequency = np.bincount(codes, mass) / total
    constant = -float(np.sum(frequency * np.log(np.where(frequency > 0.0, frequency, 1.0))))
    excess = 0.5 * max(_hottest(estimator), 1.0) * n_directions + 1.0
    allowed = SENSE.worst_error * constant + excess / total
    given = (np.arange(len(codes)), codes)
    for whose, logs in (
        ("its", np.log(np.maximum(proba, 1e-300))),
        ("single draws for its", log_proba),
    ):
        loss = -float(mass @ logs[given]) / total
        if constant > 0.0 and loss > allowed:
            _nonsense(
                estimator,
                f"the log loss of {whose} training rows{of} is larger than that of the classes' "
                f"frequencies ({loss:.3g}; {constant:.3g})",
            )
            return True
    return False


def _hottest(estimator: Any) -> float:
    """The higher one of the first and the last temperature."""
    from ..schedules import as_schedule

    ends = np.array([0, estimator.n_steps_ - 1])
    schedule = as_schedule("temperature", estimator.temperature)
    return float(schedule.values(ends, estimator.n_steps_).max())


def check_run(estimator: Any, run: Run) -> None:
    """Warn if the kinetic temperature is not that of the run."""
    heat = run.statistics.get("kinetic_temperature")
    if heat is None:
        return
    n_momenta = run.target.model.n_parameters * len(heat)
    low, high = chdtri(n_momenta, [1.0 - SENSE.rare_heat, SENSE.rare_heat]) / n_momenta
    if not (1.0 - SENSE.worst_heat) * low <= float(heat.mean()) <= (1.0 + SENSE.worst_heat) * high:
        _nonsense(
            estimator,
            f"the kinetic energy of its chains is {float(heat.mean()):.2f} times what the "
            f"temperature implies, so {_too_coarse(estimator)}",
        )


def check_drift(estimator: Any, run: Run) -> None:
    """Warn if the potential still falls while draws are kept."""
    fall = run.fall_of_potential() if run.tells else None
    if fall is not None:
        more_steps = "" if estimator.max_steps is None else " and a larger max_steps"
        longer = f"burn_in={run.n_steps} or more"
        if run.plan.by_distance is not None:  # whose steps are given
            longer = "a longer burn_in"
        warn(
            f"the chains of {short_name(estimator)} have not reached the posterior: while draws "
            f"were kept, their potential fell by {fall:.1f} of its standard deviations. Give "
            f"{longer}{more_steps}.",
            "the-chains-have-not-reached-the-posterior",
        )


def check_spread(estimator: Any, run: Run) -> None:
    """Warn if draws are spread as by a higher temperature."""
    found = run.excess_temperature() if run.tells else None
    if found is not None:
        _nonsense(
            estimator,
            f"its draws are spread as at {found:.3g} times the temperature, so "
            f"{_too_coarse(estimator)}",
        )


def check_strays(estimator: Any, run: Run) -> None:
    """Warn if a few draws are far from the posterior, where they decide predictive sds."""
    found = run.stray_draws() if run.tells else None
    if found is not None:
        share, lost = found
        _nonsense(
            estimator,
            f"chains left the posterior for a while. With {share:.1%} of the draws, the mean log "
            f"likelihood of training rows is lower than with others, by up to {lost:.3g}",
        )


def _too_coarse(estimator: Any) -> str:
    more_rows = "" if estimator._takes_all_rows else " or minibatches too small"
    return f"steps are too large{more_rows}"


def _nonsense(estimator: Any, what: str) -> None:
    if is_auto(estimator.step_size):
        larger = "" if estimator._takes_all_rows else "a larger batch_size, "
        remedy = f"{larger}a quarter of step_size_ as step_size, or another sampler"
    else:
        steps = f"{estimator._automatic_step} or a smaller step_size"
        remedy = f"{steps}, a longer burn_in, or another sampler"
    warn(
        f"{short_name(estimator)} does not describe its training data: {what}. Give {remedy}.",
        "the-fit-does-not-describe-its-data",
    )


def _outputs(which: Array, excess: Array) -> tuple[str, int]:
    """The outputs of a mask, for a message, and the one among them with the largest excess."""
    worst = int(np.argmax(np.where(which, excess, -np.inf)))
    if len(which) == 1:
        return "", worst
    numbers = [str(j) for j in np.flatnonzero(which)]
    if len(numbers) == 1:
        return f" of output {worst}", worst
    more = len(numbers) - SENSE.named
    last = numbers.pop() if more <= 0 else f"{more} more"
    named = ", ".join(numbers[: SENSE.named])
    return f" of outputs {named} and {last} (worst: {worst})", worst


def root_mean_square(values: Array) -> Array:
    """Of the rows (..., rows, columns); values may be too large for squares."""
    unit = np.maximum(values.max(axis=-2), np.finfo(float).tiny)
    return np.asarray(unit * np.sqrt(np.mean((values / unit[..., None, :]) ** 2, axis=-2)))


def some_rows(weight: Array, n: int = SENSE.sample_size) -> Array:
    """Indices of the training rows that are looked at, sorted; each stands for the same weight."""
    n = min(n, len(weight))
    reached = np.cumsum(weight, dtype=np.float64)
    return np.searchsorted(reached, (np.arange(n) + 0.5) / n * reached[-1])


def some_of_each(codes: Array, weight: Array) -> tuple[Array, Array]:
    """The same in equal parts for each class, and the weight that each of the rows stands for."""
    classes = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    classes = [rows for rows in classes if len(rows)]
    of_each, stands = max(1, SENSE.sample_size // len(classes)), np.zeros(len(codes))
    for rows in classes:
        chosen = rows[some_rows(weight[rows], of_each)]
        np.add.at(stands, chosen, weight[rows].sum() / len(chosen))
    chosen = np.flatnonzero(stands)
    return chosen, stands[chosen]
