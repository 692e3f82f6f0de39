"""The ICA model: gradients, metric, curvature, alignment; and its chains against what is known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from _cases import cases

from skbayes_sgmcmc import MixingDistance, sample
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.diagnostics import sampling_threshold
from skbayes_sgmcmc.models import Data, Model
from skbayes_sgmcmc.models.ica.model import ICAModel, aligned
from skbayes_sgmcmc.models.ica.start import mode_start, symmetric_whitening
from skbayes_sgmcmc.models.tuning.metric import largest_score_variance, scores_of
from skbayes_sgmcmc.priors.factorised import PRIORS
from skbayes_sgmcmc.samplers import RSGLD
from skbayes_sgmcmc.schedules import Polynomial

CHAINS = 4


def model_of(d, prior="normal", scale=1.0, reference=None):
    return ICAModel(
        np.eye(d) if reference is None else reference, PRIORS[prior](), scale, np.eye(d)
    )


def positions(d, n=CHAINS, seed=0):
    rng = np.random.default_rng(seed)
    w = np.eye(d) + 0.3 * rng.standard_normal((n, d, d))
    return torch.from_numpy(w.reshape(n, d * d))


def rows(n, d, seed=0):
    """Mixed sources of high kurtosis."""
    rng = np.random.default_rng(seed)
    return rng.laplace(size=(n, d)) @ rng.standard_normal((d, d))


def data_of(x, weight=None):
    weights = None if weight is None else torch.from_numpy(weight)
    return Data({"x": torch.from_numpy(x)}, len(x), weights)


# gradients and curvature --------------------------------------------------------------------------


@cases("d", [1, 2, 5])
@cases("shared", [True, False])
@cases("weighted", [True, False])
def test_gradients_are_those_of_the_density(d, shared, weighted):
    """Against autograd; rounding only."""
    rng = np.random.default_rng(0)
    shape = (7,) if shared else (CHAINS, 7)
    x = torch.from_numpy(rng.standard_normal((*shape, d)))
    weight = torch.from_numpy(rng.uniform(0.5, 2.0, shape)) if weighted else 1.0
    batch = Batch({"x": x}, weight, shared, 7)
    model, theta = model_of(d), positions(d)
    ours, theirs = torch.ones_like(theta), torch.ones_like(theta)
    model.likelihood_gradient(theta, batch, {}, None, out=ours, scale=0.3)
    Model.likelihood_gradient(model, theta, batch, {}, None, out=theirs, scale=0.3)
    torch.testing.assert_close(ours, theirs)
    for prior in PRIORS:
        model = model_of(d, prior, 0.7)
        model.prior_gradient(theta, {}, ours, 0.3)
        Model.prior_gradient(model, theta, {}, theirs, 0.3)
        torch.testing.assert_close(ours, theirs)


def test_density_is_the_papers():
    """|det W| prod_i 1 / (4 cosh^2(w_i'x / 2)), and N(0, s^2) on every entry."""
    x, theta = rows(5, 3), positions(3)
    model, w = model_of(3, scale=0.7), theta.view(-1, 3, 3).numpy()
    y = x @ w.swapaxes(1, 2)
    expected = np.log(np.abs(np.linalg.det(w)))[:, None] - np.log(4 * np.cosh(y / 2) ** 2).sum(2)
    np.testing.assert_allclose(model.log_lik(theta, data_of(x).all_rows()), expected)
    prior = scipy.stats.norm(0.0, 0.7).logpdf(w).sum((1, 2))
    np.testing.assert_allclose(model.log_prior(theta), prior)


def test_far_rows_have_finite_likelihoods():
    """cosh overflows at 710: the logarithm must not be taken of it."""
    model, batch = model_of(2), data_of(np.full((1, 2), 1e5)).all_rows()
    assert float(model.log_lik(torch.eye(2).reshape(1, 4).double(), batch)[0, 0]) == -2e5


@pytest.mark.parametrize("d", [1, 2, 3])
def test_metric_and_its_divergence(d):
    """Dense M = I (x) W'W; the divergence sum_j dM_ij / dtheta_j by differentiating that."""
    theta = positions(d, 1)

    def dense(at):
        w = at.view(d, d)
        return torch.kron(torch.eye(d, dtype=at.dtype), w.T @ w)

    M, metric = dense(theta[0]), model_of(d).metric(theta)
    jacobian = torch.autograd.functional.jacobian(dense, theta[0])
    divergence = torch.einsum("ijj->i", jacobian)
    torch.testing.assert_close(metric.divergence[0], divergence)
    torch.testing.assert_close(metric.divergence, (d + 1.0) * theta)
    vector = torch.from_numpy(np.random.default_rng(1).standard_normal((1, d * d)))
    torch.testing.assert_close(metric.times(vector)[0], M @ vector[0])
    quadratic = vector[0] @ torch.linalg.solve(M, vector[0])
    torch.testing.assert_close(metric.inverse_quadratic(vector)[0], quadratic)
    torch.testing.assert_close(metric.log_det()[0], torch.linalg.slogdet(M).logabsdet)
    every = model_of(d).metric(theta.expand(d * d, -1))
    root = every.root_times(torch.eye(d * d, dtype=theta.dtype)).T
    torch.testing.assert_close(root @ root.T, M)


@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 2.0, 20)])
def test_hessian_is_the_gradients_slope(weight):
    """By central differences of 1e-5, whose error is of 1e-9."""
    data, model, theta = data_of(rows(20, 3), weight), model_of(3), positions(3, 1)
    vector = np.random.default_rng(1).standard_normal(9)

    def gradient(at):
        out = torch.zeros_like(at)
        model.likelihood_gradient(at, data.all_rows(), {}, None, out=out, scale=1.0)
        return out[0].numpy()

    step = 1e-5 * torch.from_numpy(vector)
    slope = (gradient(theta + step) - gradient(theta - step)) / 2e-5
    product = model.hessian_times(theta[0].numpy(), vector, data)
    np.testing.assert_allclose(product, slope, rtol=1e-6)


def test_control_variates_leave_the_gradient_as_it_is():
    """Anchored rows and their known sum make the plain gradient; at the centre nothing is left."""
    data, model, theta = data_of(rows(20, 3), np.linspace(0.5, 2.0, 20)), model_of(3), positions(3)
    center = theta[0].numpy()
    plain, anchored = torch.zeros_like(theta), torch.zeros_like(theta)
    model.likelihood_gradient(theta, data.all_rows(), {}, None, out=plain, scale=1.0)
    anchor = model.anchor(center, data)
    data.fields |= anchor.fields
    model.likelihood_gradient(theta, data.all_rows(), {}, None, out=anchored, scale=1.0)
    torch.testing.assert_close(anchored + torch.from_numpy(anchor.gradient), plain)
    assert np.ptp(model.scores(theta[:1], data.all_rows()).numpy(), axis=0).max() < 1e-12


def test_map_is_a_mode():
    """The mean potential's gradient at a mode is 0, to the optimiser's tolerance."""
    x = rows(300, 4)
    model, data = model_of(4, reference=mode_start(x)[0]), data_of(x)
    theta = torch.from_numpy(model.find_map(data))[None]
    gradient = torch.zeros_like(theta)
    model.prior_gradient(theta, {}, gradient, 1.0 / 300)
    model.likelihood_gradient(theta, data.all_rows(), {}, None, out=gradient, scale=1.0 / 300)
    natural = model.metric(theta).times(gradient)
    assert natural.abs().max() < 1e-4


# alignment ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 6])
def test_alignment_undoes_order_and_signs(d):
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((d, d))
    near = (np.eye(d) + 0.05 * rng.standard_normal((30, d, d))) @ reference
    shuffled = np.stack([w[rng.permutation(d)] * rng.choice([-1, 1], (d, 1)) for w in near])
    np.testing.assert_array_equal(
        aligned(shuffled.reshape(5, 6, d, d), reference), near.reshape(5, 6, d, d)
    )


def test_alignment_takes_the_best_of_all_assignments():
    """Where two rows are most like the same row of the reference: against all permutations."""
    from itertools import permutations

    rng = np.random.default_rng(0)
    draws = rng.standard_normal((50, 3, 3))
    strength = np.abs(draws / np.linalg.norm(draws, axis=2, keepdims=True))
    assert (np.sort(strength.argmax(1), axis=1) != np.arange(3)).any(axis=1).sum() > 10
    out = aligned(draws, np.eye(3))
    totals = (np.diagonal(out, axis1=1, axis2=2) / np.linalg.norm(out, axis=2)).sum(1)
    best = [
        max(sum(s[p[j], j] for j in range(3)) for p in permutations(range(3))) for s in strength
    ]
    np.testing.assert_allclose(totals, best)  # and so all signs are positive


def test_whitening():
    x = rows(50, 4)
    x -= x.mean(0)
    whitened = x @ symmetric_whitening(x, 3).T
    np.testing.assert_allclose(whitened.T @ whitened / 50, np.eye(3), atol=1e-12)


# chains against what is known ---------------------------------------------------------------------


def squares(sampler, d, n, temperature=1.0, **parameters):
    """Mean over draws of |W|^2 of each of 320 chains. Of n rows of zeros: 1/4^d |det W|^n each."""
    options = {"n_chains": 320, "thinning": 20, "burn_in": 600, "random_state": 0, "batch_size": n}
    posterior = sample(
        model_of(d), data=data_of(np.zeros((n, d))), sampler=sampler, temperature=temperature,
        **(options | parameters),
    )  # fmt: skip
    return (posterior["components"] ** 2).sum((2, 3)).mean(1), posterior


def assert_mean(values, exact, bias=0.0, within=4.0):
    """Chains' means agree with the exact one within four standard errors, and a known bias."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert error < 0.02 * exact, "too noisy to tell"
    assert abs(values.mean() - exact) < within * error + bias


@pytest.mark.statistical
@pytest.mark.parametrize(("divergence", "exact"), [(True, 10.0), (False, 4.0)])
def test_divergence_makes_the_natural_gradient_exact(divergence, exact):
    """Three rows of zeros: p(W) ~ |det W|^3 exp(-|W|^2 / 2), with E|W|^2 = d^2 + 3d = 10 for d = 2.

    Without div M = (d + 1) W the chain's target has |det W|^(3 - d - 1): E|W|^2 = 4. Euler's bias
    at this step was 1.1% (it falls in proportion to the step); 2% are allowed.
    """
    values, _ = squares(RSGLD(divergence=divergence), 2, 3, step_size=0.01, n_draws=60)
    assert_mean(values, exact, bias=0.02 * exact)


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "n", "temperature"), [(1, 3, 1.0), (2, 3, 0.5)])
def test_corrected_langevin_is_exact(d, n, temperature):
    """E|W|^2 = T d^2 + n d at any step; here a sixth to a half of the proposals are rejected.

    E log|det W|, which an error in the reverse proposal's covariance would show, follows from
    chi-squared numbers: |det W|^2 of a matrix with |det W|^(n/T) N(0, T) is T^d times a product of
    chi^2 with n/T + 1, ..., n/T + d degrees of freedom.
    """
    values, posterior = squares("mala", d, n, temperature, step_size=0.15, n_draws=12, burn_in=200)
    acceptance = posterior.statistics["acceptance_rate"].mean()
    assert 0.4 < acceptance < 0.9
    assert_mean(values, temperature * d**2 + n * d)
    log_det = np.linalg.slogdet(posterior["components"]).logabsdet.mean(1)
    degrees = n / temperature + np.arange(1, d + 1)
    exact = 0.5 * (d * np.log(2.0 * temperature) + scipy.special.digamma(degrees / 2.0).sum())
    error = log_det.std(ddof=1) / np.sqrt(len(log_det))
    assert error < 0.02 and abs(log_det.mean() - exact) < 4.0 * error


@pytest.mark.statistical
def test_ten_components():
    """d = 10 and 30 rows: E|W|^2 = 400. 2% are allowed, where the divergence makes a third."""
    values, _ = squares("rsgld", 10, 30, step_size=0.02, n_draws=10, burn_in=300, n_chains=16)
    assert_mean(values, 400.0, bias=0.01 * 400.0)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("sampler", "batch"),
    [pytest.param("mala", 40, marks=pytest.mark.slow), ("rsgld", 40), ("rsgld", 10)],
)
def test_one_component_against_quadrature(sampler, batch):
    """Mean and sd of |w| of 40 rows. A minibatch of 10 adds alpha_t / 2, measured as 2%, to the sd.

    Allowed: four standard errors, and 1% (Euler, full batch) or 5% (minibatch) of an sd.
    """
    x = scipy.stats.laplace.rvs(size=(40, 1), random_state=0)
    model, data = model_of(1), data_of(x)

    def density(w):
        theta = torch.tensor([[w]], dtype=torch.float64)
        rows = model.log_lik(theta, data.all_rows()).sum()
        return float(torch.exp(model.log_prior(theta)[0] + rows + 70.0))

    z, m, s = (scipy.integrate.quad(lambda w, k=k: w**k * density(w), 0, 6)[0] for k in range(3))
    mean, sd = m / z, np.sqrt(s / z - (m / z) ** 2)
    step = 0.5 if sampler == "mala" else 0.02
    posterior = sample(
        model, data=data, sampler=sampler, step_size=step, batch_size=batch, n_chains=64,
        n_draws=100, thinning=30, burn_in=400, random_state=0,
    )  # fmt: skip
    w = np.abs(posterior["components"][:, :, 0, 0])
    error = w.mean(1).std(ddof=1) / 8.0
    slack = {("mala", 40): 0.0, ("rsgld", 40): 0.02, ("rsgld", 10): 0.05}[sampler, batch] * sd
    assert error < 0.04 * sd
    assert abs(w.mean() - mean) < 4.0 * error + slack
    spread = ((w - mean) ** 2).mean(1)
    error = spread.std(ddof=1) / 8.0 / (2.0 * sd)
    assert abs(np.sqrt(spread.mean()) - sd) < 4.0 * error + slack


def two_sample(a, b):
    """Smallest p of nine Kolmogorov-Smirnov tests, and the largest ratio of two sds."""
    a, b = a.reshape(-1, 9), b.reshape(-1, 9)
    p = min(scipy.stats.ks_2samp(a[:, j], b[:, j]).pvalue for j in range(9))
    ratio = a.std(0) / b.std(0)
    return p, max(ratio.max(), 1.0 / ratio.min())


@pytest.mark.statistical
@pytest.mark.slow
def test_marginals_agree_with_corrected_langevin():
    """Three sources of high kurtosis, 300 rows; about a thousand nearly independent draws each.

    Of equal marginals the smallest of nine p is below 1e-4 once in a thousand runs, and sds differ
    by 15% as rarely. The test has the power to see other draws: those displaced by a third of an
    sd, or wider by 25%, are rejected.
    """
    x = rows(300, 3)
    model, data = model_of(3, reference=mode_start(x)[0]), data_of(x)
    options = {"data": data, "init": "map", "n_chains": 64, "n_draws": 16, "thinning": 50}
    options |= {"burn_in": 200, "random_state": 0}
    exact = sample(model, sampler="mala", step_size=0.08, **options)["components"]
    ours = sample(model, sampler="rsgld", step_size=0.03, batch_size=300, **options)["components"]
    p, ratio = two_sample(ours, exact)
    assert p > 1e-4 and ratio < 1.15
    sd, mean = exact.std((0, 1)), exact.mean((0, 1))
    assert two_sample(ours + 0.33 * sd, exact)[0] < 1e-4
    assert two_sample(mean + 1.25 * (ours - mean), exact)[1] > 1.15


# the sampling threshold in a metric ---------------------------------------------------------------


def test_sampling_threshold_in_the_metric():
    """Power iteration against the dense eigenvalue of M^(1/2) V_s M^(1/2); it comes from below."""
    model, data, theta = model_of(3), data_of(rows(200, 3)), positions(3, 1)
    w = theta.view(3, 3).numpy()
    root = np.kron(np.eye(3), w.T)
    covariance = np.cov(scores_of(model, data, theta), rowvar=False)
    dense = np.linalg.eigvalsh(root.T @ covariance @ root)[-1]
    found = largest_score_variance(model, data, theta)
    assert 0.97 * dense < found <= dense * 1.0001


def test_mixing_distance_counts_in_the_metric():
    """Collection starts once alpha_t, measured in the metric, is below .1; then at D0's pace."""
    x = rows(400, 2)
    x /= 1e3  # in other units the metric, and so alpha_t, stays the same
    model = model_of(2, scale=1e4, reference=mode_start(x)[0])
    data = data_of(x)
    schedule = Polynomial(a=0.5, b=10.0, gamma=0.55)
    posterior = sample(
        model, data=data, sampler="rsgld", step_size=schedule, batch_size=50, init="map",
        n_chains=1, n_draws=10_000, burn_in=0, thinning=MixingDistance(n_steps=6000),
        random_state=0,
    )  # fmt: skip
    theta = torch.tensor(posterior["components"][0, -1].reshape(1, 4))
    rate = sampling_threshold(
        np.atleast_2d(largest_score_variance(model, data, theta)),
        step_size=1.0, n=400, batch_size=50,
    )  # fmt: skip
    eta = schedule.values(np.arange(6000), 6000)
    first = int(np.flatnonzero(rate * eta < 0.1)[0])
    expected = eta[first:].sum() / eta[first]
    assert 500 < first < 5000, "the threshold must lie inside the run"
    assert posterior.n_draws == pytest.approx(expected, rel=0.4)


# on the engine ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["mala", "rsgld"])
def test_a_metric_rules_out_preconditioners(sampler):
    """Two preconditioners at once would make a metric of the wrong coordinates."""
    with pytest.raises(ValueError, match=r"preconditioner=.* which preconditions by itself"):
        sample(
            model_of(2), data=data_of(rows(9, 2)), sampler=sampler, preconditioner=np.ones(4),
            init="random",
        )  # fmt: skip


def test_gradients_and_metric_are_computed_on_the_device():
    """Torch's device "meta" refuses tensors of any other: nothing is left on the CPU."""
    model, theta = model_of(3), torch.empty(2, 9, device="meta")
    fields = {"x": torch.empty(7, 3, device="meta"), "anchor_psi": torch.empty(7, 3, device="meta")}
    batch, out = Batch(fields, torch.empty(7, device="meta"), True, 7), torch.empty_like(theta)
    model.prior_gradient(theta, {}, out, 1.0)
    model.likelihood_gradient(theta, batch, {}, None, out=out, scale=1.0)
    metric = model.metric(theta)
    assert model.log_lik(theta, batch).shape == (2, 7)
    assert model.scores(theta[:1], batch).shape == (7, 9)
    assert metric.root_times(metric.times(out) + metric.divergence).device.type == "meta"
    assert (metric.inverse_quadratic(out) + metric.log_det()).shape == (2,)
