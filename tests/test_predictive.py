"""What regressors say of new targets: mixtures of one distribution for each draw.

The last part has a Poisson regression, made of one likelihood, its family and one estimator.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp, pdtr, xlogy
from sklearn.base import clone

from skbayes_sgmcmc import BayesianMLPRegressor, SparseBayesianRegressor, to_torch
from skbayes_sgmcmc._draws import prediction
from skbayes_sgmcmc._draws.mixture import Mixture, quantile
from skbayes_sgmcmc.diagnostics import effective_sample_size
from skbayes_sgmcmc.estimators._network import NetworkRegressor
from skbayes_sgmcmc.estimators.mlp import _MLP
from skbayes_sgmcmc.inspection import LearningCurveDisplay
from skbayes_sgmcmc.models.likelihoods import Gaussian, LatentGaussian, Likelihood
from skbayes_sgmcmc.models.predictive import Normal, Predictive
from skbayes_sgmcmc.schedules import Polynomial

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

LEVELS = (1e-6, 0.001, 0.05, 0.3, 0.5, 0.77, 0.95, 1.0 - 1e-6)


@dataclass
class Counts(Predictive):
    """Poisson distributions of given rates."""

    rate: Any
    discrete = True

    def mean(self):
        return self.rate

    def variance(self):
        return self.rate

    def log_density(self, y):
        log_p = xlogy(y, self.rate) - self.rate - gammaln(np.maximum(y, 0.0) + 1.0)
        return np.where((y >= 0.0) & (y == np.floor(y)), log_p, -np.inf)

    def cdf(self, y):
        return np.where(y < 0.0, 0.0, pdtr(np.maximum(np.floor(y), 0.0), self.rate))

    def sample(self, rng):
        return rng.poisson(self.rate).astype(float)


class TightCounts(Counts):
    """The same with the narrowest of brackets: a bracket's end may be the quantile itself."""

    def bounds(self, q):
        exact = scipy.stats.poisson.ppf(q, self.rate)
        return exact, exact


class Poisson(Likelihood):
    """Counts whose log rates are the outputs."""

    def __init__(self, n_outputs):
        self.n_outputs = n_outputs

    def log_density(self, f, y, own):
        return (y * f - torch.exp(f) - torch.lgamma(y + 1.0)).sum(2)

    def slope(self, f, y, own):
        return f.exp_().sub_(y), None

    def predictive(self, f, own):
        return Counts(torch.exp(f))


class PoissonRegression(_MLP, NetworkRegressor):
    """Poisson regression, with the perceptron's parameters; its ``noise`` has no meaning here."""

    __init__ = BayesianMLPRegressor.__init__

    def _likelihood(self):
        return Poisson(self._n_targets)


# quantiles of mixtures ----------------------------------------------------------------------------


def components(kind, n_draws=50, n_rows=4, n_targets=2):
    """Means and sds, (draws, rows, targets) and (draws, 1, targets)."""
    rng = np.random.default_rng(0)
    loc = rng.standard_normal((n_draws, n_rows, n_targets))
    sd = rng.uniform(0.2, 2.0, (n_draws, 1, n_targets))
    if kind == "separated":
        loc += 1e6 * (np.arange(n_draws) % 3 - 1.0)[:, None, None]
    if kind == "tiny":
        sd = 10.0 ** rng.uniform(-9.0, 0.0, sd.shape)
    if kind == "narrow":
        loc *= 1e-8
    if kind == "far":
        loc += 1e3
    return loc, sd


def weights_of(kind, n_draws):
    if kind == "equal":
        return np.full(n_draws, 1.0 / n_draws)
    weights = np.geomspace(1.0, 1e-3, n_draws)
    weights[::7] = 0.0
    return weights / weights.sum()


def by_bisection(loc, sd, weights, q):
    """The q-quantile of one mixture of normals, by scipy; nothing is shared with the code."""

    def above(y):
        return float(np.dot(weights, scipy.stats.norm.cdf(y, loc, sd))) - q

    ends = scipy.stats.norm.ppf(q, loc, sd)
    low, high = ends.min() - sd.min(), ends.max() + sd.min()
    return brentq(above, low, high, xtol=1e-300, rtol=1e-15, maxiter=2000)


@pytest.mark.parametrize("weighting", ["equal", "weighted"])
@pytest.mark.parametrize("kind", ["plain", "separated", "tiny", "narrow", "far", "one draw"])
def test_quantiles_are_exact(kind, weighting):
    """Within 1e-6 of the smallest sd (the code stops at 1e-9), and of the rounding of y itself.

    A level where the cdf is flat, between components, has no quantile to that accuracy: what it
    has is a probability, which is right to 1e-13.
    """
    n_draws = 1 if kind == "one draw" else 50
    loc, sd = components(kind, n_draws)
    weights = weights_of("equal" if n_draws == 1 else weighting, n_draws)
    compared = 0
    for q in LEVELS:
        found = quantile(Normal(loc, sd), weights, q)
        for row, target in np.ndindex(found.shape):
            m, s, y = loc[:, row, target], sd[:, 0, target], found[row, target]
            below = np.dot(weights, scipy.stats.norm.cdf(y, m, s))
            density = np.dot(weights, scipy.stats.norm.pdf(y, m, s))
            rounding = 4.0 * np.spacing(np.abs(y))
            assert abs(below - q) < 1e-13 + 1e-9 * s.min() * density + rounding * density
            if density * s.min() > 1e-9:  # so that rounding of the cdf is 1e-7 of an sd at most
                compared += 1
                expected = by_bisection(m, s, weights, q)
                assert abs(y - expected) < 1e-6 * s.min() + rounding
    assert compared >= len(LEVELS) * found.size * (0.3 if kind == "tiny" else 0.7)


def test_the_middle_between_two_components():
    """Of two that are 10 sd apart it is where the density is 1.5e-6 of an sd: by symmetry."""
    loc = np.array([-5.0, 5.0])[:, None, None] + 2.0
    found = quantile(Normal(loc, np.ones((2, 1, 1))), np.array([0.5, 0.5]), 0.5)
    np.testing.assert_allclose(found, 2.0, atol=1e-9)


@pytest.mark.parametrize("weighting", ["equal", "weighted"])
@pytest.mark.parametrize("kind", ["plain", "separated", "tiny", "narrow", "far"])
def test_quantiles_take_few_evaluations(kind, weighting, monkeypatch):
    """Of the cdf, for 400 quantiles at once.

    Measured: 5 to 14 where the cdf is smooth, and at most 65 where components are far apart in
    units of their sds. Newton's steps that do not halve the error would take up to 200 there.
    """
    loc, sd = components(kind, n_rows=200)
    weights, calls, cdf = weights_of(weighting, 50), [], Normal.cdf
    monkeypatch.setattr(Normal, "cdf", lambda self, y: calls.append(1) or cdf(self, y))
    for q in (*LEVELS, 0.34, 0.68):
        quantile(Normal(loc, sd), weights, q)
        assert len(calls) <= (15 if kind in ("plain", "far", "narrow") else 80)
        calls.clear()


@pytest.mark.parametrize("kind", ["plain", "separated", "tiny", "narrow"])
def test_quantiles_never_fall_with_the_level(kind):
    """Also for levels that differ by rounding only, in any order."""
    loc, sd = components(kind)
    close = [q + 1e-16 * np.arange(-10, 11) for q in (0.34, 0.5, 0.68)]
    levels = np.concatenate([np.linspace(0.001, 0.999, 60), *close])
    levels = np.random.default_rng(1).permutation(levels)
    mixture = Mixture(lambda draws, rows: Normal(loc, sd), 50, 2, None)
    found = mixture.quantiles(np.zeros((4, 1)), levels)
    assert (np.diff(found[:, np.argsort(levels, kind="stable")], axis=1) >= 0.0).all()


@pytest.mark.parametrize("family", [Counts, TightCounts])
@pytest.mark.parametrize("rate", [1e-3, 0.7, 30.0, 1e7])
def test_quantiles_of_counts_are_the_least_with_their_probability(rate, family):
    """For rates with a spread of 30%: whole numbers n with F(n - 1) < q <= F(n)."""
    rng = np.random.default_rng(0)
    rates = rate * np.exp(0.3 * rng.standard_normal((40, 3, 1)))
    weights = weights_of("weighted", 40)
    for q in LEVELS:
        n = quantile(family(rates), weights, q)
        assert (n == np.floor(n)).all() and (n >= 0.0).all()

        def below(n):
            return np.tensordot(weights, scipy.stats.poisson.cdf(n, rates), axes=1)

        assert (below(n) >= q - 1e-12).all()
        assert (below(n - 1.0) < q).all()


@pytest.mark.parametrize("q", LEVELS)
def test_cantellis_bounds_hold(q):
    """A family that does not give its own quantiles is searched between them."""
    loc, sd = components("plain")
    low, high = Predictive.bounds(Normal(loc, sd), q)
    exact = scipy.stats.norm.ppf(q, loc, sd)
    assert (low <= exact).all() and (exact <= high).all()
    rates = np.array([0.01, 1.0, 50.0])
    low, high = Counts(rates).bounds(q)
    exact = scipy.stats.poisson.ppf(q, rates)
    assert (low <= exact).all() and (exact <= high + 1e-9).all()


# moments, densities, memory -----------------------------------------------------------------------


def slices_of(loc, sd):
    return lambda draws, rows: Normal(loc[draws][:, rows.ravel()], sd[draws])


@pytest.mark.parametrize("block", [None, 100])
@pytest.mark.parametrize("weighting", ["equal", "weighted"])
def test_moments_and_densities_are_sums_over_draws(weighting, block, monkeypatch):
    """By numpy and scipy; in blocks of 100 numbers as in one; rounding is what may differ."""
    loc, sd = components("far", n_rows=9)
    weights = weights_of(weighting, 50)
    y = loc[3] + 0.5
    if block:
        monkeypatch.setattr(prediction, "BLOCK_NUMBERS", block)
    rows = np.arange(9)[:, None]
    mixture = Mixture(slices_of(loc, sd), 50, 2, None if weighting == "equal" else weights)
    mean, variance = mixture.moments(rows)
    expected = np.tensordot(weights, loc, axes=1)
    np.testing.assert_allclose(mean, expected, rtol=1e-13)
    np.testing.assert_allclose(
        variance, np.tensordot(weights, (loc - expected) ** 2 + sd**2, axes=1), rtol=1e-12
    )
    np.testing.assert_array_equal(mixture.moments(rows, variance=False)[0], mean)
    log_p = scipy.stats.norm.logpdf(y, loc, sd).sum(axis=2)
    total = logsumexp(log_p, axis=0, b=weights[:, None])
    np.testing.assert_allclose(mixture.log_density(rows, y), total, rtol=1e-12)
    each = np.concatenate(list(mixture.log_densities(rows, y)), axis=1)
    np.testing.assert_allclose(each, log_p, rtol=1e-12)


def test_densities_that_underflow_have_their_logarithm():
    """At 100 sd each draw's density is e^-5000; logarithms are added, not densities."""
    loc, sd = np.array([0.0, 1.0])[:, None, None], np.full((2, 1, 1), 0.01)
    mixture = Mixture(lambda draws, rows: Normal(loc[draws], sd[draws]), 2, 1, None)
    found = mixture.log_density(np.zeros((1, 1)), np.array([[2.0]]))
    expected = scipy.stats.norm.logpdf(2.0, 1.0, 0.01) - np.log(2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_samples_follow_the_weights():
    """Of three draws without noise, as often as these say: five binomial sds."""
    loc, sd, weights = np.arange(3.0)[:, None, None], np.zeros((3, 1, 1)), np.array([0.7, 0.3, 0.0])
    mixture = Mixture(lambda draws, rows: Normal(loc[draws], sd[draws]), 3, 1, weights)
    samples = mixture.sample(np.zeros((1, 1)), 10_000, np.random.RandomState(0))
    shares = np.bincount(samples.astype(int).ravel(), minlength=3) / 10_000
    np.testing.assert_allclose(shares, weights, atol=5.0 * np.sqrt(0.21 / 10_000))
    assert shares[2] == 0.0


def everything(mixture, rows, y):
    mixture.moments(rows)
    mixture.log_density(rows, y)
    for _ in mixture.log_densities(rows, y):
        pass
    mixture.quantiles(rows, (0.1, 0.9))
    mixture.sample(rows, 50, np.random.RandomState(0))


def test_blocks_are_small(monkeypatch):
    """At most the limit, or one row of all draws."""
    loc, sd = components("plain", n_rows=30)
    sizes = []

    def predictive(draws, rows):
        part = slices_of(loc, sd)(draws, rows)
        sizes.append(part.loc.size)
        return part

    for limit in (1, 350):
        monkeypatch.setattr(prediction, "BLOCK_NUMBERS", limit)
        everything(Mixture(predictive, 50, 2, None), np.arange(30)[:, None], loc[0])
        assert max(sizes) <= max(limit, 50 * 2)


def test_memory_is_bounded(monkeypatch):
    """20,000 rows of 50 draws are 8 MB; with blocks of 0.13 MB at most a quarter of that is needed.

    That is 2 MB. Measured: 1.1 MB, mostly what is returned, and 58 MB without blocks.
    """
    n, limit = 20_000, 2**14
    slope, sd = np.linspace(1.0, 2.0, 50)[:, None, None], np.ones((50, 1, 1))
    x, y = np.linspace(0.0, 1.0, n)[:, None], np.zeros((n, 1))

    def predictive(draws, rows):
        return Normal(slope[draws] * rows, sd[draws])

    def peak():
        mixture = Mixture(predictive, 50, 1, None)
        tracemalloc.start()
        mixture.moments(x)
        mixture.log_density(x, y)
        for _ in mixture.log_densities(x, y):
            pass
        mixture.quantiles(x, (0.1, 0.9))
        mixture.sample(x, 2, np.random.RandomState(0))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    bound = 50 * n * 8 / 4
    assert peak() > 4 * bound  # in one block: so the bound can be missed
    monkeypatch.setattr(prediction, "BLOCK_NUMBERS", limit)
    assert peak() < bound


# likelihoods --------------------------------------------------------------------------------------

LIKELIHOODS = {
    "inferred": Gaussian(2, None),
    "given": Gaussian(2, np.array([0.1, 3.0])),
    "latent": LatentGaussian(2),
    "poisson": Poisson(2),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_likelihood_and_its_predictive_agree(name):
    """Densities alike, whose integral or sum is the cdf; slopes are the density's."""
    likelihood, rng = LIKELIHOODS[name], np.random.default_rng(0)
    own = {"inferred": rng.standard_normal((3, 2)), "latent": np.array([[0.5], [1.0], [2.0]])}
    own = torch.from_numpy(own.get(name, np.zeros((3, 0))))
    f = torch.from_numpy(rng.standard_normal((3, 4, 2)))
    y = torch.from_numpy(rng.poisson(2.0, (4, 2)).astype(float))
    one = likelihood.predictive(f, own).numpy()
    expected = likelihood.log_density(f, y[None], own).numpy()
    np.testing.assert_allclose(one.log_density(y.numpy()).sum(axis=2), expected, rtol=1e-12)
    f.requires_grad_(True)
    (gradient,) = torch.autograd.grad(-likelihood.log_density(f, y[None], own).sum(), f)
    slope, _ = likelihood.slope(f.detach().clone(), y[None], own)
    torch.testing.assert_close(slope, gradient)
    if one.discrete:
        jump = one.cdf(y.numpy()) - one.cdf(y.numpy() - 1.0)
        np.testing.assert_allclose(jump, np.exp(one.log_density(y.numpy())), rtol=1e-9, atol=1e-15)
    else:  # a central difference of step 1e-5, with errors of 1e-10
        slope = (one.cdf(y.numpy() + 1e-5) - one.cdf(y.numpy() - 1e-5)) / 2e-5
        np.testing.assert_allclose(slope, np.exp(one.log_density(y.numpy())), atol=1e-6)
    n = 40_000
    many = likelihood.predictive(f.detach().repeat(1, n, 1), own).numpy()
    samples = many.sample(np.random.RandomState(0)).reshape(3, n, 4, 2)
    mean, variance = one.mean(), np.broadcast_to(one.variance(), (3, 4, 2))
    assert (np.abs(samples.mean(1) - mean) < 5.0 * np.sqrt(variance / n)).all()
    kurtosis = scipy.stats.kurtosis(samples, axis=1, fisher=False)
    allowed = 5.0 * np.sqrt((kurtosis - 1.0) / n)
    assert (np.abs(samples.var(1) / variance - 1.0) < allowed).all()


@pytest.mark.parametrize("q", [0.01, 0.6])
def test_moved_distributions_are_those_of_the_moved_targets(q):
    """By scipy, with unlike units of two targets, of which one counts downwards from 1e3."""
    loc, sd = components("plain")
    center, scale = np.array([1e3, -2.0]), np.array([10.0, 0.01])
    one, other = Normal(loc, sd).moved(center, scale), scipy.stats.norm
    m, s = loc * scale + center, sd * scale
    y = m[0] + 0.3 * s[0]
    np.testing.assert_allclose(one.log_density(y), other.logpdf(y, m, s), rtol=1e-9)
    np.testing.assert_allclose(one.cdf(y), other.cdf(y, m, s), rtol=1e-9)
    np.testing.assert_allclose(one.mean(), m, rtol=1e-12)
    np.testing.assert_allclose(one.variance(), s**2, rtol=1e-12)
    for bound in one.bounds(q):
        np.testing.assert_allclose(bound, other.ppf(q, m, s), rtol=1e-9)
    np.testing.assert_allclose(one.length(), s, rtol=1e-12)
    assert Normal(loc, sd).moved(0.0, 1.0).loc is loc


# regressors ---------------------------------------------------------------------------------------

SHORT = {"n_chains": 2, "n_draws": 20, "burn_in": 200, "thinning": 2, "random_state": 0}


def problem(n=60):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, np.column_stack([X[:, 0], X[:, 1] ** 2]) + 0.3 * rng.standard_normal((n, 2))


REGRESSORS = {
    "mlp": BayesianMLPRegressor(hidden_layer_sizes=8, **SHORT),
    "noise": BayesianMLPRegressor(hidden_layer_sizes=8, noise=0.4, **SHORT),
    "weighted": BayesianMLPRegressor(
        hidden_layer_sizes=8, step_size=Polynomial(first=0.1, last=1e-4, gamma=1.0), **SHORT
    ),
    "sparse": SparseBayesianRegressor(**SHORT),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_log_density_is_that_of_the_mixture(name):
    """The weighted sum over draws of the joint density of both outputs, as arviz has them."""
    pytest.importorskip("arviz")
    X, y = problem()
    reg = clone(REGRESSORS[name]).fit(X, y)
    each = np.concatenate(list(reg._log_lik_blocks(X, y)), axis=1)
    weights = reg.posterior_.pooled_weights()
    assert (weights is not None) == (name == "weighted")
    weights = np.full(40, 1.0 / 40.0) if weights is None else weights
    expected = logsumexp(each, axis=0, b=weights[:, None])
    found = reg.predict_log_density(X, y)
    assert found.shape == (60,)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    curve = LearningCurveDisplay.from_estimator(reg, X, y)
    np.testing.assert_allclose(curve.values["nll"][-1], -found.mean(), rtol=1e-12)


@pytest.mark.parametrize("scale", [100.0, 1e-3])
def test_a_density_is_per_unit_of_the_target(scale):
    """In units a hundred times smaller it is a hundred times smaller, for each output."""
    X, y = problem()
    plain = clone(REGRESSORS["mlp"]).fit(X, y)
    other = clone(REGRESSORS["mlp"]).fit(X, scale * y + 7.0)
    np.testing.assert_allclose(
        other.predict_log_density(X, scale * y + 7.0),
        plain.predict_log_density(X, y) - 2.0 * np.log(scale),
        atol=1e-6,
    )


def test_a_density_integrates_to_one():
    """Over y of one output, by the trapezoidal rule, which is exact to rounding for such."""
    X, y = problem()
    reg = clone(REGRESSORS["mlp"]).fit(X, 5.0 * y[:, 0])
    mean, sd = reg.predict(X[:3], return_std=True)
    for k in range(3):
        grid = mean[k] + 12.0 * sd[k] * np.linspace(-1.0, 1.0, 1001)
        density = np.exp(reg.predict_log_density(np.tile(X[k], (1001, 1)), grid))
        assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)


def test_log_density_refuses_other_targets():
    X, y = problem()
    reg = clone(REGRESSORS["mlp"]).fit(X, y)
    for bad in (y[:, 0], y[:-1], y[:, :1]):
        with pytest.raises(
            ValueError, match=r"give the targets of the rows, an array of shape \(60, 2\)"
        ):
            reg.predict_log_density(X, bad)
    np.testing.assert_array_equal(
        reg.predict_log_density(X.tolist(), y.tolist()), reg.predict_log_density(X, y)
    )


# a Poisson regression -----------------------------------------------------------------------------


def counts(n=100):
    """Log rate 0.5 + 0.8 x."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n)
    return x[:, None], rng.poisson(np.exp(0.5 + 0.8 * x)).astype(float)


#: one weight and the intercept; the sampler is SGLD, whose own step a Poisson regression needs
LINEAR = {
    "hidden_layer_sizes": (),
    "prior_scale": 1.0,
    "standardize": False,
    "sampler": "sgld",
    "random_state": 0,
}
#: full batches; steps that are small to 1 / curvature, and those that "auto" has for networks. The
#: variance is too large by half the step times the curvature, which is 1 to 3: the sd by 1%
STEPS = {
    "numeric": {"step_size": 0.02, "n_draws": 500, "burn_in": 2500, "thinning": 25},
    "auto": {},
}


@pytest.fixture(scope="module")
def poisson():
    return PoissonRegression(batch_size=100, **LINEAR, **STEPS["numeric"]).fit(*counts())


def by_quadrature(X, y):
    """Means and sds of (slope, intercept) with priors N(0, 1), on a grid."""
    slope, intercept = np.meshgrid(np.linspace(-0.2, 1.8, 251), np.linspace(-0.8, 1.6, 251))
    f = slope[..., None] * X[:, 0] + intercept[..., None]
    log_p = (y * f - np.exp(f)).sum(axis=2) - 0.5 * (slope**2 + intercept**2)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    assert max(p[0].sum(), p[-1].sum(), p[:, 0].sum(), p[:, -1].sum()) < 1e-9  # the grid is wide
    means = [(p * v).sum() for v in (slope, intercept)]
    sds = [np.sqrt((p * v**2).sum() - m**2) for v, m in zip((slope, intercept), means, strict=True)]
    return means, sds


@pytest.mark.parametrize("steps", STEPS)
def test_its_posterior_is_that_of_quadrature(steps):
    """Means within four MCSE sd / sqrt(ESS), sds within four of 1 / sqrt(2 ESS).

    And a bias of 1% of the sd in both, for the step. With effective sample sizes of about 200
    ("auto") or more that is 0.3 sd and 20%, or less.
    """
    reg = PoissonRegression(batch_size=100, **LINEAR, **STEPS[steps]).fit(*counts())
    for name, mean, sd in zip(("weight_1", "bias_1"), *by_quadrature(*counts()), strict=True):
        draws = reg.posterior_.pooled(name).ravel()
        n = float(effective_sample_size(reg.posterior_, name).ravel()[0])
        assert n > 100.0
        assert abs(draws.mean() - mean) < (4.0 / np.sqrt(n) + 0.01) * sd
        assert abs(draws.std() / sd - 1.0) < 4.0 / np.sqrt(2.0 * n) + 0.01


def rates_of(reg, X):
    """(draws, rows), from the named draws."""
    blocks = reg.sample_posterior()
    return np.exp(X[:, 0] * blocks["weight_1"][:, 0] + blocks["bias_1"])


def test_its_predictions_are_sums_over_draws(poisson):
    """Mean and sd of the mixture; its quantiles, whole numbers; its log probabilities."""
    X, y = counts()
    rates = rates_of(poisson, X)
    mean, sd = poisson.predict(X, return_std=True)
    np.testing.assert_allclose(mean, rates.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sd**2, rates.mean(axis=0) + rates.var(axis=0), rtol=1e-12)
    log_p = scipy.stats.poisson.logpmf(y, rates)
    expected = logsumexp(log_p, axis=0) - np.log(len(rates))
    np.testing.assert_allclose(poisson.predict_log_density(X, y), expected, rtol=1e-10)
    assert poisson.predict_log_density(X[:1], [0.5])[0] == -np.inf
    table = scipy.stats.poisson.cdf(np.arange(50)[:, None, None], rates[:, :10]).mean(axis=1)
    assert table[-1].min() > 0.999
    found = poisson.predict_quantiles(X[:10], (0.01, 0.5, 0.95))
    for k, q in enumerate((0.01, 0.5, 0.95)):
        np.testing.assert_array_equal(found[:, k], (table < q).sum(axis=0))
    low, high = poisson.predict_interval(X, 0.9).T
    assert np.mean((low <= y) & (y <= high)) > 0.9 - 4.0 * np.sqrt(0.09 / 100)


def test_its_samples_are_counts_with_the_predicted_moments(poisson):
    """20,000 a row, within 5 standard errors; and their shares are the probabilities."""
    X, n = counts()[0][:10], 20_000
    samples = poisson.sample_y(X, n, random_state=0)
    mean, sd = poisson.predict(X, return_std=True)
    assert samples.shape == (10, n) and (samples == np.floor(samples)).all()
    assert (np.abs(samples.mean(1) - mean) < 5.0 * sd / np.sqrt(n)).all()
    kurtosis = scipy.stats.kurtosis(samples, axis=1, fisher=False)
    assert (np.abs(samples.std(1) / sd - 1.0) < 5.0 * np.sqrt((kurtosis - 1.0) / (4.0 * n))).all()
    for count in range(4):
        p = np.exp(poisson.predict_log_density(X, np.full(10, count)))
        share = np.mean(samples == count, axis=1)
        assert (np.abs(share - p) < 5.0 * np.sqrt(p * (1.0 - p) / n) + 1e-4).all()


def test_the_rest_of_the_package_takes_it(poisson):
    """Curves, log likelihoods for arviz and torch modules ask the likelihood only."""
    X, y = counts()
    rates = rates_of(poisson, X)
    curve = LearningCurveDisplay.from_estimator(poisson, X, y)
    nll = -poisson.predict_log_density(X, y).mean()
    np.testing.assert_allclose(curve.values["nll"][-1], nll, rtol=1e-9)
    each = np.concatenate(list(poisson._log_lik_blocks(X, y)), axis=1)
    np.testing.assert_allclose(each, scipy.stats.poisson.logpmf(y, rates), rtol=1e-9)
    mean, sd = to_torch(poisson)(torch.tensor(X, dtype=torch.float32))
    np.testing.assert_allclose(mean, rates.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(sd, poisson.predict(X, return_std=True)[1], rtol=1e-4)
