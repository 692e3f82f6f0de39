"""What regressors say of new targets: mixtures of one distribution for each draw."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.stats
from _cases import cases
from scipy.optimize import brentq
from scipy.special import logsumexp
from sklearn.base import clone

from skbayes_sgmcmc import BayesianMLPRegressor, SparseBayesianRegressor
from skbayes_sgmcmc._draws.mixture import Mixture, quantile
from skbayes_sgmcmc.inspection import LearningCurveDisplay
from skbayes_sgmcmc.models.likelihoods.predictive import (
    NegativeBinomial,
    Normal,
    Poisson,
    Predictive,
    StudentT,
)
from skbayes_sgmcmc.schedules import Polynomial

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

LEVELS = (1e-6, 0.001, 0.05, 0.3, 0.5, 0.77, 0.95, 1.0 - 1e-6)


class TightCounts(Poisson):
    """With the narrowest of brackets: a bracket's end may be the quantile itself."""

    def bounds(self, q):
        exact = scipy.stats.poisson.ppf(q, self.rate)
        return exact, exact


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


@cases("weighting", ["equal", "weighted"])
@cases("kind", ["plain", "separated", "tiny", "narrow", "far", "one draw"])
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


@cases("weighting", ["equal", "weighted"])
@cases("kind", ["plain", "separated", "tiny", "narrow", "far"])
def test_quantiles_take_few_evaluations(kind, weighting, monkeypatch):
    """Of the cdf, for 120 quantiles at once.

    Measured: 5 to 14 where the cdf is smooth, and at most 65 where components are far apart in
    units of their sds. Newton's steps that do not halve the error would take up to 200 there.
    """
    loc, sd = components(kind, n_rows=60)
    weights, calls, cdf = weights_of(weighting, 50), [], Normal.cdf
    monkeypatch.setattr(Normal, "cdf", lambda self, y: calls.append(1) or cdf(self, y))
    for q in (*LEVELS, 0.34, 0.68):
        quantile(Normal(loc, sd), weights, q)
        assert len(calls) <= (15 if kind in ("plain", "far", "narrow") else 80)
        calls.clear()


@cases("kind", ["plain", "separated", "tiny", "narrow"])
def test_quantiles_never_fall_with_the_level(kind):
    """Also for levels that differ by rounding only, in any order."""
    loc, sd = components(kind)
    close = [q + 1e-16 * np.arange(-10, 11) for q in (0.34, 0.5, 0.68)]
    levels = np.concatenate([np.linspace(0.001, 0.999, 60), *close])
    levels = np.random.default_rng(1).permutation(levels)
    mixture = Mixture(lambda draws, rows: Normal(loc, sd), 50, 2, None)
    found = mixture.quantiles(np.zeros((4, 1)), levels)
    assert (np.diff(found[:, np.argsort(levels, kind="stable")], axis=1) >= 0.0).all()


def dispersions(n_draws=40):
    """(draws, 1, 1), from nearly Poisson to more variance than of an exponential distribution."""
    return np.geomspace(1e-3, 3.0, n_draws)[:, None, None]


#: families of counts with their cdfs by scipy, given the rates
COUNTS = {
    "poisson": (Poisson, scipy.stats.poisson.cdf),
    "tight": (TightCounts, scipy.stats.poisson.cdf),
    "negative binomial": (
        lambda rates: NegativeBinomial(rates, dispersions()),
        lambda n, rates: scipy.stats.nbinom.cdf(
            n, 1.0 / dispersions(), 1.0 / (1.0 + dispersions() * rates)
        ),
    ),
}


@cases("name", COUNTS)
@cases("rate", [1e-3, 0.7, 30.0, 1e7])
def test_quantiles_of_counts_are_the_least_with_their_probability(rate, name):
    """For rates with a spread of 30%: whole numbers n with F(n - 1) < q <= F(n)."""
    rng = np.random.default_rng(0)
    rates = rate * np.exp(0.3 * rng.standard_normal((40, 3, 1)))
    weights, (family, cdf) = weights_of("weighted", 40), COUNTS[name]
    for q in LEVELS:
        n = quantile(family(rates), weights, q)
        assert (n == np.floor(n)).all() and (n >= 0.0).all()

        def below(n):
            return np.tensordot(weights, cdf(n, rates), axes=1)

        assert (below(n) >= q - 1e-12).all()
        assert (below(n - 1.0) < q).all()


@pytest.mark.parametrize("name", COUNTS)
def test_quantiles_of_counts_take_few_evaluations(name, monkeypatch):
    """Of the cdf, for 100 rows at once; halving the bracket alone takes 11 to 14.

    Measured: 4 to 8. Quantiles far out in the tails take more.
    """
    rng = np.random.default_rng(0)
    rates = rng.uniform(1.0, 800.0, (1, 100, 1)) * np.exp(0.1 * rng.standard_normal((40, 100, 1)))
    components, weights = COUNTS[name][0](rates), weights_of("equal", 40)
    calls, kind = [], type(components)
    cdf = kind.cdf
    monkeypatch.setattr(kind, "cdf", lambda self, y: calls.append(1) or cdf(self, y))
    for q in (0.05, 0.3, 0.5, 0.77, 0.95):
        quantile(components, weights, q)
        assert len(calls) <= 9
        calls.clear()


@cases("q", LEVELS)
def test_cantellis_bounds_hold(q):
    """A family that does not give its own quantiles is searched between them."""
    loc, sd = components("plain")
    low, high = Predictive.bounds(Normal(loc, sd), q)
    exact = scipy.stats.norm.ppf(q, loc, sd)
    assert (low <= exact).all() and (exact <= high).all()
    rates = np.array([0.01, 1.0, 50.0])
    low, high = Poisson(rates).bounds(q)
    exact = scipy.stats.poisson.ppf(q, rates)
    assert (low <= exact).all() and (exact <= high + 1e-9).all()


@cases("weighting", ["equal", "weighted"])
@cases("df", [0.7, 2.0, 2.001, 4.0, 1e6])
def test_quantiles_of_heavy_tails_are_exact(df, weighting):
    """Within 1e-6 of the smallest scale, or of the quantile, by scipy's root finder.

    With up to two degrees of freedom there is no variance that could bound a quantile: the 1e-6
    quantile of 0.7 of them is 1e8 scales from the centre.
    """
    loc, scale = components("plain")
    weights = weights_of(weighting, 50)
    dfs = df * np.linspace(1.0, 1.5, 50)[:, None, None]
    for q in LEVELS:
        found = quantile(StudentT(loc, scale, dfs), weights, q)
        for row, target in np.ndindex(found.shape):
            given = dfs[:, 0, 0], loc[:, row, target], scale[:, 0, target]
            ends = scipy.stats.t.ppf(q, *given)

            def above(y, given=given, q=q):
                return float(np.dot(weights, scipy.stats.t.cdf(y, *given))) - q

            expected = brentq(above, ends.min() - 1.0, ends.max() + 1.0, xtol=1e-12, rtol=1e-14)
            np.testing.assert_allclose(
                found[row, target], expected, rtol=1e-6, atol=1e-6 * scale.min()
            )


# moments, densities, memory -----------------------------------------------------------------------


def slices_of(loc, sd):
    return lambda draws, rows: Normal(loc[draws][:, rows.ravel()], sd[draws])


@cases("block", [None, 100])
@cases("weighting", ["equal", "weighted"])
def test_moments_and_densities_are_sums_over_draws(weighting, block, limits):
    """By numpy and scipy; in blocks of 100 numbers as in one; rounding is what may differ."""
    loc, sd = components("far", n_rows=9)
    weights = weights_of(weighting, 50)
    y = loc[3] + 0.5
    if block:
        limits(block_numbers=block)
    rows = np.arange(9)[:, None]
    mixture = Mixture(slices_of(loc, sd), 50, 2, None if weighting == "equal" else weights)
    mean, within, between = mixture.moments(rows)
    expected = np.tensordot(weights, loc, axes=1)
    np.testing.assert_allclose(mean, expected, rtol=1e-13)
    np.testing.assert_allclose(
        within + between, np.tensordot(weights, (loc - expected) ** 2 + sd**2, axes=1), rtol=1e-12
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


@pytest.mark.parametrize("block", [None, 3])
def test_a_density_beyond_all_numbers_is_an_error_that_names_the_row(block, limits):
    """1e200 is a possible target, and 1e400 no number: no density of zero is given out instead."""
    loc, sd = np.zeros((4, 2, 1)), np.ones((4, 1, 1))
    if block:
        limits(block_numbers=block)
    mixture = Mixture(slices_of(loc, sd), 4, 1, None)
    rows, y = np.arange(2)[:, None], np.array([[0.0], [1e200]])
    for found in (mixture.log_density, lambda *given: list(mixture.log_densities(*given))):
        with pytest.raises(ValueError, match="the target 1e\\+200 of row 1 is so far"):
            found(rows, y)


@pytest.mark.statistical
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


def test_blocks_are_small(limits):
    """At most the limit, or one row of all draws."""
    loc, sd = components("plain", n_rows=30)
    sizes = []

    def predictive(draws, rows):
        part = slices_of(loc, sd)(draws, rows)
        sizes.append(part.loc.size)
        return part

    for limit in (1, 350):
        limits(block_numbers=limit)
        everything(Mixture(predictive, 50, 2, None), np.arange(30)[:, None], loc[0])
        assert max(sizes) <= max(limit, 50 * 2)


def test_memory_is_bounded(limits):
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
    limits(block_numbers=limit)
    assert peak() < bound


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
SHORT["init"] = "random"  # without a descent


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


@cases("name", REGRESSORS)
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


def test_a_density_is_per_unit_of_the_target():
    """In units a hundred times smaller it is a hundred times smaller, for each output."""
    X, y = problem()
    plain = clone(REGRESSORS["mlp"]).fit(X, y).predict_log_density(X, y)
    for scale in (100.0, 1e-3):
        other = clone(REGRESSORS["mlp"]).fit(X, scale * y + 7.0)
        found = other.predict_log_density(X, scale * y + 7.0)
        np.testing.assert_allclose(found, plain - 2.0 * np.log(scale), atol=1e-6)


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
