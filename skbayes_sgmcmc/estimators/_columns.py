"""Columns of X that are not features, such as exposures, and the parameters that name them."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.rows import StoredRows
from .._exceptions import not_allowed
from .._labels import codes_of, label_array
from .._pipelines import called_from
from .._table_columns import column_of, with_column
from .._validation import check_int, validate_data

Array = NDArray[Any]

#: what to do with a row without a label
MISSING_LABEL = "Leave the row out, or fill in a label of its own, for instance by fillna of pandas"
#: modules of scikit-learn's selectors that fit an estimator to fewer and fewer columns
SELECTORS = "sklearn.feature_selection._rfe", "sklearn.feature_selection._sequential"
#: whole numbers below it are exact in float32: codes, and labels in exported modules
LARGEST_CODE = 2**24


class NamedColumns:
    """Mixin of estimators with parameters that name columns of X which are not features.

    Columns of labels hold codes once X has been checked: places in the list of labels that the fit
    has had, and -1 for others. Labels have no common type to which they could be rounded.
    """

    n_features_in_: int
    #: parameters that name one such column each, by its index or its name
    _column_parameters: tuple[str, ...] = ()
    #: parameters that name one or several columns of labels
    _label_parameters: tuple[str, ...] = ()
    #: labels of the columns of labels, as Python objects: sorted ones, then those of later calls
    _known_labels: dict[int, list[Any]]

    def _label_columns(self) -> dict[str, int]:
        """Indices of the columns that hold labels, by what names them in messages."""
        parts = [self._named_columns(name) for name in self._label_parameters]
        return {what: j for part in parts for what, j in part.items()}

    def _named_columns(self, parameter: str) -> dict[str, int]:
        """Indices of the columns that a parameter names, one or several."""
        given = getattr(self, parameter)
        given = [] if given is None else given if isinstance(given, (list, tuple)) else [given]
        return {f"{parameter}={each!r}": self._column_of(parameter, each) for each in given}

    def _check_columns_stay(self) -> None:
        """Refuse fits by selectors, which drop columns and do not know their names."""
        named = (*self._column_parameters, *self._label_parameters)
        given = [
            f"{name}={getattr(self, name)!r}" for name in named if getattr(self, name) is not None
        ]
        if given and called_from(*SELECTORS):
            raise not_allowed(
                f"{given[0]} is not allowed inside RFE and SequentialFeatureSelector of "
                "scikit-learn: they fit to fewer and fewer columns, and this column would be left "
                "out or have another index. Give SelectFromModel, which fits once, and add the "
                "column to those that it selects."
            )

    def _with_codes(self, X: Any, *, reset: bool, more: bool = False) -> Any:
        if reset:
            self._known_labels = {}
        given = [name for name in self._label_parameters if getattr(self, name) is not None]
        if not given:
            return X
        if isinstance(X, StoredRows):
            raise not_allowed(
                f"{given[0]}={getattr(self, given[0])!r} is not allowed with X of type "
                f"{type(X.table).__name__}, which stays in its file: give X as an array."
            )
        X = X.tocsr() if sp.issparse(X) else X
        X = X if hasattr(X, "shape") else np.array(X, dtype=object)
        if len(X.shape) != 2 or X.shape[0] == 0:  # the error is scikit-learn's
            return X
        validate_data(self, X, reset=reset, skip_check_array=True)  # the names of the columns
        known = dict(self._known_labels)
        names = self._column_labels()
        for j in self._label_columns().values():
            where = f" in column {names[j]!r}"
            values = label_array("X", column_of(X, j), where, MISSING_LABEL)
            if reset:
                known[j] = _sorted(values, names[j])
            if isinstance(values[0], str) != isinstance(known[j][0], str):
                raise not_allowed(
                    f"X is not allowed: column {names[j]!r} has the label {values[0]!r}, and those "
                    f"of fit are like {known[j][0]!r}. Give labels of one type, numbers or text."
                )
            codes = codes_of(values, known[j])
            if more and (codes < 0).any():
                known[j] = known[j] + _sorted(values[codes < 0], names[j])
                codes = codes_of(values, known[j])
            X = with_column(X, j, codes.astype(np.float32))
        self._known_labels = known
        return X

    def _with_labels(self, X: Any) -> Any:
        for j, labels in self._known_labels.items():
            values = np.array(labels, dtype=object)[self._values_of(X, j).astype(int)]
            numeric = all(isinstance(label, Real) and float(label) == label for label in labels)
            X = with_column(X, j, values.astype(float) if numeric or sp.issparse(X) else values)
        return X

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


def _sorted(values: Array, name: str) -> list[Any]:
    """Labels of a column, each once, as Python objects."""
    if values.dtype.kind not in "mM":  # as objects, these depend on their unit
        try:
            return [v.item() if isinstance(v, np.generic) else v for v in np.unique(values)]
        except TypeError:  # texts and numbers
            pass
    raise not_allowed(
        f"X is not allowed: column {name!r} holds dates, durations, or labels of several types. "
        "Give whole numbers or text, for instance by .astype(str) of pandas."
    )
