"""Regressors of several likelihoods: bad input, and data that leave a noise or a rate unbounded."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from _cases import cases
from _regressors import COUNTS, KINDS, SMALL, problem, small
from sklearn.base import clone

from skbayes_sgmcmc import BayesianMLPRegressor, BayesianModuleRegressor, SpikeSlab, StudentT

#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

# bad input ----------------------------------------------------------------------------------------


@cases("name", COUNTS)
@cases("value", [-1.0, 0.5, 1e-3])
def test_targets_that_are_no_counts_are_refused(name, value):
    X, y = problem(name)
    y[17, 1] = value
    reg = small(name)
    message = rf"^y with the value {value:g} is not allowed .*whole numbers, 0 or more"
    with pytest.raises(ValueError, match=message):
        reg.fit(X, y)
    assert set(vars(reg)) == set(reg.get_params(deep=False))


@cases(
    "parameters, message",
    [
        ({"likelihood": "poisson", "noise": 0.3}, "noise=0.3 is not allowed with likelihood='poi"),
        (
            {"likelihood": "negative_binomial", "noise": "heteroscedastic"},
            "noise='heteroscedastic' is not allowed with likelihood='negative_binomial'",
        ),
        (
            {"likelihood": "student_t", "noise": "heteroscedastic"},
            "noise='heteroscedastic' is not allowed with likelihood='student_t'",
        ),
        (
            {"noise": "hetero"},
            "noise='hetero' is not allowed: give 'auto', 'infer', 'heteroscedastic'",
        ),
        ({"likelihood": "gamma"}, "likelihood='gamma' is not allowed: give one of 'normal'"),
        ({"likelihood": StudentT(df=2.0)}, r"likelihood.df=2.0 is not allowed: .* \(2, inf\)"),
        ({"likelihood": StudentT(df="auto")}, "likelihood.df='auto' is not allowed"),
        ({"likelihood": StudentT}, "likelihood=.* is not allowed"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    X, y = problem("poisson")
    reg = BayesianMLPRegressor(**(SMALL | parameters))
    with pytest.raises(ValueError, match=f"^{message}"):
        reg.fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [({"likelihood": "poisson"}, "likelihood"), ({"noise": "heteroscedastic"}, "noise")],
)
def test_spike_and_slab_priors_have_normal_noise_only(parameters, name):
    X, y = problem("poisson")
    module = partial(torch.nn.Linear, 3, 2)
    reg = BayesianModuleRegressor(module, prior=SpikeSlab(), **parameters)
    with pytest.raises(ValueError, match=f"^{name}=.* is not allowed with a spike-and-slab prior"):
        reg.fit(X, y)


#: numbers of one value that are no counts are centred, so that it may as well be 3 as 0
FEW = [
    (name, rows)
    for name in KINDS
    for rows in ("constant", "zero", "two", "one")
    if rows != "zero" or name in COUNTS
]


@cases("name, rows", FEW)
def test_targets_without_spread_or_almost_no_rows(name, rows):
    """Predictions are finite, and near what was seen: within the prior's sd of the function.

    That is 1.6 in units of targets, or a factor of e^1.6 for counts. Noise that depends on the row
    takes longer to become as small as it is.
    """
    n = {"two": 2, "one": 1}.get(rows, 40)
    X, y = np.random.default_rng(0).standard_normal((n, 3)), np.full((n, 2), 3.0)
    if rows == "zero":
        y[:] = 0.0
    if rows == "two":
        y[1] = 4.0
    reg = small(name, burn_in=400 if name == "heteroscedastic" else 150).fit(X, y)
    mean, sd = reg.predict(X, return_std=True)
    assert np.isfinite(sd).all() and (sd > 0.0).all()
    assert np.isfinite(reg.predict_log_density(X, y)).all()
    assert np.isfinite(reg.predict_interval(X)).all()
    if name in COUNTS:
        assert (mean < np.exp(1.6) * (y + 0.5)).all() and (mean > np.exp(-1.6) * (y - 1.0)).all()
    else:
        assert np.abs(mean - y).max() < 1.6


def test_few_rows_have_one_noise():
    """They do not say how noise depends on x; other rows have another noise.

    With noise that was exponential in s everywhere, the median sd of 3 rows was 3,000 times that of
    y. With one noise it was 5 times; 20 is between the two.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X[:, 0] + 0.3 * rng.standard_normal(60)
    run = {"burn_in": 100, "n_draws": 20, "thinning": 3, "max_steps": 200}  # of descents, too
    reg = BayesianMLPRegressor(n_chains=2, random_state=0, **run)
    for n, own in ((3, False), (20, True), (19, False)):
        reg.fit(X[:n], y[:n])
        assert reg._choice.heteroscedastic == own
        assert np.median(reg.predict(X, return_std=True)[1]) < 20.0 * y[:n].std()
        brief = clone(reg).set_params(burn_in=1, n_draws=1, thinning=1)
        brief.fit(X[:10], y[:10], sample_weight=np.full(10, n / 10))  # a weight of 2 is two rows
        assert brief._choice.heteroscedastic == own


@pytest.mark.parametrize(("n", "p", "seed"), [(25, 3, 0), (40, 6, 1)])
def test_sds_of_new_rows_are_those_of_their_intervals(n, p, seed):
    """At most twice a 90% interval over 3.29, at all of 300 rows like those of the fit.

    For a normal distribution the two are equal. Draws of exp(s) were up to 10^5 where rows are few,
    and ratios up to 750; with noise that is linear above the sd of y, up to 1.64 on 36 tables.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + 300, p))
    y = X[:, 0] + 0.5 * X[:, -1] + rng.standard_normal(n + 300)
    reg = BayesianMLPRegressor(n_chains=2, burn_in=600, n_draws=100, thinning=5, random_state=seed)
    reg.fit(X[:n], y[:n])
    assert reg._choice.heteroscedastic
    low, high = reg.predict_interval(X[n:], coverage=0.9).T
    assert (reg.predict(X[n:], return_std=True)[1] < 2.0 * (high - low) / 3.29).all()


@pytest.mark.parametrize("name", COUNTS)
def test_sds_of_new_counts_are_those_that_the_counts_can_bear(name):
    """At most eight times the largest of 25 counts, at 300 rows like those of the fit.

    The largest count there is 11 times as large. With means exp(f) the largest sd was 330 times,
    and 2,700 times with a dispersion; now it is once and four times.
    """
    rng = np.random.default_rng(2)
    X = rng.standard_normal((325, 3))
    y = rng.poisson(np.exp(2.0 + 0.7 * X[:, 0] + 0.4 * X[:, 2]) * rng.gamma(1.0, 1.0, 325))
    run = {"burn_in": 200, "n_draws": 50, "thinning": 2, "max_steps": 600}  # of descents, too
    reg = BayesianMLPRegressor(likelihood=name, n_chains=2, random_state=0, **run)
    reg.fit(X[:25], y[:25])
    assert reg.predict(X[25:], return_std=True)[1].max() < 8.0 * y[:25].max()


def test_streams_that_begin_with_few_rows_have_noise_of_their_own():
    """More rows will come, and the likelihood of a stream stays the same."""
    X, y = np.random.default_rng(0).standard_normal((2, 30))[..., None]
    reg = BayesianMLPRegressor(hidden_layer_sizes=4, random_state=0)
    for rows in (slice(0, 5), slice(5, 30)):
        reg.partial_fit(X[rows], y[rows, 0])
        assert reg._choice.heteroscedastic


def test_rows_that_are_fitted_exactly_keep_some_noise():
    """Rows on a line, from a start with this line and s = -30.

    The density grows with every unit by which s falls, up to the floor: a thousandth of the sd of
    the targets. There only the prior is left, which brings s back. Without the floor the sds would
    be 1e-14 at the start, and e^-100 at the mode.
    """
    X = np.linspace(-2.0, 2.0, 100)[:, None]
    y = 5.0 * X[:, 0] - 1.0
    reg = BayesianMLPRegressor(
        hidden_layer_sizes=(), noise="heteroscedastic", init=[1.0, 0.0, 0.0, -30.0], n_chains=2,
        n_draws=20, burn_in=5000, thinning=2, step_size=0.01, random_state=0, dtype="float64",
        prior_scale="fan_in",
    ).fit(X, y)  # fmt: skip
    sd = np.sqrt(reg._predictive()(slice(0, 40), X).variance()) / y.std()
    assert sd.min() > 1e-3 and sd.max() < 0.1
    assert (reg.predict_log_density(X, y) < -np.log(1e-3 * y.std())).all()


@pytest.mark.parametrize("n_twins", [15, 40])
def test_rows_that_occur_twice_with_equal_targets_keep_some_noise(n_twins):
    """Their noise may fall to the floor, not below: a network that meets them has a density.

    With twins of most rows, the floor is 1/sqrt(12) of the smallest gap, as if y was rounded.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    X = np.concatenate([X, X[:n_twins]])
    y = 3.0 * X[:, 0]
    reg = BayesianMLPRegressor(
        hidden_layer_sizes=8, n_chains=2, n_draws=20, burn_in=300, thinning=5, random_state=0
    ).fit(X, y)
    sd = np.sqrt(reg._predictive()(slice(0, 40), X).variance())
    gap = np.diff(np.unique(y)).min() / 12**0.5 if n_twins == 40 else 0.0
    assert (sd >= 0.999 * max(gap, 1e-3 * y.std())).all()
    assert np.isfinite(reg.predict_log_density(X, y)).all()


@pytest.mark.parametrize("whole", [True, False])
def test_noise_is_at_least_the_rounding_error_of_the_targets(whole):
    """Whole numbers that repeat were rounded: an sd of 1/sqrt(12). Others say nothing of rounding.

    Without this bound, a network that meets whole numbers exactly has no largest density: on
    wine-quality-red the negative log likelihood of test rows was above 200.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = 3.0 * X[:, 0]
    y = np.round(y) if whole else y
    reg = small("heteroscedastic", burn_in=20).fit(X, y)
    floor = reg._likelihood().floor * y.std()
    np.testing.assert_allclose(floor, 12**-0.5 if whole else 1e-3 * y.std(), rtol=1e-6)


@pytest.mark.parametrize("name", COUNTS)
def test_rates_of_far_rows_do_not_overflow(name):
    """Outputs of 1e4 would be rates of exp(1e4); they are at most 1e4 times the largest count."""
    X, y = problem(name)
    reg = small(name).fit(X, y)
    far = np.array([[1e6] * 3, [-1e6] * 3])
    largest = reg._outputs(slice(0, 40), far).max()
    assert largest > 1e3
    mean, sd = reg.predict(far, return_std=True)
    assert mean.max() < y.max() * largest
    assert np.isfinite(sd).all() and np.isfinite(reg.predict_interval(far)).all()


def test_warnings_say_which_outputs_are_noise():
    X, y = problem("heteroscedastic")
    labels = small("heteroscedastic").fit(X, y)._output_labels()
    noise = [f"the noise of output {j} in " for j in (0, 1)]
    assert labels == ["output 0 in ", "output 1 in ", *noise]
    assert small("heteroscedastic").fit(X, y[:, 0])._output_labels() == ["", "the noise of "]


@pytest.mark.parametrize("size", [(6,), (4, 3)])
def test_chains_start_with_one_noise_for_all_rows(size):
    """The outputs of the noise start at 0, whatever the row, and the means at random ones."""
    X, y = problem("heteroscedastic")
    run = {"hidden_layer_sizes": size, "burn_in": 0, "thinning": 1, "init": "random"}
    reg = small("heteroscedastic", **run, n_draws=1, step_size=1e-12).fit(X, y)
    f = reg._outputs(slice(0, 2), X)
    assert np.abs(f[..., 2:]).max() < 1e-4 < np.abs(f[..., :2]).max()
