"""Networks made of torch modules, and images: gradients, shapes, batch norms, bad modules."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from skbayes_sgmcmc import (
    BayesianCNNClassifier,
    BayesianMLPClassifier,
    BayesianModuleClassifier,
    BayesianModuleRegressor,
    SamplingError,
    prediction,
)
from skbayes_sgmcmc.minibatch import Batch
from skbayes_sgmcmc.models import network
from skbayes_sgmcmc.models.likelihoods import Categorical
from skbayes_sgmcmc.models.modules import ModuleNetwork, bind, build, cnn
from skbayes_sgmcmc.models.network import NetworkModel
from skbayes_sgmcmc.models.networks import MLP
from skbayes_sgmcmc.models.priors import Normal

X, y = load_digits(return_X_y=True)
SHORT = {"n_chains": 2, "n_draws": 20, "burn_in": 300, "thinning": 3, "random_state": 0}
#: for what does not depend on the draws
TINY = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 1, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def mlp_module():
    return nn.Sequential(nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))


def norm_module():
    return nn.Sequential(nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 10))


def gradient(model, theta, x, targets):
    batch = Batch({"x": x, "y": targets}, 1.0, True, len(x))
    out = torch.ones_like(theta)  # what is there is added to
    model.likelihood_gradient(theta, batch, {}, None, out=out, scale=0.5)
    return out - 1.0


def test_module_and_mlp_are_the_same_function():
    """The same weights (torch has them transposed) give the same outputs and gradients: 1e-12."""
    rng = np.random.default_rng(0)
    ours, theirs = MLP((64, 12, 10), "tanh"), ModuleNetwork(mlp_module())
    theta = torch.from_numpy(rng.standard_normal((3, 64 * 12 + 12 + 120 + 10)) * 0.1)

    def transposed(flat):  # (64, 12), (12,), (12, 10), (10,) to torch's order
        a, b, c, d = flat.split([768, 12, 120, 10], dim=1)
        a, c = a.view(-1, 64, 12).mT.reshape(-1, 768), c.view(-1, 12, 10).mT.reshape(-1, 120)
        return torch.cat([a, b, c, d], dim=1)

    x, codes = torch.from_numpy(X[:30] / 16.0), torch.from_numpy(y[:30])
    f = theirs.outputs(transposed(theta), x[None])
    torch.testing.assert_close(f, ours.outputs(theta, x[None]), rtol=0, atol=1e-12)
    g = gradient(NetworkModel(ours, Categorical(), Normal(), 1.0), theta, x, codes)
    h = gradient(NetworkModel(theirs, Categorical(), Normal(), 1.0), transposed(theta), x, codes)
    torch.testing.assert_close(h, transposed(g), rtol=0, atol=1e-12)


def test_gradient_of_a_cnn_is_that_of_finite_differences():
    """Central differences of 1e-6 in float64 are right to 1e-7; every tenth parameter."""
    network = ModuleNetwork(cnn((1, 8, 8), (3,), 3, 2, (5,), "tanh", 10))
    model = NetworkModel(network, Categorical(), Normal(), 1.0)
    theta = torch.from_numpy(network.init(np.random.default_rng(0)))[None]
    x, codes = torch.from_numpy(X[:20] / 16.0).view(-1, 1, 8, 8), torch.from_numpy(y[:20])
    g = gradient(model, theta, x, codes)[0]
    batch = Batch({"x": x, "y": codes}, 1.0, True, 20)

    def potential(at):
        return -0.5 * float(model.log_lik(at, batch).sum())

    for i in range(0, theta.shape[1], 10):
        step = torch.zeros_like(theta)
        step[0, i] = 1e-6
        slope = (potential(theta + step) - potential(theta - step)) / 2e-6
        assert abs(slope - float(g[i])) < 1e-6


def test_cnn_knows_the_digits():
    """Measured 99% at defaults (half a minute); 97% is reached with a tenth of the steps."""
    train, test = np.arange(len(y)) % 5 > 0, np.arange(len(y)) % 5 == 0
    clf = BayesianCNNClassifier(
        conv_channels=(8, 16), n_chains=2, burn_in=800, n_draws=40, thinning=5, random_state=0
    )
    assert clf.fit(X[train], y[train]).score(X[test], y[test]) > 0.95


@pytest.mark.parametrize(
    ("shape", "params", "image"),
    [
        ((-1, 64), {}, (1, 8, 8)),
        ((-1, 64), {"image_shape": (1, 4, 16)}, (1, 4, 16)),
        ((-1, 64), {"image_shape": (4, 4, 4)}, (4, 4, 4)),
        ((-1, 8, 8), {}, (1, 8, 8)),
        ((-1, 2, 4, 8), {}, (2, 4, 8)),
    ],
)
def test_images_come_in_several_shapes(shape, params, image):
    clf = BayesianCNNClassifier(conv_channels=2, hidden_layer_sizes=(), **params, **SHORT)
    rows = X.reshape(shape)[:300]
    clf.fit(rows, y[:300])
    assert clf.image_shape_ == image
    np.testing.assert_array_equal(clf.predict_proba(rows), clf.predict_proba(X[:300]))


def test_rows_that_are_not_square_are_images_of_height_one():
    clf = BayesianCNNClassifier(conv_channels=2, **SHORT).fit(X[:200, :50], y[:200])
    assert clf.image_shape_ == (1, 1, 50)
    assert clf.posterior_["0.weight"].shape[2:] == (2, 1, 1, 3)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"image_shape": (1, 7, 8)}, r"image_shape=\(1, 7, 8\) is not allowed: a row of X has 64"),
        ({"image_shape": (8, 8)}, "image_shape=.* is not allowed: give .channels, height, width"),
        ({"image_shape": (1, 4, 16), "kernel_size": 5}, "kernel_size=5 is not allowed"),
        ({"conv_channels": (8, 0)}, "conv_channels=0 is not allowed"),
        ({"pool_size": 0}, "pool_size=0 is not allowed"),
        ({"activation": "swish"}, "activation='swish' is not allowed"),
        ({"augment": 3}, "augment=3 is not allowed"),
        ({"prior_scale": [1.0, 2.0]}, "the network has 4 layers"),
        ({"sampler": "mala"}, "step_size='auto' is not allowed with MALA"),
    ],
)
def test_bad_parameters_of_cnns(params, message):
    with pytest.raises(ValueError, match=message):
        BayesianCNNClassifier(**(SHORT | params)).fit(X, y)


def test_images_of_another_shape_are_refused():
    clf = BayesianCNNClassifier(conv_channels=2, **SHORT).fit(X[:100].reshape(-1, 8, 8), y[:100])
    with pytest.raises(ValueError, match=r"images of shape \(1, 4, 16\), but .* \(1, 8, 8\)"):
        clf.predict(X[:5].reshape(-1, 4, 16))


def test_augmentation_is_for_sampling_only():
    """It sees every minibatch, with the chains' random numbers; predictions are on clean rows."""
    seen = []

    def augment(x, rng):
        seen.append(tuple(x.shape))
        return x + 0.1 * rng.normal(*x.shape[1:], dtype=x.dtype)

    clf = BayesianCNNClassifier(conv_channels=2, augment=augment, batch_size=50, **SHORT)
    clf.fit(X, y)
    assert set(seen) == {(2, 50, 1, 8, 8)} and len(seen) >= 300 + 60
    calls = len(seen)
    np.testing.assert_array_equal(clf.predict_proba(X[:9]), clf.predict_proba(X[:9]))
    assert len(seen) == calls


def test_batch_norms_keep_statistics_with_each_draw():
    """Predictions of a row do not depend on the rows beside it, and the statistics are those of
    the training rows under that draw (the variance is a mean over two halves of them: 3%).
    """
    clf = BayesianModuleClassifier(norm_module, standardize=True, **SHORT).fit(X, y)
    np.testing.assert_allclose(clf.predict_proba(X[:1]), clf.predict_proba(X)[:1], atol=1e-6)
    posterior = clf.posterior_
    assert posterior["1.running_mean"].shape == (2, 20, 12)
    w, b = posterior["0.weight"][1, 7], posterior["0.bias"][1, 7]
    hidden = clf._inputs(X) @ w.T + b
    np.testing.assert_allclose(posterior["1.running_mean"][1, 7], hidden.mean(0), atol=1e-3)
    np.testing.assert_allclose(posterior["1.running_var"][1, 7], hidden.var(0, ddof=1), rtol=3e-2)


def test_statistics_are_computed_one_draw_at_a_time(tmp_path, monkeypatch):
    """So that draws on disk, which may be larger than the memory, stay there."""
    sizes, decode = [], network.decode

    def recorded(values):
        sizes.append(values.size)
        return decode(values)

    monkeypatch.setattr(network, "decode", recorded)
    clf = BayesianModuleClassifier(norm_module, draws_dir=tmp_path, **TINY).fit(X, y)
    assert sizes == [64 * 12 + 12 + 24 + 120 + 10] * 8
    assert isinstance(clf.posterior_.draws["0.weight"], np.memmap)


def test_a_prediction_builds_the_module_once(monkeypatch):
    """However many blocks of rows and draws it takes."""
    built = []

    def counted():
        built.append(1)
        return mlp_module()

    clf = BayesianModuleClassifier(counted, **TINY).fit(X, y)
    whole, few = clf.predict_proba(X[:100]), clf.predict_proba_samples(X[:100])
    monkeypatch.setattr(prediction, "BLOCK_NUMBERS", 100)
    for predict, expected in ((clf.predict_proba, whole), (clf.predict_proba_samples, few)):
        before = len(built)
        np.testing.assert_allclose(predict(X[:100]), expected, atol=1e-6)
        assert len(built) == before + 1
    assert clf._network is None


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: nn.Sequential(nn.Linear(64, 5)), r"output has the shape \(2, 5\); it must be"),
        (lambda: nn.Sequential(nn.Linear(64, 10), nn.Dropout()), "module with dropout"),
        (lambda: nn.ReLU(), "module without parameters"),
        (lambda: "no module", "must build a torch.nn.Module, and it built str"),
        (nn.Linear(64, 10).weight, "give a callable that builds"),
    ],
)
def test_bad_modules(module, message):
    clf = BayesianModuleClassifier(module, **SHORT)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)
    assert not hasattr(clf, "classes_")


def test_building_modules_leaves_torchs_random_numbers_alone():
    state = torch.random.get_rng_state()
    build(mlp_module)
    assert torch.equal(state, torch.random.get_rng_state())


def named(**others):
    return others


def test_modules_are_told_the_widths_that_they_name():
    """One function for data of several widths; what a partial has fixed stays fixed."""
    got = []

    def record(n_outputs, n_features, hidden=3, **others):
        got.append((n_features, n_outputs, hidden, others))
        return nn.Linear(n_features, n_outputs)

    for columns, classes in ((64, 10), (20, 3)):
        clf = BayesianModuleClassifier(record, **TINY).fit(X[:200, :columns], y[:200] % classes)
        assert clf.posterior_["weight"].shape == (2, 4, classes, columns)
        assert got[-1] == (columns, classes, 3, {})
    bind(partial(record, n_outputs=7), n_features=4, n_outputs=2)()
    assert got[-1][:2] == (4, 7)
    assert bind(named, n_features=4, n_outputs=2)() == {}
    assert bind(dict, n_features=4)() == {}  # compiled code has no signature
    # a class, which has the signature of its constructor
    reg = BayesianModuleRegressor(Line, **TINY).fit(X[:50, :5], X[:50, 5:7])
    assert reg.posterior_["line.weight"].shape[2:] == (2, 5)


class Line(nn.Module):
    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.line = nn.Linear(n_features, n_outputs)

    def forward(self, x):
        return self.line(x)


def test_modules_are_told_the_shape_of_a_row():
    shapes = []

    def image_module(input_shape, n_outputs):
        shapes.append(input_shape)
        return nn.Sequential(nn.Conv2d(input_shape[0], 2, 3), nn.Flatten(), nn.Linear(72, 10))

    BayesianModuleClassifier(image_module, input_shape=(1, 8, 8), **TINY).fit(X[:99], y[:99])
    assert set(shapes) == {(1, 8, 8)}
    with pytest.raises(ValueError, match=r"input_shape=\(1, 4, 4\) .* a row of X has 64 numbers"):
        BayesianModuleClassifier(image_module, input_shape=(1, 4, 4), **TINY).fit(X, y)


def test_a_linear_module_is_a_linear_model():
    """Without hidden layers the module and the MLP are one model: probabilities within 0.05."""
    params = SHORT | {"burn_in": 2000, "n_draws": 200, "thinning": 5, "n_chains": 4}
    rows, labels = X[:400], y[:400] % 3
    a = BayesianMLPClassifier(hidden_layer_sizes=(), **params).fit(rows, labels)
    b = BayesianModuleClassifier(linear_module, standardize=True, **params).fit(rows, labels)
    assert np.abs(a.predict_proba(rows) - b.predict_proba(rows)).mean() < 0.02


def linear_module():
    return nn.Linear(64, 3)


def test_module_regressor_with_several_outputs():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 4))
    B = A @ rng.standard_normal((4, 2)) * [1.0, 50.0] + rng.standard_normal((300, 2)) * [0.1, 5.0]
    reg = BayesianModuleRegressor(two_outputs, **(SHORT | {"burn_in": 10_000})).fit(A, B)
    mean, sd = reg.predict(A, return_std=True)
    assert mean.shape == sd.shape == (300, 2) and reg.score(A, B) > 0.95
    np.testing.assert_allclose(sd.mean(0), [0.1, 5.0], rtol=0.3)


def two_outputs():
    return nn.Linear(4, 2)


def test_divergence_names_step_chain_and_remedy():
    clf = BayesianCNNClassifier(conv_channels=2, sampler="sgld", step_size=1e6, **SHORT)
    with pytest.raises(SamplingError, match="2 of 2 chains left the finite numbers .chain 0 by"):
        clf.fit(X, y)
    assert not hasattr(clf, "posterior_")


def test_clones_are_unfitted_copies():
    clf = BayesianModuleClassifier(mlp_module, standardize=True, **SHORT)
    assert clone(clf).get_params() == clf.get_params()
