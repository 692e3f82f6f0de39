"""Targets of survival models: times, or pairs of bounds of times."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import Array
from .._conversion import explained_conversion
from .._exceptions import not_allowed
from .._table_columns import missing_of
from .._validation import check_array, check_magnitude
from ._regressor import BayesianRegressor

#: the section of docs/warnings.md
SECTION = "bounds-of-times-are-not-allowed"


class TimesRegressor(BayesianRegressor):
    """Base class of regressors with likelihoods of times, which may be known by bounds only."""

    def _validate_xy(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        bounds = bounds_of(y) if self._family.times else None
        X, y = super()._validate_xy(X, y if bounds is None else bounds.max(axis=1), reset=reset)
        return X, y if bounds is None else bounds

    def _validate_targets(self, y: Any, n_rows: int) -> Array:
        if not self._family.times:
            return super()._validate_targets(y, n_rows)
        bounds = bounds_of(y)
        if len(bounds) != n_rows:
            raise not_allowed(
                f"y with {len(bounds)} rows is not allowed: give the times of the {n_rows} rows of "
                "X, or their bounds."
            )
        return bounds

    def _given(self, target: Array) -> Array:
        if not self._family.times:
            return super()._given(target)
        return np.where([False, True] & (target == 0.0), np.inf, target)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R², the share of the variance of y that :meth:`predict` explains.

        Parameters
        ----------
        X : array or table of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Targets.
        sample_weight : array of shape (n_samples,) or None, default=None
            Weights of the rows.

        Returns
        -------
        float
        """
        if self._family.times and np.ndim(y) == 2 and np.shape(y)[1] == 2:
            raise not_allowed(
                "y with bounds is not allowed in score: R² needs the times themselves. Take "
                "predict_log_density(X, y).mean() as the score.",
                SECTION,
            )
        return float(super().score(X, y, sample_weight))


def bounds_of(y: Any) -> Array:
    """Lower and upper bounds (rows, 2) of times; an upper bound of 0 stands for infinity."""
    with explained_conversion("y", y):
        found = check_array(
            y, dtype=np.float64, ensure_2d=False, ensure_all_finite=False, input_name="y"
        )
    columns = 1 if found.ndim == 1 else found.shape[1]
    if columns > 2:
        raise not_allowed(
            f"y with {columns} columns is not allowed: give times, or the lower and the upper "
            "bound of each, as by numpy.column_stack([lower, upper]).",
            SECTION,
        )
    low, high = np.broadcast_to(found.reshape(-1, columns), (len(found), 2)).T
    kinds = {
        "a missing bound": (
            missing_of(low) | missing_of(high),
            "give 0 for a lower bound that is not known, and inf for an upper one",
        ),
        "a bound that is no time": (
            (low < 0.0) | (high <= 0.0) | (low == np.inf),
            "give positive times, 0 as a lower or inf as an upper bound; for others, "
            "likelihood='normal'",
        ),
        "bounds in the wrong order": (low > high, "give the lower bound first"),
        "bounds that say nothing": (
            (low == 0.0) & (high == np.inf),
            "leave out rows with the bounds 0 and inf",
        ),
    }
    for what, (bad, remedy) in kinds.items():
        if bad.any():
            row = int(bad.argmax())
            value = f"{low[row]:g}" if columns == 1 else f"({low[row]:g}, {high[row]:g})"
            raise not_allowed(
                f"y with {what}, {value} in row {row}, is not allowed: {remedy}.", SECTION
            )
    bounds = np.column_stack([low, np.where(high == np.inf, 0.0, high)])
    check_magnitude("y", bounds)
    return bounds
