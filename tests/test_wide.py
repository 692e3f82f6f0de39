"""Models of more columns than rows: posteriors, coordinates, "auto", products with sparse rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._engine.target import Coordinates
from skbayes_sgmcmc.diagnostics import r_hat
from skbayes_sgmcmc.models._linalg import pairs_of_symmetric
from skbayes_sgmcmc.models.designs.batches import CSRBatch, TripletBatch
from skbayes_sgmcmc.models.linear.logistic import LogisticModel
from skbayes_sgmcmc.priors import Normal
from skbayes_sgmcmc.samplers import SGHMC


def counts(n_rows=80, n_columns=150, seed=0):
    """Sparse rows like those of words: a few columns are in most rows, and most in few."""
    rng = np.random.default_rng(seed)
    share = 0.8 / (1.0 + np.arange(n_columns)) ** 0.7
    x = (rng.random((n_rows, n_columns)) < share) * rng.uniform(0.5, 2.0, (n_rows, n_columns))
    return sp.csr_matrix(x)


@pytest.mark.statistical
def test_the_default_fit_of_wide_rows_draws_their_posterior(limits):
    """The posterior of a regression with known noise is normal, and computed from X.

    The 1,600 draws are worth at least 600 independent ones, with errors of 1/sqrt(600) posterior
    sds in means, and of 1/sqrt(1200) in sds. The largest of 151 is below 4.5 of these errors.
    """
    limits(full_hessian=0)
    X = counts()
    y = X[:, :5] @ np.ones(5) + np.random.default_rng(1).standard_normal(X.shape[0])
    y = (y - y.mean()) / y.std()  # numbers for the prior are in this unit
    reg = sk.BayesianGLMRegressor(
        noise=0.5, prior_scale=0.7, sampler=SGHMC(0.4), n_draws=400, random_state=0
    ).fit(X, y)
    Z = np.hstack([X.toarray(), np.ones((X.shape[0], 1))])
    precision = 4.0 * Z.T @ Z + np.diag([0.7**-2] * X.shape[1] + [0.0])
    covariance = np.linalg.inv(precision)
    mean, sd = 4.0 * covariance @ Z.T @ y, np.sqrt(covariance.diagonal())
    draws = np.concatenate([reg.posterior_[n].reshape(1600, -1) for n in ("coef", "intercept")], 1)
    assert np.abs((draws.mean(0) - mean) / sd).max() < 4.5 / np.sqrt(600)
    assert np.abs(draws.std(0) / sd - 1.0).max() < 4.5 / np.sqrt(1200)


def test_directions_of_another_curvature_do_not_slow_the_steps(limits):
    """Rows with a large common part: one direction has 300 times the curvature of the others.

    With the diagonal alone, the step has a hundredth of the table's size. With few directions of
    another length it has 60% of it, and draws of all words mix.
    """
    limits(full_hessian=0)
    X = sp.csr_matrix(counts(150, 400).toarray() + 0.6)
    y = (np.random.default_rng(1).random(150) < 0.5).astype(int)
    few = sk.BayesianLogisticRegression(n_draws=300, random_state=0).fit(X, y)
    plain = sk.BayesianLogisticRegression(
        preconditioner="diagonal", sampler="sghmc", n_draws=5, burn_in=5, n_chains=1
    )
    assert few.step_size_ > 0.1
    assert max(np.max(r_hat(few.posterior_, name)) for name in few.posterior_) < 1.03
    with pytest.warns(sk.SamplingWarning):  # far too few steps, on purpose
        assert plain.fit(X, y).step_size_ < 0.003


@pytest.mark.parametrize("columns", [0, 3])
def test_coordinates_with_few_changed_directions_are_those_of_the_full_matrix(columns):
    """Positions, their inverse and gradients as with diag(root) (1 - V diag(c) V'), to rounding."""
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.standard_normal((7, columns)))[0]
    c, center = np.array([0.9, 0.3, -2.0])[:columns], rng.standard_normal(7)
    root = rng.uniform(0.1, 2.0, 7)
    like = torch.empty(0, dtype=torch.float64)
    few = Coordinates.from_arrays(center, root, like, (V, c) if columns else None)
    full = Coordinates.from_arrays(center, root[:, None] * (np.eye(7) - V * c @ V.T), like)
    phi = torch.from_numpy(rng.standard_normal((4, 7)))
    torch.testing.assert_close(few.to_theta(phi), full.to_theta(phi))
    torch.testing.assert_close(few.from_theta(few.to_theta(phi)), phi)
    torch.testing.assert_close(few.pull_back(phi.clone(), phi), full.pull_back(phi.clone(), phi))


def test_eigenvalues_that_stand_apart_are_found_with_their_vectors():
    """Three of 500 are outside [0.5, 2]; 40 products find them to 1%, and their directions."""
    rng = np.random.default_rng(0)
    values = np.concatenate([[0.01, 20.0, 8.0], rng.uniform(0.5, 2.0, 497)])
    Q = np.linalg.qr(rng.standard_normal((500, 500)))[0]
    found, vectors = pairs_of_symmetric(lambda v: Q @ (values * (Q.T @ v)), 500, 40)
    assert len(found) == 40
    np.testing.assert_allclose(found[[0, -1, -2]], values[:3], rtol=0.01)
    cosines = np.abs((vectors[:, [0, -1, -2]] * Q[:, :3]).sum(0))
    assert (cosines > 0.99).all()


@cases("outputs", [None, 2])
@cases("shared", [False, True])
def test_products_with_a_csr_matrix_are_those_of_triplets(shared, outputs):
    """Predictors, and what residuals add to a gradient, for chains with the same or own rows."""
    rng, x = np.random.default_rng(0), counts(12, 9)
    chains, rows = 3, 12 if shared else 4
    tail = () if outputs is None else (outputs,)
    block = x if shared else sp.block_diag([x[4 * c : 4 * c + 4] for c in range(3)], "csr")
    row, column = (torch.from_numpy(each).long() for each in block.tocoo().coords)
    value = torch.from_numpy(block.tocoo().data)
    w, r = (torch.from_numpy(rng.standard_normal((chains, n, *tail))) for n in (9, rows))
    triplets = TripletBatch(row, column, value, 12, 9, shared)
    for csr in (CSRBatch(block, 9, shared), CSRBatch(block, 9, shared, often=True)):
        torch.testing.assert_close(csr.logits(w), triplets.logits(w))
        sums = [torch.ones_like(w) for _ in range(2)]
        csr.accumulate(sums[0], r, 0.3)
        triplets.accumulate(sums[1], r, 0.3)
        torch.testing.assert_close(*sums)
    if shared:
        torch.testing.assert_close(csr.to(torch.float32).dense(), triplets.dense().float())


def test_wide_fits_keep_what_a_summary_reads_in_seconds():
    """5 * 2^21 numbers of each chain, but at least 250 draws and at most the usual 1,000."""
    sizes = {2_000: 1000, 30_000: 349, 300_000: 250}
    for n_features, n_draws in sizes.items():
        model = LogisticModel(n_features, 2, Normal(), 1.0, True)
        assert model.tuning.most_draws == n_draws


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")  # too short to mix
@cases(
    "kind, settings",
    [
        (sk.SparseBayesianClassifier, {"compiled": False}),
        (sk.SparseBayesianClassifier, {"compiled": True}),
        (sk.SparseBayesianRegressor, {}),
        (sk.SparseBayesianRegressor, {"hidden_layer_sizes": 3, "batch_size": 300}),
        (sk.SparseBayesianClassifier, {"hidden_layer_sizes": (4, 3), "sampler": "mclmc"}),
    ],
)
@cases("weighted", [False, True])
def test_networks_multiply_sparse_rows_as_they_are(monkeypatch, kind, settings, weighted):
    """Draws are those of the same rows as a dense array, but for the rounding of a few steps.

    Minibatches and all rows (300); one output and several; with hidden layers and without.
    """
    rng = np.random.default_rng(0)
    X = sp.random(300, 250, 0.03, "csr", random_state=rng)
    y = np.asarray(X[:, :40].sum(1)).ravel() + 0.1 * rng.standard_normal(300)
    if kind is sk.SparseBayesianClassifier:
        y = np.digitize(y, [0.3, 0.6] if "hidden_layer_sizes" in settings else [0.5])
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    budget = {"n_chains": 2, "n_draws": 4, "burn_in": 4, "thinning": 1, "random_state": 0}
    given = budget | {"dtype": "float64", "standardize": False, "sampler": "psgld"} | settings
    products, found = [], []
    logits = CSRBatch.logits
    monkeypatch.setattr(CSRBatch, "logits", lambda *rows: products.append(1) or logits(*rows))
    for rows in (X.toarray(), X):
        products.clear()
        model = kind(**({"batch_size": 20} | given)).fit(rows, y, sample_weight=weight)
        found.append(model.posterior_["weight_1"])
    assert products
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-10)


@cases(
    "estimator",
    [sk.BayesianLogisticRegression(), sk.BayesianOrdinalClassifier(), sk.BayesianGLMRegressor()],
)
def test_one_sparse_row_is_predicted_as_among_others(estimator):
    """Also one without any entry: of few rows, only columns that they have entries in count."""
    X = sp.random(40, 5000, 0.01, format="csr", random_state=0)
    X = sp.vstack([X, sp.csr_matrix((1, 5000))], format="csr")
    estimator.set_params(n_draws=20, burn_in=10, thinning=1, step_size=1e-3, random_state=0)
    estimator.fit(X, np.arange(41) % 3)
    predict = getattr(estimator, "predict_proba", estimator.predict)
    together = predict(X)
    for row in (0, 40):
        assert np.allclose(predict(X[[row]])[0], together[row], rtol=1e-12)
