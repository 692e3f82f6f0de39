"""The built site in a browser, if the site was built here and there is a browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import skbayes_sgmcmc

ROOT = Path(skbayes_sgmcmc.__file__).parent.parent
BUILT = (ROOT / ".ci/site", ROOT / "docs/_build")
SITES = [site for site in BUILT if (site / "index.html").exists()]


@pytest.mark.slow
@pytest.mark.skipif(not SITES, reason="the site is not built: see CONTRIBUTING.md")
def test_the_site_in_a_browser():
    """Search, figures, widths of pages, contrast in dark mode (.ci/browse.py says how)."""
    command = [sys.executable, str(ROOT / ".ci/browse.py"), str(SITES[0])]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    if "skipped" in run.stdout:
        pytest.skip(run.stdout.strip())
