"""Columns of X that are not features, such as exposures, and the parameters that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..._arrays import Array
from ..._data.rows import StoredRows
from ..._exceptions import listed, not_allowed
from ..._labels import codes_of, label_array, label_text
from ..._pipelines import called_from
from ..._table_columns import (
    as_array,
    column_of,
    first_not_finite,
    is_table,
    missing_of,
    missing_value,
    with_column,
)
from ..._validation import brief, check_sample_weight, is_whole, validate_data
from .encoding import PLAIN, Encoding, learned

#: what to do with a row without a label
MISSING_LABEL = "Leave the row out, or fill in a label of its own, for instance by fillna of pandas"
#: what to do with numbers or labels of rows where a column is to be named
OF_ROWS = "What is known of each row is a column of X: add it there, and name it."
#: modules of scikit-learn's selectors that fit an estimator to fewer and fewer columns
SELECTORS = "sklearn.feature_selection._rfe", "sklearn.feature_selection._sequential"


@dataclass(frozen=True)
class Columns:
    """The columns of X: features, and those that hold exposures, labels of groups and the like.

    Columns of labels hold codes once X has been checked: places in the list of labels that the fit
    has had, and -1 for others. Labels have no common type that could round them.

    Indices are those of checked rows, which may have several columns for one of X: see
    :class:`Encoding`.
    """

    #: number of all columns of X, and their names, if X had any
    n_columns: int
    names: list[str]
    #: parameters that name one column each, by its index or its name; None: not given
    given: dict[str, Any]
    #: parameters that name one or several columns of labels
    of_labels: dict[str, Any]
    #: labels of these columns, as Python objects: sorted ones, then those of later calls
    known: Mapping[int, list[Any]]
    #: what checked rows have in the place of each column of X
    encoding: Encoding = PLAIN

    @classmethod
    def of(cls, estimator: Any) -> Columns:
        """The columns that parameters of an estimator name; of most, all columns are features."""
        given, of_labels = (
            {name: getattr(estimator, name) for name in parameters}
            for parameters in (estimator._column_parameters, estimator._label_parameters)
        )
        names = list(getattr(estimator, "feature_names_in_", []))
        n, known, encoding = estimator.n_features_in_, estimator._known_labels, estimator._encoding
        place = np.searchsorted(encoding.origin(n), list(known)) if known else known
        known = dict(zip(map(int, place), known.values(), strict=True))
        return cls(n, names, given, of_labels, known, encoding)

    @property
    def given_labels(self) -> list[str]:
        """Names of the columns of X."""
        return self.names or [f"x{j}" for j in range(self.n_columns)]

    @property
    def labels(self) -> list[str]:
        """Names of all columns."""
        return self.encoding.names(self.given_labels)

    @property
    def width(self) -> int:
        """Number of columns of checked rows."""
        return len(self.encoding.origin(self.n_columns))

    @property
    def meaning(self) -> Any:
        """What says whether the columns of two fits mean the same."""
        return self.n_columns if self.encoding.plain else self.labels

    @property
    def labelled(self) -> dict[str, int]:
        """Indices of the columns that hold labels, by what names them in messages."""
        parts = [self.named(*item) for item in self.of_labels.items()]
        return {what: j for part in parts for what, j in part.items()}

    @property
    def special(self) -> dict[str, int]:
        """Columns that are not features, by the parameters that name them; each has one."""
        found = {k: self.find(k, v) for k, v in self.given.items() if v is not None}
        found |= self.labelled
        first = {j: name for name, j in reversed(found.items())}
        for name, j in found.items():
            if first[j] != name:
                raise not_allowed(
                    f"{first[j]} and {name} are not allowed together: both name column "
                    f"{self.labels[j]!r} of X. Give each a column of its own."
                )
        return found

    @property
    def features(self) -> list[int]:
        special = self.special.values()
        return [j for j in range(self.width) if j not in special]

    @property
    def feature_labels(self) -> list[str]:
        labels = self.labels
        return [labels[j] for j in self.features]

    @property
    def numbers(self) -> Array:
        """Which features are numbers, and not indicators."""
        return self.encoding.numbers(self.n_columns)[self.features]

    def parts(self, *, numbers_as_one: bool = False) -> tuple[Array, list[str]]:
        """The column of X of every feature, counted from 0 among features, and names of these.

        ``numbers_as_one``: all columns of numbers count as one, which comes first.
        """
        origin, labels = self.encoding.origin(self.n_columns)[self.features], self.given_labels
        if numbers_as_one:
            origin = np.where(self.encoding.categories(self.n_columns)[origin], origin, -1)
        found, part = np.unique(origin, return_inverse=True)
        return part, ["numbers" if j < 0 else labels[j] for j in found]

    def references(self, given: Any) -> tuple[Array, Array]:
        """For every feature, the one that it is compared with, or -1; and what names add of it.

        ``given`` has one category for each column that it names.
        """
        labels, (part, columns) = self.feature_labels, self.parts()
        base, added = np.full(len(labels), -1), np.full(len(labels), "", dtype=object)
        if not isinstance(given, Mapping):
            raise not_allowed(f"reference={given!r} is not allowed: give a dict, or None.")
        for column, level in given.items():
            of = np.flatnonzero(part == (columns.index(column) if column in columns else -1))
            known = [labels[j] for j in of]
            if f"{column}={label_text(level)}" not in known:
                levels = [each for each in known if each.startswith(f"{column}=")]
                found = listed(levels or [each for each in labels if "=" in each]) or "none"
                raise not_allowed(
                    f"reference={given!r} is not allowed: no feature is the category {level!r} of "
                    f"a column {column!r}. Features of categories are {found}."
                )
            base[of] = of[known.index(f"{column}={label_text(level)}")]
            added[of] = f" vs {label_text(level)}"
        return base, added

    def find(self, parameter: str, given: Any) -> int:
        """Index of the column that ``given``, a value of this parameter, names."""
        found = None
        if isinstance(given, str):
            found = self.names.index(given) if given in self.names else None
        elif is_whole(given) and 0 <= given < self.n_columns:
            found = int(given)
        if found is not None:
            return int(np.searchsorted(self.encoding.origin(self.n_columns), found))
        raise not_allowed(
            f"{parameter}={brief(given)} is not allowed: give the index of a column of X, below "
            f"{self.n_columns}, the name of a column of a DataFrame, or None. {OF_ROWS}"
        )

    def named(self, parameter: str, given: Any) -> dict[str, int]:
        """Indices of the columns that a value of this parameter names, one or several."""
        given = given.tolist() if hasattr(given, "tolist") else given  # an array or an index
        given = [] if given is None else given if isinstance(given, (list, tuple)) else [given]
        if len(given) > self.n_columns:
            raise not_allowed(
                f"{parameter}={brief(given)} is not allowed: it has {len(given)} items, and X has "
                f"{self.n_columns} columns. Give names or indices of columns. {OF_ROWS}"
            )
        return {f"{parameter}={each!r}": self.find(parameter, each) for each in given}

    def of_features(self, X: Any) -> Any:
        """The columns of X that are features."""
        special = list(self.special.values())
        return X[:, np.setdiff1d(np.arange(X.shape[1]), special)] if special else X


def values_of(X: Any, column: int) -> Array:
    """The numbers of one column."""
    values = X[:, [column]].toarray() if sp.issparse(X) else np.asarray(X[:, [column]][:])
    return np.asarray(values[:, 0], dtype=np.float64)


def check_columns_stay(estimator: Any) -> None:
    """Refuse fits by selectors, which drop columns and do not know their names."""
    named = (*estimator._column_parameters, *estimator._label_parameters, "categorical_features")
    values = {name: getattr(estimator, name, None) for name in named}
    given = [
        f"{name}={value!r}"
        for name, value in values.items()
        if value is not None and (name != "categorical_features" or not isinstance(value, str))
    ]
    if given and called_from(*SELECTORS):
        raise not_allowed(
            f"{given[0]} is not allowed inside RFE and SequentialFeatureSelector of "
            "scikit-learn: they fit to fewer and fewer columns, and this column would be left "
            "out or have another index. Give SelectFromModel, which fits once, and add the "
            "column to those that it selects."
        )


def with_codes(estimator: Any, X: Any, *, reset: bool, more: bool = False, head: Any = None) -> Any:
    """X as it is given, with codes in place of the labels that columns hold.

    ``reset``: learn the labels from X. ``more``: give codes to new labels, too; otherwise they
    get -1. ``head``: a table with the names of the columns, if X has none.
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
    validate_data(estimator, X if head is None else head, reset=reset, skip_check_array=True)
    columns, known = replace(estimator._columns, encoding=PLAIN), dict(estimator._known_labels)
    names = columns.labels
    for what, j in columns.labelled.items():
        where = f" in column {names[j]!r}, {what},"
        values = label_array("X", column_of(X, j), where, MISSING_LABEL)
        if reset:
            known[j] = _sorted(values, names[j])
        if isinstance(values[0], str) != isinstance(known[j][0], str):
            raise not_allowed(
                f"X is not allowed: column {names[j]!r} has the label {values[:1].tolist()[0]!r}, "
                f"and those of fit are like {known[j][0]!r}. Give labels of one type, numbers or "
                "text."
            )
        codes = codes_of(values, known[j])
        if more and (codes < 0).any():
            known[j] = known[j] + _sorted(values[codes < 0], names[j])
            codes = codes_of(values, known[j])
        X = with_column(X, j, codes.astype(np.float32))
    estimator._known_labels = known
    return X


def with_numbers(
    estimator: Any, X: Any, *, reset: bool, weight: Any = None, head: Any = None
) -> tuple[Any, bool]:
    """X with numbers in place of categories and gaps, and whether it was encoded.

    X stays as it is if its columns are numbers without gaps, or for others to refuse. ``reset``:
    learn the encoding from X, of estimators that have one, without the rows whose ``weight`` is
    zero. ``head`` is as for :func:`with_codes`.
    """
    chosen = getattr(estimator, "categorical_features", None)
    named = chosen is not None and not isinstance(chosen, str)
    if reset:
        estimator._encoding = PLAIN
    if not hasattr(estimator, "categorical_features"):
        return X, False
    if not estimator._encoding.columns and not (reset and (named or is_table(X))):
        return X, False
    if isinstance(X, StoredRows) or sp.issparse(X):
        if estimator._encoding.plain and not named:
            return X, False
        raise not_allowed(
            f"X of type {type(getattr(X, 'table', X)).__name__} is not allowed with "
            f"categorical_features={chosen!r}: give a DataFrame, or an array in memory."
        )
    X = X if hasattr(X, "shape") else np.array(X, dtype=object)
    if len(X.shape) != 2 or 0 in X.shape:  # the error is scikit-learn's
        return X, False
    validate_data(estimator, X if head is None else head, reset=reset, skip_check_array=True)
    columns = replace(estimator._columns, encoding=PLAIN)
    labels, special = columns.given_labels, {j: name for name, j in columns.special.items()}
    for j, name in special.items():
        values = as_array(column_of(X, j))
        row = first_not_finite(values)
        if row is not None:
            where = f" in column {labels[j]!r}, {name},"
            raise not_allowed(missing_value("X", row, values[row], where, "Leave the row out"))
    if reset:
        counted = slice(None) if weight is None else check_sample_weight(weight, X.shape[0]) > 0.0
        estimator._encoding = learned(X, counted, labels, columns.names, chosen, special)
    encoding = estimator._encoding
    if encoding.plain and not any(
        missing_of(as_array(column_of(X, j))).any() for j in range(len(labels))
    ):
        return X, False
    return encoding.encoded(X, labels), True


def _sorted(values: Array, name: str) -> list[Any]:
    """Labels of a column, each once, as Python objects."""
    if values.dtype.kind not in "mM":  # as objects, these depend on their unit
        try:
            found = [v.item() if isinstance(v, np.generic) else v for v in np.unique(values)]
            _ = {*found}  # of lists, an error
            return found
        except (TypeError, ValueError):  # texts and numbers; lists, arrays and dictionaries
            pass
    raise not_allowed(
        f"X is not allowed: column {name!r} holds dates, durations, lists, or labels of several "
        "types. Give whole numbers or text, for instance by .astype(str) of pandas."
    )
