"""Features of one unit, such as pixels, are standardised by one scale."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from _cases import cases

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor
from skbayes_sgmcmc._data.scaling import (
    MOST_VALUES,
    center_and_scale,
    robust_center_and_scale,
    scale_of_effects,
)

RUN = {"n_chains": 2, "n_draws": 4, "burn_in": 20, "thinning": 1, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def pixels(n=600, p=12, levels=256, seed=0):
    """Bright and dark ones, and one that is nearly always black."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, levels, (n, p)) * (rng.random((n, p)) < np.linspace(0.1, 1.0, p))
    X[0], X[1], X[:, 0] = 0, levels - 1, 0
    X[7, 0] = levels // 9
    return X.astype(float)


def scales(X):
    moments = center_and_scale(X, None)
    return moments[1], scale_of_effects(X, None, moments, by_values=True)


@pytest.mark.parametrize("unit", [1.0, 1 / 255, -3.0])
def test_pixels_share_the_root_mean_square_of_their_deviations(unit):
    """In every unit: the features of a photograph and of its negative are the same."""
    own, found = scales(pixels() * unit)
    np.testing.assert_allclose(found, np.sqrt(np.mean(own**2)), rtol=1e-12)


def test_constant_pixels_do_not_count():
    """A margin that is black in all images leaves the scale of the other pixels as it is."""
    X = pixels()
    wide = np.hstack([X, np.zeros((len(X), 30))])
    np.testing.assert_array_equal(scales(wide)[1][: X.shape[1]], scales(X)[1])
    np.testing.assert_array_equal(scales(wide)[1][X.shape[1] :], 1.0)
    np.testing.assert_array_equal(scales(np.ones((50, 3)))[1], 1.0)


@cases(
    "change",
    [
        lambda X: X + np.random.default_rng(0).uniform(0, 1e-3, X.shape),  # many values
        lambda X: X * np.linspace(1.0, 2.0, X.shape[1]).round(1),  # several units
        lambda X: np.hstack([X[:, :3], X[:, 3:] + 300.0]) // 1,  # bounds that few features reach
        lambda X: X[:5],  # too few rows to tell
    ],
)
def test_other_tables_keep_a_scale_for_each_feature(change):
    own, found = scales(change(pixels()))
    np.testing.assert_array_equal(found, own)


def test_a_continuous_feature_among_flags_keeps_its_scale():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, (300, 5)), rng.uniform(0, 1, 300)])
    own, found = scales(X)
    np.testing.assert_array_equal(found, own)
    assert len(np.unique(X)) > MOST_VALUES


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_perceptrons_see_pixels_of_one_scale(estimator):
    """The nearly black pixel stays below 1, instead of at 20."""
    X = pixels()
    y = np.arange(len(X)) % 2
    run = RUN | {"max_steps": 24}  # of descents, too
    dense = estimator(hidden_layer_sizes=4, **run).fit(X, y)
    assert abs(dense._inputs(X)[:, 0]).max() < 1.0
    apart = estimator(hidden_layer_sizes=4, standardize=False, **run).fit(X, y)
    np.testing.assert_array_equal(apart._inputs(X), X)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_perceptrons_see_words_of_one_scale(make):
    """One more of a rare word is as much as one more of a frequent one; a length is none."""
    rng = np.random.default_rng(0)
    words = rng.poisson(np.geomspace(0.01, 0.4, 30), (400, 30))
    X = np.column_stack([words, rng.normal(9.0, 2.0, 400)])
    fitted = BayesianMLPRegressor(hidden_layer_sizes=4, max_steps=24, **RUN).fit(make(X), X[:, -1])
    step = [fitted._inputs(X + unit)[0] - fitted._inputs(X)[0] for unit in np.eye(31)]
    of_words = np.diag(step)[:-1]
    np.testing.assert_allclose(of_words, of_words[0], rtol=1e-6)
    np.testing.assert_allclose(np.diag(step)[-1], 1.0 / X[:, -1].std(), rtol=1e-6)
    np.testing.assert_allclose(of_words[0], words.var(0).mean() ** -0.5, rtol=1e-6)


def test_medians_ignore_a_few_values_of_any_size():
    """The scale is the sd of normal numbers, to 5% with 10,000 of them, whatever 10 others are."""
    y = np.random.default_rng(0).normal(7.0, 2.0, (10_000, 1))
    y[:10] = [[1e140]] * 5 + [[-1e20]] * 5
    center, scale = robust_center_and_scale(y, None)
    assert center[0] == pytest.approx(7.0, abs=0.1) and scale[0] == pytest.approx(2.0, rel=0.05)


def test_medians_of_weighted_values_are_those_of_repeated_ones():
    rng = np.random.default_rng(0)
    y, weight = rng.standard_normal((21, 2)), rng.integers(1, 4, 21)
    repeated = robust_center_and_scale(np.repeat(y, weight, axis=0), None)
    np.testing.assert_array_equal(robust_center_and_scale(y, weight.astype(float)), repeated)
    np.testing.assert_array_equal(repeated[0], np.median(np.repeat(y, weight, axis=0), axis=0))


@pytest.mark.parametrize("form", ["dense", "float32", "weighted", "blocks", "sparse"])
def test_a_constant_of_many_rows_is_one(form, limits):
    """Sums of many equal numbers are rounded, and so is their mean.

    The coefficient of a column that was standardised with other rows, of 1,319 equal numbers here,
    had an sd of 1e16 with learned scales, and intercepts of 1e8 made up for it.
    """
    value = -0.023596458909150665
    X = np.full((1319, 2), value, dtype="float32" if form == "float32" else "float64")
    X[0, 1] = 1.0
    weight = np.linspace(0.1, 2.0, len(X)) if form == "weighted" else None
    if form == "blocks":
        limits(held_bytes=1)
    center, scale = center_and_scale(sp.csr_matrix(X) if form == "sparse" else X, weight)
    assert center[0] == pytest.approx(value)
    assert scale[0] == 1.0
    assert scale[1] == pytest.approx(np.sqrt(np.cov(X[:, 1], aweights=weight, ddof=0)), rel=1e-4)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e20])
def test_medians_of_mostly_equal_values(constant):
    """The distances of the others count, if they are more than rounding; 1 for constants."""
    y = np.full((10, 1), constant)
    expected = max(1.0, 10.0 * np.finfo(float).eps * abs(constant))
    assert robust_center_and_scale(y, None) == (constant, expected)
    y[:3, 0] += np.array([2.0, -4.0, 9.0]) * max(abs(constant), 1.0)
    center, scale = robust_center_and_scale(y, None)
    assert center[0] == constant
    assert scale[0] == pytest.approx(1.4826 * 4.0 * max(abs(constant), 1.0))
