"""The scale of a last layer's prior under which the data are likeliest."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, BayesianModuleRegressor, SamplingWarning
from skbayes_sgmcmc.diagnostics import r_hat
from skbayes_sgmcmc.models.linear import evidence as _evidence
from skbayes_sgmcmc.models.linear.last_layer import LogisticHead
from skbayes_sgmcmc.priors import LearnedScale, Normal

LAST = {"sample_parameters": "last_layer", "random_state": 0}
SHORT = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 1}


def digits(width=24, n_classes=10):
    """Images of digits, 20 of each, as features of a random layer; 30 of them separate four."""
    rows, labels = load_digits(n_class=n_classes, return_X_y=True)
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(64, width), nn.ReLU())
    net = nn.Sequential(body, nn.Linear(width, n_classes))
    n = 20 * n_classes
    return net, (rows[:n] / 16.0).astype(np.float32), labels[:n]


def best(log_density, low=-4.0, high=3.0):
    """The scale of largest posterior density of its logarithm, from that density in log s."""
    found = minimize_scalar(lambda x: -log_density(x), bounds=(low, high), method="bounded")
    return math.exp(found.x)


def log_hyperprior(x, a, typical):
    """log p(log s) of s^2 ~ IG(a, a s_0^2)."""
    return -2.0 * a * x - a * typical**2 * math.exp(-2.0 * x)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("n_rows", "n_features"), [(80, 30), (12, 40)])
@pytest.mark.parametrize("spread", [0.02, 1.0])
@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_a_regression_finds_the_maximum_of_its_marginal_likelihood(
    spread, n_rows, n_features, turned, limits
):
    """Against the closed form, for weak and strong effects of rows on y: log s to 0.1.

    With fewer rows than features, most coefficients have the curvature of the prior alone. The
    Gaussian approximation is exact here, in plain coordinates and in principal axes. The search
    ends at a change of 0.1, and the next ones would be smaller.
    """
    if turned:
        limits(full_hessian=0)
    rng = np.random.default_rng(0)
    rows = (3.0 * rng.standard_normal((n_rows, n_features))).astype(np.float32)
    y = rows @ (spread * rng.standard_normal(n_features)) + rng.standard_normal(n_rows)
    reg = BayesianModuleRegressor(nn.Linear(n_features, 1), noise=1.0, **LAST, **SHORT).fit(rows, y)
    unit, sd = math.sqrt(rows.var(0).mean()), y.std()
    z, target = (rows - rows.mean(0)).astype(float) / unit, (y - y.mean()) / sd
    values, vectors = np.linalg.eigh(z @ z.T)
    parts, noise = np.square(vectors.T @ target), 1.0 / sd**2

    def log_density(x):
        variance = noise + math.exp(2.0 * x) * values
        log_evidence = -0.5 * np.sum(np.log(variance) + parts / variance)
        return log_evidence + log_hyperprior(x, 5.0, min(2.0 / math.sqrt(n_features), 1.0))

    assert math.log(reg.prior_scale_ * unit / best(log_density)) == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize(("noise", "n_rows"), [(0.3, 40), (2.0, 40), (2.0, 8)])
def test_a_classification_is_near_the_maximum_of_its_marginal_likelihood(noise, n_rows):
    """Two features and two classes, by quadrature over the weights: log s to 0.15.

    The approximation is Gaussian: of separated classes (noise 0.3) and of others.
    """
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((n_rows, 2))
    labels = (rows @ [1.0, -1.0] + noise * rng.standard_normal(n_rows) > 0.0).astype(int)
    hyper = LearnedScale(shape=1.0, scale=0.5, inputs=False)
    head = LogisticHead({"weight": (2, 2)}, Normal(), 1.0)
    data = head.make_data(rows, labels, None, torch.float64, "cpu")
    found, _ = head.estimated(data, hyper)

    grid = np.linspace(-40.0, 40.0, 401)
    w = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    log_lik = -np.logaddexp(0.0, w @ (rows * (1 - 2 * labels)[:, None]).T).sum(1)

    def log_density(x):
        variance = 2.0 * math.exp(2.0 * x)  # of the difference between two weights
        log_prior = -0.5 * np.square(w).sum(1) / variance - math.log(variance)
        return logsumexp(log_lik + log_prior) + log_hyperprior(x, 1.0, 0.5)

    assert math.log(found / best(log_density)) == pytest.approx(0.0, abs=0.15)


def likeliest(rows, labels, typical):
    """The scale of the head's prior, whatever is thought typical: the hyperprior is weak."""
    hyper = LearnedScale(shape=1e-4, scale=typical, inputs=False)
    head = LogisticHead({"weight": (2, rows.shape[1]), "bias": (2,)}, Normal(), 1.0)
    return head.estimated(head.make_data(rows, labels, None, torch.float64, "cpu"), hyper)[0]


def labelled(n_rows=400, n_features=10):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n_rows, n_features))
    logits = rows @ rng.standard_normal(n_features)
    return rows, (logits + rng.logistic(size=n_rows) > 0.0).astype(int)


@pytest.mark.parametrize("typical", [1e-3, 1e-2, 0.1, 10.0])
def test_the_search_ends_at_one_scale_wherever_it_begins(typical):
    """To 10%, at which changes of log s end it.

    From far below, successive changes are equal at first. A geometric series of them has no sum,
    and one that was added anyway left a two-hundredth of the scale.
    """
    rows, labels = labelled()
    assert likeliest(rows, labels, typical) == pytest.approx(likeliest(rows, labels, 1.0), rel=0.1)


@pytest.mark.parametrize("sd", [10.0, 50.0, 1000.0])
def test_approximations_of_separated_classes_stay_within_the_prior(sd):
    """The approximation's E|w|^2 is at most s^2 (d + n log K), and ours at most twice as much.

    The first holds because log likelihoods are concave, at most 0, and -n log K at w = 0. Moves
    that grew from step to step ended with 5,000 times as much for sd = 50.
    """
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((15, 40)), np.arange(15) % 3
    head = LogisticHead({"weight": (3, 40)}, Normal(), sd)
    mean, precision = head.fit_gaussian(head.make_data(rows, labels, None, torch.float64, "cpu"))
    square = (np.square(mean).sum() + np.linalg.inv(precision).trace()) / head.prior_sd**2
    assert square < 2.0 * (len(mean) + 15 * math.log(3.0))


def test_the_scale_does_not_depend_on_where_the_features_have_their_zero():
    """The intercept's prior is flat, so a shift of the features changes nothing.

    It is integrated out. Held at its mean, it would lower the scale of these few rows by 4%.
    """
    rows, labels = labelled(60, 3)
    found = likeliest(rows + np.array([1.0, -5.0, 3.0]), labels, 1.0)
    assert found == pytest.approx(likeliest(rows, labels, 1.0), rel=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_many_weights_of_few_rows_solve_the_equation_of_the_scale(n_classes, monkeypatch):
    """s^2 = (E|w|^2 + 2 a s_0^2) / (n + 2 a) with the approximation's own moments, to 2%.

    Two classes have one logit, whose weights have the unit sqrt(2).
    """
    monkeypatch.setattr(_evidence, "SAME_SCALE", 1e-3)
    monkeypatch.setattr(_evidence, "MOST_FITS", 50)
    rng = np.random.default_rng(0)
    hyper = LearnedScale(shape=0.5, scale=0.5, inputs=False)
    head = LogisticHead({"weight": (n_classes, 40)}, Normal(), 1.0)
    labels = np.arange(15) % n_classes
    data = head.make_data(rng.standard_normal((15, 40)), labels, None, torch.float64, "cpu")
    scale, _ = head.estimated(data, hyper)
    mean, precision = head.with_scale(scale).fit_gaussian(data)
    square = (mean**2 + np.linalg.inv(precision).diagonal()).sum() / (
        2.0 if n_classes == 2 else 1.0
    )
    assert scale**2 == pytest.approx((square + 0.25) / (len(mean) + 1.0), rel=0.02)


@pytest.mark.statistical
def test_the_default_mixes_where_features_separate_the_classes():
    """R-hat of all weights below 1.05, at which linear models warn, so that no warning comes.

    A learned scale moves by one over the root of the number of weights: its R-hat is 1.3 or more,
    and a warning names it and the remedy.
    """
    net, rows, labels = digits(30, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SamplingWarning)
        clf = BayesianModuleClassifier(net, **LAST).fit(rows, labels)
    assert np.mean(clf.predict(rows) == labels) > 0.95
    assert max(r_hat(clf.posterior_, name).max() for name in clf.posterior_.draws) < 1.05
    clf.set_params(prior_scale="learned")
    with pytest.warns(SamplingWarning, match=r"R-hat .*'scale'.*number for prior_scale"):
        clf.fit(rows, labels)
    assert not hasattr(clf, "prior_scale_")


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_a_stream_keeps_its_scale_and_a_fit_does_not():
    net, rows, labels = digits(10)
    clf = BayesianModuleClassifier(net, **LAST, **SHORT)
    clf.partial_fit(rows[:100], labels[:100], classes=np.arange(10))
    first = clf.prior_scale_
    clf.partial_fit(rows[100:], labels[100:])
    assert clf.prior_scale_ == first
    assert clf.fit(rows, labels).prior_scale_ != first
    assert not hasattr(clf.set_params(prior_scale=0.5).fit(rows, labels), "prior_scale_")


@pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")
def test_the_default_is_the_fit_with_the_scale_that_it_reports():
    """The same posterior: means within 0.1 sd, as both fits start at slightly other centres."""
    net, rows, labels = digits()
    few = {"n_chains": 2, "n_draws": 50, "burn_in": 50, "thinning": 1}
    clf = BayesianModuleClassifier(net, **LAST, **few).fit(rows, labels)
    other = clone(clf).set_params(prior_scale=clf.prior_scale_).fit(rows, labels)
    weight, theirs = (each.posterior_.mean("1.weight") for each in (clf, other))
    sd = other.posterior_.std("1.weight")
    assert np.abs((weight - theirs) / sd).max() < 0.1
    assert np.abs(clf.posterior_.std("1.weight") / sd - 1.0).max() < 0.1
