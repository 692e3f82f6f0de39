"""How checkpoint files are written: whole or not at all, and without a trace of killed writes."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest
from _checkpoint import data, make

from skbayes_sgmcmc import SamplingError
from skbayes_sgmcmc._engine.checkpoint import write_atomically

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


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


def test_where_files_have_no_locks_a_file_is_closed_before_it_moves(tmp_path, monkeypatch):
    """Windows moves no file that is open."""
    opened, moves = [], []
    open_, replace = os.fdopen, os.replace

    def fdopen(*args):
        opened.append(open_(*args))
        return opened[-1]

    def move(*paths):
        moves.append(opened[-1].closed)
        replace(*paths)

    monkeypatch.setattr(os, "fdopen", fdopen)
    monkeypatch.setattr(os, "replace", move)
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    write_atomically(tmp_path / "file.npz", {"a": np.arange(3)})
    assert moves == [True]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]


def test_a_fit_leaves_no_temporary_files(tmp_path):
    make("default", tmp_path / "file.npz").fit(*data())
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.npz"]


def writer(path, when):
    """A child that is killed in the midst of a write, or that writes until ``end`` is closed.

    Returns its number, a pipe that says that it writes, and ``end``, which a test that fails closes
    with its process.
    """
    (told, tell), (wait, end), child = os.pipe(), os.pipe(), os.fork()
    if child:
        os.close(tell)
        return child, told, end
    os.close(end)
    np.savez = {
        "now": lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL),
        "later": lambda *args, **kwargs: (os.write(tell, b"writes"), os.read(wait, 1)),
    }[when]
    try:
        write_atomically(path, {})
    finally:
        os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_the_next_write_removes_what_killed_processes_left(tmp_path):
    """And no other file: not one that a process still writes, nor one that looks similar."""
    path, other = tmp_path / "file[1].npz", tmp_path / "file[1].npz.mine.tmp"
    other.write_text("the user's")
    killed, *_ = writer(path, "now")
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == -signal.SIGKILL
    assert len(left := set(tmp_path.iterdir()) - {other}) == 1
    alive, told, end = writer(path, "later")
    assert os.read(told, 6) == b"writes"
    write_atomically(path, {"a": np.arange(3)})
    found = set(tmp_path.iterdir())
    assert left.isdisjoint(found) and found > {path, other} and len(found) == 3
    os.close(end)
    assert os.waitstatus_to_exitcode(os.waitpid(alive, 0)[1]) == 0
    assert set(tmp_path.iterdir()) == {path, other}


def test_divergence_does_not_overwrite_a_file(tmp_path):
    X, y = data()
    path = tmp_path / "file.npz"
    clf = make("default", path).set_params(step_size=1e17, prior_scale=1.0)
    with pytest.raises(SamplingError):
        clf.fit(X * 1e140, y)
    assert not path.exists()
