"""The method ``score`` of regressors."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from .._conversion import explained_conversion
from .._exceptions import not_allowed
from .._table_columns import check_no_mask, not_finite, of_tensor
from ._times import SECTION


def score(self: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Compute the coefficient of determination R^2 of the means.

    Parameters
    ----------
    X : array or table of shape (n_samples, n_features)
        Rows.
    y : array of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.
    sample_weight : array of shape (n_samples,) or None, default=None
        Weights of the rows.

    Returns
    -------
    float
        1 minus the mean squared error over the variance of the targets.
    """
    y = self._in_rows(y)
    if self._family.times and np.ndim(y) == 2 and np.shape(y)[1] == 2:
        raise not_allowed(
            "y with bounds is not allowed in score: R² needs the times themselves. Take "
            "predict_log_density(X, y).mean() as the score.",
            SECTION,
        )
    predicted, y = self.predict(X), of_tensor(y)
    with explained_conversion("y", y):
        if reason := not_finite("y", y):
            raise not_allowed(reason)
        check_no_mask("sample_weight", sample_weight)
        return float(r2_score(y, predicted, sample_weight=sample_weight))
