"""The code of the site's pages runs from top to bottom, and its links have ends.

Blocks of a page run in one session, in which a warning of the package is an error. A block that
cannot run here has the reason on the line above it, ``<!-- not run: ... -->``; without one,
a block in another language than Python must be one of ``SHELLS``.
"""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import skbayes_sgmcmc

ROOT = Path(skbayes_sgmcmc.__file__).parent.parent
DOCS = ROOT / "docs"

#: an optional reason, the language, the code
BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]*) -->\n+)?^```(\w*)\n(.*?)^```$", re.M | re.S)
#: commands for a shell: the README's two are run by .ci/run, the others are installations
SHELLS = {"bash", "console"}
#: pages with networks of default size, which take minutes
LONG = {"README.md", "docs/guide.md", "docs/topics.md"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*DOCS.glob("*.md"), *DOCS.glob("project/*.md"), *ROOT.glob("*.md")]
    if any(language == "python" for _, language, _ in BLOCK.findall(path.read_text()))
)


def test_the_reader_of_blocks_reads():
    """This test's own eyes."""
    text = "a\n```python\nx\n```\n<!-- not run: why -->\n\n```python\ny\n```\n```text\nz\n```\n"
    assert BLOCK.findall(text) == [
        ("", "python", "x\n"),
        ("why", "python", "y\n"),
        ("", "text", "z\n"),
    ]


@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page in LONG else []) for page in PAGES],
)
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    """In one session, without a warning of ours."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "a_page"}
    text = (ROOT / page).read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error", skbayes_sgmcmc.SamplingWarning)
        for match in BLOCK.finditer(text):
            reason, language, code = match.groups()
            if language == "python" and not reason:
                line = text.count("\n", 0, match.start(3))
                exec(compile("\n" * line + code, ROOT / page, "exec"), names)
                plt.close("all")


@pytest.mark.parametrize(
    "path", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda path: path.name
)
def test_code_of_a_page_says_what_it_is(path):
    """No language that nothing runs, without a reason."""
    text = path.read_text()
    for reason, language, _ in BLOCK.findall(text):
        assert language in {"python", *SHELLS} or reason


def anchors(text):
    """Headings as links name them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_messages_name_sections_that_exist():
    """Every warning, and every error of sampling; each section is named by some message."""
    named = []
    for path in (ROOT / "skbayes_sgmcmc").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func.id if isinstance(node, ast.Call) and "id" in vars(node.func) else ""
            if called in ("warn", "more"):
                section = node.args[called == "warn"]
                named += [section.value] if isinstance(section, ast.Constant) else []
    assert len(named) >= 15
    sections = anchors((DOCS / "warnings.md").read_text())
    general = {"warnings-and-errors", "a-parameter-or-the-data-are-not-allowed"}
    assert set(named) == sections - general
