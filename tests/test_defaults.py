"""What "auto" means: the sampler, the rows of a step, the lengths."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _cases import cases
from _inside import inside
from sklearn.datasets import make_classification

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._data.minibatch import Data, Minibatches
from skbayes_sgmcmc._engine.target import Coordinates, Evaluator, Target
from skbayes_sgmcmc.models.linear.logistic import LogisticModel
from skbayes_sgmcmc.models.tuning.auto import AUTO
from skbayes_sgmcmc.models.tuning.base import ManyModes, Request
from skbayes_sgmcmc.models.tuning.gaussian import WhitenedGaussian
from skbayes_sgmcmc.priors import Normal
from skbayes_sgmcmc.samplers import MCLMC, PSGLD, Cell

minibatches_of, Settings = inside("minibatches_of"), inside("Settings")

#: max_steps bounds the descents to the starts, too
RUN = {"n_chains": 2, "n_draws": 4, "burn_in": 20, "thinning": 1, "max_steps": 24,
       "random_state": 0}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def rows(n, p=3):
    return Data({"x": torch.zeros(n, p), "y": torch.zeros(n, 1)}, n)


def of_parameters(number, **options):
    return ManyModes(SimpleNamespace(n_parameters=number, metric=None), **options)


def request_of(sampler, batch_size="auto"):
    return Request(sampler, Cell(None, None, 1e-3), 1.0, Settings(batch_size=batch_size))


def asked(step_size="auto", batch_size="auto"):
    return SimpleNamespace(step_size=step_size, batch_size=batch_size, temperature=1.0)


@cases(
    "n, step_size, batch_size, expected",
    [
        (100, "auto", "auto", "mclmc"),
        (10**6, "auto", "auto", "mclmc"),
        (100, 1e-3, "auto", "psgld"),  # a given step was chosen for the sampler that it had
        (100, "auto", 50, "psgld"),  # few of few rows: too much noise for an energy
        (10**6, "auto", 50, "mclmc"),
        (3000, "auto", 3000, "mclmc"),
    ],
)
def test_the_sampler_depends_on_the_rows_of_a_step(n, step_size, batch_size, expected):
    """With 1,000 parameters."""
    tuning = of_parameters(1000)
    assert tuning.default_sampler(rows(n), asked(step_size, batch_size)) == expected


@cases(
    "number, n, expected",
    [
        (AUTO.small_network, 100, "mclmc"),
        (AUTO.small_network + 1, 100, "psgld"),  # as good in a seventh of the time
        (AUTO.small_network + 1, AUTO.many_rows * AUTO.small_network, "psgld"),
        (AUTO.small_network + 1, AUTO.many_rows * (AUTO.small_network + 1), "mclmc"),
        (AUTO.large_network + 1, AUTO.many_rows * (AUTO.large_network + 1), "psgld"),
    ],
)
def test_the_sampler_depends_on_the_number_of_parameters(number, n, expected):
    assert of_parameters(number).default_sampler(rows(n), asked()) == expected


@cases(
    "number, n, expected",
    [
        (AUTO.small_network + 1, 100, "mclmc"),
        (AUTO.large_network, 8000, "mclmc"),  # with minibatches
        (4 * AUTO.large_network, AUTO.steep_work // (4 * AUTO.large_network), "mclmc"),
        (4 * AUTO.large_network, AUTO.steep_work, "mclmc"),  # with minibatches
        (AUTO.huge_network + 1, AUTO.steep_work, "psgld"),
    ],
)
def test_regression_has_mclmc_for_larger_networks(number, n, expected):
    """Gradients grow with the residuals, and pSGLD stops far from what the rows say."""
    assert of_parameters(number, steep=True).default_sampler(rows(n), asked()) == expected


def test_only_regression_has_steep_gradients():
    """Tables of 300 columns, for which both networks have more parameters than a small one."""
    X = np.random.default_rng(0).standard_normal((40, 300))
    short = {"n_chains": 2, "max_steps": 4, "random_state": 0}
    reg = sk.BayesianMLPRegressor(**short).fit(X, X[:, 0])
    clf = sk.BayesianMLPClassifier(**short).fit(X, X[:, 0] > 0)
    assert "energy_error" in reg.posterior_.statistics
    assert "energy_error" not in clf.posterior_.statistics


@cases(
    "sampler, number, n, p, size",
    [
        (MCLMC(), 100, 20_000, 30, 20_000),  # little work, however many rows there are
        (MCLMC(), 1000, AUTO.many_rows * 1000 - 1, 30, AUTO.many_rows * 1000 - 1),
        (MCLMC(), 1000, AUTO.many_rows * 1000, 30, AUTO.energy_batch),
        (MCLMC(), 1000, AUTO.many_rows * 1000, 1, AUTO.energy_batch),  # few numbers, but much work
        (MCLMC(), 2500, 6000, 30, 6000),
        (MCLMC(), 2500, 7000, 30, AUTO.energy_batch),  # too much work
        (MCLMC(), 20_000, 10_000, 30, 10_000),  # who asks for MCLMC with so large networks
        (PSGLD(), 1000, AUTO.many_rows * 1000, 30, AUTO.batch_size),
    ],
)
def test_minibatches_of_many_rows(sampler, number, n, p, size):
    """MCLMC has all rows in a step, unless there are many for each parameter."""
    tuning, data = of_parameters(number), rows(n, p)
    target = SimpleNamespace(data=data, model=SimpleNamespace(tuning=tuning))
    target.without_control_variates = lambda: target
    warm = tuning.automatic(data, request_of(sampler))
    found = minibatches_of(target, sampler, warm, "auto", 1.0)
    assert found.size == size


@cases("n, size", [(3000, 3000), (4000, AUTO.energy_batch)])
def test_minibatches_of_networks_in_regression(n, size):
    """Those of up to ``large_network`` parameters have minibatches as small ones do."""
    warm = of_parameters(4500, steep=True).automatic(rows(n), request_of(MCLMC()))
    assert (warm.batch_size or n) == size


@cases("number, n, size", [(20_000, 3000, 3000), (20_000, 10_000, AUTO.energy_batch)])
def test_minibatches_of_large_networks_in_regression(number, n, size):
    """All rows up to ``steep_work``, and fewer steps the more work there is, but ten passes."""
    tuning, data = of_parameters(number, steep=True), rows(n)
    warm = tuning.automatic(data, request_of(MCLMC()))
    assert (warm.batch_size or n) == size
    burn_in, _ = tuning.lengths(warm, n, size, 100)
    assert 10 * n / size <= burn_in <= max(10 * n / size, 650)


def test_many_rows_in_a_fit():
    """The rule reaches the chains, for tables of rows whose network is the default one."""
    n = 20_000
    X = np.random.default_rng(0).standard_normal((n, 4))
    reg = sk.BayesianMLPRegressor(n_chains=2, max_steps=20, random_state=0).fit(X, X[:, 0])
    assert reg.batch_size_ == AUTO.energy_batch and "energy_error" in reg.posterior_.statistics
    few = sk.BayesianMLPRegressor(n_chains=2, max_steps=20, random_state=0).fit(X[:900], X[:900, 0])
    assert few.batch_size_ == 900


def test_streams_take_minibatches():
    """Chains that see some rows at a time have no energy; the scores were those of a constant."""
    assert of_parameters(10).default_sampler(rows(100), asked(), more_rows=True) == "psgld"
    X = np.random.default_rng(0).standard_normal((60, 3))
    for estimator in (sk.BayesianMLPRegressor, sk.BayesianMLPClassifier):
        assert estimator(n_chains=2).partial_fit(X, X[:, 0] > 0).posterior_.statistics == {}


@cases(
    "sampler, n, batch_size, expected",
    [
        (MCLMC(), 10, 10, 3000),
        (MCLMC(), 2500, 2500, 3000),
        (MCLMC(), 7600, 7600, 1721),  # three times the work, steps by one over its root
        (MCLMC(), 10_000, 10_000, 1500),  # who asks for all of many rows
        (MCLMC(), 10_000, AUTO.energy_batch, AUTO.energy_burn_in),
        (MCLMC(), 10**6, AUTO.energy_batch, 20_000),  # ten passes
        (PSGLD(), 10_000, 100, 3000),
    ],
)
def test_chains_with_all_rows_take_fewer_steps_of_much_work(sampler, n, batch_size, expected):
    """With as many parameters as let 2,500 rows have all of their steps."""
    tuning = of_parameters(round(AUTO.full_work / 2500))
    values = tuning.automatic(rows(n), request_of(sampler, batch_size))
    assert tuning.lengths(values, n, batch_size, 100) == (expected, expected // 100)


@pytest.mark.parametrize(
    ("n", "parameters", "expected", "batch_size"),
    [
        (300, {}, "SGHMC", 300),
        (300, {"prior": "laplace"}, "SGLD", 300),  # whose curvature has no bound at 0
        (300, {"integrator": "euler"}, "SGLD", 300),
        (300, {"step_size": 0.1}, "SGLD", 100),
        (40_000, {}, "SGLD", None),
        # nothing but the noise of minibatches says that they need all rows
        (3000, {"separable": True}, "SGHMC", 3000),
    ],
)
def test_momentum_is_for_linear_models_whose_steps_take_all_rows(
    n, parameters, expected, batch_size, monkeypatch
):
    if parameters.pop("separable", False):
        monkeypatch.setattr(WhitenedGaussian, "whole_numbers", 100)
        monkeypatch.setattr(WhitenedGaussian, "batch_size", lambda *args: n)
    X, y = make_classification(n, 5, random_state=0)
    lengths = {"n_draws": 4, "burn_in": 4, "thinning": 1, "n_chains": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sk.SamplingWarning)
        clf = sk.BayesianLogisticRegression(**lengths, **parameters).fit(X, y)
    momentum = bool(clf.posterior_.statistics)  # which has a kinetic temperature
    assert momentum == (expected == "SGHMC")
    assert batch_size in (None, clf.batch_size_)


def test_streams_of_linear_models_keep_sgld():
    """Its calls take a few steps each, whether minibatches hold all of their rows or not."""
    X, y = make_classification(90, 3, n_informative=3, n_redundant=0, random_state=0)
    clf = sk.BayesianLogisticRegression(n_chains=2, random_state=0)
    for part in np.array_split(np.arange(90), 3):
        clf.partial_fit(X[part], y[part])
    assert clf.posterior_.statistics == {}  # momentum has a kinetic temperature


def test_control_variates_are_left_out_where_steps_take_all_rows():
    """Both gradients are those of all rows; this one is less work, and its rows have no anchors."""
    X, y = make_classification(50, 3, n_informative=3, n_redundant=0, random_state=0)
    model = LogisticModel(3, 2, Normal(), 1.0, True)
    data = model.make_data(X, y, None, torch.float64, "cpu")
    center, precision = model.fit_gaussian(data)
    root = np.linalg.inv(np.linalg.cholesky(precision / len(y))).T
    coordinates = Coordinates.from_arrays(center, root, torch.zeros(0, dtype=torch.float64))
    anchored = Target(
        model, data, coordinates=coordinates, gradient="linear_control_variates", center=center
    )
    plain = anchored.without_control_variates()
    phi, found = torch.from_numpy(np.random.default_rng(0).standard_normal((4, 4))), []
    for target in (anchored, plain):
        minibatches = Minibatches(target.data, len(y))
        evaluator = Evaluator(target, minibatches, ChainRandom([]), {}, split=False)
        evaluator.batch = target.data.all_rows()
        found.append(evaluator.gradient(phi).numpy().copy())
    np.testing.assert_allclose(*found, rtol=1e-10, atol=1e-12)
    assert set(plain.data.fields) == set(data.fields) != set(anchored.data.fields)


def test_small_tables_are_fitted_by_mclmc_with_all_rows_in_float32():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 3)), rng.standard_normal(300)
    reg = sk.BayesianMLPRegressor(**RUN).fit(X, y)
    assert set(reg.posterior_.statistics) == {"energy_error", "undone", "length"}
    assert reg.batch_size_ == 300
    assert reg.posterior_["weight_1"].dtype == np.float32
    assert reg.posterior_["weight_1"].shape == (2, 4, 3, 16)
    assert reg.posterior_["bias_5"].shape == (2, 4, 2)  # mean and log sd
    assert reg.relevance_.shape == (3,)


@pytest.mark.parametrize("estimator", [sk.BayesianMLPClassifier, sk.BayesianMLPRegressor])
def test_default_networks_are_optimised_at_temperature_zero(estimator):
    """MCLMC, the default at T = 1, was refused. Draws hardly move: at most by 1% of that."""
    X, y = make_classification(120, 4, random_state=0)
    spread = []
    for temperature in (0.0, 1.0):
        model = estimator(temperature=temperature, max_steps=2000, random_state=0).fit(X, y)
        late = model.posterior_.draws["weight_1"][:, -5:]
        spread.append(late.std(axis=1).mean())
    assert spread[0] < 0.05 * spread[1]


@pytest.mark.parametrize(("n_features", "units"), [(32, 16), (33, 32)])
def test_classifiers_of_many_features_are_wider(n_features, units):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, n_features)), np.arange(40) % 3
    clf = sk.BayesianMLPClassifier(**RUN).fit(X, y)
    assert clf.posterior_["weight_1"].shape == (2, 4, n_features, units)
    assert clf.posterior_["weight_1"].dtype == np.float32
    assert len([name for name in clf.posterior_.draws if name.startswith("bias")]) == (
        5 if units == 16 else 3
    )
    assert set(clf.posterior_.statistics) == {"energy_error", "undone", "length"}
    assert clf.relevance_.shape == (n_features,)


def test_words_for_sizes_of_layers():
    """ "auto" is the classifier's only, because wide networks were not tried for regression."""
    for estimator, word in ((sk.BayesianMLPRegressor, "auto"), (sk.BayesianMLPClassifier, "wide")):
        with pytest.raises(ValueError, match=f"hidden_layer_sizes='{word}' is not allowed"):
            estimator(hidden_layer_sizes=word).fit(np.eye(9), np.arange(9) % 2)


@pytest.mark.parametrize(
    ("parameters", "noise", "learned"),
    [
        ({"prior": "laplace"}, "log_noise", False),
        ({"likelihood": "student_t"}, "log_noise", True),
        ({"noise": 0.5}, None, True),
        ({"prior_scale": "fan_in"}, None, False),
    ],
)
def test_defaults_that_do_not_fit_each_other_give_way(parameters, noise, learned):
    """Scales of normal priors only can be learned; sigma(x) belongs to the normal likelihood."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    reg = sk.BayesianMLPRegressor(sampler="psgld", **RUN, **parameters).fit(X, y)
    assert ("log_noise" in reg.posterior_.draws) == (noise is not None)
    assert hasattr(reg, "relevance_") == learned


def test_an_integrator_belongs_to_a_sampler():
    X = np.zeros((10, 2))
    with pytest.raises(ValueError, match="integrator='baoab' is not allowed with sampler MCLMC"):
        sk.BayesianMLPRegressor(integrator="baoab").fit(X, X[:, 0])
