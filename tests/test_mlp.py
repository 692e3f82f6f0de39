"""BayesianMLPClassifier: accuracy, what a classifier must do, and what it refuses."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.special
from _cases import cases
from _mlp import small
from _posteriors import assert_same_draws
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import PolynomialFeatures

from skbayes_sgmcmc import BayesianMLPClassifier, BayesianMLPRegressor, SamplingWarning
from skbayes_sgmcmc.samplers import PSGLD
from skbayes_sgmcmc.schedules import Polynomial

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


@pytest.fixture(scope="module")
def fitted(iris):
    """A short fit at the other defaults; not to be fitted again."""
    return small().fit(*iris)


# sparse rows --------------------------------------------------------------------------------------


@cases("standardize", [True, False])
@cases("n_columns", [10, 300])
@cases("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_sparse_rows_are_those_of_the_dense_table(kind, n_columns, standardize):
    """Though zeros are standardised, too. One column in ten has many numbers, and one has none."""
    rng = np.random.default_rng(0)
    share = np.where(np.arange(n_columns) % 10 == 1, 0.8, 0.03)
    X = rng.normal(2.0, 3.0, (120, n_columns)) * (rng.random((120, n_columns)) < share)
    X[:, 4] = 0.0
    y, weight = (X[:, 1] > 1.0).astype(int), rng.exponential(size=120)
    short = {"n_draws": 5, "burn_in": 10, "thinning": 2, "n_chains": 2, "random_state": 0,
             "max_steps": 20}  # fmt: skip
    model = kind(5, standardize=standardize, dtype="float64", **short)
    dense = clone(model).fit(X, y, sample_weight=weight)
    assert_same_draws(dense, model.fit(sp.csr_matrix(X), y, sample_weight=weight), atol=1e-8)
    predict = "predict" if kind is BayesianMLPRegressor else "predict_proba"
    of_both = [getattr(dense, predict)(rows) for rows in (X, sp.coo_matrix(X))]
    np.testing.assert_allclose(*of_both, atol=1e-8)
    stream = clone(model).partial_fit(sp.csr_matrix(X[:60]), y[:60])
    stream.partial_fit(X[60:], y[60:])
    of_dense = clone(model).partial_fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
    assert_same_draws(of_dense, stream, atol=1e-8)


# what it is for -----------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.slow
def test_digits_at_the_defaults():
    """One shuffled split, 360 rows held out: 98.3% was measured, sd 0.8% by rows alone.

    The bound leaves five rows. Each chain covers a part of the posterior: they may warn of that,
    and of nothing else.
    """
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(X, y, test_size=0.2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the chains have not mixed well")
        clf = BayesianMLPClassifier(random_state=0).fit(parts[0], parts[2])
    assert clf.score(parts[1], parts[3]) >= 0.97
    assert (clf.n_chains_, clf.n_draws_, clf.batch_size_, clf.step_size_) == (4, 100, 100, 2e-3)
    # the mean over draws is worth more than a draw: less log loss than the draws' own, on average
    p = clf.predict_proba_samples(parts[1], n_draws=20, random_state=0)
    alone = np.mean([log_loss(parts[3], one) for one in p])
    assert log_loss(parts[3], clf.predict_proba(parts[1])) < alone


@pytest.mark.statistical
@pytest.mark.parametrize(
    "load, least",
    [
        (load_iris, 0.9),
        pytest.param(load_wine, 0.9, marks=pytest.mark.slow),
        pytest.param(load_breast_cancer, 0.9, marks=pytest.mark.slow),
    ],
)
def test_small_sets_as_they_come(load, least):
    """Unscaled features of unlike units (1e-3 to 1e3): standardised inside, no tuning.

    A third held out (50 to 190 rows), of which 96 to 100% were measured; 90% is two to six standard
    errors below, and far above the largest class (33 to 63%).
    """
    X, y = load(return_X_y=True)
    parts = train_test_split(X, y, test_size=1 / 3, random_state=0, stratify=y)
    clf = small(hidden_layer_sizes=20, burn_in=800, n_draws=40, thinning=10)
    clf.fit(parts[0], parts[2])
    assert clf.score(parts[1], parts[3]) >= least
    p = clf.predict_proba(parts[1])
    assert log_loss(parts[3], p) < 0.35
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)


def test_scale_and_offset_of_features_do_not_matter(iris):
    """Standardised inside: the same draws up to rounding of the inputs; else not."""
    X, y = iris
    other = 1e-3 * X * np.array([1.0, 1e4, 1e-4, 7.0]) + np.array([0.0, 5.0, 1.0, -2.0])
    assert_same_draws(small().fit(X, y), small().fit(other, y), atol=1e-6)
    p = small(standardize=False).fit(X, y).predict_proba(X)
    q = small(standardize=False).fit(other, y).predict_proba(other)
    assert np.abs(p - q).max() > 0.05


def test_descent_finds_a_mode(iris):
    """init="map" at temperature 0 throughout is an optimiser: far below a random start's loss.

    At random, probabilities averaged over many chains are those of the prior, 1/3, and the log loss
    is log 3 = 1.1; separable rows and a weak prior allow for a loss below 0.1.
    """
    X, y = iris
    options = {"temperature": 0.0, "init": "map", "thinning": 1, "hidden_layer_sizes": 20}
    losses = [
        log_loss(y, small(**options, **length, n_draws=1).fit(X, y).predict_proba(X))
        for length in ({"burn_in": 0, "n_chains": 40}, {"burn_in": 1500})
    ]
    assert losses[0] > 0.8
    assert losses[1] < 0.1


@cases("burn_in", [40, 41])
def test_descent_is_the_first_half_of_the_burn_in(iris, burn_in, monkeypatch):
    """At temperature 0, without noise; with init="random", and after a warm start, none is."""
    seen, euler = [], PSGLD.euler

    def recorded(self, theta, state, step):
        seen.append(step.temperature)
        euler(self, theta, state, step)

    monkeypatch.setattr(PSGLD, "euler", recorded)
    options = {"burn_in": burn_in, "n_draws": 5, "thinning": 1, "warm_start": True}
    for init, cold in (("map", burn_in // 2), ("auto", burn_in // 2), ("random", 0)):
        clf = small(init=init, **options).fit(*iris)
        assert seen == [0.0] * cold + [1.0] * (burn_in + 5 - cold)
        seen.clear()
        clf.fit(*iris)
        assert set(seen) == {1.0}
        seen.clear()


# labels and weights -------------------------------------------------------------------------------


def test_two_classes(iris):
    X, y = iris
    clf = small().fit(X, np.where(y == 1, "yes", "no"))
    p = clf.predict_proba(X)
    assert p.shape == (150, 2)
    np.testing.assert_allclose(clf.decision_function(X), scipy.special.logit(p[:, 1]), rtol=1e-6)


# chains, seeds, jobs ------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["psgld", "sgld", "sghmc", "sgnht", "msgnht"])
def test_every_sampler_at_its_own_step_size(iris, sampler):
    """ "auto" is stable and learns: 80% is far above chance (33%) after 600 steps."""
    clf = small(sampler=sampler, burn_in=600, n_draws=20, hidden_layer_sizes=20).fit(*iris)
    assert clf.score(*iris) > 0.8


# going on -----------------------------------------------------------------------------------------


def test_warm_start_goes_on(iris, limits):
    """Two runs of n draws are one of 2n where portions of random numbers end.

    PSGLD's V goes on adapting in both, since there is no burn-in.
    """
    limits(chunk_steps=64)
    n = 64
    options = {"burn_in": 0, "thinning": 1, "batch_size": 1000, "hidden_layer_sizes": 300}
    whole = small(n_draws=2 * n, **options).fit(*iris)
    clf = small(n_draws=n, warm_start=True, **options).fit(*iris)
    first = clf.posterior_["weight_2"]
    both = np.concatenate([first, clf.fit(*iris).posterior_["weight_2"]], axis=1)
    np.testing.assert_allclose(both, whole.posterior_["weight_2"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("change", [{"hidden_layer_sizes": (4, 3)}, {"n_chains": 3}], ids=str)
def test_warm_start_with_another_network_starts_anew(iris, change):
    X, y = iris
    clf = small(warm_start=True).fit(1e3 * X, y)
    clf.set_params(**change).fit(X, y)
    assert_same_draws(clf, small(**change).fit(X, y))


def test_a_stream():
    """Chunks of 50 rows, seen once each: what follows is predicted, all classes named at first.

    By a plane that divides the rows. Chance has 0.5, with a standard error of 0.02 for 500 rows.
    """
    X = np.random.default_rng(0).standard_normal((3000, 5))
    y = (X[:, 0] - X[:, 1] + X[:, 2] > 0.0).astype(int)
    clf = small(n_draws=50, hidden_layer_sizes=10, step_size=0.01)
    for start in range(0, 2500, 50):
        part = slice(start, start + 50)
        clf.partial_fit(X[part], y[part], classes=[0, 1])
    assert clf.posterior_.n_draws == 25  # a step a chunk, of which half is burn-in
    assert clf.score(X[2500:], y[2500:]) > 0.8
    with pytest.raises(ValueError, match="hidden_layer_sizes=11 is not allowed here: the draws"):
        clf.set_params(hidden_layer_sizes=11).partial_fit(X[:50], y[:50])


def test_a_stream_may_begin_with_one_row(iris):
    """Rows that follow are learned from, though the one row has no spread to standardise by.

    At random a third of the labels is right, and two thirds if two classes are not told apart.
    """
    X, y = iris
    clf = small(step_size=0.05).partial_fit(X[-1:], y[-1:], classes=[0, 1, 2])
    np.testing.assert_allclose(clf.predict_proba(X).sum(1), 1.0, rtol=1e-9)
    for _ in range(100):
        clf.partial_fit(X, y)
    assert clf.score(X, y) > 0.75


# files --------------------------------------------------------------------------------------------


def test_a_file_is_its_draws_and_a_few_kilobytes(iris):
    clf = small(hidden_layer_sizes=100, n_draws=50).fit(*iris)
    draws = sum(values.nbytes for values in clf.posterior_.draws.values())
    assert draws == 2 * 50 * (4 * 100 + 100 + 100 * 3 + 3) * 8
    assert len(pickle.dumps(clf)) < draws + 5e3


# predictions --------------------------------------------------------------------------------------


def test_predictions_are_the_draws_average(iris, fitted):
    """From the named blocks by numpy: standardise, two layers, softmax, mean."""
    X, _ = iris
    blocks = fitted.sample_posterior()
    z = (X - X.mean(0)) / X.std(0)
    h = np.maximum(z @ blocks["weight_1"] + blocks["bias_1"][:, None], 0.0)
    p = scipy.special.softmax(h @ blocks["weight_2"] + blocks["bias_2"][:, None], axis=2)
    assert p.shape == (40, 150, 3)
    np.testing.assert_allclose(fitted.predict_proba_samples(X), p, rtol=1e-9)
    np.testing.assert_allclose(fitted.predict_proba(X), p.mean(0), rtol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X), p.mean(0).argmax(1))


def test_weighted_draws(iris):
    """Under a decaying step size draws count by their step."""
    clf = small(step_size=Polynomial(first=0.01, last=1e-4), burn_in=0).fit(*iris)
    weights = clf.posterior_.pooled_weights()
    assert weights.max() > 2.0 * weights.min()
    expected = np.tensordot(weights, clf.predict_proba_samples(iris[0]), axes=1)
    np.testing.assert_allclose(clf.predict_proba(iris[0]), expected, rtol=1e-9)


def test_probabilities_sum_to_one_in_their_own_precision():
    """Draws in float32 sum to 1 up to 1e-7; log_loss warns of float64 that is off by 1.5e-8."""
    X, y = load_digits(return_X_y=True)
    clf = small(dtype="float32").fit(X[:300], y[:300])
    p = clf.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-14)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_loss(y, p)


# what is refused ----------------------------------------------------------------------------------


@cases(
    "parameters, message",
    [
        ({"hidden_layer_sizes": 0}, "hidden_layer_sizes=0 is not allowed: .* at least 1"),
        ({"hidden_layer_sizes": (5, 0)}, "hidden_layer_sizes=0"),
        ({"hidden_layer_sizes": [[5]]}, "hidden_layer_sizes="),
        ({"activation": "gelu"}, "activation='gelu' .* one of 'relu', 'tanh', 'logistic'"),
        ({"prior_scale": [1.0]}, "prior_scale=.* the network has 2 layers"),
        ({"prior_scale": [1.0, 2.0, 3.0]}, "prior_scale=.* the network has 2 layers"),
        ({"prior_scale": [1.0, -1.0]}, "prior_scale=.*a positive number"),
        ({"prior_scale": [1.0, float("nan")]}, "prior_scale="),
        ({"prior_scale": "fan_out"}, "prior_scale='fan_out' .* 'fan_in'"),
        ({"prior_scale": ["a", "b"]}, "prior_scale="),
        ({"sampler": "mala"}, "step_size='auto' is not allowed with MALA .*'psgld'"),
        ({"sampler": "rsgld"}, "sampler=RSGLD is not allowed: NetworkModel has no metric"),
        ({"sampler": "rsgld", "step_size": 0.1}, "sampler=RSGLD is not allowed"),
        ({"sampler": "psgld", "integrator": "baoab"}, "integrator='baoab' is not allowed with"),
        ({"sampler": PSGLD(decay=1.0)}, "sampler.decay=1.0"),
        ({"init": "gaussian"}, "init='gaussian' is not allowed"),
        ({"init": np.zeros(3)}, r"init of shape \(3,\) .* broadcasts to \(2, 51\)"),
    ],
)
def test_bad_parameters_are_named(iris, parameters, message):
    clf = small(**parameters)
    with pytest.raises(ValueError, match=message):
        clf.fit(*iris)
    assert set(vars(clf)) == set(clf.get_params(deep=False))
    with pytest.raises(NotFittedError):
        clf.predict(iris[0])


def test_chains_stay_near_the_data_in_wide_tables():
    """All products of three of ten features: 285 columns of at most 15 sds, and 331 rows.

    With this seed, a chain of pSGLD had weights of 5,900 and predicted 1e21 sds. The targets lie
    within 2.4 sds of their mean, and predictions within 2.4 for seeds 0 to 7 where no chain ran
    away.
    """
    X, y = load_diabetes(return_X_y=True)
    X = PolynomialFeatures(3, include_bias=False).fit_transform(X)
    rows = np.random.default_rng(7).permutation(442)
    reg = BayesianMLPRegressor(sampler="psgld", n_chains=1, random_state=7)
    mean, sd = reg.fit(X[rows[:331]], y[rows[:331]]).predict(X[rows[331:]], return_std=True)
    assert np.abs(mean - y.mean()).max() < 4.0 * y.std() and sd.max() < 8.0 * y.std()


def test_psgld_bounds_a_step_far_too_large(iris):
    """Its cap keeps eta G times the prior's curvature at 1/2: there is no step that overflows."""
    assert np.isfinite(small(step_size=1e6).fit(*iris).predict_proba(iris[0])).all()


# data ---------------------------------------------------------------------------------------------


@cases("kind", ["float16", "float32", "int64", "uint8", "bool"])
def test_features_of_any_type(iris, kind):
    """As their values in float64; float32 ones are standardised in float32, to 1e-6."""
    X, y = (10.0 * iris[0]).round().astype(kind), iris[1]
    clf, expected = small().fit(X, y), small().fit(X.astype(np.float64), y)
    assert_same_draws(expected, clf, atol=1e-3 if kind == "float32" else 0.0)
    np.testing.assert_allclose(
        clf.predict_proba(X), expected.predict_proba(X.astype(float)), atol=1e-3
    )


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6])
def test_constant_columns(iris, constant):
    """They are seen as 0, so that all their values give the same chains and predictions.

    A value never seen changes predictions as much as its distance in units of the feature.
    """
    X, y = iris
    wide = np.column_stack([X, np.full(150, constant)])
    clf = small(burn_in=600).fit(wide, y, sample_weight=np.linspace(0.1, 1.0, 150))
    zero = np.column_stack([X, np.zeros(150)])
    same = small(burn_in=600).fit(zero, y, sample_weight=np.linspace(0.1, 1.0, 150))
    for offset in (0.0, 1.0):  # rounding, of about 1e-10 for 1e6, grows over the steps
        np.testing.assert_allclose(
            clf.predict_proba(wide + offset), same.predict_proba(zero + offset), rtol=0, atol=1e-5
        )
    assert clf.score(wide, y) > 0.8
    assert np.isfinite(clf.predict_proba(wide + 1.0)).all()
    assert np.isfinite(
        small().fit(np.full((20, 3), constant), [0, 1] * 10).predict_proba(wide[:, :3])
    ).all()


def test_slow_mixing_is_warned_of(iris):
    """Of predictions: weights of different chains can't agree. Each warning points at this file.

    Chains that stay at their starts also describe the rows worse than the frequencies do.
    """
    with pytest.warns(SamplingWarning) as caught:
        small(step_size=1e-7).fit(*iris)
    mixing, sense = (str(warning.message) for warning in caught)
    assert "have not mixed well" in mixing and "log loss of single draws" in sense
    assert {warning.filename for warning in caught} == {__file__}
