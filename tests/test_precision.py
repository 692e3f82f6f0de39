"""Gradients in bfloat16: the full ones to its rounding, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from _cases import cases
from _modules import norm_module
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    BayesianModuleClassifier,
)
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.models.likelihoods.base import Categorical
from skbayes_sgmcmc.models.networks.cnn import CNN
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.models.networks.module import ModuleNetwork
from skbayes_sgmcmc.priors.factorised import Normal

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

X, y = load_digits(return_X_y=True)
TINY = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 1, "random_state": 0}
SHORT = {"n_chains": 2, "n_draws": 20, "burn_in": 300, "thinning": 3, "random_state": 0}


NETWORKS = {
    "mlp": (lambda: MLP((64, 20, 10), "relu"), (64,)),
    "cnn": (lambda: CNN((1, 8, 8), (3, 4), 3, 2, (5,), "tanh", 10, grouped=False), (1, 8, 8)),
    "grouped cnn": (lambda: CNN((1, 8, 8), (3,), 2, 2, (), "relu", 10, grouped=True), (1, 8, 8)),
    "module": (lambda: ModuleNetwork(norm_module()), (64,)),
}
ESTIMATORS = {
    "mlp": BayesianMLPClassifier(
        hidden_layer_sizes=20, precision="bfloat16", sampler="psgld", prior_scale="fan_in", **SHORT
    ),
    "cnn": BayesianCNNClassifier(conv_channels=4, precision="bfloat16", calibrate=False, **SHORT),
    "module": BayesianModuleClassifier(
        norm_module, standardize=True, precision="bfloat16", **SHORT
    ),
}


@cases("name", NETWORKS)
def test_gradients_are_the_full_ones_to_rounding(name):
    """bfloat16 rounds to 2^-9 = 0.2%; a dozen roundings on the way, and sums over rows in which
    much cancels, make that up to 2.3% of the norm of a chain's gradient here. 5% are allowed. It is
    not the same gradient, or nothing was rounded; and it is added, to float32.
    """
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    network, rng = make(), np.random.default_rng(0)
    theta = torch.from_numpy(np.stack([network.init(rng) for _ in range(2)])).float()
    x = torch.from_numpy(X[:100] / 8.0 - 1.0).float().view(-1, *shape)
    batch = Batch({"x": x, "y": torch.from_numpy(y[:100])}, 1.0, True, 100)
    found = []
    for precision in ("full", "bfloat16"):
        model = NetworkModel(network, Categorical(), Normal(), 1.0, precision=precision)
        out = torch.ones_like(theta)
        model.likelihood_gradient(theta, batch, {}, None, out=out, scale=0.5)
        found.append(out - 1.0)
    full, low = found
    away = (low - full).norm(dim=1) / full.norm(dim=1)
    assert (away > 1e-4).all() and (away < 0.05).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_but_gradients_is_in_float32(name):
    """Draws, buffers and predictions; and a fit comes as far as one with full precision."""
    clf = clone(ESTIMATORS[name]).fit(X, y)
    assert {values.dtype for values in clf.posterior_.draws.values()} == {np.dtype(np.float32)}
    full = type(clf)(**(clf.get_params(deep=False) | {"precision": "full"})).fit(X, y)
    assert full.score(X, y) > 0.8
    assert abs(clf.score(X, y) - full.score(X, y)) < 0.05
    proba = clf.predict_proba(X[:9])
    np.testing.assert_array_equal(clf.set_params(precision="full").predict_proba(X[:9]), proba)


def test_noise_is_inferred_as_with_full_precision():
    """The likelihood's own parameters have full gradients, and what rounding does to others fades.

    log(sigma / 0.3 sd(y)) begins at 0 and ends at about -0.4, where chains in both precisions
    differed by less than 0.001. Gradients rounded to 8 bits would stop it on its way.
    """
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 3))
    b = A @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(300)
    noises = []
    for precision in ("full", "bfloat16"):
        reg = BayesianMLPRegressor(
            hidden_layer_sizes=(), n_chains=2, burn_in=1500, n_draws=50, thinning=5,
            random_state=0, precision=precision, noise="infer", prior_scale="fan_in",
            sampler="psgld",
        ).fit(A, b)  # fmt: skip
        noises.append(reg.posterior_["log_noise"])
    full, rounded = noises
    np.testing.assert_allclose(rounded, full, rtol=0, atol=0.005)
    assert full.mean() < -0.1


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.line = nn.Linear(64, 8), nn.Linear(8, 10)

    def forward(self, x):
        # not when it is looked at before the run
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("not today")
        return self.line(self.first(x))


@pytest.mark.parametrize("module", [norm_module, Failing])
def test_torchs_switch_is_left_as_it_was(module):
    """Also by a module that fails half way."""
    clf = BayesianModuleClassifier(module, precision="bfloat16", **TINY)
    if module is Failing:
        with pytest.raises(RuntimeError, match="not today"):
            clf.fit(X, y)
    else:
        clf.fit(X, y)
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"precision": "tf32"}, "precision='tf32' is not allowed: give one of 'full', 'bfloat16'"),
        ({"precision": "bfloat16", "dtype": "float64"}, "dtype='float64' is not allowed with prec"),
    ],
)
def test_bad_precisions(params, message):
    with pytest.raises(ValueError, match=message):
        BayesianMLPClassifier(**(TINY | params)).fit(X, y)
