"""Models in other processes, and what a signal ends: docs/reliability.md says which ways work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import skbayes_sgmcmc

#: with this copy of the package
HERE = os.environ | {"PYTHONPATH": str(Path(skbayes_sgmcmc.__file__).parents[1])}
#: seconds after which a process hangs; on a machine whose cores are all taken, two threads of small
#: operations wait for each other, and what takes 10 s took more than 200
HANGS = 900

FITTED = """
import multiprocessing, signal, sys, warnings
import torch
from sklearn.datasets import load_iris
from skbayes_sgmcmc import BayesianMLPClassifier

X, y = load_iris(return_X_y=True)
clf = BayesianMLPClassifier(n_draws=5, burn_in=20, thinning=1, random_state=0)

def predict(queue, clf):
    queue.put(clf.predict_proba(X).tolist())
    queue.put(clf.fit(X, y).predict_proba(X).tolist())
"""
CHILD = """
if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    expected = clf.fit(X, y).predict_proba(X)
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    child = context.Process(target=predict, args=(queue, clf))
    child.start()
    for _ in range(2):
        assert abs(expected - queue.get(timeout=400)).max() < 1e-6
    child.join()
    print("equal")
"""
LONG = """
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print("fits", flush=True)
    clf.set_params(burn_in=10**9, n_jobs=2, verbose=0).fit(X, y)
"""


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(FITTED + text)
    return [sys.executable, str(path)]


@pytest.mark.slow  # test_checkpoint.py has a fit in another process, and files its draws
@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_children_that_are_started_afresh_predict_and_fit(tmp_path, start):
    """After a fit with two torch threads, where a forked child hangs; equal to rounding."""
    command = [*script(tmp_path, CHILD), start]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, env=HERE)
    assert done.stdout == "equal\n", done.stderr


@pytest.fixture
def long_fit(tmp_path):
    """A fit with two workers that would take days, in a process group of its own."""
    fit = subprocess.Popen(
        script(tmp_path, LONG),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=HERE,
    )
    assert fit.stdout.readline() == "fits\n"
    time.sleep(20)  # until the workers are at work
    assert fit.poll() is None
    yield fit
    if group_lives(fit.pid):
        os.killpg(fit.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are POSIX's")
def test_a_handler_of_sigterm_ends_the_workers_too(long_fit):
    """Within a minute, of a fit that would take days; without it they go on to their end."""
    long_fit.send_signal(signal.SIGTERM)
    assert long_fit.wait(60) == 143
    assert group_ends(long_fit.pid)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are POSIX's")
def test_ctrl_c_ends_the_workers_too(long_fit):
    """A terminal sends the signal to the whole group."""
    os.killpg(long_fit.pid, signal.SIGINT)
    assert long_fit.wait(60) == -signal.SIGINT
    assert "KeyboardInterrupt" in long_fit.stderr.read()
    assert group_ends(long_fit.pid)


def group_ends(group):
    """Within a minute."""
    for _ in range(60):
        if not group_lives(group):
            return True
        time.sleep(1)
    return False


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
