"""Logistic regression whose prior learns its scales: the marginal prior, posteriors, bad input."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse as sp
import scipy.stats
import sklearn.datasets
import torch
from _cases import cases
from _inside import streams
from _priors import assert_derivatives
from scipy.integrate import quad
from scipy.special import expit

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc.models.linear.coefficient_priors import LearnedScales
from skbayes_sgmcmc.priors import Laplace, LearnedScale

REFERENCES = Path(__file__).parent / "data" / "reference_linear.npz"
#: budgets too small to mix, on purpose, where draws are only compared with other draws
TINY = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 2, "random_state": 0}
tiny_fits = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def prior_of(own, k=1, n_features=3, a=1.7, s_0=0.6):
    units = np.array([0.5, 2.0, 30.0])[:n_features]
    return LearnedScales(LearnedScale(a, s_0, own), units, k, 1, n_relative=int(k > 1))


def position(prior, seed=0):
    size = prior.n_coefficients + 1 + int(prior.own)
    return np.random.default_rng(seed).standard_normal(size) * prior.typical


# the marginal prior -------------------------------------------------------------------------------


@cases("k", [1, 3])
@cases("own", [False, True])
def test_density_is_the_integral_over_the_scales(own, k):
    """By adaptive quadrature over log s of every group, to 1e-8.

    The intercept of several classes is flat in units of the one scale: its density is s_0/s.
    """
    prior = prior_of(own, k)
    theta = position(prior)
    w = (theta[: prior.n_coefficients] / prior.units).reshape(3, k)
    a, s_0 = prior.a, prior.typical_scale
    b = a * s_0**2 * (math.exp(theta[-1]) if own else 1.0)
    groups = w if own else w.reshape(1, -1)
    expected = -np.log(prior.units).sum()

    def of_intercept(log_s):
        return 0.0 if own or k == 1 else log_s - math.log(s_0)

    for each in groups:

        def joint(log_s, each=each):
            v = math.exp(2.0 * log_s)  # s^2 ~ IG(a, b), and w_j ~ N(0, s^2)
            hyper = a * math.log(b) - math.lgamma(a) - 2.0 * a * log_s - b / v + math.log(2.0)
            normal = -0.5 * (each @ each) / v - len(each) * (log_s + 0.5 * math.log(2.0 * math.pi))
            return math.exp(hyper + normal - of_intercept(log_s))

        expected += math.log(quad(joint, -8.0, 12.0, epsabs=0.0, epsrel=1e-10, limit=200)[0])
    if own:  # b ~ Gamma(a, 1 / s_0^2), in its logarithm
        expected += scipy.stats.gamma(a, scale=s_0**2).logpdf(b) + math.log(b)
    found = prior.log_density(torch.from_numpy(theta)[None])
    assert float(found) == pytest.approx(expected, abs=1e-8)


@cases("k", [2, 30])
def test_tails_are_the_same_for_all_numbers_of_classes(k):
    """The density of the logarithm u of a ray's length falls as e^(-2au), as that of the scale.

    Separated classes put no end to a ray, and their posterior is proper if a > 0.
    """
    prior = LearnedScales(
        LearnedScale(1.7, 0.6, False), np.array([0.5, 2.0]), k, k - 1, n_relative=k - 1
    )
    theta = np.random.default_rng(0).standard_normal(3 * k - 1)
    rays = torch.from_numpy(np.exp([[20.0], [21.0]]) * theta)
    first, second = prior.log_density(rays).tolist()
    assert second - first + len(theta) == pytest.approx(-2.0 * 1.7, abs=1e-6)


@cases("k", [1, 3])
@cases("own", [False, True])
def test_gradients_and_curvature_are_those_of_the_density(own, k):
    """Against autograd; the expectations are taken at an sd of zero."""
    prior = prior_of(own, k)
    assert_derivatives(prior, position(prior))


@pytest.mark.statistical
@pytest.mark.parametrize("own", [False, True])
def test_scales_are_drawn_from_their_conditional(own):
    """Precisions given w are Gamma(k, r): 4,000 draws in a Kolmogorov-Smirnov test.

    The p-value is that of one seed; a wrong shape or rate by 10% has a p-value below 1e-6.
    """
    prior = prior_of(own)
    theta = position(prior)
    scales = prior.draw_recorded(np.tile(theta, (2, 2000, 1)), streams(2), np.ones(2000))
    w = (theta[:3] / prior.units).reshape(-1, 1 if own else 3)
    b = prior.a * prior.typical_scale**2 * (math.exp(theta[-1]) if own else 1.0)
    for g, each in enumerate(w):
        k, r = prior.a + 0.5 * len(each), b + 0.5 * (each**2).sum()
        law = scipy.stats.gamma(k, scale=1.0 / r)
        found = scales[..., g].ravel() ** -2.0
        assert scipy.stats.kstest(found, law.cdf).pvalue > 1e-3


def test_scales_belong_to_their_draws(limits):
    """1/s^2 times r = a s_0^2 + |w|^2/2 of the same draw is a Gamma(k, 1) variate, block by block.

    A Kolmogorov-Smirnov test of 4,000 pairs. With each scale from the draw before, p is below 1e-8,
    because |w|^2 varies much where fifteen rows have four features. Blocks have six draws here.
    """
    limits(cache_numbers=32)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((15, 4)), np.arange(15) % 2
    hyper = LearnedScale(shape=1.0, scale=2.0, inputs=False)
    clf = BayesianLogisticRegression(prior_scale=hyper, random_state=0).fit(X, y)
    w = clf.posterior_.pooled("coef")[:, 0] * X.std(0)
    r = 1.0 * 2.0**2 + 0.5 * np.square(w).sum(1)
    drawn = r / clf.posterior_.pooled("scale") ** 2
    assert scipy.stats.kstest(drawn, scipy.stats.gamma(1.0 + 2.0).cdf).pvalue > 1e-3


@pytest.mark.statistical
def test_scales_have_the_temperature_of_their_draw():
    """At T = 0 the most likely scale, in its logarithm: sqrt(r / k). Near T = 0, close to it.

    The log of a Gamma(k / T) variate, k > 1.5, has an sd of at most sqrt(T / 1.5) or so, and the
    scale's half of it: 0.004 at T = 1e-4, and five of these are 0.02.
    """
    prior = prior_of(False)
    theta = position(prior)
    levels = np.array([0.0, 1e-4, 1.0] * 100)
    scales = prior.draw_recorded(np.tile(theta, (1, 300, 1)), streams(1), levels)[0, :, 0]
    w = theta[:3] / prior.units
    r = prior.a * prior.typical_scale**2 + 0.5 * (w**2).sum()
    logs = np.log(scales / math.sqrt(r / (prior.a + 1.5)))
    np.testing.assert_allclose(logs[levels == 0.0], 0.0, atol=1e-12)
    assert 0.0 < np.abs(logs[levels == 1e-4]).max() < 0.02
    assert logs[levels == 1.0].std() > 0.1


# posteriors ---------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("name", ["iris", "breast_cancer", "breast_cancer_ard"])
def test_posterior_is_that_of_nuts(name):
    """Bounds as in test_posterior_truth.py, for coefficients, intercepts and log scales.

    Raw features: the references use centred rows, and have the scales as parameters. Three fits,
    because the tails of separable classes leave one of them (ESS about 500 in the worst case) with
    an sd that is known to 5% only.
    """
    references = np.load(REFERENCES)
    assert float(references[f"{name}/max_rhat"]) < 1.005
    X, y = getattr(sklearn.datasets, f"load_{name.removesuffix('_ard')}")(return_X_y=True)
    scale = LearnedScale(inputs=True) if name.endswith("_ard") else "learned"
    fits = [
        BayesianLogisticRegression(prior_scale=scale, random_state=seed).fit(X, y)
        for seed in range(3)
    ]
    draws = {
        block: np.concatenate([clf.posterior_[block] for clf in fits])
        for block in ("coef", "intercept", "scale")
    }
    draws["log_scale"] = np.log(draws.pop("scale")).reshape(12, 1000, -1)
    for block, values in draws.items():
        mean, sd = (references[f"{name}/{block}_{part}"] for part in ("mean", "sd"))
        assert (references[f"{name}/{block}_mcse"] < 0.02 * sd).all()
        assert np.abs((values.mean((0, 1)) - mean) / sd).max() <= 0.15
        assert np.abs(values.std((0, 1)) / sd - 1.0).max() <= 0.10
    assert max(clf.summary()["r_hat"].max() for clf in fits) <= 1.02


@pytest.mark.statistical
def test_scales_of_separated_classes_mix():
    """Of 12 classes of 17 rows each, which a normal noise around their centres keeps apart.

    R-hat of the scale is 1.01. With flat intercepts it was 1.6, and 1.05 to 1.11 with a scale that
    is integrated out.
    """
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 17)
    X = 2.0 * rng.standard_normal((12, 20))[y] + rng.standard_normal((len(y), 20))
    clf = BayesianLogisticRegression(prior_scale="learned", random_state=0).fit(X, y)
    assert clf.summary()["r_hat"].max() <= 1.03


@pytest.mark.statistical
def test_scales_of_many_categories_are_exact():
    """Rows say little of each category: chains began at scales near zero, and stayed there.

    The posterior of the scale is that of quadrature, over the intercept and each category's effect:
    its mean to 0.3 sds (three standard errors with 100 effective draws) and its sd to 25%.
    """
    n_categories, n_each = 400, 5
    rng = np.random.default_rng(0)
    ones = rng.binomial(n_each, expit(rng.standard_normal(n_categories)))
    y = (np.arange(n_each) < ones[:, None]).ravel()
    X = pd.DataFrame({"g": pd.Categorical(np.repeat(np.arange(n_categories), n_each))})
    a, s_0 = 2.0, 0.05
    clf = BayesianLogisticRegression(prior_scale=LearnedScale(a, s_0), random_state=0).fit(X, y)
    scale = clf.posterior_["scale"]

    log_s, intercept = np.linspace(-1.5, 1.0, 61), np.linspace(-1.0, 1.0, 41)
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    eta = intercept[:, None, None] + np.exp(log_s)[:, None] * nodes
    log_p = -2.0 * a * log_s - a * s_0**2 * np.exp(-2.0 * log_s)
    for k, count in enumerate(np.bincount(ones)):
        log_p = log_p + count * np.log((expit(eta) ** k * expit(-eta) ** (n_each - k)) @ weights)
    density = np.exp(log_p - log_p.max()).sum(0)
    density /= density.sum()
    mean = density @ np.exp(log_s)
    sd = math.sqrt(density @ (np.exp(log_s) - mean) ** 2)
    assert scale.mean() == pytest.approx(mean, abs=0.3 * sd)
    assert scale.std() == pytest.approx(sd, rel=0.25)


@pytest.mark.statistical
@tiny_fits
@pytest.mark.parametrize("own", [False, True])
def test_units_of_features_do_not_matter(own):
    """The same draws in other units, but for rounding, which is 1e-12 here."""
    X, y = sklearn.datasets.load_iris(return_X_y=True)
    factor = 10.0 ** np.linspace(-4, 4, 4)
    clf = BayesianLogisticRegression(prior_scale=LearnedScale(inputs=own), **TINY)
    one = clf.fit(X, y).posterior_["coef"].copy()
    other = clf.fit(X * factor, y).posterior_["coef"] * factor
    np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-8)


# the estimator ------------------------------------------------------------------------------------


@tiny_fits
def test_learned_means_one_scale():
    X, y = sklearn.datasets.load_iris(return_X_y=True)
    named = BayesianLogisticRegression(prior_scale="learned", **TINY).fit(X, y).posterior_
    given = BayesianLogisticRegression(prior_scale=LearnedScale(), **TINY).fit(X, y).posterior_
    assert named.shapes == {"coef": (3, 4), "intercept": (3,), "scale": ()}
    np.testing.assert_array_equal(named["scale"], given["scale"])


@tiny_fits
def test_normal_priors_learn_their_scale_unless_told_otherwise(limits):
    """Not where a scale would mix slowly: more features of an array than a dense matrix has."""
    X, y = sklearn.datasets.load_iris(return_X_y=True)

    def blocks(X=X, **parameters):
        return set(BayesianLogisticRegression(**TINY, **parameters).fit(X, y).posterior_.shapes)

    learned = {"coef", "intercept", "scale"}
    assert blocks() == learned
    assert blocks(prior="laplace") == blocks(prior_scale=1.0) == {"coef", "intercept"}
    limits(full_hessian=3)
    assert blocks() == {"coef", "intercept"}
    assert blocks(prior_scale="learned") == learned
    kinds = pd.Categorical(np.arange(150) % 7)  # whose scales are those of columns
    assert blocks(pd.DataFrame({"x": X[:, 0], "kind": kinds})) == learned


@tiny_fits
def test_a_learned_scale_takes_more_steps_only_where_the_prior_has_tails():
    """Classes that overlap determine the coefficients, those that can be separated do not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    apart = X[:, 0] > 0.0
    overlap = X[:, 0] + rng.logistic(size=400) > 0.0
    run = {"n_chains": 2, "n_draws": 50, "random_state": 0}

    def steps(y, prior_scale):
        return BayesianLogisticRegression(prior_scale=prior_scale, **run).fit(X, y).n_steps_

    assert steps(overlap, "learned") == steps(overlap, 1.0)
    assert steps(apart, "learned") > steps(apart, 1.0)


@pytest.mark.statistical
@pytest.mark.parametrize("n_classes", [2, 8])
def test_scales_of_classes_that_overlap_mix_in_short_runs(n_classes):
    """They are as many draws of chains as with a given scale, and R-hat is 1.001."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((1500, 20)), 0.5 * rng.standard_normal((20, n_classes))
    y = (X @ W + rng.gumbel(size=(1500, n_classes))).argmax(1)
    clf = BayesianLogisticRegression(n_draws=400, random_state=0).fit(X, y)
    assert clf.summary()["r_hat"].max() <= 1.02


@tiny_fits
def test_scales_of_features_have_names():
    X, y = sklearn.datasets.load_iris(return_X_y=True, as_frame=True)
    clf = BayesianLogisticRegression(prior_scale=LearnedScale(inputs=True), **TINY).fit(X, y)
    shapes = {"coef": (3, 4), "intercept": (3,), "scale": (4,), "shared_scale": ()}
    assert clf.posterior_.shapes == shapes
    names = list(clf.summary()["name"])
    assert "scale[petal width (cm)]" in names and "shared_scale" in names


@tiny_fits
@pytest.mark.parametrize("sampler", ["sgld", "psgld", "sghmc", "msgnht", "mclmc", "mala"])
@pytest.mark.parametrize("own", [False, True])
def test_every_sampler_learns_scales(sampler, own):
    X, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    X = X[:, :4] / X[:, :4].std(0)  # plain pSGLD refuses features as correlated as raw ones
    clf = BayesianLogisticRegression(
        sampler=sampler, prior_scale=LearnedScale(inputs=own), **(TINY | {"burn_in": 200})
    ).fit(X, y)
    assert clf.score(X, y) > 0.85 and clf.posterior_["scale"].std() > 0.0


@tiny_fits
def test_sparse_rows_streams_and_options():
    """CSR rows give the draws of dense ones; streams keep the units of their first rows."""
    X, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    X = X * (np.median(X, axis=0) < X)
    for own in (False, True):
        clf = BayesianLogisticRegression(prior_scale=LearnedScale(inputs=own), **TINY)
        dense = clf.fit(X, y).posterior_["coef"].copy()
        rows = sp.csr_matrix(X)
        np.testing.assert_allclose(clf.fit(rows, y).posterior_["coef"], dense, rtol=1e-5)
        stream = BayesianLogisticRegression(prior_scale=LearnedScale(inputs=own), **TINY)
        for part in range(3):
            stream.partial_fit(X[part::3], y[part::3])
        assert stream.score(X, y) > 0.9 and np.isfinite(stream.posterior_["scale"]).all()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_rare_words_have_the_prior_of_frequent_ones(kind):
    """A word of one document and one of eight have coefficients of about the same spread.

    The prior is the same, and eight rows say little more than one. With units of one over each
    word's own sd, the prior sd of the rarer word was sqrt(8) times as large, and so was nearly the
    posterior's. A column of other numbers, here of incomes that few have, has a unit of its own.
    """
    rng = np.random.default_rng(0)
    X, y = np.zeros((200, 40)), rng.integers(0, 2, 200)
    for j in range(40):
        X[rng.permutation(200)[: 1 if j < 20 else 8], j] = 1.0
    X = np.column_stack([X, 1e5 * rng.exponential(size=200) * (rng.random(200) < 0.4)])
    clf = BayesianLogisticRegression(prior_scale="learned", random_state=0).fit(kind(X), y)
    sd = clf.posterior_.pooled("coef").std(axis=0).ravel()
    once, often = sd[:20].mean(), sd[20:40].mean()
    assert 0.9 < once / often < 2.2
    assert 1e-7 < sd[40] < 1e-5  # a tenth of a unit of its spread and more


def test_few_columns_that_are_mostly_zero_keep_their_units():
    """Two such columns, of a yes or no and of an area, are no sign of a unit that they share.

    So areas in other units give the same predictions. With one scale for both columns, the prior
    would allow less of an effect of the first one, the larger the numbers of the second are.
    """
    rng = np.random.default_rng(0)
    yes, area = rng.random(60) < 0.2, rng.exponential(size=60) * (rng.random(60) < 0.4)
    y = (2.0 * yes + rng.standard_normal(60) > 1.0).astype(int)
    clf = BayesianLogisticRegression(prior_scale="learned", random_state=0)
    tables = [np.column_stack([yes, unit * area]) for unit in (1.0, 20.0)]
    one, other = (clf.fit(X, y).predict_proba(X)[:, 1] for X in tables)
    np.testing.assert_allclose(one, other, atol=0.01)


@tiny_fits
def test_ratios_of_odds_and_temperature_zero():
    """exponentiate=True has medians of ratios. At temperature 0 the scale is that of its mode."""
    X, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    X = X[:, :3]
    clf = BayesianLogisticRegression(prior_scale="learned", **TINY).fit(X, y)
    ratios = clf.summary(exponentiate=True)
    assert ratios["name"] == ["x0", "x1", "x2", "intercept"]  # the scale is no ratio
    draws = clf.posterior_.pooled("coef")[:, 0]
    np.testing.assert_allclose(ratios["median"][:3], np.exp(np.median(draws, axis=0)))
    named = BayesianLogisticRegression(**TINY).fit(X, np.where(y, "well", "ill"))
    table = named.summary(exponentiate=True)
    assert str(table).startswith("odds of 'well' ")
    assert "<th>odds of &#x27;well&#x27;</th>" in table._repr_html_()
    assert str(named.summary()).startswith(" ")
    with pytest.raises(ValueError, match="exponentiate='x'"):
        clf.summary(exponentiate="x")
    cold = BayesianLogisticRegression(temperature=0.0, prior_scale="learned", **TINY).fit(X, y)
    w = cold.posterior_["coef"][:, -1, 0] * X.std(0)
    r = 5.0 + 0.5 * (w**2).sum(1)  # a = 5 and s_0 = min(1, 2 / sqrt(3))
    np.testing.assert_allclose(cold.posterior_["scale"][:, -1], np.sqrt(r / 6.5), rtol=1e-6)


@cases(
    "parameters, message",
    [
        ({"prior": "laplace", "prior_scale": "learned"}, "prior_scale='learned'.*prior='laplace'"),
        ({"prior": Laplace(), "prior_scale": LearnedScale()}, r"prior_scale=.*Laplace\(\)"),
        ({"prior_scale": "learnt"}, "prior_scale='learnt'.*'learned', a positive"),
        ({"prior_scale": LearnedScale(shape=0.0)}, "prior_scale.shape=0.0"),
        ({"prior_scale": LearnedScale(shape="x")}, "prior_scale.shape='x'"),
        ({"prior_scale": LearnedScale(inputs=2)}, "prior_scale.inputs=2"),
        ({"prior_scale": [1.0, 2.0]}, "prior_scale of length 2.*3 features"),
    ],
)
def test_bad_input(parameters, message):
    X, y = np.random.default_rng(0).standard_normal((20, 3)), np.arange(20) % 2
    with pytest.raises(ValueError, match=message):
        BayesianLogisticRegression(**parameters).fit(X, y)


@tiny_fits
def test_constant_features():
    """Columns of one value have the unit 1, and change nothing that users see."""
    X, y = sklearn.datasets.load_iris(return_X_y=True)
    wide = np.hstack([X, np.zeros((150, 1)), np.full((150, 1), 7.0)])
    clf = BayesianLogisticRegression(prior_scale=LearnedScale(inputs=True), **TINY).fit(wide, y)
    assert clf.score(wide, y) > 0.9 and np.isfinite(clf.posterior_["coef"]).all()
