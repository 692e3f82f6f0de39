"""How the columns of a table become numbers: categories as indicators, gaps filled and marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..._arrays import Array
from ..._conversion import GIVE_NUMBERS, NAME_CATEGORIES, refuse_columns
from ..._exceptions import listed, not_allowed
from ..._labels import codes_of, label_array, label_text
from ..._table_columns import (
    as_array,
    column_of,
    declares_categories,
    holds_text,
    is_missing,
    missing_of,
    missing_value,
)
from .gaps import NormalNumbers
from .texts import Complaint, complaint_of, warn_of_texts

#: fewest columns of encoded rows that are sparse, and the largest share of numbers that are not
#: zero. Both are known in fit: later rows are then of the same kind
SPARSE_WIDTH, SPARSE_SHARE = 1000, 0.3
#: an error's text for a column without a value
EMPTY = "X is not allowed: every value of column {!r} is missing. Leave the column out."
#: fewest rows of a category with an indicator of its own. A single row does not tell an effect from
#: noise: with an indicator for each, ids and dates would explain all noise of the training rows
FEWEST = 2


@dataclass(frozen=True)
class Numbers:
    """A column of numbers."""

    #: mean of the rows of the first fit, which stands for a gap
    mean: float
    #: whether the first fit had gaps. A second column then marks them, and what the model learns of
    #: it is what a gap says
    gaps: bool

    @classmethod
    def learned(cls, name: str, values: Array) -> Numbers:
        missing = np.isnan(values)
        if missing.all():
            raise not_allowed(EMPTY.format(name))
        # sums of halves, because those of large numbers may overflow
        with np.errstate(over="ignore"):  # what is too large is refused later
            return cls(2.0 * float((0.5 * values[~missing]).mean()), bool(missing.any()))

    @property
    def width(self) -> int:
        return 1 + self.gaps

    def names(self, name: str) -> list[str]:
        return [name, f"{name} missing"] if self.gaps else [name]

    def encoded(self, name: str, column: Any) -> Array:
        """The numbers, with gaps as they are."""
        values = numbers_of(name, column)
        return np.column_stack([values, np.isnan(values)] if self.gaps else [values])


@dataclass(frozen=True)
class Categories:
    """A column of categories."""

    #: categories that have an indicator, sorted, as Python objects; then None, if some were missing
    #: in the first fit. Categories of fewer than ``FEWEST`` rows share an indicator, the last one
    levels: list[Any]
    #: indicators of a category that is not among the levels. Without a shared indicator, they are
    #: the shares of the levels: what a linear model predicts is then the mean over the first rows
    others: list[float]

    @classmethod
    def learned(
        cls, name: str, column: Any, counted: Any, complaints: dict[str, Complaint], *, named: bool
    ) -> Categories:
        """``named``: whether the user says that the column holds categories.

        ``complaints`` takes what speaks against it.
        """
        counts = Counter(categories_of(name, column)[counted])
        if counts.keys() == {None}:
            raise not_allowed(EMPTY.format(name))
        missing, total = counts.pop(None, 0), counts.total()
        declared = named or declares_categories(column)
        if complaint := complaint_of(counts, FEWEST, declared=declared):
            complaints[name] = complaint
        levels: list[Any] = sorted(level for level, count in counts.items() if count >= FEWEST)
        shared = len(levels) < len(counts)
        if missing:
            counts[None], total = missing, total + missing
            levels.append(None)
        shares = [0.0 if shared else counts[level] / total for level in levels]
        return cls(levels, [*shares, 1.0] if shared else shares)

    @property
    def width(self) -> int:
        return len(self.others)

    def names(self, name: str) -> list[str]:
        found = [
            f"{name} missing" if level is None else f"{name}={label_text(level)}"
            for level in self.levels
        ]
        return found if len(found) == self.width else [*found, f"{name} other"]

    def encoded(self, name: str, column: Any) -> Any:
        values = categories_of(name, column)
        first, known = (
            next((value for value in items if value is not None), None)
            for items in (values, self.levels)
        )
        if None not in (first, known) and isinstance(first, str) != isinstance(known, str):
            raise not_allowed(
                f"X is not allowed: column {name!r} has the category {first!r}, and those of fit "
                f"are like {known!r}. Give categories of one type, numbers or text."
            )
        codes, others = codes_of(values, self.levels), np.array(self.others)
        seen, new = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
        spread = np.flatnonzero(others)
        rows = np.concatenate([seen, np.repeat(new, len(spread))])
        places = np.concatenate([codes[seen], np.tile(spread, len(new))])
        shares = np.concatenate([np.ones(len(seen)), np.tile(others[spread], len(new))])
        return sp.csr_matrix((shares, (rows, places)), shape=(len(values), self.width))


@dataclass(frozen=True)
class Encoding:
    """How the first fit's columns become those that the model sees, which keep their order."""

    #: one for each column of X; () for arrays, which stay as they are
    columns: tuple[Numbers | Categories, ...] = ()
    #: what fills gaps in features that are numbers, if there were some; None: their means
    normal: NormalNumbers | None = None

    @property
    def plain(self) -> bool:
        """Whether columns stay as they are, unless later rows have gaps."""
        return all(isinstance(each, Numbers) and not each.gaps for each in self.columns)

    def names(self, labels: Sequence[str]) -> list[str]:
        """Names of the encoded columns, given those of X."""
        if self.plain:
            return list(labels)
        found = zip(self.columns, labels, strict=True)
        return [name for column, label in found for name in column.names(label)]

    def origin(self, n_columns: int) -> Array:
        """For every encoded column, the column of X that it was made from."""
        if self.plain:
            return np.arange(n_columns)
        return np.repeat(np.arange(n_columns), [each.width for each in self.columns])

    def numbers(self, n_columns: int) -> Array:
        """Which of the encoded columns are numbers, and not indicators."""
        found = np.ones(n_columns, dtype=bool)
        if not self.plain:
            first = np.diff(self.origin(n_columns), prepend=-1) > 0
            kinds = [isinstance(each, Numbers) for each in self.columns]
            found = first & np.array(kinds)[self.origin(n_columns)]
        return found

    def categories(self, n_columns: int) -> Array:
        """Which columns of X hold categories."""
        if self.plain:
            return np.zeros(n_columns, dtype=bool)
        return np.array([isinstance(each, Categories) for each in self.columns])

    def encoded(self, X: Any, labels: Sequence[str]) -> Any:
        """Rows of numbers; a CSR matrix if there are many columns, most of whose numbers are 0."""
        parts: list[Any] = [
            column.encoded(labels[j], column_of(X, j)) for j, column in enumerate(self.columns)
        ]
        self._fill(parts)
        width = sum(each.width for each in self.columns)
        if width >= SPARSE_WIDTH and len(self.columns) < SPARSE_SHARE * width:
            return sp.hstack([sp.csr_matrix(part) for part in parts], format="csr")
        return np.hstack([part.toarray() if sp.issparse(part) else part for part in parts])

    def _fill(self, parts: list[Any]) -> None:
        """Put conditional means, or means if there are none, in the place of gaps."""
        if self.normal is not None:
            places = self.normal.places
            values = np.column_stack([parts[j][:, 0] for j in places])
            if np.isnan(values).any():
                for j, filled in zip(places, self.normal.filled(values).T, strict=True):
                    parts[j][:, 0] = filled
        for column, part in zip(self.columns, parts, strict=True):
            if isinstance(column, Numbers):
                part[np.isnan(part[:, 0]), 0] = column.mean

    def check_plain(self, what: str) -> None:
        """Raise ``ValueError`` if the model sees other columns than X has."""
        if not self.plain:
            raise not_allowed(
                f"{what} is not allowed for an estimator that was fitted to categories or to "
                "columns with gaps, because its rows are not numbers. Fit a pipeline that encodes "
                "them, by OneHotEncoder and SimpleImputer(add_indicator=True) of scikit-learn in a "
                "ColumnTransformer, and give its last step, pipeline[-1]."
            )


#: of arrays: their columns stay as they are
PLAIN = Encoding()


def learned(
    X: Any,
    counted: Any,
    labels: Sequence[str],
    names: Sequence[str],
    chosen: Any,
    special: Mapping[int, str],
) -> Encoding:
    """The encoding of these columns.

    ``counted`` are the rows of positive weight. ``labels`` are what columns are called, ``names``
    their names, if X has any. ``chosen`` is the parameter ``categorical_features``, and ``special``
    has the columns that are no features.
    """
    categories = _categories(X, names, chosen, special)
    for j in categories & special.keys():
        raise not_allowed(
            f"categorical_features={chosen!r} is not allowed with {special[j]}: the column "
            f"{labels[j]!r} is not a feature. Leave it out of one of them."
        )
    columns = {j: column_of(X, j) for j in range(X.shape[1]) if j not in categories}
    bad = {j: each for j, each in columns.items() if not _are_numbers(each)}
    for j in bad.keys() & special.keys():
        raise not_allowed(
            f"{special[j]} is not allowed to name column {labels[j]!r} of X, which is not numeric. "
            "Give a column of numbers."
        )
    if empty := [j for j, each in bad.items() if missing_of(as_array(each)).all()]:
        raise not_allowed(EMPTY.format(labels[empty[0]]))
    if bad:
        named_bad = {labels[j]: each for j, each in bad.items()}
        refuse_columns(named_bad, NAME_CATEGORIES)
    values = {j: numbers_of(labels[j], each)[counted] for j, each in columns.items()}
    named, complaints = not isinstance(chosen, str), dict[str, Complaint]()
    kinds = tuple(
        Categories.learned(label, column_of(X, j), counted, complaints, named=named)
        if j in categories
        else Numbers.learned(label, values[j])
        for j, label in enumerate(labels)
    )
    warn_of_texts(complaints)
    numbers = [j for j in columns if j not in special]
    normal = None
    if any(isinstance(each, Numbers) and each.gaps for each in (kinds[j] for j in numbers)):
        normal = NormalNumbers.learned(numbers, np.column_stack([values[j] for j in numbers]))
    encoding = Encoding(kinds, normal)
    _check_names(encoding.names(labels), [labels[j] for j in encoding.origin(len(labels))])
    return encoding


def _check_names(names: Sequence[str], origin: Sequence[str]) -> None:
    """Raise ``ValueError`` if encoded columns would have the same name."""
    first: dict[str, str] = {}
    for name, column in zip(names, origin, strict=True):
        if name in first:
            raise not_allowed(
                f"X with columns {first[name]!r} and {column!r} is not allowed: once encoded, both "
                f"have a column {name!r}. Rename one of them."
            )
        first[name] = column


def check_categorical_features(name: str, value: Any) -> None:
    """Raise ``ValueError`` if the parameter ``categorical_features`` is not allowed."""
    if value is None or (isinstance(value, str) and value == "from_dtype"):
        return
    given = np.asarray(value, dtype=object)
    kinds = {bool if isinstance(v, bool | np.bool_) else type(v) for v in given.flat}
    names = all(isinstance(each, str) for each in given.flat)
    indices = all(isinstance(each, Integral | np.bool_) for each in given.flat)
    mixed = bool in kinds and len(kinds) > 1
    if isinstance(value, str) or given.ndim != 1 or not (names or indices) or mixed:
        raise not_allowed(
            f"{name}={value!r} is not allowed: give 'from_dtype', None, or a list of indices or "
            "names of columns, or a boolean for each column."
        )


def _categories(X: Any, names: Sequence[str], chosen: Any, special: Any) -> set[int]:
    """Columns that the user names, or whose types make their values categories."""
    n_columns = X.shape[1]
    if chosen is None:
        return set()
    if isinstance(chosen, str):
        columns = {j: column_of(X, j) for j in range(n_columns) if j not in special}
        return {j for j, c in columns.items() if declares_categories(c) or holds_text(as_array(c))}
    given = np.asarray(chosen)
    if given.dtype == bool and len(given) == n_columns:
        return {*map(int, np.flatnonzero(given))}
    found = set()
    for each in given.tolist():
        named = isinstance(each, str) and each in names
        if not named and (isinstance(each, str | bool) or not 0 <= each < n_columns):
            raise not_allowed(
                f"categorical_features={chosen!r} is not allowed: X has {n_columns} columns"
                f"{', ' + listed(map(repr, names)) if len(names) else ' without names'}. Give "
                "indices or names of columns, or a boolean for each."
            )
        found.add(list(names).index(each) if named else int(each))
    return found


def _are_numbers(column: Any) -> bool:
    """Whether the values of a column are numbers, or missing."""
    values = as_array(column)
    if values.dtype.kind != "O":
        return values.dtype.kind in "biuf"
    try:
        values[~missing_of(values)].astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def numbers_of(name: str, column: Any) -> Array:
    """The numbers of a column in double precision, and NaN for gaps."""
    values = as_array(column)
    if not _are_numbers(values):  # in later rows: those of fit have been looked at
        refuse_columns({name: column}, GIVE_NUMBERS)
    if values.dtype.kind == "O":
        values = np.where(missing_of(values), np.nan, values)
    values = values.astype(np.float64, copy=False)
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        raise not_allowed(
            missing_value("X", row, values[row], f" in column {name!r}", "Leave the row out")
        )
    return values


def categories_of(name: str, column: Any) -> Array:
    """The categories of a column as numbers and texts of Python, and None for gaps."""
    values, declared = as_array(column), declares_categories(column)
    if values.dtype.kind in "mM":
        if not declared:
            refuse_columns({name: column})
        values = np.asarray(column, dtype=object)
    items = _items_of(column, values)
    try:  # what is looked at one by one are distinct values
        known = {value: None if is_missing(value) else value for value in set(items)}
    except TypeError:  # lists
        refuse_columns({name: column})
    kept = [value for value in known.values() if value is not None]
    texts = [value for value in kept if isinstance(value, str)]
    numbers = [value for value in kept if isinstance(value, Real)]
    others, distinct = len(kept) > len(texts) + len(numbers), {*map(str, kept)}
    if declared and others and len(distinct) == len(kept):  # intervals and dates, by their text
        known = {value: None if each is None else str(each) for value, each in known.items()}
    elif 0 < len(texts) < len(kept):
        text, other = texts[0], next(value for value in kept if not isinstance(value, str))
        raise not_allowed(
            f"X is not allowed: column {name!r} holds text ({text!r} in row {items.index(text)}) "
            f"and other values ({other!r} in row {items.index(other)}). Give text alone, for "
            "instance by .astype(str) of pandas, or numbers alone, by "
            "pandas.to_numeric(column, errors='coerce'), which makes gaps of the others.",
            "a-column-is-not-numeric",
        )
    elif others:
        refuse_columns({name: column})
    elif numbers:
        where = f" in column {name!r}"
        if infinite := [value for value in numbers if value in (np.inf, -np.inf)]:
            row = items.index(infinite[0])
            raise not_allowed(missing_value("X", row, infinite[0], where, "Leave the row out"))
        label_array("X", numbers, where)  # must be exact
    return np.array([known[value] for value in items], dtype=object)


def _items_of(column: Any, values: Array) -> list[Any]:
    """The values as objects of Python; whole numbers with gaps are floats in ``values``."""
    if values.dtype.kind == "f" and values.dtype.itemsize < 8:
        # the shortest decimal number, so that 0.1 is the same category in every precision
        shortest: list[Any] = values.astype(str).astype(np.float64).tolist()
        return shortest
    for method in ("to_pylist", "to_list"):
        if values.dtype.kind == "f" and hasattr(column, method):
            found: list[Any] = getattr(column, method)()
            return found
    exact: list[Any] = values.tolist()
    return exact
