"""Times that may be censored: densities, probabilities of intervals, predictions, bad bounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats
import torch
from _cases import cases
from _links import section_of
from sklearn.base import clone

from skbayes_sgmcmc import BayesianGLMRegressor
from skbayes_sgmcmc.inspection import LearningCurve, LearningCurveDisplay, PredictiveCheckDisplay
from skbayes_sgmcmc.models.likelihoods.survival import LogNormal, Weibull

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "random_state": 0}
#: (lower, upper), where an upper bound of 0 stands for infinity
BOUNDS = np.array([(1.3, 1.3), (0.4, 0.0), (0.0, 2.0), (1.0, 1.5), (9.0, 0.0), (7.0, 7.001)])


def law(name, location, sigma):
    """Times, by scipy."""
    if name == "log_normal":
        return scipy.stats.lognorm(sigma, scale=np.exp(location))
    return scipy.stats.weibull_min(1.0 / sigma, scale=np.exp(location))


def kind(name):
    return {"log_normal": LogNormal, "weibull": Weibull}[name](np.array([2.0]))


def outputs(n):
    rng = np.random.default_rng(0)
    f, own = rng.standard_normal((3, n, 1)), np.array([[-2.0], [0.1], [1.2]])
    return torch.from_numpy(f), torch.from_numpy(own)


@cases("name", ["log_normal", "weibull"])
def test_densities_and_probabilities_are_those_of_scipy(name):
    """Of times, and of intervals by differences of distribution functions, to a relative 1e-8."""
    likelihood, (f, own) = kind(name), outputs(len(BOUNDS))
    sigma = np.exp(own.numpy())
    one = law(name, f.numpy()[..., 0] + np.log(2.0), sigma)
    low, high = BOUNDS.T
    with np.errstate(divide="ignore"):
        inside = np.where(high > 0.0, one.cdf(np.where(high > 0.0, high, 1.0)), 1.0)
        inside = np.where(high == 0.0, one.sf(low), inside - one.cdf(low))
        expected = np.where(low == high, one.logpdf(low), np.log(inside))
    found = likelihood.log_density(f, torch.from_numpy(BOUNDS), own).numpy()
    near = inside > 1e-8  # beyond, scipy's differences have lost their digits
    np.testing.assert_allclose(found[near], expected[near], rtol=1e-8, atol=1e-10)
    predictive = likelihood.predictive(f, own).numpy()
    np.testing.assert_allclose(predictive.log_density(BOUNDS)[..., 0], found)
    for y in (-1.0, 0.0, 0.3, 2.0, 1e3):
        times = np.full((len(BOUNDS), 1), y)
        np.testing.assert_allclose(predictive.cdf(times)[..., 0], one.cdf(y), atol=1e-12)
        density = one.logpdf(y) if y > 0.0 else np.full_like(found, -np.inf)
        np.testing.assert_allclose(predictive.log_density(times)[..., 0], density, rtol=1e-9)
    np.testing.assert_allclose(predictive.mean()[..., 0], one.mean(), rtol=1e-9)
    np.testing.assert_allclose(predictive.variance()[..., 0], one.var(), rtol=1e-7)
    for q in (0.01, 0.5, 0.99):
        np.testing.assert_allclose(predictive.bounds(q)[0][..., 0], one.ppf(q), rtol=1e-9)


@cases("shift", [-1.0, 0.0, 2.0])
@cases("name", ["log_normal", "weibull"])
def test_slopes_of_censored_times_are_those_of_the_density(name, shift):
    """Against autograd, and where nothing is lost in differences; shifted sds of many sizes.

    To a relative 1e-9. Differences of probabilities that are nearly equal lose digits.
    """
    likelihood, (f, own) = kind(name), outputs(len(BOUNDS))
    y = torch.from_numpy(BOUNDS)
    own = (own + shift).requires_grad_(True)
    f.requires_grad_(True)
    total = -likelihood.log_density(f, y, own).sum()
    by_f, by_own = torch.autograd.grad(total, (f, own))
    slope, own_slope = likelihood.slope(f.detach().clone(), y, own.detach())
    close = {"rtol": 1e-8, "atol": 1e-9 * float(by_f.abs().max())}
    torch.testing.assert_close(slope, by_f, **close)
    torch.testing.assert_close(own_slope.sum(1), by_own, rtol=1e-8, atol=close["atol"])


@cases("name", ["log_normal", "weibull"])
def test_probabilities_far_out_are_exact(name):
    """Intervals at 12 sds, where distribution functions are 0 or 1, against quadrature."""
    likelihood, own = kind(name), torch.zeros(1, 1, dtype=torch.float64)
    ends = (-12.0, 12.0) if name == "log_normal" else (-60.0, 3.5)
    for z in ends:
        low, high = 2.0 * np.exp(z), 2.0 * np.exp(z + 0.5)
        f = torch.zeros(1, 1, 1, dtype=torch.float64)
        pair = torch.tensor([[low, high]], dtype=torch.float64)
        times = np.linspace(low, high, 20_001)
        logs = law(name, np.log(2.0), 1.0).logpdf(times)
        weight = np.log(scipy.integrate.simpson(np.exp(logs - logs.max()), x=times)) + logs.max()
        found = likelihood.log_density(f, pair, own).item()
        assert found == pytest.approx(weight, rel=1e-7)


def times(n=60):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    time = np.exp(1.0 + 0.5 * X[:, 0] + 0.5 * rng.standard_normal(n))
    end = rng.exponential(6.0, n)
    bounds = np.column_stack([np.minimum(time, end), np.where(time <= end, time, np.inf)])
    bounds[::7] = [(np.floor(t), np.ceil(t)) for t in time[::7]]
    return X, time, bounds


@pytest.mark.parametrize("name", ["log_normal", "weibull"])
def test_every_prediction_of_times(name):
    X, time, bounds = times()
    reg = BayesianGLMRegressor(likelihood=name, **TINY).fit(X, bounds)
    few = X[:4]
    mean, sd = reg.predict(few, return_std=True)
    np.testing.assert_allclose(reg.predict_uncertainty(few).total, sd**2)
    low, middle, high = reg.predict_quantiles(few).T
    assert (low > 0.0).all() and (low < middle).all() and (middle < high).all()
    survival = reg.predict_survival(few, [0.0, *middle])
    assert survival.shape == (4, 5)
    np.testing.assert_allclose(survival[:, 0], 1.0)
    np.testing.assert_allclose(np.diag(survival[:, 1:]), 0.5, atol=1e-6)
    np.testing.assert_array_equal(reg.predict_survival(few, 2.0), reg.predict_survival(few, [2.0]))
    later = np.exp(reg.predict_log_density(few, np.column_stack([middle, np.full(4, np.inf)])))
    np.testing.assert_allclose(later, 0.5, atol=1e-6)
    assert np.isfinite(reg.predict_log_density(few, time[:4])).all()
    assert (reg.sample_y(few, 5, random_state=0) > 0.0).all()
    assert reg.predict_interval(few, kind="mean").shape == (4, 2)
    assert np.isfinite(reg.score(X, time))
    exact = BayesianGLMRegressor(likelihood=name, **TINY).fit(X, time)
    pairs = BayesianGLMRegressor(likelihood=name, **TINY).fit(X, np.column_stack([time, time]))
    frame = pd.DataFrame({"lower": time, "upper": time})
    tables = BayesianGLMRegressor(likelihood=name, **TINY).fit(X, frame)
    for other in (pairs, tables):
        np.testing.assert_array_equal(other.posterior_["coef"], exact.posterior_["coef"])
    assert np.isfinite(mean).all()


def test_times_in_streams_in_other_units_and_with_weights():
    """A unit of time only moves the intercept; a row of weight two is two rows."""
    X, _, bounds = times()
    kind = {"likelihood": "weibull", **TINY}
    days = BayesianGLMRegressor(**kind).fit(X, bounds)
    years = BayesianGLMRegressor(**kind).fit(X, bounds / 365.0)
    np.testing.assert_allclose(years.posterior_["coef"], days.posterior_["coef"], rtol=1e-6)
    assert days.intercept_ - years.intercept_ == pytest.approx(np.log(365.0))
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    rows = np.r_[np.arange(60), np.arange(20)]
    once = BayesianGLMRegressor(**kind).fit(X, bounds, weight)
    twice = BayesianGLMRegressor(**kind).fit(X[rows], bounds[rows])
    np.testing.assert_allclose(once.posterior_["coef"], twice.posterior_["coef"], rtol=1e-6)
    stream = BayesianGLMRegressor(**kind)
    for part in range(2):
        stream.partial_fit(X[part::2], bounds[part::2])
    assert 0.2 < stream.coef_[0] < 0.9


INF = np.inf
#: bounds, what an error says, and bounds that it recommends instead
REFUSED = {
    "crossed": ((5.0, 3.0), r"y with bounds in the wrong order, \(5, 3\) in row 2", (3.0, 5.0)),
    "negative": ((-1.0, 2.0), r"y with a bound that is no time, \(-1, 2\) in row 2", (0.0, 2.0)),
    "zero": ((0.0, 0.0), r"y with a bound that is no time, \(0, 0\) in row 2", (0.0, 1e-3)),
    "infinite": ((INF, INF), r"y with a bound that is no time, \(inf, inf\) in row 2", (9.0, INF)),
    "unknown": ((0.0, INF), r"y with bounds that say nothing, \(0, inf\) in row 2", (0.0, 9.0)),
    "missing": ((2.0, np.nan), r"y with a missing bound, \(2, nan\) in row 2", (2.0, INF)),
}


@cases("name", REFUSED)
def test_bad_bounds_are_refused_by_name_and_row(name):
    """The error names the row and both bounds; what it recommends works."""
    X, _, bounds = times(20)
    bad, message, good = REFUSED[name]
    reg = BayesianGLMRegressor(likelihood="weibull", **TINY)
    given = bounds.copy()
    given[2] = bad
    with pytest.raises(ValueError, match=message) as caught:
        reg.fit(X, given)
    assert section_of(caught.value) == "bounds-of-times-are-not-allowed"
    given[2] = good
    reg.fit(X, given)
    with pytest.raises(ValueError, match=message.replace("row 2", "row 0")):
        reg.predict_log_density(X[:1], np.array([bad]))


@cases(
    "y, message",
    [
        (np.column_stack([np.ones(20), np.full(20, INF)]), "y with no upper bound in every row"),
        (np.column_stack([np.zeros(20), np.ones(20)]), "y with no lower bound in every row"),
        (np.ones((20, 3)), "y with 3 columns"),
        (-np.ones(20), "y with a bound that is no time, -1 in row 0"),
        (["late"] * 20, "y"),
        (np.ones(19), "inconsistent|rows"),
    ],
)
def test_times_that_say_too_little_or_are_no_times(y, message):
    X = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(ValueError, match=message):
        BayesianGLMRegressor(likelihood="log_normal", **TINY).fit(X, y)


def test_learning_curves_of_bounds_have_the_nll_alone():
    """It ends at the score of all draws, to rounding; with times themselves there is the RMSE."""
    pytest.importorskip("sklearn.callback")
    X, y, bounds = times()
    curve = LearningCurve(X, bounds)
    reg = BayesianGLMRegressor(likelihood="weibull", **TINY).set_callbacks(curve).fit(X, bounds)
    assert list(curve.values) == ["nll"]
    nll = -reg.predict_log_density(X, bounds).mean()
    np.testing.assert_allclose(curve.values["nll"][-1], nll, rtol=1e-10)
    known = LearningCurveDisplay.from_estimator(reg, X, y).values
    rmse = np.sqrt(np.mean((y - reg.predict(X)) ** 2))
    np.testing.assert_allclose(known["rmse"][-1], rmse, rtol=1e-10)


def test_bounds_may_be_a_pair_of_arrays():
    """``y = (lower, upper)``; two rows of bounds are still rows."""
    X, _, bounds = times(30)
    reg = BayesianGLMRegressor(likelihood="weibull", **TINY).fit(X, bounds)
    pair = clone(reg).fit(X, (bounds[:, 0], pd.Series(bounds[:, 1])))
    assert np.array_equal(pair.predict(X), reg.predict(X))
    found = pair.predict_log_density(X, (*bounds.T,))
    assert np.array_equal(found, reg.predict_log_density(X, bounds))
    with pytest.raises(ValueError, match="y with 30 lower and 29 upper bounds is not allowed"):
        pair.fit(X, (bounds[:, 0], bounds[1:, 1]))
    two = tuple(map(tuple, bounds[:2]))
    found = reg.predict_log_density(X[:2], two)
    assert np.array_equal(found, reg.predict_log_density(X[:2], bounds[:2]))


def test_arviz_takes_a_pair_of_arrays():
    pytest.importorskip("arviz")
    X, _, bounds = times(30)
    reg = BayesianGLMRegressor(likelihood="weibull", **TINY).fit(X, bounds)
    both = [reg.to_arviz(X, given) for given in (bounds, tuple(bounds.T))]
    for group in ("observed_data", "log_likelihood"):
        one, other = (np.asarray(found[group]["y"]) for found in both)
        assert np.array_equal(one, other)


def test_scores_need_times_themselves():
    X, _, bounds = times(30)
    reg = BayesianGLMRegressor(likelihood="log_normal", **TINY).fit(X, bounds)
    for given in (bounds, tuple(bounds.T)):  # infinite times were called an error of the rows
        with pytest.raises(ValueError, match=r"score.*predict_log_density\(X, y\)"):
            reg.score(X, given)
    assert np.isfinite(reg.predict_log_density(X, bounds).mean())
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="y with bounds is not allowed in a figure"):
        PredictiveCheckDisplay.from_estimator(reg, X, bounds)
    known = bounds[:, 0] == bounds[:, 1]
    PredictiveCheckDisplay.from_estimator(reg, X[known], bounds[known])
    with pytest.raises(ValueError, match="y with 3 rows"):
        reg.predict_log_density(X, bounds[:3])


@cases(
    "bad, message",
    [
        ([[1.0, 2.0], [3.0, 4.0]], r"times of shape \(2, 2\) is not allowed"),
        ([1.0, INF], "times contains infinity: the value of row 1"),
        (["late"], "times is not allowed: item 0 has 'late'"),
    ],
)
def test_bad_times_of_survival_are_refused_by_their_name(bad, message):
    X, time, _ = times(20)
    reg = BayesianGLMRegressor(likelihood="weibull", **TINY).fit(X, time)
    with pytest.raises(ValueError, match=message):
        reg.predict_survival(X[:2], bad)


@cases("name, bounds, refused", [
    ("log_normal", [(3.0, 3.0)], True),
    ("weibull", [(3.0, 3.0), (3.0, np.inf), (0.0, 4.0)], True),  # intervals that hold the time
    ("weibull", [(3.0, 3.0), (3.1, np.inf)], False),
    ("gamma", [(3.0,)], True),
    ("tweedie", [(3.0,)], True),
    ("tweedie", [(3.0,), (0.0,)], False),  # zeros need a dispersion
])  # fmt: skip
def test_times_or_amounts_that_are_all_alike_leave_no_noise(name, bounds, refused):
    """The density of a target that is met exactly grows without bound as the noise vanishes."""
    y = np.resize(np.array(bounds), (60, len(bounds[0])))
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = BayesianGLMRegressor(likelihood=name, **TINY)
    y = y if y.shape[1] == 2 else y[:, 0]
    if not refused:
        assert np.isfinite(model.fit(X, y).predict(X)).all()
        return
    with pytest.raises(ValueError, match=r"y with the value 3 in .* leaves no noise to learn"):
        model.fit(X, y)


@pytest.mark.statistical
def test_few_rows_say_little_of_weibull_times():
    """The density falls like exp(-exp(z)): averaged far away, its curvature says nothing.

    The exact posterior, by quadrature, has -0.30 +- 0.89 for log sigma and 7.2 +- 12.1 for the
    coefficient. Both have long tails; sds were below 1e-6.
    """
    reg = BayesianGLMRegressor(likelihood="weibull", prior_scale=20.0, random_state=0)
    reg.fit([[0.0], [0.1]], [1.0, 3.0])
    log_sigma, coef = reg.posterior_["log_sigma"], reg.posterior_["coef"]
    assert abs(np.median(log_sigma) + 0.3) < 0.3
    assert 0.7 < log_sigma.std() < 1.4
    assert abs(np.median(coef) - 7.2) < 3.0
    assert 8.0 < coef.std() < 24.0
