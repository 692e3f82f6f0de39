"""BayesianMLPRegressor: predictions that belong to each other and to the draws, in units of y."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from _posteriors import assert_same_draws
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import train_test_split

from skbayes_sgmcmc import BayesianMLPRegressor
from skbayes_sgmcmc.schedules import Polynomial

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

SMALL = {
    "hidden_layer_sizes": 8, "n_chains": 2, "n_draws": 20, "burn_in": 200, "thinning": 2,
    "prior_scale": "fan_in", "noise": "infer", "sampler": "psgld", "dtype": "float64",
    "random_state": 0,
}  # fmt: skip


def small(**parameters):
    return BayesianMLPRegressor(**(SMALL | parameters))


def truth(x):
    """Smooth, and not a network of the kind that is fitted."""
    return np.sin(2.0 * x) + 0.3 * x**2


def rows(n, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, n)
    return x[:, None], truth(x) + noise * rng.standard_normal(n)


@pytest.fixture(scope="module")
def data():
    """Three features and two outputs of unlike units."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) * [1.0, 100.0, 0.01]
    y = np.column_stack([X @ [1.0, 0.01, 0.0], X[:, 0] ** 2]) + 0.3 * rng.standard_normal((60, 2))
    return X, y * [1.0, 50.0] + [3.0, -700.0]


@pytest.fixture(scope="module")
def curve():
    """A fit of ``truth`` that has mixed, with inferred noise."""
    reg = small(hidden_layer_sizes=30, burn_in=2000, thinning=20, n_chains=4, n_draws=100)
    return reg.fit(*rows(300))


def by_numpy(reg, X, y):
    """Means (draws, rows, outputs) and sds (draws, 1, outputs) from the named blocks.

    X and y are those of the fit, which are standardised.
    """
    y = y.reshape(len(y), -1)
    blocks = reg.sample_posterior()
    z = (X - X.mean(0)) / X.std(0)
    h = np.maximum(z @ blocks["weight_1"] + blocks["bias_1"][:, None], 0.0)
    f = (h @ blocks["weight_2"] + blocks["bias_2"][:, None]) * y.std(0) + y.mean(0)
    sd = 0.3 * np.exp(blocks["log_noise"]) * y.std(0)
    return f, sd[:, None]


def noise_sd(reg):
    """Standard deviations (draws, 1, outputs) of a new observation given the draws."""
    draws = slice(0, reg.n_chains_ * reg.n_draws_)
    return np.sqrt(reg._predictive()(draws, np.zeros((1, reg.n_features_in_))).variance())


# what it is for -----------------------------------------------------------------------------------


@pytest.mark.statistical
def test_noise_and_function_are_found(curve):
    """300 rows of noise 0.3: its estimate has a sd of 4%, of which five are allowed.

    The function, whose sd is 0.9, was found to a root mean square of 0.05 over seeds: what about
    ten free parameters leave, 0.3 sqrt(10 / 300). Twice that is allowed.
    """
    assert noise_sd(curve).mean() == pytest.approx(0.3, rel=0.2)
    x = np.linspace(-1.9, 1.9, 200)
    assert np.sqrt(np.mean((curve.predict(x[:, None]) - truth(x)) ** 2)) < 0.1


@pytest.mark.statistical
def test_intervals_cover(curve):
    """Of 2000 new observations 90% lie in the central 90% interval, 50% in the 50% one.

    Binomial sds are 0.7% and 1.1%; an error of 4% in the noise's sd changes them by 1.4% and 1.7%.
    Four of both together.
    """
    X, y = rows(2000, seed=1)
    for coverage, bound in ((0.9, 0.063), (0.5, 0.081)):
        low, high = curve.predict_interval(X, coverage).T
        assert np.mean((low < y) & (y < high)) == pytest.approx(coverage, abs=bound)


@pytest.mark.statistical
def test_sd_grows_away_from_the_data(curve):
    """Between the data it is about the noise's (0.3); beyond them the function's is added.

    Measured over two seeds: 0.39 to 0.48 at twice the data's range, 0.73 to 1.1 at four times.
    """
    inside, edge, twice, far = curve.predict([[0.0], [2.0], [4.0], [8.0]], return_std=True)[1]
    assert inside == pytest.approx(0.3, rel=0.2)
    assert inside < edge < twice / 1.1 < far / 1.5


@pytest.mark.slow
def test_diabetes_at_the_defaults_of_a_short_run():
    """At least as good as a ridge regression, from features as they come: R2 near 0.4 to 0.5."""
    X, y = load_diabetes(return_X_y=True)
    parts = train_test_split(X, y, random_state=0)
    reg = small(hidden_layer_sizes=30, burn_in=1500, thinning=20).fit(parts[0], parts[2])
    ridge = Ridge(alpha=0.01).fit(parts[0], parts[2])
    assert reg.score(parts[1], parts[3]) > ridge.score(parts[1], parts[3]) - 0.1 > 0.2


# predictions and draws ----------------------------------------------------------------------------

#: draws that count alike, and ones of weights so unlike that means without them differ by 0.15 sd
RUNS = [{}, {"step_size": Polynomial(first=0.1, last=1e-4, gamma=1.0), "burn_in": 0}]


@pytest.mark.parametrize("parameters", RUNS, ids=["equal", "weighted"])
def test_predictions_are_the_draws(data, parameters):
    """Mean, sd and quantiles of the mixture over draws of N(f, sd^2), by numpy and scipy."""
    X, y = data
    reg = small(**parameters).fit(X, y)
    weights = reg.posterior_.pooled_weights()
    assert (weights is not None) == bool(parameters)
    f, sd = by_numpy(reg, X, y)

    def average(values):
        return np.average(values, axis=0, weights=weights)

    mean, found = reg.predict(X, return_std=True)
    np.testing.assert_allclose(mean, average(f), rtol=1e-9)
    np.testing.assert_array_equal(mean, reg.predict(X))
    np.testing.assert_allclose(found**2, average(f**2 + sd**2) - average(f) ** 2, rtol=1e-6)
    levels = (0.01, 0.5, 0.8)
    quantiles = reg.predict_quantiles(X, levels)
    for k, level in enumerate(levels):
        below = average(scipy.stats.norm.cdf(quantiles[:, k], f, sd))
        np.testing.assert_allclose(below, level, atol=1e-7)


def test_interval_is_a_pair_of_quantiles(data):
    reg = small().fit(*data)
    for coverage in (0.5, 0.9, 0.999):
        expected = reg.predict_quantiles(data[0], (0.5 - coverage / 2, 0.5 + coverage / 2))
        np.testing.assert_array_equal(reg.predict_interval(data[0], coverage), expected)
    for bad in (0.0, 1.0, -0.1, "all", []):
        with pytest.raises(ValueError, match="coverage="):
            reg.predict_interval(data[0], bad)
        with pytest.raises(ValueError, match="quantiles="):
            reg.predict_quantiles(data[0], bad)


@pytest.mark.statistical
@pytest.mark.parametrize("parameters", RUNS, ids=["equal", "weighted"])
def test_samples_have_the_predicted_moments(data, parameters):
    """20,000 observations a row against ``predict`` and its sd: within 5 standard errors.

    That of a sd is sd sqrt((kurtosis - 1) / 4n).
    """
    n = 20_000
    reg = small(**parameters).fit(*data)
    samples = reg.sample_y(data[0][:10], n, random_state=0)
    mean, sd = reg.predict(data[0][:10], return_std=True)
    assert samples.shape == (10, 2, n)
    kurtosis = scipy.stats.kurtosis(samples, axis=2, fisher=False)
    assert (np.abs(samples.mean(2) - mean) < 5.0 * sd / np.sqrt(n)).all()
    allowed = 5.0 * sd * np.sqrt((kurtosis - 1.0) / (4.0 * n))
    assert (np.abs(samples.std(2) - sd) < allowed).all()
    low, high = np.moveaxis(reg.predict_interval(data[0][:10], 0.8), 1, 0)
    inside = ((samples > low[..., None]) & (samples < high[..., None])).mean(2)
    np.testing.assert_allclose(inside, 0.8, atol=5.0 * np.sqrt(0.8 * 0.2 / n))
    again = reg.sample_y(data[0][:10], n, random_state=0)
    np.testing.assert_array_equal(samples, again)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,)], ids=str)
def test_shapes_follow_the_targets(data, shape):
    X, y = data
    y = np.column_stack([y, y[:, 0]])
    y = y[:, 0] if shape == () else y[:, : shape[0]]
    reg = small().fit(X, y)
    assert y.shape[1:] == shape
    assert reg.posterior_["log_noise"].shape == (2, 20, *(shape or (1,)))
    mean, sd = reg.predict(X[:7], return_std=True)
    assert mean.shape == sd.shape == reg.predict(X[:7]).shape == (7, *shape)
    assert reg.predict_quantiles(X[:7], (0.1, 0.2, 0.3, 0.4)).shape == (7, 4, *shape)
    assert reg.predict_interval(X[:7]).shape == (7, 2, *shape)
    assert reg.sample_y(X[:7], 5).shape == (7, *shape, 5)
    assert np.isscalar(reg.score(X, y))


def test_a_column_of_targets_is_a_vector_of_them(data):
    X, y = data
    one, column = small().fit(X, y[:, 0]), small().fit(X, y[:, :1])
    assert_same_draws(one, column)
    np.testing.assert_array_equal(one.predict(X), column.predict(X)[:, 0])


# units --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["infer", 0.25])
@pytest.mark.parametrize("scale", [1e3, 1e-6])
def test_units_of_the_targets_do_not_matter(noise, scale):
    """Predictions and sds are multiplied; the draws, of standardised targets, stay.

    The rounding of targets, 1e-16, was seen to grow to 1e-15 over these 240 steps.
    """
    X, y = rows(80)
    plain = small(noise=noise).fit(X, y)
    scaled = small(noise=noise if noise == "infer" else noise * scale).fit(X, scale * y)
    assert_same_draws(plain, scaled, atol=1e-11)
    for ours, theirs in zip(
        plain.predict(X, return_std=True), scaled.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(scale * ours, theirs, rtol=1e-7)
    np.testing.assert_allclose(
        scale * plain.predict_interval(X), scaled.predict_interval(X), rtol=1e-7, atol=1e-7 * scale
    )


@pytest.mark.parametrize("offset", [1e3, 1e8])
def test_the_origin_of_the_targets_does_not_matter(offset):
    """Times in seconds since 1970 are 1.7e9: sds must not be differences of such squares.

    y itself is rounded to 1e-16 of the offset, and so are predictions.
    """
    X, y = rows(80)
    plain, moved = small().fit(X, y), small().fit(X, y + offset)
    mean, sd = plain.predict(X, return_std=True)
    mean_there, sd_there = moved.predict(X, return_std=True)
    np.testing.assert_allclose(mean_there - offset, mean, rtol=0, atol=1e-4)
    np.testing.assert_allclose(sd_there, sd, rtol=1e-4)
    np.testing.assert_allclose(
        moved.predict_interval(X) - offset, plain.predict_interval(X), rtol=0, atol=1e-4
    )


def test_given_noise_is_the_noise():
    """It is in every prediction's sd, which exceeds it by the function's uncertainty only."""
    X, y = rows(300)
    for noise in (0.3, 3.0):
        reg = small(noise=noise).fit(X, y)
        assert "log_noise" not in reg.posterior_.draws
        np.testing.assert_allclose(noise_sd(reg), noise, rtol=1e-12)
        sd = reg.predict(X, return_std=True)[1]
        assert (sd >= noise).all() and sd.min() < 1.2 * noise


# rows, weights, streams ---------------------------------------------------------------------------


@pytest.mark.parametrize(("n_rows", "value"), [(60, 0.0), (60, -3e6), (1, 7.0)])
def test_targets_without_spread(data, n_rows, value):
    """All alike, or one row: what was seen is predicted, to a prior sd of the function (1.6).

    Targets without a scale have 1 for it; one row leaves the prior's sd, and the noise's.
    """
    X, y = data[0][:n_rows], np.full((n_rows, 2), value)
    mean, sd = small(burn_in=1500).fit(X, y).predict(X, return_std=True)
    assert np.abs(mean - value).max() < 1.6
    assert (sd > 0.0).all() and sd.max() < (4.0 if n_rows == 1 else 1.0)


def test_bad_targets(data):
    """In ``score``, too, which calls scikit-learn."""
    X, y = data
    reg, gap, third = small().fit(X, y), y.copy(), np.arange(60) == 3
    gap[3] = np.nan
    with pytest.raises(ValueError, match="^Input y contains NaN: the value of row 3 .* is missing"):
        reg.score(X, gap)
    with pytest.raises(ValueError, match="^y is not allowed: the values of row 3 are masked"):
        reg.score(X, np.ma.masked_invalid(gap))
    with pytest.raises(ValueError, match="^sample_weight is not allowed: the values of row 3"):
        reg.score(X, y, np.ma.masked_array(np.ones(60), mask=third))


def test_a_stream(data):
    """In the units of its first chunk; later chunks have as many outputs as that."""
    X, y = rows(4000)
    reg = small(n_draws=50, step_size=0.01, batch_size=5)
    for start in range(0, 4000, 100):
        reg.partial_fit(X[start : start + 100], y[start : start + 100])
    assert reg.posterior_.n_draws == 50
    assert reg.score(X, y) > 0.6  # 0.82 was measured, of at most 0.9 with this noise
    assert reg.predict_interval(X[:3]).shape == (3, 2)
    with pytest.raises(ValueError, match="y with 2 outputs is not allowed: earlier calls had 1"):
        reg.partial_fit(X[:100], np.column_stack([y, y])[:100])


@pytest.mark.parametrize("earlier, later", [(2, 1), (1, 2)])
def test_warm_start_with_other_outputs_starts_anew(data, earlier, later):
    """Neither the chains nor the targets' units of the earlier fit count."""
    X, y = data
    reg = small(warm_start=True).fit(X, 1e3 * y[:, :earlier]).fit(X, y[:, :later])
    assert_same_draws(reg, small().fit(X, y[:, :later]))
    np.testing.assert_array_equal(reg.predict(X), small().fit(X, y[:, :later]).predict(X))


# other packages -----------------------------------------------------------------------------------


def test_arviz_has_the_log_likelihood(data):
    """Summed over the outputs, in units of y: by scipy."""
    pytest.importorskip("arviz")
    X, y = data
    reg = small().fit(X, y)
    f, sd = by_numpy(reg, X, y)
    converted = reg.to_arviz(X, y)
    log_lik = converted["log_likelihood"]["y"]
    assert log_lik.shape == (2, 20, 60)
    expected = scipy.stats.norm.logpdf(y, f, sd).sum(2)
    np.testing.assert_allclose(log_lik.values.reshape(40, 60), expected, rtol=1e-8)
    np.testing.assert_array_equal(converted["observed_data"]["y"].values, y)


def test_arviz_takes_lists_and_refuses_other_targets(data):
    pytest.importorskip("arviz")
    X, y = data
    reg = small().fit(X, y)
    from_lists = reg.to_arviz(X.tolist(), y.tolist())["log_likelihood"]["y"]
    np.testing.assert_array_equal(from_lists.values, reg.to_arviz(X, y)["log_likelihood"]["y"])
    with pytest.raises(ValueError, match="the targets of the rows"):  # not repeated for both
        reg.to_arviz(X, y[:, 0])
