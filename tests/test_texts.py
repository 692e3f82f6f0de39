"""Columns of text that are numbers, dates, identifiers or sentences: a warning, and its remedy."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from _cases import cases

from skbayes_sgmcmc import BayesianGLMRegressor, SamplingWarning

N = 60
RNG = np.random.default_rng(0)
POWER = RNG.integers(50, 250, N).astype(float)
DAYS = pd.date_range("2024-01-30", periods=N)
TARGET = 0.02 * POWER + 0.1 * RNG.standard_normal(N)

OWN_TEXT = "a text of its own in almost every row"

#: texts, and what the warning calls them
WARNED = {
    "numbers": (np.where(np.arange(N) == 3, "?", POWER.astype(str)), "numbers as text"),
    "numbers with commas": ([f"{1000 * x:,.1f}" for x in POWER], "numbers as text"),
    "ISO dates": (DAYS.strftime("%Y-%m-%dT%H:%M"), "dates as text"),
    "American dates": (DAYS.strftime("%m/%d/%Y"), "dates as text"),
    "German dates": (DAYS.strftime("%d.%m.%Y"), "dates as text"),
    "amounts": ([f"$ {1000 * x:,.0f}" for x in POWER], "numbers as text"),
    "shares": ([f"{x:.1f}%" for x in POWER], "numbers as text"),
    "times of day": ([f"{int(x) // 60}:{int(x) % 60:02d}" for x in POWER], "times as text"),
    "durations": ([f"{int(x) // 60}:{int(x) % 60:02d}:30" for x in POWER], "times as text"),
    "dates with names": (DAYS.strftime("%-d %b %Y"), "dates as text"),
    "dates of two digits": (DAYS.strftime("%d-%b-%y"), "dates as text"),
    "American names": (DAYS.strftime("%B %-d, %Y"), "dates as text"),
    "weights": ([f"{1000 * x:,.1f} kg" for x in POWER], "numbers as text"),
    "thousands": ([f"{x:.0f}k" for x in POWER], "numbers as text"),
    "identifiers": ([f"u{i}" for i in range(N)], OWN_TEXT),
    "one pair": ([f"u{max(i, 1)}" for i in range(N)], OWN_TEXT),
}
#: texts that are categories
SILENT = {
    "categories": RNG.choice(["red", "green", "blue"], N),
    "codes": RNG.integers(1, 21, N).astype(str),
    "a few dates": DAYS[np.arange(N) % 20].strftime("%Y-%m-%d"),
    "versions": [f"1.{i % 30}.{i % 2}" for i in range(N)],
    "ratios": [f"{i % 30}:{i % 2}" for i in range(N)],
    "months": [f"{('March', 'May')[i % 2]} {i % 30}" for i in range(N)],
    "classes": [f"{i % 30}{'ABC'[i % 3]}" for i in range(N)],
    "ranges": [f"{i % 30}-{i % 30 + 9}" for i in range(N)],
    "markets": [f"Market {i % 30}" for i in range(N)],
    "streets": [f"{i % 30} High Street" for i in range(N)],
}


def found(texts, **parameters):
    """Warnings about the column of texts."""
    X = pd.DataFrame({"power": POWER, "text": texts})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SamplingWarning)
        BayesianGLMRegressor(n_draws=10, burn_in=20, n_chains=2, **parameters).fit(X, TARGET)
    return [str(each.message) for each in caught if "column 'text'" in str(each.message)]


@cases("kind", list(WARNED))
def test_text_that_holds_no_categories_warns(kind):
    texts, what = WARNED[kind]
    messages = found(texts)
    assert len(messages) == 1
    assert f"column 'text' holds {what} ({str(texts[0])!r})" in messages[0]


@cases("kind", list(SILENT))
def test_categories_are_no_reason_to_warn(kind):
    assert found(SILENT[kind]) == []


def test_who_declares_categories_is_not_warned():
    """Also of codes that look like numbers; of text that says nothing, whoever declares it."""
    codes = RNG.integers(10_000, 10_030, N).astype(str)
    assert len(found(codes)) == 1
    assert found(pd.Series(codes, dtype="category")) == []
    assert found(codes, categorical_features=["text"]) == []
    assert len(found(pd.Series(WARNED["identifiers"][0], dtype="category"))) == 1


def test_the_remedies_help():
    """Numbers and days that the messages' code makes are features like others."""
    numbers = pd.Series(WARNED["numbers"][0])
    days = pd.Series(WARNED["ISO dates"][0])
    X = pd.DataFrame(
        {
            "power": pd.to_numeric(numbers, errors="coerce"),
            "day": (pd.to_datetime(days) - DAYS[0]).dt.days,
        }
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SamplingWarning)
        reg = BayesianGLMRegressor(random_state=0).fit(X, TARGET)
    assert not [each for each in caught if "column" in str(each.message)]
    assert reg.coef_[0] == pytest.approx(0.02, abs=0.002)


def test_remedies_are_those_of_the_texts():
    """to_numeric makes gaps of numbers with commas, and to_datetime takes 1.2. for 2 January."""
    (commas,) = found(WARNED["numbers with commas"][0])
    assert "Read the file with decimal" in commas and "to_numeric" not in commas
    (days,) = found(WARNED["German dates"][0])
    assert "dayfirst=True" in days
    (numbers,) = found(["?", *POWER[1:].astype(str).tolist()])
    assert f"numbers as text ('{POWER[1]}')" in numbers and "to_numeric" in numbers


@cases(
    "kind, factor, constant",
    [
        ("amounts", 1000, 0),
        ("shares", 1, 0),
        ("times of day", 60, 0),
        ("durations", 60, 30),
        ("weights", 1000, 0),
        ("thousands", 1, 0),
    ],
)
def test_code_of_the_message_makes_numbers(kind, factor, constant):
    """Signs and colons are no reason to keep numbers as categories."""
    (message,) = found(WARNED[kind][0])
    code = re.search(r"Give (pandas\..*), or give column", message)[1]
    made = eval(code, {"pandas": pd, "column": pd.Series(WARNED[kind][0])})
    assert made.to_numpy() == pytest.approx(factor * POWER + constant)


@cases("kind", ["ISO dates", "dates with names", "dates of two digits", "American names"])
def test_code_of_the_message_makes_days(kind):
    (message,) = found(WARNED[kind][0])
    code = re.search(r"such as (\(pandas\..*\).dt.days), with", message)[1]
    names = {"pandas": pd, "column": pd.Series(WARNED[kind][0]), "first_day": DAYS[0].normalize()}
    assert eval(code, names).tolist() == list(range(N))


def test_columns_of_one_kind_share_a_warning():
    """A table with thirty such columns had thirty warnings."""
    texts = WARNED["numbers"][0]
    X = pd.DataFrame({name: texts for name in "abcde"}).assign(day=WARNED["ISO dates"][0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SamplingWarning)
        BayesianGLMRegressor(n_draws=10, burn_in=20, n_chains=2).fit(X, TARGET)
    messages = [str(each.message) for each in caught if "column" in str(each.message)]
    assert len(messages) == 2
    assert (
        f"columns 'a', 'b', 'c' and 2 more hold numbers as text ({str(texts[0])!r})" in messages[0]
    )
    assert "column 'day' holds dates as text" in messages[1]


def test_later_rows_do_not_warn_again():
    X = pd.DataFrame({"power": POWER, "text": WARNED["numbers"][0]})
    with pytest.warns(SamplingWarning, match="numbers as text"):
        reg = BayesianGLMRegressor(n_draws=10, burn_in=20, n_chains=2).fit(X, TARGET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reg.predict(X)


@cases("given", [{"categorical_features": ["text"]}, {}])
def test_numbers_that_are_categories_of_one_row_each(given):
    """They share one indicator, so that nothing is left of them; booleans of two rows may."""
    ids = np.arange(N) if given else pd.Categorical(np.arange(N))
    (warning,) = found(ids, **given)
    assert "column 'text' holds a category of its own in almost every row (0)" in str(warning)
    assert found(np.arange(N)) == []
    assert found(np.arange(N) // 2, categorical_features=["text"]) == []
