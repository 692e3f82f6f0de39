"""Columns of X that are not features, such as exposures, and the parameters that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Columns:
    """The columns of X: features, and those that hold exposures, labels of groups and the like.

    Columns of labels hold codes once X has been checked: places in the list of labels that the fit
    has had, and -1 for others. Labels have no common type to which they could be rounded.

    Attributes
    ----------
    n_columns : int
        Number of all columns.
    names : list of str
        Their names, if X had any.
    given : dict of str to int, str or None
        Parameters that name one column each, by its index or its name.
    of_labels : dict of str to int, str, sequence or None
        Parameters that name one or several columns of labels.
    known : dict of int to list
        Labels of these columns, as Python objects: sorted ones, then those of later calls.
    """

    n_columns: int
    names: list[str]
    given: dict[str, Any]
    of_labels: dict[str, Any]
    known: Mapping[int, list[Any]]

    @classmethod
    def of(cls, estimator: Any) -> Columns:
        """The columns that parameters of an estimator name; of most, all columns are features."""
        given, of_labels = (
            {name: getattr(estimator, name) for name in parameters}
            for parameters in (estimator._column_parameters, estimator._label_parameters)
        )
        names = list(getattr(estimator, "feature_names_in_", []))
        return cls(estimator.n_features_in_, names, given, of_labels, estimator._known_labels)

    @property
    def labels(self) -> list[str]:
        """Names of all columns."""
        return self.names or [f"x{j}" for j in range(self.n_columns)]

    @property
    def labelled(self) -> dict[str, int]:
        """Indices of the columns that hold labels, by what names them in messages."""
        parts = [self.named(*item) for item in self.of_labels.items()]
        return {what: j for part in parts for what, j in part.items()}

    @property
    def special(self) -> dict[str, int]:
        """Columns that are not features, by the parameters that name them."""
        found = {k: self.find(k, v) for k, v in self.given.items() if v is not None}
        return found | self.labelled

    @property
    def features(self) -> list[int]:
        special = self.special.values()
        return [j for j in range(self.n_columns) if j not in special]

    @property
    def feature_labels(self) -> list[str]:
        labels = self.labels
        return [labels[j] for j in self.features]

    def find(self, parameter: str, given: Any) -> int:
        """Index of the column that ``given``, a value of this parameter, names."""
        if isinstance(given, str):
            if given in self.names:
                return self.names.index(given)
        elif isinstance(given, Integral) and not isinstance(given, bool):
            return check_int(parameter, given, low=0, high=self.n_columns - 1)
        raise not_allowed(
            f"{parameter}={given!r} is not allowed: give the index of a column of X, below "
            f"{self.n_columns}, the name of a column of a DataFrame, or None."
        )

    def named(self, parameter: str, given: Any) -> dict[str, int]:
        """Indices of the columns that a value of this parameter names, one or several."""
        given = [] if given is None else given if isinstance(given, (list, tuple)) else [given]
        return {f"{parameter}={each!r}": self.find(parameter, each) for each in given}

    def of_features(self, X: Any) -> Any:
        """The columns of X that are features."""
        special = list(self.special.values())
        return X[:, np.setdiff1d(np.arange(X.shape[1]), special)] if special else X

    def with_labels(self, X: Any) -> Any:
        """Checked rows with the labels that the user gave, in place of codes."""
        for j, labels in self.known.items():
            values = np.array(labels, dtype=object)[values_of(X, j).astype(int)]
            numeric = all(isinstance(label, Real) and float(label) == label for label in labels)
            X = with_column(X, j, values.astype(float) if numeric or sp.issparse(X) else values)
        return X


def values_of(X: Any, column: int) -> Array:
    """The numbers of one column."""
    values = X[:, [column]].toarray() if sp.issparse(X) else np.asarray(X[:, [column]][:])
    return np.asarray(values[:, 0], dtype=np.float64)


def check_columns_stay(estimator: Any) -> None:
    """Refuse fits by selectors, which drop columns and do not know their names."""
    named = (*estimator._column_parameters, *estimator._label_parameters)
    values = {name: getattr(estimator, name) for name in named}
    given = [f"{name}={value!r}" for name, value in values.items() if value is not None]
    if given and called_from(*SELECTORS):
        raise not_allowed(
            f"{given[0]} is not allowed inside RFE and SequentialFeatureSelector of "
            "scikit-learn: they fit to fewer and fewer columns, and this column would be left "
            "out or have another index. Give SelectFromModel, which fits once, and add the "
            "column to those that it selects."
        )


def with_codes(estimator: Any, X: Any, *, reset: bool, more: bool = False) -> Any:
    """X as it is given, with codes in place of the labels that columns hold.

    ``reset``: learn the labels from X. ``more``: give codes to new labels, too; otherwise they
    get -1.
    """
    if not estimator._label_parameters:
        return X
    if reset:
        estimator._known_labels = {}
    given = [name for name in estimator._label_parameters if getattr(estimator, name) is not None]
    if not given:
        return X
    if isinstance(X, StoredRows):
        raise not_allowed(
            f"{given[0]}={getattr(estimator, given[0])!r} is not allowed with X of type "
            f"{type(X.table).__name__}, which stays in its file: give X as an array."
        )
    X = X.tocsr() if sp.issparse(X) else X
    X = X if hasattr(X, "shape") else np.array(X, dtype=object)
    if len(X.shape) != 2 or X.shape[0] == 0:  # the error is scikit-learn's
        return X
    validate_data(estimator, X, reset=reset, skip_check_array=True)  # the names of the columns
    columns, known = estimator._columns, dict(estimator._known_labels)
    names = columns.labels
    for j in columns.labelled.values():
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
    estimator._known_labels = known
    return X


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
