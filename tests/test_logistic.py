"""``BayesianLogisticRegression`` as its users meet it: shapes, equivalences, parameters, seeds.

Where two fits must be equal, they use the same random numbers and differ by rounding alone; the
bound is then 1e-8 of a posterior sd of order one, since a few thousand steps add up rounding errors
of 1e-16 without amplifying them (the chains contract). How right the posterior is, is tested in
``test_posterior_truth.py``.
"""

from __future__ import annotations

import re

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.special
import sklearn
from _cases import cases
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression, BayesianMLPClassifier, MixingDistance
from skbayes_sgmcmc.diagnostics import Summary, mcse, r_hat
from skbayes_sgmcmc.samplers import SGHMC, TABLE
from skbayes_sgmcmc.schedules import BlockDecay, Cyclical, Exponential, MultiStep, Polynomial

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: where a few thousand steps add up rounding errors of 1e-16
ROUNDING = 1e-8
SMALL = {"n_draws": 50, "n_chains": 2, "random_state": 0}


def small(**parameters):
    return BayesianLogisticRegression(**(SMALL | parameters))


def assert_same_draws(a, b, atol=ROUNDING):
    for name in ("coef", "intercept"):
        np.testing.assert_allclose(a.posterior_[name], b.posterior_[name], rtol=0, atol=atol)


@pytest.fixture(scope="module")
def fitted(iris):
    return BayesianLogisticRegression(n_draws=200, n_chains=2, random_state=0).fit(*iris)


# what draws mean ----------------------------------------------------------------------------------


def assert_draws_are_linear_models(clf, X, classes):
    """Probabilities are those of the named coefficients and intercepts, averaged over draws."""
    coef, intercept = clf.posterior_["coef"], clf.posterior_["intercept"]
    logits = X @ np.swapaxes(coef, -1, -2) + intercept[:, :, None]  # (chains, draws, rows, k)
    if len(classes) == 2:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=-1)
    of_draws = scipy.special.softmax(logits, axis=-1)
    flat = of_draws.reshape(-1, *of_draws.shape[2:])
    np.testing.assert_allclose(clf.predict_proba_samples(X), flat, rtol=1e-9)
    p = clf.predict_proba(X)
    # two classes: from the moments of the logits, to 0.001 (test_logit_moments.py)
    exactly = {"rtol": 0, "atol": 1e-3} if len(classes) == 2 else {"rtol": 1e-9}
    np.testing.assert_allclose(p, flat.mean(0), **exactly)
    odds = scipy.special.logit(p[:, 1]) if len(classes) == 2 else np.log(p)
    np.testing.assert_allclose(clf.decision_function(X), odds, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(clf.coef_, coef.mean((0, 1)), rtol=1e-12)
    np.testing.assert_allclose(clf.intercept_, intercept.mean((0, 1)), rtol=1e-12)
    np.testing.assert_array_equal(clf.classes_, classes)


def test_draws_of_two_classes_are_one_linear_model_each(binary):
    """Of the second class; as scikit-learn has it, with one row of coefficients."""
    clf = small().fit(*binary)
    assert clf.posterior_["coef"].shape == (2, 50, 1, 6)
    assert_draws_are_linear_models(clf, binary[0], [0, 1])


def test_draws_of_more_classes_are_a_linear_model_for_each(fitted, iris):
    assert fitted.posterior_["coef"].shape == (2, 200, 3, 4)
    assert_draws_are_linear_models(fitted, iris[0], [0, 1, 2])


def test_multinomial_intercepts_sum_to_zero_in_every_draw(fitted):
    intercepts = fitted.posterior_["intercept"]
    assert np.abs(intercepts).max() > 1.0  # else the next line says nothing
    np.testing.assert_allclose(intercepts.sum(-1), 0.0, atol=1e-12 * np.abs(intercepts).max())


def test_fit_intercept_false(binary, iris):
    for X, y in (binary, iris):
        clf = small(fit_intercept=False).fit(X, y)
        assert not clf.posterior_["intercept"].any()
        at_zero = clf.predict_proba(np.zeros((1, X.shape[1])))
        np.testing.assert_allclose(at_zero, 1.0 / len(clf.classes_), rtol=1e-12)


# equivalences -------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["balanced", {0: 3.0, 1: 0.5}])
def test_class_weight_is_a_sample_weight(binary, given):
    X, y = binary
    unequal = (y == 1) | (np.arange(len(y)) % 3 == 0)
    X, y = X[unequal], y[unequal]
    counts = np.bincount(y)
    per_class = len(y) / (2.0 * counts) if given == "balanced" else np.array([3.0, 0.5])
    assert_same_draws(
        small(class_weight=given).fit(X, y), small().fit(X, y, sample_weight=per_class[y])
    )


def test_a_number_is_the_weight_of_each_row(binary):
    """As for scikit-learn's estimators."""
    X, y = binary
    assert_same_draws(
        small().fit(X, y, sample_weight=2.0), small().fit(X, y, sample_weight=np.full(len(y), 2.0))
    )


def test_class_weight_multiplies_sample_weight(binary):
    X, y = binary
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    both = small(class_weight={0: 2.0, 1: 1.0}).fit(X, y, sample_weight=weight)
    assert_same_draws(both, small().fit(X, y, sample_weight=weight * np.where(y == 0, 2.0, 1.0)))


def test_balanced_classes_have_equal_sums_of_weights(binary):
    """Those of the rows count, and not their numbers: half of the sum of all for each class."""
    X, y = binary
    weight = np.where(y == 0, 3.0, 0.5) * np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    total = np.bincount(y, weight)
    both = small(class_weight="balanced").fit(X, y, sample_weight=weight)
    expected = weight * (weight.sum() / (2.0 * total))[y]
    assert_same_draws(both, small().fit(X, y, sample_weight=expected))


# prior --------------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_prior_scale_per_feature(binary):
    """A scale of 1e-3 holds its coefficient; an equal scale for all is the scalar."""
    X, y = binary
    scales = np.array([1.0, 1e-3, 1.0, 1.0, 1e-3, 1.0])
    clf = small().set_params(prior_scale=scales, n_draws=300).fit(X, y)
    sd = clf.posterior_.std("coef")[0]
    # the data say nothing at this scale, so the posterior's sd is the prior's, with a Monte Carlo
    # error of 1/sqrt(2 x 150): 0.25 is four of them
    np.testing.assert_allclose(sd[scales < 1.0], 1e-3, rtol=0.25)
    assert (sd[scales == 1.0] > 0.03).all()
    assert_same_draws(small(prior_scale=2.0).fit(X, y), small(prior_scale=[2.0] * 6).fit(X, y))


@pytest.mark.statistical
@pytest.mark.parametrize("prior", ["normal", "laplace"])
def test_prior_alone(prior):
    """Without information in X the posterior of the coefficients is the prior.

    Every row is zero but for the intercept's ones. sd of N(0, s^2) is s, that of Laplace(s) is
    s sqrt(2). Draws of the default chains have an effective size of 800 to 1,600, so Laplace sds
    have errors of 3 to 5%: five standard errors, which a few values from the tails make larger, and
    1% for the bias of the steps. Means have errors of 3%.
    """
    X, y = np.zeros((200, 3)), np.arange(200) % 2
    clf = BayesianLogisticRegression(prior=prior, prior_scale=0.7, random_state=0).fit(X, y)
    expected = 0.7 if prior == "normal" else 0.7 * np.sqrt(2.0)
    error = mcse(clf.posterior_, "coef", "sd")
    assert (error < 0.07 * expected).all()
    assert (np.abs(clf.posterior_.std("coef") - expected) <= 5.0 * error + 0.01 * expected).all()
    np.testing.assert_allclose(clf.coef_, 0.0, atol=0.15 * expected)


# predictions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_agree_with_each_other(iris, weighted):
    X, y = iris
    step_size = Polynomial(first=0.05, last=0.01) if weighted else "auto"
    clf = small(step_size=step_size).fit(X, y)
    p = clf.predict_proba(X)
    assert (clf.posterior_.weights is not None) == weighted
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[p.argmax(1)])
    np.testing.assert_allclose(clf.predict_log_proba(X), np.log(p), rtol=1e-12)
    samples = clf.predict_proba_samples(X)
    assert samples.shape == (100, 150, 3)
    np.testing.assert_allclose(samples.sum(2), 1.0, rtol=1e-12)
    averaged = np.average(samples, axis=0, weights=clf.posterior_.pooled_weights())
    np.testing.assert_allclose(averaged, p, rtol=1e-12)


def test_small_probabilities_keep_their_logarithm():
    """1 - p would be 0, and its logarithm -inf, from a logit of 37 on."""
    X, y = np.array([[-1.0], [1.0]] * 20), np.array([0, 1] * 20)
    clf = small(prior_scale=10.0).fit(X, y)
    far = clf.predict_log_proba([[-30.0], [30.0]])
    assert np.isfinite(far).all() and far.min() < -37.0


def test_uncertainty(fitted, iris):
    X = np.vstack([iris[0], iris[0][:5] * 3.0])
    found = fitted.predict_uncertainty(X)
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(found.total, -(p * np.log(p)).sum(1), rtol=1e-10)
    assert all((values >= 0.0).all() for values in found.values())
    assert (found.total <= np.log(3.0) + 1e-12).all()
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic, atol=1e-12)
    draws = fitted.predict_proba_samples(X)
    entropies = -(draws * np.log(draws)).sum(2)
    np.testing.assert_allclose(found.aleatoric, entropies.mean(0), rtol=1e-10)


def test_single_draws(fitted, iris, limits):
    X = iris[0]
    chosen = fitted.predict_proba_samples(X, n_draws=7, random_state=3)
    assert chosen.shape == (7, 150, 3)
    np.testing.assert_array_equal(
        chosen, fitted.predict_proba_samples(X, n_draws=7, random_state=3)
    )
    assert (chosen != fitted.predict_proba_samples(X, n_draws=7, random_state=4)).any()
    whole, uncertain = fitted.predict_proba_samples(X), fitted.predict_uncertainty(X)
    # in blocks that hold 40 rows only
    limits(block_numbers=400 * 3 * 40)
    blocks = list(fitted.iter_proba_samples(X))
    assert [block.shape[1] for block in blocks] == [40, 40, 40, 30]
    np.testing.assert_allclose(np.concatenate(blocks, axis=1), whole, rtol=1e-12)
    again = fitted.predict_uncertainty(X)
    np.testing.assert_allclose(again.epistemic, uncertain.epistemic, atol=1e-12)


def test_sample_posterior(fitted):
    everything = fitted.sample_posterior()
    np.testing.assert_array_equal(everything["coef"], fitted.posterior_["coef"].reshape(400, 3, 4))
    some = fitted.sample_posterior(30, random_state=1)
    assert some["coef"].shape == (30, 3, 4) and some["intercept"].shape == (30, 3)
    again, other = (fitted.sample_posterior(30, random_state=seed) for seed in (1, 2))
    np.testing.assert_array_equal(some["coef"], again["coef"])
    assert (some["coef"] != other["coef"]).any()
    # coefficients and intercepts of one draw stay together
    rows = {row.tobytes(): i for i, row in enumerate(everything["coef"])}
    picked = [rows[row.tobytes()] for row in some["coef"]]
    np.testing.assert_array_equal(some["intercept"], everything["intercept"][picked])
    with pytest.raises(ValueError, match="n_samples=0"):
        fitted.sample_posterior(0)


def test_summary(binary):
    pd = pytest.importorskip("pandas")
    names = ["age", "blood pressure", "x", "y", "z", "w"]
    X = pd.DataFrame(binary[0], columns=names)
    clf = small().fit(X, binary[1])
    table = clf.summary(coverage=0.5)
    assert table["name"] == [*names, "intercept", "scale"]
    means = [*clf.coef_[0], *clf.intercept_, clf.posterior_.mean("scale")]
    np.testing.assert_allclose(table["mean"], means, rtol=1e-12)
    pooled = clf.posterior_.pooled("coef")[:, 0, 1]
    assert table["lower"][1] == pytest.approx(np.quantile(pooled, 0.25))
    frame = table.to_frame()
    assert frame.loc["blood pressure", "sd"] == pytest.approx(pooled.std())
    assert "blood pressure" in repr(table)
    assert len(repr(table).splitlines()) == 9


def test_summary_is_a_table_in_notebooks():
    """Every number that is printed is a cell, and names are text."""
    table = Summary(
        {"name": ["<b>", "y"], "mean": np.array([0.5, 1.0]), "sd": np.array([2.0, 3.0])}
    )
    page = table._repr_html_()
    assert re.findall("<th>(.*?)</th>", page) == ["", "mean", "sd", "&lt;b&gt;", "y"]
    cells = [cell for line in repr(table).splitlines()[1:] for cell in line.split()[1:]]
    assert re.findall("<td>(.*?)</td>", page) == cells


def test_summary_names_classes(fitted):
    names = fitted.summary()["name"]
    assert names[:5] == ["0: x0", "0: x1", "0: x2", "0: x3", "1: x0"]
    assert names[-4:] == ["0: intercept", "1: intercept", "2: intercept", "scale"]


# random streams, processes, precision -------------------------------------------------------------


@pytest.mark.slow  # test_every_estimator.py has jobs without processes
def test_jobs_in_other_processes_have_the_same_draws(binary):
    """20 rows of 400 at a step, so that minibatches count."""
    explicit = {"step_size": 0.1, "batch_size": 20, "integrator": "leimkuhler_matthews"}
    for parameters in ({}, explicit):
        one, two = (small(n_jobs=n, n_chains=3, **parameters).fit(*binary) for n in (None, 2))
        assert_same_draws(one, two)


def test_random_state(binary):
    """Without one, and with a generator, which goes on, draws are others in each fit."""
    for state in (None, np.random.RandomState(0)):
        one, other = (small(random_state=state).fit(*binary) for _ in range(2))
        assert (one.posterior_["coef"] != other.posterior_["coef"]).any()


def test_float32(binary):
    """Same random numbers: float32 draws are float64 draws but for rounding of about 1e-6."""
    X, y = binary
    single, double = (small(dtype=d).fit(X, y) for d in ("float32", "float64"))
    assert single.posterior_["coef"].dtype == np.float32
    assert single.coef_.dtype == np.float64
    assert double.posterior_["coef"].dtype == np.float64
    assert_same_draws(single, double, atol=1e-3)
    np.testing.assert_allclose(single.predict_proba(X), double.predict_proba(X), atol=1e-3)


@cases("kind", [np.float32, np.int64, np.int8, bool])
def test_kinds_of_x(kind):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 4))
    y = (X[:, 0] + rng.integers(0, 2, 200) > 1).astype(int)
    np.testing.assert_allclose(
        small().fit(X.astype(kind), y).coef_, small().fit(X.astype(float), y).coef_, atol=1e-5
    )


def test_columns_that_share_an_intercept_mix_without_their_full_curvature(limits):
    """Two columns of categories in full: all rows are used, in which slow directions are changed.

    In minibatches, R-hat of the intercept was 1.5 here.
    """
    limits(full_hessian=50, worth_sparse=50)
    rng, n = np.random.default_rng(0), 30_000
    each = [rng.integers(0, 80, n) for _ in range(2)]
    columns = [sp.csr_matrix((np.ones(n), (np.arange(n), g)), (n, 80)) for g in each]
    clf = BayesianLogisticRegression(prior_scale=20.0, n_draws=250, random_state=0)
    clf.fit(sp.hstack(columns).tocsr(), rng.random(n) < 0.5)
    assert r_hat(clf.posterior_, "intercept").max() <= 1.03


# parameters, searches, routing --------------------------------------------------------------------


def test_search_over_step_size_and_a_parameter_of_the_sampler(binary):
    pipeline = make_pipeline(StandardScaler(), small(sampler=SGHMC(), n_draws=20, burn_in=50))
    grid = {
        "bayesianlogisticregression__step_size": [1e-3, 1.0],
        "bayesianlogisticregression__sampler__friction": [0.1, 0.5],
    }
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(*binary)
    best = search.best_estimator_[-1]
    # at 1e-3, 70 steps from near zero move nothing
    assert best.step_size == 1.0
    assert best.sampler.friction == search.best_params_[list(grid)[1]]
    assert search.predict_proba(binary[0]).shape == (400, 2)


def test_grids_made_of_arrays(binary):
    """Their values are np.str_, np.bool_ and np.int64, which are as good as Python's."""
    grid = {
        "sampler": np.array(["sgld", "sghmc"]),
        "fit_intercept": np.array([True]),
        "n_draws": np.array([20]),
    }
    search = GridSearchCV(small(), grid, cv=2, error_score="raise").fit(*binary)
    assert search.best_params_["sampler"] in ("sgld", "sghmc")


def test_sample_weight_is_routed(binary):
    X, y = binary
    weight = np.where(np.arange(len(y)) % 2, 1.0, 3.0)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), small().set_fit_request(sample_weight=True))
        pipeline[0].set_fit_request(sample_weight=False)
        routed = pipeline.fit(X, y, sample_weight=weight)[-1]
    direct = small().fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    assert_same_draws(routed, direct)


def test_clone_and_representations(fitted):
    with_parts = BayesianLogisticRegression(
        sampler=SGHMC(friction=0.3), step_size=Polynomial(first=0.1, last=0.01)
    )
    copy = clone(with_parts)
    assert copy.sampler is not with_parts.sampler and copy.sampler.friction == 0.3
    assert copy.get_params()["step_size__first"] == 0.1
    assert "SGHMC(friction=0.3)" in repr(with_parts)
    assert "BayesianLogisticRegression" in fitted._repr_html_()
    assert not hasattr(clone(fitted), "posterior_")


@pytest.mark.parametrize("step_size", ["auto", 0.1])
@pytest.mark.parametrize(
    ("sampler", "integrator"),
    [
        (name, cell)
        for name, (_, cells) in TABLE.items()
        for cell in cells
        if name not in ("rsgld", "gibbs")
    ],
)
def test_every_cell_of_the_table(sampler, integrator, step_size):
    """Each fits, and agrees on the labels with a point estimate under the same prior.

    The labels differ only where the probability is near 1/2: in a few of a hundred rows. The given
    step reaches the posterior along its flattest direction in some hundred steps. No feature is a
    sum of others, for which pSGLD's preconditioner would be refused on some data.
    """
    X, y = make_classification(400, 6, n_informative=4, n_redundant=0, random_state=0)
    X = StandardScaler().fit_transform(X)
    burn_in = "auto" if step_size == "auto" else 500
    clf = small(sampler=sampler, integrator=integrator, step_size=step_size, burn_in=burn_in)
    agree = np.mean(clf.fit(X, y).predict(X) == LogisticRegression().fit(X, y).predict(X))
    assert agree > 0.93
    if sampler == "mala":
        assert (clf.posterior_.statistics["acceptance_rate"] > 0.3).all()


def test_weights_of_zero_are_refused_by_name_with_balanced_classes():
    clf = small(class_weight="balanced")
    with pytest.raises(ValueError, match="sample_weight is zero for every row"):
        clf.fit(np.eye(4), [0, 1, 0, 1], sample_weight=np.zeros(4))
    clf.fit(np.eye(4), [0, 1, 0, 1])  # averages were divided by zero
    with pytest.raises(ValueError, match="sample_weight is zero for every row"):
        clf.score(np.eye(4), [0, 1, 0, 1], sample_weight=np.zeros(4))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_classes_without_weight_can_not_be_balanced():
    """No factor makes their sum that of the others. A dict, or leaving the rows out, is allowed."""
    X, y = np.random.default_rng(0).standard_normal((30, 2)), np.arange(30) % 3
    weight, some = (y < 2) * 1.0, y < 2
    clf = small(class_weight="balanced")
    refused = r"class_weight='balanced' is not allowed here: class 2 has no row of positive weight"
    with pytest.raises(ValueError, match=refused):
        clf.fit(X, y, sample_weight=weight)
    assert clf.fit(X[some], y[some]).classes_.tolist() == [0, 1]
    clf.set_params(class_weight={0: 1.0, 1: 2.0, 2: 1.0}).fit(X, y, sample_weight=weight)
    assert clf.classes_.tolist() == [0, 1, 2]


def test_streams_can_not_be_balanced():
    """Each part would have weights of its own, as in no fit of all rows; scikit-learn refuses it.

    Of eight parts, of which four had a tenth of class 1 and four a half, coefficients were off by
    eight posterior sds.
    """
    X, y = np.random.default_rng(0).standard_normal((30, 2)), np.arange(30) % 2
    for clf in (small(class_weight="balanced"), BayesianMLPClassifier(class_weight="balanced")):
        with pytest.raises(ValueError, match=r"class_weight='balanced' is not allowed in partial_"):
            clf.partial_fit(X, y)
    small(class_weight={0: 1.0, 1: 2.0}).partial_fit(X, y)


def test_rsgld_needs_a_metric(binary):
    with pytest.raises(ValueError, match=r"RSGLD is not allowed: .*LogisticModel has no metric"):
        small(sampler="rsgld").fit(*binary)


@pytest.mark.statistical
def test_temperature(binary):
    """Var is proportional to T near a Gaussian: a quarter of T halves the sd.

    The prior's part of the curvature and the skewness of the posterior are small here (400 rows).
    The bound is four Monte Carlo errors of a ratio of sds, sqrt(2) / sqrt(2 ESS) with ESS > 800.
    """
    warm, cold = (
        BayesianLogisticRegression(temperature=t, n_chains=2, random_state=0).fit(*binary)
        for t in (1.0, 0.25)
    )
    ratio = cold.posterior_.std("coef") / warm.posterior_.std("coef")
    np.testing.assert_allclose(ratio, 0.5, atol=0.5 * 4 / np.sqrt(800))


@pytest.mark.parametrize(
    "schedule",
    [
        Polynomial(first=0.3, last=0.03),
        Polynomial(a=1.0, b=10.0, gamma=0.55),
        Exponential(0.3, last=0.03),
        BlockDecay(0.3, every=40),
        MultiStep(0.3, milestones=(60, 90)),
        Cyclical(0.3, n_cycles=2),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_schedules_as_step_size(binary, schedule):
    X, y = binary
    X = StandardScaler().fit_transform(X)
    clf = small(step_size=schedule).fit(X, y)
    posterior = clf.posterior_
    assert (posterior.weights is not None) == schedule.weights_draws
    if schedule.weights_draws:
        assert posterior.weights.shape == (posterior.n_draws,)
        weighted = np.average(posterior["coef"].mean(0), axis=0, weights=posterior.weights)
        np.testing.assert_allclose(clf.coef_, weighted, rtol=1e-12)
    # 150 steps don't reach the posterior along its flattest direction
    assert np.mean(clf.predict(X) == LogisticRegression().fit(X, y).predict(X)) > 0.85


@pytest.mark.statistical
@pytest.mark.parametrize("distance", [None, 0.5])
def test_mixing_distance(binary, distance):
    """With D0 given, draws come each time the steps add up to more than it."""
    thinning = MixingDistance(n_steps=400, distance=distance, noise_ratio=1.0)
    X = StandardScaler().fit_transform(binary[0])
    clf = small(step_size=Polynomial(first=0.2, last=0.02), burn_in=0, thinning=thinning)
    posterior = clf.set_params(n_draws=1000).fit(X, binary[1]).posterior_
    assert posterior.weights is None
    assert 10 < posterior.n_draws < 400
    if distance is not None:
        etas = Polynomial(first=0.2, last=0.02).values(np.arange(400), 400)
        kept, travelled = 0, 0.0
        for eta in etas:
            travelled += eta
            if travelled > distance:
                kept, travelled = kept + 1, 0.0
        assert posterior.n_draws == kept


def test_mixing_distance_in_two_jobs(binary):
    """Each group finds its own D0, so they may keep unequal numbers of draws: the fewer counts."""
    thinning = MixingDistance(n_steps=300, noise_ratio=1.0)
    clf = small(step_size=Polynomial(first=0.5, last=0.02), burn_in=0, thinning=thinning, n_jobs=2)
    X = StandardScaler().fit_transform(binary[0])
    with joblib.parallel_config("threading"):
        posterior = clf.set_params(n_draws=1000).fit(X, binary[1]).posterior_
    assert posterior.n_chains == 2 and posterior.n_draws > 10
    assert np.isfinite(posterior["coef"]).all()
