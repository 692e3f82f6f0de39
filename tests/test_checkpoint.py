"""Interrupts, kill -9, resumption and damaged files.

A resumed fit must be the uninterrupted one bit for bit: its draws, and where it would go on from.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from _checkpoint import FITS, QUICK, assert_same, data, make

from skbayes_sgmcmc import (
    SamplingWarning,
    sample,
)
from skbayes_sgmcmc._engine.chains import LONG_CHUNK, Chains
from skbayes_sgmcmc._engine.checkpoint import Checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: other processes find the package where this one did
HERE = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

# kill -9 ------------------------------------------------------------------------------------------


def fit_and_be_killed(folder, names):
    """Run each of these fits in a child that kills itself once its file has been written."""
    from skbayes_sgmcmc._engine import checkpoint

    checkpoint.EVERY_SECONDS = checkpoint.WRITE_SHARE = 0.0  # write after every chunk
    maybe_save = Checkpoint.maybe_save
    for name in names:
        chunks = FITS[name][1]
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            continue
        done = 0

        def save_and_die(self, chains, last=chunks):
            nonlocal done
            maybe_save(self, chains)
            done += 1
            if done == last:
                os.kill(os.getpid(), signal.SIGKILL)

        Checkpoint.maybe_save = save_and_die
        checkpoint.EVERY_SECONDS, checkpoint.WRITE_SHARE = 0.0, 1e9
        make(name, str(Path(folder) / f"{name}.npz")).fit(*data())


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """``killed(name)`` is the file of a killed fit; the quick ones die together, and the others."""
    files = {}

    def file_of(name):
        if name not in files:
            folder = tmp_path_factory.mktemp("killed")
            names = [other for other in FITS if (other in QUICK) == (name in QUICK)]
            call = f"test_checkpoint.fit_and_be_killed({str(folder)!r}, {names!r})"
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", f"import test_checkpoint; {call}"],
                check=True,
                timeout=300,
                env=HERE,
                cwd=Path(__file__).parent,
            )
            files.update({each: folder / f"{each}.npz" for each in names})
        return files[name]

    return file_of


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FITS]
)
def test_resumes_bit_for_bit_after_kill(killed, name, monkeypatch):
    path = str(killed(name))
    with np.load(path) as file:
        assert f'"step": {LONG_CHUNK}' in str(file["meta"]) or FITS[name][1] > 1
        assert (int(file["kept"]) == 0) == (FITS[name][1] == 1)  # in burn-in, and after it
    chunks = count_chunks(monkeypatch)
    whole = make(name).fit(*data())
    of_whole = len(chunks)
    resumed = make(name, path).fit(*data())
    assert len(chunks) - of_whole == of_whole - FITS[name][1]  # it did not start anew
    assert_same(resumed, whole)


def count_chunks(monkeypatch):
    chunks, chunk = [], Chains._chunk

    def counted(self, steps):
        chunks.append(steps)
        return chunk(self, steps)

    monkeypatch.setattr(Chains, "_chunk", counted)
    return chunks


def test_a_finished_file_is_returned_at_once(tmp_path, monkeypatch):
    """A process that is killed between the fit's end and its use of the result loses nothing."""
    first = make("default", tmp_path / "file.npz").fit(*data())
    chunks = count_chunks(monkeypatch)
    again = make("default", tmp_path / "file.npz").set_params(verbose=1).fit(*data())
    assert not chunks
    assert_same(first, again)
    (tmp_path / "file.npz").rename(tmp_path / "moved.npz")
    assert_same(first, make("default", tmp_path / "moved.npz").fit(*data()))


def test_each_group_of_chains_has_a_file(tmp_path, monkeypatch):
    """Of three chains in two groups; the group whose file is gone is drawn anew, the other is not.

    So a chain goes on from its file when joblib gives it to another worker.
    """

    def fit(path):
        with joblib.parallel_config("threading"):
            return make("minibatches", path).set_params(n_chains=3, n_jobs=2).fit(*data())

    whole, chunks = fit(None), count_chunks(monkeypatch)
    assert_same(fit(tmp_path / "file.npz"), whole)
    assert {file.name for file in tmp_path.iterdir()} == {"file.0-1.npz", "file.2-2.npz"}
    of_both = len(chunks)
    (tmp_path / "file.2-2.npz").unlink()
    assert_same(fit(tmp_path / "file.npz"), whole)
    assert 2 * (len(chunks) - of_both) == of_both
    assert_same(fit(tmp_path / "file.npz"), whole)
    assert 2 * (len(chunks) - of_both) == of_both


# Ctrl-C -------------------------------------------------------------------------------------------


def interrupt_in_chunk(monkeypatch, number):
    """Ctrl-C in the midst of the steps of a chunk."""
    # a shell's background jobs ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    calls, set_scale = [], Chains._set_scale

    def step(self, eta, temperature):
        calls.append(self.cursor.step)
        if calls.count(number * LONG_CHUNK) == 100:
            calls.clear()
            signal.raise_signal(signal.SIGINT)
        return set_scale(self, eta, temperature)

    monkeypatch.setattr(Chains, "_set_scale", step)


@pytest.mark.parametrize("name", ["default", "sghmc", "schedule"])
def test_ctrl_c_leaves_a_file_to_go_on_from(tmp_path, monkeypatch, name):
    path = tmp_path / "file.npz"
    clf = make(name, path)
    with monkeypatch.context() as patch:
        interrupt_in_chunk(patch, 1)
        with pytest.raises(KeyboardInterrupt) as caught:
            clf.fit(*data())
    text = str(caught.value)
    assert f"interrupted at step {LONG_CHUNK} of" in text
    assert "call fit again with the same data and parameters" in text and str(path) in text
    assert set(vars(clf)) == set(clf.get_params(deep=False))
    chunks = count_chunks(monkeypatch)
    clf.fit(*data())
    assert chunks[0][0] == LONG_CHUNK
    assert_same(clf, make(name).fit(*data()))


def test_ctrl_c_without_a_file_says_what_to_do(tmp_path, monkeypatch):
    interrupt_in_chunk(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt, match=r"nothing was kept. Set checkpoint='file.npz'"):
        make("default").fit(*data())
    with pytest.raises(KeyboardInterrupt, match="before the first checkpoint; nothing was kept"):
        make("default", tmp_path / "file.npz").fit(*data())
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_a_fitted_estimator_as_it_was(monkeypatch):
    clf = make("default").fit(*data())
    before = clf.posterior_
    interrupt_in_chunk(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(data()[0][:, :3], data()[1])
    assert clf.posterior_ is before and clf.n_features_in_ == 5


def test_resumes_after_a_chain_has_diverged(tmp_path, monkeypatch):
    """By the end of the first chunk chain 1 is gone; the file knows which chains are left.

    It knows when the other one went, too, and the warning says so as in a run without a break.
    """

    def run(path):
        return sample(
            lambda theta: -0.25 * (theta**4).sum(1),
            2,
            init=np.array([[0.0, 0.0], [1e3, 0.0], [0.0, 0.0]]),
            n_chains=3,
            n_draws=3 * LONG_CHUNK,
            burn_in=0,
            step_size=0.01,
            random_state=0,
            checkpoint=path,
        )

    with monkeypatch.context() as patch:
        interrupt_in_chunk(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "file.npz")
    reported = r"1 of 3 chains diverged \(chain 1 by step 1024 of.* may be biased"
    with pytest.warns(SamplingWarning, match=reported):
        resumed = run(tmp_path / "file.npz")
    with pytest.warns(SamplingWarning, match=reported):
        whole = run(None)
    assert resumed.n_chains == 2
    np.testing.assert_array_equal(resumed["theta"], whole["theta"])
