"""Columns of text that are not categories: numbers, dates, and texts of one row each."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from .._exceptions import warn

#: most texts of a column that may be codes or days of a few dates, whatever they look like
MOST_CODES = 20
#: share of a column's texts from which on they are numbers or dates, with placeholders among them
#: (``"?"``), and share of its rows below which those with a text of another row are exceptions
MOSTLY, RARELY = 0.9, 0.1

NUMBER = re.compile(r"\s*[-+]?(\d[\d,]*\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
DATE = re.compile(r"\s*(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3\d{4})([T ].*)?\s*", re.DOTALL)

#: how a user says that a column holds categories
DECLARE = "or give column.astype('category') if they are categories"


def check_texts(name: str, counts: Counter[Any], fewest: int, *, declared: bool) -> None:
    """Warn of a column of categories that would serve better in another form.

    ``counts``: numbers of rows of its categories. Those of fewer than ``fewest`` rows have no
    effect of their own. ``declared``: whether the user says that they are categories.
    """
    texts = [level for level in counts if isinstance(level, str)]
    if not texts:
        return
    complaint = None if declared else _other_kind(texts)
    complaint = complaint or _no_categories(counts, fewest, texts[0])
    if complaint is not None:
        what, remedy = complaint
        warn(
            f"column {name!r} holds {what}, {remedy}.",
            "a-column-of-text-has-no-categories",
        )


def _other_kind(texts: list[str]) -> tuple[str, str] | None:
    """What these texts are if they are no categories, and what to do."""
    if len(texts) <= MOST_CODES:
        return None
    each = f"and each of its {len(texts)} is a category."
    dates, numbers = ([text for text in texts if kind.fullmatch(text)] for kind in (DATE, NUMBER))
    if len(dates) >= MOSTLY * len(texts):
        return f"dates as text ({dates[0]!r})", (
            f"{each} Give numbers, such as (pandas.to_datetime(column) - first_day).dt.days, with "
            "dayfirst=True in to_datetime if days come before months, or months and weekdays as "
            f"columns of their own, {DECLARE}"
        )
    if len(numbers) >= MOSTLY * len(texts):
        commas = any("," in text for text in numbers)  # to_numeric makes gaps of these
        file = "Read the file with decimal=',' or thousands=','"
        column = "Give pandas.to_numeric(column, errors='coerce')"
        return (
            f"numbers as text ({numbers[0]!r})",
            f"{each} {file if commas else column}, {DECLARE}",
        )
    return None


def _no_categories(counts: Counter[Any], fewest: int, text: str) -> tuple[str, str] | None:
    """The same for texts of one row each."""
    shared = sum(count for count in counts.values() if count >= fewest)
    if shared >= RARELY * counts.total():
        return None
    return f"a text of its own in almost every row ({text!r})", (
        "so the column has almost no effect. Leave it out, or make features of it, as "
        "TfidfVectorizer of scikit-learn does"
    )
