"""Step sizes and temperatures as functions of the step number, which is counted from 0.

Every schedule is a scikit-learn ``BaseEstimator``, so its parameters can be searched, e.g. with
``GridSearchCV(clf, {"step_size__first": [1e-3, 1e-2]})``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ._arrays import Array
from ._exceptions import not_allowed, undefined
from ._sklearn import BaseEstimator
from ._validation import check_int, check_real, check_unless

__all__ = [
    "AtLeast",
    "BlockDecay",
    "Constant",
    "Cyclical",
    "Exponential",
    "MixingDistance",
    "MultiStep",
    "Polynomial",
    "Schedule",
    "as_schedule",
]


class Schedule(BaseEstimator):
    """Base class of schedules, which give a positive value for every step of a run."""

    #: whether posterior averages weight each draw by its step size (Welling & Teh 2011, sec. 4.2)
    weights_draws = True

    def values(self, steps: Array, n_steps: int) -> Array:
        """Values at the step numbers ``steps``, an int array, of a run of ``n_steps`` steps."""
        raise undefined(self, "values(steps, n_steps)")

    def exploring(self, steps: Array, n_steps: int) -> Array:
        """Mask of the steps that only explore, without injected noise and without draws."""
        return np.zeros(len(steps), dtype=bool)

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter of this schedule is not allowed."""
        found = self.values(np.arange(3), 3)
        if getattr(found, "shape", None) != (3,):
            raise not_allowed(
                f"{name}={self!r} is not allowed: its values for the steps [0, 1, 2] are "
                f"{found!r}. Return an array with a value for each step."
            )


class Constant(Schedule):
    """Constant schedule, with the same value at every step.

    Parameters
    ----------
    value : float, default=1.0
        The value. It must be positive, except that a temperature may be 0.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.schedules import Constant
    >>> Constant(0.1).values(np.arange(2), 2)
    array([0.1, 0.1])
    """

    weights_draws = False

    def __init__(self, value: float = 1.0):
        self.value = value

    def values(self, steps: Array, n_steps: int) -> Array:
        return np.full(len(steps), float(self.value))

    def check(self, name: str) -> None:
        check_real(name, self.value, low=0.0, closed="left" if name == "temperature" else "neither")


class Polynomial(Schedule):
    """Polynomial decay a (b + t)^(-gamma), given by its first and last value or by a and b.

    Parameters
    ----------
    first, last : float or None, default=None
        Values at the first step and at the last step. They determine a and b.
    gamma : float, default=0.55
        Decay exponent, positive. Welling & Teh (2011) require a value in (0.5, 1].
    a, b : float or None, default=None
        Constants of the formula. Give either ``a`` and ``b`` or ``first`` and ``last``.

    References
    ----------
    Welling & Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.schedules import Polynomial
    >>> schedule = Polynomial(first=1e-2, last=1e-4, gamma=0.55)
    >>> schedule.values(np.array([0, 999]), 1000).round(6)
    array([0.01  , 0.0001])
    """

    def __init__(
        self,
        first: float | None = None,
        last: float | None = None,
        gamma: float = 0.55,
        a: float | None = None,
        b: float | None = None,
    ):
        self.first = first
        self.last = last
        self.gamma = gamma
        self.a = a
        self.b = b

    def values(self, steps: Array, n_steps: int) -> Array:
        a, b = self._constants(n_steps)
        return np.asarray(a * (b + steps) ** (-self.gamma))

    def _constants(self, n_steps: int) -> tuple[float, float]:
        if self.a is not None and self.b is not None:
            return float(self.a), float(self.b)
        assert self.first is not None and self.last is not None  # check() ensures this
        if self.first == self.last:
            raise not_allowed("Polynomial(first == last) is constant: use Constant(value).")
        # first = a b^-gamma and last = a (b + n - 1)^-gamma
        ratio = (self.first / self.last) ** (1.0 / self.gamma)
        b = max(n_steps - 1, 1) / (ratio - 1.0)
        return self.first * b**self.gamma, b

    def check(self, name: str) -> None:
        check_real(f"{name}.gamma", self.gamma, low=0.0)
        ends, constants = (self.first, self.last), (self.a, self.b)
        if None not in ends and constants == (None, None):
            last = check_real(f"{name}.last", self.last, low=0.0)
            check_real(f"{name}.first", self.first, low=last)
        elif None not in constants and ends == (None, None):
            check_real(f"{name}.a", self.a, low=0.0)
            check_real(f"{name}.b", self.b, low=0.0)
        else:
            raise not_allowed(
                f"{name}=Polynomial(first={self.first!r}, last={self.last!r}, a={self.a!r}, "
                f"b={self.b!r}) is not allowed: give both first and last, or both a and b."
            )


class Exponential(Schedule):
    """Exponential schedule first * rate^t, given by its rate or by its last value.

    Parameters
    ----------
    first : float, default=1.0
        Value at step 0.
    last : float or None, default=None
        Value at the last step of the run.
    rate : float or None, default=None
        Factor from one step to the next. A rate above 1 makes the values grow. Give either
        ``rate`` or ``last``.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.schedules import Exponential
    >>> Exponential(1.0, last=0.01).values(np.array([0, 50, 100]), 101)
    array([1.  , 0.1 , 0.01])
    """

    def __init__(self, first: float = 1.0, last: float | None = None, rate: float | None = None):
        self.first = first
        self.last = last
        self.rate = rate

    def values(self, steps: Array, n_steps: int) -> Array:
        if self.rate is not None:
            return np.asarray(self.first * float(self.rate) ** steps)
        assert self.last is not None  # check() ensures this
        return np.asarray(self.first * (self.last / self.first) ** (steps / max(n_steps - 1, 1)))

    def check(self, name: str) -> None:
        check_real(f"{name}.first", self.first, low=0.0)
        if (self.last is None) == (self.rate is None):
            raise not_allowed(
                f"{name}=Exponential(last={self.last!r}, rate={self.rate!r}) is not allowed: "
                "give exactly one of last and rate."
            )
        key = "last" if self.rate is None else "rate"
        check_real(f"{name}.{key}", getattr(self, key), low=0.0)


class BlockDecay(Schedule):
    """Step decay: the value is multiplied by ``factor`` after every block of ``every`` steps.

    Li et al. (2016) halve the step size every L epochs.

    Parameters
    ----------
    first : float, default=1.0
        Value of the first block.
    every : int, default=1000
        Number of steps in a block.
    factor : float, default=0.5
        Factor from one block to the next.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.schedules import BlockDecay
    >>> BlockDecay(1.0, every=2).values(np.arange(5), 5)
    array([1.  , 1.  , 0.5 , 0.5 , 0.25])
    """

    def __init__(self, first: float = 1.0, every: int = 1000, factor: float = 0.5):
        self.first = first
        self.every = every
        self.factor = factor

    def values(self, steps: Array, n_steps: int) -> Array:
        return np.asarray(self.first * float(self.factor) ** (steps // self.every))

    def check(self, name: str) -> None:
        check_real(f"{name}.first", self.first, low=0.0)
        check_int(f"{name}.every", self.every)
        check_real(f"{name}.factor", self.factor, low=0.0)


class MultiStep(Schedule):
    """Step decay: the value is multiplied by ``factor`` at each of the given steps.

    Parameters
    ----------
    first : float, default=1.0
        Value before the first milestone.
    milestones : sequence of int, default=()
        Step numbers, in ascending order.
    factor : float, default=0.1
        Factor at each milestone.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.schedules import MultiStep
    >>> MultiStep(1.0, milestones=(2, 3), factor=0.5).values(np.arange(4), 4)
    array([1.  , 1.  , 0.5 , 0.25])
    """

    def __init__(self, first: float = 1.0, milestones: Sequence[int] = (), factor: float = 0.1):
        self.first = first
        self.milestones = milestones
        self.factor = factor

    def values(self, steps: Array, n_steps: int) -> Array:
        passed = np.searchsorted(np.asarray(self.milestones), steps, side="right")
        return np.asarray(self.first * float(self.factor) ** passed)

    def check(self, name: str) -> None:
        check_real(f"{name}.first", self.first, low=0.0)
        check_real(f"{name}.factor", self.factor, low=0.0)
        if not isinstance(self.milestones, Iterable):
            raise not_allowed(
                f"{name}.milestones={self.milestones!r} is not allowed: give a list of steps."
            )
        for milestone in self.milestones:
            check_int(f"{name}.milestones", milestone)
        if list(self.milestones) != sorted(self.milestones):
            raise not_allowed(
                f"{name}.milestones={self.milestones!r} is not allowed: give ascending steps."
            )


class AtLeast(Schedule):
    """A schedule that falls until ``least`` and stays there.

    Welling & Teh (2011) keep the step size constant once it is so small that a Metropolis-Hastings
    test would reject next to nothing, so that the chain does not slow down any further.

    Parameters
    ----------
    schedule : Schedule
        The schedule that falls.
    least : float
        The smallest value, positive.

    References
    ----------
    Welling & Teh (2011), section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.schedules import AtLeast, Exponential
    >>> AtLeast(Exponential(1.0, rate=0.5), 0.2).values(np.arange(5), 5)
    array([1.  , 0.5 , 0.25, 0.2 , 0.2 ])
    """

    def __init__(self, schedule: Schedule, least: float):
        self.schedule = schedule
        self.least = least

    @property
    def weights_draws(self) -> bool:  # type: ignore[override]
        return self.schedule.weights_draws

    def values(self, steps: Array, n_steps: int) -> Array:
        return np.maximum(self.schedule.values(steps, n_steps), self.least)

    def exploring(self, steps: Array, n_steps: int) -> Array:
        return self.schedule.exploring(steps, n_steps)

    def check(self, name: str) -> None:
        if not isinstance(self.schedule, Schedule):
            raise not_allowed(
                f"{name}.schedule={self.schedule!r} is not allowed: give a schedule, such as "
                "Polynomial(first=0.1, last=0.001)."
            )
        self.schedule.check(f"{name}.schedule")
        check_real(f"{name}.least", self.least, low=0.0)


class Cyclical(Schedule):
    """Cyclical cosine schedule, which falls from ``first`` to 0 in each cycle.

    The first part of each cycle explores, without injected noise; the second part samples.

    Parameters
    ----------
    first : float, default=1.0
        Value at the start of each cycle.
    n_cycles : int, default=4
        Number of cycles in the run.
    exploration : float, default=0.5
        Fraction of each cycle that explores. No draws are kept there, so a run keeps about
        ``(1 - exploration) * n_draws`` draws.

    References
    ----------
    Zhang, Li, Zhang, Chen & Wilson (2020), Cyclical stochastic gradient MCMC for Bayesian deep
    learning.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc.schedules import Cyclical
    >>> schedule = Cyclical(1.0, n_cycles=2)
    >>> schedule.values(np.arange(4), 4)
    array([1. , 0.5, 1. , 0.5])
    >>> schedule.exploring(np.arange(4), 4)
    array([ True, False,  True, False])
    """

    weights_draws = False

    def __init__(self, first: float = 1.0, n_cycles: int = 4, exploration: float = 0.5):
        self.first = first
        self.n_cycles = n_cycles
        self.exploration = exploration

    def _position(self, steps: Array, n_steps: int) -> Array:
        length = -(-n_steps // self.n_cycles)
        return np.asarray((steps % length) / length)

    def values(self, steps: Array, n_steps: int) -> Array:
        return 0.5 * self.first * (np.cos(np.pi * self._position(steps, n_steps)) + 1.0)

    def exploring(self, steps: Array, n_steps: int) -> Array:
        return np.asarray(self._position(steps, n_steps) < self.exploration)

    def check(self, name: str) -> None:
        check_real(f"{name}.first", self.first, low=0.0)
        check_int(f"{name}.n_cycles", self.n_cycles)
        check_real(f"{name}.exploration", self.exploration, low=0.0, high=1.0, closed="left")


def as_schedule(name: str, value: float | Schedule) -> Schedule:
    """Check a number or a schedule, and return it as a schedule.

    Parameters
    ----------
    name : str
        Name of the parameter, for error messages. The value of ``"temperature"`` may be 0.
    value : float or Schedule
        The value to check. A number stands for a constant schedule.

    Returns
    -------
    Schedule

    Examples
    --------
    >>> from skbayes_sgmcmc.schedules import as_schedule
    >>> as_schedule("step_size", 0.1)
    Constant(value=0.1)
    """
    schedule = value if isinstance(value, Schedule) else Constant(value)
    schedule.check(name)
    return schedule


def number_if_constant(value: Any) -> Any:
    """The number that a constant schedule stands for; other values as they are."""
    return value.value if isinstance(value, Constant) else value


class MixingDistance(BaseEstimator):
    """Thinning by mixing distance (Welling & Teh 2011); give it as ``thinning``.

    A draw is kept each time the step sizes since the last draw add up to a distance D0. Collection
    starts when the sampling threshold alpha_t first falls below ``noise_ratio``, and D0 is the step
    size at that time. Steps that only explore do not count.

    Parameters
    ----------
    n_steps : int, default=10000
        Number of steps of the run. An automatic burn-in takes at most half of them. ``n_draws`` is
        then the largest number of draws kept per chain.
    noise_ratio : float, default=0.1
        Bound on alpha_t, the ratio of the gradient noise to the injected noise.
    distance : float or None, default=None
        D0. If given, collection starts at the end of burn-in instead.

    References
    ----------
    Welling & Teh (2011), sections 4.1 and 5.3.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianLogisticRegression, MixingDistance
    >>> from skbayes_sgmcmc.schedules import Polynomial
    >>> clf = BayesianLogisticRegression(
    ...     step_size=Polynomial(first=1.0, last=0.01),
    ...     thinning=MixingDistance(n_steps=5000),
    ... )
    """

    def __init__(
        self, n_steps: int = 10000, noise_ratio: float = 0.1, distance: float | None = None
    ):
        self.n_steps = n_steps
        self.noise_ratio = noise_ratio
        self.distance = distance

    def check(self, name: str) -> None:
        check_int(f"{name}.n_steps", self.n_steps)
        check_real(f"{name}.noise_ratio", self.noise_ratio, low=0.0)
        check_unless(None, check_real, f"{name}.distance", self.distance, low=0.0)
