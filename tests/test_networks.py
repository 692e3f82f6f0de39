"""Networks: functions, gradients and priors against autograd, numpy and scipy; and the truth.

A network without hidden layer and with known noise is Bayesian linear regression, whose posterior
is known exactly: the one case in which draws of a network can be compared with the truth.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from _cases import cases
from _linear import assert_close, assert_moments, chain_errors, limit

from skbayes_sgmcmc import sample
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._data.minibatch import Batch, Minibatches
from skbayes_sgmcmc._engine.target import Evaluator, Target
from skbayes_sgmcmc.models.likelihoods.base import Categorical, Gaussian
from skbayes_sgmcmc.models.networks.mlp import ACTIVATIONS, MLP
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.priors.factorised import PRIORS
from skbayes_sgmcmc.samplers import PSGLD

N_ROWS, N_FEATURES, N_OUTPUTS = 12, 4, 3
LIKELIHOODS = {
    "categorical": lambda: Categorical(),
    "given noise": lambda: Gaussian(N_OUTPUTS, np.array([0.3, 1.0, 2.0])),
    "inferred noise": lambda: Gaussian(N_OUTPUTS, None),
}
DEPTHS = cases("hidden", [(), (5,), (6, 4)])
ACTIVATION = cases("activation", ACTIVATIONS)
LIKELIHOOD = cases("likelihood", LIKELIHOODS)


def network(hidden=(5,), activation="tanh", features=N_FEATURES, outputs=N_OUTPUTS):
    return MLP((features, *hidden, outputs), activation)


def model_of(likelihood, prior="normal", scale=0.7, gain=1.0, **parts):
    return NetworkModel(network(**parts), LIKELIHOODS[likelihood](), PRIORS[prior](), scale, gain)


def rows(likelihood, n=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, N_FEATURES))
    return x, (
        np.arange(n) % N_OUTPUTS
        if likelihood == "categorical"
        else rng.standard_normal((n, N_OUTPUTS))
    )


def position(model, n_chains, dtype=torch.float64):
    rng = np.random.default_rng(9)
    return torch.from_numpy(0.8 * rng.standard_normal((n_chains, model.n_parameters))).to(dtype)


def by_numpy(model, theta):
    """Outputs of one position, from its blocks by name."""
    blocks = model.unpack(theta)
    function = {"relu": lambda z: np.maximum(z, 0.0), "tanh": np.tanh}.get(
        model.network.activation, scipy.special.expit
    )

    def outputs(x):
        n_layers = len(model.network.fan_in)
        for layer in range(1, n_layers + 1):
            x = x @ blocks[f"weight_{layer}"] + blocks[f"bias_{layer}"]
            x = function(x) if layer < n_layers else x
        return x

    return outputs, blocks


# the function and its likelihood ------------------------------------------------------------------


@DEPTHS
@ACTIVATION
@LIKELIHOOD
def test_log_likelihood_is_scipys(hidden, activation, likelihood):
    """Outputs by numpy from the named blocks, densities by scipy: constants included."""
    model = model_of(likelihood, hidden=hidden, activation=activation)
    x, y = rows(likelihood)
    data = model.make_data(x, y, None, torch.float64, "cpu")
    theta = position(model, 3)
    got = model.log_lik(theta, data.all_rows())
    for c in range(3):
        outputs, blocks = by_numpy(model, theta[c].numpy())
        f = outputs(x)
        if likelihood == "categorical":
            expected = scipy.special.log_softmax(f, axis=1)[np.arange(N_ROWS), y]
        else:
            sd = model.likelihood.noise
            sd = 0.3 * np.exp(blocks["log_noise"]) if sd is None else sd
            expected = scipy.stats.norm.logpdf(y, f, sd).sum(1)
        np.testing.assert_allclose(got[c], expected, rtol=1e-10, atol=1e-10)


@DEPTHS
@ACTIVATION
@cases("n_chains", [1, 3])
def test_forward_gives_the_outputs(hidden, activation, n_chains):
    """Training and prediction see the same function: the same operations, hence the same bits."""
    model = model_of("categorical", hidden=hidden, activation=activation)
    theta = position(model, n_chains)
    x = torch.from_numpy(rows("categorical")[0])[None]
    assert torch.equal(model.network.outputs(theta, x), model.network.forward(theta, x)[0])
    assert torch.equal(theta, position(model, n_chains))


# gradients ----------------------------------------------------------------------------------------


def batch_of(model, likelihood, n_chains, shared, weighted):
    """All rows, or rows of each chain's own; weights as sample and importance weights come."""
    parts = [rows(likelihood, seed=c) for c in range(1 if shared else n_chains)]
    data = [model.make_data(x, y, None, torch.float64, "cpu").fields for x, y in parts]
    fields = {name: torch.stack([part[name] for part in data]) for name in data[0]}
    weight = 1.0
    if weighted:
        weight = torch.from_numpy(np.random.default_rng(1).uniform(0.1, 3.0, (len(data), N_ROWS)))
    if shared:
        fields = {name: field[0] for name, field in fields.items()}
        weight = weight[0] if weighted else weight
    return Batch(fields, weight, shared, N_ROWS)


@DEPTHS
@ACTIVATION
@LIKELIHOOD
@cases("shared", [True, False])
@cases("weighted", [False, True])
def test_gradient_is_autograds(hidden, activation, likelihood, shared, weighted):
    """Of -log_lik summed with the rows' weights, times the scale, added to what is there.

    In float64; both sums have some 1e3 terms of order 1 with errors of 1e-16 each.
    """
    model = model_of(likelihood, hidden=hidden, activation=activation)
    for n_chains in (1, 3):
        batch = batch_of(model, likelihood, n_chains, shared, weighted)
        theta = position(model, n_chains)
        at = theta.clone().requires_grad_(True)
        loss = -(model.log_lik(at, batch) * batch.weight).sum()
        (expected,) = torch.autograd.grad(loss, at)
        out = torch.ones_like(theta)
        aux = model.likelihood_gradient(theta, batch, {}, None, out=out, scale=0.3)
        assert aux == {}
        np.testing.assert_allclose(out, 1.0 + 0.3 * expected, rtol=1e-10, atol=1e-10)


@LIKELIHOOD
def test_a_row_of_weight_two_is_two_rows(likelihood):
    """Potential and gradient, with the same N; a third of the rows twice."""
    model = model_of(likelihood)
    x, y = rows(likelihood)
    twice = np.arange(N_ROWS) % 3 == 0
    doubled = model.make_data(
        np.concatenate([x, x[twice]]), np.concatenate([y, y[twice]]), None, torch.float64, "cpu"
    )
    weighted = model.make_data(x, y, np.where(twice, 2.0, 1.0), torch.float64, "cpu")
    theta = position(model, 3)
    found = []
    for data in (doubled, weighted):
        posterior = Target(model, data)
        everything = Minibatches(data, data.n_rows)
        evaluator = Evaluator(posterior, everything, ChainRandom([]), {}, split=False)
        evaluator.batch = next(everything.chunk(None, 1, ChainRandom([])))
        found.append((posterior.potential(theta), evaluator.gradient(theta)))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)


def test_scores_are_the_rows_gradients():
    """What MixingDistance measures the gradient noise by."""
    model = model_of("categorical")
    data = model.make_data(*rows("categorical"), None, torch.float64, "cpu")
    theta = position(model, 1)
    scores = model.scores(theta, data.all_rows())
    for i in range(N_ROWS):
        fields = {name: values[i : i + 1] for name, values in data.fields.items()}
        out = torch.zeros_like(theta)
        model.likelihood_gradient(theta, Batch(fields, 1.0, True, 1), {}, None, out=out, scale=-1.0)
        np.testing.assert_allclose(scores[i], out[0], rtol=1e-10, atol=1e-12)


# priors -------------------------------------------------------------------------------------------

SCIPY = {"normal": scipy.stats.norm, "laplace": scipy.stats.laplace}
#: prior_scale -> scales of the three layers' weights and of their biases (sizes 4, 6, 5, 3)
SCALES = {
    "number": (0.4, (0.4, 0.4, 0.4), (0.4, 0.4, 0.4)),
    "per layer": ([0.5, 1.0, 2.0], (0.5, 1.0, 2.0), (0.5, 1.0, 2.0)),
    "fan_in": ("fan_in", (np.sqrt(2 / 4), np.sqrt(2 / 6), 4.0 / np.sqrt(5)), (1.0, 1.0, 1.0)),
}


def with_scales(prior, kind):
    """A model and the scale of every parameter; output_gain counts with "fan_in" only."""
    likelihood = "inferred noise" if prior == "normal" else "categorical"
    model = model_of(likelihood, prior, SCALES[kind][0], gain=4.0, hidden=(6, 5))
    weights, biases = SCALES[kind][1:]
    parts = [
        np.full(int(np.prod(shape)), (weights if name[0] == "w" else biases)[int(name[-1]) - 1])
        if name != "log_noise"
        else np.ones(N_OUTPUTS)  # its own prior: standard normal
        for name, shape in model.shapes.items()
    ]
    return model, np.concatenate(parts)


@cases("kind", SCALES)
@cases("prior", PRIORS)
def test_prior_is_scipys(prior, kind):
    """With the documented scales; asked for in turns, so that no cached rates are mistaken."""
    model, scale = with_scales(prior, kind)
    theta = position(model, 3)
    slope = theta.numpy() / scale**2 if prior == "normal" else np.sign(theta.numpy()) / scale
    for _ in range(2):
        expected = SCIPY[prior].logpdf(theta.numpy(), scale=scale).sum(1)
        np.testing.assert_allclose(model.log_prior(theta), expected, rtol=1e-12)
        for factor, dtype in ((1.0, torch.float64), (0.01, torch.float64), (0.01, torch.float32)):
            out = torch.full_like(theta, np.nan, dtype=dtype)
            model.prior_gradient(theta.to(dtype), {}, out, factor)
            rtol = 1e-12 if dtype == torch.float64 else 1e-6
            np.testing.assert_allclose(out, factor * slope, rtol=rtol)
    steepest = 1.0 / scale.min() ** 2 if prior == "normal" else 0.0
    assert model.prior_curvature() == pytest.approx(steepest)
    assert model.smooth == (prior == "normal")


def test_outputs_do_not_depend_on_the_width_a_priori():
    """What "fan_in" is for: the prior sd of outputs is about the gain for 10 or 1000 units.

    Hidden units see N(0, 2 + 1) of inputs 1 and their bias, half of whose mean square relu leaves:
    outputs have the variance 4^2 x 1.5 + 1. The sd of 1000 draws of the narrow network is good to
    2% (the mean square of 10 units varies by 70% among draws), of which four are allowed.
    """
    x = torch.ones(1, 1, N_FEATURES, dtype=torch.float64)
    rng = np.random.default_rng(0)
    for width in (10, 1000):
        net = network(hidden=(width,), activation="relu")
        model = NetworkModel(net, Categorical(), PRIORS["normal"](), "fan_in", 4.0)
        sd = 1.0 / np.sqrt(model.rates)
        f = torch.cat(
            [
                net.outputs(torch.from_numpy(sd * rng.standard_normal((100, len(sd)))), x)
                for _ in range(10)
            ]
        )
        assert f.std().item() == pytest.approx(np.sqrt(16.0 * 1.5 + 1.0), rel=0.08)


@cases("wrong", [[1.0], [1.0, 2.0, 3.0], []])
def test_as_many_prior_scales_as_layers(wrong):
    with pytest.raises(ValueError, match="prior_scale=.* the network has 2 layers"):
        model_of("categorical", scale=wrong)


# starts -------------------------------------------------------------------------------------------


def test_starts_are_hes():
    """Weights of variance 2 / fan-in: of 20,000, within 5 sd (1% each) of it; the rest is zero."""
    net = MLP((50, 400, 50), "relu")
    model = NetworkModel(net, Gaussian(50, None), PRIORS["normal"](), 1.0)
    blocks = model.unpack(model.init(np.random.default_rng(0)))
    for name, values in blocks.items():
        if name in net.fan_in:
            assert values.var() * net.fan_in[name] / 2.0 == pytest.approx(1.0, rel=0.05)
            assert abs(values.mean()) < 5.0 * values.std() / np.sqrt(values.size)
        else:
            assert (values == 0.0).all()
    other = model.init(np.random.default_rng(1))
    assert not np.isclose(other[:20_000], blocks["weight_1"].ravel()).any()


# wide layers ------------------------------------------------------------------------------------


def wide_model():
    rng = np.random.default_rng(0)
    model = NetworkModel(MLP((60, 70, 3), "tanh"), Categorical(), PRIORS["normal"](), 1.0)
    x, y = rng.standard_normal((400, 60)), rng.integers(0, 3, 400)
    return model, x, y, np.stack([model.init(rng) for _ in range(2)])


def wide_gradient(dtype, gradient=NetworkModel.likelihood_gradient):
    model, x, y, theta = wide_model()
    data = model.make_data(x, y, None, dtype, "cpu")
    at = torch.from_numpy(theta).to(dtype)
    out = torch.zeros_like(at)
    gradient(model, at, data.all_rows(), {}, None, out=out, scale=1.0)
    return out


def test_wide_networks_in_single_precision():
    """The gradient over 400 rows, to 1e-5 of its largest entry."""
    exact = wide_gradient(torch.float64)
    found = wide_gradient(torch.float32)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * exact.abs().max().item())


def test_wide_networks_can_be_differentiated():
    """log_lik is differentiable in float32 too, as ``Model.scores`` needs: by autograd."""
    exact = wide_gradient(torch.float64)
    base = super(NetworkModel, NetworkModel).likelihood_gradient
    found = wide_gradient(torch.float32, base)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * exact.abs().max().item())


# the true posterior -------------------------------------------------------------------------------


class LinearRegression:
    """A network without hidden layer, its rows, and its exact posterior N(mean, T covariance)."""

    def __init__(self, prior_scale=0.8, noise=(0.5, 1.0), n_rows=30):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((n_rows, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0.3], [0, 0, 1]])
        noise, k = np.array(noise), len(noise)
        y = x @ rng.standard_normal((3, k)) + 0.4 + noise * rng.standard_normal((n_rows, k))
        self.model = NetworkModel(
            MLP((3, k), "relu"), Gaussian(k, noise), PRIORS["normal"](), prior_scale
        )
        self.data = self.model.make_data(x, y, None, torch.float64, "cpu")
        # weight_1 (3, k) then bias_1 (k,): outputs are the fastest index, and independent
        design = np.column_stack([x, np.ones(n_rows)])
        precision = np.kron(design.T @ design, np.diag(noise**-2.0))
        precision += np.eye(4 * k) / prior_scale**2
        self.covariance = np.linalg.inv(precision)
        self.mean = self.covariance @ (design.T @ (y / noise**2)).ravel()
        #: largest curvature of the mean potential
        self.curvature = np.linalg.eigvalsh(precision)[-1] / n_rows

    def away(self, **settings):
        """Draws of theta (chains, draws, P) less the posterior mean, from full batches."""
        defaults = {"batch_size": 30, "n_chains": 64, "random_state": 0, "dtype": "float64"}
        draws = sample(self.model, data=self.data, **(defaults | settings))
        flat = [values.reshape(*values.shape[:2], -1) for values in draws.draws.values()]
        return np.concatenate(flat, axis=2) - self.mean


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_linear_network_has_the_exact_posterior(temperature):
    """Leimkuhler-Matthews is exact on Gaussians with full gradients, at any stable step size.

    Hence no bias is allowed for: means, variances and covariances within Monte Carlo error (one
    failure in a million), which is at most 4% of a variance. T = 1/2 halves the covariance.
    """
    truth = LinearRegression()
    away = truth.away(
        sampler="sgld",
        integrator="leimkuhler_matthews",
        step_size=1.0 / truth.curvature,
        temperature=temperature,
        burn_in=1000,
        n_draws=1000,
        thinning=2,
    )
    assert_moments(away, temperature * truth.covariance, precision=0.04)


def test_linear_network_by_psgld():
    """Frozen after burn-in, pSGLD is an Euler step with a constant diagonal preconditioner G.

    Means are exact, and variances up to 1 / (1 - eta a / 2) of the target's, a being the largest
    curvature of G^1/2 A G^1/2. Here G's cap bounds it: eta a <= 0.06, a bias of 0 to 3.1%. The rest
    is Monte Carlo error (at most 4% of a sd for means and of variances; one in a million).
    """
    truth = LinearRegression()
    sampler, eta = PSGLD(cap=5.0 / truth.curvature), 0.012
    away = truth.away(
        sampler=sampler, step_size=eta, burn_in=3000, n_draws=1500, thinning=3, n_chains=100
    )
    white = away / np.sqrt(np.diag(truth.covariance))
    assert_close(white.mean(1), 0.0, precision=0.04)
    ratio, error = chain_errors((white**2).mean(1))
    assert error.max() < 0.04
    allowed = limit(len(white), white.shape[2]) * error
    assert (ratio > 1.0 - allowed).all()
    assert (ratio < 1.0 / (1.0 - 0.5 * 0.06) + allowed).all()
