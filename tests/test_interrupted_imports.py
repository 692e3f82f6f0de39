"""Ctrl-C during the first fit of a process, while torch and numba are imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from skbayes_sgmcmc._imports import interrupts_deferred

#: interrupts the first import of a module, and fits again
PROGRAM = """
import signal, sys
import numpy as np
from skbayes_sgmcmc import BayesianLogisticRegression

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
X = np.random.default_rng(0).standard_normal((50, 2))
clf = BayesianLogisticRegression(max_steps=50, n_chains=2, random_state=0)
try:
    clf.fit(X, X[:, 0] > 0.0)
except KeyboardInterrupt:
    print("interrupted")
print(clf.fit(X, X[:, 0] > 0.0).predict_proba(X).shape)
"""


@pytest.mark.parametrize("module", ["torch._tensor", "numba.core.types"])
def test_a_fit_after_one_that_was_interrupted_in_imports(module):
    # found by hand: the second fit ended the process, or modules lacked some of their names
    if module.startswith("numba"):
        pytest.importorskip("numba")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, module]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.stdout.splitlines() == ["interrupted", "(50, 2)"], found.stderr


def test_interrupts_wait_for_the_end_of_a_block():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("block")
    assert done == ["block"]
    with pytest.raises(KeyboardInterrupt):  # the handler is the former one again
        signal.raise_signal(signal.SIGINT)


def test_other_threads_are_left_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def block():
        with interrupts_deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert seen == [before]
