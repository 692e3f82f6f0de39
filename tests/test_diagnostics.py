"""Diagnostics against processes whose figures are known in closed form."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from skbayes_sgmcmc import PosteriorSamples
from skbayes_sgmcmc.diagnostics import (
    ESS_METHODS,
    autocorrelation_time,
    effective_sample_size,
    mcse,
    noise_variances,
    r_hat,
    sampling_threshold,
    summary,
)


def ar1(rho, n_chains, n_draws, seed=0):
    """Stationary AR(1) chains with unit variance, shape (n_chains, n_draws)."""
    rng = np.random.default_rng(seed)
    x = np.empty((n_chains, n_draws))
    x[:, 0] = rng.standard_normal(n_chains)
    for t in range(1, n_draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal(n_chains)
    return x


@pytest.mark.statistical
@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.8])
def test_autocorrelation_time_of_an_autoregression(rho):
    """tau = 1/2 + sum rho^t = 1/2 + rho / (1 - rho), within 5%.

    The estimate's relative sd is about sqrt(2 (2W + 1) / n), with a window W of some 13 tau and n =
    3,200,000 draws: below 0.9%.
    """
    expected = 0.5 + rho / (1 - rho)
    assert autocorrelation_time(ar1(rho, 64, 50_000)) == pytest.approx(expected, rel=0.05)


@pytest.mark.statistical
def test_effective_sample_size_and_mcse_agree_with_the_autocorrelation_time():
    """Over seeds their sds were 2.3% and 1.4% of what is expected."""
    x = ar1(0.8, 16, 10_000)
    posterior = PosteriorSamples({"x": x[:, :, None]})
    expected = x.size * (1 - 0.8) / (1 + 0.8)
    ess = effective_sample_size(posterior, "x", method="mean")[0]
    assert ess == pytest.approx(expected, rel=0.15)
    assert mcse(posterior, "x")[0] == pytest.approx(1 / np.sqrt(expected), rel=0.1)


def test_methods_are_those_of_arviz_and_others_are_refused():
    x = ar1(0.5, 4, 100)
    posterior = PosteriorSamples({"x": x[:, :, None]})
    for method in ESS_METHODS:
        prob = {"prob": (0.05, 0.95)} if method == "tail" else {}
        expected = array_stats.ess(x, method=method, **prob)
        found = effective_sample_size(posterior, "x", method=method)
        np.testing.assert_allclose(found, [expected], rtol=1e-7)
    np.testing.assert_allclose(mcse(posterior, "x", "median"), array_stats.mcse(x, method="median"))
    for figure in (effective_sample_size, mcse):
        with pytest.raises(ValueError, match="method='quantile' is not allowed: give one of"):
            figure(posterior, "x", method="quantile")


@pytest.mark.statistical
@pytest.mark.parametrize("phi", [-0.9, 0.0, 0.8])
def test_mcse_of_sds_is_what_sds_of_other_runs_differ_by(phi):
    """AR(1) chains, which turn back at each step with phi = -0.9: their means are 19 times as good
    as those of independent draws, their squares are not.

    200 runs of 4 x 500 draws: the spread of their sds has an error of 5%, and the effective sizes
    are 10% too large or small.
    """
    rng, found, errors = np.random.default_rng(0), [], []
    for _ in range(200):
        draws = np.empty((4, 500, 1))
        draws[:, 0, 0] = rng.standard_normal(4)
        noise = np.sqrt(1.0 - phi**2) * rng.standard_normal((4, 500))
        for t in range(1, 500):
            draws[:, t, 0] = phi * draws[:, t - 1, 0] + noise[:, t]
        posterior = PosteriorSamples({"x": draws})
        found.append(draws.std())
        errors.append(mcse(posterior, "x", "sd")[0])
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.3)


@pytest.mark.statistical
def test_r_hat_is_near_one_for_equal_chains_and_large_for_shifted_ones():
    """A shift of 3 sd in one of four chains: sqrt(1 + 9/4) = 1.8 before rank normalisation.

    Ranks shrink the gap between chains that hardly overlap, to 1.47; users are warned from 1.05 on.
    """
    x = ar1(0.0, 4, 1000)[:, :, None]
    assert r_hat(PosteriorSamples({"x": x}), "x")[0] < 1.01
    x[0] += 3.0
    assert r_hat(PosteriorSamples({"x": x}), "x")[0] > 1.4


def r_hat_of(chains):
    return r_hat(PosteriorSamples({"x": chains[:, :, None]}), "x")[0]


@pytest.mark.statistical
def test_r_hat_sees_chains_that_drift_together():
    """Means of whole chains agree, those of their halves differ by 1.5: sqrt(1 + 0.6 / 1.2) = 1.2.

    0.6 is the variance of the half chains' means, 1.2 that within one of them.
    """
    drifting = ar1(0.0, 4, 1000) + np.linspace(-1.5, 1.5, 1000)
    assert r_hat_of(drifting) == pytest.approx(np.sqrt(1.5), abs=0.04)


@pytest.mark.statistical
def test_r_hat_sees_chains_of_unequal_scales():
    """One of four chains is three times as wide about the same mean: only distances from it differ.

    1.19 by the ranks of these distances; from draws themselves, or their ranks, it is below 1.01.
    """
    x = ar1(0.0, 4, 1000)
    x[0] *= 3.0
    assert r_hat_of(x) > 1.1


@pytest.mark.statistical
def test_r_hat_is_of_ranks():
    """It sees a shift of 3 among draws without a variance, and does not change if they are cubed.

    Of Cauchy draws the shift is lost in outliers unless their ranks are taken: 1.12 with these,
    below 1.001 without. Cubes have the same ranks.
    """
    x = np.tan(np.pi * (np.random.default_rng(0).random((4, 1000)) - 0.5))
    assert r_hat_of(x) < 1.01
    x[0] += 3.0
    assert r_hat_of(x) > 1.08
    assert r_hat_of(x**3) == pytest.approx(r_hat_of(x), rel=1e-9)


def test_constant_coordinates_have_no_figures_instead_of_an_error():
    posterior = PosteriorSamples({"x": np.zeros((2, 10, 3))})
    assert np.isnan(effective_sample_size(posterior, "x")).all()
    assert r_hat(posterior, "x").shape == (3,)


def test_sampling_threshold_is_the_ratio_of_the_two_noise_variances():
    """alpha_t is by definition gradient noise over injected noise in the worst direction."""
    covariance = np.diag([3.0, 0.5])
    settings = {"step_size": 0.02, "n": 1000, "batch_size": 10, "temperature": 0.5}
    gradient, injected = noise_variances(covariance, **settings)
    alpha = sampling_threshold(covariance, **settings)
    assert alpha == pytest.approx(gradient.max() / injected)
    assert alpha == pytest.approx(0.02 * 1000 / (2 * 10 * 0.5) * 3.0 * 990 / 999)


def test_sampling_threshold_of_overflows_is_infinite():
    """Of rows so large that the variance of their scores overflows, or that times the root."""
    settings = {"step_size": 0.02, "n": 1000, "batch_size": 10}
    assert sampling_threshold(np.full((2, 2), np.inf), **settings) == np.inf
    assert sampling_threshold(np.eye(2), root=np.full(2, 1e200), **settings) == np.inf


def test_sampling_threshold_with_preconditioner_and_friction():
    covariance = np.array([[2.0, 1.0], [1.0, 2.0]])
    settings = {"step_size": 0.1, "n": 100, "batch_size": 5}
    root = np.array([[1.0, 0.0], [0.5, 2.0]])
    whole = np.linalg.eigvals(root @ root.T @ covariance).max() * 0.1 * 100 / 10 * 95 / 99
    assert sampling_threshold(covariance, root=root, **settings) == pytest.approx(whole)
    plain = sampling_threshold(covariance, **settings)
    assert sampling_threshold(covariance, friction=0.1, **settings) == pytest.approx(10 * plain)
    diagonal = sampling_threshold(covariance, root=np.array([1.0, 1.0]), **settings)
    assert diagonal == pytest.approx(plain)


def test_full_batches_have_no_gradient_noise():
    assert sampling_threshold(np.eye(2), step_size=1.0, n=50, batch_size=50) == 0.0


def test_summary_has_the_weighted_figures_of_the_draws():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((2, 400, 2))
    weights = np.linspace(1.0, 3.0, 400)
    posterior = PosteriorSamples({"a": draws, "b": draws[:, :, 0]}, weights)
    table = summary(posterior, labels={"a": ["one", "two"]}, coverage=0.8)
    assert table["name"] == ["one", "two", "b"]
    tiled = np.tile(weights, 2)
    expected = np.average(draws.reshape(-1, 2), axis=0, weights=tiled)
    np.testing.assert_allclose(table["mean"][:2], expected)
    assert (table["lower"] < table["mean"]).all() and (table["mean"] < table["upper"]).all()
    assert "one" in repr(table) and "r_hat" in repr(table)
    inside = (draws[:, :, 0] > table["lower"][0]) & (draws[:, :, 0] < table["upper"][0])
    share = np.average(inside.reshape(-1), weights=tiled)
    assert share == pytest.approx(0.8, abs=0.01)  # the interval's own definition, to a draw or two


@pytest.mark.statistical
@pytest.mark.parametrize("thinning", [1, 500])
def test_figures_of_weighted_draws_are_those_of_weighted_means(thinning):
    """Steps of an Ornstein-Uhlenbeck process fall by a factor of 100, and weigh its draws.

    Errors are the means of 300 coordinates, so that their root mean square has a standard error of
    3%; resampled draws that are independent tell it to a tenth. Those of plain means are 2.2 times
    it with steps that are short, and 0.7 times with steps that are long. Chains agree at all times.
    """
    rng, n = np.random.default_rng(0), 1000
    etas = np.geomspace(1.0, 0.01, n)
    rho = np.exp(-thinning * etas)[:, None]
    x = np.empty((4, n, 300))
    x[:, 0] = rng.standard_normal((4, 300))
    for t in range(1, n):
        noise = rng.standard_normal((4, 300))
        x[:, t] = rho[t] * x[:, t - 1] + np.sqrt(1.0 - rho[t] ** 2) * noise
    table = summary(PosteriorSamples({"x": x}, etas))
    error = np.sqrt(np.square(table["mean"]).mean())  # the true means are 0
    assert table["mcse"].mean() == pytest.approx(error, rel=0.2)
    assert table["ess"].mean() == pytest.approx(error**-2, rel=0.4)
    assert np.median(table["r_hat"]) < 1.01


def test_names_of_a_summary_are_unique():
    """A column may be called like another parameter."""
    draws = {name: np.zeros((2, 4, *shape)) for name, shape in (("coef", (2,)), ("noise", ()))}
    table = summary(PosteriorSamples(draws), labels={"coef": ["noise", "x"]})
    assert table["name"] == ["coef[noise]", "x", "noise"]


def test_summary_refuses_an_impossible_coverage():
    posterior = PosteriorSamples({"x": np.zeros((2, 10, 1))})
    with pytest.raises(ValueError, match=r"coverage=1\.5 is not allowed"):
        summary(posterior, coverage=1.5)
