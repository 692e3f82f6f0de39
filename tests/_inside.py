"""The only names of the package's inside that several test files need, each in one place.

``limits`` sets fields of ``_limits.LIMITS``, so that tests with few rows cross them.
``Interrupt``, a callback of scikit-learn, presses Ctrl-C in a fit.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
import signal
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import numpy as np

import skbayes_sgmcmc
from skbayes_sgmcmc._limits import LIMITS


@cache
def modules() -> list[ModuleType]:
    """All modules of the package but kernels, which need numba and have no limits."""
    found = pkgutil.walk_packages(skbayes_sgmcmc.__path__, "skbayes_sgmcmc.")
    names = [each.name for each in found if "._kernels" not in each.name]
    return [importlib.import_module(name) for name in names]


def having(name: str, home: str = "") -> list[ModuleType]:
    """The modules that define or import something; ``home``: expression of their last names."""
    found = [m for m in modules() if name in vars(m) and re.search(f"{home}$", m.__name__)]
    values = {id(vars(module)[name]) for module in found}
    assert len(values) == 1, f"say where {name!r} is: {[module.__name__ for module in found]}"
    return found


def inside(name):
    """A class or function, wherever it is."""
    return vars(having(name)[0])[name]


@contextmanager
def limits(**values):
    """Set fields of the package's limits until the end of the block."""
    before = {name: getattr(LIMITS, name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values):
    for name, value in values.items():
        setattr(LIMITS, name, value)


class Interrupt:
    """A callback that sends a signal once this share of a fit's steps is taken; Ctrl-C at first."""

    def __init__(self, share, number=signal.SIGINT):
        self.share, self.number = share, number

    def setup(self, estimator, context):
        """A shell's background jobs ignore Ctrl-C."""
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def teardown(self, estimator, context):
        pass

    on_fit_task_begin = teardown

    def on_fit_task_end(self, estimator, context):
        whole = context.parent.max_subtasks if context.parent else math.inf
        if (context.task_id + 1) / whole >= self.share:
            signal.raise_signal(self.number)


def streams(n_chains=1, seed=0):
    """The random numbers of chains."""
    from skbayes_sgmcmc._data.chain_random import ChainRandom

    return ChainRandom(np.random.SeedSequence(seed).spawn(n_chains))
