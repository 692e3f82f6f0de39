"""The parameters ``exposure``, ``offset`` and ``n_trials``: what is known of each row.

The first two are added to its linear predictor. What all offsets have in common is a part of the
intercept. The model therefore sees them minus a centre, which the first rows determine: ranges of
floating-point numbers, and searches for the maximum, then depend on the differences between rows
only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._arrays import Array
from ..._exceptions import not_allowed, size_not_allowed
from .._likelihoods import Family
from .columns import Columns, values_of

#: logarithms of the factors of means beyond which no target could agree with them
LARGEST_OFFSET = 300.0


def check_known(family: Family, likelihood: Any, exposure: Any, n_trials: Any) -> None:
    """Raise ``ValueError`` for exposures or trials that rows of this likelihood do not have."""
    if exposure is not None and not family.counts:
        raise not_allowed(
            f"exposure={exposure!r} is not allowed with likelihood={likelihood!r}: "
            "only rates of counts have one; give exposure=None."
        )
    if n_trials is not None and not family.trials:
        raise not_allowed(
            f"n_trials={n_trials!r} is not allowed with likelihood={likelihood!r}: "
            "give n_trials=None, or likelihood='binomial'."
        )


def offsets_of(columns: Columns, X: Any) -> Array | None:
    """What columns of X add to f, in units of users; None if there are none."""
    special = columns.special
    offsets = [values_of(X, special["offset"])] if "offset" in special else []
    if "exposure" in special:
        exposure = values_of(X, special["exposure"])
        if not (exposure > 0.0).all():
            raise not_allowed(
                f"X with the exposure {exposure.min():g} is not allowed: give positive numbers in "
                f"column {columns.given['exposure']!r}."
            )
        offsets.append(np.log(exposure))
    return np.sum(offsets, axis=0) if offsets else None


def trials_of(columns: Columns, X: Any) -> Array:
    """Numbers of trials of rows, (rows, 1): one each if no column of X has them."""
    column = columns.special.get("n_trials")
    trials = np.ones(X.shape[0]) if column is None else values_of(X, column)
    bad = trials[(trials < 0.0) | (trials != np.floor(trials))]
    if len(bad):
        raise not_allowed(
            f"n_trials with the value {bad[0]:g} is not allowed: give whole numbers, 0 or more, in "
            f"column {columns.given['n_trials']!r}."
        )
    return trials[:, None]


def center_of(offset: Array, weight: Array | None, link: str) -> float:
    """The centre of the offsets of the first rows."""
    if link != "log":
        return float(np.average(offset, weights=weight))
    largest = float(offset.max())  # the mean of factors exp(offset), relative to the largest
    factors = np.exp(offset - largest)
    return largest + math.log(np.average(factors, weights=weight))


def check_offsets(columns: Columns, away: Array, y: Array, *, fit_intercept: bool) -> None:
    """Raise ``ValueError`` if a row's offset is beyond what its target could tell.

    ``away`` are offsets relative to their centre, for a logarithmic link.
    """
    far = (away > LARGEST_OFFSET) | ((away < -LARGEST_OFFSET) & (y[:, 0] > 0.0))
    if far.any():
        row = int(far.argmax())
        names = " and ".join(n for n in ("exposure", "offset") if columns.given[n] is not None)
        constant = "" if fit_intercept else ", or fit_intercept=True if it is a constant"
        raise size_not_allowed(
            f"{names} of row {row} of X is not allowed: it multiplies the mean of y = "
            f"{y[row, 0]:g} by exp({away[row]:.4g}), relative to typical rows of the first call. "
            f"Give values that differ less between rows{constant}."
        )
