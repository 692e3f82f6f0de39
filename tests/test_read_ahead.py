"""Blocks of a file are read in a thread, one in advance, while earlier ones are computed with."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from _cases import cases

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc._data.read_ahead import read_ahead
from skbayes_sgmcmc._data.rows import StoredRows
from skbayes_sgmcmc.models.designs.design import make_design

PATIENCE = 30.0  # seconds until a thread that should have begun counts as missing


def threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("read-ahead")]


@cases("count", [0, 1, 2, 7])
@cases("ahead", [True, False])
def test_every_part_comes_once_and_in_order(count, ahead):
    found = list(read_ahead(lambda k: k * k, range(count), ahead=ahead))
    assert found == [(k, k * k) for k in range(count)]
    assert not threads()


def test_the_next_part_is_read_while_one_is_computed_with():
    """A loop that waits, in every pass, until the next reading has begun would never end else."""
    begun = [threading.Event() for _ in range(5)]

    def read(k):
        begun[k].set()
        return k

    for k, _ in read_ahead(read, range(5)):
        assert begun[min(k + 1, 4)].wait(PATIENCE)
        # one in advance: memory holds two parts, whatever is computed with them
        assert not any(later.is_set() for later in begun[k + 2 :])


def test_the_thread_ends_with_a_loop_that_is_left():
    for _ in read_ahead(lambda k: k, range(100)):
        break
    assert not threads()


class Failing:
    """A table whose rows from ``first`` on cannot be read."""

    def __init__(self, values, first):
        self.values, self.first = values, first
        self.shape, self.dtype = values.shape, values.dtype
        self.readers = set()

    def __getitem__(self, chosen):
        self.readers.add(threading.current_thread().name)
        if chosen.stop > self.first:
            raise OSError(f"no answer from the disk at row {self.first}")
        return self.values[chosen].copy()


@pytest.fixture
def small_is_large(limits):
    """Tables of a few rows take the way of large ones, in several blocks."""
    limits(held_bytes=0, block_numbers=2800, read_bytes=4 * 3 * 128)


def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2001, 3)).astype(np.float32)
    return X, (X[:, 0] + rng.logistic(size=len(X)) > 0.0).astype(int)


def test_a_read_error_in_the_thread_reaches_the_user(small_is_large):
    """With its own class and message, and no thread is left."""
    X, y = problem()
    table = Failing(X, 1500)
    with pytest.raises(OSError, match="no answer from the disk at row 1500"):
        BayesianLogisticRegression(n_chains=2, random_state=0).fit(table, y)
    assert any(name.startswith("read-ahead") for name in table.readers)
    assert not threads()


def test_only_tables_are_read_in_a_thread(small_is_large, tmp_path):
    """Of arrays there is nothing to wait for, and of memory maps the system reads ahead."""
    X, _ = problem()
    np.save(tmp_path / "x.npy", X)
    table = Failing(X, np.inf)
    stored = {"array": X, "map": np.load(tmp_path / "x.npy", mmap_mode="r"), "table": table}
    how = {"dtype": torch.float32, "device": "cpu", "intercept": True}
    designs = {name: make_design(StoredRows(x), **how) for name, x in stored.items()}
    ahead = {name: Data({"x": design}, len(X)).ahead for name, design in designs.items()}
    assert ahead == {"array": False, "map": False, "table": True}
    for name, design in designs.items():
        blocks = Data({"x": design}, len(X)).blocks()
        read = [block.fields["x"].whole().dense().numpy() for _, block in blocks]
        assert len(read) > 1
        np.testing.assert_array_equal(np.concatenate(read)[:, :-1], X, err_msg=name)
