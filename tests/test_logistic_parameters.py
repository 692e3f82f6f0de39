"""Parameters of logistic regression, searches and metadata routing."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
import sklearn
from _logistic import assert_same_draws, small
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression, BayesianMLPClassifier, MixingDistance
from skbayes_sgmcmc.samplers import SGHMC, TABLE
from skbayes_sgmcmc.schedules import BlockDecay, Cyclical, Exponential, MultiStep, Polynomial

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


@pytest.fixture(scope="module")
def fitted(iris):
    return BayesianLogisticRegression(n_draws=200, n_chains=2, random_state=0).fit(*iris)


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
