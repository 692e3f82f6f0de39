"""Streams whose rows are kept until a Gaussian says the same, which is then the prior of others."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._data.kept_rows import ROWS_PER_PARAMETER, KeptRows
from .._data.minibatch import Data, Minibatches
from .._exceptions import warn
from ..models._past import Mark, Past
from ..models._protocol import Model
from ..models._tuning import AutoValues

if TYPE_CHECKING:
    from .jobs import ChainState
    from .run import Run

Array = NDArray[Any]

#: fewest numbers, of all rows together, that become a Gaussian. It could be 2^12 for rows in random
#: order
LEAST_NUMBERS = 2**17
#: relative change of the curvature within a posterior sd above which it is no Gaussian
MOST_CHANGE = 0.3
#: standard deviations by which a chi-square may exceed its mean
FAR = 5.0
#: mean square of a coordinate of draws, in sds of the Gaussian, that tells they are not of it; of
#: few draws of one chain it is above 9 three times in a thousand
FAR_DRAWS = 9.0
#: expected error, in sds, of a Gaussian that is used far from its mean, which a warning tells
MOST_STRETCHED = 2.0


@dataclass(frozen=True)
class Call:
    """What a run has to know of a stream: its rows are those kept of earlier calls and new ones.

    Attributes
    ----------
    seen : float
        The sum of the weights of all rows so far, including the new ones.
    new : int
        Number of new rows.
    keep : bool
        Whether rows can be kept.
    """

    seen: float
    new: int
    keep: bool

    @classmethod
    def of(cls, data: Data, kept: KeptRows | None, seen: float, *, keep: bool) -> Call:
        """A call with ``data``, of which some are ``kept``, after rows of total weight ``seen``."""
        if kept is None:
            return cls(seen + data.total, data.n_rows, keep)
        return cls(seen + data.total - kept.total, data.n_rows - kept.n_rows, keep)


def without_rows(previous: ChainState | None) -> ChainState | None:
    """The state of a stream, in which a Gaussian says what the kept rows did."""
    return None if previous is None else replace(previous, rows=None)


def usable(previous: ChainState | None) -> AutoValues | None:
    """The coordinates of a stream's first call, which all calls use if rows are not summarised."""
    warm = None if previous is None else previous.warm
    return warm if warm is not None and warm.total is None else None


@dataclass(frozen=True)
class Summary:
    """What a call knows of earlier ones: the rows that are kept are among its own.

    Attributes
    ----------
    call : Call
        The call.
    earlier : AutoValues or None
        The Gaussian of the last call, if draws were those of it. They are moved to that of now.
    near : array or None
        Where the mean was, if the posterior was normal.
    past : Past or None
        The Gaussian of rows that are no longer kept. None: all are kept.
    marks : tuple of Mark
        Means given all rows of some calls.
    told : bool
        Whether a warning has said that the Gaussian of earlier rows is used too far away.
    """

    call: Call
    earlier: AutoValues | None = None
    near: Array | None = None
    past: Past | None = None
    marks: tuple[Mark, ...] = ()
    told: bool = False

    @classmethod
    def of(cls, previous: ChainState | None, stream: Call, data: Data) -> Summary | None:
        """None if the rows stand for others, or if the calls before this one kept no summary."""
        if data.total != stream.seen:
            return None
        if previous is None:
            return cls(stream)
        warm = previous.warm
        if warm is None or warm.total is None:
            return None
        past = warm.past() if previous.rows is None else previous.past
        usual = _are_draws_of(warm, previous)
        near = warm.center if previous.normal else None
        moving = warm if usual else None
        return cls(stream, moving, near, past, previous.marks, previous.told)

    def prior_of(self, model: Model) -> Model:
        """The model whose prior is what is known from rows that are no longer kept."""
        found: Model = model.after(self.past, self.near)
        return found

    def brought_along(self, previous: ChainState | None, warm: AutoValues) -> ChainState | None:
        """The chains' state where they would be in the posterior of now; None: begin anew."""
        if previous is None or self.earlier is None:
            return None
        there = replace(previous, theta=warm.moved(previous.theta, self.earlier))
        return without_rows(there)

    def added_to(self, run: Run, model: Model, data: Data, warm: AutoValues) -> Run:
        """A run with what later calls need to know."""
        change = _change_of_curvature(model, data, warm) if self.call.keep else math.inf
        normal = change < MOST_CHANGE
        settled = not self.call.keep or (
            normal and _are_many(model, data) and _is_settled(warm, self.marks, self.call.seen)
        )
        state = replace(
            run.state,
            past=None if settled else self.past,
            normal=normal,
            told=self._is_stretched(warm, change),
            marks=_marked(self.marks, warm, self.call.seen),
        )
        earlier = self.earlier
        moved = None if earlier is None else partial(warm.moved, earlier=earlier)
        return replace(run, state=state, filtered=True, moved=moved, settled=settled)

    def _is_stretched(self, warm: AutoValues, change: float) -> bool:
        """Whether the mean has left the region where the Gaussian of earlier rows holds; warn once.

        If the curvature changes by a share ``change`` within a sd, then the gradient of rows whose
        Gaussian is used z sds away is off by about change * z^2 / 2, in 1/sds.
        """
        if self.past is None or self.told or not self.call.keep:
            return self.told
        assert warm.center is not None
        distance, _ = self.past.potential(warm.center)  # half the square of z
        if distance * change < MOST_STRETCHED:
            return False
        warn(
            f"after {self.call.seen:g} rows, the posterior is {math.sqrt(2.0 * distance):.0f} sds "
            "from where earlier rows had it, and what is kept of these holds near there only. "
            "Means may be off by some sds: shuffle the rows of the stream, or fit all of them (X "
            "may be a memory map).",
            "the-rows-of-a-stream-are-not-in-random-order",
        )
        return True


def _are_draws_of(warm: AutoValues, previous: ChainState) -> bool:
    """Whether draws are as far from the mean as those of the Gaussian are.

    They are not where the posterior is no Gaussian, as while rows of a class have not come.
    """
    if previous.kept is None:
        return False
    theta = previous.kept[..., : previous.theta.shape[1]]
    squares = np.square(warm.whitened(theta)).mean((0, 1))
    return bool(squares.max() < FAR_DRAWS)


def _marked(marks: tuple[Mark, ...], warm: AutoValues, seen: float) -> tuple[Mark, ...]:
    """The last two marks, a new one of which is made when the rows have doubled."""
    if marks and seen < 2.0 * marks[-1].seen:
        return marks
    assert warm.center is not None
    return (*marks[-1:], Mark(seen, warm.center))


def _are_many(model: Model, data: Data) -> bool:
    """Whether rows are worth to be replaced by a Gaussian."""
    least = max(LEAST_NUMBERS, ROWS_PER_PARAMETER * model.n_parameters**2)
    return data.n_rows * Minibatches(data, 1).numbers >= least


def _change_of_curvature(model: Any, data: Data, warm: AutoValues) -> float:
    """Largest relative change of the curvature within a posterior sd: large while a class lacks."""
    assert warm.center is not None and warm.root is not None
    signs = np.random.default_rng(0).choice([-1.0, 1.0], model.n_parameters)
    away = warm.root @ signs / math.sqrt(data.total)
    here, *there = [
        model.hessian_diagonal(theta, data) + model.prior_hessian(theta)
        for theta in (warm.center, warm.center + away, warm.center - away)
    ]
    return float(max(np.abs(other / here - 1.0).max() for other in there))


def _is_settled(warm: AutoValues, marks: tuple[Mark, ...], seen: float) -> bool:
    """Whether the mean has stopped moving, so that a Gaussian may replace the rows.

    Rows in random order let it move, from when there were half of them, by what the posterior then
    left open, and no more. Rows in another order move it further, and what earlier rows say far
    from where the mean was then is not in a Gaussian.
    """
    early = [mark for mark in marks if mark.seen <= 0.5 * seen]
    if not early:
        return False
    away = warm.whitened(early[-1].mean)
    # the covariance of the move is that of the posterior then, without what is left of it now; of
    # rows in random order, information grows with their number
    left = early[-1].seen / seen
    moved = float(np.square(away).sum()) * left / (1.0 - left)
    return moved < len(away) + FAR * math.sqrt(2.0 * len(away))
