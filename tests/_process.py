"""A new process of Python, which has to end well."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def output_of(*command: str, timeout: float = 300.0, **options: Any) -> str:
    """What Python prints with this command line, such as ``"-c", code``."""
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=timeout, **options
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
