"""Linear models with more features than rows, which are sampled in the space of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _cases import cases
from scipy.special import digamma, polygamma

from skbayes_sgmcmc import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianOrdinalClassifier,
    PosteriorSamples,
)
from skbayes_sgmcmc._data.chain_random import ChainRandom
from skbayes_sgmcmc._data.minibatch import Minibatches
from skbayes_sgmcmc._engine.target import Coordinates, Evaluator, Target
from skbayes_sgmcmc.diagnostics import effective_sample_size, mcse, r_hat
from skbayes_sgmcmc.models.linear import model as linear
from skbayes_sgmcmc.models.linear.logistic import LogisticModel
from skbayes_sgmcmc.models.linear.row_space import RowSpace
from skbayes_sgmcmc.models.linear.sampled_scale import SampledScale
from skbayes_sgmcmc.models.tuning.auto import AUTO
from skbayes_sgmcmc.priors import LearnedScale, Normal

#: bounds are in Monte Carlo standard errors, for the largest of many figures
FAR = 4.5
#: with the start that is not left to the default, chains take the coordinates of the features
IN_FEATURES = {"init": "map"}


def rows(n=15, p=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) @ np.diag(rng.uniform(0.5, 2.0, p)) + rng.uniform(0, 3, p)
    return X, rng.standard_normal(n) + X[:, 0] - X[:, 1]


def pooled(model):
    coef = model.posterior_["coef"]
    return coef.reshape(-1, coef.shape[-1]) if coef.ndim == 3 else coef.reshape(-1, coef[0, 0].size)


@pytest.mark.statistical
@cases("scale", ["one", "each"])
def test_the_posterior_of_a_linear_regression_is_the_exact_one(scale):
    """Means and the covariance of 40 coefficients of 15 rows, by the normal equations."""
    X, y = rows()
    s = np.full(X.shape[1], 0.7) if scale == "one" else np.linspace(0.2, 1.5, X.shape[1])
    model = BayesianGLMRegressor(
        prior_scale=0.7 if scale == "one" else s, noise=0.8, n_draws=4000, fit_intercept=False,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    unit = float(model._y_scale[0])  # scales of the prior are for standardised targets
    precision = X.T @ X / 0.8**2 + np.diag((unit * s) ** -2.0)
    mean, exact = np.linalg.solve(precision, X.T @ y / 0.8**2), np.linalg.inv(precision)
    draws = pooled(model)
    assert model.posterior_["coef"].shape[-1] == X.shape[1]
    away = (draws.mean(0) - mean) / mcse(model.posterior_, "coef").ravel()
    assert np.abs(away).max() < FAR
    # the largest relative error of a variance in any direction: 16,000 nearly independent draws
    root = np.linalg.cholesky(np.linalg.inv(exact))
    spread = np.linalg.eigvalsh(root.T @ np.cov(draws.T) @ root)
    assert spread.min() > 0.85
    assert spread.max() < 1.15


LOGISTIC, ORDINAL, GLM = BayesianLogisticRegression, BayesianOrdinalClassifier, BayesianGLMRegressor
#: estimators with parameters, and the number of classes or counts
FITS = {
    "two classes": (LOGISTIC, {}, 2),
    "three classes": (LOGISTIC, {}, 3),
    "learned scale": (LOGISTIC, {"prior_scale": "learned"}, 2),
    "ordered classes": (ORDINAL, {}, 3),
    "counts": (GLM, {"likelihood": "poisson"}, 4),
}


def assert_same_posterior(*fits):
    """Means of coefficients and of their squares, and of a learned scale and its square."""
    for name in {"coef", "scale"} & fits[0].posterior_.draws.keys():
        for power in (1, 2):
            blocks = [PosteriorSamples({"x": fit.posterior_[name] ** power}) for fit in fits]
            error = np.hypot(*(mcse(block, "x") for block in blocks))
            away = np.abs(blocks[0].mean("x") - blocks[1].mean("x")) / error
            assert away.max() < FAR, (name, power)


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@cases("kind", list(FITS))
def test_draws_have_the_posterior_that_those_in_the_space_of_features_have(kind):
    """Means of coefficients and of their squares, and of a learned scale and its square."""
    X, y = rows(n=12, p=30)
    estimator, own, n_values = FITS[kind]
    labels = np.digitize(y, np.quantile(y, np.linspace(0, 1, n_values + 1)[1:-1]))
    fits = [
        estimator(random_state=0, n_chains=16, n_draws=75, **own, **more).fit(X, labels)
        for more in ({}, IN_FEATURES)
    ]
    assert_same_posterior(*fits)


@pytest.mark.statistical
def test_columns_that_would_be_rotated_stay_as_they_are(limits):
    """The space of the rows is that of the features, and not of their principal axes.

    With one scale for all and many columns, logistic regressions are rotated elsewhere. Fits of 60
    rows and 2,500 columns classified 63% of their own rows, and now all.
    """
    limits(full_hessian=35)
    X, y = rows(n=15, p=40)
    model = BayesianLogisticRegression(prior_scale=0.3, random_state=0, n_draws=300).fit(X, y > 0)
    plain = BayesianLogisticRegression(
        prior_scale=0.3, random_state=0, n_draws=300, preconditioner="hessian"
    ).fit(X, y > 0)
    errors = [mcse(each.posterior_, "coef") for each in (model, plain)]
    assert (np.abs(model.coef_ - plain.coef_) / np.hypot(*errors)).max() < FAR


#: these with a learned scale that chains move
SAMPLED = {
    "two classes": (LOGISTIC, {"prior_scale": "learned"}, 2),
    "three classes": (LOGISTIC, {"prior_scale": "learned", "fit_intercept": False}, 3),
    "ordered classes": (ORDINAL, {}, 3),
    "words": (LOGISTIC, {"prior_scale": "learned"}, 2),  # in the space of the features
}


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@cases("kind", list(SAMPLED))
def test_a_scale_that_chains_move_has_the_posterior_of_one_that_is_integrated_out(
    kind, monkeypatch
):
    """Means of scales, coefficients and their squares, of both ways of the same posterior.

    Predictors of 12 rows in 30 dimensions say little of the scale: its 95% interval spans a factor
    of two to three, in which curvatures in the coefficients themselves change ninefold.
    """
    X, y = rows(n=12, p=30)
    estimator, own, n_values = SAMPLED[kind]
    labels = np.digitize(y, np.quantile(y, np.linspace(0, 1, n_values + 1)[1:-1]))
    if kind == "words":  # too few numbers for products of all rows
        X = sp.csr_array(np.where(np.random.default_rng(0).random(X.shape) < 0.08, X, 0.0))
    fits = []
    for most in (AUTO.integrated_scale, 0):
        monkeypatch.setattr(linear, "AUTO", replace(AUTO, integrated_scale=most))
        fits.append(estimator(random_state=0, n_chains=16, n_draws=75, **own).fit(X, labels))
    assert "scale" in fits[0].posterior_
    assert_same_posterior(*fits)


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
@cases("layout", ["sparse", "dense"])
def test_a_scale_that_no_row_knows_has_its_prior(layout):
    """Each row has a word of its own, so that classes have probability 1/2 under every scale.

    Chains move in the space of the features (sparse) or of the rows (dense), among as many walls as
    there are rows. Precisions are Gamma(5, 5) in units of the typical one. With four times as long
    steps, the mean of their logarithms was off by 0.17 sds, and their sd 0.87 of the exact one.
    """
    X, typical = sp.eye_array(150, 400, format="csr"), 0.5
    model = BayesianLogisticRegression(
        prior_scale=LearnedScale(scale=typical), fit_intercept=False, random_state=0,
        n_chains=64, n_draws=60,
    ).fit(X.toarray() if layout == "dense" else X, np.arange(150) % 2)  # fmt: skip
    logs = PosteriorSamples({"x": -2.0 * np.log(model.posterior_["scale"] / typical)})
    mean, sd = digamma(5.0) - np.log(5.0), np.sqrt(polygamma(1, 5.0))
    assert abs(logs.mean("x") - mean) < FAR * mcse(logs, "x")
    assert abs(logs.std("x") / sd - 1.0) < 0.1  # of about 1,000 independent draws, 0.02


def test_coordinates_that_move_along_with_a_scale():
    """Positions and their inverse; gradients are those of the potential of phi, by autograd."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 3))
    hyper = LearnedScale(shape=5.0, scale=0.7, inputs=False)
    prior = SampledScale(hyper, rng.uniform(0.5, 2.0, 3), 1, 1)
    model = LogisticModel(3, 2, Normal(), prior, True)
    data = model.make_data(X, np.array([0, 1, 1, 0, 1]), None, torch.float64, "cpu")
    like, root = torch.empty(0, dtype=torch.float64), np.tril(rng.standard_normal((5, 5)))
    coordinates = Coordinates.from_arrays(rng.standard_normal(5), root, like, scaled=model.scaled)
    target = Target(model, data, coordinates=coordinates)
    phi = torch.from_numpy(rng.standard_normal((2, 5))).requires_grad_(True)
    (slope,) = torch.autograd.grad(target.potential(phi).sum(), phi)
    at = phi.detach()
    theta = target.to_theta(at)
    torch.testing.assert_close(target.from_theta(theta), at)
    evaluator = Evaluator(target, Minibatches(data, 5), ChainRandom([]), {}, split=False)
    evaluator.batch = data.all_rows()
    torch.testing.assert_close(evaluator.gradient(at), slope)
    # the volume that coordinates of theta have for one of phi
    jacobian = torch.autograd.functional.jacobian(lambda p: target.to_theta(p[None])[0], at[0])
    plain = torch.linalg.slogdet(torch.from_numpy(root))[1]
    moved = torch.as_tensor(coordinates.log_det(theta))[0]
    torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], plain + moved)


@pytest.mark.slow
@pytest.mark.statistical
def test_a_scale_of_many_rows_mixes():
    """300 rows of 3,000 columns: R-hat of the scale was 1.05, and its effective sample size 73."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3000))
    f = X @ rng.standard_normal(3000) * 3.0 / np.sqrt(3000)
    y = rng.random(300) < 1.0 / (1.0 + np.exp(-f))
    model = BayesianLogisticRegression(prior_scale="learned", random_state=0).fit(X, y)
    assert r_hat(model.posterior_, "scale") < 1.015
    assert effective_sample_size(model.posterior_, "scale") > 400


def test_what_no_row_informs_keeps_its_prior():
    """It is orthogonal to the rows, of the prior's sd, and independent from draw to draw."""
    X, _ = rows(n=6, p=200)
    units = np.linspace(0.5, 2.0, 200)

    class Numbers:
        def normal(self, n_draws, size, dtype):
            torch.manual_seed(0)
            return torch.randn(2, n_draws, size, dtype=dtype)

    space = RowSpace.of(X, 1, units)
    assert space.rank == 6
    np.testing.assert_allclose(space.axes.T @ space.axes, np.eye(6), atol=1e-9)
    beyond = space.beyond(50, 1, np.full((2, 50), 3.0), Numbers())
    coef = space.coefficients(np.zeros((2, 50, 6, 1)), beyond[..., None])[..., 0, :]
    np.testing.assert_allclose(coef @ X.T, 0.0, atol=1e-8)
    # a chi-square of 19,400 degrees of freedom
    assert np.mean((coef / units) ** 2) / 9.0 * 200 / 194 == pytest.approx(1.0, abs=0.05)
    a = np.random.default_rng(0).standard_normal((4, 6, 1))
    found = space.coefficients(a, np.zeros((4, 200, 1)))[:, 0]
    np.testing.assert_allclose(found @ X.T, a[..., 0] @ space.rows(X).T)


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_sparse_rows_and_repeated_ones():
    """The draws of a CSR matrix are those of its dense rows; equal rows span one direction."""
    rng = np.random.default_rng(0)
    X = sp.random(20, 90, density=0.3, random_state=0, format="csr")
    X = sp.vstack([X, X[:4]]).tocsr()
    y = rng.integers(0, 2, 24)
    short = {"n_draws": 20, "burn_in": 50, "thinning": 1, "n_chains": 2, "random_state": 0}
    coef = [
        BayesianLogisticRegression(**short).fit(some, y).posterior_["coef"]
        for some in (X, X.toarray())
    ]
    np.testing.assert_allclose(*coef, rtol=1e-6, atol=1e-8)
    assert RowSpace.of(X, 1, np.ones(90)).rank == 20


@cases("layout", [np.asarray, sp.csr_matrix])
def test_many_rows_of_few_kinds(layout):
    """Products of 60,000 rows with each other would take 29 GB; those of eight kinds take none."""
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((8, 20)), rng.uniform(0.5, 2.0, 60_000)
    kind = np.arange(60_000) % 8
    many = RowSpace.of(layout(X[kind]), 1, np.ones(20), weight)
    few = RowSpace.of(layout(X), 1, np.ones(20), np.bincount(kind, weight))
    np.testing.assert_allclose(many.axes, few.axes, atol=1e-10)


@pytest.mark.statistical
def test_a_temperature_counts_where_no_row_informs():
    """The variance of what no row informs is that of the prior times the temperature."""
    X, y = rows(n=6, p=40)
    model = BayesianLogisticRegression(temperature=0.25, prior_scale=1.0, random_state=0).fit(
        X, y > 0
    )
    coef = pooled(model)
    free = coef - coef @ np.linalg.pinv(X) @ X
    assert np.mean(free**2) * 40 / 34 == pytest.approx(0.25, rel=0.05)


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_a_warm_start_with_other_rows():
    """They span another space: the second fit agrees with one that begins anew."""
    (X, y), (X2, y2) = rows(seed=0), rows(seed=1)
    prior = {"prior_scale": 1.0}  # learned scales have the units of the first rows
    warm = BayesianLogisticRegression(warm_start=True, random_state=0, **prior).fit(X, y > 0)
    warm.fit(X2, y2 > 0)
    anew = BayesianLogisticRegression(random_state=0, **prior).fit(X2, y2 > 0)
    away = np.abs(pooled(warm).mean(0) - pooled(anew).mean(0)) / pooled(anew).std(0)
    assert away.max() < 0.2


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_streams_and_log_joint_have_all_coefficients():
    X, y = rows(n=10, p=25)
    model = BayesianLogisticRegression(n_draws=4, n_chains=2, random_state=0)
    assert model.log_joint(X, y > 0).unpack(torch.zeros(1, 26))["coef"].shape[-1] == 25
    for part in (slice(5), slice(5, None)):
        model.partial_fit(X[part], y[part] > 0, classes=[False, True])
    assert model.coef_.shape[-1] == 25


@pytest.mark.statistical
@pytest.mark.parametrize("likelihood", ["gamma", "log_normal", "student_t"])
def test_noise_does_not_vanish_with_more_columns_than_rows(likelihood):
    """The maximum fits all rows exactly; chains that start there have an R-hat of 1.3 to 3."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((100, 15)), 20, 1) + 0.5 * rng.standard_normal((100, 300))
    mean = X[:, :60:20].sum(1) * 0.3
    y = {
        "gamma": np.exp(mean) * rng.gamma(2.0, 0.5, 100),
        "log_normal": np.exp(mean + 0.5 * rng.standard_normal(100)),
        "student_t": mean + 0.5 * rng.standard_t(3, 100),
    }[likelihood]
    reg = BayesianGLMRegressor(likelihood=likelihood, random_state=0).fit(X, y)
    own = {"gamma": "log_dispersion", "log_normal": "log_sigma", "student_t": "log_noise"}
    name = own[likelihood]
    assert r_hat(reg.posterior_, name).max() < 1.05
    assert reg.posterior_[name].mean() > -3.0  # the prior's mean is zero, and its sd is one
