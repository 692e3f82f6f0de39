"""Linear models of many correlated features: chains in rotated coordinates, draws in the user's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc.diagnostics import r_hat
from skbayes_sgmcmc.models.linear.last_layer import LogisticHead
from skbayes_sgmcmc.models.linear.rotated import RotatedLogisticModel, RotatedModel
from skbayes_sgmcmc.priors import Normal

RNG = np.random.default_rng(0)
#: columns that are correlated, of different sizes, and far from zero
X = RNG.standard_normal((300, 6)) @ RNG.standard_normal((6, 6)) + 2.0
TRUTH = RNG.standard_normal((6, 3)) / X.std(0)[:, None]
LABELS = ((X - X.mean(0)) @ TRUTH + RNG.gumbel(size=(300, 3))).argmax(1)


#: budgets too small to mix, on purpose, where mixing is not what is looked at
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def turn(limits):
    """Let models of any size be as those of many features."""
    limits(full_hessian=0)


def small(**parameters):
    run = {"n_draws": 20, "burn_in": 20, "thinning": 1, "n_chains": 2, "random_state": 0}
    return BayesianLogisticRegression(**run | parameters)


MODELS = {
    "two classes": lambda bias: RotatedLogisticModel(6, 2, Normal(), 0.7, bias),
    "three classes": lambda bias: RotatedLogisticModel(6, 3, Normal(), 0.7, bias),
    "head": lambda bias: LogisticHead(layer_of(3, bias), Normal(), 0.7),
}


def layer_of(n_outputs, bias):
    return {"weight": (n_outputs, 6)} | ({"bias": (n_outputs,)} if bias else {})


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_draws_predict_in_the_users_coordinates_what_the_chain_saw(name, bias, limits):
    """Log likelihoods of positions, and of their named draws with the user's rows; to 1e-9.

    Without an intercept rows are rotated about zero: nothing could make up for another centre.
    """
    turn(limits)
    y = LABELS % 2 if name == "two classes" else LABELS
    model = MODELS[name](bias).for_features(X, None)
    assert model.coordinates.axes is not None
    theta = np.random.default_rng(1).standard_normal((1, model.n_parameters))
    batch = model.make_data(X, y, None, torch.float64, "cpu").all_rows()
    found = model.log_lik(torch.from_numpy(theta), batch)[0].numpy()
    draw = {key: value[0] for key, value in model.unpack(theta).items()}
    weight = draw["weight" if name == "head" else "coef"]
    z = X @ weight.T + draw.get("bias", draw.get("intercept", 0.0))
    z = np.c_[np.zeros(len(z)), z] if z.shape[1] == 1 else z
    expected = z[np.arange(len(z)), y] - np.log(np.exp(z).sum(1))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize(("n_classes", "bias"), [(2, True), (3, False)])
def test_the_posterior_is_that_of_chains_in_plain_coordinates(n_classes, bias, limits):
    """Means within 0.15 sd and sds within 10% of a fit with the whole Hessian.

    Of 64 x 125 draws each, with Monte Carlo errors of 0.02 sd and 2% on both sides.
    """
    run = {"n_chains": 64, "n_draws": 125, "fit_intercept": bias, "prior_scale": 1.0}
    y = LABELS % 2 if n_classes == 2 else LABELS
    plain = BayesianLogisticRegression(random_state=0, **run).fit(X, y).posterior_
    turn(limits)
    turned = BayesianLogisticRegression(random_state=1, **run).fit(X, y).posterior_
    for name in ("coef", "intercept") if bias else ("coef",):
        away = (turned.mean(name) - plain.mean(name)) / plain.std(name)
        assert np.abs(away).max() < 0.15
        assert np.abs(turned.std(name) / plain.std(name) - 1.0).max() < 0.1
    assert r_hat(turned, "coef").max() < 1.02


@pytest.mark.statistical
def test_large_features_heat_nothing(limits):
    """What all classes share has the prior's sd: 1 within 7%, five of its Monte Carlo errors.

    One of six features is 100,000 times as large as the others. Rounding errors of its gradient, in
    float32, once made that sd 1.17.
    """
    turn(limits)
    size = np.array([1e5, 1.0, 1e-3, 10.0, 1e3, 1.0])
    run = {"n_chains": 16, "n_draws": 500, "prior_scale": 1.0, "random_state": 0}
    clf = BayesianLogisticRegression(**run).fit(X * size, LABELS)
    shared = clf.posterior_["coef"].sum(2) / np.sqrt(3.0)
    np.testing.assert_allclose(shared.std((0, 1)), 1.0, rtol=0.07)


PLAIN = {
    "sparse rows": (sp.csr_matrix(X), {}),
    "other scales": (X, {"prior_scale": np.arange(1.0, 7.0)}),
    "another prior": (X, {"prior": "laplace"}),
    "given starts": (X, {"init": np.zeros(6 * 3 + 2)}),
    "given step": (X, {"step_size": 0.001}),
    "given preconditioner": (X, {"preconditioner": np.ones(6 * 3 + 2)}),
    "warm start": (X, {"warm_start": True}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_who_asks_for_coordinates_or_has_no_copy_has_plain_ones(name, limits, monkeypatch):
    """The draws are those of a fit whose model cannot rotate, bit for bit."""
    turn(limits)
    rows, parameters = PLAIN[name]
    found = small(**parameters).fit(rows, LABELS).posterior_["coef"]
    monkeypatch.setattr(RotatedModel, "rotated", False)
    plain = small(**parameters).fit(rows, LABELS).posterior_["coef"]
    np.testing.assert_array_equal(found, plain)


def test_streams_and_memory_maps_have_plain_coordinates(tmp_path, limits, monkeypatch):
    turn(limits)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = []
    for _ in range(2):
        streamed = small(batch_size=50).partial_fit(X, LABELS, classes=[0, 1, 2])
        found.append((streamed.posterior_["coef"], small().fit(mapped, LABELS).posterior_["coef"]))
        monkeypatch.setattr(RotatedModel, "rotated", False)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.statistical
def test_many_correlated_features_mix(limits):
    """505 parameters, positive parts as of a network: R-hat of every coefficient is below 1.05.

    With the diagonal of the curvature in plain coordinates it is 1.3, and with 3,010 parameters
    2.9 after four times as many steps.
    """
    turn(limits)
    rng = np.random.default_rng(0)
    center = rng.normal(size=(5, 100))
    labels = rng.integers(0, 5, 1000)
    rows = np.maximum(0.1 * center[labels] + rng.normal(size=(1000, 100)), 0.0)
    clf = BayesianLogisticRegression(n_draws=500, random_state=0)
    posterior = clf.fit(rows, labels).posterior_
    assert r_hat(posterior, "coef").max() < 1.05
    assert r_hat(posterior, "intercept").max() < 1.05
