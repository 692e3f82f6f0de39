"""The only names of the package's inside that several test files need, each in one place.

``limits`` sets limits of memory and of blocks, so that tests with few rows cross them.
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

import skbayes_sgmcmc

#: name in the tests -> the constant, in all modules that have it, or in some (a regular expression)
LIMITS = {
    # the loop over steps, and its files
    "chunk_steps": "LONG_CHUNK",
    "chunk_numbers": "CHUNK_NUMBERS",
    "write_seconds": "EVERY_SECONDS",
    "write_share": "WRITE_SHARE",
    "look_seconds": "LOOK_EVERY",
    "shared_bytes": "SHARED_BYTES",
    # rows
    "held_bytes": "HELD_BYTES",
    "read_at_once": "READ_AT_ONCE",
    "read_bytes": "READ_BYTES",
    "whole_bytes": "WHOLE_BYTES",
    "sparse_block": "SPARSE_BLOCK",
    "gathered_numbers": "GATHER_NUMBERS",
    "pool_numbers": "POOL_NUMBERS",
    "pool_runs": "LEAST_RUNS",
    "row_block": "minibatch.BLOCK_NUMBERS",
    "row_block_rows": "minibatch.BLOCK_ROWS",
    "searched_rows": "row_odds.MANY_ROWS",
    "statistics_rows": "STATISTICS_ROWS",
    # streams
    "kept_numbers": "KEPT_NUMBERS",
    "kept_per_parameter": "ROWS_PER_PARAMETER",
    "stream_numbers": "LEAST_NUMBERS",
    "most_stretched": "MOST_STRETCHED",
    # linear models and topics
    "full_hessian": "FULL_HESSIAN_LIMIT",
    "plain_axes": "rotated.FULL_HESSIAN_LIMIT",
    "part_rows": "PART_ROWS",
    "evidence_fits": "MOST_FITS",
    "evidence_change": "SAME_SCALE",
    "few_topics": "FEW_TOPICS",
    "tokens": "MOST_TOKENS",
    # networks and predictions
    "activations": "ACTIVATION_NUMBERS",
    "prediction_block": "(prediction|_linear|_sparse).BLOCK_NUMBERS",
    "attacked_rows": "_adversarial.ROWS",
    "curve_numbers": "MOST_NUMBERS",
    "mixing_block": "AT_ONCE",
    "latent_rows": "ROW_NUMBERS",
    "gain_block": "GAIN_BLOCK",
    # compiled steps, which few numbers are not worth
    "padding": "PADDING_LIMIT",
    "worth_words": "WORTH_WORDS",
    "worth_steps": "fused_steps.WORTH_NUMBERS",
    "worth_turns": "fused_turns.WORTH_NUMBERS",
    "threads_of_steps": "fused_steps.THREAD_NUMBERS",
    "threads_of_turns": "fused_turns.THREAD_NUMBERS",
}


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


@cache
def places() -> dict[str, tuple[str, list[ModuleType]]]:
    """The constant of every limit, and the modules that have it."""
    split = {name: place.rpartition(".") for name, place in LIMITS.items()}
    return {name: (constant, having(constant, home)) for name, (home, _, constant) in split.items()}


def limit(name):
    """The value of a limit."""
    constant, modules = places()[name]
    return vars(modules[0])[constant]


@contextmanager
def limits(**values):
    """Set limits until the end of the block."""
    before = {name: limit(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values):
    for name, value in values.items():
        constant, modules = places()[name]
        for module in modules:
            setattr(module, constant, value)


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
