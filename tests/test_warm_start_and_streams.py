"""Fits that go on: ``warm_start`` and streams fed to ``partial_fit``.

How right the posterior of a stream is, was measured over data sets of 5 and 20 features, chunks of
100 and 1000 rows and two samplers; the bounds here have room for another seed, not for another
algorithm: they failed by factors before the step size fell with the number of rows seen.
"""

from __future__ import annotations

import copy
import re
import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from _cases import cases
from sklearn.base import clone

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianLogisticRegression, SamplingWarning
from skbayes_sgmcmc.diagnostics import r_hat
from skbayes_sgmcmc.models._past import Past
from skbayes_sgmcmc.samplers import SGHMC
from skbayes_sgmcmc.schedules import Polynomial

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

ROUNDING = 1e-8
SMALL = {"n_draws": 50, "n_chains": 2, "random_state": 0}


def small(**parameters):
    return BayesianLogisticRegression(**(SMALL | parameters))


# warm starts --------------------------------------------------------------------------------------


def test_warm_start_goes_on(binary, limits):
    """Two fits of n draws are one of 2n: the chains and their random streams go on.

    Runs must end where a portion of random numbers does, since torch fills the last numbers of a
    portion differently. Positions pass through theta in between, hence ROUNDING.
    """
    X, y = binary
    limits(chunk_steps=64)
    whole = small(n_draws=128, burn_in=64, thinning=1).fit(X, y)
    clf = small(n_draws=64, burn_in=64, thinning=1, warm_start=True).fit(X, y)
    first = clf.posterior_["coef"].copy()
    clf.set_params(burn_in=0).fit(X, y)
    both = np.concatenate([first, clf.posterior_["coef"]], axis=1)
    np.testing.assert_allclose(both, whole.posterior_["coef"], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("sampler", ["sghmc", "msgnht", "psgld"])
def test_warm_start_of_samplers_with_state(binary, sampler):
    X, y = binary
    # a thinning, since "auto" would refuse psgld here: two of the columns are collinear with others
    clf = small(sampler=sampler, thinning=20, warm_start=True).fit(X, y)
    last, spread = clf.posterior_["coef"][:, -1].copy(), clf.posterior_.std("coef")
    earlier = clf.posterior_["coef"].copy()
    clf.set_params(thinning=1, burn_in=0).fit(X, y)
    draws = clf.posterior_["coef"]
    assert np.isfinite(draws).all()
    # one step is a small part of a posterior sd (steps are at most 0.5 in whitened coordinates)
    assert (np.abs(draws[:, 0] - last) < 1.5 * spread).all()
    assert not np.isin(draws, earlier).any()


@cases(
    "change",
    [
        {"step_size": 0.01},
        {"sampler": "sghmc"},
        {"sampler": SGHMC(friction=0.3)},
        {"n_chains": 3},
        {"dtype": "float32"},
        {"fit_intercept": False},
        {"prior_scale": 0.1},
        {"preconditioner": "diagonal"},
    ],
)
def test_warm_start_with_changed_parameters(binary, change):
    """What can go on does; the new parameters count."""
    clf = small(warm_start=True).fit(*binary)
    clf.set_params(**change).fit(*binary)
    assert np.isfinite(clf.posterior_["coef"]).all()
    assert clf.posterior_.n_chains == change.get("n_chains", 2)
    assert clf.posterior_["coef"].dtype == np.dtype(change.get("dtype", "float64"))
    if "step_size" in change:
        assert clf.step_size_ == 0.01
    if "fit_intercept" in change:
        assert not clf.intercept_.any()


@pytest.mark.statistical
def test_warm_start_finds_a_posterior_that_has_moved():
    """A wider prior moves the coefficients by 30 sds: sds within 20% of those of a new fit.

    Without a burn-in, the first draws were on their way: sds were 1.4 times as large, and R-hat 1.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3))
    y = X @ [2.0, -1.0, 0.0] + rng.logistic(size=2000) > 0.0
    full = BayesianLogisticRegression(n_draws=300, random_state=0).fit(X, y)
    warm = clone(full).set_params(warm_start=True, prior_scale=0.01).fit(X, y)
    warm.set_params(prior_scale=1.0).fit(X, y)
    sd = full.posterior_.std("coef")
    assert np.abs((warm.coef_ - full.coef_) / sd).max() < 0.3
    assert np.abs(np.log(warm.posterior_.std("coef") / sd)).max() < 0.18


def test_warm_start_with_other_data(binary, iris):
    clf = small(warm_start=True).fit(*binary)
    clf.fit(*iris)
    assert clf.coef_.shape == (3, 4)
    clf.fit(binary[0][:, :3], binary[1])
    assert clf.coef_.shape == (1, 3)


# streams ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stream():
    """5000 rows of five features of unlike scale, two of them correlated, and their posterior."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 5))
    X[:, 1] *= 10.0
    X[:, 2] = 0.5 * X[:, 2] + X[:, 0]
    logit = X @ [1.0, 0.05, -0.7, 0.4, 0.0] - 0.3
    y = (rng.random(5000) < 1.0 / (1.0 + np.exp(-logit))).astype(int)
    return X, y, BayesianLogisticRegression(random_state=0).fit(X, y)


def feed(clf, X, y, rows, passes=1):
    for _ in range(passes):
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            clf.partial_fit(X[part], y[part], classes=[0, 1])
    return clf


def test_partial_fit_predicts_after_one_call(stream):
    X, y, _ = stream
    for rows in (1, 7, 150):
        clf = feed(small(), X[:rows], y[:rows], rows)
        p = clf.predict_proba(X[:10])
        assert np.isfinite(p).all() and p.shape == (10, 2)
        assert clf.posterior_.n_draws == 50 and clf.n_steps_ == 500  # one pass, or 500 steps


@pytest.mark.statistical
@pytest.mark.parametrize("rows", [pytest.param(100, marks=pytest.mark.slow), 1000])
def test_one_pass_of_a_stream(stream, rows):
    """Each row seen once: the posterior is that of ``fit``.

    Goals: means within 0.2 posterior sds, sds within 15%. Measured over 12 data sets of 5 and 20
    features, with 100 and 1000 rows a call: root mean square 0.03 to 0.14 sds, sd ratios 0.91 to
    1.06, of which Monte Carlo error is most. Without the Gaussian of earlier rows: 0.2 to 0.9 sds
    and ratios 1.3 to 2.4.
    """
    X, y, full = stream
    clf = feed(BayesianLogisticRegression(n_chains=32, random_state=1), X, y, rows)
    sd = full.posterior_.std("coef")
    error = (clf.coef_ - full.coef_) / sd
    assert np.abs(error).max() < 0.2
    ratio = clf.posterior_.std("coef") / sd
    assert ratio.min() > 0.85 and ratio.max() < 1.15


@pytest.mark.statistical
@pytest.mark.parametrize("likelihood", ["normal", "poisson"])
def test_one_pass_of_a_stream_of_counts_and_of_real_targets(likelihood):
    """The same for generalised linear models, whose own parameters are in the Gaussian, too."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3))
    f = X @ [0.5, -0.3, 0.1]
    y = f + rng.standard_normal(2000) if likelihood == "normal" else rng.poisson(np.exp(f))
    full = BayesianGLMRegressor(likelihood=likelihood, n_draws=300, random_state=0).fit(X, y)
    reg = BayesianGLMRegressor(likelihood=likelihood, random_state=1)
    for start in range(0, 2000, 250):
        reg.partial_fit(X[start : start + 250], y[start : start + 250])
    sd = full.posterior_.std("coef")
    assert (
        np.abs((reg.coef_ - full.coef_) / sd).max() < 0.35
    )  # of which Monte Carlo error has an sd of 0.09
    # that of 80 draws of four chains is 5%
    ratio = reg.posterior_.std("coef") / sd
    assert ratio.min() > 0.8 and ratio.max() < 1.2


@pytest.mark.statistical
def test_scales_of_a_stream_are_those_of_its_effects():
    """Given the effects, 1/s^2 is Gamma(1 + m/2, s_0^2 + |e|^2/2): means to 5 Monte Carlo errors.

    Draws of earlier calls kept the scales of effects that they no longer have: means of s were
    0.8 to 1.8 times those of ``fit``.
    """
    rng = np.random.default_rng(0)
    g = rng.permutation(np.resize(np.arange(6), 120))
    X = np.column_stack([rng.standard_normal(120), g])
    y = rng.poisson(np.exp(np.linspace(-2.0, 2.0, 6)[g]))
    reg = BayesianGLMRegressor(likelihood="poisson", groups=1, random_state=0)
    for start in range(0, 120, 40):
        reg.partial_fit(X[start : start + 40], y[start : start + 40])
    effects, scale = reg.posterior_.pooled("effect_x1"), reg.posterior_.pooled("sd_x1")
    rate = 2.0**2 / 6.0 + 0.5 * np.square(effects).sum(axis=1)
    ratio = scale**-2.0 * rate / 4.0
    assert len(ratio) > 2000
    assert abs(ratio.mean() - 1.0) < 5.0 * 0.5 / np.sqrt(len(ratio))


@pytest.mark.statistical
def test_earlier_draws_of_a_stream_move_with_its_posterior(stream):
    """By one affine map for all of them: they are draws of the posterior of now, not of then.

    So a stream may keep draws of all of its calls, and their number and that of the chains' state
    does not grow beyond n_draws.
    """
    X, y, _ = stream
    clf = feed(small(n_draws=60, prior_scale=1.0), X[:300], y[:300], 100)
    before = clf._chain_state.memory.kept.copy()
    clf.partial_fit(X[300:400], y[300:400])
    after = clf._chain_state.memory.kept[:, :40].reshape(80, 6)
    both = np.hstack([before[:, 20:].reshape(80, 6), np.ones((80, 1))])
    moved = both @ np.linalg.lstsq(both, after, rcond=None)[0]
    np.testing.assert_allclose(moved, after, atol=1e-8)
    assert np.abs(after - both[:, :6]).max() > 0.01
    kept = clf._chain_state.memory.kept
    np.testing.assert_array_equal(clf.posterior_["coef"][:, :, 0], kept[..., :5])
    assert kept.shape == (2, 60, 6)
    assert clf.posterior_.n_draws == 60


def warned(clf, X, y, rows, passes=1):
    """Rows seen when a stream was warned of, which must be at lines of this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        feed(clf, X, y, rows, passes)
    assert {warning.filename for warning in caught} <= {__file__}
    # that the rows of a fit no longer count is said where one was
    texts = [text for w in caught if "begins a new stream" not in (text := str(w.message))]
    return [int(re.search(r"after (\d+) rows of the stream", text)[1]) for text in texts]


@pytest.mark.statistical
def test_a_poor_posterior_of_a_stream_is_warned_of(stream):
    """Twelve chunks: means are up to 2 sd off. It is said again when the rows have doubled.

    A call of few steps has too few draws to judge.
    """
    X, y, _ = stream
    clf = BayesianLogisticRegression(gradient="minibatch", random_state=0, batch_size=25)
    assert warned(clf, X[:1200], y[:1200], 100) == [100, 200, 400, 800]
    assert r_hat(clf.posterior_, "coef").max() > 1.5
    assert warned(clf, X[1200:1700], y[1200:1700], 100) == [1600]
    assert warned(clone(clf), X[:100], y[:100], 100) == [100]
    again = clone(clf).partial_fit(X[:100], y[:100]).fit(X[:100], y[:100])
    assert warned(again, X[:100], y[:100], 100) == [100]  # of another stream
    assert warned(clone(clf).set_params(batch_size=50), X[:100], y[:100], 100) == []


@pytest.mark.statistical
def test_a_good_posterior_of_a_stream_is_not_warned_of():
    """All rows in each call, of one large step: after 448 calls ESS is about 200 (limit: 100)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    y = (X[:, 0] + rng.logistic(size=200) > 0.0).astype(int)
    clf = BayesianLogisticRegression(
        step_size=3.0, batch_size=200, n_draws=400, total_samples=200, random_state=0
    )
    calls = [rows // 200 for rows in warned(clf, X, y, 200, passes=450)]
    assert clf._rows_checked == 448 * 200  # the first call with four draws, doubled
    assert calls[:2] == [7, 14] and calls[-1] < 448


@pytest.mark.slow
def test_passes_with_total_samples(stream):
    """With N given, rows that come again do not count as new: the spread stays the posterior's.

    Measured: root mean square of the mean's error 0.2 to 0.6 sd, sd ratios 0.55 to 1.7. If N grew
    with every pass, the ratios after five would be 1/sqrt(5) = 0.45 and falling.
    """
    X, y, full = stream
    clf = BayesianLogisticRegression(random_state=1, total_samples=5000)
    feed(clf, X, y, rows=500, passes=5)
    sd = full.posterior_.std("coef")
    assert np.sqrt(np.mean(((clf.coef_ - full.coef_) / sd) ** 2)) < 0.9
    ratio = clf.posterior_.std("coef") / sd
    assert ratio.min() > 0.5 and ratio.max() < 1.8


def test_partial_fit_keeps_the_newest_draws(stream):
    X, y, _ = stream
    clf = feed(small(n_draws=8, gradient="minibatch"), X[:1000], y[:1000], 100)
    # ten steps of a draw each, of which the first half is burn-in
    assert clf.posterior_.n_draws == 5
    before = clf.posterior_["coef"].copy()
    clf.partial_fit(X[1000:1100], y[1000:1100])
    assert clf.posterior_.n_draws == 6
    np.testing.assert_array_equal(clf.posterior_["coef"][:, :-1], before)
    feed(clf, X[1100:2100], y[1100:2100], 100)
    assert clf.posterior_.n_draws == 8


def test_a_stream_keeps_the_weights_of_its_newest_draws(stream):
    """Each call takes ten steps of a falling size; of 30 draws the last 15 are kept.

    These are the second half of the second call's and all of the third's, and means use them.
    """
    X, y, _ = stream
    schedule = Polynomial(first=0.2, last=0.002, gamma=1.0)
    clf = feed(small(step_size=schedule, batch_size=10, compiled=False), X[:300], y[:300], 100)
    steps = schedule.values(np.arange(10), 10)
    np.testing.assert_allclose(clf.posterior_.weights, [*steps[5:], *steps], rtol=1e-12)
    weights = np.tile(clf.posterior_.weights, 2)
    draws = clf.posterior_["coef"].reshape(30, 1, 5)
    expected = np.average(draws, axis=0, weights=weights)
    np.testing.assert_allclose(clf.coef_, expected, rtol=1e-9)


def test_a_stream_whose_steps_begin_to_fall_weighs_all_of_its_draws(stream):
    """Draws of a constant step size have it as their weight, beside draws that have others.

    They were all weighted equally, also those of later calls.
    """
    X, y, _ = stream
    falling = Polynomial(first=0.2, last=0.002, gamma=1.0)
    clf = feed(small(step_size=0.05, batch_size=10, compiled=False), X[:100], y[:100], 100)
    assert clf.posterior_.weights is None
    feed(clf.set_params(step_size=falling), X[100:200], y[100:200], 100)
    steps = falling.values(np.arange(10), 10)
    np.testing.assert_allclose(clf.posterior_.weights, steps, rtol=1e-12)
    feed(clf.set_params(step_size=0.01), X[200:300], y[200:300], 100)
    np.testing.assert_allclose(clf.posterior_.weights, [*steps[5:], *[0.01] * 10], rtol=1e-12)


@pytest.fixture
def nothing_kept(limits):
    """Rows become a Gaussian at once, as those of calls do that are too large to be kept."""
    limits(kept_numbers=0, kept_per_parameter=0)


@pytest.mark.statistical
def test_a_stream_that_is_sorted_by_label_is_warned_of(stream, nothing_kept):
    """Once, when 1,000 rows were of some of the classes only: later rows cannot put that right."""
    X, y, _ = stream
    order = np.argsort(y, kind="stable")
    with pytest.warns(SamplingWarning, match=r"first 1000 rows .* no row of the classes \[1\]"):
        clf = feed(small(), X[order][:1000], y[order][:1000], 500)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the first .* rows")
        clf.partial_fit(X[order][1000:1500], y[order][1000:1500])
        feed(small(), X[:1500], y[:1500], 500)


def test_a_stream_with_one_class_in_each_call_is_warned_of(stream, nothing_kept):
    """Once, at the second call, although all classes have come. The posterior would be off by 1 to
    78 sds. A rare class that a shuffled call lacks is nothing to warn of, nor is a call of a row.
    """
    X, y, _ = stream
    classes = [X[y == k][:100] for k in (0, 1)]
    clf = small().partial_fit(classes[0], np.zeros(100, int), classes=[0, 1])
    with pytest.warns(SamplingWarning, match=r"had 100 rows and none of the classes \[0\]"):
        clf.partial_fit(classes[1], np.ones(100, int))
    rare = np.where(np.arange(300) % 150 == 5, 2, y[:300])  # in two of six calls
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "a call of partial_fit")
        clf.partial_fit(classes[0], np.zeros(100, int))
        shuffled = small()
        for start in range(0, 300, 50):
            part = slice(start, start + 50)
            shuffled.partial_fit(X[part], rare[part], classes=[0, 1, 2])
        small().partial_fit(X[:300], y[:300]).partial_fit(X[:1], y[:1])
        small(warm_start=True).fit(X[:300], y[:300]).partial_fit(X[:100], y[:100])


@pytest.mark.statistical
def test_the_past_is_a_gaussian_prior():
    """Its gradient is that of its density, whose values are scipy's up to a constant."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3))
    past = Past(rng.standard_normal(3), root @ root.T)
    theta = torch.from_numpy(rng.standard_normal((4, 3))).requires_grad_(True)
    density = past.log_density(theta)
    exact = scipy.stats.multivariate_normal(past.center, np.linalg.inv(past.precision))
    expected = exact.logpdf(theta.detach().numpy())
    np.testing.assert_allclose(np.diff(density.detach()), np.diff(expected), rtol=1e-9)
    (slope,) = torch.autograd.grad(density.sum(), theta)
    out = torch.empty_like(theta)
    past.gradient(theta.detach(), out, 0.5)
    np.testing.assert_allclose(out, -0.5 * slope, rtol=1e-12)
    value, gradient = past.potential(theta.detach().numpy()[0])
    np.testing.assert_allclose([value, *gradient], [-density[0].item(), *-slope[0]], rtol=1e-12)


def test_partial_fit_goes_on_from_a_warm_fit(stream):
    X, y, _ = stream
    clf = small(warm_start=True).fit(X[:2000], y[:2000])
    at = clf.coef_.copy()
    clf.partial_fit(X[2000:2100], y[2000:2100])
    assert clf._chain_state.memory.rows_seen == 2100
    assert np.abs(clf.coef_ - at).max() < 0.5
    anew = small().fit(X[:2000], y[:2000])
    with pytest.warns(SamplingWarning, match="begins a new stream, and the rows of fit no longer"):
        anew.partial_fit(X[2000:2100], y[2000:2100])
    assert anew._chain_state.memory.rows_seen == 100


def test_partial_fit_refuses_what_would_break_the_stream(stream):
    X, y, _ = stream
    clf = small().partial_fit(X[:200], y[:200])
    with pytest.raises(ValueError, match="earlier calls had 2 chains of 6 parameters"):
        clone_with_state(clf, n_chains=3).partial_fit(X[200:300], y[200:300])
    with pytest.raises(ValueError, match="control_variates"):
        small(gradient="control_variates").partial_fit(X[:200], y[:200])
    with pytest.raises(ValueError, match="the first call gave"):
        clf.partial_fit(X[:10], y[:10], classes=[0, 1, 2])


def clone_with_state(clf, **parameters):
    return copy.deepcopy(clf).set_params(**parameters)


EXPLICIT = {"step_size": 0.2, "batch_size": 50, "n_draws": 10, "compiled": False}


def test_the_target_grows_with_the_rows_seen(stream):
    """N is 100 t in the t-th call with 100 rows: bit by bit the stream that is told so each time.

    A warm fit's rows count too. With another N, noise and prior would have another size.
    """
    X, y, _ = stream
    parts = [slice(start, start + 100) for start in range(0, 400, 100)]
    plain, told, fixed = small(**EXPLICIT), small(**EXPLICIT), small(**EXPLICIT, total_samples=100)
    for seen, part in enumerate(parts, 1):
        told.set_params(total_samples=100 * seen)
        for clf in (plain, told, fixed):
            clf.partial_fit(X[part], y[part], classes=[0, 1])
    np.testing.assert_array_equal(plain.posterior_["coef"], told.posterior_["coef"])
    assert np.abs(plain.posterior_["coef"] - fixed.posterior_["coef"]).max() > 1e-2
    warm = [small(**EXPLICIT, burn_in=10, warm_start=True).fit(X[:300], y[:300]) for _ in range(2)]
    warm[0].partial_fit(X[300:400], y[300:400])
    warm[1].set_params(total_samples=400).partial_fit(X[300:400], y[300:400])
    np.testing.assert_array_equal(*[clf.posterior_["coef"] for clf in warm])


def test_partial_fit_with_sample_weight(stream):
    """A weight of two is a row twice, in the gradients and in N: with all rows at every step."""
    X, y, _ = stream
    whole = EXPLICIT | {"batch_size": 1000}
    weighted, repeated = small(**whole), small(**whole)
    for start in range(0, 300, 100):
        rows, labels = X[start : start + 100], y[start : start + 100]
        weighted.partial_fit(rows, labels, classes=[0, 1], sample_weight=np.full(100, 2.0))
        repeated.partial_fit(np.tile(rows, (2, 1)), np.tile(labels, 2), classes=[0, 1])
    expected = repeated.posterior_["coef"]
    np.testing.assert_allclose(weighted.posterior_["coef"], expected, rtol=0, atol=ROUNDING)
