"""How checkpoint files are written: whole or not at all, and without a trace of killed writes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from _checkpoint import data, make

from skbayes_sgmcmc import SamplingError
from skbayes_sgmcmc._engine.checkpoint import write_atomically

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: other processes find the package where this one did
HERE = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_writes_are_atomic(tmp_path, monkeypatch):
    """A failure at any moment of a write leaves the old file, and no other."""
    path = tmp_path / "file.npz"
    write_atomically(path, {"a": np.arange(3)})
    before = path.read_bytes()
    for where in ("numpy.savez", "os.fsync", "os.replace"):
        with monkeypatch.context() as patch:

            def fail(*args, **kwargs):
                raise OSError("disk full")

            patch.setattr(where, fail)
            with pytest.raises(OSError, match="disk full"):
                write_atomically(path, {"a": np.arange(4)})
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]


def test_a_fit_leaves_no_temporary_files(tmp_path):
    make("default", tmp_path / "file.npz").fit(*data())
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]


KILLED = """
import os, sys
import numpy as np
from pathlib import Path
from skbayes_sgmcmc._engine.checkpoint import write_atomically
if sys.argv[2] == "now":
    np.savez = lambda *args, **kwargs: os.kill(os.getpid(), 9)
else:
    np.savez = lambda *args, **kwargs: (print("writes", flush=True), sys.stdin.read())
write_atomically(Path(sys.argv[1]), {})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no locks")
def test_the_next_write_removes_what_killed_processes_left(tmp_path):
    """And no other file: not one that a process still writes, nor one that looks similar."""
    path, other = tmp_path / "file[1].npz", tmp_path / "file[1].npz.mine.tmp"
    other.write_text("the user's")

    def writer(when):
        return subprocess.Popen(
            [sys.executable, "-c", KILLED, path, when],
            env=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    with writer("now") as killed:
        assert killed.wait() == -9
    assert len(left := set(tmp_path.iterdir()) - {other}) == 1
    with writer("later") as alive:
        assert alive.stdout.readline() == "writes\n"
        write_atomically(path, {"a": np.arange(3)})
        found = set(tmp_path.iterdir())
        assert left.isdisjoint(found) and found > {path, other} and len(found) == 3
        alive.stdin.close()
    assert alive.returncode == 0
    assert set(tmp_path.iterdir()) == {path, other}


def test_divergence_does_not_overwrite_a_file(tmp_path):
    X, y = data()
    path = tmp_path / "file.npz"
    clf = make("default", path).set_params(step_size=1e17)
    with pytest.raises(SamplingError):
        clf.fit(X * 1e140, y)
    assert not path.exists()
