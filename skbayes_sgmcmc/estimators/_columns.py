"""Columns of X that are not features, such as exposures, and the parameters that name them."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._exceptions import not_allowed
from .._validation import check_int

Array = NDArray[Any]


class NamedColumns:
    """Mixin of estimators with parameters that name columns of X which are not features."""

    n_features_in_: int
    #: parameters that name one such column each, by its index or its name
    _column_parameters: tuple[str, ...] = ()

    def _column_of(self, name: str, given: Any) -> int:
        """Index of the column that ``given``, a value of the parameter ``name``, names."""
        if isinstance(given, str):
            names = list(getattr(self, "feature_names_in_", []))
            if given in names:
                return names.index(given)
        elif isinstance(given, Integral) and not isinstance(given, bool):
            return check_int(name, given, low=0, high=self.n_features_in_ - 1)
        raise not_allowed(
            f"{name}={given!r} is not allowed: give the index of a column of X, below "
            f"{self.n_features_in_}, the name of a column of a DataFrame, or None."
        )

    def _values_of(self, X: Any, column: int) -> Array:
        values = X[:, [column]].toarray() if sp.issparse(X) else np.asarray(X[:, [column]][:])
        return np.asarray(values[:, 0], dtype=np.float64)

    def _special_columns(self) -> dict[str, int]:
        """Columns that are not features, by the parameters that name them."""
        given = {name: getattr(self, name) for name in self._column_parameters}
        return {k: self._column_of(k, v) for k, v in given.items() if v is not None}

    def _of_features(self, X: Any) -> Any:
        special = list(self._special_columns().values())
        return X[:, np.setdiff1d(np.arange(X.shape[1]), special)] if special else X

    def _feature_columns(self) -> list[int]:
        special = self._special_columns().values()
        return [j for j in range(self.n_features_in_) if j not in special]

    def _column_labels(self) -> list[str]:
        """Names of all columns of X."""
        labels: list[str] = super()._feature_labels()  # type: ignore[misc]
        return labels

    def _feature_labels(self) -> list[str]:
        labels = self._column_labels()
        return [labels[j] for j in self._feature_columns()]
