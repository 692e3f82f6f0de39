"""What a call warns of, and the section of docs/warnings.md that an error sends its reader to."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import skbayes_sgmcmc

PAGE = Path(skbayes_sgmcmc.__file__).parent.parent / "docs" / "warnings.md"


def anchors(text):
    """Headings as links name them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


SECTIONS = anchors(PAGE.read_text())


def section_of(error):
    """The one section that an error's notes name, which exists; None if they name none or more."""
    notes = getattr(error, "__notes__", [])
    named = (
        re.fullmatch(r'More: skbayes_sgmcmc\.explain\("([\w-]+)"\)', notes[0])
        if len(notes) == 1
        else None
    )
    return named[1] if named and named[1] in SECTIONS else None


def messages(call, kind=skbayes_sgmcmc.SamplingWarning):
    """The texts of a call's warnings, of ours unless another kind is given."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if issubclass(one.category, kind)]
