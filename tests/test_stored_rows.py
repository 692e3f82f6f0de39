"""Rows that stay where they are: large arrays, memory maps, and tables that only know slices.

Other processes open maps by their path, of sparse rows, too.
"""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from _inside import streams
from _posteriors import assert_same_draws
from sklearn.base import clone

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
)
from skbayes_sgmcmc._data import rows
from skbayes_sgmcmc._data.minibatch import Data, Minibatches
from skbayes_sgmcmc._data.row_odds import RowOdds
from skbayes_sgmcmc._data.rows import StoredRows
from skbayes_sgmcmc._data.scaling import center_and_scale, scale_of_effects
from skbayes_sgmcmc._engine.fingerprint import fingerprint
from skbayes_sgmcmc.models.designs.design import (
    DenseDesign,
    SparseDesign,
    StoredDesign,
    StoredSparseDesign,
    make_design,
)

RUN = {"n_chains": 2, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

N, P = 2001, 5  # rows that no size of a block divides


class Table:
    """A file that only knows slices, as the least of what h5py, zarr and dask offer."""

    def __init__(self, values, chunk=None):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.asked = []
        if chunk is not None:
            self.chunks = (chunk, values.shape[1])

    def __getitem__(self, chosen):
        assert isinstance(chosen, slice) and chosen.step is None
        self.asked.append((chosen.start, chosen.stop))
        return self.values[chosen].copy()


def problem(n=N, p=P, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)).astype(dtype)
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ np.linspace(-1.0, 1.0, p) - 0.5))).astype(int)
    return X, y


@pytest.fixture
def small_is_large(limits):
    """Tables of a few rows take the way of large ones, in several blocks."""
    limits(held_bytes=0, block_numbers=700 * (P + 1), read_bytes=4 * P * 128)


# reading ------------------------------------------------------------------------------------------


@cases("chunk", [None, 1, 100, 5000])
@cases("kind", ["array", "fortran", "wider", "table", "whole numbers"])
def test_rows_are_those_of_the_table(kind, chunk, small_is_large):
    """Slices, numbers in any order, masks and columns; a column-major array is copied once."""
    X = (10.0 * problem()[0]).round() if kind == "whole numbers" else problem()[0]
    tables = {
        "array": X,
        "fortran": np.asfortranarray(X),
        "wider": np.hstack([X, X])[:, :P],
        "table": Table(X, chunk),
        "whole numbers": Table(X.astype(np.int16), chunk),
    }
    stored = StoredRows(tables[kind])
    assert stored.dtype == (np.float64 if kind == "whole numbers" else np.float32)
    assert stored.shape == X.shape and len(stored) == N
    mask, numbers = X[:, 0] > 0.3, np.random.default_rng(0).integers(0, N, 57)
    for chosen in (slice(None), slice(7, 9), slice(1990, 4000), slice(0, N, 400), numbers, [3, 1]):
        np.testing.assert_array_equal(stored[chosen], X[chosen])
    np.testing.assert_array_equal(stored[mask][:], X[mask])
    np.testing.assert_array_equal(stored[mask][np.array([5, 0])], X[mask][[5, 0]])
    some = stored[:, [3, 1]]
    np.testing.assert_array_equal(some[:], X[:, [3, 1]])
    np.testing.assert_array_equal(some[mask][:, [1]][4:9], X[mask][4:9, [1]])
    blocks = list(stored.blocks(256))
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), X)
    assert [r.stop - r.start for r, _ in blocks] == [256] * 7 + [N - 7 * 256]


def test_blocks_of_a_table_are_read_once_each(small_is_large):
    """Scattered rows of a file cost one slice for each block that has some of them."""
    table = Table(problem()[0], chunk=100)
    stored = StoredRows(table)
    assert stored.run == 100  # the 128 rows of LIMITS.read_bytes, in whole chunks
    stored.take(np.array([1999, 5, 150, 99, 120, 5]))
    assert table.asked == [(5, 100), (120, 151), (1999, 2000)]


@cases("weighted", [False, True])
@cases("dtype", [np.float32, np.float64])
def test_moments_by_blocks(weighted, dtype):
    """Those of the whole array up to rounding, for constants and near the ends of the range."""
    X = problem(dtype=dtype)[0]
    X[:, 0], X[:, 1] = 7.0, X[:, 1] * dtype(np.finfo(dtype).max / 100)
    weight = np.random.default_rng(0).random(N) if weighted else None
    by_blocks = center_and_scale(StoredRows(Table(X)), weight)
    for found, whole in zip(by_blocks, center_and_scale(X, weight), strict=True):
        np.testing.assert_allclose(found, whole, rtol=1e-5 if dtype == np.float32 else 1e-12)
    pixels = np.random.default_rng(0).integers(0, 256, (N, P)).astype(dtype)
    stored, held = (
        scale_of_effects(rows, None, center_and_scale(pixels, None), by_values=True)
        for rows in (StoredRows(Table(pixels)), pixels)
    )
    np.testing.assert_array_equal(stored, held)


def test_a_stored_design_is_the_held_one():
    """Batches, blocks and sums of rows that get their ones, signs and precision when read."""
    X, y = problem()
    sign = (1 - 2 * y).astype(np.int8)
    stored = StoredDesign(StoredRows(X), torch.float64, "cpu", True).scale_rows(sign)
    held = DenseDesign(torch.from_numpy(np.hstack([X, np.ones((N, 1))]).astype(float)))
    held.scale_rows(sign)
    r, w = np.random.default_rng(0).standard_normal((2, N, 2))
    for k in (1, 2):  # every row as one batch, which products read
        theta = torch.from_numpy(w[: 3 * (P + 1)].reshape(3, P + 1, 2)[..., :k])
        theta = theta[..., 0] if k == 1 else theta
        ours, theirs = stored.whole().logits(theta), held.whole().logits(theta)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        sums = torch.zeros_like(theta), torch.zeros_like(theta)
        stored.whole().accumulate(sums[0], ours, 0.5)
        held.whole().accumulate(sums[1], ours, 0.5)
        np.testing.assert_allclose(*sums, rtol=1e-9)
    np.testing.assert_array_equal(stored.whole().dense(), held.x)
    for design in (stored, stored.held()):
        assert design.shape == held.shape
        # rows are multiplied in the precision in which they are stored
        near = {"rtol": 1e-5, "atol": 1e-5}
        np.testing.assert_allclose(design.times(w[: P + 1]), held.times(w[: P + 1]), **near)
        np.testing.assert_allclose(design.transposed_times(r), held.transposed_times(r), **near)
        squares = design.moved_squares(w[: P + 1]), held.moved_squares(w[: P + 1])
        np.testing.assert_allclose(*squares, **near)
        sums = design.gram(r[:, 0]), held.gram(r[:, 0])
        np.testing.assert_allclose(*sums, rtol=1e-5, atol=1e-3)
        for some in (design[5:9], design[np.arange(5, 9)]):
            np.testing.assert_array_equal(some.whole().dense(), held.x[5:9])
        indices = np.array([[[4, 2000]], [[7, 7]]])
        for a, b in zip(design.gather(indices), held.gather(indices), strict=True):
            np.testing.assert_array_equal(a.x, b.x)


def test_sums_of_squares_leave_the_range_of_single_precision():
    """Squares of 1e-25 are 0 in float32, and those of 1e25 infinite; their sums have 1e-6."""
    X = problem()[0] * np.float32([1e-25, 1.0, 1e25, 0.0, 1e-18])
    r = np.abs(np.random.default_rng(0).standard_normal((N, 2)))
    found = StoredDesign(StoredRows(X), torch.float64, "cpu", False).transposed_times(
        r, square=True
    )
    np.testing.assert_allclose(found, np.square(X.astype(float)).T @ r, rtol=1e-5)


def test_large_numbers_are_finite():
    """Their sum in float32 is not; a single NaN among them is found by its row."""
    X = np.full((5, 3), 3e38, np.float32)
    assert rows.first_not_finite(X) is None
    X[3, 1] = np.nan
    assert rows.first_not_finite(X) == 3


def test_blocks_of_a_map_do_not_ask_for_the_memory(small_is_large, tmp_path, monkeypatch):
    """It was looked up in the system's files for each block of each pass, here 88 times."""
    asked = []
    monkeypatch.setattr(rows, "whole_memory", lambda: asked.append(1))
    X, y = problem()
    np.save(tmp_path / "x.npy", X)
    model = BayesianLogisticRegression(**RUN, **QUICK)
    model.fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y)
    assert 1 <= len(asked) <= 4  # once for each table that is made of the map


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_stored_sparse_design_is_the_held_one(dtype, limits):
    """The same for a CSR matrix, which is not copied, whatever its precision."""
    limits(narrow_rows=700)
    X, y = problem(dtype=dtype)
    X = sp.csr_matrix(X * (X > 0.5))
    sign = (1 - 2 * y).astype(np.int8)
    stored = make_design(X, dtype=torch.float64, device="cpu", intercept=True)
    assert not np.shares_memory(stored.x.data, X.data)  # few rows are copied
    limits(held_bytes=0)
    stored = make_design(X, dtype=torch.float64, device="cpu", intercept=True)
    assert np.shares_memory(stored.x.data, X.data)
    ones = sp.hstack([X.astype(float), np.ones((N, 1))], format="csr")
    held = SparseDesign(ones, torch.float64, "cpu").scale_rows(sign)
    r, w = np.random.default_rng(0).standard_normal((2, N, 2))
    for design in (stored.scale_rows(sign), stored.scale_rows(sign).held()):
        assert design.shape == held.shape and design.row_numbers == held.row_numbers
        np.testing.assert_allclose(design.times(w[: P + 1]), held.times(w[: P + 1]), rtol=1e-12)
        for square in (False, True):
            ours, theirs = (d.transposed_times(r, square=square) for d in (design, held))
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        np.testing.assert_allclose(design.gram(r[:, 0]), held.gram(r[:, 0]), rtol=1e-9, atol=1e-9)
        for rows_of in (lambda d: d[5:9], lambda d: d[np.array([3, 2000, 3])]):
            np.testing.assert_array_equal(rows_of(design).x.toarray(), rows_of(held).x.toarray())
        indices = np.array([[[4, 2000]], [[7, 7]]])
        for a, b in zip(design.gather(indices), held.gather(indices), strict=True):
            np.testing.assert_array_equal(a.dense(), b.dense())


def test_large_arrays_and_maps_are_not_copied(tmp_path, limits):
    """The design refers to the rows that the user gave."""
    limits(held_bytes=0)
    X, y = problem()
    np.save(tmp_path / "x.npy", X)
    for given in (X, np.load(tmp_path / "x.npy", mmap_mode="r")):
        clf = BayesianLogisticRegression()
        checked, _ = clf._validate_xy(given, y, reset=True)
        design = make_design(checked, dtype=torch.float64, device="cpu", intercept=True)
        assert np.shares_memory(design.source.table, given)
        assert design.in_memory == (given is X)


# fits ---------------------------------------------------------------------------------------------

CASES = {
    "logistic": (BayesianLogisticRegression(**RUN), 2),
    "classes": (BayesianLogisticRegression(**RUN), 3),
    "learned": (BayesianLogisticRegression(prior_scale="learned", fit_intercept=False, **RUN), 2),
    "normal": (BayesianGLMRegressor(sampler="sgld", **RUN), 0),
    "exact": (BayesianGLMRegressor(sampler="gibbs", **RUN), 0),
    "mala": (BayesianLogisticRegression(sampler="mala", **RUN), 2),
    "poisson": (BayesianGLMRegressor(likelihood="poisson", **RUN), 1),
}
QUICK = {"n_draws": 10, "burn_in": 20, "thinning": 1}


def case(name):
    model, kind = CASES[name]
    X, y = problem()
    if kind == 3:
        y = y + (X[:, 0] > 1.0)
    elif kind == 0:
        y = X @ np.arange(P) + np.random.default_rng(1).standard_normal(N)
    return clone(model).set_params(**QUICK), X, y


@pytest.mark.parametrize("name", CASES)
def test_draws_are_those_of_the_copied_rows(name, request, tmp_path):
    """Sums by blocks are in single precision here, as the rows, and the draws differ by its errors.

    Those of sums over 2,000 rows, which are 1e-7 of 2,000, are up to 2e-4 of the prior's precision,
    which is all that holds the coefficients of several classes together.
    """
    model, X, y = case(name)
    whole = clone(model).fit(X, y)
    request.getfixturevalue("small_is_large")
    np.save(tmp_path / "x.npy", X)
    for given in (X, np.load(tmp_path / "x.npy", mmap_mode="r")):
        bound = 3e-4 if name == "classes" else 1e-5
        assert_same_draws(whole, clone(model).fit(given, y), atol=bound, rtol=bound)


@pytest.mark.parametrize("kind", [BayesianLogisticRegression, BayesianMLPClassifier])
def test_maps_beyond_the_memory_are_read_in_order(kind, small_is_large, tmp_path, monkeypatch):
    """The draws are those of a table that knows slices only: rows are not looked up one by one.

    A map of more than half of the memory does not stay in it, so that every row would be read from
    the disk, with its neighbours.
    """
    model, (X, y) = kind(batch_size=100, **RUN, **QUICK), problem()
    np.save(tmp_path / "x.npy", X)
    stored = np.load(tmp_path / "x.npy", mmap_mode="r")
    of_slices = clone(model).fit(Table(X), y)
    assert StoredRows(stored).searched
    monkeypatch.setattr(rows, "whole_memory", lambda: 2 * X.nbytes - 1)
    assert not StoredRows(stored).searched and not StoredRows(stored).in_memory
    assert StoredRows(X).searched  # an array is in memory
    taken, take = [], np.take

    def recorded(table, *args, **named):
        taken.append(table)
        return take(table, *args, **named)

    monkeypatch.setattr(rows.np, "take", recorded)
    assert_same_draws(clone(model).fit(stored, y), of_slices, atol=0.0)
    assert not any(rows.file_of(table) for table in taken)  # only those of a pool, in memory


@pytest.mark.parametrize(("name", "weighted"), [("logistic", True), ("poisson", False)])
def test_fits_from_a_table_that_knows_slices(name, weighted, small_is_large):
    """Mean and sd of the whole fit, from minibatches of a pool of rows.

    The pool has all of these few rows; so the only difference is Monte Carlo error, which for 600
    nearly independent draws is 0.06 sd of a difference of means; the bounds are five times that.
    """
    model, X, y = case(name)
    model.set_params(n_draws=300, burn_in="auto", thinning="auto", batch_size=50)
    weight = np.random.default_rng(2).integers(0, 3, N).astype(float) if weighted else None
    whole = clone(model).fit(X, y, sample_weight=weight)
    stored = clone(model).fit(Table(X, chunk=64), y, sample_weight=weight)
    for block in ("coef", "intercept"):
        a, b = whole.posterior_[block], stored.posterior_[block]
        sd = a.std((0, 1)) + 1e-12
        assert np.abs((b.mean((0, 1)) - a.mean((0, 1))) / sd).max() < 0.3
        assert np.abs(np.log((b.std((0, 1)) + 1e-12) / sd)).max() < 0.25
    np.testing.assert_array_equal(stored.predict(Table(X)), stored.predict(X))


@pytest.mark.parametrize("most", [2**30, 0])
@pytest.mark.parametrize("kind", ["array", "map", "table"])
@pytest.mark.parametrize("standardize", [True, False])
def test_networks_standardise_rows_when_they_are_read(
    kind, standardize, most, request, limits, tmp_path
):
    """A chain's first step sees the inputs of the copied rows; so the same rows, the same draws.

    Arrays and maps are copied once, and those that are too large for it at every step.
    """
    X, y = problem(n=301)
    clf = BayesianMLPClassifier(
        hidden_layer_sizes=4,
        standardize=standardize,
        sampler="psgld",
        step_size=1e-3,
        batch_size=301,
        **RUN,
        **QUICK,
    )
    whole = clone(clf).fit(X, y)
    request.getfixturevalue("small_is_large")
    limits(auto_bytes=most)
    np.save(tmp_path / "x.npy", X)
    given = {"array": X, "map": np.load(tmp_path / "x.npy", mmap_mode="r"), "table": Table(X)}[kind]
    stored = clone(clf).fit(given, y)
    assert_same_draws(whole, stored, atol=1e-4)
    np.testing.assert_allclose(stored.predict_proba(given), whole.predict_proba(X), atol=1e-4)


def test_a_regression_network_learns_from_a_sorted_table(small_is_large, limits):
    """Rows sorted by target, read in runs: each chunk of steps sees runs from the whole file."""
    limits(pool_numbers=8 * 400 * (P + 1))
    X, _ = problem(n=2000)
    X = X[np.argsort(X[:, 0])]
    y = 2.0 * X[:, 0] + X[:, 1]
    run = {"n_chains": 1, "n_draws": 10, "burn_in": 600, "thinning": 5, "random_state": 0}
    reg = BayesianMLPRegressor(hidden_layer_sizes=8, sampler="psgld", **run)
    table = Table(X, chunk=50)
    assert reg.fit(table, y).score(X, y) > 0.8  # one end of the file would give less than 0.5


# minibatches --------------------------------------------------------------------------------------


def test_rows_of_runs_are_drawn_equally_often(small_is_large, limits):
    """Frequencies of 61 rows over many chunks, sorted or not: equal within 5 Monte Carlo sds.

    A chunk of 8 steps draws 32 rows from 8 runs of 4 rows; so draws of a chunk are correlated, and
    the variance of a row's count is at most that of runs: each is drawn in units of 4 rows.
    """
    limits(pool_runs=8)
    X = np.arange(61.0)[:, None]
    design = StoredDesign(StoredRows(Table(X)), torch.float64, "cpu", False)
    batches = Minibatches(Data({"x": design, "y": torch.arange(61)}, 61), 4)
    rng = streams(2)
    counts, n_chunks = np.zeros(61), 200
    for _ in range(n_chunks):
        indices = batches.indices(8, rng)
        for batch in batches.chunk(indices, 8, rng):
            np.testing.assert_array_equal(batch.fields["x"].x[..., 0], batch.fields["y"])
        counts += np.bincount(indices.reshape(-1), minlength=61)
    expected = counts.sum() / 61
    assert counts.sum() == n_chunks * 2 * 8 * 4
    assert np.abs(counts - expected).max() < 5.0 * np.sqrt(4.0 * expected)


def test_a_pool_estimates_sums_of_all_rows(small_is_large, limits):
    """Importance weights of a pool: the mean of its minibatches is that of the rows, to 4 MCSE."""
    limits(pool_numbers=4000)
    X, _ = problem()
    probability = np.abs(X[:, 0]) + 0.1
    design = StoredDesign(StoredRows(Table(X)), torch.float64, "cpu", True)
    data = Data({"x": design}, N)
    batches = Minibatches(data, 100, odds=RowOdds(probability))
    rng = streams(1)
    found = []
    for batch in batches.chunk(batches.indices(400, rng), 400, rng):
        found.append((batch.fields["x"].x * batch.weight[0][:, None]).mean(0).numpy())
    assert len(batches._pool[0]) < N / 2
    error = X.std(0).max() * 2.0 / np.sqrt(4000 / (P + 1))  # of the pool; weights are up to 9
    np.testing.assert_allclose(np.mean(found, 0), [*X.mean(0), 1.0], atol=4.0 * error)


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


# sparse rows ------------------------------------------------------------------------------------


def stored_csr(folder, names=("data", "indices", "indptr")):
    """A CSR matrix, of which the arrays of these names are in memory maps."""
    x = sp.random(500, 40, 0.2, "csr", random_state=np.random.default_rng(0))
    parts = []
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(x, name))
        parts.append(np.load(folder / f"{name}.npy", mmap_mode="r" if name in names else None))
    return sp.csr_matrix(tuple(parts), shape=x.shape)


@pytest.mark.parametrize("names", [("data", "indices", "indptr"), ("data",)])
def test_maps_of_sparse_rows_go_to_other_processes_by_their_path(tmp_path, names):
    """With all three arrays in files, a pickle has no room for the 4,000 values."""
    x = stored_csr(tmp_path, names)
    factor = np.where(np.arange(500) % 2, 1, -1).astype(np.int8)
    design = StoredSparseDesign(x, torch.float64, "cpu", intercept=True).scale_rows(factor)
    sent = pickle.dumps(design)
    assert len(sent) < (4000 if len(names) == 3 else x.data.nbytes)
    there = pickle.loads(sent)
    for one in (there, pickle.loads(pickle.dumps(there))):
        for chosen in (slice(3, 90), np.array([7, 3])):
            wanted, found = (each[chosen].x.toarray() for each in (design, one))
            np.testing.assert_array_equal(found, wanted)
    assert fingerprint(there) == fingerprint(design)
    assert fingerprint(design[1:500]) != fingerprint(design[0:499])


def test_a_worker_without_the_file_of_sparse_rows_says_so(tmp_path):
    """When it needs the first row, not while it reads the pickle, where no message would show."""
    design = StoredSparseDesign(stored_csr(tmp_path), torch.float64, "cpu", intercept=False)
    there = pickle.loads(pickle.dumps(design))
    (tmp_path / "indices.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"indices\.npy.* does not exist on '"):
        there[np.array([0])]


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
def test_a_file_of_sparse_rows_that_shrinks_is_refused_before_it_is_read(tmp_path, name):
    """To read a map beyond the end of its file would kill the process, without a message."""
    design = StoredSparseDesign(stored_csr(tmp_path), torch.float64, "cpu", intercept=True)
    design[np.array([7])]
    os.truncate(tmp_path / f"{name}.npy", 200)
    with pytest.raises(RuntimeError, match=rf"{name}\.npy' of X has changed since the call began"):
        design[np.array([7])]
