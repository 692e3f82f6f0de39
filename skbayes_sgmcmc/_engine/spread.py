"""Whether draws are spread as by a higher temperature, since steps were too long."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._arrays import Array
from .._data.scaling import NORMAL_QUARTILES
from .._draws.storage import decode
from .._limits import LIMITS
from .target import Target


@dataclass(frozen=True, slots=True)
class SpreadRules:
    """From where on draws are spread too far. The bound has its tests in tests/test_sense.py."""

    #: temperature of the positions over that of the run, beyond its Monte Carlo error
    worst: float = 1.5
    #: how far draws are moved from their mean to measure it: with 0.05, networks of 30 units seemed
    #: twice as hot
    moved: float = 0.01
    #: fewest draws of a chain that are moved, those that show where all is well, and most
    fewest_draws: int = 6
    few_draws: int = 12
    most_draws: int = 100
    #: temperatures beyond this are all the same
    hottest: float = 1e9


RULES = SpreadRules()


def excess_temperature(target: Target, draws: Array, temperature: float) -> float | None:
    """The temperature that draws (chains, draws, n_kept) imply, if it is more than the run's.

    It is in units of the run's. For any density exp(-S), the mean of (theta - its mean) . grad S is
    the number of parameters. Draws that have not seen the whole posterior have less. Steps that are
    too long have more, even if a cap on them (pSGLD) or an undoing (MCLMC) hides that they are.
    """
    d, n_rows = target.model.n_parameters, min(LIMITS.sampled_rows, target.data.n_rows)
    most = LIMITS.checked_products // (n_rows * d * len(draws))
    most = min(max(most, RULES.fewest_draws), RULES.most_draws, draws.shape[1])
    middle, error = 0.0, 0.0
    for k in sorted({min(RULES.few_draws, most), most}):
        middle, error = _implied(target, draws, temperature, k)
        if middle <= RULES.worst - 3.0 * error:
            return None  # a few draws are enough to see that
    return middle if middle > RULES.worst + 3.0 * error else None


def _implied(target: Target, draws: Array, temperature: float, k: int) -> tuple[float, float]:
    """Median over k draws of each chain of the temperature that one implies, and its error."""
    d = target.model.n_parameters
    some = np.linspace(0, draws.shape[1] - 1, k).astype(int)
    with np.errstate(all="ignore"):
        theta = decode(draws[:, some, :d]).astype(float)
        away = theta - theta.mean(axis=1, keepdims=True)
        less, more = (
            target.log_joint_of_rows((theta + step * away).reshape(-1, d), LIMITS.sampled_rows)
            for step in (-RULES.moved, RULES.moved)
        )
        # the mean of k draws is not that of all, which takes 1 / k of the spread away
        heat = (less - more).astype(float) / (2.0 * RULES.moved * d * temperature) * k / (k - 1)
    heat = heat[~np.isnan(heat)].clip(-RULES.hottest, RULES.hottest)
    if len(heat) == 0:
        return 0.0, 0.0
    low, middle = np.quantile(heat, [0.25, 0.5])
    # of the median of normal numbers; in networks their sd is up to twenty times sqrt(2 / d),
    # which is that of a normal density
    error = 1.25 * (middle - low) / (0.5 * NORMAL_QUARTILES) / math.sqrt(len(heat))
    return float(middle), float(error)
