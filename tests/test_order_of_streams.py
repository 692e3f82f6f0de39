"""Streams in any order: rows are kept, or few that stand for all, until a Gaussian says the same.

One pass over the same rows in several orders has the posterior of ``fit``. Before rows were kept,
means of a stream that was sorted by label were off by 80 to 135 posterior sds.
"""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, SamplingWarning
from skbayes_sgmcmc._data import kept_rows
from skbayes_sgmcmc._data.kept_rows import KeptRows
from skbayes_sgmcmc._engine import streams

#: streams of one class have not mixed, and say so
pytestmark = pytest.mark.filterwarnings("ignore:the chains have not mixed")

N = 4000
#: chains of a fit: a step of many takes hardly longer than one of few
MANY = {"n_chains": 64, "n_draws": 60}


@pytest.fixture(scope="module")
def rows():
    """4,000 rows of four features, of which 30% are of class 1, and their posterior."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 4))
    y = (rng.random(N) < expit(X @ [1.0, -0.5, 0.5, 0.0] - 1.0)).astype(int)
    return X, y, BayesianLogisticRegression(random_state=0, **MANY).fit(X, y)


def order_of(name, X, y):
    if name == "label":
        return np.argsort(y, kind="stable")
    return np.argsort(X[:, 0]) if name == "feature" else np.arange(N)


def fed(X, y, *, rows_of_call=500, **parameters):
    clf = BayesianLogisticRegression(**({"n_chains": 16, "random_state": 1} | parameters))
    for start in range(0, len(y), rows_of_call):
        part = slice(start, start + rows_of_call)
        clf.partial_fit(X[part], y[part], classes=[0, 1])
    return clf


def errors(clf, full):
    """Largest distance of means, and smallest and largest ratio of sds, in posterior sds."""
    names = "coef", "intercept"
    mean = [clf.posterior_.mean(n) - full.posterior_.mean(n) for n in names]
    sd = np.concatenate([full.posterior_.std(n).ravel() for n in names])
    ratio = np.concatenate([clf.posterior_.std(n).ravel() for n in names]) / sd
    return np.abs(np.concatenate([m.ravel() for m in mean]) / sd).max(), ratio.min(), ratio.max()


# posteriors ---------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("order", ["shuffled", "feature", "label"])
def test_the_order_of_kept_rows_does_not_matter(rows, order):
    """Goals: means within 0.2 sds, sds within 15%. All rows are kept here, nothing is lost.

    160 draws of 16 chains have an sd of the mean of about 0.04, or 0.08 if they mix slowly.
    """
    X, y, full = rows
    index = order_of(order, X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the first .* rows|a call of partial_fit|the rows of the")
        clf = fed(X[index], y[index])
    distance, low, high = errors(clf, full)
    assert distance < 0.25
    assert low > 0.85 and high < 1.15
    assert clf._chain_state.memory.rows.n_rows == N and clf._chain_state.memory.past is None
    assert clf.n_steps_ == 20  # of one pass over new rows and at least, not of the kept ones


@pytest.mark.statistical
@pytest.mark.parametrize("order", ["shuffled", "label"])
def test_few_rows_stand_for_all(rows, order, limits):
    """400 to 800 of 4,000 rows are kept: sorted, means are within 1.5 sds, and sds within 15%.

    Moments keep what is quadratic in the rows. What is left has an rms of about 0.13 sqrt(4000/400)
    = 0.4 sds, the largest of five of them about twice that; a sample without weights: 3 sds, with a
    largest of 5 to 8. Shuffled rows become a Gaussian instead and lose nothing.
    """
    limits(kept_numbers=800 * 4, stream_numbers=2000)
    X, y, full = rows
    index = order_of(order, X, y)
    clf = fed(X[index], y[index], rows_of_call=400)
    distance, low, high = errors(clf, full)
    assert distance < (1.5 if order == "label" else 0.3)
    assert low > 0.85 and high < 1.15
    state = clf._chain_state.memory
    if order == "label":
        assert state.past is None and 400 <= state.rows.n_rows <= 810
        assert state.rows.total == pytest.approx(N, rel=1e-3) and state.rows.n_seen == N
    else:
        assert state.past is not None or state.rows is None


@pytest.mark.statistical
def test_draws_of_what_is_no_gaussian_are_left_behind(rows):
    """As long as a class is missing the intercept has no normal posterior, and draws drift away.

    If they were moved along with the Gaussian of then, sds would be 5 to 100 times too large.
    """
    X, y, full = rows
    index = np.argsort(y, kind="stable")[:3500]
    clf = fed(X[index], y[index])
    target = BayesianLogisticRegression(random_state=0, **MANY).fit(X[index], y[index])
    _, low, high = errors(clf, target)
    assert low > 0.8 and high < 1.2
    assert full.intercept_ - target.intercept_ > 0.3  # the order does matter


@pytest.mark.statistical
def test_counts_in_any_order():
    """Poisson, largest first: the likelihood's own form has no part in what is kept."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3))
    y = rng.poisson(np.exp(X @ [0.5, -0.3, 0.1]))
    full = BayesianGLMRegressor(likelihood="poisson", random_state=0, **MANY).fit(X, y)
    reg = BayesianGLMRegressor(likelihood="poisson", n_chains=16, random_state=1)
    for part in np.array_split(np.argsort(-y, kind="stable"), 8):
        reg.partial_fit(X[part], y[part])
    assert np.abs((reg.coef_ - full.coef_) / full.posterior_.std("coef")).max() < 0.25


# when rows become a Gaussian ----------------------------------------------------------------------


@pytest.mark.statistical
def test_rows_in_random_order_become_a_gaussian(rows, limits):
    """From 500 rows on: the memory of a long stream, and the time of a call, do not grow."""
    limits(stream_numbers=2500)
    X, y, _ = rows
    clf = BayesianLogisticRegression(n_chains=4, n_draws=100, random_state=0)
    kept = []
    for start in range(0, N, 250):
        clf.partial_fit(X[start : start + 250], y[start : start + 250], classes=[0, 1])
        kept.append(
            0 if clf._chain_state.memory.rows is None else clf._chain_state.memory.rows.n_rows
        )
    assert kept[0] == 250 and max(kept) < 1500 and kept.count(0) >= 4


@pytest.mark.statistical
def test_a_gaussian_that_is_used_far_away_is_warned_of(rows, limits, monkeypatch):
    """2,000 shuffled rows become a Gaussian; 1,400 of one class then move the mean away, once."""
    limits(stream_numbers=2500)
    monkeypatch.setattr(streams, "STREAM", replace(streams.STREAM, most_stretched=0.5))
    X, y, _ = rows
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "after .* rows, the posterior is")
        clf = fed(X[:2000], y[:2000], rows_of_call=250)
    zero = X[y == 0][-1400:]
    with pytest.warns(SamplingWarning, match=r"posterior is \d+ sds from where") as caught:
        for part in np.split(zero, 4):
            clf.partial_fit(part, np.zeros(len(part), int))
    assert sum("sds from where" in str(w.message) for w in caught) == 1


@pytest.mark.statistical
def test_rows_in_random_order_are_not_warned_of_however_many_parameters_there_are():
    """The mean of 200 parameters moves by some ten sds together, and by less than one in each."""
    rng = np.random.default_rng(1)
    category = np.concatenate([np.repeat(np.arange(200), 2), rng.integers(0, 200, 8600)])
    X = pd.DataFrame({"c": np.char.add("c", category.astype(str))})
    y = rng.poisson(np.exp(0.7 * rng.standard_normal(200))[category])
    kind = {"likelihood": "poisson", "n_chains": 2, "n_draws": 20}
    reg = BayesianGLMRegressor(**kind, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*after .* rows, the posterior is")
        for part in np.split(np.arange(len(y)), 6):
            reg.partial_fit(X.iloc[part], y[part])


def test_rows_that_stand_for_many_are_warned_of(rows, limits):
    """200 to 100 for 4,000, once: means are off by about an sd."""
    limits(kept_numbers=200 * 4)
    X, y, _ = rows
    index = np.argsort(y, kind="stable")
    with pytest.warns(SamplingWarning, match="not in random order, and few are kept") as caught:
        fed(X[index], y[index], rows_of_call=200, n_chains=2, n_draws=10)
    assert sum("in random order" in str(w.message) for w in caught) == 1


@pytest.mark.statistical
def test_a_call_that_is_too_large_to_be_kept(rows, limits, tmp_path):
    """It becomes a Gaussian at once, and so do the rows before it."""
    X, y, full = rows
    limits(kept_numbers=1000 * 4)
    clf = fed(X[:1000], y[:1000])
    assert clf._chain_state.memory.rows.n_rows == 1000
    clf.partial_fit(X[1000:3500], y[1000:3500])
    assert clf._chain_state.memory.rows is None
    stored = np.memmap(tmp_path / "rows", dtype=float, mode="w+", shape=(500, 4))
    stored[:] = X[3500:]
    clf.partial_fit(stored, y[3500:])
    distance, low, high = errors(clf, full)
    assert distance < 0.3 and low > 0.8 and high < 1.2
    assert clf._chain_state.memory.rows_seen == N


def test_streams_go_on_from_a_file_and_with_other_parameters(rows):
    """Kept rows are in the pickled state; with ``total_samples``, they are rows of the call."""
    X, y, _ = rows
    clf = fed(X[:1000], y[:1000], n_chains=2)
    back = pickle.loads(pickle.dumps(clf))
    for each in (clf, back):
        each.partial_fit(X[1000:1500], y[1000:1500])
    np.testing.assert_array_equal(back.posterior_["coef"], clf.posterior_["coef"])
    back.set_params(total_samples=4000).partial_fit(X[1500:2000], y[1500:2000])
    assert back._chain_state.memory.rows is None and back._chain_state.memory.rows_seen == 2000
    assert np.abs(back.coef_ - clf.coef_).max() < 1.0


# which rows are chosen ----------------------------------------------------------------------------


def moments(kept):
    x = kept.x.toarray() if sp.issparse(kept.x) else kept.x
    columns = np.column_stack([np.ones(kept.n_rows), x, kept.target])
    weight = np.ones(kept.n_rows) if kept.weight is None else kept.weight
    return columns.T @ (weight[:, None] * columns)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_arrays_may_be_used_again_for_the_next_rows(rows, kind):
    """The rows that a stream keeps are not views of the arrays that it was given."""
    X, y = kind(rows[0][:200]), 2.0 * rows[1][:200] - 1.0
    weight = np.where(y > 0.0, 1.0, 2.0)
    estimator = BayesianGLMRegressor if kind is np.asarray else BayesianLogisticRegression
    again, apart = (estimator(n_chains=1, n_draws=20, random_state=0) for _ in range(2))
    places = X[:50].copy(), y[:50].copy(), weight[:50].copy()
    for start in range(0, 200, 50):
        part = [each[start : start + 50].copy() for each in (X, y, weight)]
        for place, new in zip(places, part, strict=True):
            if sp.issparse(place):  # as a loader that has arrays of its own fills them
                place.data, place.indices, place.indptr = new.data, new.indices, new.indptr
            else:
                place[:] = new
        again.partial_fit(places[0], places[1], sample_weight=places[2])
        apart.partial_fit(part[0], part[1], sample_weight=part[2])
    np.testing.assert_array_equal(again.coef_, apart.coef_)


@pytest.mark.statistical
@pytest.mark.parametrize("sparse", [False, True])
def test_chosen_rows_have_the_moments_of_all(rows, sparse):
    """Of first and second order, with the targets, up to rounding; again when chosen from these."""
    X, y, _ = rows
    X = X * [1.0, 1e3, 1e-3, 1.0] + [0.0, 1e4, 0.0, 0.0]
    kept = KeptRows(sp.csr_matrix(X) if sparse else X, y)
    wanted = moments(kept)
    size = np.sqrt(np.outer(wanted.diagonal(), wanted.diagonal()))
    for n_rows in (1500, 600):
        kept = kept.chosen(n_rows)
        assert abs(kept.n_rows - n_rows) <= 1
        assert kept.weight.min() > 0.0
        np.testing.assert_allclose(moments(kept) / size, wanted / size, rtol=0, atol=1e-9)


@pytest.mark.statistical
def test_rare_rows_are_chosen(rows):
    """Three rows of 4,000 have a feature of their own: leverage keeps them, with a sum of 3."""
    X, y, _ = rows
    rare = np.zeros((N, 1))
    rare[[7, 700, 3000]] = 1.0
    kept = KeptRows(np.hstack([X, rare]), y).chosen(200)
    of_rare = kept.weight[kept.x[:, 4] == 1.0]
    assert len(of_rare) == 3
    assert of_rare.sum() == pytest.approx(3.0, rel=0.05)  # weights have bounds


@pytest.mark.statistical
@pytest.mark.parametrize("n_columns", [30, 150, 900])
def test_wide_rows_keep_as_many_moments_as_they_can(n_columns):
    """The first line always; squares and products if there are eight rows for each of them."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4000, n_columns)), rng.integers(0, 3, 4000)
    kept = KeptRows(X, y).chosen(2000)
    assert kept.total == pytest.approx(4000.0, rel=1e-9)
    if n_columns < 2000 / 8:
        wanted = X.sum(0)
        np.testing.assert_allclose(kept.weight @ kept.x, wanted, atol=1e-6)
    if n_columns <= 30:
        np.testing.assert_allclose(kept.weight @ kept.x**2, (X**2).sum(0), rtol=1e-9)
        of_class = (y == 2) @ X
        np.testing.assert_allclose((kept.weight * (kept.target == 2)) @ kept.x, of_class, atol=1e-6)
    assert np.isfinite(kept.weight).all()


@pytest.mark.statistical
def test_a_row_that_stands_for_many_is_chosen_like_many():
    """One row of weight 1,000 beside 3,999 of weight 1 is kept, like a thousand equal rows.

    The leverages of weighted rows sum to the number of columns of their regression.
    """
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, 4)), rng.integers(0, 2, N)
    weight = np.ones(N)
    weight[7] = 1000.0
    X[7] = 3.0
    columns = kept_rows._Columns(X, y, weight)
    assert columns.leverages().sum() == pytest.approx(1 + 4 + 1, rel=1e-9)
    assert columns.leverages()[7] == columns.leverages().max()
    kept = KeptRows(X, y, weight).chosen(100)
    assert (kept.x == 3.0).all(1).sum() == 1


@pytest.mark.statistical
def test_the_sum_of_the_weights_is_kept_where_single_weights_meet_their_bounds():
    """Columns with tails of a Cauchy distribution, and few rows: no factors preserve all moments.

    The sum says how much is known in all, so it comes first.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_cauchy((N, 6))
    kept = KeptRows(X, rng.integers(0, 2, N)).chosen(100)
    assert kept.total == pytest.approx(N, rel=1e-9)


def test_weights_and_rows_of_unlike_kinds():
    """Sparse rows follow dense ones; weights are ones where none were given."""
    dense = KeptRows(np.eye(3), np.array([0, 1, 0]))
    both = dense.and_new(KeptRows(sp.csr_matrix(np.eye(3)[:2]), np.array([1, 1]), np.full(2, 2.0)))
    assert sp.issparse(both.x) and both.x.shape == (5, 3)
    np.testing.assert_array_equal(both.weight, [1, 1, 1, 2, 2])
    assert both.total == 7.0 and both.n_seen == 5 and dense.and_new(dense).weight is None
