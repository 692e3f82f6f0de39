"""How often rows are drawn: what is drawn agrees with how it is weighted."""

from __future__ import annotations

import numpy as np
import pytest
from _cases import cases

from skbayes_sgmcmc._data.row_odds import RowOdds

N = 5000


@pytest.fixture(scope="module")
def size():
    rng = np.random.default_rng(0)
    return rng.exponential(size=N) ** 2 + 0.01


def test_weights_are_the_inverse_frequencies(size):
    expected = size.sum() / (N * size)
    np.testing.assert_allclose(RowOdds(size).weights(np.arange(N)), expected, rtol=1e-12)


@cases("n_rows", [1, 2, 1023, N])
def test_rows_are_drawn_as_often_as_their_weights_say(n_rows, size):
    """Row i has the numbers u from the frequencies of those before it on: exact to rounding."""
    odds = RowOdds(size[:n_rows])
    frequency = 1.0 / (n_rows * odds.weights(np.arange(n_rows)))
    assert frequency.sum() == pytest.approx(1.0, rel=1e-12)
    ends = np.cumsum(frequency)
    inside = np.concatenate([[0.0], ends[:-1]]) + 0.5 * frequency
    np.testing.assert_array_equal(odds.rows(inside), np.arange(n_rows))
    just_before = ends - 1e-3 * frequency
    np.testing.assert_array_equal(odds.rows(just_before), np.arange(n_rows))
    assert odds.rows(np.array([0.0, np.nextafter(1.0, 0.0)])).tolist() == [0, n_rows - 1]
