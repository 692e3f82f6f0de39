"""The mean potential and its gradients: analytic against autograd, and minibatches without bias."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.special
import scipy.stats
import torch
from _cases import cases
from _inside import streams

from skbayes_sgmcmc._data.minibatch import Data, Minibatches
from skbayes_sgmcmc._data.row_odds import RowOdds
from skbayes_sgmcmc._engine.target import GRADIENTS, Coordinates, Evaluator, Target
from skbayes_sgmcmc.models.linear.logistic import LogisticModel
from skbayes_sgmcmc.priors.factorised import PRIORS

N_ROWS, N_FEATURES, N_CHAINS = 24, 4, 3


@dataclass
class Problem:
    """A logistic regression: options of the model and of its rows."""

    n_classes: int = 2
    sparse: bool = False
    intercept: bool = True
    prior: str = "normal"
    weighted: bool = False
    scale: Any = 0.8
    dtype: Any = torch.float64

    def rows(self):
        rng = np.random.default_rng(self.n_classes)
        x = rng.standard_normal((N_ROWS, N_FEATURES)) * (rng.random((N_ROWS, N_FEATURES)) < 0.7)
        y = np.arange(N_ROWS) % self.n_classes
        weight = rng.uniform(0.2, 3.0, N_ROWS) if self.weighted else None
        return x, y, weight

    def model(self):
        prior = PRIORS[self.prior]()
        return LogisticModel(N_FEATURES, self.n_classes, prior, self.scale, self.intercept)

    def data(self, model, rows=None, total=0.0):
        x, y, weight = self.rows() if rows is None else rows
        x = sp.csr_matrix(x) if self.sparse else x
        data = model.make_data(x, y, weight, self.dtype, "cpu")
        return data if total == 0.0 else Data(data.fields, data.n_rows, data.weight, total)

    def posterior(self, rows=None, total=0.0, **options):
        model = self.model()
        return Target(model, self.data(model, rows, total), dtype=self.dtype, **options)

    def theta(self, model, n_chains=N_CHAINS):
        rng = np.random.default_rng(9)
        return torch.from_numpy(rng.standard_normal((n_chains, model.n_parameters))).to(self.dtype)


def problems(**fixed):
    """All combinations of the options that ``fixed`` leaves open."""
    options = {
        "n_classes": (2, 3),
        "sparse": (False, True),
        "intercept": (True, False),
        "prior": ("normal", "laplace"),
        "weighted": (False, True),
    } | {name: (value,) for name, value in fixed.items()}
    return cases("problem", [Problem(*values) for values in itertools.product(*options.values())])


def evaluator(posterior, minibatches=None, split=False):
    chains = streams(N_CHAINS)
    minibatches = Minibatches(posterior.data, N_ROWS) if minibatches is None else minibatches
    return Evaluator(posterior, minibatches, chains, {}, split=split)


def full_gradient(posterior, theta, split=False):
    """g with all rows; with ``split`` also its part from the data."""
    batches = Minibatches(posterior.data, posterior.data.n_rows)
    evaluate = evaluator(posterior, batches, split)
    evaluate.batch = next(batches.chunk(None, 1, evaluate.rng))
    g = evaluate.gradient(theta).clone()
    return (g, evaluate.likelihood().clone()) if split else g


def batch_gradients(posterior, theta, indices, odds=None):
    """g (steps, chains, P) for row numbers (steps, chains, size), or (steps, size) for all."""
    batches = Minibatches(posterior.data, indices.shape[-1], odds=odds)
    evaluate = evaluator(posterior, batches)
    steps = []
    for batch in batches.gather(indices, evaluate.rng):
        evaluate.batch = batch
        steps.append(evaluate.gradient(theta).clone())
    return torch.stack(steps)


def autograd_of_potential(posterior, phi):
    phi = phi.clone().requires_grad_(True)
    return torch.autograd.grad(posterior.potential(phi).sum(), phi)[0]


# the potential ------------------------------------------------------------------------------------


@problems(sparse=False)
def test_potential_is_the_textbooks(problem):
    """u = -(log p(theta) + sum_i w_i log p(y_i | x_i, theta)) / N, written out with scipy."""
    posterior = problem.posterior()
    theta = problem.theta(posterior.model)
    x, y, weight = problem.rows()
    weight = np.ones(N_ROWS) if weight is None else weight
    assert posterior.n == pytest.approx(weight.sum())
    parts = posterior.model.unpack(theta.numpy())
    prior = {"normal": scipy.stats.norm, "laplace": scipy.stats.laplace}[problem.prior]
    for c in range(N_CHAINS):
        z = x @ parts["coef"][c].T + parts["intercept"][c]
        if problem.n_classes == 2:
            log_p = scipy.special.log_expit(np.where(y == 1, z[:, 0], -z[:, 0]))
        else:
            log_p = scipy.special.log_softmax(z, axis=1)[np.arange(N_ROWS), y]
        log_prior = prior.logpdf(parts["coef"][c], scale=problem.scale).sum()
        expected = -(log_prior + weight @ log_p) / weight.sum()
        assert posterior.potential(theta)[c].item() == pytest.approx(expected, rel=1e-12)


def test_multinomial_intercepts_sum_to_zero():
    """K - 1 free numbers, in an orthonormal basis of the plane: a flat prior on it is proper."""
    model = Problem(n_classes=3).model()
    assert model.n_parameters == 3 * N_FEATURES + 2
    parts = model.unpack(np.random.default_rng(0).standard_normal((5, 7, model.n_parameters)))
    assert parts["coef"].shape == (5, 7, 3, N_FEATURES) and parts["intercept"].shape == (5, 7, 3)
    np.testing.assert_allclose(parts["intercept"].sum(-1), 0.0, atol=1e-14)
    assert np.linalg.norm(parts["intercept"][0, 0]) > 0.1


def test_prior_scale_per_feature_and_flat():
    scale = np.array([0.5, 2.0, np.inf, 1.0])
    problem = Problem(n_classes=3, scale=scale)
    posterior = problem.posterior()
    theta = problem.theta(posterior.model)
    coef = posterior.model.unpack(theta.numpy())["coef"][0]
    finite = [0, 1, 3]
    expected = scipy.stats.norm.logpdf(coef[:, finite], scale=scale[finite]).sum()
    assert posterior.model.log_prior(theta)[0].item() == pytest.approx(expected, rel=1e-12)


# gradients ----------------------------------------------------------------------------------------


@problems()
def test_full_gradient_is_the_potentials(problem):
    """The analytic gradient against autograd of the potential, for every chain at once."""
    posterior = problem.posterior()
    theta = problem.theta(posterior.model)
    expected = autograd_of_potential(posterior, theta)
    g, likelihood = full_gradient(posterior, theta, split=True)
    np.testing.assert_allclose(g, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(full_gradient(posterior, theta), g, rtol=1e-12, atol=1e-14)
    # pSGLD's part: all but the prior's
    prior = torch.empty_like(theta)
    posterior.model.prior_gradient(theta, {}, prior, 1.0 / posterior.n)
    np.testing.assert_allclose(g - prior, likelihood, rtol=1e-9, atol=1e-12)


@problems(prior="normal")
@cases("shared", [False, True])
def test_minibatch_gradient_is_the_gradient_of_its_rows(problem, shared):
    """(N/n) times the rows' share, by the full gradient of a data set of just these rows."""
    posterior = problem.posterior()
    theta = problem.theta(posterior.model)
    size = 5
    rng = np.random.default_rng(1)
    shape = (2,) if shared else (2, N_CHAINS)
    indices = np.stack([rng.permutation(N_ROWS)[:size] for _ in range(math.prod(shape))])
    indices = indices.reshape(*shape, size)
    got = batch_gradients(posterior, theta, indices)
    x, y, weight = problem.rows()
    for step in range(2):
        for c in range(N_CHAINS):
            rows = indices[step] if shared else indices[step, c]
            held = size if weight is None else weight[rows].sum()
            # these rows stand for (N_ROWS / size) times their own weight of the data
            part = problem.posterior(
                (x[rows], y[rows], None if weight is None else weight[rows]),
                total=held * N_ROWS / size,
            )
            # the mean over N instead of over these rows' total
            expected = autograd_of_potential(part, theta[[c]])[0] * part.n / posterior.n
            np.testing.assert_allclose(got[step, c], expected, rtol=1e-9, atol=1e-12)


def fitted(problem, gradient, total=0.0):
    """A posterior whose control variates are centred at a fitted Gaussian, preconditioned by it."""
    model = problem.model()
    data = problem.data(model, total=total)
    center, precision = model.fit_gaussian(data)
    root = np.linalg.cholesky(np.linalg.inv(precision / data.total))
    coordinates = Coordinates.from_arrays(center, root, torch.empty(0, dtype=problem.dtype))
    return Target(
        model, data, coordinates=coordinates, gradient=gradient, center=center, dtype=problem.dtype
    )


PROBABILITY = np.linspace(1.0, 4.0, N_ROWS) / np.linspace(1.0, 4.0, N_ROWS).sum()


@problems()
@cases("gradient", list(GRADIENTS))
def test_gradient_estimators_are_unbiased(problem, gradient):
    """The average over all minibatches of one row is the full gradient (rounding: 1e-10).

    Uniform; and drawn with unequal probabilities, averaged with these.
    """
    posterior = fitted(problem, gradient)
    # away from the centre, where the control variates leave something to estimate
    phi = 0.5 * problem.theta(posterior.model)
    expected = autograd_of_potential(posterior, phi)
    every_row = np.arange(N_ROWS)[:, None]
    one = batch_gradients(posterior, phi, every_row)
    assert one.std(0).max() > 1e-3  # there is something to average
    np.testing.assert_allclose(one.mean(0), expected, rtol=1e-9, atol=1e-10)
    own = np.tile(every_row[:, None], (1, N_CHAINS, 1))
    np.testing.assert_allclose(batch_gradients(posterior, phi, own), one, atol=1e-12)
    weighted = batch_gradients(posterior, phi, every_row, odds=RowOdds(PROBABILITY))
    average = torch.einsum("s,scp->cp", torch.from_numpy(PROBABILITY), weighted)
    np.testing.assert_allclose(average, expected, rtol=1e-9, atol=1e-10)


@problems(prior="normal", sparse=False)
def test_control_variates_are_exact_at_their_centre(problem):
    """At the centre (phi = 0) every minibatch gives the full gradient; plain minibatches do not."""
    every_row = np.arange(N_ROWS)[:, None]
    for gradient, noisy in (("minibatch", True), ("control_variates", False)):
        posterior = fitted(problem, gradient)
        phi = torch.zeros(1, posterior.model.n_parameters, dtype=torch.float64)
        spread = batch_gradients(posterior, phi, every_row).std(0).max()
        assert (spread > 0.1) if noisy else (spread < 1e-12)


@pytest.mark.statistical
@problems(prior="normal", sparse=False, weighted=False)
def test_linear_control_variates_leave_less_noise(problem):
    """At draws of the Gaussian approximation each order halves the variance, or does better."""
    every_row = np.arange(N_ROWS)[:, None]
    variance = {}
    for gradient in GRADIENTS:
        posterior = fitted(problem, gradient)
        rng = np.random.default_rng(0)
        phi = rng.standard_normal((50, posterior.model.n_parameters)) / np.sqrt(posterior.n)
        steps = batch_gradients(posterior, torch.from_numpy(phi), every_row)
        variance[gradient] = steps.var(0).sum(1).mean().item()
    assert variance["control_variates"] <= 0.5 * variance["minibatch"]
    assert variance["linear_control_variates"] <= 0.5 * variance["control_variates"]


# coordinates --------------------------------------------------------------------------------------


@pytest.mark.parametrize("diagonal", [False, True])
def test_coordinates_pull_gradients_back(diagonal):
    """theta = center + root phi, there and back; the gradient in phi is root' that in theta."""
    problem = Problem(n_classes=3)
    model = problem.model()
    rng = np.random.default_rng(0)
    p = model.n_parameters
    root = rng.uniform(0.5, 2.0, p) if diagonal else rng.standard_normal((p, p)) + 3.0 * np.eye(p)
    matrix = np.diag(root) if diagonal else root
    center = rng.standard_normal(p)
    like = torch.empty(0, dtype=torch.float64)
    coordinates = Coordinates.from_arrays(center, root, like)
    posterior = problem.posterior(coordinates=coordinates)
    phi = problem.theta(model)
    theta = posterior.to_theta(phi)
    np.testing.assert_allclose(theta, center + phi.numpy() @ matrix.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(posterior.from_theta(theta), phi, rtol=1e-9, atol=1e-9)
    g = full_gradient(posterior, phi)
    in_theta = full_gradient(problem.posterior(), theta)
    np.testing.assert_allclose(g, in_theta.numpy() @ matrix, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(g, autograd_of_potential(posterior, phi), rtol=1e-9, atol=1e-12)


# how much data there is ---------------------------------------------------------------------------


@problems(weighted=False)
def test_doubled_rows_with_halved_weights_change_nothing(problem):
    """N, the potential, and the full gradient stay: weights are exponents, N is their sum."""
    x, y, _ = problem.rows()
    once = problem.posterior()
    rows = (np.vstack([x, x]), np.tile(y, 2), np.full(2 * N_ROWS, 0.5))
    twice = problem.posterior(rows)
    theta = problem.theta(once.model)
    assert twice.n == once.n == N_ROWS
    np.testing.assert_allclose(twice.potential(theta), once.potential(theta), rtol=1e-12)
    got, expected = full_gradient(twice, theta), full_gradient(once, theta)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@problems(sparse=False)
def test_duplicated_rows_leave_the_mean_likelihood_gradient(problem):
    """Twice the rows: the data's part of the mean gradient stays and the prior's halves."""
    x, y, weight = problem.rows()
    rows = (np.vstack([x, x]), np.tile(y, 2), None if weight is None else np.tile(weight, 2))
    once, twice = problem.posterior(), problem.posterior(rows)
    theta = problem.theta(once.model)
    assert twice.n == pytest.approx(2.0 * once.n)
    g1, data1 = full_gradient(once, theta, split=True)
    g2, data2 = full_gradient(twice, theta, split=True)
    np.testing.assert_allclose(data2, data1, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(g2 - data2, (g1 - data1) / 2.0, rtol=1e-9, atol=1e-12)


@problems(sparse=False, prior="normal")
@cases("gradient", list(GRADIENTS))
def test_part_of_a_stream_stands_for_all_of_it(problem, gradient):
    """Rows with total = 3 times theirs are as three copies of them, in all estimators."""
    x, y, weight = problem.rows()
    held = N_ROWS if weight is None else weight.sum()
    rows = (np.tile(x, (3, 1)), np.tile(y, 3), None if weight is None else np.tile(weight, 3))
    copies = problem.posterior(rows)
    theta = problem.theta(copies.model)
    expected = full_gradient(copies, theta)
    part = problem.posterior(total=3.0 * held)
    assert part.n == pytest.approx(copies.n)
    np.testing.assert_allclose(part.potential(theta), copies.potential(theta), rtol=1e-12)
    np.testing.assert_allclose(full_gradient(part, theta), expected, rtol=1e-9, atol=1e-12)

    estimated = fitted(problem, gradient, total=3.0 * held)
    phi = estimated.from_theta(theta)
    every_row = np.arange(N_ROWS)[:, None]
    average = batch_gradients(estimated, phi, every_row).mean(0)
    pulled = estimated.coordinates.pull_back(expected, theta)
    np.testing.assert_allclose(average, pulled, rtol=1e-9, atol=1e-10)


@problems(prior="normal", intercept=True)
@cases("gradient", list(GRADIENTS))
def test_single_precision_agrees_with_double(problem, gradient):
    """The same gradients in float32, importance weights and all, to 1e-5 of their size."""
    indices = np.random.default_rng(0).integers(0, N_ROWS, (2, N_CHAINS, 4))
    got = {}
    for dtype in (torch.float32, torch.float64):
        problem.dtype = dtype
        posterior = fitted(problem, gradient)
        phi = 0.5 * problem.theta(posterior.model)
        g = batch_gradients(posterior, phi, indices, odds=RowOdds(PROBABILITY))
        assert g.dtype == dtype
        got[dtype] = g.double().numpy()
    limit = 1e-5 * np.abs(got[torch.float64]).max()
    assert np.abs(got[torch.float32] - got[torch.float64]).max() <= limit


@pytest.mark.parametrize("temperature", [1.0, 0.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_many_rows_correct_what_a_part_of_them_says(limits, n_classes, temperature):
    """The Gaussian approximation, with and without a start from a tenth of the rows.

    Both stop at a thousandth of a posterior variance for each coordinate, 0.03 sd, and a change of
    variances by 5%.
    """
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((20_000, 5)), rng.standard_normal((5, n_classes))
    y = (X @ w + rng.gumbel(size=(20_000, n_classes))).argmax(1)
    weight = rng.uniform(0.5, 2.0, len(y))
    model = LogisticModel(5, n_classes, PRIORS["normal"](), 1.0, True)
    data = model.make_data(X, y, weight, torch.float64, "cpu")
    assert model.stand_in(data) is None
    mean, precision = model.fit_gaussian(data, temperature)
    limits(part_rows=2000)
    part = model.stand_in(data)
    assert part.n_rows == 2000 and part.total == pytest.approx(data.total)
    parts_mean = model.fit_gaussian(part, temperature)[0]
    quick_mean, quick_precision = model.fit_gaussian(data, temperature)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.abs((parts_mean - mean) / sd).max() > 0.5  # what there is to correct
    assert np.abs((quick_mean - mean) / sd).max() < 0.05
    ratio = np.sqrt(np.diag(np.linalg.inv(quick_precision))) / sd
    np.testing.assert_allclose(ratio, 1.0, atol=0.05)
