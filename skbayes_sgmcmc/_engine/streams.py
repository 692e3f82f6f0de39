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
#: relative change of the curvature within a posterior sd up to which the mean is a good start
MOST_CHANGE = 0.3
#: most parts of a stream that are looked at, and fewest, unless rows are too many to be kept; after
#: each part, there are at least an eighth more rows than before it
MARKS, LEAST_PARTS, SPACING = 8, 3, 1.125
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
    full : bool
        Whether there are more rows than can be kept.
    complete : bool
        Whether no class is missing, without which nothing is like it will be.
    """

    seen: float
    new: int
    keep: bool
    full: bool
    complete: bool


@dataclass(frozen=True)
class Joined:
    """The rows of a call of a stream: those that were kept of earlier ones, and new ones.

    Attributes
    ----------
    rows : KeptRows
        All of them.
    earlier : KeptRows or None
        Those of earlier calls.
    previous : ChainState or None
        The chains to continue.
    keep : bool
        Whether the new rows are few enough to be kept.
    n_parameters : int
        Number of parameters of the model.
    """

    rows: KeptRows
    earlier: KeptRows | None
    previous: ChainState | None
    keep: bool
    n_parameters: int

    @classmethod
    def of(cls, new: KeptRows, previous: ChainState | None, n_parameters: int) -> Joined:
        """New rows after those of earlier calls, which a Gaussian replaces if the new are many."""
        keep = new.are_few(n_parameters)
        if previous is not None and not keep:
            previous = replace(previous, rows=None)
        earlier = None if previous is None else previous.rows
        rows = new if earlier is None else earlier.and_new(new)
        return cls(rows, earlier, previous, keep, n_parameters)

    def call(self, data: Data, *, complete: bool) -> Call:
        """What a run has to know, given the rows as data."""
        seen, new = data.total, data.n_rows
        if self.previous is not None:
            seen += self.previous.rows_seen
        if self.earlier is not None:
            seen, new = seen - self.earlier.total, new - self.earlier.n_rows
        full = not self.rows.are_few(self.n_parameters)
        return Call(seen, new, self.keep, full, complete)

    def kept(self) -> KeptRows:
        """The rows that the next call needs."""
        return self.rows.at_most(self.n_parameters)

    def stand_for_many(self) -> bool:
        """Whether these stand for very many rows, which those of the last call did not yet."""
        return self.rows.stand_for_many(self.earlier, self.n_parameters)


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
        Where the mean was, if the posterior was nearly normal.
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
        usual = previous.complete and _are_draws_of(warm, previous)
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
        return replace(previous, theta=warm.moved(previous.theta, self.earlier), rows=None)

    def added_to(self, run: Run, model: Model, data: Data, warm: AutoValues) -> Run:
        """A run with what later calls need to know."""
        call, marks = self.call, _marked(self.marks, warm, self.call.seen)
        change = _change_of_curvature(model, data, warm) if call.keep else math.inf
        least = 1 if call.full else LEAST_PARTS
        settled = not call.keep or (
            call.complete and _are_many(model, data) and _is_settled(warm, marks, least)
        )
        state = replace(
            run.state,
            past=None if settled else self.past,
            complete=call.complete,
            normal=call.complete and change < MOST_CHANGE,
            told=self._is_stretched(warm, change),
            marks=marks,
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
    """The last marks, a new one of which is made when there are an eighth more rows."""
    if marks and seen < SPACING * marks[-1].seen:
        return marks
    assert warm.center is not None
    return (*marks[-MARKS:], Mark(seen, warm.center))


def _are_many(model: Model, data: Data) -> bool:
    """Whether rows are worth to be replaced by a Gaussian."""
    least = max(LEAST_NUMBERS, ROWS_PER_PARAMETER * model.n_parameters**2)
    return data.n_rows * Minibatches(data, 1).numbers >= least


def _change_of_curvature(model: Any, data: Data, warm: AutoValues) -> float:
    """Largest relative change of the curvature within a posterior sd.

    It is large while a class is missing, and for rare features.
    """
    assert warm.center is not None and warm.root is not None
    signs = np.random.default_rng(0).choice([-1.0, 1.0], model.n_parameters)
    away = warm.root @ signs / math.sqrt(data.total)
    here, *there = [
        model.hessian_diagonal(theta, data) + model.prior_hessian(theta)
        for theta in (warm.center, warm.center + away, warm.center - away)
    ]
    return float(max(np.abs(other / here - 1.0).max() for other in there))


def _is_settled(warm: AutoValues, marks: tuple[Mark, ...], least: int) -> bool:
    """Whether the mean moves no further than rows in random order let it, in parts of the stream.

    The mean of N rows is away from that of n of them by 1/n - 1/N, in units of one row's variance,
    and the moves in parts of the stream are independent. Rows in another order move it further, and
    what earlier rows say far from where the mean was then is not in a Gaussian.
    """
    last = len(marks) - 1
    if last < least:
        return False
    now, d = marks[-1].seen, len(marks[-1].mean)
    places = [warm.whitened(mark.mean) for mark in marks]  # in sds of now
    left = [now / mark.seen for mark in marks]  # variances of what was not known then

    def moved(i: int, j: int) -> float:
        return float(np.square(places[j] - places[i]).sum()) / (left[i] - left[j])

    parts = sum(moved(i, i + 1) for i in range(last))
    return moved(0, last) < _limit(d) and parts < _limit(last * d)


def _limit(n: int) -> float:
    """What a chi-square of ``n`` degrees of freedom hardly exceeds."""
    return n + FAR * math.sqrt(2.0 * n)
