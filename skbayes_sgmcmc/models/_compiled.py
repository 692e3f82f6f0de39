"""What compiled slopes need to know of a likelihood of one output."""

from __future__ import annotations

from typing import Any, NamedTuple


class Own(NamedTuple):
    """A number that all rows share.

    Attributes
    ----------
    shift : float
        The number, or what is added to the next of the likelihood's own parameters.
    given : bool
        Whether it is the number.
    """

    shift: float
    given: bool = False


class Compiled(NamedTuple):
    """A likelihood of one output.

    Attributes
    ----------
    name : str
        Name of a function of ``_kernels/slopes.py``.
    shift, target, weight : float or array of shape (rows,)
        What is added to predictors, the targets, and factors of the log likelihoods of rows.
    own : tuple of Own
        The numbers that all rows share.
    """

    name: str
    shift: Any
    target: Any
    weight: Any = 1.0
    own: tuple[Own, ...] = ()
