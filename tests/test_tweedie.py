"""Zero-inflated counts and Tweedie's compound Poisson-gamma distribution."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from _cases import cases

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianMLPRegressor, Tweedie
from skbayes_sgmcmc._draws.mixture import quantile
from skbayes_sgmcmc.models.likelihoods.counts import NegativeBinomial, Poisson
from skbayes_sgmcmc.models.likelihoods.tweedie import CompoundGamma, CompoundPoisson
from skbayes_sgmcmc.models.likelihoods.zero_inflated import (
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
POWERS = [1.01, 1.2, 1.5, 1.8, 1.99]
DISPERSIONS = [0.01, 1.0, 30.0]


def exact_log_density(y, mean, dispersion, power):
    """The sum over the number of amounts, in 40 digits."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(40):
        mean, phi, p = mp.mpf(mean), mp.mpf(dispersion), mp.mpf(power)
        rate, shape = mean ** (2 - p) / (phi * (2 - p)), (2 - p) / (p - 1)
        if y == 0.0:
            return float(-rate)
        scale, total = phi * (p - 1) * mean ** (p - 1), mp.mpf(0)
        middle = int(mp.mpf(y) ** (2 - p) / (phi * (2 - p)))
        reach = int(9.0 * max(middle, 1) ** 0.5 + 40.0)
        for j in range(max(1, middle - reach), middle + reach):
            log_term = -rate + j * mp.log(rate) - mp.loggamma(j + 1) - mp.loggamma(j * shape)
            total += mp.exp(log_term + (j * shape - 1) * mp.log(y) - y / scale
                            - j * shape * mp.log(scale))  # fmt: skip
        return float(mp.log(total))


@cases("dispersion", DISPERSIONS)
@cases("power", POWERS)
def test_tweedies_density_is_its_series(power, dispersion):
    """Against 40 digits, to 1e-10: the terms are rounded to 1e-16 of up to 1e5."""
    likelihood = CompoundPoisson(np.array([2.0]), power)
    own = torch.tensor([[np.log(dispersion)]], dtype=torch.float64)
    f = torch.full((1, 1, 1), 0.3, dtype=torch.float64)
    one = likelihood.predictive(f, own).numpy()
    for y in (0.0, 0.01, 2.0, 9.0):
        exact = exact_log_density(y, 2.0 * np.exp(0.3), dispersion * 2.0 ** (2.0 - power), power)
        found = likelihood.log_density(f, torch.full((1, 1), y, dtype=torch.float64), own)
        assert found.item() == pytest.approx(exact, rel=1e-10, abs=1e-10)
        assert one.log_density(np.array([[y]])).item() == pytest.approx(exact, rel=1e-10, abs=1e-10)


@cases("power, dispersion", [(1.2, 0.5), (1.5, 0.05), (1.5, 2.0), (1.8, 5.0)])
def test_tweedies_moments_are_integrals(power, dispersion):
    """The probability of zero and the density add up to one, and have mean and variance phi mu^p.

    To 1e-6, by quadrature in log y, from where the density near zero is rounded to nothing.
    """
    likelihood = CompoundPoisson(np.array([1.0]), power)
    own = torch.tensor([[np.log(dispersion)]], dtype=torch.float64)
    one = likelihood.predictive(torch.full((1, 1, 1), 0.4, dtype=torch.float64), own).numpy()
    mean, sd = float(one.mean().item()), float(np.sqrt(one.variance().item()))
    assert mean == pytest.approx(np.exp(0.4))
    assert sd**2 == pytest.approx(dispersion * mean**power)
    logs = np.linspace(-60.0, np.log(mean + 60.0 * sd), 20_001)
    y = np.exp(logs)
    parts = likelihood.predictive(torch.full((1, len(y), 1), 0.4, dtype=torch.float64), own)
    density = np.exp(parts.numpy().log_density(y[:, None])).ravel()
    zero = np.exp(one.log_density(np.zeros((1, 1)))).item()
    moments = [scipy.integrate.simpson(density * y ** (k + 1), x=logs) for k in (0, 1, 2)]
    assert zero + moments[0] == pytest.approx(1.0, abs=1e-6)
    assert moments[1] == pytest.approx(mean, rel=1e-6)
    assert moments[2] - moments[1] ** 2 == pytest.approx(sd**2, rel=1e-5)


@cases("rate", [1e-3, 1.0, 60.0, 70.0, 1e5])
@cases("shape", [0.01, 1.0, 99.0])
def test_tweedies_distribution_function_is_that_of_its_parts(rate, shape):
    """Sums that leave out numbers where these are many, against all of them, to 1e-9."""
    one = CompoundGamma(*(np.full((1, 1, 1), value) for value in (3.0, rate, shape)))
    sd = np.sqrt(one.variance().item())
    j = np.arange(1.0, rate + 12.0 * np.sqrt(rate) + 40.0)
    for y in (0.0, 3.0 - 0.7 * sd, 3.0, 3.0 + 2.0 * sd):
        parts = scipy.stats.gamma(shape * j, scale=3.0 / (rate * shape)).cdf(y)
        exact = (y >= 0.0) * np.exp(-rate) + scipy.stats.poisson(rate).pmf(j) @ parts
        assert one.cdf(np.array([[y]])).item() == pytest.approx(exact, abs=1e-9)


def test_quantiles_of_amounts_are_exactly_zero_or_have_their_probability():
    """Up to the probability of zero, and beyond it the inverse of the distribution function."""
    shape = np.full((2, 3, 1), 0.7)
    rate = np.array([0.1, 1.0, 5.0])[None, :, None] * np.array([1.0, 1.2])[:, None, None]
    one, weights = CompoundGamma(2.0 * np.ones((2, 3, 1)), rate, shape), np.array([0.3, 0.7])
    zero = weights @ np.exp(-rate[..., 0])
    for q in (0.01, 0.3, 0.5, 0.9, 0.999):
        found = quantile(one, weights, q)
        reached = np.tensordot(weights, one.cdf(found), axes=1)[:, 0]
        np.testing.assert_array_equal(found[:, 0] == 0.0, zero >= q)
        np.testing.assert_allclose(reached, np.maximum(zero, q), atol=1e-7)


@cases("kind", [ZeroInflatedPoisson, ZeroInflatedNegativeBinomial])
def test_zero_inflated_counts_are_mixtures(kind):
    """Of zeros with the probability pi = Phi(g) and of counts; they sum to one, to 1e-9.

    Without zeros by force, g = -40, they are those of the distribution that is inflated.
    """
    given = NegativeBinomial if kind is ZeroInflatedNegativeBinomial else Poisson
    inflated, plain = kind(np.array([3.0])), given(np.array([3.0]))
    f = torch.tensor([[[0.2], [-1.0]]], dtype=torch.float64)
    rest = torch.full((1, 1 if given is NegativeBinomial else 0), -0.4, dtype=torch.float64)
    y = np.arange(400.0)[:, None]
    for g in (-40.0, -0.3, 1.5):
        own = torch.cat([torch.tensor([[g]], dtype=torch.float64), rest], dim=1)
        pi = scipy.stats.norm.cdf(g)
        for row in range(2):
            at = f[:, row : row + 1].expand(1, 400, 1)
            found = np.exp(inflated.log_density(at, torch.from_numpy(y), own)[0].numpy())
            counts = np.exp(plain.log_density(at, torch.from_numpy(y), rest)[0].numpy())
            np.testing.assert_allclose(
                found, pi * (y[:, 0] == 0.0) + (1.0 - pi) * counts, atol=1e-14
            )
            one = inflated.predictive(f[:, row : row + 1], own).numpy()
            mean = found @ y[:, 0]
            assert found.sum() == pytest.approx(1.0, abs=1e-9)
            assert one.mean().item() == pytest.approx(mean)
            assert one.variance().item() == pytest.approx(found @ y[:, 0] ** 2 - mean**2)


TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "random_state": 0}
NEW = ["zero_inflated_poisson", "zero_inflated_negative_binomial", "tweedie"]


def data(name, n=80):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    mean = np.exp(1.0 + 0.5 * X[:, 0])
    if name == "tweedie":
        return X, rng.gamma(rng.poisson(mean / 2.0) * 1.0) * 2.0
    return X, rng.poisson(mean) * (rng.random(n) < 0.7) * 1.0


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("name", NEW)
def test_every_prediction_of_counts_and_amounts_with_zeros(name):
    """Of linear models and networks: quantiles, densities and samples agree with each other."""
    X, y = data(name)
    net = {"hidden_layer_sizes": 4, "sampler": "psgld", "prior_scale": "fan_in"}
    for reg in (
        BayesianGLMRegressor(likelihood=name, **TINY),
        BayesianMLPRegressor(likelihood=name, **TINY, **net),
    ):
        reg.fit(X, y)
        few = X[:5]
        mean, sd = reg.predict(few, return_std=True)
        parts = reg.predict_uncertainty(few)
        np.testing.assert_allclose(parts.total, sd**2)
        np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total)
        low, high = reg.predict_interval(few, 0.9).T
        assert (low >= 0.0).all() and (low <= mean).all() and (mean <= high).all()
        survival = reg.predict_survival(few, [-1.0, 0.0, high.max() + 1.0])
        np.testing.assert_allclose(survival[:, 0], 1.0)
        zeros = np.exp(reg.predict_log_density(few, np.zeros(5)))
        np.testing.assert_allclose(1.0 - survival[:, 1], zeros, atol=1e-7)
        new = reg.sample_y(few, 400, random_state=0)
        share = (new == 0.0).mean(axis=1)  # of 400: five binomial sds
        assert (np.abs(share - zeros) <= 5.0 * np.sqrt(zeros * (1.0 - zeros) / 400) + 1e-9).all()


def test_summaries_show_the_dispersion_of_the_amounts_themselves():
    """In other units it is another number, and the variance is the dispersion times mean^power.

    The mean of products over the draws is here that of means to 5%: dispersion and means of rows
    are nearly independent, and each varies by a tenth.
    """
    X, y = data("tweedie")
    for unit in (1.0, 1000.0):
        reg = BayesianGLMRegressor(likelihood=Tweedie(power=1.5), **TINY | {"n_draws": 200})
        table = reg.fit(X, unit * y).summary()
        dispersion = table["mean"][table["name"].index("dispersion")]
        power_of_mean = (reg.predict_mean_samples(X[:5]) ** 1.5).mean(axis=0)
        variance = reg.predict_uncertainty(X[:5]).aleatoric
        np.testing.assert_allclose(variance, dispersion * power_of_mean, rtol=0.05)


@cases("value", [0.0, 3.0])
@cases("name", NEW)
def test_networks_of_equal_targets_and_of_far_rows_have_finite_predictions(name, value):
    """Rows without spread, and rows so far away that means are zero or huge."""
    X = np.random.default_rng(0).standard_normal((40, 2))
    net = {"hidden_layer_sizes": 4, "sampler": "psgld", "prior_scale": "fan_in"}
    reg = BayesianMLPRegressor(likelihood=name, **TINY, **net).fit(X, np.full(40, value))
    for rows in (X[:5], np.array([[1e6, 1e6], [-1e6, -1e6]])):
        mean, sd = reg.predict(rows, return_std=True)
        assert np.isfinite(mean).all() and np.isfinite(sd).all()
        assert np.isfinite(reg.predict_interval(rows)).all()
        assert np.isfinite(reg.predict_log_density(rows, np.zeros(len(rows)))).all()


@cases(
    "likelihood, y, message",
    [
        ("tweedie", -1.0, "y with the value -1 is not allowed with likelihood='tweedie'"),
        ("zero_inflated_poisson", 0.5, "y with the value 0.5"),
        ("zero_inflated_negative_binomial", -1.0, "y with the value -1"),
        ("tweedie", 0.0, "y with the value 0 in every row"),
        ("zero_inflated_poisson", 0.0, "y with the value 0 in every row"),
        (Tweedie(power=1.0), 1.0, r"likelihood.power=1.0 is not allowed: .* \(1.01, 1.99\)"),
        (Tweedie(power="auto"), 1.0, "likelihood.power='auto' is not allowed"),
        (Tweedie, 1.0, "likelihood=.* is not allowed"),
    ],
)
def test_what_is_not_allowed_of_counts_and_amounts_with_zeros(likelihood, y, message):
    X = np.arange(10.0)[:, None]
    reg = BayesianGLMRegressor(likelihood=likelihood, **TINY)
    with pytest.raises(ValueError, match=message):
        reg.fit(X, np.full(10, y))


def test_a_given_power_is_no_parameter():
    """Its draws have a dispersion alone; files and clones keep the number."""
    X, y = data("tweedie", 40)
    reg = BayesianGLMRegressor(likelihood=Tweedie(power=1.5), **TINY).fit(X, y)
    assert "log_dispersion" in reg.posterior_ and "power_probit" not in reg.posterior_
    assert reg.get_params()["likelihood__power"] == 1.5
