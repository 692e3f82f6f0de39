"""Modules of which only a final linear layer is sampled: features once, and a linear model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler
from torch import nn

from skbayes_sgmcmc import (
    BayesianLogisticRegression,
    BayesianModuleClassifier,
    BayesianModuleRegressor,
    Storage,
    to_torch,
)
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc._draws import prediction
from skbayes_sgmcmc.models import logistic_head
from skbayes_sgmcmc.models.likelihoods import Categorical
from skbayes_sgmcmc.models.logistic_head import LogisticHead, PrincipalAxes
from skbayes_sgmcmc.models.networks.head import Head, LinearHead, split
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.models.networks.module_checks import Rows
from skbayes_sgmcmc.priors import Normal

X, y = load_digits(return_X_y=True)
X, y = X[:300] / 16.0, y[:300]
RUN = {"n_chains": 2, "n_draws": 20, "random_state": 0}
TINY = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 1, "random_state": 0}
LAST = {"sample_parameters": "last_layer"}
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


class Counted(nn.Module):
    """A body that counts the rows that it sees."""

    rows = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 6)

    def forward(self, x):
        Counted.rows += len(x)
        return torch.tanh(self.layer(x))


def network(n_outputs, body=None):
    torch.manual_seed(0)
    return nn.Sequential(
        body or nn.Sequential(nn.Linear(64, 6), nn.Tanh()), nn.Linear(6, n_outputs)
    )


def features(module, rows=X):
    with torch.no_grad():
        return module[0](torch.from_numpy(rows).float()).numpy()


@pytest.mark.parametrize("prior", ["normal", "laplace"])
def test_several_classes_are_a_logistic_regression_of_features(prior):
    """The same draws, so the same probabilities, as of the estimator on the features: 1e-12."""
    module = network(10)
    clf = BayesianModuleClassifier(module, prior=prior, prior_scale=0.7, **LAST, **RUN).fit(X, y)
    theirs = BayesianLogisticRegression(prior=prior, prior_scale=0.7, **RUN)
    theirs.fit(features(module), y)
    for ours, name in (("1.weight", "coef"), ("1.bias", "intercept")):
        np.testing.assert_allclose(clf.posterior_[ours], theirs.posterior_[name], atol=1e-12)
    expected = theirs.predict_proba(features(module))
    np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-12)


def test_two_classes_share_the_prior_of_their_difference():
    """Weights +-w/2 of a logit w with the scale sqrt(2): the prior of a difference. To 1e-12."""
    module, labels = network(2), y % 2
    clf = BayesianModuleClassifier(module, prior_scale=0.7, **LAST, **RUN).fit(X, labels)
    theirs = BayesianLogisticRegression(prior_scale=0.7 * 2**0.5, **RUN)
    theirs.fit(features(module), labels)
    weight = clf.posterior_["1.weight"]
    np.testing.assert_array_equal(weight[:, :, 0], -weight[:, :, 1])
    np.testing.assert_allclose(
        weight[:, :, 1] * 2.0, theirs.posterior_["coef"][:, :, 0], atol=1e-12
    )
    expected = theirs.predict_proba(features(module))
    np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-12)


def wine():
    rows, labels = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(rows), labels


@pytest.mark.parametrize("turned", [False, True])
def test_the_posterior_is_that_of_nuts(turned, monkeypatch):
    """Means within 0.15 sd and sds within 10% of long NUTS runs (issue's bounds; the Monte Carlo
    error of 4 x 1000 draws is 0.02 sd), in plain coordinates and, as of many features, in axes.
    """
    if turned:
        monkeypatch.setattr(logistic_head, "FULL_HESSIAN_LIMIT", 0)
        monkeypatch.setattr("skbayes_sgmcmc.models._gaussian_tuning.FULL_HESSIAN_LIMIT", 0)
    truth = np.load(Path(__file__).with_name("data") / "reference_posteriors.npz")
    clf = BayesianModuleClassifier(
        nn.Linear(13, 3), prior_scale=1.0, n_draws=1000, random_state=0, **LAST
    )
    posterior = clf.fit(*wine()).posterior_
    assert (clf._coordinates is not None) == turned
    mean, sd = posterior.mean("weight"), posterior.std("weight")
    away = (mean - truth["wine/coef_mean"]) / truth["wine/coef_sd"]
    assert np.abs(away).max() < 0.15
    assert np.abs(sd / truth["wine/coef_sd"] - 1.0).max() < 0.1


def test_turned_coordinates_change_no_density():
    """Potentials, gradients and curvatures are those of the coefficients in plain coordinates.

    Densities and gradients to rounding (1e-9); the diagonal of the curvature against differences
    of gradients over 1e-5, whose own error is about 1e-6.
    """
    rng = np.random.default_rng(0)
    rows, labels = wine()
    rows = rows + 2.0
    shapes = {"weight": (3, 13), "bias": (3,)}
    plain = LogisticHead(shapes, Normal(), 0.5)
    turned = plain.in_axes(PrincipalAxes.of(rows))
    data, theirs = (
        model.make_data(rows, labels, None, torch.float64, "cpu") for model in (turned, plain)
    )
    theta = rng.standard_normal((2, turned.n_parameters))
    draws = turned.unpack(theta)
    bias = draws["bias"] - draws["bias"].mean(-1, keepdims=True)  # the softmax sees no constant
    moved = np.concatenate(
        [draws["weight"].swapaxes(1, 2).reshape(2, -1), bias @ plain.basis], axis=1
    )
    at, there = torch.from_numpy(theta).requires_grad_(), torch.from_numpy(moved)
    rows_lik = turned.log_lik(at, data.all_rows())
    torch.testing.assert_close(rows_lik, plain.log_lik(there, theirs.all_rows()), rtol=0, atol=1e-9)
    torch.testing.assert_close(turned.log_prior(at), plain.log_prior(there), rtol=0, atol=1e-9)
    (expected,) = torch.autograd.grad(-rows_lik.sum(), at)
    out = torch.zeros_like(expected)
    turned.likelihood_gradient(at.detach(), data.all_rows(), {}, None, out=out, scale=1.0)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
    diagonal, step = turned.hessian_diagonal(theta[0], data), 1e-5
    for j in range(turned.n_parameters):
        unit = np.eye(turned.n_parameters)[j]
        both = torch.from_numpy(theta[0] + step * np.stack([unit, -unit]))
        slopes = torch.zeros_like(both)
        turned.likelihood_gradient(both, data.all_rows(), {}, None, out=slopes, scale=1.0)
        numeric = float(slopes[0, j] - slopes[1, j]) / (2.0 * step)
        assert abs(numeric - diagonal[j]) < 1e-5 * max(1.0, diagonal[j])


def test_features_are_computed_once():
    """A fit passes each row through the body once, besides the few that are looked at; blocks of
    draws of a prediction share the features of their rows.
    """
    # 80 draws, which predictions take in blocks of 64
    clf = BayesianModuleClassifier(network(10, Counted()), **LAST, **RUN).set_params(n_draws=40)
    Counted.rows = 0
    clf.fit(X, y)
    assert len(X) <= Counted.rows < 2 * len(X)  # some 280 rows more are looked at
    Counted.rows = 0
    prediction_rows = prediction.BLOCK_NUMBERS
    prediction.BLOCK_NUMBERS = 2000
    try:
        clf.predict_proba(X)
    finally:
        prediction.BLOCK_NUMBERS = prediction_rows
    assert Counted.rows == len(X)
    assert clf._features is None


def test_features_may_lie_in_a_file(tmp_path, monkeypatch):
    kinds = []

    def recorded(self, values, *rest):
        kinds.append(type(values))
        return original(self, values, *rest)

    original = LogisticHead.make_data
    monkeypatch.setattr(LogisticHead, "make_data", recorded)
    clf = BayesianModuleClassifier(network(10), **LAST, **RUN).fit(X, y)
    filed = clone(clf).set_params(storage=Storage(dir=tmp_path)).fit(X, y)
    assert kinds == [np.ndarray, np.memmap]
    np.testing.assert_array_equal(clf.predict_proba(X), filed.predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 10])
def test_predictions_and_exports_put_the_module_together(n_classes):
    """Probabilities of a draw are those of the whole module with its weights, in float32: 1e-6."""
    module, labels = network(n_classes), y % n_classes
    clf = BayesianModuleClassifier(module, standardize=True, **LAST, **RUN).fit(X, labels)
    state = {name: torch.from_numpy(values[1, 3]) for name, values in clf.posterior_.draws.items()}
    module.load_state_dict(state, strict=False)
    spread = X.std(0)
    rows = (X - X.mean(0)) / np.where(spread > 0.0, spread, 1.0)
    with torch.no_grad():
        expected = module(torch.from_numpy(rows).float()).softmax(1)
    np.testing.assert_allclose(clf.predict_proba_samples(X)[20 + 3], expected, atol=1e-5)
    exported = to_torch(clf)(torch.from_numpy(X).float())
    np.testing.assert_allclose(exported, clf.predict_proba(X), atol=1e-5)


class Wrapped(nn.Module):
    """A head between two functions."""

    def __init__(self, before, after):
        super().__init__()
        self.body, self.head, self.before, self.after = (
            nn.Linear(64, 10),
            nn.Linear(10, 10),
            before,
            after,
        )

    def forward(self, x):
        return self.after(self.head(self.before(self.body(x))))


@pytest.mark.parametrize(
    ("make", "is_split"),
    [
        (lambda: Wrapped(torch.tanh, lambda f: f), True),
        (lambda: nn.Linear(64, 10), True),
        (lambda: Wrapped(torch.tanh, lambda f: f.clamp(-1e6, 1e6)), False),
        (lambda: Wrapped(torch.tanh, torch.relu_), False),
        (lambda: Wrapped(torch.tanh, lambda f: f + 0.0), False),
        (lambda: Wrapped(torch.tanh, lambda f: f if f[0, 0] > 0.0 else -f), False),
        (lambda: Wrapped(torch.tanh, lambda f: f if f[0, 0] < 0.0 else -f), False),
    ],
)
def test_only_what_a_head_returns_unchanged_is_split(make, is_split):
    """The sampled parameters are the same either way, and the densities are."""
    module = make()
    names = tuple(name for name, _ in module.named_parameters() if "body" not in name)
    few = Rows(torch.from_numpy(X[:2]).float())
    assert (split(module, names, few) is not None) == is_split
    clf = BayesianModuleClassifier(module, step_size=1e-3, **LAST, **TINY).fit(X, y)
    assert (clf._head is not None) == is_split
    assert list(clf.posterior_.draws) == list(names)


@pytest.mark.parametrize(
    ("changes", "logistic"),
    [
        ({}, True),
        ({"prior_center": "module"}, False),
        ({"prior_scale": "learned"}, False),
        ({"prune": 0.5}, False),
        ({"prior": "spike_slab"}, False),
        ({"prior_scale": [0.3]}, True),
    ],
    ids=str,
)
def test_other_priors_sample_the_layer_as_a_network_of_features(changes, logistic):
    """Fitted to cached features all the same, and predicting as the module with its draws."""
    module = network(10, Counted())
    clf = BayesianModuleClassifier(module, step_size=1e-3, **LAST, **TINY)
    clf.set_params(burn_in=300, **changes)
    Counted.rows = 0
    clf.fit(X, y)
    assert Counted.rows < 2 * len(X)
    assert clf._is_logistic(10) == logistic
    names = ("1.weight", "1.bias")
    state = {name: torch.from_numpy(clf.posterior_[name][1, 3]) for name in names}
    module.load_state_dict(state, strict=False)
    with torch.no_grad():
        expected = module(torch.from_numpy(X).float()).softmax(1)
    np.testing.assert_allclose(clf.predict_proba_samples(X)[4 + 3], expected, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_head_has_the_gradient_of_its_density(bias):
    """Against autograd, for rows of their own and shared: 1e-12."""
    rng = np.random.default_rng(0)
    head = Head("head", 6, 10, bias, np.zeros(60 + 10 * bias))
    model = NetworkModel(LinearHead(head), Categorical(), Normal(), "fan_in")
    theta = torch.from_numpy(rng.standard_normal((3, model.n_parameters)))
    for shared in (True, False):
        x = torch.from_numpy(rng.standard_normal((20, 6) if shared else (3, 20, 6)))
        codes = torch.from_numpy(y[:20] if shared else y[:60].reshape(3, 20))
        batch = Batch({"x": x, "y": codes}, 1.0, shared, 20)
        at = theta.clone().requires_grad_()
        (expected,) = torch.autograd.grad(-model.log_lik(at, batch).sum(), at)
        out = torch.zeros_like(theta)
        model.likelihood_gradient(theta, batch, {}, None, out=out, scale=1.0)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def test_streams_keep_their_coordinates(monkeypatch):
    monkeypatch.setattr(logistic_head, "FULL_HESSIAN_LIMIT", 0)
    clf = BayesianModuleClassifier(network(10), **LAST, n_chains=2, n_draws=20, random_state=0)
    clf.partial_fit(X[:150], y[:150], classes=np.arange(10))
    axes = clf._coordinates
    assert axes is not None
    clf.partial_fit(X[150:], y[150:])
    assert clf._coordinates is axes
    assert clf.predict_proba(X).shape == (300, 10)
    assert clf.fit(X, y)._axes is not axes


def test_augmented_rows_have_no_features_to_keep():
    clf = BayesianModuleClassifier(network(10), augment=lambda x, rng: x, **LAST, **TINY)
    clf.set_params(step_size=1e-3).fit(X, y)
    assert clf._head is None and list(clf.posterior_.draws) == ["1.weight", "1.bias"]


def test_regressors_sample_a_layer_of_features():
    module = network(1, Counted())
    reg = BayesianModuleRegressor(module, step_size=1e-3, **LAST, **TINY)
    Counted.rows = 0
    reg.fit(X, X[:, 20])
    assert Counted.rows < 2 * len(X)
    assert list(reg.posterior_.draws) == ["1.weight", "1.bias", "log_noise"]


def test_one_layer_has_one_scale():
    clf = BayesianModuleClassifier(network(10), prior_scale=[1.0, 2.0], **LAST, **TINY)
    with pytest.raises(ValueError, match="the network has 1 layer; give one number"):
        clf.fit(X, y)
