"""Ordered classes: the density, exact posteriors, order and names of classes, bad input, exports.

Derivatives, quadrature and control variates are tested with those of the other likelihoods of a
linear predictor, in ``test_glm.py``.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats
import torch
from _cases import cases
from scipy.special import expit, logit
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    BayesianOrdinalClassifier,
    SamplingWarning,
    to_torch,
)
from skbayes_sgmcmc.inspection import CoefficientDisplay, ReliabilityDisplay
from skbayes_sgmcmc.models.linear.ordinal import CumulativeLogit, log_probabilities

REFERENCES = Path(__file__).parent / "data" / "reference_ordinal.npz"
#: budgets too small to mix, on purpose, where draws are only compared with other draws
TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "random_state": 0}
tiny_fits = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def grades(n=150, cuts=(-1.5, -0.5, 0.5, 2.0), seed=0, slope=1.0):
    """Rows of two features, and classes 0, 1, ... divided by cut points."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.digitize(slope * (X @ [1.0, -0.7]) + rng.logistic(size=n), cuts)


# densities ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_probabilities_are_differences_of_the_cumulative_ones(n_classes):
    """For usual cut points, to 1e-12; f far away leaves logarithms finite."""
    rng = np.random.default_rng(0)
    f, cuts = rng.standard_normal((4, 7)), np.sort(rng.standard_normal((4, n_classes - 1)), axis=1)
    below = np.pad(expit(cuts[:, None] - f[..., None]), ((0, 0), (0, 0), (1, 1)))
    below[..., -1] = 1.0
    found = log_probabilities(torch.from_numpy(f), torch.from_numpy(cuts)).numpy()
    np.testing.assert_allclose(np.exp(found), np.diff(below), rtol=1e-12, atol=1e-15)
    far = log_probabilities(torch.from_numpy(f) + 1e4, torch.from_numpy(cuts))
    assert torch.isfinite(far).all()


def test_the_likelihood_is_that_of_the_probabilities():
    """Its cut points are 0 and sums of gaps."""
    likelihood, rng = CumulativeLogit(4), np.random.default_rng(0)
    y, f = np.arange(4)[:, None], torch.from_numpy(rng.standard_normal((3, 4, 1)))
    own = torch.from_numpy(rng.standard_normal((3, 2)))
    cuts = torch.cat([torch.zeros(3, 1), likelihood.gaps(own).cumsum(1)], dim=1)
    expected = log_probabilities(f[..., 0], cuts)[:, range(4), range(4)]
    found = likelihood.log_density(f, likelihood.targets(y, torch.float64, "cpu"), own)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gaps_have_log_normal_priors():
    """Medians make classes equally probable, and logarithms have the sd 2: change of variables.

    The gradient is that of the density. Expectations are averages of 100,000 draws, to five
    standard errors.
    """
    likelihood = CumulativeLogit(4)
    x = torch.linspace(-30.0, 60.0, 91, dtype=torch.float64).requires_grad_()
    rates = torch.ones(2, dtype=torch.float64)
    both = torch.stack([x, x], 1)
    gaps = likelihood.gaps(both)
    law = scipy.stats.lognorm(2.0, scale=np.diff(logit([0.25, 0.5, 0.75])))
    (slope,) = torch.autograd.grad(gaps[:, 0].sum(), x, retain_graph=True)
    expected = law.logpdf(gaps.detach().numpy()).sum(1)
    expected += 2.0 * np.log(slope.numpy() / likelihood.typical[0])
    expected += np.log(likelihood.typical).sum()
    prior = likelihood.own_prior
    found = prior.log_density(both, rates)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-9)  # softplus is linear from 20
    (gradient,) = torch.autograd.grad(-found.sum(), x)
    out = torch.empty(91, 2, dtype=torch.float64)
    prior.gradient(both.detach(), rates, out)
    np.testing.assert_allclose(out.sum(1), gradient, rtol=1e-8, atol=1e-12)
    mean, sd, ones = np.array([-1.0, 6.0]), np.array([0.7, 1.5]), np.ones(2)
    away = np.random.default_rng(0).standard_normal((100_000, 2))
    at = torch.from_numpy(mean + sd * away)
    slopes = torch.empty_like(at)
    prior.gradient(at, rates, slopes)
    for value, draws in (
        (prior.expected_potential(mean, sd, ones), prior.potential(at, rates).numpy()),
        (prior.expected_gradient(mean, sd, ones), slopes.numpy()),
        (prior.expected_curvature(mean, sd, ones), slopes.numpy() * away / sd),
    ):
        assert (np.abs(draws.mean(0) - value) < 5.0 * draws.std(0) / 100_000**0.5).all()


def test_walls_are_where_rows_begin_to_push():
    """Half of a row's constant gradient at its wall, and all of it beyond, in f and in the gaps.

    Gaps of 20 and more leave nothing of other cut points (1e-8).
    """
    likelihood, own = CumulativeLogit(5), np.array([20.0, 30.0, 40.0])
    gaps = likelihood.typical * own
    y, middle = np.arange(5), np.r_[-9.0, np.cumsum(gaps) - 0.4 * gaps, gaps.sum() + 9.0]
    margin, slope = likelihood.walls(middle, own, y)
    for share, part in ((1.0, 0.5), (1.0 + 40.0 / margin, 1.0)):
        f = torch.from_numpy(middle - share * margin * slope[:, 0])[None, :, None]
        by_f, by_own = likelihood.slope(
            f, torch.from_numpy(y)[:, None], torch.from_numpy(own)[None]
        )
        found = np.column_stack([by_f[0].numpy(), by_own[0].numpy()])
        np.testing.assert_allclose(found, -part * slope, atol=1e-4)


# exact posteriors ---------------------------------------------------------------------------------


def log_density(parameters, X, y, n_classes, scale):
    """Of coefficients, the first cut point and log gaps (points, parameters), written again."""
    d = X.shape[1]
    w, first, log_gaps = parameters[:, :d], parameters[:, d], parameters[:, d + 1 :]
    cuts = first[:, None] + np.pad(np.exp(log_gaps).cumsum(1), ((0, 0), (1, 0)))
    edges = np.pad(cuts, ((0, 0), (1, 1)), constant_values=np.inf)
    edges[:, 0] = -np.inf
    f = w @ X.T
    p = expit(edges[:, y + 1] - f) - expit(edges[:, y] - f)
    typical = np.log(np.diff(logit(np.arange(1, n_classes) / n_classes)))
    prior = -0.5 * np.square(w / scale).sum(1) - 0.5 * np.square((log_gaps - typical) / 2.0).sum(1)
    return np.log(np.maximum(p, 1e-300)).sum(1) + prior


def reference(X, y, n_classes, scale, n=40_000):
    """Means, sds of coefficients and cut points by importance sampling, and the effective size.

    Draws are of a t distribution with 5 degrees of freedom about the maximum.
    """
    d, rng = X.shape[1], np.random.default_rng(0)
    start = np.r_[np.zeros(d), -1.0, np.full(n_classes - 2, -0.5)]

    def loss(theta):
        return -log_density(theta[None], X, y, n_classes, scale)[0]

    found = scipy.optimize.minimize(loss, start, method="BFGS")
    law = scipy.stats.multivariate_t(found.x, found.hess_inv, df=5.0, seed=rng)
    draws = law.rvs(n)
    log_w = np.concatenate([log_density(part, X, y, n_classes, scale)
                            for part in np.array_split(draws, 20)]) - law.logpdf(draws)  # fmt: skip
    weight = np.exp(log_w - log_w.max())
    weight /= weight.sum()
    gaps = np.pad(np.exp(draws[:, d + 1 :]).cumsum(1), ((0, 0), (1, 0)))
    values = np.hstack([draws[:, :d], draws[:, [d]] + gaps])
    mean = weight @ values
    return mean, np.sqrt(weight @ np.square(values - mean)), 1.0 / np.square(weight).sum()


def draws_of(clf):
    posterior = clf.posterior_
    return np.hstack([posterior.pooled("coef"), posterior.pooled("cutpoints")])


def assert_same_posterior(draws, mean, sd):
    """The bounds of test_posterior_truth.py: means within 0.15 sd, sds within 10%."""
    assert np.abs((draws.mean(0) - mean) / sd).max() <= 0.15
    assert np.abs(draws.std(0) / sd - 1.0).max() <= 0.10


#: rows, cut points and slope: few rows, for which the prior matters; usual ones; a class of 4 rows
#: of 150 between others; many classes
POSTERIORS = {
    "few": (25, (-1.0, 0.2, 1.0), 1.0),
    "five": (150, (-1.5, -0.5, 0.5, 2.0), 1.0),
    "rare": (150, (-1.0, 0.0, 0.1), 1.0),
    "ten": (150, tuple(np.linspace(-3.0, 3.0, 9)), 1.5),
}
#: fewer than the default where the tests are quick
N_DRAWS = {"few": 400, "five": 1000, "rare": 1000, "ten": 1000}


@pytest.mark.statistical
@pytest.mark.parametrize(
    "name", ["few", *(pytest.param(one, marks=pytest.mark.slow) for one in ("five", "rare", "ten"))]
)
def test_posterior_is_exact(name):
    """Against importance sampling, whose effective size above 5,000 leaves errors of 0.015 sd.

    The fit's own are 0.04 sd and 3%. R-hat at most 1.02, as for the other linear models.
    """
    n, cuts, slope = POSTERIORS[name]
    X, y = grades(n, cuts, slope=slope)
    n_classes = len(cuts) + 1
    assert len(np.unique(y)) == n_classes
    mean, sd, size = reference(X, y, n_classes, 1.0)
    assert size > 5_000
    clf = BayesianOrdinalClassifier(prior_scale=1.0, n_draws=N_DRAWS[name], random_state=0)
    clf.fit(X, y)
    assert_same_posterior(draws_of(clf), mean, sd)
    assert clf.summary()["r_hat"].max() <= 1.02


@pytest.mark.statistical
@pytest.mark.slow
def test_minibatches_have_the_same_posterior():
    """Of 100 of 2,000 rows, with importance sampling and control variates; bounds as above.

    The Monte Carlo errors of both are 0.03 sd and 2%.
    """
    X, y = grades(2000)
    whole, part = (
        BayesianOrdinalClassifier(prior_scale=1.0, batch_size=size, random_state=0).fit(X, y)
        for size in ("auto", 100)
    )
    assert (whole.batch_size_, part.batch_size_) == (2000, 100)
    draws = draws_of(whole)
    assert_same_posterior(draws_of(part), draws.mean(0), draws.std(0))


@pytest.mark.statistical
def test_two_classes_are_the_logistic_regression():
    """Bounds as above. Monte Carlo errors of sds are 1.3% on both sides; with 400 draws, 3%."""
    X, y = grades(cuts=(0.5,))
    run = {"prior_scale": 1.0, "n_chains": 64, "n_draws": 125}
    one = BayesianOrdinalClassifier(random_state=0, **run).fit(X, y)
    other = BayesianLogisticRegression(random_state=1, **run).fit(X, y).posterior_
    expected = np.hstack([other.pooled("coef")[:, 0], -other.pooled("intercept")])
    assert_same_posterior(draws_of(one), expected.mean(0), expected.std(0))


@pytest.mark.statistical
@pytest.mark.slow
@tiny_fits  # of 50 draws each, nearly independent ones
def test_ranks_of_the_truth_are_uniform():
    """Simulation-based calibration: 100 replications, 4 classes, a learned scale.

    The first cut point has a flat prior, so it is fixed at 0. Data in which a class is missing are
    drawn again with their parameters, which leaves ranks uniform. Chi-square of 10 bins of all
    ranks: bound at p = 0.001 of independent ones.
    """
    ranks = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        y = np.zeros(1)
        while len(np.unique(y)) < 4:
            X = 0.5 * rng.standard_normal((60, 3))
            s = rng.gamma(5.0, 1.0 / 5.0) ** -0.5
            w, g = s * rng.standard_normal(3) / X.std(0), rng.standard_normal(2)
            gaps = np.diff(logit([0.25, 0.5, 0.75])) * np.exp(2.0 * g)
            cuts = np.r_[0.0, np.cumsum(gaps)]
            y = np.digitize(X @ w + rng.logistic(size=60), cuts)
        clf = FirstCutAtZero(n_draws=50, thinning=30, random_state=seed).fit(X, y)
        truth = np.r_[w, cuts[1:], s]
        draws = np.column_stack([draws_of(clf), clf.posterior_.pooled("scale")])
        draws = draws[:, [0, 1, 2, 4, 5, 6]][:199]
        ranks.append((draws < truth).sum(0))
    counts = np.histogram(ranks, bins=10, range=(0, 200))[0]
    assert scipy.stats.chisquare(counts).pvalue > 0.001


class FirstCutAtZero(BayesianOrdinalClassifier):
    fit_intercept = False


# classes and rows ---------------------------------------------------------------------------------


@tiny_fits
def test_classes_are_in_the_order_of_their_labels():
    """Labels 30, 10, 20 mean 10 < 20 < 30, which the names of the cut points say."""
    X, y = grades(cuts=(-0.5, 1.0))
    numbers = BayesianOrdinalClassifier(**TINY).fit(pd.DataFrame(X, columns=["age", "dose"]), y)
    assert list(numbers.summary()["name"]) == ["age", "dose", "0|1", "1|2", "scale"]
    other = BayesianOrdinalClassifier(**TINY).fit(X, np.array([10, 20, 30])[y])
    assert other.classes_.tolist() == [10, 20, 30]
    np.testing.assert_allclose(other.posterior_["cutpoints"], numbers.posterior_["cutpoints"])
    assert set(other.predict(X)) <= {10, 20, 30}
    assert (np.diff(numbers.posterior_["cutpoints"]) > 0.0).all()
    assert numbers.coef_.shape == (2,) and numbers.cutpoints_.shape == (2,)
    # a positive coefficient makes higher classes more probable
    assert numbers.coef_[0] > 0.0
    low, high = other.predict_proba([[-2.0, 0.0], [2.0, 0.0]])
    assert (low.cumsum()[:2] > high.cumsum()[:2]).all()
    ratios = other.summary(exponentiate=True)
    assert ratios["name"] == ["x0", "x1"]
    assert ratios["median"][0] == pytest.approx(np.exp(np.median(other.posterior_["coef"][..., 0])))


@tiny_fits
def test_strings_are_ordered_by_the_alphabet_which_is_said():
    X, y = grades(cuts=(-0.5, 1.0))
    labels = np.array(["low", "medium", "high"])[y]
    with pytest.warns(SamplingWarning, match=r"\['high', 'low', 'medium'\].*OrdinalEncoder"):
        clf = BayesianOrdinalClassifier(**TINY).fit(X, labels)
    assert clf.classes_.tolist() == ["high", "low", "medium"]


GRADES = ["low", "medium", "high"]
ORDERED = {
    "series": lambda y: pd.Series(y).astype(pd.CategoricalDtype(GRADES, ordered=True)),
    "categorical": lambda y: pd.Categorical(y, GRADES, ordered=True),
    "frame": lambda y: pd.DataFrame({"y": pd.Categorical(y, GRADES, ordered=True)}),
    "declared": lambda y: pd.Categorical(y, ["none", *GRADES, "top"], ordered=True),
    "enum": lambda y: pytest.importorskip("polars").Series(
        y, dtype=pytest.importorskip("polars").Enum(GRADES)
    ),
    "arrow": lambda y: in_arrow(y),
    "arrow table": lambda y: pytest.importorskip("pyarrow").table({"y": in_arrow(y)}),
    "arrow in pandas": lambda y: pd.Series(in_arrow(y), dtype=pd.ArrowDtype(in_arrow(y).type)),
}


def in_arrow(y):
    pa = pytest.importorskip("pyarrow")
    codes = pa.array(list(map(GRADES.index, y)))
    return pa.DictionaryArray.from_arrays(codes, pa.array(GRADES), ordered=True)


@tiny_fits
@pytest.mark.filterwarnings("ignore:A column-vector y")
@pytest.mark.parametrize("kind", ORDERED)
def test_a_declared_order_is_that_of_the_classes(kind, recwarn):
    """The draws are those of the codes; classes without rows are none, as elsewhere."""
    X, codes = grades(cuts=(-0.5, 1.0))
    numbers = BayesianOrdinalClassifier(class_weight={1: 2.0}, **TINY).fit(X, codes)
    text = np.array(GRADES)[codes]
    clf = BayesianOrdinalClassifier(class_weight={"medium": 2.0}, **TINY).fit(
        X, ORDERED[kind](text)
    )
    assert not any("alphabet" in str(each.message) for each in recwarn)
    assert clf.classes_.tolist() == GRADES
    np.testing.assert_array_equal(clf.posterior_["coef"], numbers.posterior_["coef"])
    np.testing.assert_array_equal(clf.predict_proba(X), numbers.predict_proba(X))
    np.testing.assert_array_equal(clf.predict(X), np.array(GRADES)[numbers.predict(X)])
    assert list(clf.summary()["name"])[2:4] == ["low|medium", "medium|high"]
    assert clf.score(X, ORDERED[kind](text)) == clf.score(X, text) == numbers.score(X, codes)


@tiny_fits
def test_numbers_and_intervals_have_a_declared_order_too():
    """School grades 3 < 2 < 1, and the bins of pandas.cut."""
    X, codes = grades(cuts=(-0.5, 1.0))
    numbers = BayesianOrdinalClassifier(**TINY).fit(X, codes)
    school = pd.Series(3 - codes).astype(pd.CategoricalDtype([3, 2, 1], ordered=True))
    bins = pd.cut(codes, [-1, 0, 1, 2])
    for y, classes in [(school, [3, 2, 1]), (bins, list(bins.categories))]:
        clf = BayesianOrdinalClassifier(**TINY).fit(X, y)
        assert list(clf.classes_) == classes
        np.testing.assert_array_equal(clf.posterior_["coef"], numbers.posterior_["coef"])
        assert clf.score(X, y) == numbers.score(X, codes)


@tiny_fits
def test_half_steps_are_classes():
    """Numbers that recur, in fits, searches and streams; a target of many values is none."""
    X, codes = grades(cuts=(-0.5, 1.0))
    numbers = BayesianOrdinalClassifier(class_weight={0: 2.0}, **TINY).fit(X, codes)
    clf = BayesianOrdinalClassifier(class_weight={0.5: 2.0}, **TINY).fit(X, 0.5 + 0.5 * codes)
    assert clf.classes_.tolist() == [0.5, 1.0, 1.5]
    np.testing.assert_array_equal(clf.posterior_["coef"], numbers.posterior_["coef"])
    assert clf.score(X, 0.5 + 0.5 * codes) == numbers.score(X, codes)
    search = GridSearchCV(BayesianOrdinalClassifier(**TINY), {"prior_scale": [1.0]}, cv=2)
    assert search.fit(X, pd.Series(0.5 * codes)).best_score_ > 0.5
    stream = BayesianOrdinalClassifier(**TINY)
    stream.partial_fit(X[:3], [0.0, 0.5, 1.0], classes=[0.0, 0.5, 1.0]).partial_fit(X[:1], [0.5])
    with pytest.raises(ValueError, match=r"labels \[0.25\] that are not in classes"):
        stream.partial_fit(X[:1], [0.25])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        clf.fit(X, X[:, 0])


@tiny_fits
def test_streams_of_ordered_categories():
    """The first call knows all categories; later ones have the same order, or no order."""
    X, codes = grades(cuts=(-0.5, 1.0))
    text = np.array(GRADES)[codes]
    y = ORDERED["series"](text)
    few = codes < 2
    stream = BayesianOrdinalClassifier(**TINY).partial_fit(X[few], y[few])
    assert stream.classes_.tolist() == GRADES
    stream.partial_fit(X, text).partial_fit(X[few], y[few].cat.remove_unused_categories())
    with pytest.raises(ValueError, match=r"\['high', 'medium', 'low'\] is not allowed.*same order"):
        stream.partial_fit(X, y.cat.reorder_categories(GRADES[::-1]))
    for classes in (GRADES[::-1], ORDERED["categorical"](GRADES)):
        again = BayesianOrdinalClassifier(**TINY)
        labels = y if isinstance(classes, list) else text
        assert again.partial_fit(X, labels, classes=classes).classes_.tolist() == GRADES
    with pytest.raises(ValueError, match=r"classes with \['other'\].*ordered categories"):
        BayesianOrdinalClassifier(**TINY).partial_fit(X, y, classes=[*GRADES, "other"])


@tiny_fits
def test_scorers_that_sort_labels_are_refused():
    """They would score the columns in another order; with codes, the scores are right."""
    X, codes = grades(90, cuts=(-0.5, 1.0))
    y = ORDERED["series"](np.array(GRADES)[codes])
    clf = BayesianOrdinalClassifier(**TINY)
    options = {"cv": 2, "error_score": "raise"}
    for model in (clf, make_pipeline(StandardScaler(), clf)):
        with pytest.raises(ValueError, match=r"sorted by label.*y\.cat\.codes"):
            cross_val_score(model, X, y, scoring="neg_log_loss", **options)
    right = cross_val_score(clf, X, y.cat.codes, scoring="neg_log_loss", **options)
    assert (right > -math.log(3.0)).all()  # better than equal probabilities
    found = cross_val_score(clf, X, y, scoring="accuracy", **options)
    np.testing.assert_allclose(found, cross_val_score(clf, X, codes, **options))
    shown = ReliabilityDisplay.from_estimator(clf.fit(X, y), X, y)
    plain = ReliabilityDisplay.from_estimator(clf.fit(X, codes), X, codes)
    assert shown.expected_calibration_error == plain.expected_calibration_error


@tiny_fits
def test_pipelines_and_scores():
    X, y = grades()
    pipe = make_pipeline(StandardScaler(), BayesianOrdinalClassifier(**TINY))
    scores = cross_val_score(pipe, X, y, cv=3, scoring="neg_log_loss")
    assert (scores > -math.log(5.0)).all()  # better than equal probabilities


@pytest.mark.slow
@tiny_fits  # after the first calls, as of all streams
def test_streams():
    """One pass over a shuffled stream: means within 0.3 posterior sds, as of other linear models.

    Later calls may lack classes.
    """
    X, y = grades(1500)
    whole = draws_of(BayesianOrdinalClassifier(prior_scale=1.0, random_state=0).fit(X, y))
    clf = BayesianOrdinalClassifier(prior_scale=1.0, random_state=1)
    for part in np.array_split(np.arange(1490), 4):
        clf.partial_fit(X[part], y[part])
    clf.partial_fit(X[1490:], y[1490:])
    moved = (draws_of(clf).mean(0) - whole.mean(0)) / whole.std(0)
    assert np.abs(moved).max() < 0.3


# data that need a second look ---------------------------------------------------------------------


#: sets of ``make_reference_ordinal.py``, the first one of the default tier
SEPARATED = ("iris", "three", "eight_of_30", "twelve", "rare")


@pytest.mark.statistical
@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (i > 0)) for i, name in enumerate(SEPARATED)],
)
def test_default_fits_of_separated_classes_are_right(name):
    """Against long NUTS runs, whose errors are 0.02 sd: means within 0.1 sd, sds within 10%.

    The likelihood has no maximum, or hardly one. The coefficients and all gaps have a common factor
    that only the priors bound. No chain may diverge, and none may give a warning.
    """
    with np.load(REFERENCES) as file:
        found = {key.split("/")[1]: file[key] for key in file if key.startswith(f"{name}/")}
    assert found["max_rhat"] < 1.01
    clf = BayesianOrdinalClassifier(random_state=0).fit(found["X"], found["y"])
    assert clf.n_chains_ == 4
    posterior = clf.posterior_
    cuts = posterior.pooled("cutpoints")
    draws = {
        "coef": posterior.pooled("coef"),
        "cutpoints": cuts,
        "log_gaps": np.log(np.diff(cuts, axis=1)),
        "log_scale": np.log(posterior.pooled("scale")),
    }
    for part, each in draws.items():
        sd = found[f"{part}_sd"]
        assert np.abs((each.mean(0) - found[f"{part}_mean"]) / sd).max() <= 0.1
        assert np.abs(each.std(0) / sd - 1.0).max() <= 0.1


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.filterwarnings("error::skbayes_sgmcmc.SamplingWarning")
def test_a_wide_prior_of_separated_classes():
    """Coefficients of iris: means within 0.1 sd, sds within 10% of HMC with 48,000 draws.

    R-hat of HMC is at most 1.003. With the step that suits the Gaussian approximation, sds are 3 to
    8 times too large.
    """
    X, y = load_iris(return_X_y=True)
    coef = BayesianOrdinalClassifier(prior_scale=10.0, random_state=0).fit(X, y).posterior_["coef"]
    mean, sd = np.array([-3.247, -4.963, 9.823, 13.685]), np.array([2.174, 2.836, 3.456, 4.860])
    assert np.abs((coef.mean((0, 1)) - mean) / sd).max() <= 0.1
    assert np.abs(coef.std((0, 1)) / sd - 1.0).max() <= 0.1


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["sgld", "mala"])
def test_other_samplers_know_separated_classes(sampler):
    """Bounds of two parts in ten: chains of these samplers are shorter in effect.

    Without walls, SGLD's sds are five times too large.
    """
    with np.load(REFERENCES) as file:
        X, y = file["three/X"], file["three/y"]
        mean, sd = (file[f"three/coef_{moment}"] for moment in ("mean", "sd"))
    draws = BayesianOrdinalClassifier(sampler=sampler, random_state=0).fit(X, y).posterior_
    coef = draws.pooled("coef")
    assert np.abs((coef.mean(0) - mean) / sd).max() <= 0.2
    assert np.abs(coef.std(0) / sd - 1.0).max() <= 0.2


def test_a_class_without_rows_of_positive_weight():
    """In the middle, its gap has a proper posterior; the lowest leaves the first cut without one.

    The gap of the empty class is small: its probability at f = 0 is at most that of one row of 60.
    """
    X, y = grades(60, cuts=(-0.5, 1.0))
    clf = BayesianOrdinalClassifier(prior_scale=1.0, n_draws=200, random_state=0)
    clf.fit(X, y, y != 1)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict_proba(X)[:, 1].mean() < 2.0 / 60.0
    assert clf.summary()["r_hat"].max() <= 1.02
    with pytest.raises(ValueError, match="lowest class, 0, with positive weight"):
        BayesianOrdinalClassifier().fit(X, y, y != 0)


@cases(
    "parameters, y, message",
    [
        ({}, [1] * 10, "1 class"),
        ({}, [0.5 * k for k in range(10)], "Unknown label type: continuous"),
        ({}, np.array([1, "low"] * 5, dtype=object), "several types, such as 'low' and 1"),
        ({"prior_scale": [1.0]}, [0, 1] * 5, "prior_scale of length 1.*2 features"),
        (
            {"prior": "laplace", "prior_scale": "learned"},
            [0, 1] * 5,
            "prior_scale='learned'.*prior='laplace'",
        ),
        ({"sampler": "gibbs"}, [0, 1] * 5, "sampler=.*no conditional"),
    ],
)
def test_bad_input(parameters, y, message):
    X = np.random.default_rng(0).standard_normal((10, 2))
    with pytest.raises(ValueError, match=message):
        BayesianOrdinalClassifier(**parameters).fit(X, y)


# exports and displays -----------------------------------------------------------------------------


@tiny_fits
def test_torch_modules_students_and_displays():
    """Modules predict the same to float32's precision, logits too; a display shows coefficients."""
    X, y = grades()
    clf = BayesianOrdinalClassifier(**TINY).fit(X, y)
    expected = clf.predict_proba(X)
    with torch.no_grad():
        found = to_torch(clf)(torch.tensor(X, dtype=torch.float32))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    blocks = [torch.softmax(z, 2).sum(0) for _, z in clf._iter_logits(torch.from_numpy(X))]
    np.testing.assert_allclose(sum(blocks) / 40.0, expected, atol=1e-12)
    student = clf.distill(X, n_epochs=60, batch_size=50, learning_rate=0.02, random_state=0)
    assert np.abs(student.predict_proba(X) - expected).mean() < 0.05  # 0.12 for their means
    pytest.importorskip("matplotlib")
    display = CoefficientDisplay.from_estimator(clf)
    np.testing.assert_allclose(display.middle, clf.coef_)
