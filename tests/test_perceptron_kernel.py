"""Compiled gradients of perceptrons and convolutions are those of torch, and their code is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from _cases import cases
from _posteriors import assert_same_draws
from sklearn.datasets import load_diabetes, load_digits, load_wine

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    TorchLikelihood,
)
from skbayes_sgmcmc._data.minibatch import Minibatches
from skbayes_sgmcmc.models.likelihoods.base import (
    Categorical,
    Categoricals,
    Gaussian,
    Heteroscedastic,
    LinearAbove,
)
from skbayes_sgmcmc.models.likelihoods.counts import NegativeBinomial, Poisson
from skbayes_sgmcmc.models.likelihoods.distributions import DistributionLikelihood
from skbayes_sgmcmc.models.likelihoods.student import StudentNoise
from skbayes_sgmcmc.models.likelihoods.tweedie import CompoundPoisson
from skbayes_sgmcmc.models.likelihoods.zero_inflated import (
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from skbayes_sgmcmc.models.networks.cnn import CNN
from skbayes_sgmcmc.models.networks.delayed_outputs import SHARE
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.priors.factorised import Normal

pytest.importorskip("numba")
import numba

from skbayes_sgmcmc._kernels import _kept, jit
from skbayes_sgmcmc._kernels.layers import ROWS

#: budgets too small to mix, on purpose
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

LIKELIHOODS = {
    "classes": lambda k: Categorical(),
    "several targets": lambda k: Categoricals((k, 2, 1, k)),
    "one noise": lambda k: Gaussian(k, None),
    "given noise": lambda k: Gaussian(k, np.linspace(0.2, 1.5, k)),
    "noise of rows": lambda k: Heteroscedastic(k, np.linspace(0.0, 0.1, k)),
    "student": lambda k: StudentNoise(k, None),
    "student of given noise": lambda k: StudentNoise(k, np.linspace(0.2, 1.5, k)),
    "student of given df": lambda k: StudentNoise(k, None, 4.5),
    "student, all given": lambda k: StudentNoise(k, np.linspace(0.2, 1.5, k), 4.5),
    "poisson": lambda k: bent(Poisson(typical(k))),
    "negative binomial": lambda k: bent(NegativeBinomial(typical(k))),
    "inflated poisson": lambda k: bent(ZeroInflatedPoisson(typical(k))),
    "inflated negative binomial": lambda k: bent(ZeroInflatedNegativeBinomial(typical(k))),
    # of these, torch computes the slopes in the outputs
    "tweedie": lambda k: bent(CompoundPoisson(typical(k))),
    "own": lambda k: DistributionLikelihood(TorchLikelihood(own_noise, 2 * k), k),
}
COUNTS = "poisson", "negative binomial", "inflated poisson", "inflated negative binomial", "tweedie"


def typical(k):
    return np.linspace(0.8, 3.0, k)


def bent(likelihood):
    return LinearAbove(likelihood, np.linspace(-0.5, 1.0, likelihood.n_outputs))


def own_noise(outputs):
    mean, other = outputs.unflatten(1, (2, -1)).unbind(1)
    noise = torch.distributions.Normal(mean, 0.5 + torch.nn.functional.softplus(other))
    return torch.distributions.Independent(noise, 1)


def problem(kind, n=150, p=7, k=3, dtype="float32", **options):
    """A model, its rows as one batch, and positions of three chains."""
    x = np.random.default_rng(n + p + k + 1).standard_normal((n, p))
    model, data, theta = fit_of(kind, x, k, dtype=dtype, **options)
    return model, data.all_rows(), theta


def fit_of(kind, x, k=3, hidden=(6, 5), activation="relu", weighted=False, dtype="float32"):
    """A model, its data and positions of three chains, away from where all is small."""
    n, p = x.shape
    rng = np.random.default_rng(n + p + k)
    likelihood = LIKELIHOODS[kind](k)
    n_outputs = k if kind == "classes" else likelihood.n_outputs
    model = NetworkModel(MLP((p, *hidden, n_outputs), activation), likelihood, Normal(), "fan_in")
    if kind == "classes":
        y = rng.integers(k, size=n)
    elif kind == "several targets":
        y = np.stack([rng.integers(size, size=n) for size in likelihood.sizes], axis=1)
    else:
        y = rng.standard_normal((n, k))
        if kind in COUNTS:
            y = rng.poisson(np.exp(y)).astype(float)
    weight = rng.exponential(size=n) if weighted else None
    dtype = getattr(torch, dtype)
    data = model.make_data(x, y, weight, dtype, "cpu")
    theta = np.stack([model.init(rng) for _ in range(3)])
    theta = torch.from_numpy(theta + 0.3 * rng.standard_normal(theta.shape)).to(dtype)
    return model, data, theta


def of_both(model, batch, theta, state, scale=0.37):
    """Values and gradients by batched products and by the kernel, which add to what there is."""
    found = []
    for one in (model, model.with_kernel("perceptron")):
        out = torch.full_like(theta, 0.25)
        value = one.value_and_gradient(theta, batch, state, None, out=out, scale=scale)
        again = torch.full_like(theta, 0.25)
        one.likelihood_gradient(theta, batch, state, None, out=again, scale=scale)
        torch.testing.assert_close(again, out, rtol=0.0, atol=0.0, equal_nan=True)
        found.append((value, out))
    return found


def assert_same(model, batch, theta, state, rounding=1e-5):
    """Both are equal up to the rounding of sums over some hundred float32 numbers."""
    (value, out), (compiled_value, compiled_out) = of_both(model, batch, theta, state)
    assert compiled_value.dtype == torch.float64
    torch.testing.assert_close(compiled_value, value, rtol=2e-6, atol=1e-6)
    size = float(out.abs().max())
    torch.testing.assert_close(compiled_out, out, rtol=1e-4, atol=rounding * size)


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic"])
@cases("kind", LIKELIHOODS)
def test_gradients_are_those_of_batched_products(kind, activation):
    for hidden in ((), (1,), (6, 5), (16, 16, 16), (33,)):
        assert_same(*problem(kind, hidden=hidden, activation=activation), {})


@cases("kind", LIKELIHOODS)
def test_any_number_of_rows_columns_and_targets(kind):
    for n in (1, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 3):
        assert_same(*problem(kind, n=n), {})
    for p in (1, 2, 3, 8):
        assert_same(*problem(kind, p=p), {})
    for k in (1, 2, 4) if kind != "classes" else (2, 5):
        assert_same(*problem(kind, k=k, weighted=True), {})


@cases("kind", LIKELIHOODS)
def test_rows_of_each_chain(kind):
    """Minibatches have other rows, targets and weights for each chain."""
    model, batch, theta = problem(kind, weighted=True)
    order = torch.stack([torch.randperm(150, generator=torch.manual_seed(c)) for c in range(3)])
    fields = {name: field[order] for name, field in batch.fields.items()}
    each = replace(batch, fields=fields, weight=batch.weight[order], shared=False)
    assert_same(model, each, theta, {})
    # all rows in another order have the same sums
    (_, out), (_, compiled) = (
        of_both(model, each, theta, {})[0],
        of_both(model, batch, theta, {})[1],
    )
    torch.testing.assert_close(compiled, out, rtol=1e-4, atol=1e-5 * float(out.abs().max()))


@cases("share", [0.0, 0.3, 1.0])
def test_noise_that_depends_on_the_row_later(share):
    model, batch, theta = problem("noise of rows")
    assert_same(model, batch, theta, {SHARE: torch.full((3, 1, 1), share)})


def test_extreme_outputs_are_as_finite_as_those_of_torch():
    """Probabilities that round to zero have finite logarithms; overflow is no number, for both."""
    for kind in LIKELIHOODS:
        model, batch, theta = problem(kind)
        # Student's t of little noise is of the last digits of large outputs; Tweedie's series ends
        rounding = 3e-5 if kind.startswith("student") else 1e-5
        assert_same(model, batch, theta * (2.0 if kind == "tweedie" else 8.0), {}, rounding)
        for bad in (float("nan"), 1e30):
            spoilt = theta.clone()
            spoilt[1] = bad
            (value, out), (compiled_value, compiled_out) = of_both(model, batch, spoilt, {})
            # far targets count as less far for Student's t, so that its density is no overflow
            assert torch.isfinite(compiled_value).equal(torch.isfinite(value))
            for gradient in (out, compiled_out):
                assert not torch.isfinite(gradient[1]).all()
                assert torch.isfinite(gradient[[0, 2]]).all()  # other chains know nothing of it


# rows that hold few numbers of their own ----------------------------------------------------------


def with_indicators(n, numbers=5, levels=150):
    """Standardised rows of some numbers, and of the indicators of a category, in mixed order."""
    rng = np.random.default_rng(n)
    category = rng.integers(levels, size=n)
    x = np.hstack([rng.standard_normal((n, numbers)), category[:, None] == np.arange(levels)])
    return ((x - x.mean(0)) / (x.std(0) + 0.01))[:, rng.permutation(x.shape[1])]


def assert_looked_up(limits, kind, x, **options):
    """Rows whose weights are looked up have the gradients of dense rows, by torch and compiled."""
    model, data, theta = fit_of(kind, x, **options)
    limits(worth_lookups=10**9)
    _, dense, _ = fit_of(kind, x, **options)
    limits(worth_lookups=64)
    assert isinstance(dense.fields["x"], torch.Tensor)
    assert not isinstance(data.fields["x"], torch.Tensor)
    rows = torch.randint(len(x), (2, 3, len(x) // 2), generator=torch.manual_seed(0)).numpy()
    gathered = (rows, rows[:1], rows[:, 0], rows[:1, :1])  # one step or two, shared or not
    batches = [
        [each.all_rows(), *(list(Minibatches(each, 5).gather(some, None))[-1] for some in gathered)]
        for each in (data, dense)
    ]
    for batch, reference in zip(*batches, strict=True):
        few = theta if batch.shared else theta[: len(batch.fields["y"])]
        assert_same(model, batch, few, {})
        _, out = of_both(model, reference, few, {})[0]
        _, compiled = of_both(model, batch, few, {})[1]
        torch.testing.assert_close(compiled, out, rtol=1e-4, atol=1e-5 * float(out.abs().max()))
        log_p, of_dense = (model.log_lik(few, some) for some in (batch, reference))
        torch.testing.assert_close(log_p, of_dense, rtol=1e-5, atol=1e-4)
    each, of_dense = (model.row_gradients(theta[:1], some[-1], {}, None) for some in batches)
    torch.testing.assert_close(each, of_dense, rtol=1e-4, atol=1e-5 * float(of_dense.abs().max()))


@cases("kind", LIKELIHOODS)
def test_weights_of_indicators_are_looked_up(kind, limits):
    for n, hidden in ((150, ()), (ROWS + 3, (6, 5)), (40, (16,))):
        assert_looked_up(limits, kind, with_indicators(n), hidden=hidden)
    assert_looked_up(limits, kind, with_indicators(150, numbers=0), weighted=True)


def test_a_fit_to_many_categories_is_the_one_of_dense_rows(limits):
    """Its first draws, and predictions for rows that hold other categories."""
    rng = np.random.default_rng(0)
    level = rng.integers(300, size=600)
    X = pd.DataFrame({"number": rng.standard_normal(600), "level": level.astype(str)})
    y = X["number"] + rng.standard_normal(300)[level]
    short = {"n_draws": 3, "burn_in": 1, "thinning": 1, "step_size": 1e-4, "batch_size": 100}
    found = []
    for least in (64, 10**9):
        limits(worth_lookups=least)
        model = BayesianMLPRegressor(sampler="sghmc", compiled=True, random_state=0, **short)
        model.fit(X[:500], y[:500])
        found.append([*model.posterior_.draws.values(), model.predict(X[400:])])
    for looked_up, dense in zip(*found, strict=True):
        np.testing.assert_allclose(looked_up, dense, rtol=1e-3, atol=1e-5)


def first_digits(return_X_y):
    return (part[:200] for part in load_digits(n_class=3, return_X_y=return_X_y))


# images -------------------------------------------------------------------------------------------


def images(shape, channels, kernel=3, pool=2, hidden=(6,), activation="relu", n=70):
    """A convolutional network with its rows, and positions of three chains."""
    rng = np.random.default_rng(n)
    network = CNN(shape, channels, kernel, pool, hidden, activation, 4)
    model = NetworkModel(network, Categorical(), Normal(), "fan_in")
    x, y = rng.standard_normal((n, *shape)), rng.integers(4, size=n)
    data = model.make_data(x, y, rng.exponential(size=n), torch.float32, "cpu")
    theta = np.stack([model.init(rng) for _ in range(3)])
    theta = torch.from_numpy(theta + 0.2 * rng.standard_normal(theta.shape)).float()
    return model, data.all_rows(), theta


@cases("activation", ["relu", "tanh", "logistic"])
@cases(
    "layout",
    [
        {"shape": (1, 8, 8), "channels": (8, 16)},
        {"shape": (3, 7, 5), "channels": (3, 4, 5)},
        {"shape": (2, 9, 6), "channels": (5,), "kernel": 4, "pool": 3},
        {"shape": (2, 5, 5), "channels": (4, 3), "kernel": 2, "pool": 1, "hidden": ()},
        {"shape": (1, 12, 1), "channels": (3, 6)},
        {"shape": (1, 1, 11), "channels": (2,), "kernel": 5, "n": ROWS + 3},
        {"shape": (2, 4, 4), "channels": ()},
    ],
)
def test_gradients_of_convolutions_are_those_of_torch(layout, activation):
    assert_same(*images(**layout, activation=activation), {})


def test_rows_of_each_chain_that_are_images():
    model, batch, theta = images((1, 8, 8), (4, 4))
    order = torch.stack([torch.randperm(70, generator=torch.manual_seed(c)) for c in range(3)])
    fields = {name: field[order] for name, field in batch.fields.items()}
    each = replace(batch, fields=fields, weight=batch.weight[order], shared=False)
    assert_same(model, each, theta, {})


@cases("number", range(4))
def test_a_pixel_that_is_no_number_is_not_lost_in_its_pool(number):
    model, batch, theta = images((1, 2, 2), (3,), kernel=1)
    batch.fields["x"][5].view(-1)[number] = float("nan")
    for value, out in of_both(model, batch, theta, {}):
        assert value.isnan().all()
        assert out[:, : model.network.n_convolved].isnan().any(1).all()


@pytest.mark.slow  # compiles the steps of MCLMC anew
def test_whole_steps_on_images_are_those_without_compiled_code():
    X, y = load_digits(n_class=3, return_X_y=True)
    run = {"sampler": "mclmc", "n_chains": 2, "burn_in": 2, "n_draws": 8, "thinning": 1,
           "step_size": 1e-6, "batch_size": 100, "calibrate": False, "random_state": 0}  # fmt: skip
    found = [
        BayesianCNNClassifier(compiled=compiled, **run).fit(X[:100], y[:100])
        for compiled in (True, False)
    ]
    assert found[0].compiled_ == ("perceptron",)
    assert_same_draws(*found, rtol=1e-3, atol=1e-4)


def test_large_convolutions_stay_with_torch(limits):
    """Where a convolution has many channels, torch's own is faster."""
    X, y = load_digits(n_class=2, return_X_y=True)
    limits(worth_layers=1)
    few = BayesianCNNClassifier(conv_channels=(4,), sampler="sghmc", max_steps=40, random_state=0)
    assert "perceptron" in few.fit(X[:80], y[:80]).compiled_
    limits(compiled_products=1000)
    assert few.fit(X[:80], y[:80]).compiled_ == ()


# fits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "load"),
    [
        (BayesianMLPClassifier, load_wine),
        (BayesianMLPRegressor, load_diabetes),
        (BayesianCNNClassifier, first_digits),
    ],
)
def test_first_steps_of_a_fit_are_the_same(estimator, load):
    """Later ones part, because chains amplify rounding."""
    X, y = load(return_X_y=True)
    found = []
    for compiled in (True, False):
        short = {"n_draws": 3, "burn_in": 1, "thinning": 1, "step_size": 1e-4}
        model = estimator(sampler="sghmc", compiled=compiled, random_state=0, **short)
        found.append(model.fit(X, y))
    assert found[0].compiled_ == ("perceptron",)
    assert_same_draws(*found, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("likelihood", ["student_t", "zero_inflated_negative_binomial", "tweedie"])
def test_first_steps_of_mclmc_are_the_same(likelihood):
    """Whole steps where the kernel has the likelihood, else steps around its gradients."""
    X, y = load_diabetes(return_X_y=True)
    short = {"n_draws": 3, "burn_in": 1, "thinning": 1, "step_size": 1e-3, "n_chains": 2}
    found = [
        BayesianMLPRegressor(
            likelihood=likelihood, sampler="mclmc", compiled=compiled, random_state=0, **short
        ).fit(X, y)
        for compiled in (True, False)
    ]
    assert found[0].compiled_ == ("perceptron",)
    assert found[1].compiled_ == ()
    assert_same_draws(*found, rtol=1e-4, atol=1e-6)


def test_what_decides_is_the_length_of_the_run(limits):
    """Not what has been compiled before: the same fit has the same draws."""
    X, y = load_wine(return_X_y=True)
    short = BayesianMLPClassifier(sampler="sghmc", max_steps=60, random_state=0)
    assert short.fit(X, y).compiled_ == ()
    limits(worth_layers=1)
    assert "perceptron" in short.fit(X, y).compiled_
    assert short.set_params(compiled=False).fit(X, y).compiled_ == ()


# predictions --------------------------------------------------------------------------------------


@pytest.fixture(params=["relu", "tanh", "logistic"])
def regressor(request):
    options = {"hidden_layer_sizes": (9, 5), "activation": request.param, "random_state": 0}
    X, y = load_diabetes(return_X_y=True)
    reg = BayesianMLPRegressor(n_chains=2, burn_in=20, n_draws=9, thinning=1, **options)
    return reg.fit(X, np.stack([y, X[:, 2]], axis=1)), X


def of_both_ways(limits, predict):
    """What a function returns with compiled outputs, and with those of torch."""
    found = []
    for least in (0, 10**15):
        limits(worth_outputs=least)
        found.append(predict())
    return found


def test_predictions_are_those_of_torch(regressor, limits):
    """Of one row, of a part of a block, and of several blocks of rows and of draws."""
    reg, X = regressor
    limits(block_numbers=4000)
    for rows in (X[:1], X[: ROWS + 3], X):
        compiled, given = of_both_ways(limits, lambda x=rows: reg.predict(x, return_std=True))
        np.testing.assert_allclose(compiled, given, rtol=2e-6, atol=2e-6 * np.abs(given).max())


def test_predictions_in_threads_are_those_of_one(regressor, limits):
    reg, X = regressor
    limits(worth_outputs=0)
    before, found = torch.get_num_threads(), []
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        found.append(reg.predict_mean_samples(X))
    torch.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_rows_that_leave_the_finite_numbers_are_refused(regressor, limits):
    """Sums of infinite products of both signs are no numbers, which no activation hides."""
    reg, X = regressor
    limits(worth_outputs=0)
    with pytest.raises(ValueError, match="largest magnitude"):
        reg.predict(1e39 * X)


def test_probabilities_of_several_targets_are_those_of_torch(limits):
    X, y = load_wine(return_X_y=True)
    fit = {"burn_in": 20, "n_draws": 9, "thinning": 1, "max_steps": 29, "random_state": 0}
    clf = BayesianMLPClassifier(hidden_layer_sizes=7, **fit)
    clf.fit(X, np.stack([y, y == 1], axis=1))
    for compiled, given in zip(*of_both_ways(limits, lambda: clf.predict_proba(X)), strict=True):
        np.testing.assert_allclose(compiled, given, rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("options", [{"dtype": "float64"}, {"compiled": False}])
def test_predictions_that_torch_computes(options, limits):
    """Draws in double precision, and fits without compiled code."""
    X, y = load_wine(return_X_y=True)
    fit = {"burn_in": 20, "n_draws": 5, "thinning": 1, "max_steps": 25, "random_state": 0}
    clf = BayesianMLPClassifier(hidden_layer_sizes=7, **fit, **options).fit(X, y)
    compiled, given = of_both_ways(limits, lambda: clf.predict_proba(X))
    np.testing.assert_array_equal(compiled, given)


# code on disk -------------------------------------------------------------------------------------


@pytest.fixture
def compiled_anew(tmp_path, monkeypatch):
    """A function of this file as another process would have it, with a folder of its own."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def plus_one(x):
        return x + 1.0

    return lambda: jit(plus_one)


def test_code_is_kept_for_later_processes(compiled_anew):
    first, second = compiled_anew(), compiled_anew()
    assert first(1.0) == second(1.0) == 2.0
    assert first.stats.cache_misses
    assert second.stats.cache_hits


def test_code_of_other_sources_is_not_used(compiled_anew, monkeypatch):
    """Also if a function that it calls has changed, in another file."""
    compiled_anew()(1.0)
    monkeypatch.setattr(_kept, "SOURCES", b"others")
    again = compiled_anew()
    assert again(1.0) == 2.0
    assert not again.stats.cache_hits


def test_damaged_files_and_folders_without_rights_do_no_harm(compiled_anew, tmp_path, monkeypatch):
    compiled_anew()(1.0)
    for path in tmp_path.rglob("*.nb?"):
        path.write_bytes(b"damaged")
    assert compiled_anew()(1.0) == 2.0

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._open_for_write", full)
    assert compiled_anew()(1.0) == 2.0
    monkeypatch.setattr(numba.config, "CACHE_DIR", "/proc/none")
    assert compiled_anew()(1.0) == 2.0
