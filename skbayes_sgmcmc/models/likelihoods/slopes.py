"""What compiled slopes need to know of a likelihood of one output."""

from __future__ import annotations

from typing import Any, NamedTuple


class Own(NamedTuple):
    """A number that all rows share."""

    #: the number, or what is added to the next of the likelihood's own parameters
    shift: float
    #: whether it is the number
    given: bool = False


class Compiled(NamedTuple):
    """A likelihood of one output."""

    #: name of a function of ``_kernels/slopes.py``
    name: str
    #: what is added to predictors, the targets, and factors of log likelihoods: numbers, or (rows,)
    shift: Any
    target: Any
    weight: Any = 1.0
    #: the numbers that all rows share
    own: tuple[Own, ...] = ()
