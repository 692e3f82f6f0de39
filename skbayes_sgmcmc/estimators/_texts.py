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
DECLARE = "or column.astype('category') if they are categories"


def check_texts(name: str, counts: Counter[Any], fewest: int, *, declared: bool) -> None:
    """Warn of a column of categories that would serve better in another form.

    ``counts``: numbers of rows of its categories. Those of fewer than ``fewest`` rows have no
    effect of their own. ``declared``: whether the user says that they are categories.
    """
    texts = [level for level in counts if isinstance(level, str)]
    if not texts:
        return
    complaint = (None if declared else _other_kind(texts)) or _no_categories(counts, fewest)
    if complaint is not None:
        what, remedy = complaint
        warn(
            f"column {name!r} holds {what} ({texts[0]!r}), {remedy}.",
            "a-column-of-text-has-no-categories",
        )


def _other_kind(texts: list[str]) -> tuple[str, str] | None:
    """What these texts are if they are no categories, and what to do."""
    each = f"and each of its {len(texts)} is a category. Give"
    if len(texts) <= MOST_CODES:
        return None
    if _mostly(DATE, texts):
        return "dates as text", (
            f"{each} numbers, such as (pandas.to_datetime(column) - first_day).dt.days, or months "
            f"and weekdays as columns of their own, {DECLARE}"
        )
    if _mostly(NUMBER, texts):
        return "numbers as text", (
            f"{each} pandas.to_numeric(column, errors='coerce'), read the file with decimal=',' or "
            f"thousands=',', {DECLARE}"
        )
    return None


def _no_categories(counts: Counter[Any], fewest: int) -> tuple[str, str] | None:
    """The same for texts of one row each."""
    shared = sum(count for count in counts.values() if count >= fewest)
    if shared >= RARELY * counts.total():
        return None
    return "text that hardly two rows share", (
        "so that it has hardly an effect. Leave it out, or make features of it, as TfidfVectorizer "
        "of scikit-learn does"
    )


def _mostly(kind: re.Pattern[str], texts: list[str]) -> bool:
    return sum(kind.fullmatch(text) is not None for text in texts) >= MOSTLY * len(texts)
