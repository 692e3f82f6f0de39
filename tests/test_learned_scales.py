"""Normal priors whose scales are learned: conditionals, densities, exact posteriors, estimators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from _cases import cases
from _inside import limits, streams
from _seeds import as_given
from scipy.special import gammaln, logsumexp

from skbayes_sgmcmc import sample
from skbayes_sgmcmc.models.likelihoods.base import Gaussian
from skbayes_sgmcmc.models.linear.scale_groups import ScaleGroups
from skbayes_sgmcmc.models.networks.learned_scales import GIBBS_EVERY, LearnedScalesModel
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.priors import LearnedScale, Normal
from skbayes_sgmcmc.priors.learned_scale import MANY, tempered_gamma


class TwoMeanings(Gaussian):
    """Two of the three outputs have one meaning, the last one another."""

    @property
    def output_groups(self):
        return slice(0, 2), slice(2, 3)


def model_of(sizes=(3, 4, 2), noise=True, **hyper):
    likelihood = Gaussian(sizes[-1], np.full(sizes[-1], 0.5) if noise else None)
    return LearnedScalesModel(MLP(sizes, "tanh"), likelihood, Normal(), LearnedScale(**hyper))


# conditionals -------------------------------------------------------------------------------------


@pytest.mark.statistical
@cases("shape", [0.6, 9.0, 1.1 * MANY, 0.9 * MANY])
@cases("temperature", [1.0, 0.3])
def test_draws_from_a_gamma_distribution_are_its_quantiles(shape, temperature):
    """By inversion, so scipy's own quantiles: to 1e-7 where Wilson and Hilferty's stand in."""
    u = np.array([1e-3, 0.2, 0.5, 0.9, 0.999])
    found = tempered_gamma(np.array(shape), np.array(2.5), temperature, u)
    expected = scipy.stats.gamma(shape / temperature, scale=temperature / 2.5).ppf(u)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_cold_draws_are_modes():
    """At small T, near the mode of the density of the logarithm, k / r."""
    u = np.array([0.01, 0.99])
    np.testing.assert_allclose(tempered_gamma(np.array(4.0), np.array(2.0), 1e-12, u), 2.0, 1e-5)


def test_scales_stay_where_they_are_at_temperature_zero_and_between_draws():
    model = model_of()
    theta = torch.ones(2, model.n_parameters, dtype=torch.float64)
    state = model.init_state(theta)
    before = {name: values.clone() for name, values in state.items()}
    for k, temperature in ((0, 0.0), (1, 1.0), (GIBBS_EVERY - 1, 1.0)):
        assert model.after_step(theta, state, {}, k, streams(2), temperature) is False
        for name, values in state.items():
            torch.testing.assert_close(values, before[name], rtol=0, atol=0)
    assert model.after_step(theta, state, {}, GIBBS_EVERY, streams(2), 1.0) is True
    assert (state["scales"] != before["scales"]).all()


def test_typical_scales():
    """What "auto" means: twice those of "fan_in", but at most 1; a number is for all groups."""
    fan_in = np.array([(2 / 32) ** 0.5, 1.0, 50**-0.5, 1.0])
    for scale, expected in {
        "fan_in": fan_in, "auto": np.minimum(1.0, 2.0 * fan_in), 0.3: np.full(4, 0.3),
    }.items():  # fmt: skip
        found = model_of((32, 50, 1), scale=scale, inputs=False).groups.typical
        np.testing.assert_allclose(found, expected)


@pytest.mark.statistical
@pytest.mark.parametrize("temperature", [1.0, 0.4])
@pytest.mark.parametrize("n_shared", [0, 3])
def test_scales_have_the_moments_of_their_joint_conditional(n_shared, temperature):
    """Precisions given the coefficients, and b, by Gibbs sampling with 1,500 chains of 50 draws.

    Without shared groups the precisions are independent gamma variates. With them, b given the
    coefficients has the density b^(a (n+1)/T) prod_g (b + |w_g|^2/2)^-(k_g/T) / b, whose moments
    quadrature gives. Bound: five standard errors, which are below 3% of the values.
    """
    a, s_0, T = 1.5, 0.7, temperature
    group = np.array([0, 0, 1, 1, 1, 2, 3, 3, 3, 3, -1])
    groups = ScaleGroups(LearnedScale(a), group, np.full(4, s_0), n_shared)
    w = np.random.default_rng(0).standard_normal(11)
    theta = torch.from_numpy(w).repeat(1500, 1)
    state, rng = groups.init_state(theta), streams(1500)
    precisions = []
    for k in range(50):
        groups.draw(theta, state, rng, T)
        if k >= 10:
            precisions.append(state["scales"].numpy() ** -2.0)
    q = np.array([(w[group == g] ** 2).sum() / 2 for g in range(4)])
    k = a + np.bincount(group[group >= 0]) / 2
    expected = k / (a * s_0**2 + q)
    if n_shared:
        k_in, q_in = k[:3], q[:3]

        def log_density(x):
            b = np.exp(x)[:, None]
            own = a * 4 * x - b[:, 0] / s_0**2 - (k_in * np.log(b + q_in)).sum(1)
            return own / T

        x = np.linspace(-15.0, 5.0, 20_001)
        weight = np.exp(log_density(x) - log_density(x).max())
        weight /= weight.sum()
        expected[:3] = weight @ (k_in / (np.exp(x)[:, None] + q_in))
        b = a * state["shared_scale"].numpy()[:, 0] ** 2
        assert abs(b.mean() - weight @ np.exp(x)) < 5 * b.std() / np.sqrt(1500)
    by_chain = np.mean(precisions, axis=0)
    error = by_chain.std(axis=0) / np.sqrt(1500)
    assert (error < 0.03 * expected).all()
    assert (np.abs(by_chain.mean(axis=0) - expected) < 5.0 * error).all()


# densities ----------------------------------------------------------------------------------------


@cases("inputs", [False, True])
@cases("spread", [1e-6, 0.1, 1.0, 30.0])
def test_log_prior_is_the_marginal_density(inputs, spread):
    """Against quadrature over log s^2 of each block, and over log b; to 1e-6."""
    a, sizes = 1.2, (3, 4, 2)
    model = model_of(sizes, noise=False, shape=a, scale="fan_in", inputs=inputs)
    theta = spread * np.random.default_rng(0).standard_normal((2, model.n_parameters))
    found = model.log_prior(torch.from_numpy(theta)).numpy()
    with limits(block_numbers=40):  # some nodes of the quadrature at a time
        in_blocks = model.log_prior(torch.from_numpy(theta)).numpy()
    np.testing.assert_allclose(in_blocks, found, rtol=1e-12)
    places = model.places()
    typical = {"weight_1": np.sqrt(2 / 3), "bias_1": 1.0, "weight_2": 0.5, "bias_2": 1.0}

    def block(w, b):
        """log of the integral of N(w; 0, s^2) IG(s^2; a, b)."""
        k, r = a + len(w) / 2, b + (w @ w) / 2
        x = np.linspace(-30.0, 30.0, 4001) + np.log(r / k)
        log = a * np.log(b) - gammaln(a) - len(w) / 2 * np.log(2 * np.pi) - k * x - r * np.exp(-x)
        return logsumexp(log) + np.log(x[1] - x[0])

    for c in range(2):
        total = scipy.stats.norm.logpdf(theta[c, places["log_noise"]]).sum()
        for name, s_0 in typical.items():
            w = theta[c, places[name]]
            if name == "weight_1" and inputs:
                rows = w.reshape(3, 4)

                x = np.linspace(-45.0, 6.0, 5001)
                logs = a * x - np.exp(x) / s_0**2 - gammaln(a) - 2 * a * np.log(s_0)
                for row in rows:  # the closed form, which the other blocks compare with quadrature
                    k, r = a + 2, np.exp(x) + (row @ row) / 2
                    logs += gammaln(k) - gammaln(a) - 2 * np.log(2 * np.pi) + a * x - k * np.log(r)
                total += logsumexp(logs) + np.log(x[1] - x[0])
            else:
                total += block(w, a * s_0**2)
        assert found[c] == pytest.approx(total, rel=1e-6, abs=1e-6)


def test_prior_gradient_is_the_slope_of_the_potential_given_the_scales():
    """And the potential is -log of the normal densities, the likelihood's own with scale 1."""
    model = model_of(noise=False)
    theta = torch.from_numpy(np.random.default_rng(0).standard_normal((2, model.n_parameters)))
    state = model.init_state(theta)
    assert model.after_step(theta, state, {}, 0, streams(2), 1.0) is True
    at = theta.clone().requires_grad_(True)
    potential = model.prior_potential(at, state)
    (expected,) = torch.autograd.grad(potential.sum(), at)
    out = torch.empty_like(theta)
    model.prior_gradient(theta, state, out, 0.5)
    torch.testing.assert_close(out, 0.5 * expected, rtol=1e-12, atol=1e-12)
    sd = state["prior_rate"].numpy() ** -0.5
    np.testing.assert_array_equal(sd[:, model.places()["log_noise"]], 1.0)
    logs = scipy.stats.norm.logpdf(theta.numpy(), scale=sd).sum(1)
    np.testing.assert_allclose(potential.detach().numpy(), -logs, rtol=1e-12)


def test_other_models_have_the_potential_of_their_prior():
    """The default of the protocol, without latent variables."""
    model = model_of()
    plain = super(LearnedScalesModel, model)
    theta = torch.ones(2, model.n_parameters, dtype=torch.float64)
    theta[1] *= 0.3
    potential, expected = plain.prior_potential(theta, {}), -NetworkModel.log_prior(model, theta)
    torch.testing.assert_close(potential.diff(), expected.diff())  # up to a constant
    assert plain.prior_rates({}) is None


def test_groups_are_inputs_blocks_and_columns_of_the_last_layer():
    network = MLP((2, 4, 3), "relu")
    model = LearnedScalesModel(network, TwoMeanings(3, None), Normal(), LearnedScale())
    theta = torch.from_numpy(np.random.default_rng(0).standard_normal((1, model.n_parameters)))
    state, places = model.init_state(theta), model.places()
    model.after_step(theta, state, {}, 0, streams(1), 1.0)
    rate = {name: state["prior_rate"][0, places[name]].view(shape).numpy()
            for name, shape in model.shapes.items()}  # fmt: skip
    drawn = model.unpack(np.concatenate(
        [theta.numpy(), state["scales"].numpy(), state["shared_scale"].numpy()], axis=1
    ))  # fmt: skip
    assert drawn["scale_weight_1"].shape == (1, 2)
    assert drawn["scale_weight_2"].shape == (1, 2)
    assert drawn["scale_bias_1"].shape == drawn["scale_inputs"].shape == (1,)
    scales = {name: drawn[f"scale_{name}"][0] for name in network.shapes}
    np.testing.assert_allclose(rate["weight_1"], np.tile(scales["weight_1"][:, None], 4) ** -2.0)
    np.testing.assert_allclose(rate["bias_1"], scales["bias_1"] ** -2.0)
    columns = scales["weight_2"][[0, 0, 1]]
    np.testing.assert_allclose(rate["weight_2"], np.tile(columns, (4, 1)) ** -2.0)
    np.testing.assert_array_equal(rate["log_noise"], 1.0)
    assert len(np.unique(state["scales"])) == 6


# the true posterior -------------------------------------------------------------------------------


class Hierarchy:
    """A network without hidden layer, its rows, and exact moments of its hierarchical posterior.

    Rows are centred, so that biases are independent of the weights given the scales. The joint
    density of the weights, log s^2 (and log b, which is integrated out by hand) is tempered.
    """

    A, NOISE = 1.5, 0.5

    def __init__(self, n_features, n_outputs, inputs, temperature=1.0, n_rows=40):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((n_rows, n_features)) @ (np.eye(n_features) + 0.3)
        x -= x.mean(axis=0)
        size = np.where(np.arange(n_features) % 2, 0.05, 1.0)[:, None]
        w = size * rng.standard_normal((n_features, n_outputs))
        y = x @ w + 0.3 + self.NOISE * rng.standard_normal((n_rows, n_outputs))
        self.model = LearnedScalesModel(
            MLP((n_features, n_outputs), "relu"), Gaussian(n_outputs, np.full(n_outputs, 0.5)),
            Normal(), LearnedScale(self.A, 1.0, inputs),
        )  # fmt: skip
        self.data = self.model.make_data(x, y, None, torch.float64, "cpu")
        self.curvature = np.linalg.eigvalsh(x.T @ x)[-1] / self.NOISE**2 / n_rows
        self.temperature, self.n_rows = temperature, n_rows
        self.exact = self._moments(x, y, n_features if inputs else 1)

    def _moments(self, x, y, n_groups):
        """Means of log s, of the weights and of their squares."""
        a, T, p, k = self.A, self.temperature, x.shape[1], y.shape[1]
        axis = np.linspace(-9.0, 9.0, 400 if n_groups == 1 else 160)  # log s^2
        grid = np.stack(np.meshgrid(*[axis] * n_groups, indexing="ij"), -1).reshape(-1, n_groups)
        tau = np.exp(-grid)
        m = p * k / n_groups
        log = -(a + m / 2) * grid.sum(1)
        if self.model.groups.n_shared:
            log -= a * (n_groups + 1) * np.log(1.0 + tau.sum(1))
        else:
            log -= a * tau[:, 0]
        rates = np.repeat(tau, p // n_groups, axis=1)  # (grid, p)
        precision = x.T @ x / self.NOISE**2 + rates[:, :, None] * np.eye(p)
        covariance = np.linalg.inv(precision)
        h = x.T @ y / self.NOISE**2
        mean = covariance @ h  # (grid, p, k)
        log = (log + 0.5 * (h * mean).sum((1, 2))) / T - 0.5 * k * np.linalg.slogdet(precision)[1]
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        variance = T * np.diagonal(covariance, axis1=1, axis2=2)[..., None]
        return {
            "log scale": np.tensordot(weight, grid / 2, 1),
            "log scale^2": np.tensordot(weight, grid**2 / 4, 1),
            "weight": np.tensordot(weight, mean, 1),
            "weight^2": np.tensordot(weight, mean**2 + variance, 1),
        }

    def z_scores(self, allowance, n_chains=100, **settings):
        """Errors of all moments, less the allowance in sds, in Monte Carlo standard errors."""
        draws = sample(
            self.model, data=self.data, n_chains=n_chains, random_state=0, dtype="float64",
            temperature=self.temperature, compiled=False, **settings,
        )  # fmt: skip
        logs, w = np.log(draws["scale_weight_1"]), draws["weight_1"]
        logs = logs.reshape(*logs.shape[:2], -1)
        found = {"log scale": logs, "log scale^2": logs**2, "weight": w, "weight^2": w**2}
        scores = {}
        for name, values in found.items():
            by_chain = values.mean(axis=1)
            error = by_chain.std(axis=0, ddof=1) / np.sqrt(len(by_chain))
            assert (error < 0.05 * values.std((0, 1))).all(), "too few draws to see anything"
            off = np.abs(by_chain.mean(axis=0) - self.exact[name])
            scores[name] = np.max((off - allowance * values.std((0, 1))) / error)
        return scores


CASES = {
    "one scale of 12 weights": (12, 1, False, 1.0),
    "one scale, T = 1/2": (12, 1, False, 0.5),
    "scales of two inputs": (2, 6, True, 1.0),
    "scales of two inputs, T = 1/2": (2, 6, True, 0.5),
}
RUNS = {
    "sgld": ({"sampler": "sgld", "integrator": "leimkuhler_matthews", "batch_size": 40}, 0.5, 0.01),
    "sghmc": ({"sampler": "sghmc", "integrator": "baoab", "batch_size": 40}, 0.05, 0.01),
    "minibatches": ({"sampler": "sgld", "integrator": "euler", "batch_size": 20}, 0.04, 0.06),
}


#: what is right at T = 1/2, where T, its root and its square differ, is right at T = 1; and scales
#: are drawn in the same way for all samplers
QUICK = {("sgld", "one scale, T = 1/2"), ("sghmc", "scales of two inputs, T = 1/2")}


@pytest.mark.statistical
@pytest.mark.parametrize(
    "run, case",
    [
        pytest.param(run, case, marks=() if (run, case) in QUICK else pytest.mark.slow)
        for run in ("sgld", "sghmc")
        for case in CASES
    ],
)
def test_linear_network_has_the_exact_hierarchical_posterior(run, case):
    """Moments of weights and log scales within 4.5 standard errors of quadrature's.

    The largest of at most 30 moments exceeds 4.5 with a probability of 2e-4. 1% of a sd is allowed
    for the steps' bias: both integrators are exact on Gaussians but for the steps just after the
    scales have changed. The standard errors are below 5% of a sd.
    """
    truth = Hierarchy(*CASES[case])
    options, step, allowance = RUNS[run]
    scores = truth.z_scores(
        allowance, step_size=step / truth.curvature, burn_in=500, n_draws=60, thinning=50,
        **options,
    )  # fmt: skip
    assert max(scores.values()) < 4.5, scores


@pytest.mark.statistical
@pytest.mark.slow
def test_minibatches_sample_the_hierarchical_posterior():
    """Half of the rows: 6% of a sd is allowed for the gradient noise.

    Its variance is alpha_t = eta N/(2n) (N-n)/(N-1) lambda_max(V_s) of the injected noise's, where
    V_s is at most the curvature times its spread between rows: about 4% at this step.
    """
    truth = Hierarchy(12, 1, False)
    options, step, allowance = RUNS["minibatches"]
    scores = truth.z_scores(
        allowance, step_size=step / truth.curvature, burn_in=2000, n_draws=300, thinning=50,
        n_chains=120, **options,
    )  # fmt: skip
    assert max(scores.values()) < 4.5, scores


def test_the_exact_posterior_is_far_from_that_of_fixed_scales():
    """So that the tests above would fail if the scales were not drawn: moments in their sds."""
    with as_given():
        truth = Hierarchy(12, 1, False)
    sd = np.sqrt(truth.exact["log scale^2"] - truth.exact["log scale"] ** 2)
    assert abs(truth.exact["log scale"]) > sd  # log s = 0 is the typical scale
    assert sd > 0.1


# networks with a hidden layer ---------------------------------------------------------------------


def ranks_of_true_scales(seed):
    """Ranks among 99 draws of the scales that made the data, which are drawn from the prior."""
    rng = np.random.default_rng(seed)
    a, s_0, sizes = 3.0, 0.7, (2, 3, 1)
    model = LearnedScalesModel(
        MLP(sizes, "tanh"), Gaussian(1, np.array([0.3])), Normal(), LearnedScale(a, s_0)
    )
    b = rng.gamma(a) * s_0**2
    rates = np.r_[b, b, np.full(3, a * s_0**2)]
    truth = np.sqrt(rates / rng.gamma(a, size=5))
    sd = np.repeat(truth, [3, 3, 3, 3, 1])
    theta = torch.from_numpy(sd * rng.standard_normal(13))[None]
    x = rng.standard_normal((25, 2))
    f = model.network.outputs(theta, torch.from_numpy(x)[None])[0].numpy()
    data = model.make_data(x, f + 0.3 * rng.standard_normal(f.shape), None, torch.float64, "cpu")
    draws = sample(
        model, data=data, sampler="sghmc", integrator="baoab", step_size=0.002, batch_size=25,
        n_chains=9, n_draws=11, burn_in=2000, thinning=300, random_state=seed, dtype="float64",
    )  # fmt: skip
    names = ["scale_weight_1", "scale_bias_1", "scale_weight_2", "scale_bias_2", "scale_inputs"]
    found = np.concatenate([draws.pooled(name).reshape(99, -1) for name in names], axis=1)
    return (found < np.r_[truth, np.sqrt(b / a)]).sum(axis=0)


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_simulation_based_calibration_of_the_scales():
    """Ranks of the true scales are uniform: 120 data sets, 10 bins, chi-square of each scale.

    At p = 1e-4 for each of six scales, one run in 1,700 fails by chance. By simulation with normal
    posteriors, a scale whose sd is off by a factor of two, or whose mean is off by 0.75 sds, fails
    in 99% of runs. Networks with a hidden layer have many modes, so each data set has nine chains
    from random starts.
    """
    ranks = np.array([ranks_of_true_scales(seed) for seed in range(120)])
    for column in ranks.T:
        counts = np.bincount(column // 10, minlength=10)
        assert scipy.stats.chisquare(counts).pvalue > 1e-4, counts


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_a_network_has_the_functions_and_scales_of_nuts():
    """Of the same hierarchical model, in tests/data/make_reference_network.py.

    Bounds: predictive means within 0.1 posterior sds in the median over 40 new rows, predictive sds
    within 10% in the median, log scales within 0.4 of their posterior sds. Measured were 0.03, 1.4%
    and 0.15; the halves of NUTS's chains differ by 0.02 and 1.9%. The scales of the two layers, of
    which mostly the product matters, mix slowly: after 40,000 steps they were off by 0.5 sds.
    """
    with np.load(Path(__file__).parent / "data" / "reference_network.npz") as file:
        reference = dict(file)
    X, y, X_new = (reference[name] for name in ("X", "y", "X_new"))
    model = LearnedScalesModel(MLP((2, 8, 1), "tanh"), Gaussian(1, None), Normal(), LearnedScale())
    data = model.make_data(X, y[:, None], None, torch.float64, "cpu")
    draws = sample(
        model, data=data, sampler="sghmc", integrator="baoab", step_size=0.002, batch_size=60,
        n_chains=16, n_draws=100, burn_in=60_000, thinning=1500, random_state=0, dtype="float64",
    )  # fmt: skip
    theta = [draws.pooled(name).reshape(1600, -1) for name in model.network.shapes]
    at = torch.from_numpy(np.concatenate(theta, axis=1))
    f = model.network.outputs(at, torch.from_numpy(X_new)[None])[..., 0].numpy()
    off = np.abs(f.mean(axis=0) - reference["mean"]) / reference["sd"]
    ratio = f.std(axis=0) / reference["sd"]
    assert np.median(off) < 0.1
    assert 0.9 < np.median(ratio) < 1.1
    names = ["scale_weight_1", "scale_bias_1", "scale_weight_2", "scale_bias_2"]
    logs = np.log(np.concatenate([draws.pooled(name).reshape(1600, -1) for name in names], axis=1))
    away = (logs.mean(axis=0) - reference["scale_mean"]) / reference["scale_sd"]
    assert np.abs(away).max() < 0.4, away
