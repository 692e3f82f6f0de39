"""The log joint density for loops of one's own: values, gradients, minibatches, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cases import cases
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler
from torch import nn

import skbayes_sgmcmc as sk

X, y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)
weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(13, 4), nn.Tanh(), nn.Linear(4, 3))


def test_it_is_the_density_of_the_module_and_its_prior():
    """Written out with torch.distributions, to rounding in float64 (1e-9)."""
    net = module()
    clf = sk.BayesianModuleClassifier(net, prior_scale=0.7)
    log_joint = clf.log_joint(X, y, weight)
    assert not hasattr(clf, "posterior_") and not hasattr(clf, "classes_")
    theta = log_joint.start(random_state=0)
    assert theta.shape == (log_joint.n_parameters,) == (13 * 4 + 4 + 4 * 3 + 3,)
    with torch.no_grad():
        for name, value in log_joint.unpack(theta).items():
            net.get_parameter(name).copy_(torch.from_numpy(value))
        net = net.double()
        p = torch.distributions.Categorical(logits=net(torch.from_numpy(X)))
        rows = p.log_prob(torch.from_numpy(y)) * torch.from_numpy(weight)
        scale = torch.tensor(0.7, dtype=torch.float64)
        prior = torch.distributions.Normal(0.0, scale).log_prob(theta)
    assert log_joint.log_prior(theta).item() == pytest.approx(prior.sum().item(), abs=1e-9)
    # the module's own parameters are in float32
    assert log_joint.log_likelihood(theta).item() == pytest.approx(rows.sum().item(), rel=1e-5)
    total = log_joint.log_prior(theta) + log_joint.log_likelihood(theta)
    assert log_joint(theta).item() == total.item()


ESTIMATORS = [
    (sk.BayesianModuleClassifier(module()), y),
    (sk.BayesianModuleClassifier(module(), sample_parameters="last_layer"), y),
    (sk.BayesianModuleClassifier(module(), prior_scale="learned", sample_parameters="2"), y),
    (sk.BayesianModuleRegressor(nn.Linear(13, 2), sample_parameters="last_layer"), X[:, :2]),
    (sk.BayesianMLPRegressor(hidden_layer_sizes=4, dtype="float64"), X[:, 0]),
    (sk.BayesianLogisticRegression(prior_scale="learned"), y),
    (sk.BayesianOrdinalClassifier(), y),
    (sk.BayesianGLMRegressor(likelihood="student_t"), X[:, 0] + X[:, 1]),
]


@cases("estimator, target", ESTIMATORS)
def test_gradients_positions_and_minibatches(estimator, target):
    """Autograd against differences over 1e-6, along one direction (their error is about 1e-6); two
    positions at once are each alone; the mean of minibatches that partition the rows is all rows.
    """
    log_joint = estimator.log_joint(X, target)
    theta = log_joint.start(0) + 0.1
    theta.requires_grad_()
    (gradient,) = torch.autograd.grad(log_joint(theta), theta)
    direction = torch.from_numpy(np.random.default_rng(0).standard_normal(len(theta))).to(theta)
    with torch.no_grad():
        numeric = (log_joint(theta + 1e-6 * direction) - log_joint(theta - 1e-6 * direction)) / 2e-6
        assert float(numeric) == pytest.approx(float(gradient @ direction), rel=1e-4, abs=1e-4)
        both = torch.stack([theta, theta + direction])
        each = torch.stack([log_joint(at) for at in both])
        torch.testing.assert_close(log_joint(both), each)
        parts = torch.arange(len(X)).view(2, -1)
        halves = torch.stack([log_joint.log_likelihood(theta, rows) for rows in parts])
        torch.testing.assert_close(halves.mean(), log_joint.log_likelihood(theta))
        assert (halves[0] != halves[1]).item()


def test_a_loop_of_one_s_own_finds_the_maximum():
    """LBFGS on the log joint ends where scikit-learn's ridge classification does: loss within 1e-3.

    The flat prior of the intercept and N(0, 1) on three rows of weights is C = 1.
    """
    from sklearn.linear_model import LogisticRegression

    log_joint = sk.BayesianLogisticRegression(prior_scale=1.0, dtype="float64").log_joint(X, y)
    theta = log_joint.start(0).requires_grad_()
    optimiser = torch.optim.LBFGS([theta], max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = -log_joint(theta)
        value.backward()
        return value

    optimiser.step(loss)
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(log_joint.unpack(theta)["coef"], theirs.coef_, atol=1e-3)


@cases(
    "theta, rows, message",
    [
        (torch.zeros(5), None, r"theta of shape \(5,\) .* a position has 42 numbers"),
        (np.zeros(42), None, r"theta=array(.|\n)* give a tensor"),
        (torch.zeros(42), [178], "rows=.* rows have the numbers 0 to 177"),
        (torch.zeros(42), [-1], "rows=.* rows have the numbers 0 to 177"),
        (torch.zeros(42), [0.5], "rows=.* give some numbers of rows"),
    ],
)
def test_bad_input(theta, rows, message):
    log_joint = sk.BayesianModuleClassifier(nn.Linear(13, 3), prior_center="module").log_joint(X, y)
    with pytest.raises(ValueError, match=message):
        log_joint(theta, rows)


def test_latent_variables_have_no_density_of_theta_alone():
    for changes in ({"prior": "spike_slab"}, {"prune": 0.5}):
        clf = sk.BayesianModuleClassifier(module(), **changes)
        with pytest.raises(ValueError, match="log_joint is not allowed for"):
            clf.log_joint(X, y)


@cases("estimator", [sk.BayesianGLMRegressor(), sk.BayesianMLPRegressor(hidden_layer_sizes=3)])
def test_a_position_has_parameters_that_are_single_numbers(estimator):
    """The intercept of one position was an error. Scales of networks, which are integrated out,
    were there with nan; those of linear models were not there.
    """
    log_joint = estimator.log_joint(X, X[:, 0])
    theta = log_joint.start(random_state=0)
    one, several = log_joint.unpack(theta), log_joint.unpack(theta[None])
    assert sum(values.size for values in one.values()) == log_joint.n_parameters
    assert {k: v.shape for k, v in several.items()} == {k: (1, *v.shape) for k, v in one.items()}
    assert all(np.array_equal(values, several[name][0]) for name, values in one.items())
