"""Rows in memory maps: other processes, and faults."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _stored import P, Table, problem
from sklearn.base import clone

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
)
from skbayes_sgmcmc._data.rows import StoredRows
from skbayes_sgmcmc._engine.fingerprint import fingerprint
from skbayes_sgmcmc.models.designs.design import StoredDesign

RUN = {"n_chains": 2, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


@pytest.fixture
def small_is_large(limits):
    """Tables of a few rows take the way of large ones, in several blocks."""
    limits(held_bytes=0, block_numbers=700 * (P + 1), read_bytes=4 * P * 128)


QUICK = {"n_draws": 10, "burn_in": 20, "thinning": 1}


# other processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [slice(None), slice(100, 1900), slice(None, None, 2)])
def test_maps_go_to_other_processes_by_their_path(tmp_path, cut):
    """The rows are the same; with their path in the pickle they take no room in it."""
    X, _ = problem()
    np.save(tmp_path / "x.npy", X)
    stored = StoredRows(np.load(tmp_path / "x.npy", mmap_mode="r")[cut])
    sent = pickle.dumps(stored)
    assert (len(sent) < 2000) == (cut.step is None)  # every other row is no place of a file
    there = pickle.loads(sent)
    np.testing.assert_array_equal(there[:], X[cut])
    np.testing.assert_array_equal(there.take(np.array([7, 3])), X[cut][[7, 3]])
    assert pickle.loads(pickle.dumps(there))[0:1].shape == (1, P)


@pytest.mark.parametrize(
    "change, message",
    {
        lambda path: path.unlink(): "does not exist on '",
        lambda path: path.write_bytes(b"less"): "has 4 bytes on '",
    }.items(),
    ids=["missing", "another"],
)
def test_a_worker_without_the_file_says_so(tmp_path, change, message):
    """With the path, when it needs the first row."""
    np.save(tmp_path / "x.npy", problem()[0])
    there = pickle.loads(pickle.dumps(StoredRows(np.load(tmp_path / "x.npy", mmap_mode="r"))))
    change(tmp_path / "x.npy")
    with pytest.raises(FileNotFoundError, match=message) as caught:
        there.take(np.array([0]))
    assert str(tmp_path / "x.npy") in str(caught.value)


def test_a_map_whose_file_is_gone_is_sent_as_rows(tmp_path):
    """This process still has them, and no other could open the file."""
    X, _ = problem()
    np.save(tmp_path / "x.npy", X)
    stored = StoredRows(np.load(tmp_path / "x.npy", mmap_mode="r"))
    (tmp_path / "x.npy").unlink()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(stored))[:], X)


# faults -------------------------------------------------------------------------------------------


def with_nan(row, kind=np.nan):
    X, y = problem()
    X[row, 2] = kind
    return X, y


@pytest.mark.parametrize("model", [BayesianLogisticRegression(**RUN), BayesianGLMRegressor(**RUN)])
def test_the_row_of_a_missing_value_is_named(model, small_is_large):
    X, y = with_nan(1345)
    with pytest.raises(ValueError, match="NaN: the value of row 1345 in column 2"):
        clone(model).fit(X, y)
    with pytest.raises(ValueError, match=r"row 1345 contains NaN or infinity"):
        clone(model).fit(Table(X), y)
    infinite, _ = with_nan(7, np.inf)
    with pytest.raises(ValueError, match="infinity: the value of row 7 in column 2"):
        clone(model).fit(sp.csr_matrix(infinite), y)


def test_a_file_that_changes_is_refused_before_it_is_read(tmp_path, small_is_large):
    """To read a map beyond the end of its file would kill the process, without a message."""
    X, _ = problem()
    path = tmp_path / "x.npy"
    np.save(path, X)
    for change in (lambda: os.truncate(path, 1000), lambda: os.utime(path, ns=(0, 0))):
        np.save(path, X)
        stored = StoredRows(np.load(path, mmap_mode="r"))
        stored[5:8]
        change()
        for read in (lambda: stored[5:8], lambda: stored.take(np.array([5]))):  # noqa: B023
            with pytest.raises(
                RuntimeError, match=r"x\.npy' of X has changed since the call began"
            ):
                read()
    np.save(path, X)
    stored = StoredRows(np.load(path, mmap_mode="r"))
    os.remove(path)  # the map keeps its rows
    np.testing.assert_array_equal(stored[5:8], X[5:8])


def test_a_table_that_shrinks_or_can_not_be_read(small_is_large):
    X, y = problem()
    table = Table(X)
    table.values = X[:1000]
    with pytest.raises(RuntimeError, match=r"X has changed since the call began: rows"):
        BayesianLogisticRegression(**RUN).fit(table, y)
    table = Table(X)
    table.dtype = np.dtype("U3")
    with pytest.raises(ValueError, match="X of type Table with the dtype <U3 is not allowed"):
        BayesianLogisticRegression(**RUN).fit(table, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        BayesianLogisticRegression(**RUN).fit(Table(X), y[:-1])
    clf = BayesianLogisticRegression(**RUN, **QUICK).fit(Table(X), y)
    with pytest.raises(ValueError, match="3 features"):
        clf.predict(Table(X[:, :3]))
    with pytest.raises(ValueError, match="stays in its file"):
        BayesianGLMRegressor(groups=0, **RUN).fit(Table(np.round(X)), y)


def test_checkpoints_know_the_rows(tmp_path):
    """Their digest changes with a row. A map has the digest of its array, and the same draws."""
    X, _ = problem()
    other = X.copy()
    other[1234, 0] += 1.0
    np.save(tmp_path / "x.npy", X)
    tables = [
        X,
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        Table(X),
        Table(X),
        other,
        Table(other),
    ]
    designs = [StoredDesign(StoredRows(t), torch.float64, "cpu", True) for t in tables]
    digests = [fingerprint(design) for design in designs]
    assert digests[0] == digests[1] and digests[2] == digests[3]
    assert len({digests[0], digests[2], *digests[4:]}) == 4


def test_an_unknown_number_of_rows_is_refused():
    """Dask does not count rows that are chosen by their values."""
    array = pytest.importorskip("dask.array")
    X = array.from_array(np.random.default_rng(0).standard_normal((40, 2)), chunks=10)
    clf, chosen = BayesianLogisticRegression(n_draws=5, burn_in=5), X[X[:, 0] > -9.0]
    with pytest.raises(ValueError, match="unknown number of rows .* give X.compute_chunk_sizes()"):
        clf.fit(chosen, np.arange(40) % 2)
    clf.fit(chosen.compute_chunk_sizes(), np.arange(40) % 2)
