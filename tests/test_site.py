"""What the site tells people to type runs, as it stands on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import skbayes_sgmcmc

DOCS = Path(skbayes_sgmcmc.__file__).parent.parent / "docs"


@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("page", ["index", "getting_started"])
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    """In one session, without a warning of ours."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.M | re.S)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, f"{page}.md", "exec"), names)
