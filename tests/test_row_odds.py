"""How often rows are drawn: what is drawn agrees with how it is weighted, for few and many rows."""

from __future__ import annotations

import numpy as np
import pytest
from _cases import cases

from skbayes_sgmcmc._data.row_odds import OddsOfManyRows, RowOdds

N = 5000


@pytest.fixture(scope="module")
def size():
    rng = np.random.default_rng(0)
    return rng.exponential(size=N) ** 2 + 0.01


@pytest.mark.parametrize("kind", [RowOdds, OddsOfManyRows])
def test_weights_are_the_inverse_frequencies(kind, size):
    """Of many rows to the precision of their sums, which have 24 bits within a block of 1,024."""
    odds = kind(size)
    expected = size.sum() / (N * size)
    accuracy = 1e-12 if kind is RowOdds else 2.0**-24 * 1024 * size.mean() / size.min()
    np.testing.assert_allclose(odds.weights(np.arange(N)), expected, rtol=2.0 * accuracy)


@cases("kind", [RowOdds, OddsOfManyRows])
@cases("n_rows", [1, 2, 1023, 1024, 1025, N])
def test_rows_are_drawn_as_often_as_their_weights_say(kind, n_rows, size):
    """Row i has the numbers u from the frequencies of those before it on: exact to rounding."""
    odds = kind(size[:n_rows])
    frequency = 1.0 / (n_rows * odds.weights(np.arange(n_rows)))
    assert frequency.sum() == pytest.approx(1.0, rel=1e-12)
    ends = np.cumsum(frequency)
    inside = np.concatenate([[0.0], ends[:-1]]) + 0.5 * frequency
    np.testing.assert_array_equal(odds.rows(inside), np.arange(n_rows))
    just_before = ends - 1e-3 * frequency
    np.testing.assert_array_equal(odds.rows(just_before), np.arange(n_rows))
    assert odds.rows(np.array([0.0, np.nextafter(1.0, 0.0)])).tolist() == [0, n_rows - 1]


def test_many_rows_have_their_own_class(size, limits):
    """Both draw the same rows, but for those at whose ends sums round differently."""
    limits(searched_rows=1000)
    many, few = RowOdds.of(size), RowOdds.of(size[:1000])
    assert isinstance(many, OddsOfManyRows) and not isinstance(few, OddsOfManyRows)
    u = (np.arange(2000).reshape(20, 100) + 0.5) / 2000
    assert many.rows(u).shape == (20, 100)
    assert (many.rows(u) != RowOdds(size).rows(u)).mean() < 0.01
