"""Random streams and minibatches: uniform, unbiased, and independent of what runs beside them."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
import torch
from _cases import cases
from _inside import streams
from torch.utils.data import Dataset

from skbayes_sgmcmc._data.chain_random import first_distinct, redrawn_distinct
from skbayes_sgmcmc._data.datasets import DatasetRows
from skbayes_sgmcmc._data.fields import Field
from skbayes_sgmcmc._data.layout import Layout
from skbayes_sgmcmc._data.minibatch import Data, Minibatches
from skbayes_sgmcmc._data.row_odds import RowOdds
from skbayes_sgmcmc._data.rows import StoredRows
from skbayes_sgmcmc._data.stored_inputs import ScaledRows
from skbayes_sgmcmc.models.designs.design import DenseDesign, SparseDesign, StoredDesign
from skbayes_sgmcmc.models.designs.indicators import IndicatorDesign


def rows_data(n_rows, **parameters):
    return Data({"x": torch.arange(n_rows, dtype=torch.float64)[:, None]}, n_rows, **parameters)


def p_value_of_uniform(outcomes, possible):
    """Chi-square test that ``outcomes`` (tuples) are uniform over ``possible``."""
    codes = {outcome: k for k, outcome in enumerate(possible)}
    counts = np.bincount([codes[tuple(o)] for o in outcomes.tolist()], minlength=len(codes))
    assert counts.mean() >= 50  # where the chi-square approximation is good
    return scipy.stats.chisquare(counts).pvalue


# uniform without replacement ----------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("n, size", [(6, 3), (9, 3)], ids=["shuffled", "redrawn"])
def test_minibatches_are_uniform_without_replacement(n, size):
    """Every subset is equally likely, on two ways of drawing one (by the size of the batch).

    The bound p > 1e-4 fails for one seed in 10,000; the seed is fixed.
    """
    indices = Minibatches(rows_data(n), size).indices(20_000, streams())[0]
    assert indices.shape == (20_000, size)
    possible = list(combinations(range(n), size))
    assert p_value_of_uniform(np.sort(indices, axis=1), possible) > 1e-4


@pytest.mark.statistical
def test_redrawn_distinct_is_exactly_uniform():
    """Every ordered choice is equally likely, also where nearly all rows had repeats."""
    rng = np.random.default_rng(0)
    for n, size in ((5, 3), (4, 4)):
        drawn = redrawn_distinct(rng.integers(0, n, (30_000, size)), n, rng)
        assert p_value_of_uniform(drawn, list(permutations(range(n), size))) > 1e-4


@pytest.mark.statistical
def test_first_distinct_is_exactly_uniform():
    """The same, at both ends of how many numbers it has to look at."""
    rng = np.random.default_rng(0)
    for n, size in ((12, 1), (9, 3), (5, 4)):
        drawn = first_distinct(60_000, size, n, rng)
        assert p_value_of_uniform(drawn, list(permutations(range(n), size))) > 1e-4


def test_redrawn_distinct_leaves_distinct_rows_alone():
    rng = np.random.default_rng(0)
    indices = np.array([[3, 1, 2], [3, 3, 1], [0, 4, 2]])
    drawn = redrawn_distinct(indices.copy(), 5, rng)
    np.testing.assert_array_equal(drawn[[0, 2]], indices[[0, 2]])
    assert len(set(drawn[1])) == 3


@pytest.mark.statistical
def test_successive_minibatches_are_independent():
    """Row i is in this step's batch as often after a batch with it as without it (5 SE)."""
    n, size, steps = 20, 4, 30_000
    for seed in range(2):
        indices = Minibatches(rows_data(n), size).indices(steps, streams(seed=seed))[0]
        has = (indices == 7).any(1).astype(float)
        share = size / n
        assert abs(has.mean() - share) <= 5.0 * np.sqrt(share * (1 - share) / steps)
        assert abs(np.corrcoef(has[:-1], has[1:])[0, 1]) <= 5.0 / np.sqrt(steps)


# importance, by strata ----------------------------------------------------------------------------

PROBABILITY = np.array([0.02, 0.52, 0.08, 0.1, 0.05, 0.03, 0.2])


@pytest.mark.statistical
def test_importance_frequencies():
    """Row i is expected size * p_i times in a minibatch, within 5 SE."""
    size, steps = 4, 40_000
    batches = Minibatches(rows_data(7), size, odds=RowOdds(PROBABILITY))
    indices = batches.indices(steps, streams())[0]
    counts = np.stack([(indices == row).sum(1) for row in range(7)], 1)
    error = np.sqrt(counts.var(0) / steps)
    assert (np.abs(counts.mean(0) - size * PROBABILITY) <= 5.0 * error + 1e-12).all()
    # row 1 fills the second stratum, from 0.25 to 0.5: it is in every batch
    assert counts[:, 1].min() >= 1
    # stratified, not independent: a row comes at most once more than its share
    assert (counts <= np.floor(size * PROBABILITY) + 2).all()


@pytest.mark.statistical
def test_strata_are_drawn_independently():
    """Row j of a batch comes from the j-th stratum, whatever its other rows are (5 SE)."""
    n, size, steps = 100, 4, 20_000
    batches = Minibatches(rows_data(n), size, odds=RowOdds(np.full(n, 1.0 / n)))
    indices = batches.indices(steps, streams())[0]
    np.testing.assert_array_equal(indices // 25, np.tile(np.arange(4), (steps, 1)))
    off_diagonal = np.corrcoef(indices.T)[np.triu_indices(size, 1)]
    assert np.abs(off_diagonal).max() <= 5.0 / np.sqrt(steps)


@pytest.mark.statistical
@pytest.mark.parametrize("weighted", [False, True])
def test_importance_weights_leave_means_unbiased(weighted):
    """(rows/n) sum_i weight_i f(x_i) has the mean sum_i w_i f(x_i), within 5 SE."""
    steps, rng = 40_000, np.random.default_rng(1)
    values = torch.from_numpy(rng.standard_normal(7) * 3.0)
    w = torch.from_numpy(rng.uniform(0.5, 2.0, 7)) if weighted else None
    data = Data({"x": values}, 7, weight=w)
    batches = Minibatches(data, 3, odds=RowOdds(PROBABILITY))
    chains = streams()
    sums = np.array(
        [
            batches.factor * (batch.weight * batch.fields["x"]).sum().item()
            for batch in batches.chunk(batches.indices(steps, chains), steps, chains)
        ]
    )
    exact = (values if w is None else w * values).sum().item()
    error = sums.std(ddof=1) / np.sqrt(steps)
    assert error <= 0.02 * values.abs().sum()
    assert abs(sums.mean() - exact) <= 5.0 * error


def test_importance_weights_are_the_inverse_probabilities():
    w = torch.linspace(0.5, 2.0, 7, dtype=torch.float64)
    batch = Minibatches(rows_data(7, weight=w), 2, odds=RowOdds(PROBABILITY)).batch_of(
        np.array([1, 5])
    )
    expected = w[[1, 5]].numpy() / (7 * PROBABILITY[[1, 5]])
    np.testing.assert_allclose(batch.weight, expected, rtol=1e-12)


# own, full ----------------------------------------------------------------------------------------


def test_chains_have_their_own_minibatches():
    batches = Minibatches(rows_data(50), 5)
    chains = streams(4)
    indices = batches.indices(30, chains)
    assert indices.shape == (4, 30, 5)
    assert len({tuple(row.ravel()) for row in indices}) == 4
    batch = next(batches.chunk(indices, 30, chains))
    assert not batch.shared and batch.fields["x"].shape == (4, 5, 1) and batch.size == 5
    np.testing.assert_array_equal(batch.fields["x"][:, :, 0], indices[:, 0])


@cases("size", [50, 51, 10**9])
def test_a_batch_of_all_rows_or_more_is_all_rows(size):
    batches = Minibatches(rows_data(50), size)
    assert batches.full and batches.size == 50 and batches.factor == 1.0
    assert batches.indices(3, streams(2)) is None
    got = list(batches.chunk(None, 3, streams(2)))
    assert len(got) == 3
    for batch in got:
        assert batch.shared and batch.weight == 1.0
        np.testing.assert_array_equal(batch.fields["x"][:, 0], np.arange(50))


@cases("shared", [False, True])
@cases("kind", ["tensor", "dense", "sparse"])
def test_gathered_rows_are_the_named_ones(kind, shared, limits):
    """Fields, labels and weights of the same rows, however many steps are gathered at once."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 4)) * (rng.random((30, 4)) < 0.5)
    designs = {
        "tensor": torch.from_numpy(x),
        "dense": DenseDesign(torch.from_numpy(x.copy())),
        "sparse": SparseDesign(sp.csr_matrix(x), torch.float64, "cpu"),
    }
    w = torch.from_numpy(rng.random(30))
    data = Data({"x": designs[kind], "y": torch.arange(30)}, 30, weight=w)
    batches, chains = Minibatches(data, 3), streams(2)
    by_step = batches.indices(11, chains).swapaxes(0, 1)
    by_step = by_step[:, 0] if shared else by_step
    for limit in (1, 2**17):
        limits(cache_numbers=limit)
        steps = list(batches._gathered(by_step, chains))
        assert len(steps) == 11
        for rows, batch in zip(by_step, steps, strict=True):
            np.testing.assert_array_equal(batch.fields["y"], rows)
            np.testing.assert_array_equal(batch.weight, w[rows])
            if kind == "tensor":
                np.testing.assert_array_equal(batch.fields["x"], x[rows])
                continue
            # of a design, the products of one coefficient at a time are its columns
            coefficients = torch.eye(4, dtype=torch.float64)[None].expand(2, 4, 4).contiguous()
            logits = batch.fields["x"].logits(coefficients)
            np.testing.assert_allclose(logits, np.broadcast_to(x[rows], (2, 3, 4)), atol=1e-15)


def test_augmentation_sees_every_minibatch():
    """augment(fields, rng) is applied anew at every step, also to full batches."""

    def augment(fields, rng):
        return {"x": fields["x"] + rng.normal(*fields["x"].shape[-2:])[0]}

    for size in (4, 10):
        batches, chains = Minibatches(rows_data(10, augment=augment), size), streams()
        drawn = list(batches.chunk(batches.indices(3, chains), 3, chains))
        moved = [np.asarray(b.fields["x"]).ravel() % 1.0 for b in drawn]
        assert all((m > 0).any() for m in moved)
        assert np.abs(moved[0] - moved[1]).max() > 0.0


# the amount of data -------------------------------------------------------------------------------


def test_totals():
    """N is the number of rows, the sum of their weights, or the size of the stream."""
    w = torch.tensor([0.5, 1.5, 2.0])
    assert rows_data(3).total == 3.0 and rows_data(3).scale == 1.0
    assert rows_data(3, weight=w).total == 4.0 and rows_data(3, weight=w).scale == 1.0
    assert rows_data(3, total=12.0).scale == 4.0
    assert rows_data(3, weight=w, total=12.0).scale == 3.0


# streams ------------------------------------------------------------------------------------------


def everything(chains):
    """A sample of all that a stream gives: normals, uniforms and row numbers."""
    batches = Minibatches(rows_data(100), 5)
    return {
        "normal": chains.normal(3, 7).numpy(),
        "uniform": chains.uniform(20).numpy(),
        "rows": batches.indices(6, chains),
    }


def test_a_chains_stream_does_not_depend_on_the_others():
    three, one = everything(streams(3)), everything(streams(1))
    for name in three:
        np.testing.assert_array_equal(three[name][0], one[name][0])
        assert (three[name][0] != three[name][1]).any()
    last = everything(streams(3).select([2]))
    for name in three:
        np.testing.assert_array_equal(last[name][0], three[name][2])


def test_selected_streams_go_on_where_they_were():
    """Dropping a diverged chain must not change what the others draw next."""
    whole, dropped = streams(3), streams(3)
    everything(whole), everything(dropped)
    dropped = dropped.select([0, 2])
    after, expected = everything(dropped), everything(whole)
    for name in after:
        np.testing.assert_array_equal(after[name], expected[name][[0, 2]])


def test_state_is_saved_and_restored():
    """The state goes through plain arrays and dicts, as checkpoints keep it."""
    chains = streams(2)
    everything(chains)
    state = chains.get_state()
    assert isinstance(state["noise"], np.ndarray) and isinstance(state["rows"][0], dict)
    expected = everything(chains)
    fresh = streams(2, seed=99)
    fresh.set_state(state)
    again = everything(fresh)
    for name in expected:
        np.testing.assert_array_equal(again[name], expected[name])


@pytest.mark.statistical
def test_normals_are_standard_and_independent_between_chains():
    """First four moments and the correlation of two chains, each within 5 SE of 200,000 numbers."""
    xi = streams(2).normal(100_000, 2).numpy().reshape(2, -1)
    n = xi.shape[1]
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        error = np.sqrt(variance / n)
        assert (np.abs((xi**power).mean(1) - moment) <= 5.0 * error).all()
    assert abs((xi[0] * xi[1]).mean()) <= 5.0 / np.sqrt(n)


@pytest.mark.statistical
def test_uniforms_are_uniform():
    u = streams(1).uniform(50_000).numpy()[0]
    assert u.min() >= 0.0 and u.max() < 1.0
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_of_the_noise(dtype):
    """float32 and float64 runs see the same noise, so that their draws can be compared."""
    xi = streams(1).normal(5, dtype=dtype)
    assert xi.dtype == dtype
    np.testing.assert_array_equal(xi, streams(1).normal(5, dtype=torch.float32))


def rows_of_a_dataset(x):
    class Rows(Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            return x[i]

    return DatasetRows(Rows(), Layout.of(x), x.shape[1:])


def with_constant(x, constant):
    """The first column is dense, the second a constant and what rows add to it."""
    rest = sp.csr_matrix(np.where(constant, x - constant, 0.0))
    return IndicatorDesign(
        torch.from_numpy(x[:, :1]), torch.tensor([0]), SparseDesign(rest, torch.float32, "cpu"),
        torch.from_numpy(constant),
    )  # fmt: skip


FIELDS = {
    "tensor": torch.from_numpy,
    "stored": lambda x: ScaledRows(StoredRows(x), 0.0, 1.0, (2,)).as_field(torch.float32, "cpu"),
    "dataset": lambda x: rows_of_a_dataset(x).as_field(torch.float32, "cpu"),
    "design": lambda x: DenseDesign(torch.from_numpy(x)),
    "stored design": lambda x: StoredDesign(StoredRows(x), torch.float32, "cpu", False),
    "sparse design": lambda x: SparseDesign(sp.csr_matrix(x), torch.float32, "cpu"),
    "indicators": lambda x: with_constant(x, np.array([0.0, 4.0], dtype=np.float32)),
}


@cases("kind", FIELDS)
def test_every_field_gives_the_same_rows(kind):
    """Chosen, in a block, all of them and step by step: the seven kinds ask for no other code."""
    x = np.arange(1.0, 21.0, dtype=np.float32).reshape(10, 2)
    data = Data({"x": FIELDS[kind](x)}, 10)

    def seen(field):
        found = field.whole() if isinstance(field, Field) else field
        return (found.dense() if hasattr(found, "dense") else found).numpy()

    def plain(batch):
        return (batch if isinstance(batch, torch.Tensor) else batch.dense()).numpy()

    rows = np.array([7, 2, 2])
    np.testing.assert_array_equal(seen(data.select(rows).fields["x"]), x[rows])
    np.testing.assert_array_equal(seen(data.block(slice(3, 6)).fields["x"]), x[3:6])
    np.testing.assert_array_equal(seen(data.fields["x"]), x)
    if kind != "sparse design":  # whose batches are triplets, with a test of their own
        steps = np.array([[[0, 4]], [[9, 1]]])
        for step, batch in zip(steps, Minibatches(data, 2).gather(steps, None), strict=True):
            np.testing.assert_array_equal(plain(batch.fields["x"]).reshape(2, 2), x[step[0]])
