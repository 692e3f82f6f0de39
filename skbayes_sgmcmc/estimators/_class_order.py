"""Streams whose rows come class by class."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import Array
from .._exceptions import warn
from ._mixing import short_name

#: rows of a stream after which a class without a row is worth a warning
MANY_ROWS = 1000
#: probability that a call of a shuffled stream lacks a class, below which it is worth a warning
UNLIKELY = 1e-6


def check_classes(estimator: Any, codes: Array) -> None:
    """Warn once if the rows of a stream seem to come class by class, unless they are kept."""
    new, names = estimator._classes.counts(codes), estimator._classes.names
    seen = new if estimator._stream_classes is None else estimator._stream_classes + new
    warned, rows = estimator._order_warned, estimator._stream_rows or 0.0
    missing = [names[k] for k in np.flatnonzero(seen == 0)]
    chance = (1.0 - seen / seen[: estimator._classes.sizes[0]].sum()) ** len(codes)
    absent = [names[k] for k in np.flatnonzero((new == 0) & (chance < UNLIKELY))]
    what = ""
    if missing and rows >= MANY_ROWS > rows - len(codes):
        what = (
            f"the first {rows:.0f} rows of the stream of {short_name(estimator)} have no row of "
            f"the classes [{', '.join(missing)}]. If it is sorted by label"
        )
    elif absent:
        what = (
            f"a call of partial_fit of {short_name(estimator)} had {len(codes)} rows and none of "
            f"the classes [{', '.join(absent)}], which earlier calls had many of. If rows come "
            "class by class"
        )
    # rows that are kept can still be understood when the others have come
    wrong = bool(what) and estimator._chain_state.memory.rows is None
    if wrong and not warned:
        warn(
            f"{what}, its posterior will be wrong: shuffle its rows, or fit all of them (X may "
            "be a memory map).",
            "a-class-is-missing-from-a-stream",
        )
    estimator._stream_classes, estimator._order_warned = seen, warned or wrong
