"""Spike-and-slab priors: the latents' scheme against quadrature, and what estimators do with them.

With orthonormal columns the posterior factorises, so that both the exact one and the fixed point of
the published scheme (rho = E[rho~(beta)] given rho's own prior) are one-dimensional integrals.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    BayesianMLPRegressor,
    BayesianModuleClassifier,
    BayesianModuleRegressor,
    Pruning,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
    SpikeSlab,
)
from skbayes_sgmcmc.diagnostics import mcse
from skbayes_sgmcmc.models.likelihoods.base import Categorical, LatentGaussian
from skbayes_sgmcmc.models.likelihoods.noise import ridge_noise
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.network import ReferenceClass
from skbayes_sgmcmc.models.networks.spike_slab_model import SparseNetworkModel
from skbayes_sgmcmc.priors.factorised import Normal
from skbayes_sgmcmc.schedules import Exponential, Polynomial

N, V_0, V_1, DELTA = 64, 0.1, 10.0, 0.3
LEAST_SQUARES = np.array([0.0, 0.2, 0.3, 0.4, 0.6, 1.0])
GRID = np.linspace(-4.0, 4.0, 20_001)
FIXED = SpikeSlab(V_0, V_1, DELTA, learn_inclusion=False, sigma=1.0, learn_sigma=False)


def orthonormal():
    """Rows of mean 0 whose least squares estimates are LEAST_SQUARES, for a noise of sd 1."""
    rng = np.random.default_rng(0)
    columns = [np.ones(N), *rng.standard_normal((len(LEAST_SQUARES), N))]
    q, _ = np.linalg.qr(np.column_stack(columns))
    X, noise = q[:, 1:] * np.sqrt(N), rng.standard_normal(N)
    return X, X @ LEAST_SQUARES + noise - q @ (q.T @ noise)


def probability(beta, sigma=1.0, delta=DELTA):
    """rho~: the probability of the slab given the coefficient."""
    z = np.abs(beta) / sigma
    constant = np.log(2.0 * V_0) - 0.5 * np.log(2.0 * np.pi * V_1)
    return expit(logit(delta) + constant + z / V_0 - 0.5 * z**2 / V_1)


def normalised(log_density):
    weight = np.exp(log_density - log_density.max())
    return weight / weight.sum()


def exact(estimate):
    """Inclusion probability, mean and sd of a coefficient's posterior."""
    spike = np.log1p(-DELTA) - np.log(2.0 * V_0) - np.abs(GRID) / V_0
    slab = np.log(DELTA) - 0.5 * np.log(2.0 * np.pi * V_1) - 0.5 * GRID**2 / V_1
    log_lik = -0.5 * N * (GRID - estimate) ** 2
    return moments(normalised(log_lik + np.logaddexp(spike, slab)))


def fixed_point(estimate):
    """The same of the scheme's own limit, in which rho is its own expectation."""
    rho, log_lik = DELTA, -0.5 * N * (GRID - estimate) ** 2
    for _ in range(500):
        penalty = (1.0 - rho) * np.abs(GRID) / V_0 + 0.5 * rho * GRID**2 / V_1
        found = moments(normalised(log_lik - penalty))
        rho += 0.2 * (found[0] - rho)
    return found


def moments(weight):
    mean = weight @ GRID
    return weight @ probability(GRID), mean, np.sqrt(weight @ GRID**2 - mean**2)


# the scheme ---------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("adaptation", "truth", "many"),
    [("sa", fixed_point, 10), ("gibbs", exact, 10), ("gibbs", exact, 0)],
    ids=["sa", "gibbs", "gibbs at every fourth step"],
)
@pytest.mark.parametrize("sampler", ["sgld", pytest.param("sghmc", marks=pytest.mark.slow)])
def test_means_and_inclusion_probabilities_are_those_of_quadrature(
    adaptation, truth, many, sampler, limits
):
    limits(many_latents=many)
    # full batch and small steps, of which only Monte Carlo errors are left: 4.5 of them for 24
    # comparisons, and 0.01 for what a step of 0.02 does at the spike's corner
    X, y = orthonormal()
    gain = Polynomial(a=0.4, b=200.0, gamma=0.7)
    reg = SparseBayesianRegressor(
        prior=clone(FIXED).set_params(adaptation=adaptation, gain=gain),
        standardize=False, sampler=sampler, step_size=0.02, batch_size=N, n_chains=40,
        n_draws=240, burn_in=1000, thinning=4, random_state=0,
    ).fit(X, y)  # fmt: skip
    rho, mean, sd = np.array([truth(estimate) for estimate in LEAST_SQUARES]).T
    posterior = reg.posterior_
    if adaptation == "sa":  # rho is an average over the chain already: its chains' spread is left
        last = posterior["rho_weight_1"][:, -1, :, 0]
        found, error = last.mean(0), last.std(0, ddof=1) / np.sqrt(40)
    else:
        found, error = reg.inclusion_probability_, mcse(posterior, "rho_weight_1")[:, 0]
    assert np.all(np.abs(found - rho) < 4.5 * error + 0.01)
    error = mcse(posterior, "weight_1")[:, 0]
    assert np.all(np.abs(posterior.mean("weight_1")[:, 0] - mean) < 4.5 * error + 0.003)
    np.testing.assert_allclose(posterior.std("weight_1")[:, 0], sd, rtol=0.1)


@pytest.mark.statistical
def test_the_schemes_limit_is_not_the_posterior():
    # the docs say so: at an estimate of 0.2 standard units sa has less inclusion than the posterior
    gaps = [exact(estimate)[0] - fixed_point(estimate)[0] for estimate in (0.4, 0.45, 0.5)]
    assert max(np.abs(gaps)) > 0.01


@pytest.mark.statistical
def test_gibbs_draws_sigma_and_delta_from_the_exact_posterior():
    # one coefficient: delta integrates to its prior mean a / (a + b), the rest is a 2-D quadrature
    rng = np.random.default_rng(1)
    n = 12
    prior = SpikeSlab(
        V_0, V_1, inclusion_prior=(1.0, 3.0), sigma_prior=(3.0, 0.5), adaptation="gibbs"
    )
    x = rng.permutation(np.repeat([-1.0, 1.0], n // 2))
    y = 0.5 * x + 0.8 * rng.standard_normal(n)
    y -= y.mean()
    reg = SparseBayesianRegressor(
        prior=prior, standardize=False, sampler="sghmc", prior_scale=0.03,
        step_size=0.005, batch_size=n, n_chains=96, n_draws=50, burn_in=600, thinning=8,
        random_state=0,
    ).fit(x[:, None], y)  # fmt: skip
    log_sigma, beta = np.linspace(-2.5, 2.0, 301)[:, None], np.linspace(-3.0, 3.0, 2001)
    sigma, nu, lam = np.exp(log_sigma), *prior.sigma_prior
    squares = ((y - x * beta[:, None]) ** 2).sum(1)
    spike = np.log(0.75 / (2.0 * V_0)) - np.abs(beta) / (sigma * V_0)
    slab = np.log(0.25) - 0.5 * np.log(2.0 * np.pi * V_1) - 0.5 * beta**2 / (sigma**2 * V_1)
    log_density = -(n + nu + 1.0) * log_sigma - 0.5 * (squares + nu * lam) / sigma**2
    weight = normalised(log_density + np.logaddexp(spike, slab))
    given = probability(beta, sigma, 0.25)
    posterior = reg.posterior_
    for name, truth in (
        ("rho_weight_1", (weight * given).sum()),
        ("weight_1", (weight * beta).sum()),
        ("sigma", (weight * sigma).sum()),
    ):
        error = float(np.max(mcse(posterior, name)))
        # 4 standard errors, and a hundredth for steps of finite size
        assert abs(float(np.squeeze(posterior.mean(name))) - truth) < 4.0 * error + 0.01, name


def test_em_is_sa_with_a_gain_of_one():
    X, y = orthonormal()
    settings = {"n_draws": 20, "burn_in": 20, "thinning": 1, "n_chains": 2, "random_state": 0}
    em = SparseBayesianRegressor(prior=SpikeSlab(adaptation="em"), **settings).fit(X, y)
    sa = SparseBayesianRegressor(prior=SpikeSlab(gain=1.0, adaptation="sa"), **settings).fit(X, y)
    np.testing.assert_array_equal(em.posterior_["weight_1"], sa.posterior_["weight_1"])


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_gains_are_as_documented():
    """10 (k + 1000)^-0.7 for "auto": its run is that of this schedule bit by bit, of no other."""
    X, y = orthonormal()
    settings = {"n_draws": 20, "burn_in": 200, "thinning": 1, "n_chains": 2, "random_state": 0}
    auto = SparseBayesianRegressor(prior=SpikeSlab(adaptation="sa"), **settings)
    auto = auto.fit(X, y).posterior_["sigma"]
    for gamma in (0.7, 0.71):
        prior = SpikeSlab(gain=Polynomial(a=10.0, b=1000.0, gamma=gamma), adaptation="sa")
        given = SparseBayesianRegressor(prior=prior, **settings).fit(X, y).posterior_["sigma"]
        assert np.array_equal(given, auto) == (gamma == 0.7)


def test_without_adaptation_latents_stay_where_they_start():
    X, y = orthonormal()
    prior = SpikeSlab(inclusion=0.2, sigma=2.0, adaptation=None)
    reg = SparseBayesianRegressor(prior=prior, n_draws=20, burn_in=20, thinning=1,
                                  random_state=0).fit(X, y)  # fmt: skip
    assert np.all(reg.posterior_["rho_weight_1"] == 0.2)
    assert np.all(reg.posterior_["sigma"] == 2.0)
    np.testing.assert_allclose(reg.delta_, 0.2)


def test_reference_class_has_the_logits_zero_and_f():
    network = ReferenceClass(MLP((3, 1), "relu"))
    theta = torch.randn(2, 4, dtype=torch.float64, generator=torch.manual_seed(0))
    x, y = torch.randn(1, 5, 3, dtype=torch.float64), torch.tensor([[0, 1, 1, 0, 1]])
    at = theta.clone().requires_grad_()
    f = (x @ at[:, :3, None] + at[:, 3:, None])[..., 0]
    loss = torch.nn.functional.softplus((1 - 2 * y) * f).sum()
    (expected,) = torch.autograd.grad(loss, at)
    outputs, tape = network.forward(theta, x)
    delta, _ = Categorical().slope(outputs.clone(), y, theta[:, 4:])
    out = torch.zeros_like(theta)
    network.backward(tape, delta, out)
    torch.testing.assert_close(out, expected)


def test_ridge_noise_is_the_noise_and_weights_are_repetitions():
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((200, 10)), rng.integers(1, 4, 200)
    y = X @ rng.standard_normal((10, 1)) + 0.3 * rng.standard_normal((200, 1))
    # 190 degrees of freedom: 3 standard errors of a variance are 31%
    assert abs(ridge_noise(X, y, np.ones(200)) / 0.09 - 1.0) < 0.31
    repeated = ridge_noise(np.repeat(X, weight, 0), np.repeat(y, weight, 0), np.ones(weight.sum()))
    np.testing.assert_allclose(ridge_noise(X, y, weight.astype(float)), repeated, rtol=1e-9)
    wide = np.pad(X, ((0, 0), (0, 300)))  # with columns that say nothing
    for rows in (wide, 1e200 * wide, sp.csr_matrix(wide)):
        np.testing.assert_allclose(ridge_noise(rows, y, weight.astype(float)), repeated, rtol=1e-9)


# estimators ---------------------------------------------------------------------------------------


def wide(seed=0, n=60, p=200):
    """More features than rows, of which three matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, 3.0 * X[:, 0] - 2.0 * X[:, 5] + X[:, 9] + 0.5 * rng.standard_normal(n)


@pytest.mark.statistical
@pytest.mark.slow
def test_selects_the_features_that_matter_among_more_than_there_are_rows():
    X, y = wide()
    reg = SparseBayesianRegressor(random_state=0).fit(X, y)
    assert reg.get_support(indices=True).tolist() == [0, 5, 9]
    np.testing.assert_allclose(reg.coef_[[0, 5, 9]], [3.0, -2.0, 1.0], atol=0.4)
    X_new, y_new = wide(seed=1)
    assert reg.score(X_new, y_new) > 0.9
    inside = reg.predict_interval(X_new, 0.9)
    # of 60: 90% less three binomial standard errors of 3.9%
    assert np.mean((y_new > inside[:, 0]) & (y_new < inside[:, 1])) > 0.78


@pytest.mark.statistical
def test_coefficients_are_in_the_units_of_the_data():
    X, y = wide(n=80, p=10)
    X = X[:, :5] * [1.0, 10.0, 0.1, 1.0, 1.0] + 3.0
    y = 100.0 + 20.0 * X[:, 1] + np.random.default_rng(0).standard_normal(80)
    run = {"burn_in": 1000, "n_draws": 50, "thinning": 5, "n_chains": 4, "random_state": 0}
    reg = SparseBayesianRegressor(**run).fit(X, y)
    np.testing.assert_allclose(reg.predict(X), X @ reg.coef_ + reg.intercept_, rtol=1e-9)
    np.testing.assert_allclose(reg.coef_[1], 20.0, rtol=0.05)


@pytest.mark.slow
def test_a_feature_selector_in_a_pipeline():
    X, y = wide()
    settings = {"burn_in": 5000, "n_draws": 50, "thinning": 20, "n_chains": 2, "random_state": 0}
    pipe = make_pipeline(SparseBayesianRegressor(**settings), LinearRegression()).fit(X, y)
    assert pipe[-1].n_features_in_ == 3
    chosen = SelectFromModel(
        SparseBayesianRegressor(**settings), importance_getter="inclusion_probability_",
        threshold=0.5,
    ).fit(X, y)  # fmt: skip
    assert chosen.get_support(indices=True).tolist() == [0, 5, 9]


def test_default_spikes_follow_the_standard_errors():
    """0.4 of them in linear models: 1 / sqrt(N) sigma, 1 / sqrt(N p (1 - p)) logits; at most 0.1.

    The latter are 2 / sqrt(N) if classes have the same size, and 5 / sqrt(N) for one of 24 rows.
    """
    X = np.random.default_rng(0).standard_normal((9600, 5))
    for n, likelihood, sizes, prior, expected in (
        (400, LatentGaussian(1), (5, 1), SpikeSlab(), 0.02),
        (400, LatentGaussian(1), (5, 1), SpikeSlab(sigma=3.0), 0.02),
        (400, Categorical(), (5, 2), SpikeSlab(), 0.04),
        (400, Categorical(), (5, 2), SpikeSlab(sigma=2.0), 0.02),
        (9600, Categorical(), (5, 2), SpikeSlab(), 0.4 / np.sqrt(9600 * 23 / 24**2)),
        (4, LatentGaussian(1), (5, 1), SpikeSlab(), 0.1),
        (400, LatentGaussian(1), (5, 3, 1), SpikeSlab(), 0.1),
        (400, LatentGaussian(1), (5, 1), SpikeSlab(0.3), 0.3),
    ):
        model = SparseNetworkModel(
            MLP(sizes, "tanh"), likelihood, Normal(), 1.0, spike_slab=prior,
            sparse_blocks=("weight_1",),
        )  # fmt: skip
        y = np.zeros((n, 1))
        if isinstance(likelihood, Categorical):
            y = np.arange(n) % (24 if n == 9600 else 2) == 0
        data = model.make_data(X[:n], y, None, torch.float64, "cpu")
        assert model.bound(data).spike_slab.spike_scale == pytest.approx(expected)
        # what is known of the data is on a copy
        assert model.spike_slab.spike_scale == prior.spike_scale


def test_runs_and_data_leave_a_model_as_it_is():
    """What they change is on copies, with the same memory of all that they do not."""
    model = SparseNetworkModel(
        MLP((5, 1), "tanh"), LatentGaussian(1), Normal(), 1.0, spike_slab=SpikeSlab(),
        sparse_blocks=("weight_1",), pruning=Pruning(0.5), pruned_blocks=("weight_1",),
    )  # fmt: skip
    data = model.make_data(np.eye(5), np.zeros((5, 1)), None, torch.float64, "cpu")
    bound = model.bound(data)
    assert (model.latents.n_data, bound.latents.n_data) == (0.0, 5.0)
    long = bound.prepared(10**6)
    assert long.pruning.start == 250_000 and bound.pruning is model.pruning
    compiled = long.with_kernel("spike_slab")
    assert compiled.latents.compiled and not long.latents.compiled
    assert model.kernels_pay(data, 10**6) and not model.kernels_pay(data, 100)
    assert compiled.latents.n_data == 5.0 and compiled.pruning is long.pruning
    assert long.latents.n_data == 5.0 and long.network is model.network


@pytest.mark.statistical
def test_features_with_clear_effects_are_selected():
    """Body mass is 7.8 standard errors from zero in least squares, age 0.2."""
    X, y = load_diabetes(return_X_y=True)
    run = {"burn_in": 1000, "n_draws": 50, "thinning": 10, "n_chains": 4, "random_state": 0}
    reg = SparseBayesianRegressor(**run).fit(X, y)
    assert reg.inclusion_probability_[2] > 0.9 and reg.inclusion_probability_[0] < 0.1


@pytest.mark.statistical
def test_classifier_selects_too():
    """It predicts as well as the true rule, whatever the noise did to the labels.

    Its direction is off by some 0.02 radians, of a half circle for all rows: three rows of 300
    have another label, of which nearly as many become right as wrong. Five net are allowed.
    """
    X, _ = wide(n=300, p=30)
    rule = X[:, 2] - X[:, 7]
    noise = 0.3 * np.random.default_rng(0).standard_normal(300)
    y = np.where(rule + noise > 0, "yes", "no")
    run = {"burn_in": 1000, "n_draws": 50, "thinning": 10, "n_chains": 4, "random_state": 0}
    clf = SparseBayesianClassifier(**run).fit(X, y)
    assert clf.get_support(indices=True).tolist() == [2, 7]
    assert clf.coef_.shape == (1, 30) and clf.intercept_.shape == (1,)
    p = clf.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert clf.score(X, y) >= np.mean((rule > 0) == (y == "yes")) - 5 / 300


def test_sparse_rows_give_what_dense_ones_do():
    X, y = wide(n=80, p=30)
    X[np.abs(X) < 1.0] = 0.0
    settings = {"n_draws": 20, "burn_in": 50, "thinning": 1, "batch_size": 20, "random_state": 0,
                "standardize": False}  # fmt: skip
    dense = SparseBayesianRegressor(**settings).fit(X, y)
    sparse = SparseBayesianRegressor(**settings).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(sparse.predict(sp.csr_matrix(X)), dense.predict(X), rtol=1e-8)
    scaled = SparseBayesianRegressor(
        burn_in=1000, n_draws=50, thinning=10, n_chains=2, random_state=0
    )
    scaled.fit(sp.csr_matrix(X), y)
    assert {0, 5} <= set(scaled.get_support(indices=True)) <= {0, 5, 9}


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize(
    "estimator",
    [SparseBayesianClassifier(), BayesianLogisticRegression(prior_scale="learned")],
    ids=["spike_slab", "logistic"],
)
def test_numbers_of_sparse_rows_may_be_sums_of_several_entries(estimator):
    """As in a matrix of words that is made word by word. Its columns had other sds."""
    rng = np.random.default_rng(0)
    words, places = rng.integers(0, 4, 400), np.arange(0, 401, 8)  # 50 rows of 8 words
    several = sp.csr_matrix((np.ones(400), words, places), (50, 4))
    X, y = several.toarray(), rng.random(50) < 0.5
    settings = {"n_chains": 1, "n_draws": 10, "burn_in": 20, "thinning": 1, "random_state": 0}
    clf = estimator.set_params(**settings)
    expected = clf.fit(sp.csr_matrix(X), y).predict_proba(X)
    np.testing.assert_allclose(clf.fit(several, y).predict_proba(several), expected, rtol=1e-9)
    assert several.nnz == 400  # the user's own stays as it was


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_sparse_rows_are_predicted_as_dense_ones():
    """After a fit to dense rows, whose centre is then subtracted from sparse ones, too.

    It was not: probabilities were off by up to 0.95 for features with a mean of three sds.
    """
    X = np.random.default_rng(0).normal(3.0, 1.0, (100, 3))
    clf = SparseBayesianClassifier(n_chains=2, n_draws=5, burn_in=50, thinning=1, random_state=0)
    clf.fit(X, X[:, 0] > 3.0)
    assert np.allclose(clf.predict_proba(sp.csr_matrix(X)), clf.predict_proba(X), atol=1e-6)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_predictions_of_words_need_no_dense_rows(hidden, monkeypatch):
    """A dense copy of 3,000 rows of 36,746 words took a gigabyte, and products with it 100 s."""
    X = sp.random(60, 400, 0.02, "csr", random_state=0)
    settings = {"n_chains": 2, "n_draws": 5, "burn_in": 5, "thinning": 1, "random_state": 0}
    clf = SparseBayesianClassifier(hidden_layer_sizes=hidden, **settings)
    clf.fit(X, np.arange(60) % 3)
    expected = clf.predict_proba(X.toarray())

    def forbidden(self):
        raise AssertionError

    monkeypatch.setattr(sp.csr_matrix, "toarray", forbidden)
    np.testing.assert_allclose(clf.predict_proba(X), expected, rtol=1e-5)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_weights_are_repetitions_in_all_units(form):
    """Of rows, targets and coefficients: from full batches the same draws, up to rounding.

    Weights grow with the features, so that without them the units would be others by a tenth.
    """
    X, y = wide(n=40, p=10)
    X = np.where(X > 0.0, X, 0.0)
    times = 1 + (X[:, 0] > 0.5) + (X[:, 1] > 0.5)
    settings = {"n_chains": 2, "n_draws": 20, "burn_in": 50, "thinning": 1, "batch_size": 200,
                "step_size": 0.01, "compiled": False, "random_state": 0}  # fmt: skip
    weighted = SparseBayesianRegressor(**settings).fit(form(X), y, sample_weight=times)
    repeated = SparseBayesianRegressor(**settings).fit(
        form(np.repeat(X, times, 0)), np.repeat(y, times)
    )
    for name in ("weight_1", "rho_weight_1", "sigma"):
        expected = repeated.posterior_[name]
        np.testing.assert_allclose(weighted.posterior_[name], expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(weighted.predict(form(X)), repeated.predict(form(X)), rtol=1e-7)


def test_streams_keep_their_latents():
    X, y = wide(n=400, p=20)
    reg = SparseBayesianRegressor(n_chains=2, random_state=0, standardize=False)
    for rows in np.array_split(np.arange(400), 4):
        reg.partial_fit(X[rows], y[rows])
    assert reg._chain_state.memory.rows_seen == 400
    first = reg._chain_state.model["sigma"]
    reg.partial_fit(X[:100], y[:100])
    assert np.all(np.abs(np.log(reg._chain_state.model["sigma"] / first)) < 1.0)


class Small(torch.nn.Sequential):
    def __init__(self, n_features, n_outputs):
        super().__init__(
            torch.nn.Linear(n_features, 5), torch.nn.Tanh(), torch.nn.Linear(5, n_outputs)
        )


def test_any_module_may_have_the_prior():
    X, y = wide(n=100, p=10)
    settings = {"n_draws": 20, "burn_in": 100, "thinning": 2, "n_chains": 2, "random_state": 0}
    clf = BayesianModuleClassifier(Small, prior=SpikeSlab(layers=["0"]), **settings)
    clf.fit(X, y > 0)
    assert clf.posterior_["rho_0.weight"].shape == (2, 20, 5, 10)
    assert "rho_2.weight" not in clf.posterior_.draws and clf.delta_.shape == (1,)
    reg = BayesianModuleRegressor(Small, prior="spike_slab", **settings).fit(X, y)
    _, sd = reg.predict(X, return_std=True)
    assert np.all(sd > 0.0) and reg.delta_.shape == (2,)


# what is refused, and odd data --------------------------------------------------------------------


GIBBS = SpikeSlab(adaptation="gibbs")


@cases(
    "parameters, words",
    [
        ({"prior": SpikeSlab(spike_scale=0.0)}, "prior.spike_scale=0.0"),
        ({"prior": SpikeSlab(slab_variance=-1.0)}, "prior.slab_variance=-1.0"),
        ({"prior": SpikeSlab(sigma=0.0)}, "prior.sigma=0.0"),
        ({"prior": SpikeSlab(inclusion=1.0)}, "prior.inclusion=1.0"),
        ({"prior": SpikeSlab(inclusion_prior=(1.0, 0.0))}, r"prior.inclusion_prior\[1\]=0.0"),
        # its draws were infinite
        ({"prior": SpikeSlab(inclusion_prior=(1.0, 1e-300))}, r"prior.inclusion_prior\[1\]=1e-300"),
        ({"prior": SpikeSlab(sigma_prior=3.0)}, "prior.sigma_prior=3.0"),
        ({"prior": "normal"}, "prior='normal'"),
        ({"prior": SpikeSlab(adaptation="vb")}, "prior.adaptation='vb'"),
        ({"prior": SpikeSlab(gain=1.5)}, "prior.gain=1.5"),
        ({"prior": SpikeSlab(gain=Polynomial(a=10.0, b=1.0, gamma=0.7))}, "largest value is 10"),
        ({"prior": SpikeSlab(layers=["weight_9"])}, "prior.layers=.*'weight_9' is given twice, or"),
        ({"prior": SpikeSlab(layers=[])}, "prior.layers="),
        ({"prior": SpikeSlab(layers="first")}, "prior.layers='first'"),
        ({"prior": SpikeSlab(layers=[1])}, "prior.layers="),
        ({"prior": SpikeSlab(layers=["weight_1", "weight_1"])}, "twice"),
        ({"threshold": 1.0}, "threshold=1.0"),
        ({"sampler": "mala"}, "latent variables change"),
        ({"prior": GIBBS, "temperature": 0.5}, "temperature=0.5 .*prior.adaptation='gibbs'"),
        ({"prior": GIBBS, "temperature": Exponential(1.0, 0.1)}, "temperature="),
    ],
)
def test_bad_parameters_are_named_with_a_remedy(parameters, words):
    X, y = wide(n=20, p=10)
    parameters = {"step_size": 0.01} | parameters
    with pytest.raises(ValueError, match=words):
        SparseBayesianRegressor(n_draws=5, burn_in=5, **parameters).fit(X, y)


def test_other_noise_than_sigma_or_a_number_is_refused_and_the_prior_elsewhere():
    X, y = wide(n=20, p=10)
    with pytest.raises(ValueError, match=r"noise='heteroscedastic' .*noise='infer'.*or a number"):
        BayesianModuleRegressor(Small, prior="spike_slab", noise="heteroscedastic").fit(X, y)
    with pytest.raises(ValueError, match="prior=SpikeSlab"):
        BayesianMLPRegressor(prior=SpikeSlab()).fit(X, y)


@cases(
    "change",
    [
        lambda X, y: (X[:5], y[:5]),  # fewer rows than columns
        lambda X, y: (X[:1], y[:1]),
        lambda X, y: (np.hstack([X, np.ones((len(X), 1))]), y),  # a constant column
        lambda X, y: (np.hstack([X, X]), y),  # columns that come twice
        lambda X, y: (X, np.full(len(y), 3.0)),
        lambda X, y: (1e8 * X, 1e-8 * y),
    ],
)
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@pytest.mark.parametrize("adaptation", ["sa", "gibbs"])
def test_odd_data_have_finite_posteriors(change, adaptation):
    X, y = change(*wide(n=30, p=10))
    # chains take longest to the only value that targets have
    run = {"n_chains": 2, "n_draws": 20, "burn_in": 500 if len(set(y)) == 1 else 150,
           "thinning": 1, "random_state": 0}  # fmt: skip
    reg = SparseBayesianRegressor(prior=SpikeSlab(adaptation=adaptation), **run).fit(X, y)
    mean, sd = reg.predict(X, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(sd).all() and np.isfinite(reg.coef_).all()
    assert np.all((reg.inclusion_probability_ >= 0.0) & (reg.inclusion_probability_ <= 1.0))
    if len(y) > 1 and len(set(y)) == 1:
        np.testing.assert_allclose(mean, y, atol=1.0)


def test_sparse_rows_stay_sparse():
    """400 rows of 30,000 columns would take 96 MB, and two draws of two blocks take a megabyte."""
    X = sp.random(400, 30_000, 0.001, format="csr", random_state=0)
    reg = SparseBayesianRegressor(n_chains=1, n_draws=2, burn_in=2, thinning=1, random_state=0)
    tracemalloc.start()
    reg.fit(X, np.arange(400.0) % 7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
