"""Fits that are plainly nonsense warn and say what to change; honest fits do not."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from _cases import cases
from _links import messages
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._engine.settled import fall_of_potential
from skbayes_sgmcmc._engine.spread import excess_temperature
from skbayes_sgmcmc.estimators._linear import _differences
from skbayes_sgmcmc.estimators._sense import (
    check_classification,
    check_drift,
    check_regression,
    check_run,
    check_spread,
    some_of_each,
)

RUN = {"n_chains": 2, "n_draws": 20, "burn_in": 200, "thinning": 5, "random_state": 0}
FORMER = {"prior_scale": 1.0, "noise": "infer", "hidden_layer_sizes": (50,)}


def sine(n=100):
    rng = np.random.default_rng(0)
    x = np.r_[rng.uniform(-3.0, -1.0, n // 2), rng.uniform(1.0, 3.0, n // 2)]
    return x[:, None], np.sin(2.0 * x) + 0.1 * rng.standard_normal(n)


def test_noise_beyond_the_spread_of_the_targets():
    """This fit ends at a noise of thousands of sds of y, with finite numbers throughout."""
    run = {"sampler": "sghmc", "step_size": 0.02, "integrator": "splitting", "init": "map",
           "n_chains": 2, "burn_in": 500, "n_draws": 100, "thinning": 5}  # fmt: skip
    with pytest.warns(
        sk.SamplingWarning, match="does not describe its training data.*Give step_size"
    ):
        sk.BayesianMLPRegressor(random_state=0, **run, **FORMER).fit(*sine())


@pytest.mark.slow
def test_the_same_fit_with_a_step_size_of_its_own():
    """The remedy of that warning: the noise is 0.1, and some bending is left to it."""
    reg = sk.BayesianMLPRegressor(sampler="sghmc", random_state=0, **FORMER).fit(*sine())
    noise = 0.3 * np.exp(reg.posterior_["log_noise"]).mean() * sine()[1].std()
    assert 0.09 < noise < 0.2


@pytest.mark.parametrize("sampler", ["sgld", "psgld", "sghmc", "sgnht", "msgnht", "mclmc"])
@pytest.mark.parametrize("step_size", [1e6, 1e-14])
def test_extreme_steps_do_not_pass_in_silence(sampler, step_size):
    """Chains that leave the posterior, or do not move from their starts: an error or a warning."""
    X, y = load_diabetes(return_X_y=True)
    reg = sk.BayesianMLPRegressor(
        hidden_layer_sizes=(8,), sampler=sampler, step_size=step_size, init="random", **RUN
    )
    try:
        assert messages(lambda: reg.fit(X[:100], y[:100]))
    except sk.SamplingError:
        assert not hasattr(reg, "posterior_")


@pytest.mark.parametrize("sampler", ["sgld", "psgld", "sghmc", "sgnht", "msgnht", "mclmc"])
@pytest.mark.parametrize("step_size", [1e6, 100.0, 1e-14])
def test_extreme_steps_of_classifiers_do_not_pass_in_silence(sampler, step_size):
    """The cap of pSGLD hides that steps are too long: accuracy 0.90, and R-hat as it should be."""
    clf = sk.BayesianMLPClassifier(
        hidden_layer_sizes=(8,), sampler=sampler, step_size=step_size, **RUN | {"thinning": 2}
    )
    try:
        assert messages(lambda: clf.fit(*load_iris(return_X_y=True)))
    except sk.SamplingError:
        assert not hasattr(clf, "posterior_")


class Stub(BaseEstimator):
    """What a fit would have predicted: given means and sds of all rows."""

    n_steps_ = 10
    step_size = 0.1
    _takes_all_rows, _automatic_step = True, "step_size='auto'"
    posterior_ = sk.PosteriorSamples({"theta": np.zeros((2, 5, 1))})

    def __init__(self, mean=0.0, sd=1.0, temperature=1.0):
        self.mean, self.sd, self.temperature = mean, sd, temperature

    #: of the draws of two chains
    weights = np.full(10, 0.1)

    def predictive(self, draws, X):
        ones = np.ones((len(draws), len(X), 1))
        mean, variance = ones * self.mean, ones * np.square(self.sd)
        return SimpleNamespace(mean=lambda: mean, variance=lambda: variance)


@cases(
    "mean, sd, message",
    [
        (0.0, 1.0, None),
        (0.6, 1.0, None),  # an error of 1.17 sds of y
        (0.7, 1.0, "further from the training targets than their mean is"),  # 1.22
        (0.0, 1.4, None),
        (0.0, 1.7, "the sd of its predictions is larger than that of the targets"),
    ],
)
def test_bounds_of_regression(mean, sd, message):
    """Targets have mean 0 and sd 1: the error of a constant is 1, and so is its noise."""
    y = np.repeat([-1.0, 1.0], 100)[:, None]
    stub = Stub(mean, sd)
    found = messages(lambda: check_regression(stub, stub, y, y))
    assert len(found) == (message is not None)
    assert all(message in text and "Give step_size" in text for text in found)


@pytest.mark.statistical
def test_few_skewed_targets_are_not_called_nonsense():
    """Of twelve targets with sd sqrt(2) mean, the sd may be small: one honest fit in ten warned.

    The predictive sd is 3.5 sds of y here, and 4 are allowed; 200 rows allow 1.65.
    """
    rng = np.random.default_rng(20)
    X = rng.standard_normal((12, 2))
    y = np.exp(0.5 * X[:, 0]) * rng.gamma(0.5, 2.0, 12)
    reg = sk.BayesianGLMRegressor(likelihood="gamma", random_state=0)
    assert not messages(lambda: reg.fit(X, y))


def test_errors_whose_squares_are_no_numbers_are_compared():
    """Predictions are off by 1e170 sds of y: the warning names the root mean square."""
    y = np.repeat([-1.0, 1.0], 100)[:, None]
    stub = Stub(1e170, 1.0)
    (text,) = messages(lambda: check_regression(stub, stub, y, y))
    assert "root mean square 1e+170; sd of y 1" in text


def test_one_warning_names_all_outputs():
    """Of nine outputs, number 1 is honest, and number 4 is all noise."""
    y = np.repeat([-1.0, 1.0], 100)[:, None] * np.ones(9)
    mean, sd = np.linspace(0.7, 0.8, 9), np.ones(9)
    mean[[1, 4]], sd[4] = 0.0, 3.0
    stub = Stub(mean, sd)
    (text,) = messages(lambda: check_regression(stub, stub, y, y))
    assert "predictions of outputs 0, 2, 3, 5, 6 and 2 more (worst: 8) are further" in text
    assert ", and the sd of its predictions of output 4 is larger" in text
    (text,) = messages(lambda: check_regression(stub, Stub(mean[:3], sd[:3]), y, y[:, :3]))
    assert "predictions of outputs 0 and 2 (worst: 2) are" in text


@cases("p, warned", [(0.5, False), (0.44, False), (0.42, True)])
def test_bounds_of_classification(p, warned):
    """Two equal classes: the log loss of their frequencies is log 2; 1.2 of that is p = 0.435.

    One parameter and 100 rows add 0.015.
    """
    codes = np.repeat([0, 1], 50)
    proba = np.full((100, 2), 1.0 - p)
    proba[np.arange(100), codes] = p
    found = messages(
        lambda: check_classification(Stub(), proba, np.log(proba), codes, np.ones(100), 1)
    )
    assert [("log loss of its training rows" in text) for text in found] == [True] * warned


@cases(
    "p, temperature, warned",
    [(0.27, 1, False), (0.24, 1, True), (0.16, 40, False), (0.14, 40, True), (0.1, 90, False)],
)
def test_bounds_of_single_draws(p, temperature, warned):
    """Half of the draws give the right class p, the others 1 - p: their average is log 2.

    The log loss of single draws is -log(p (1 - p)) / 2, which is 1.2 log 2 for p = 0.254. At a
    temperature T, one parameter and 100 rows may add T / 200 + 1 / 100, so that the bound is at
    0.245 for 1, at 0.146 for 40 and at 0.083 for 90.
    """
    codes = np.repeat([0, 1], 50)
    one = np.full((100, 2), 1.0 - p)
    one[np.arange(100), codes] = p
    stub = Stub(temperature=temperature)
    average, logs = 0.5 * (one + one[:, ::-1]), 0.5 * np.log(one * one[:, ::-1])
    found = messages(lambda: check_classification(stub, average, logs, codes, np.ones(100), 1))
    assert ["log loss of single draws for its" in text for text in found] == [True] * warned


@pytest.mark.filterwarnings("ignore:.*diverged:skbayes_sgmcmc.SamplingWarning")
@pytest.mark.filterwarnings("ignore:.*not mixed:skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("step_size", [3.0, 10.0])
@pytest.mark.parametrize("random_state", range(4))
def test_steps_of_psgld_that_are_too_long_do_not_pass_in_silence(step_size, random_state):
    """Accuracies of 0.34 to 0.83, whose averages are better than the frequencies of the classes.

    pSGLD bounds its steps, so that chains stay finite; without a look at single draws, some of
    these fits said nothing.
    """
    X, y = load_iris(return_X_y=True)
    clf = sk.BayesianMLPClassifier(
        sampler="psgld", step_size=step_size, burn_in=200, random_state=random_state
    )
    with pytest.warns(sk.SamplingWarning, match="does not describe its training data"):
        clf.fit(X, y)


@pytest.mark.parametrize(
    "estimator",
    [
        sk.BayesianLogisticRegression(prior_scale=1.0),
        sk.BayesianLogisticRegression(prior="laplace"),
        sk.BayesianOrdinalClassifier(prior_scale=1.0),
        sk.BayesianGLMRegressor(prior_scale=1.0),
        sk.BayesianGLMRegressor(prior_scale=np.ones(3), likelihood="poisson", exposure=3),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_prior_that_forbids_effects_does_not_pass_in_silence(estimator, sparse):
    """Every row had the same prediction, although the first feature separates the classes.

    A column of ones, or of exposures, which no coefficient multiplies, hides nothing.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = (X[:, 0] > 0.0).astype(int)
    X[:, 2] = 0.0 if sparse else 1.0
    X = np.c_[X, np.ones(60)]
    columns = 4 if getattr(estimator, "exposure", None) is not None else 3
    made = sp.csr_matrix if sparse else np.asarray
    fitted = clone(estimator).set_params(**RUN)

    def said(size):
        rows = made((X * [size, size, 1.0, 1.0])[:, :columns])
        found = messages(lambda: fitted.fit(rows, y))
        return [text for text in found if "hardly lets" in text]

    (text,) = said(1e-100)
    name = type(fitted).__name__
    assert re.match(rf"prior_scale=.* hardly lets {name}\(.*StandardScaler", text)
    assert ("'learned'" in text) == (fitted.prior == "normal")  # which alone can learn its scale
    assert not said(1.0) and not said(0.1)


def test_a_feature_in_other_units_is_named():
    """A coefficient of -760 had the mean -0.05: accuracy 0.685 instead of 0.74, without a word."""
    X = np.random.default_rng(0).standard_normal((300, 4)) * [1000.0, 0.001, 1.0, 0.0]
    y = X @ [0.001, -1000.0, 0.0, 0.0] > 0.0
    clf = sk.BayesianLogisticRegression(prior_scale=1.0, **RUN)
    (text,) = [t for t in messages(lambda: clf.fit(X, y)) if "hardly lets" in t]
    assert "depend on 'x1': it is in units of the coefficients" in text
    for rows, scale in ((X[:, 2:] / 1000.0, 0.01), (np.sign(X), 0.1)):  # all alike; indicators
        clf = sk.BayesianLogisticRegression(prior_scale=scale, **RUN).set_params(n_draws=10)
        found = messages(lambda clf=clf, rows=rows: clf.fit(rows, y))
        assert not [t for t in found if "depend on 'x" in t]


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_ordinary_features_are_no_reason_to_warn_of_the_prior(load):
    X = load().data
    for rows in (X, X / X.max(), sp.csr_matrix(X)):
        assert _differences(rows, 1.0) >= 1.0


def test_many_rows_outweigh_a_narrow_prior():
    """The sum of squares over the rows, which is the information about one effect, decides."""
    x = np.random.default_rng(0).standard_normal((10**6, 1))
    assert _differences(x, 2e-3) >= 1.0 > _differences(x[:1000], 2e-3)
    assert _differences(np.full((60, 3), 0.1), 1.0) == 0.0
    assert _differences(1e150 * x[:60], 1e15) == np.inf


@pytest.mark.parametrize(
    ("heat", "n_parameters", "warned"),
    [(3.2, 2, False), (7.0, 2, True), (0.2, 2, False), (2.0, 100, True), (0.5, 100, True)],
)
def test_few_momenta_are_random(heat, n_parameters, warned):
    """Of eight momenta, one honest fit in 800 has a mean square of 3.2, and one in 3e8 has 7."""
    model, statistics = SimpleNamespace(n_parameters=n_parameters), np.full(4, heat)
    run = SimpleNamespace(
        statistics={"kinetic_temperature": statistics}, target=SimpleNamespace(model=model)
    )
    assert len(messages(lambda: check_run(Stub(), run))) == warned


@pytest.mark.parametrize("seed", [1, 4])
def test_huge_weights_do_not_heat_the_chains(seed):
    """One row of class 1, 30 features, and weights of up to 2,100: rows push chains together.

    With the step of a normal posterior, the kinetic energy is 33 to 73 times too large, and R-hat
    and log losses of draws raise warnings, too.
    """
    rng = np.random.default_rng(seed)
    X, weight = rng.standard_normal((60, 30)), 10.0 * rng.lognormal(0.0, 2.0, 60)
    clf = sk.BayesianLogisticRegression(random_state=0)
    assert not messages(lambda: clf.fit(X, np.arange(60) < 1, weight))


@pytest.mark.parametrize(("batch_size", "warned"), [(2, True), (100, False)])
def test_kinetic_temperature(batch_size, warned):
    """Gradients of two rows heat SGHMC with little friction; those of all rows do not.

    The bound is 20% and the range of the chi-square distribution of 304 momenta, 0.66 to 1.43;
    without gradient noise the kinetic temperature is 1 within a few percent for this step.
    """
    X, y = sine()
    reg = sk.BayesianMLPRegressor(
        sampler="sghmc", integrator="baoab", step_size=1e-4, batch_size=batch_size,
        **RUN, **FORMER | {"noise": 0.1, "prior_scale": "fan_in"},
    )  # fmt: skip
    found = messages(lambda: reg.fit(X, y))
    assert any("kinetic energy" in text for text in found) == warned
    heat = reg.posterior_.statistics["kinetic_temperature"]
    assert heat.shape == (2,)
    assert (heat.mean() > 1.5) == warned


@pytest.mark.parametrize(("falls", "warned"), [((3, 4, 3, 2), True), ((6, -3, 6, 1), False)])
def test_a_potential_that_wanders_is_no_potential_that_falls(falls, warned):
    """In units of its sd; the means are 3 and 2.5, their standard errors 0.4 and 2.2.

    As in a default fit of diabetes with a longer burn-in, whose learned scales move slowly: in one
    chain of four the potential rose by 3.9.
    """
    d, n_draws = 200, 60
    time = np.linspace(0.0, 1.0, n_draws)
    draws = np.zeros((4, n_draws, d))
    draws[:, :, 0] = np.array(falls)[:, None] * 1.5 * time * np.sqrt(0.5 * d)
    target = SimpleNamespace(
        model=SimpleNamespace(n_parameters=d), log_joint_of_rows=lambda chosen, n_rows: chosen[:, 0]
    )
    assert (fall_of_potential(target, draws, 1.0) is not None) == warned
    run = SimpleNamespace(tells=True, n_steps=60, plan=SimpleNamespace(by_distance=None))
    run.fall_of_potential = lambda: fall_of_potential(target, draws, 1.0)
    said = messages(lambda: check_drift(sk.BayesianMLPRegressor(), run))
    assert len(said) == warned


@pytest.mark.parametrize(("variance", "warned"), [(0.1, False), (1.3, False), (2.0, True)])
@pytest.mark.parametrize("temperature", [0.01, 1.0])
def test_draws_that_are_spread_too_far(variance, warned, temperature):
    """Of a Gaussian around 7, times a variance: the spread over the temperature's is that factor.

    With 200 parameters and 24 positions the Monte Carlo error is 2%, so the bound is 1.56.
    """
    d, scales = 200, np.geomspace(1e-3, 1e3, 200)
    draws = np.random.default_rng(0).standard_normal((4, 60, d))
    draws = 7.0 + scales * np.sqrt(temperature * variance) * draws
    target = SimpleNamespace(
        model=SimpleNamespace(n_parameters=d),
        log_joint_of_rows=lambda chosen, n_rows: -0.5 * (((chosen - 7.0) / scales) ** 2).sum(1),
        data=SimpleNamespace(n_rows=100),
    )
    run = SimpleNamespace(tells=True)
    run.excess_temperature = lambda: excess_temperature(target, draws, temperature)
    found = messages(lambda: check_spread(sk.BayesianMLPRegressor(), run))
    assert len(found) == warned
    assert all(re.search(r"spread as at (1\.9|2)", text) for text in found)


def test_small_networks_are_not_taken_for_hot_ones():
    """Their density is far from normal, so that (theta - its mean) . grad S varies between draws.

    Its mean over many draws is 0.96 to 1.11 times the number of parameters, its sd 3 times. Six
    draws of a chain, moved by 0.05 of their distance from the mean, seemed 1.6 to 2.9 times as hot.
    """
    rng = np.random.default_rng(0)
    X = np.linspace(-2.0, 2.0, 100)[:, None]
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(100)
    reg = sk.BayesianMLPRegressor(hidden_layer_sizes=10, max_steps=1500, random_state=2)
    assert not [text for text in messages(lambda: reg.fit(X, y)) if "spread" in text]


def test_a_few_targets_far_off_are_no_nonsense():
    """Normal noise has their sd, which the rows that are looked at need not show."""
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((1000, 2)), rng.standard_normal(1000)
    y[rng.choice(1000, 5, replace=False)] *= 50.0
    assert not messages(lambda: sk.BayesianGLMRegressor(random_state=0).fit(X, y))


@pytest.mark.parametrize(
    ("likelihood", "n", "d", "seed"),
    [("negative_binomial", 1000, 5, 40), ("negative_binomial", 20, 6, 46), ("gamma", 60, 7, 46)],
)
def test_targets_with_long_tails_are_no_nonsense(likelihood, n, d, seed):
    """Fits of the model that made the data.

    Means over all draws were 1.3 to 10 times as far from the targets as a constant is: a few draws,
    and a few rows that have an sd as large as their mean, decided.
    """
    rng = np.random.default_rng(seed)
    X, coef = rng.standard_normal((n, d)), rng.standard_normal(d)
    mean, shape = np.exp(X @ coef + rng.normal()), rng.lognormal()
    y = mean * rng.gamma(shape, 1.0 / shape, n)
    if likelihood == "negative_binomial":
        y = rng.poisson(y)
    reg = sk.BayesianGLMRegressor(likelihood=likelihood, n_draws=200, random_state=0)
    assert not [text for text in messages(lambda: reg.fit(X, y)) if "does not describe" in text]


@pytest.mark.parametrize(
    ("sampler", "step_size", "warned"),
    [("sgld", 2.5, True), ("psgld", 1.0, True), ("sgld", 0.3, False), ("sghmc", 0.05, False)],
)
def test_given_steps_of_linear_models_that_are_too_long(sampler, step_size, warned):
    """Sds are 2 to 6 times those of a default fit, which R-hat and predictions need not show.

    With the shorter steps, whose draws warn of nothing, they are within a sixth of them.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 4))
    mean = np.exp(X @ (0.5 * rng.standard_normal(4)))
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, 150))
    reg = sk.BayesianGLMRegressor(
        likelihood="negative_binomial", sampler=sampler, step_size=step_size, batch_size=150,
        n_draws=200, burn_in=200, thinning=2, random_state=0,
    )  # fmt: skip
    found = [text for text in messages(lambda: reg.fit(X, y)) if "spread as at" in text]
    assert len(found) == warned


@pytest.mark.parametrize("kind", [sk.BayesianLogisticRegression, sk.BayesianMLPClassifier])
def test_a_fit_after_a_stream_is_looked_at_as_any_other(kind):
    """Steps that are far too long; of the part of a stream that came before, nothing is known."""
    X, y = load_iris(return_X_y=True)
    clf = kind(sampler="psgld", step_size=100.0, **RUN | {"n_draws": 100})
    messages(lambda: clf.partial_fit(X, y, classes=[0, 1, 2]))
    assert any("spread as at" in text for text in messages(lambda: clf.fit(X, y)))


@pytest.mark.parametrize(("n", "warned"), [(20, False), (200, True)])
def test_few_rows_leave_the_noise_open(n, warned):
    """With 20 rows and 6 features, a right fit of gamma targets has a noise of 1.9 sds of y."""
    y, stub = np.repeat([-1.0, 1.0], n // 2)[:, None], Stub(0.0, 1.9)
    assert len(messages(lambda: check_regression(stub, stub, y, y))) == warned


def test_a_potential_that_still_falls():
    """From a random start without a burn-in, most of the fall happens while draws are kept."""
    X, y = load_diabetes(return_X_y=True)
    reg = sk.BayesianMLPRegressor(
        sampler="sgld", step_size=1e-4, init="random", hidden_layer_sizes=(20,),
        prior_scale="fan_in", noise=20.0, **RUN | {"burn_in": 0, "thinning": 20},
    )  # fmt: skip
    assert any("have not reached the posterior" in text for text in messages(lambda: reg.fit(X, y)))


@pytest.mark.parametrize("name", ["noise", "logistic", "two rows", "constant"])
def test_honest_fits_do_not_warn_of_nonsense(name):
    """Where X says nothing of y the error is that of the mean, and the noise the spread of y."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    if name == "logistic":
        estimator, y = sk.BayesianLogisticRegression(random_state=0), rng.integers(0, 2, 200)
    else:
        run = {"n_draws": 20, "burn_in": 200, "thinning": 2, "random_state": 0}
        estimator = sk.BayesianMLPRegressor(hidden_layer_sizes=20, **run)
        y = np.ones(200) if name == "constant" else rng.standard_normal(200)
    if name == "two rows":
        X, y = X[:2], y[:2]
    found = messages(lambda: estimator.fit(X, y))
    assert not [text for text in found if "does not describe" in text]


@pytest.mark.parametrize("weights", ["none", "balanced", "rows", "small"])
def test_rare_events_and_weights_are_no_nonsense(weights):
    """Ten events among 2,000 rows, and features of noise: an honest fit is near the frequencies.

    Frequencies are weighted like the rows; those of the rows alone were 13 times as good here as a
    fit with balanced weights. Small weights let single draws be far from any fit: by half a nat for
    each parameter, in all rows together.
    """
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 8)), (np.arange(2000) % 200 == 7).astype(int)
    weight = {"rows": np.where(y, 199.0, 1.0), "small": rng.lognormal(-5.0, 1.0, 2000)}.get(weights)
    clf = sk.BayesianLogisticRegression(
        class_weight="balanced" if weights == "balanced" else None, n_draws=100, random_state=0
    )
    assert not [text for text in messages(lambda: clf.fit(X, y, weight)) if "describe" in text]


def test_frequencies_are_weighted():
    """1 of 100 rows has the weight of all others: a log loss of log 2 is honest, 2 is not."""
    codes, mass = np.zeros(100, int), np.ones(100)
    codes[0], mass[0] = 1, 99.0
    for p, warned in [(0.5, False), (0.1, True)]:
        proba = np.where(codes[:, None] == [0, 1], p, 1.0 - p)
        rows = proba, np.log(proba), codes, mass
        found = messages(partial(check_classification, Stub(), *rows, 1))
        assert len(found) == warned


def test_rows_that_are_looked_at_stand_for_their_class():
    """All of a rare class and as many of the others, among them a row that outweighs all."""
    codes, weight = (np.arange(6000) % 2000 == 0).astype(int), np.ones(6000)
    rows, mass = some_of_each(codes, weight)
    assert np.bincount(codes[rows]).tolist() == [100, 3]
    np.testing.assert_allclose(np.bincount(codes[rows], mass), [5997.0, 3.0])
    weight[17] = 1e8
    rows, mass = some_of_each(codes, weight)
    assert mass[rows == 17] / mass.sum() > 0.98
    np.testing.assert_allclose(np.bincount(codes[rows], mass), np.bincount(codes, weight))


def test_errors_of_regression_are_weighted():
    """The prediction is that of the heavy rows: the error of a constant, 0.3, is theirs.

    Without weights it is 5, of which 1.2 times the sd of y is 3.6.
    """
    y = np.repeat([-0.3, 0.3, 5.0], [50, 50, 100])[:, None]
    weight = np.repeat([1e4, 1.0], 100)
    stub = Stub(0.0, 0.3)
    assert not messages(lambda: check_regression(stub, stub, y, y, weight))
    (text,) = messages(lambda: check_regression(Stub(), Stub(4.0, 0.3), y, y, weight))
    assert "further from the training targets" in text
