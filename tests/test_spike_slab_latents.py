"""The spike-and-slab prior's gradient and latents: formulas, compiled code, extreme numbers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from _inside import streams
from scipy.special import expit
from scipy.stats import gamma, kstest

from skbayes_sgmcmc import SparseBayesianRegressor, SpikeSlab
from skbayes_sgmcmc._data.minibatch import Minibatches
from skbayes_sgmcmc.models.likelihoods.base import Categorical, Gaussian, LatentGaussian
from skbayes_sgmcmc.models.networks.latents import LEAST_DELTA, log_gamma
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.network import ReferenceClass
from skbayes_sgmcmc.models.networks.spike_slab_model import SparseNetworkModel
from skbayes_sgmcmc.priors.factorised import Normal
from skbayes_sgmcmc.schedules import Constant, Polynomial

V_0 = 0.1


def model_of(adaptation="sa", compiled=False, prior=None, likelihood=None, gain=None):
    """A network with two sparse blocks and one that is not."""
    model = SparseNetworkModel(
        MLP((3, 4, 2), "tanh"), likelihood or LatentGaussian(2), Normal(), 1.0,
        spike_slab=(prior or SpikeSlab()).set_params(
            adaptation=adaptation, gain=gain or Constant(0.1)
        ),
        sparse_blocks=("weight_1", "weight_2"),
    )  # fmt: skip
    return model.with_kernel("spike_slab") if compiled else model


def bound(model, dtype):
    """The model with ten rows."""
    x = np.random.default_rng(0).standard_normal((10, 3))
    return model.bound(model.make_data(x, np.zeros((10, 2)), None, dtype, "cpu"))


def stepped(model, theta, dtype=torch.float64, n_steps=3):
    """State, and the prior's gradient, after some updates at one position."""
    model = bound(model, dtype)
    theta = torch.as_tensor(theta, dtype=dtype)
    state = model.init_state(theta)
    rng = streams(len(theta))
    for k in range(n_steps):
        aux = {"mean_square_slope": state["sigma"] ** -4}  # of residuals of one
        model.after_step(theta, state, aux, k, rng, 1.0)
    out = torch.empty_like(theta)
    model.prior_gradient(theta, state, out, 0.5)
    return state, out


def test_prior_gradient_is_the_slope_of_the_energy():
    # sum of (1 - r)|beta|/(v_0 sigma) + r beta^2/(2 v_1 sigma^2), and the normal prior elsewhere
    model = model_of()
    theta = np.random.default_rng(0).standard_normal((2, model.n_parameters))
    state, gradient = stepped(model, theta)
    blocks = model.latents.blocks
    at = torch.tensor(theta, requires_grad=True)
    beta, r, sigma = blocks.coefficients(at), state["slab"], state["sigma"]
    energy = ((1 - r) * beta.abs() / (0.1 * sigma) + r * beta**2 / (20.0 * sigma**2)).sum()
    biases = torch.cat([at[:, 12:16], at[:, 24:26]], 1)
    (expected,) = torch.autograd.grad(0.5 * (energy + 0.5 * (biases**2).sum()), at)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("adaptation", ["sa", "gibbs"])
def test_compiled_latents_are_those_of_torch(adaptation):
    pytest.importorskip("numba")
    theta = np.random.default_rng(0).standard_normal((2, model_of().n_parameters))
    expected, gradient = stepped(model_of(adaptation, compiled=False), theta, n_steps=20)
    found, same = stepped(model_of(adaptation, compiled=True), theta, n_steps=20)
    torch.testing.assert_close(same, gradient, rtol=1e-12, atol=1e-12)
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sampler", ["sghmc", "msgnht"])
def test_compiled_latents_serve_every_sampler(sampler):
    # these have no compiled steps; "auto" starts the compiler in long runs only
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((64, 6)), rng.standard_normal(64)
    settings = {"sampler": sampler, "step_size": 0.01, "n_draws": 10, "burn_in": 10, "thinning": 1,
                "n_chains": 2, "random_state": 0}  # fmt: skip
    by_torch = SparseBayesianRegressor(compiled=False, **settings).fit(X, y)
    compiled = SparseBayesianRegressor(compiled=True, **settings).fit(X, y)
    for name in ("weight_1", "rho_weight_1", "sigma"):
        expected, found = by_torch.posterior_[name], compiled.posterior_[name]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def linear_model(classes, compiled):
    network = ReferenceClass(MLP((7, 1), "relu")) if classes else MLP((7, 1), "relu")
    likelihood = Categorical() if classes else LatentGaussian(1)
    model = SparseNetworkModel(
        network, likelihood, Normal(), 1.0, spike_slab=SpikeSlab(), sparse_blocks=("weight_1",)
    )
    return model.with_kernel("spike_slab") if compiled else model


def rows_gradient(model, dtype, weighted, shared, sparse=False):
    """Of three chains at different places, each with its sigma, added to ones; and what is left."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 7)), rng.standard_normal((20, 1))
    if isinstance(model.likelihood, Categorical):
        y = (y[:, 0] > 0.0).astype(int)
    weight = rng.random(20) if weighted else None
    if sparse:
        X *= rng.random(X.shape) < 0.4
        X[3] = 0.0
        X = sp.csr_matrix(X)
    data = model.make_data(X, y, weight, dtype, "cpu")
    theta = torch.from_numpy(5.0 * rng.standard_normal((3, 8))).to(dtype)
    state, random = model.init_state(theta), streams(3)
    state["sigma"].copy_(torch.tensor([[0.5], [1.0], [2.0]]))
    minibatches = Minibatches(data, 6)
    rows = minibatches.indices(1, random)
    batch = next(minibatches.chunk(rows, 1, random))
    if shared:
        batch = minibatches.batch_of(rows[0, 0])
    out = torch.ones_like(theta)
    aux = model.likelihood_gradient(theta, batch, state, random, out=out, scale=0.3)
    return out, aux


@cases("classes", [False, True])
@cases("weighted", [False, True])
@cases("shared", [False, True])
@cases("sparse", [False, True])
@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.float64]
)
def test_compiled_gradient_of_a_linear_models_rows_is_that_of_torch(
    classes, weighted, shared, sparse, dtype, limits
):
    # to rounding: sums of 6 terms in another order, slopes up to 1 / sigma^2 = 4 of 15 sds
    pytest.importorskip("numba")
    limits(worth_sparse=1, sparse_share=1.0)  # rows of seven numbers stay sparse
    model = linear_model(classes, compiled=True)
    assert model.compiles_rows
    given = dtype, weighted, shared, sparse
    expected, aux = rows_gradient(linear_model(classes, compiled=False), *given)
    found, same = rows_gradient(model, *given)
    bound = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(found, expected, rtol=bound, atol=10.0 * bound)
    assert set(aux) == set(same) == (set() if classes else {"mean_square_slope"})
    for name, values in aux.items():
        torch.testing.assert_close(same[name], values, rtol=bound, atol=0.0)


def test_large_minibatches_are_left_to_torch(limits):
    # which may use several threads for one product
    pytest.importorskip("numba")
    model = linear_model(False, compiled=True)
    model.compiles_rows = False
    expected, _ = rows_gradient(model, torch.float64, False, False)
    limits(latent_rows=6 * 7 - 1)
    found, _ = rows_gradient(linear_model(False, compiled=True), torch.float64, False, False)
    assert torch.equal(found, expected)


def test_only_one_plain_linear_function_has_a_compiled_gradient():
    pytest.importorskip("numba")
    assert not model_of(compiled=True).compiles_rows  # hidden units
    model = linear_model(False, compiled=True)
    rounded = SparseNetworkModel(
        model.network, model.likelihood, Normal(), 1.0, spike_slab=SpikeSlab(),
        sparse_blocks=("weight_1",), precision="bfloat16",
    )  # fmt: skip
    assert not rounded.with_kernel("spike_slab").compiles_rows


@cases("n", [1, 511, 512, 1300])
def test_compiled_probabilities_are_exact_to_rounding(n):
    # their exponential is our own; blocks longer than its part of 512 are put together
    pytest.importorskip("numba")
    from skbayes_sgmcmc._kernels.latents import LARGEST, follow

    # log odds = -z^2 / (2 v_1) + z / v_0 + constant: from far below -LARGEST to far above
    prior = SpikeSlab(spike_scale=1e-3, slab_variance=1e4)
    beta = np.linspace(0.0, 1.5, n)[None]
    beta[0, -1] = 1e4
    rho, slab, one = np.zeros((1, n)), np.zeros((1, n)), np.ones((1, 1))
    odds = prior.log_odds(torch.from_numpy(beta)).numpy()
    assert odds.max() > LARGEST or n == 1
    nothing, places = np.empty(0), (np.array([0]), np.array([n]))
    follow(beta, rho, slab, one, np.zeros((1, 1)), one, *places, 1.0, 1e-3, 1e4, (0.0, 0.0, 0.0),
           nothing, nothing, LEAST_DELTA)  # fmt: skip
    np.testing.assert_allclose(rho, expit(odds), rtol=1e-12, atol=1e-300)


@cases("adaptation", ["sa", "gibbs"])
@cases("dtype", [torch.float32, torch.float64])
@cases("compiled", [False, True])
@cases("size", [0.0, 1e-30, 1.0, 1e30])
def test_latents_stay_finite_however_large_coefficients_are(adaptation, dtype, compiled, size):
    if compiled:
        pytest.importorskip("numba")
    # above, squares, of which sigma is made, overflow in float32; the probabilities must not
    learn_sigma = dtype == torch.float64 or size < 1e18
    model = model_of(adaptation, compiled, SpikeSlab(learn_sigma=learn_sigma))
    state, _ = stepped(model, np.full((2, model.n_parameters), size), dtype, n_steps=5)
    assert all(torch.isfinite(values).all() for values in state.values())
    assert ((state["rho"] >= 0.0) & (state["rho"] <= 1.0)).all()


def followed(model, theta, n_steps, square=1.7):
    """The latents of chains that stay at theta, of 10 rows with residuals of this mean square."""
    classes = isinstance(model.likelihood, Categorical)
    x = np.random.default_rng(0).standard_normal((10, 3))
    y = np.zeros(10, dtype=int) if classes else np.zeros((10, 2))
    model = model.bound(model.make_data(x, y, None, torch.float64, "cpu"))
    state, rng = model.init_state(theta), streams(len(theta))
    for k in range(n_steps):
        aux = {} if classes else {"mean_square_slope": square * state["sigma"] ** -4}
        model.after_step(theta, state, aux, k, rng, 1.0)
    return state


def sigma_sums(theta, r, prior):
    """Sums over the 20 coefficients of (1 - r)|beta| / v_0 and r beta^2 / v_1, (chains, 1)."""
    beta = torch.cat([theta[:, :12], theta[:, 16:24]], 1)
    absolute, squares = (1.0 - r) * beta.abs() / prior.spike_scale, r * beta**2
    return absolute.sum(1, keepdim=True), squares.sum(1, keepdim=True) / prior.slab_variance


@cases("compiled", [False, True])
@cases("classes", [True, False])
def test_sigma_goes_to_the_published_mode(classes, compiled):
    """(R_b + sqrt(R_b^2 + 4 R_a R_c)) / (2 R_a), with the counts of Deng et al. (2019).

    Classification: R_a = p + nu + 2 and R_c without data. Regression: R_a has N residuals of each
    output in the place of the 2, and R_c their squares. Sigma and r depend on each other: 300 steps
    of gain 0.5 are enough for rounding.
    """
    if compiled:
        pytest.importorskip("numba")
    prior = SpikeSlab(V_0, sigma_prior=(3.0, 0.7), learn_sigma=True, learn_inclusion=False)
    likelihood = Categorical() if classes else LatentGaussian(2)
    model = model_of("sa", compiled, prior, likelihood, gain=Constant(0.5))
    theta = torch.from_numpy(np.random.default_rng(0).standard_normal((2, model.n_parameters)))
    state = followed(model, theta, 300)
    r_b, r_c = sigma_sums(theta, state["slab"], prior)
    r_a = 20 + 3.0 + (2.0 if classes else 10 * 2)
    r_c = r_c + 3.0 * 0.7 + (0.0 if classes else 10 * 1.7)
    expected = (r_b + torch.sqrt(r_b**2 + 4.0 * r_a * r_c)) / (2.0 * r_a)
    torch.testing.assert_close(state["sigma"], expected, rtol=1e-9, atol=0.0)


@pytest.mark.statistical
@pytest.mark.parametrize("classes", [True, False])
def test_gibbs_draws_sigma_from_its_conditional(classes):
    """Coefficients that are all in their slabs leave sigma^2 ~ IG(count / 2, squares / 2).

    So E[1 / sigma^2] = count / squares, with sd sqrt(2 / count) of it: 5 standard errors of 2,000
    chains after 20 steps are 3.3%. Two more in the count, as in the mode above, are 9%.
    """
    prior = SpikeSlab(V_0, sigma_prior=(3.0, 0.7), learn_sigma=True, learn_inclusion=False)
    model = model_of("gibbs", False, prior, Categorical() if classes else LatentGaussian(2))
    theta = torch.full((2_000, model.n_parameters), 4.0, dtype=torch.float64)
    state = followed(model, theta, 20)
    assert (state["slab"] == 1.0).all()
    squares = sigma_sums(theta, state["slab"], prior)[1] + 3.0 * 0.7 + 10 * 1.7 * (not classes)
    count = 20 + 3.0 + 10 * 2 * (not classes)
    ratio = (state["sigma"] ** -2 * squares / count).numpy()
    assert abs(ratio.mean() - 1.0) < 5.0 * np.sqrt(2.0 / count / 2_000)


def test_probabilities_move_by_the_gains():
    """What is left of the way to the target is the product of 1 - omega_k, also of 2,500 gains.

    Coefficients stay where they are, and sigma and delta are given, so the target is one number.
    """
    prior = SpikeSlab(V_0, learn_inclusion=False, learn_sigma=False)
    gain = Polynomial(a=0.5, b=100.0, gamma=0.9)
    model = model_of(prior=prior, gain=gain)
    theta = torch.full((1, model.n_parameters), 0.3, dtype=torch.float64)
    start = prior.inclusion
    target = float(torch.sigmoid(prior.log_odds(torch.tensor(0.3, dtype=torch.float64))))
    for n_steps in (1, 20, 2_500):
        omega = gain.values(np.arange(n_steps), n_steps)
        expected = target + (start - target) * np.prod(1.0 - omega)
        rho = followed(model, theta, n_steps)["rho"]
        np.testing.assert_allclose(rho.numpy(), expected, rtol=1e-9)
        assert n_steps > 20 or abs(expected - target) > 0.05


def test_delta_underflows_to_its_least_value_and_comes_back():
    model = bound(model_of(), torch.float32)
    at_zero = np.zeros((1, model.n_parameters))
    state, _ = stepped(model, at_zero, torch.float32, n_steps=1)
    state["logit_delta"].fill_(np.log(LEAST_DELTA))
    state["rho"].fill_(1.0)
    aux = {"mean_square_slope": torch.ones(1, 1)}
    model.after_step(torch.full((1, model.n_parameters), 5.0), state, aux, 0, None, 1.0)
    assert (state["logit_delta"] > -5.0).all()


@pytest.mark.statistical
@cases("count", [0.3, 1.0, 7.5, 400.0])
def test_logarithms_of_gamma_variables(count):
    """The accepted ones have the gamma distribution, by Kolmogorov's test, and 95% are accepted."""
    rng = np.random.default_rng(0)
    normal = torch.from_numpy(rng.standard_normal(20_000))
    accept, power = torch.from_numpy(np.log(rng.uniform(size=(2, 20_000))))
    found = log_gamma(torch.full_like(normal, count), normal, accept, power).numpy()
    accepted = found[~np.isnan(found)]
    assert len(accepted) > 0.95 * len(found)
    assert kstest(np.exp(accepted), gamma(count).cdf).pvalue > 1e-3


# a noise that is known ----------------------------------------------------------------------------


@cases("compiled", [False, True])
def test_with_a_known_noise_rows_do_not_know_sigma(compiled):
    """Their gradient is that of the noise as sigma, to rounding; sigma has the published mode.

    Without the noise, count sigma^2 = absolute sigma + squares, with p + nu + 2 counts.
    """
    if compiled:
        pytest.importorskip("numba")
    noise, model = 0.7, linear_model(False, compiled)
    known = SparseNetworkModel(
        MLP((7, 1), "relu"), Gaussian(1, np.array([noise])), Normal(), 1.0,
        spike_slab=SpikeSlab(learn_sigma=True, adaptation="em"), sparse_blocks=("weight_1",),
    )  # fmt: skip
    known = known.with_kernel("spike_slab") if compiled else known
    out, aux = rows_gradient(known, torch.float64, weighted=True, shared=False)
    inferred, _ = rows_gradient(model, torch.float64, weighted=True, shared=False)
    # the first chain has sigma = 0.5 there: slopes are residuals over its square
    np.testing.assert_allclose((out - 1.0)[0] * noise**2, (inferred - 1.0)[0] * 0.5**2, rtol=1e-9)
    assert not aux
    theta = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 8)))
    known, latent = known.bound(rows_of_zeros()), np.abs(theta.numpy()[:, :7])
    state = known.init_state(theta)
    known.after_step(theta, state, {}, 0, None, 1.0)
    slab, prior = state["slab"].numpy(), known.spike_slab
    b = ((1.0 - slab) * latent).sum(1) / prior.spike_scale
    c = (slab * latent**2).sum(1) / prior.slab_variance + 0.1
    a = 7 + 1.0 + 2.0
    expected = (b + np.sqrt(b**2 + 4.0 * a * c)) / (2.0 * a)
    np.testing.assert_allclose(state["sigma"][:, 0], expected, rtol=1e-9)


def rows_of_zeros():
    model = linear_model(False, False)
    return model.make_data(np.eye(10, 7), np.zeros((10, 1)), None, torch.float64, "cpu")


@pytest.mark.filterwarnings("ignore")  # of few draws
@cases("standardize", [False, True])
def test_a_known_noise_equals_a_sigma_that_is_not_learned(standardize):
    """The same chains, to rounding; predictions have this noise in units of y."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((64, 3)), 3.0 * rng.standard_normal(64)
    unit = y.std() if standardize else 1.0
    settings = {"standardize": standardize, "step_size": 0.01, "n_draws": 20, "burn_in": 10,
                "thinning": 1, "n_chains": 2, "compiled": False, "random_state": 0}  # fmt: skip
    prior = SpikeSlab(sigma=0.5, learn_sigma=False)
    as_sigma = SparseBayesianRegressor(prior=prior, **settings).fit(X, y)
    known = SparseBayesianRegressor(prior=prior, noise=0.5 * unit, **settings).fit(X, y)
    for name in ("weight_1", "rho_weight_1", "sigma"):
        expected, found = as_sigma.posterior_[name], known.posterior_[name]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(*(m.predict(X, return_std=True)[1] for m in (as_sigma, known)))
    with pytest.raises(ValueError, match="noise='heteroscedastic' is not allowed with a spike"):
        known.set_params(noise="heteroscedastic").fit(X, y)
