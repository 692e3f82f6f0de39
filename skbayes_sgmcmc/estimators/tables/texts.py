"""Columns of text that are not categories: numbers, dates, times, and texts of one row each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..._exceptions import listed, warn

#: most texts of a column that may be codes or days of a few dates, whatever they look like
MOST_CODES = 20
#: share of a column's texts from which on they are numbers or dates, with placeholders among them
#: (``"?"``), and share of its rows below which those with a text of another row are exceptions
MOSTLY, RARELY = 0.9, 0.1

#: signs beside numbers that are amounts or shares
SIGNS = "$€£¥% "
NUMBER = re.compile(r"\s*[-+]?(\d[\d,]*\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
DATE = re.compile(r"\s*(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3\d{4})([T ].*)?\s*", re.DOTALL)
#: of a day, a month's name and a year; or of a month's name and a year of four digits
MONTH = (
    "(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|"
    "oct(ober)?|nov(ember)?|dec(ember)?)[.]?[-/., ]+"
)
NAMED_DATE = re.compile(
    rf"\s*(\d\d?[-/. ]+{MONTH}(\d{{4}}|\d\d)|{MONTH}(\d\d?,? +)?\d{{4}})\s*", re.IGNORECASE
)
#: a number before a short word, such as a unit
WITH_UNIT = re.compile(NUMBER.pattern + r"(?P<unit>[^\s\d,.;:\-]{1,5})\s*")
TIME = re.compile(r"\s*\d+:\d\d(:\d\d(\.\d+)?)?\s*")

#: how a user says that a column holds categories
DECLARE = (
    "or give column.astype('category'), in polars column.cast(polars.Categorical), if they are "
    "categories"
)


class Complaint(NamedTuple):
    """Why a column of categories would serve better in another form: parts of a message."""

    kind: str  #: what it holds
    remedy: str  #: what the model makes of it, and what to give
    example: Any  #: one of its categories


def complaint_of(counts: Counter[Any], fewest: int, *, declared: bool) -> Complaint | None:
    """What to say of a column of categories, if anything.

    ``counts``: numbers of rows of its categories. Those of fewer than ``fewest`` rows have no
    effect of their own. ``declared``: whether the user says that they are categories.
    """
    texts = [level for level in counts if isinstance(level, str)]
    other = _other_kind(texts) if texts and not declared else None
    return other or _no_categories(counts, fewest)


def warn_of_texts(complaints: Mapping[str, Complaint]) -> None:
    """Warn of columns, by their names: once for all that need the same."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, complaint in complaints.items():
        alike.setdefault(complaint[:2], []).append(name)
    for (kind, remedy), names in alike.items():
        one = len(names) == 1
        which = f"column {names[0]!r} holds" if one else f"columns {listed(map(repr, names))} hold"
        example = complaints[names[0]].example
        warn(
            f"{which} {kind} ({example!r}), {remedy}.",
            "a-column-of-text-has-no-categories",
        )


def _other_kind(texts: list[str]) -> Complaint | None:
    """What these texts are if they are no categories, and what to do."""
    if len(texts) <= MOST_CODES:
        return None
    for kind, matched, remedy in (
        ("dates", DATE.fullmatch, _number_of_date),
        ("dates", NAMED_DATE.fullmatch, _number_of_date),
        ("numbers", _has_number, _number_of_text),
        ("numbers", _with_unit(texts), _number_before_unit),
        ("times", TIME.fullmatch, _number_of_time),
    ):
        found = [text for text in texts if matched(text)]
        if len(found) >= MOSTLY * len(texts):
            what = f"each of which is a category. {remedy(found)}, {DECLARE}"
            return Complaint(f"{kind} as text", what, found[0])
    return None


def _has_number(text: str) -> bool:
    return NUMBER.fullmatch(text.strip(SIGNS)) is not None


def _with_unit(texts: list[str]) -> Callable[[str], bool]:
    """Whether a text is a number with the unit that most of these texts have."""
    units = Counter(found["unit"] for found in map(WITH_UNIT.fullmatch, texts) if found)
    unit = units.most_common(1)[0][0] if units else None

    def matched(text: str) -> bool:
        found = WITH_UNIT.fullmatch(text)
        return found is not None and found["unit"] == unit

    return matched


def _number_of_date(_: list[str]) -> str:
    return (
        "Give numbers, such as (pandas.to_datetime(column) - first_day).dt.days, with "
        "dayfirst=True in to_datetime if days come before months, or months and weekdays as "
        "columns of their own"
    )


def _number_of_text(texts: list[str]) -> str:
    signs = any(text.strip() != text.strip(SIGNS) for text in texts)
    column = f"column.str.strip({SIGNS!r})" if signs else "column"
    if any("," in text for text in texts):  # to_numeric makes gaps of these
        if not signs:
            return "Read the file with decimal=',' or thousands=','"
        column += ".str.replace(',', '')"
    return f"Give pandas.to_numeric({column}, errors='coerce')"


def _number_before_unit(texts: list[str]) -> str:
    column = "column"
    if any("," in text for text in texts):
        column += ".str.replace(',', '')"
    found = rf"{column}.str.extract(r'([-+]?[\d.]+)')[0]"
    return f"Give pandas.to_numeric({found}, errors='coerce')"


def _number_of_time(texts: list[str]) -> str:
    seconds = any(text.count(":") == 2 for text in texts)  # to_timedelta asks for them
    column = "column" if seconds else "column + ':00'"
    return f"Give pandas.to_timedelta({column}, errors='coerce').dt.total_seconds()"


def _no_categories(counts: Counter[Any], fewest: int) -> Complaint | None:
    """The same for categories of one row each."""
    first = next(iter(counts))
    if len(counts) <= 2 and not isinstance(first, str):  # booleans of a few rows
        return None
    shared = sum(count for count in counts.values() if count >= fewest)
    if shared >= RARELY * counts.total():
        return None
    if isinstance(first, str):
        what, remedy = "text", "make features of it, as TfidfVectorizer of scikit-learn does"
    else:
        what, remedy = "category", "give a column of numbers, if it holds numbers"
    return Complaint(
        f"a {what} of its own in almost every row",
        f"which has almost no effect. Leave it out, or {remedy}",
        first,
    )
