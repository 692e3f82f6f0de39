"""Code that a process compiles and code that it finds on disk take the same steps, to the bit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")

SLOPES = """
import hashlib
import numpy as np
from skbayes_sgmcmc._kernels import perceptron
rng, none = np.random.default_rng(0), np.zeros((1, 0, 0), np.int64)
sizes = np.array([1, 16, 16, 2])
draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
theta, one = draw(2, 338), np.ones(2, np.float32)
rows = (draw(1, 200, 1), draw(1, 200, 1), none, np.zeros(0, np.int64),
        np.ones((1, 200), np.float32),
        sizes, perceptron.RELU, perceptron.HETEROSCEDASTIC, one[:1], 0.001 * one[:1], one)
slope = np.zeros_like(theta)
perceptron.gradient(theta, rows, slope)
print(hashlib.sha256(slope.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_process_that_compiles_has_the_draws_of_all_others(tmp_path):
    """Its sums had another order than those of later processes, so that the same seed differed.

    A fit that was interrupted in this process did not end as one that was never stopped, either.
    """
    found = [
        subprocess.run(
            [sys.executable, "-c", SLOPES],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for _ in range(2)
    ]
    assert list(tmp_path.rglob("*.nbc"))  # the second process had code to find
    assert found[0] == found[1]
