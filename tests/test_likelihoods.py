"""Families of distributions by scipy, and likelihoods: their densities, slopes and predictives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from _cases import cases

from skbayes_sgmcmc.models.likelihoods import counts as count_likelihoods
from skbayes_sgmcmc.models.likelihoods import gamma as gamma_likelihood
from skbayes_sgmcmc.models.likelihoods import tweedie as tweedie_likelihood
from skbayes_sgmcmc.models.likelihoods import zero_inflated as zero_inflated_likelihood
from skbayes_sgmcmc.models.likelihoods.base import (
    RESOLUTION,
    Gaussian,
    Heteroscedastic,
    LatentGaussian,
    LinearAbove,
)
from skbayes_sgmcmc.models.likelihoods.predictive import (
    Binomial,
    Gamma,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from skbayes_sgmcmc.models.likelihoods.student import StudentNoise

# families -----------------------------------------------------------------------------------------


FAMILIES = ["student", "poisson", "negative binomial", "gamma", "binomial"]


def family_and_scipy(name):
    """A family with parameters of many sizes, (3, 4, 2), and the same distributions by scipy."""
    rng = np.random.default_rng(0)
    loc, scale = rng.standard_normal((3, 4, 2)), rng.uniform(0.1, 3.0, (3, 1, 2))
    df = np.geomspace(2.5, 300.0, 6).reshape(3, 1, 2)
    trials, p = rng.integers(0, 50, (3, 4, 2)).astype(float), scipy.special.expit(loc)
    rate, alpha = np.exp(3.0 * loc), np.geomspace(1e-3, 10.0, 6).reshape(3, 1, 2)
    return {
        "student": (StudentT(loc, scale, df), scipy.stats.t(df, loc, scale)),
        "poisson": (Poisson(rate), scipy.stats.poisson(rate)),
        "negative binomial": (
            NegativeBinomial(rate, alpha),
            scipy.stats.nbinom(1.0 / alpha, 1.0 / (1.0 + alpha * rate)),
        ),
        "gamma": (Gamma(rate, alpha), scipy.stats.gamma(1.0 / alpha, scale=alpha * rate)),
        "binomial": (Binomial(trials, p), scipy.stats.binom(trials, p)),
    }[name]


@cases("name", FAMILIES)
def test_families_are_those_of_scipy(name):
    """To a relative 1e-8: scipy's negative binomial has lost half of its digits at r = 1000."""
    one, other = family_and_scipy(name)
    close = {"rtol": 1e-8, "atol": 1e-10}
    np.testing.assert_allclose(np.broadcast_to(one.mean(), (3, 4, 2)), other.mean(), **close)
    np.testing.assert_allclose(np.broadcast_to(one.variance(), (3, 4, 2)), other.var(), **close)
    values = np.array([-2.5, -1.0, 0.0, 0.4, 1.0, 2.0, 7.0, 40.0, 1e3])
    for y in values[values != 0.0] if name == "gamma" else values:
        density = other.logpmf(y) if one.discrete else other.logpdf(y)
        np.testing.assert_allclose(one.log_density(np.full((4, 2), y)), density, **close)
        np.testing.assert_allclose(one.cdf(np.full((4, 2), y)), other.cdf(y), **close)
    for q in (1e-3, 0.5, 0.99):
        low, high = one.bounds(q)
        assert (low <= other.ppf(q)).all() and (other.ppf(q) <= high).all()


def exact_log_density(name, y, mean, own):
    """In 60 digits: ``own`` is the dispersion, or the number of trials."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(60):
        y, mean, own = mp.mpf(y), mp.mpf(mean), mp.mpf(own)
        if name == "poisson":
            return float(y * mp.log(mean) - mean - mp.loggamma(y + 1))
        if name == "binomial":
            p = mean / own
            ways = mp.loggamma(own + 1) - mp.loggamma(y + 1) - mp.loggamma(own - y + 1)
            return float(ways + y * mp.log(p) + (own - y) * mp.log(1 - p))
        r = 1 / own
        if name == "gamma":
            return float(r * mp.log(r / mean) + (r - 1) * mp.log(y) - r * y / mean - mp.loggamma(r))
        ways = mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1)
        return float(ways + r * mp.log(r / (r + mean)) + y * mp.log(mean / (r + mean)))


@cases("size", [1.0, 90.0, 1e3, 1e8, 1e15, 1e30])
@cases("name", ["poisson", "negative binomial", "gamma", "binomial"])
def test_log_densities_of_numbers_of_any_size_are_exact(name, size):
    """Against 60 digits, a few sds from the mean: to 1e-9, beside what rounding of the mean does.

    Sums of factorials and powers were off by 1e14 for counts of 1e30, and log probabilities were
    +1.5e20. The mean is rounded to 1e-16, which is 1e-16 mean / sd of an sd.
    """
    for sds in (0.0, -0.7, 2.5):
        for own in (1e-12, 1e-3, 2.0, 1e-40) if name in ("negative binomial", "gamma") else (0.0,):
            sd = {"poisson": size**0.5, "gamma": own**0.5 * size, "binomial": size**0.5}.get(
                name, (size + own * size**2) ** 0.5
            )
            y = size + sds * sd if name == "gamma" else np.rint(size + sds * sd)
            if y <= 0.0 or (name == "gamma" and own < 1e-20):
                continue
            mean, trials = np.full((1, 1, 1), size), 4.0 * np.rint(size)
            one = {
                "poisson": lambda m=mean: Poisson(m),
                "negative binomial": lambda m=mean, a=own: NegativeBinomial(
                    m, np.full((1, 1, 1), a)
                ),
                "gamma": lambda m=mean, a=own: Gamma(m, np.full((1, 1, 1), a)),
                "binomial": lambda m=mean, t=trials: Binomial(np.full((1, 1, 1), t), m / t),
            }[name]()
            found = one.log_density(np.array([[y]])).item()
            exact = exact_log_density(name, y, size, trials if name == "binomial" else own)
            assert found == pytest.approx(exact, abs=1e-9 + 1e-15 * size / sd, rel=1e-11)
            assert found <= 0.0 or not one.discrete


@pytest.mark.statistical
@pytest.mark.parametrize("name", FAMILIES)
def test_samples_of_families_have_scipys_distribution(name):
    """Of 20,000, the shares up to five quantiles: within five binomial sds."""
    one, other = family_and_scipy(name)
    rng = np.random.RandomState(0)
    samples = np.stack([one.sample(rng) for _ in range(20_000)])
    for q in (0.02, 0.3, 0.5, 0.7, 0.98):
        at = other.ppf(q)
        p = other.cdf(at)
        allowed = 5.0 * np.sqrt(p * (1.0 - p) / 20_000) + 1e-3
        assert (np.abs((samples <= at).mean(axis=0) - p) < allowed).all()


@pytest.mark.statistical
def test_samples_of_huge_rates_are_whole_numbers_near_them():
    """numpy refuses rates beyond 9e18. At 1e30 the relative sd, 1e-15, is that of rounding."""
    rates = np.array([[[5.0, 1e18, 1e30]]])
    samples = np.stack([Poisson(rates).sample(np.random.RandomState(k)) for k in range(200)])
    assert (samples == np.floor(samples)).all() and np.isfinite(samples).all()
    np.testing.assert_allclose(samples[..., 1:].mean(0), rates[..., 1:], rtol=1e-9)
    assert samples[..., 1].std() == pytest.approx(1e9, rel=0.25)  # five sds of 200 samples
    alpha = np.full((1, 1, 1), 1e-9)
    assert np.isfinite(NegativeBinomial(rates, alpha).sample(np.random.RandomState(0))).all()


# likelihoods --------------------------------------------------------------------------------------

RATES, BENDS = np.array([0.5, 20.0]), np.array([0.2, -0.1])
LIKELIHOODS = {
    "inferred": Gaussian(2, None),
    "given": Gaussian(2, np.array([0.1, 3.0])),
    "latent": LatentGaussian(2),
    "heteroscedastic": Heteroscedastic(2),
    "student": StudentNoise(2, None),
    "student, given scale": StudentNoise(2, np.array([0.1, 3.0])),
    "student, given df": StudentNoise(2, None, 12.0),
    "student, all given": StudentNoise(2, np.array([0.1, 3.0]), 12.0),
    "poisson": count_likelihoods.Poisson(RATES),
    "negative binomial": count_likelihoods.NegativeBinomial(RATES),
    "gamma": gamma_likelihood.Gamma(RATES),
    "zero-inflated poisson": zero_inflated_likelihood.ZeroInflatedPoisson(RATES),
    "zero-inflated negative binomial": zero_inflated_likelihood.ZeroInflatedNegativeBinomial(RATES),
    "tweedie": tweedie_likelihood.CompoundPoisson(RATES),
    "tweedie, given power": tweedie_likelihood.CompoundPoisson(RATES, 1.7),
    "poisson, bent": LinearAbove(count_likelihoods.Poisson(RATES), BENDS),
    "negative binomial, bent": LinearAbove(count_likelihoods.NegativeBinomial(RATES), BENDS),
    "tweedie, bent": LinearAbove(tweedie_likelihood.CompoundPoisson(RATES), BENDS),
}


def outputs_of(name):
    """The likelihood, outputs (3, 4, k), targets (4, 2) and own parameters (3, m)."""
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(0)
    n_own = sum(int(np.prod(shape)) for shape in likelihood.shapes.values())
    own = torch.from_numpy(rng.standard_normal((3, n_own)))
    if name == "latent":
        own = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    if "log_df" in likelihood.shapes:
        own[:, -2:] = own[:, -2:].abs() + 1.0  # 20 and more, so that kurtoses can be estimated
    f = torch.from_numpy(rng.standard_normal((3, 4, likelihood.n_outputs)))
    y = rng.poisson(2.0, (4, 2)) + (0.5 if name == "gamma" else 0.0)
    if "zero" in name or "tweedie" in name:
        y[0] = 0.0
    return likelihood, f, torch.from_numpy(y.astype(float)), own


@cases("name", LIKELIHOODS)
def test_a_likelihood_and_its_predictive_agree(name):
    """Densities alike, whose integral or sum is the cdf; samples have the moments.

    Alike but for the square of the targets' own errors, in units of the noise. Where zeros
    have a probability, it is what the cdf jumps by.
    """
    likelihood, f, y, own = outputs_of(name)
    one = likelihood.predictive(f, own).numpy()
    expected = likelihood.log_density(f, y[None], own).numpy()
    alike = {"rtol": 1e-12, "atol": 100.0 * RESOLUTION**2}
    np.testing.assert_allclose(one.log_density(y.numpy()).sum(axis=2), expected, **alike)
    if one.discrete:
        jump = one.cdf(y.numpy()) - one.cdf(y.numpy() - 1.0)
        np.testing.assert_allclose(jump, np.exp(one.log_density(y.numpy())), rtol=1e-9, atol=1e-15)
    else:  # a central difference of step 1e-5, with errors of 1e-10
        below, at, above = (one.cdf(y.numpy() + step) for step in (-1e-5, 0.0, 1e-5))
        zero = one.has_atom & (y.numpy() == 0.0)
        slope = np.where(zero, at - below, (above - below) / 2e-5)
        np.testing.assert_allclose(slope, np.exp(one.log_density(y.numpy())), atol=1e-6)
    n = 20_000
    many = likelihood.predictive(f.repeat(1, n, 1), own).numpy()
    samples = many.sample(np.random.RandomState(0)).reshape(3, n, 4, 2)
    mean, variance = one.mean(), np.broadcast_to(one.variance(), (3, 4, 2))
    assert (np.abs(samples.mean(1) - mean) < 5.0 * np.sqrt(variance / n)).all()
    kurtosis = scipy.stats.kurtosis(samples, axis=1, fisher=False)
    allowed = 5.0 * np.sqrt((kurtosis - 1.0) / n)
    assert (np.abs(samples.var(1) / variance - 1.0) < allowed).all()


#: what is added to own parameters: scales, degrees of freedom and dispersions of many sizes
SHIFTS = (-9.0, -3.0, 0.0, 3.0, 6.0)


@cases("shift", SHIFTS)
@cases("name", [name for name in LIKELIHOODS if name != "latent"])
def test_slopes_are_those_of_the_density(name, shift):
    """In float64, against autograd: to a relative 1e-10, and 1e-10 of the largest slope."""
    likelihood, f, y, own = outputs_of(name)
    own = (own + shift).requires_grad_(True)
    f.requires_grad_(True)
    total = -likelihood.log_density(f, y[None], own).sum()
    by_f = torch.autograd.grad(total, f, retain_graph=True)[0]
    slope, own_slope = likelihood.slope(f.detach().clone(), y[None], own.detach())
    torch.testing.assert_close(slope, by_f, rtol=1e-10, atol=1e-10 * float(by_f.abs().max()))
    if own_slope is None:
        assert own.shape[1] == 0
        return
    by_own = torch.autograd.grad(total, own)[0]
    found = own_slope.sum(1)
    torch.testing.assert_close(found, by_own, rtol=1e-10, atol=1e-10 * float(by_own.abs().max()))


def test_noise_above_the_sd_of_the_targets_grows_linearly():
    """sd(s) is 0.001 + 0.3 exp(s) up to 1.001, and goes on with the slope that it has there: one.

    Densities integrate to one on both sides, slopes are autograd's, and in float32, where exp(s)
    overflows at 89, all is finite at s = 1e5.
    """
    likelihood, bend, own = Heteroscedastic(1), -np.log(0.3), torch.zeros(1, 0)
    s = bend + np.array([-9.0, -1.0, -1e-6, 1e-6, 1.0, 9.0, 99.0])
    f = torch.from_numpy(np.stack([np.zeros(7), s], 1)[None]).requires_grad_(True)
    sd = likelihood.predictive(f.detach(), own).sd[0, :, 0].numpy()
    np.testing.assert_allclose(sd[:3], 1e-3 + 0.3 * np.exp(s[:3]), rtol=1e-12)
    np.testing.assert_allclose(sd[3:], 1.001 + s[3:] - bend, rtol=1e-12)
    assert np.diff(sd)[2] / 2e-6 == pytest.approx(1.0, rel=1e-6)
    for z in (0.0, 0.5, 3.0):
        y = torch.from_numpy(z * sd)[:, None]
        log_p = likelihood.log_density(f, y, own)
        np.testing.assert_allclose(log_p.detach()[0], scipy.stats.norm(0.0, sd).logpdf(z * sd))
        (by_f,) = torch.autograd.grad(-log_p.sum(), f)
        slope, _ = likelihood.slope(f.detach().clone(), y[None], own)
        torch.testing.assert_close(slope, by_f, rtol=1e-10, atol=1e-14)
    wild = torch.tensor([[[0.0, 1e5]]])
    assert torch.isfinite(likelihood.log_density(wild, torch.ones(1, 1), own)).all()
    assert torch.isfinite(likelihood.slope(wild.clone(), torch.ones(1, 1), own)[0]).all()


def test_large_mean_counts_of_networks_are_linear_in_the_outputs():
    """m exp(f) up to f = b, and on with the slope that it has there; finite in float32 at 1e5."""
    bend = np.log1p(3.0)
    likelihood = LinearAbove(count_likelihoods.Poisson(np.array([5.0])), np.array([bend]))
    f, own = bend + np.array([-9.0, -1e-6, 1e-6, 1.0, 9.0]), torch.zeros(1, 0)
    rate = likelihood.predictive(torch.from_numpy(f)[None, :, None], own).rate[0, :, 0].numpy()
    np.testing.assert_allclose(rate[:2], 5.0 * np.exp(f[:2]), rtol=1e-12)
    np.testing.assert_allclose(rate[2:], 20.0 * (1.0 + f[2:] - bend), rtol=1e-12)
    wild, y = torch.tensor([[[1e5]]]), torch.ones(1, 1)
    assert torch.isfinite(likelihood.log_density(wild, y, own)).all()
    assert torch.isfinite(likelihood.slope(wild.clone(), y, own)[0]).all()


@cases("dispersion", [1e-12, 1e-6, 1e-3, 0.3, 30.0, 1e3])
def test_negative_binomials_keep_their_digits_in_float32(dispersion):
    """Log densities to 1e-5 of their size, slopes to 1e-4, by mpmath with 50 digits.

    With log gamma functions of 1e6, whose float32 spacing is 1, not one digit would be right.
    """
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 50
    likelihood = count_likelihoods.NegativeBinomial(np.array([1.0]))
    y, f = np.array([0.0, 1.0, 3.0, 40.0, 1000.0]), np.array([-3.0, 0.5, 1.0, 4.0, 6.5])
    own = torch.tensor([[np.log(dispersion / 0.3)]], dtype=torch.float32)
    outputs = torch.tensor(f, dtype=torch.float32)[None, :, None]
    targets = torch.tensor(y, dtype=torch.float32)[None, :, None]
    found = likelihood.log_density(outputs, targets, own)[0]
    _, own_slope = likelihood.slope(outputs.clone(), targets, own)

    def log_p(count, log_rate, log_alpha):
        r, mu = 1 / mpmath.exp(log_alpha), mpmath.exp(log_rate)
        ways = mpmath.loggamma(count + r) - mpmath.loggamma(r) - mpmath.loggamma(count + 1)
        return ways + r * mpmath.log(r / (r + mu)) + count * mpmath.log(mu / (r + mu))

    log_alpha = mpmath.log(mpmath.mpf(float(0.3 * torch.exp(own.double()))))
    for k in range(5):
        count, rate = mpmath.mpf(y[k]), mpmath.mpf(float(outputs[0, k, 0]))
        expected = float(log_p(count, rate, log_alpha))
        assert float(found[k]) == pytest.approx(expected, rel=1e-5, abs=1e-5 * max(1.0, y[k]))
        slope = -float(mpmath.diff(lambda a, c=count, t=rate: log_p(c, t, a), log_alpha))
        assert float(own_slope[0, k, 0]) == pytest.approx(
            slope, rel=1e-4, abs=2e-6 * max(1.0, y[k])
        )
