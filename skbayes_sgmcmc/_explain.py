"""What the documentation says of a warning or an error, for those who have only the package."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from ._exceptions import not_allowed

#: a heading, and its text up to the next one; comments of code are no headings
_SECTION = re.compile(r"^#+ (.*)\n((?:^```(?s:.*?)^```\n|(?!#+ ).*\n)*)", re.M)

#: a reference of the site, {class}`~package.Name`, with its last name
_ROLE = re.compile(r"\{\w+\}`(?:~[\w.]*\.)?(\w+)`")


def explain(section: str) -> None:
    """Print the section of the documentation that a warning or an error names.

    Messages end with the call, such as ``skbayes_sgmcmc.explain("the-memory-is-full")``.

    Parameters
    ----------
    section : str
        The heading in lower case, with hyphens instead of spaces.

    Raises
    ------
    ValueError
        There is no such section; the message names the nearest ones.

    Examples
    --------
    >>> from skbayes_sgmcmc import explain
    >>> explain("an-estimator-is-not-fitted")
    An estimator is not fitted
    ...
    """
    sections = {
        slug(title): f"{title}\n{text.rstrip()}" for title, text in _SECTION.findall(_page())
    }
    if section not in sections:
        near = get_close_matches(str(section), sections, n=3, cutoff=0.3) or list(sections)[:3]
        raise not_allowed(
            f"section={section!r} is not allowed: give {' or '.join(map(repr, near))}."
        )
    print(_ROLE.sub(r"\1", sections[section]))


def slug(title: str) -> str:
    """The name of a heading in links."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _page() -> str:
    """The text of docs/warnings.md, which wheels hold beside this file."""
    beside = Path(__file__).with_name("warnings.md")
    source = beside if beside.exists() else Path(__file__).parent.parent / "docs/warnings.md"
    return source.read_text(encoding="utf-8")
