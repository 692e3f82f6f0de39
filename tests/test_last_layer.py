"""Modules of which only a final linear layer is sampled: features once, and a linear model."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from _files import in_a_file
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.models.likelihoods.base import Categorical, Gaussian
from skbayes_sgmcmc.models.linear.last_layer import LogisticHead, RegressionHead
from skbayes_sgmcmc.models.linear.rotated import FeatureCoordinates
from skbayes_sgmcmc.models.networks.head import Head, LinearHead, split
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.models.networks.module_checks import Rows
from skbayes_sgmcmc.priors import LearnedScale, Normal

X, y = load_digits(return_X_y=True)
X, y = X[:300] / 16.0, y[:300]
RUN = {"n_chains": 2, "n_draws": 20, "burn_in": 100, "thinning": 5, "random_state": 0}
TINY = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 1, "random_state": 0,
        "prior_scale": 0.7}  # fmt: skip
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
    clf = sk.BayesianModuleClassifier(module, prior=prior, prior_scale=0.7, **LAST, **RUN).fit(X, y)
    theirs = sk.BayesianLogisticRegression(prior=prior, prior_scale=0.7, **RUN)
    theirs.fit(features(module), y)
    for ours, name in (("1.weight", "coef"), ("1.bias", "intercept")):
        np.testing.assert_allclose(clf.posterior_[ours], theirs.posterior_[name], atol=1e-12)
    expected = theirs.predict_proba(features(module))
    np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-12)


def test_two_classes_share_the_prior_of_their_difference():
    """Weights +-w/2 of a logit w with the scale sqrt(2): the prior of a difference. To 1e-12."""
    module, labels = network(2), y % 2
    clf = sk.BayesianModuleClassifier(module, prior_scale=0.7, **LAST, **RUN).fit(X, labels)
    theirs = sk.BayesianLogisticRegression(prior_scale=0.7 * 2**0.5, **RUN)
    theirs.fit(features(module), labels)
    weight = clf.posterior_["1.weight"]
    np.testing.assert_array_equal(weight[:, :, 0], -weight[:, :, 1])
    np.testing.assert_allclose(
        weight[:, :, 1] * 2.0, theirs.posterior_["coef"][:, :, 0], atol=1e-12
    )
    expected = theirs.predict_proba(features(module))
    np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-12)


def turn(limits):
    """Let models of any size be as those of many features."""
    limits(full_hessian=0)


def wine():
    rows, labels = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(rows), labels


@pytest.mark.statistical
@pytest.mark.parametrize("turned", [False, True])
def test_the_posterior_is_that_of_nuts(turned, limits):
    """Means within 0.15 sd and sds within 10% of long NUTS runs (issue's bounds; the Monte Carlo
    error of 16 x 250 draws is 0.02 sd), in plain coordinates and, as of many features, in axes.
    """
    if turned:
        turn(limits)
    truth = np.load(Path(__file__).with_name("data") / "reference_posteriors.npz")
    clf = sk.BayesianModuleClassifier(
        nn.Linear(13, 3), prior_scale=1.0, n_chains=16, n_draws=250, random_state=0, **LAST
    )
    posterior = clf.fit(*wine()).posterior_
    assert (clf._coordinates is not None) == turned
    mean, sd = posterior.mean("weight"), posterior.std("weight")
    away = (mean - truth["wine/coef_mean"]) / truth["wine/coef_sd"]
    assert np.abs(away).max() < 0.15
    assert np.abs(sd / truth["wine/coef_sd"] - 1.0).max() < 0.1


def turned_and_plain(head, rows, relative):
    turned = copy.copy(head)
    turned.coordinates = FeatureCoordinates.of(rows, None, rotated=True, relative=relative)
    return turned, head


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", ["logistic", "regression"])
def test_turned_coordinates_change_no_density(kind, learned):
    """Potentials, gradients and curvatures are those of the coefficients in plain coordinates.

    Densities and gradients to rounding (1e-9); the diagonal of the curvature against differences
    of gradients over 1e-5, whose own error is about 1e-6, and that of regressions itself 1e-5.
    Learned scales are relative to the features, so the plain prior has them in other units.
    """
    rng = np.random.default_rng(0)
    rows, labels = wine()
    rows = 3.0 * rows + 2.0
    shapes = {"weight": (3, 13), "bias": (3,)}
    scale, there = 0.5, 0.5
    if learned:
        scale, there = (LearnedScale(5.0, s, False) for s in (0.5, 0.5 / 3.0))
    if kind == "logistic":
        head, plain = (LogisticHead(shapes, Normal(), s) for s in (scale, there))
        y = labels
    else:
        likelihood = Gaussian(3, None)
        head, plain = (RegressionHead(shapes, likelihood, Normal(), s) for s in (scale, there))
        y = rng.standard_normal((len(rows), 3))
    turned, _ = turned_and_plain(head, rows, learned)
    data, theirs = (
        model.make_data(rows, y, None, torch.float64, "cpu") for model in (turned, plain)
    )
    theta = 0.5 * rng.standard_normal((2, turned.n_parameters))
    draws = turned.unpack(np.hstack([theta, np.ones((2, 1))]) if learned else theta)
    bias = draws["bias"]
    if kind == "logistic":  # the softmax sees no constant
        bias = (bias - bias.mean(-1, keepdims=True)) @ plain.basis
    moved = np.concatenate(
        [draws["weight"].swapaxes(1, 2).reshape(2, -1), bias, theta[:, turned.n_linear :]], axis=1
    )
    at, there = torch.from_numpy(theta).requires_grad_(), torch.from_numpy(moved)
    rows_lik = turned.log_lik(at, data.all_rows())
    torch.testing.assert_close(rows_lik, plain.log_lik(there, theirs.all_rows()), rtol=0, atol=1e-9)
    unit = 39 * np.log(3.0) if learned else 0.0  # of a density of weights in other units
    torch.testing.assert_close(
        turned.log_prior(at) + unit, plain.log_prior(there), rtol=0, atol=1e-9
    )
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
        numeric = abs(float(slopes[0, j] - slopes[1, j])) / (2.0 * step)
        assert abs(numeric - diagonal[j]) < 1e-4 * max(1.0, diagonal[j])


def test_features_are_computed_once(limits):
    """A fit passes each row through the body once, besides the few that are looked at; blocks of
    draws of a prediction share the features of their rows.
    """
    # 80 draws, which predictions take in blocks of 64
    clf = sk.BayesianModuleClassifier(network(10, Counted()), **LAST, **RUN).set_params(n_draws=40)
    Counted.rows = 0
    clf.fit(X, y)
    assert len(X) <= Counted.rows < 2 * len(X)  # some 280 rows more are looked at
    Counted.rows = 0
    limits(block_numbers=2000)
    clf.predict_proba(X)
    assert Counted.rows == len(X)
    assert clf._features is None


def test_features_may_lie_in_a_file(tmp_path, monkeypatch):
    kinds = []

    def recorded(self, values, *rest):
        kinds.append(in_a_file(values))
        return original(self, values, *rest)

    original = LogisticHead.make_data
    monkeypatch.setattr(LogisticHead, "make_data", recorded)
    clf = sk.BayesianModuleClassifier(network(10), **LAST, **TINY).fit(X, y)
    filed = clone(clf).set_params(storage=sk.Storage(dir=tmp_path)).fit(X, y)
    assert kinds == [False, True]
    np.testing.assert_array_equal(clf.predict_proba(X), filed.predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 10])
def test_predictions_and_exports_put_the_module_together(n_classes):
    """Probabilities of a draw are those of the whole module with its weights, in float32: 1e-6."""
    module, labels = network(n_classes), y % n_classes
    clf = sk.BayesianModuleClassifier(module, standardize=True, **LAST, **RUN).fit(X, labels)
    names = ("1.weight", "1.bias")
    state = {name: torch.tensor(clf.posterior_[name][1, 3]) for name in names}
    module.load_state_dict(state, strict=False)
    spread = X.std(0)
    rows = (X - X.mean(0)) / np.where(spread > 0.0, spread, 1.0)
    with torch.no_grad():
        expected = module(torch.from_numpy(rows).float()).softmax(1)
    np.testing.assert_allclose(clf.predict_proba_samples(X)[20 + 3], expected, atol=1e-5)
    exported = sk.to_torch(clf)(torch.from_numpy(X).float())
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
        (lambda: Wrapped(torch.tanh, lambda f: torch.where(f[:, :1] > 0.0, f, -f)), False),
        (lambda: Wrapped(torch.tanh, lambda f: torch.where(f[:, :1] < 0.0, f, -f)), False),
    ],
)
def test_only_what_a_head_returns_unchanged_is_split(make, is_split):
    """The sampled parameters are the same either way, and the densities are."""
    module = make()
    names = tuple(name for name, _ in module.named_parameters() if "body" not in name)
    few = Rows(torch.from_numpy(X[:2]).float())
    assert (split(module, names, few) is not None) == is_split
    clf = sk.BayesianModuleClassifier(module, step_size=1e-3, **LAST, **TINY).fit(X, y)
    assert (clf._head is not None) == is_split
    assert list(clf.posterior_.draws) == list(names)


@pytest.mark.parametrize(
    ("changes", "linear"),
    [
        ({}, True),
        ({"prior_center": "module"}, False),
        ({"prior_scale": "learned"}, True),
        ({"precision": "bfloat16", "dtype": "float32"}, False),
        ({"prune": 0.5}, False),
        ({"prior": "spike_slab"}, False),
        ({"prior_scale": [0.3]}, True),
    ],
    ids=str,
)
def test_other_priors_sample_the_layer_as_a_network_of_features(changes, linear):
    """Fitted to cached features all the same, and predicting as the module with its draws."""
    module = network(10, Counted())
    clf = sk.BayesianModuleClassifier(module, step_size=1e-3, **LAST, **TINY)
    clf.set_params(burn_in=300, **changes)
    Counted.rows = 0
    clf.fit(X, y)
    assert Counted.rows < 2 * len(X)
    assert clf._is_linear(Categorical()) == linear
    names = ("1.weight", "1.bias")
    state = {name: torch.tensor(clf.posterior_[name][1, 3]) for name in names}
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


def test_streams_keep_their_coordinates(limits):
    turn(limits)
    clf = sk.BayesianModuleClassifier(network(10), **LAST, n_chains=2, n_draws=20, random_state=0)
    clf.partial_fit(X[:150], y[:150], classes=np.arange(10))
    axes = clf._coordinates
    assert axes is not None and axes.axes is not None
    clf.partial_fit(X[150:], y[150:])
    assert clf._coordinates is axes
    assert clf.predict_proba(X).shape == (300, 10)
    assert clf.fit(X, y)._coordinates is not axes


def test_augmented_rows_have_no_features_to_keep():
    clf = sk.BayesianModuleClassifier(network(10), augment=lambda x, rng: x, **LAST, **TINY)
    clf.set_params(step_size=1e-3).fit(X, y)
    assert clf._head is None and list(clf.posterior_.draws) == ["1.weight", "1.bias"]


# regressions --------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_a_regression_is_the_generalised_linear_model_of_features():
    """The same draws, in units of standardised targets, as of the estimator on the features."""
    module, target = network(1, Counted()), 5.0 + 3.0 * X[:, 20]
    with torch.no_grad():
        rows = module[0](torch.from_numpy(X).float()).numpy()
    Counted.rows = 0
    reg = sk.BayesianModuleRegressor(module, prior_scale=0.7, **LAST, **RUN).fit(X, target)
    assert Counted.rows < 2 * len(X)
    theirs = sk.BayesianGLMRegressor(prior_scale=0.7, **RUN).fit(rows, target)
    weight = target.std() * reg.posterior_["1.weight"][:, :, 0]
    np.testing.assert_allclose(weight, theirs.posterior_["coef"], atol=1e-10)
    np.testing.assert_allclose(reg.posterior_["log_noise"], theirs.posterior_["log_noise"])
    for one, other in zip(
        reg.predict(X, return_std=True), theirs.predict(rows, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize("turned", [False, True])
def test_several_targets_have_their_conjugate_posterior(turned, limits):
    """Given noise and a given prior: N(m, V) with V^-1 = Z'Z / noise^2 + I / scale^2 for each.

    Z are features that correlate, and a column of ones with a flat prior. Means within 0.15 sd and
    sds within 10%, in plain coordinates and, as of many features, in axes.
    """
    if turned:
        turn(limits)
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((150, 8)) @ rng.standard_normal((8, 8)) + 1.0).astype(np.float32)
    target = rows @ rng.standard_normal((8, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 3.0]
    target = target + target.std(0) * rng.standard_normal((150, 3))
    reg = sk.BayesianModuleRegressor(
        nn.Linear(8, 3), prior_scale=0.5, noise=1.5, n_draws=1000, random_state=0, **LAST
    ).fit(rows, target)
    assert (reg._coordinates is not None) == turned
    Z = np.hstack([rows, np.ones((150, 1))])
    for j, spread in enumerate(target.std(0)):
        y, noise = (target[:, j] - target[:, j].mean()) / spread, 1.5 / spread
        precision = Z.T @ Z / noise**2 + np.diag([4.0] * 8 + [0.0])
        V = np.linalg.inv(precision)
        mean, sd = V @ Z.T @ y / noise**2, np.sqrt(np.diag(V))
        draws = np.concatenate(
            [reg.posterior_["weight"][:, :, j], reg.posterior_["bias"][:, :, [j]]], axis=2
        )
        assert np.abs((draws.mean((0, 1)) - mean) / sd).max() < 0.15
        assert np.abs(draws.std((0, 1)) / sd - 1.0).max() < 0.1
        found, total = (part[:5, j] for part in reg.predict(rows[:5], return_std=True))
        row_sd = spread * np.sqrt(noise**2 + np.einsum("ij,jk,ik->i", Z[:5], V, Z[:5]))
        np.testing.assert_allclose(
            found, target[:, j].mean() + spread * (Z[:5] @ mean), atol=0.1 * row_sd.max()
        )
        np.testing.assert_allclose(total, row_sd, rtol=0.05)


@pytest.mark.parametrize(
    ("changes", "n_outputs", "linear"),
    [
        ({"likelihood": "student_t"}, 2, True),
        ({"likelihood": "poisson"}, 2, True),
        ({"likelihood": "negative_binomial"}, 1, True),
        ({"noise": "heteroscedastic"}, 4, False),
        ({"prior": "laplace", "prior_scale": 0.3}, 2, True),
    ],
    ids=str,
)
def test_other_likelihoods(changes, n_outputs, linear):
    """Those with one output for each target; predictions are those of the module with a draw."""
    module = network(n_outputs)
    n = n_outputs if linear else n_outputs // 2
    target = np.round(3.0 * X[:, 20 : 20 + n])
    target = target if n > 1 else target[:, 0]
    reg = sk.BayesianModuleRegressor(module, **LAST, **TINY).set_params(n_draws=10, **changes)
    if not linear:
        reg.set_params(step_size=1e-3)
    reg.fit(X, target)
    assert reg._is_linear(reg._likelihood()) == linear
    assert reg.posterior_["1.weight"].shape == (2, 10, n_outputs, 6)
    assert reg.predict(X).shape == target.shape
    exported = sk.to_torch(reg)(torch.from_numpy(X).float())[0]
    np.testing.assert_allclose(exported, reg.predict(X), atol=1e-4)


# learned scales -----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["learned", "auto"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_units_of_features_do_not_matter_to_learned_scales(n_classes, given):
    """Features a thousand times larger: weights a thousand times smaller, to rounding (1e-3)."""
    labels = y % n_classes
    found = []
    for unit in (1.0, 1000.0):
        clf = sk.BayesianModuleClassifier(nn.Linear(16, n_classes), **LAST, **RUN)
        clf.set_params(prior_scale=given).fit(unit * X[:, 20:36], labels)
        scale = clf.posterior_["scale"] if given == "learned" else unit * clf.prior_scale_
        found.append((unit * clf.posterior_["weight"], scale))
    (weight, scale), (other, theirs) = found
    np.testing.assert_allclose(other, weight, atol=1e-3 * np.abs(weight).max())
    np.testing.assert_allclose(theirs, scale, rtol=1e-3)


@pytest.mark.statistical
def test_learned_scales_are_those_of_the_linear_estimator():
    """Features with a common sd: the draws of the logistic regression, as its units are theirs."""
    rows = StandardScaler().fit_transform(X[:, [20, 21, 26, 27, 28, 36, 42]])
    clf = sk.BayesianModuleClassifier(nn.Linear(7, 10), prior_scale="learned", **LAST, **RUN)
    clf.fit(rows.astype(np.float32), y)
    theirs = sk.BayesianLogisticRegression(prior_scale="learned", **RUN)
    theirs.fit(rows.astype(np.float32), y)
    np.testing.assert_allclose(clf.posterior_["weight"], theirs.posterior_["coef"], atol=1e-4)
    np.testing.assert_allclose(clf.posterior_["scale"], theirs.posterior_["scale"], rtol=1e-4)


def test_one_layer_has_one_scale():
    clf = sk.BayesianModuleClassifier(network(10), **LAST, **TINY | {"prior_scale": [1.0, 2.0]})
    with pytest.raises(ValueError, match="the network has 1 layer; give one number"):
        clf.fit(X, y)


@pytest.mark.parametrize("rotated", [False, True])
def test_weights_count_in_coordinates_as_repeated_rows_do(rotated):
    """Centre, axes and scale, to rounding."""
    rng = np.random.default_rng(0)
    rows, weight = rng.standard_normal((30, 4)) * [1.0, 2.0, 5.0, 0.5], rng.integers(0, 4, 30)
    options = {"rotated": rotated, "relative": True}
    found = FeatureCoordinates.of(rows, weight.astype(float), **options)
    wanted = FeatureCoordinates.of(np.repeat(rows, weight, axis=0), None, **options)
    np.testing.assert_allclose(found.center, wanted.center, atol=1e-12)
    assert found.scale == pytest.approx(wanted.scale, rel=1e-12)
    if rotated:
        np.testing.assert_allclose(np.abs(found.axes.T @ wanted.axes), np.eye(4), atol=1e-10)
