"""Code that a process compiles and code that it finds on disk take the same steps, to the bit."""

from __future__ import annotations

import os

import pytest
from _process import output_of

pytest.importorskip("numba")

SLOPES = """
import hashlib
import numpy as np
from skbayes_sgmcmc._kernels import layers, perceptron
rng, none = np.random.default_rng(0), np.zeros((1, 0, 0), np.int64)
sizes = np.array([1, 16, 16, 2])
draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
theta, one = draw(2, 338), np.ones(2, np.float32)
rows = (draw(1, 200, 1), draw(1, 200, 1), none, np.array([2]), np.ones((1, 200), np.float32),
        sizes, layers.RELU, perceptron.HETEROSCEDASTIC, one[:1], 0.001 * one[:1], one)
slope = np.zeros_like(theta)
perceptron.gradient(theta, rows, None, None, slope, np.zeros(2))
print(hashlib.sha256(slope.tobytes()).hexdigest())
"""

#: two functions of one factory, which differ only in what their closures hold
STEPS = """
import hashlib
import numpy as np
from skbayes_sgmcmc._kernels.linear import STEPS
rng, no_numbers = np.random.default_rng(0), np.empty(0, np.uint64)
x = rng.standard_normal((9, 3))
places = np.tile(np.arange(3, dtype=np.uint64), 9)
rows = {"dense": (x, no_numbers, no_numbers),
        "padded": (x.ravel(), places, np.array([0, 3], np.uint64))}
PRIOR = np.ones(3), np.zeros(3, int), np.array([[1.0, 1.0, 0.0]])
for layout in rows:
    kept = np.empty((5, 3))
    STEPS[layout](np.zeros(3), np.full(5, 0.1), np.zeros(5), np.arange(9, dtype=np.uint64)[None],
                  np.zeros((5, 3)), np.ones(5, bool), kept, *rows[layout],
                  np.empty(0), PRIOR, 1, 0.3)
    print(layout, hashlib.sha256(kept.tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [SLOPES, STEPS])
def test_the_process_that_compiles_has_the_draws_of_all_others(code, tmp_path):
    """Its sums had another order than those of later processes, so that the same seed differed.

    A fit that was interrupted in this process did not end as one that was never stopped, either.
    Later processes compile nothing: they compiled functions again that hold others in a closure.
    """
    found, files = [], []
    for _ in range(2):
        found.append(output_of("-c", code, env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}))
        files.append({path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")})
    assert files[0]  # the second process had code to find
    assert files[0] == files[1]
    assert found[0] == found[1]


def kept(folder, monkeypatch):
    """A function that looks for its code in this folder, and keeps it there."""
    from numba import config, njit

    from skbayes_sgmcmc._kernels._kept import KeptCode

    monkeypatch.setattr(config, "CACHE_DIR", str(folder))
    compiled = njit(plus_one)
    compiled._cache = KeptCode(plus_one)
    return compiled


def test_a_damaged_index_is_replaced(tmp_path, monkeypatch):
    """Else every later process would compile again."""
    found = []
    for damaged in (False, True, False):
        for index in tmp_path.rglob("*.nbi"):
            if damaged:
                index.write_bytes(b"damaged")
        compiled = kept(tmp_path, monkeypatch)
        assert compiled(1) == 2
        found.append(sum(compiled.stats.cache_hits.values()))
    assert found == [0, 0, 1]


def test_an_index_without_damage_stays_where_new_code_cannot_be_kept(tmp_path, monkeypatch):
    """A full disk lost the code of all functions that had been compiled before."""
    from numba.core.caching import IndexDataCacheFile

    def full(*args):
        raise OSError("No space left on device")

    assert kept(tmp_path, monkeypatch)(1) == 2
    with monkeypatch.context() as patch:
        patch.setattr(IndexDataCacheFile, "_save_data", full)
        assert kept(tmp_path, monkeypatch)(1.0) == 2.0
    compiled = kept(tmp_path, monkeypatch)
    assert compiled(1) == 2
    assert sum(compiled.stats.cache_hits.values()) == 1


def plus_one(x):
    return x + 1


def test_without_compilation_fits_are_as_without_numba():
    code = """
import numpy as np, pytest
from skbayes_sgmcmc import BayesianLogisticRegression
X = np.random.default_rng(0).standard_normal((50, 2))
fit = lambda **kw: BayesianLogisticRegression(n_draws=5, **kw).fit(X, X[:, 0] > 0.0)
assert fit().compiled_ == ()
with pytest.raises(ValueError, match="because NUMBA_DISABLE_JIT is set"):
    fit(compiled=True)
"""
    output_of("-c", code, env=os.environ | {"NUMBA_DISABLE_JIT": "1"})
