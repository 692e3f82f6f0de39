"""Convolutional networks: gradients, grouped chains, shapes of images, augmentation."""

import numpy as np
import pytest
import torch
from _cases import cases
from sklearn.datasets import load_digits
from torch import nn

from skbayes_sgmcmc import BayesianCNNClassifier, SamplingError
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.augmentation import Augmentation
from skbayes_sgmcmc.models.likelihoods.base import Categorical
from skbayes_sgmcmc.models.networks.cnn import CNN
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.priors.factorised import Normal

X, y = load_digits(return_X_y=True)
SHORT = {"n_chains": 2, "n_draws": 20, "burn_in": 300, "thinning": 3, "random_state": 0}
#: for shapes; max_steps bounds the descents to the starts, too
BRIEF = SHORT | {"n_draws": 5, "burn_in": 5, "max_steps": 20}
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

#: image shape, channels, kernel, pool, hidden units, activation: with one and several channels,
#: sides that pools cut off, even kernels, no pools, no convolutions, sides of length 1
NETWORKS = [
    ((1, 8, 8), (3,), 3, 2, (5,), "tanh"),
    ((2, 7, 9), (3, 4), 3, 2, (), "relu"),
    ((2, 6, 6), (2, 3), 4, 3, (5,), "logistic"),
    ((1, 1, 20), (3, 2), 5, 2, (4,), "tanh"),
    ((1, 5, 5), (3,), 2, 1, (), "tanh"),
    ((3, 4, 4), (), 3, 2, (6,), "tanh"),
]


def starts(network, chains):
    rngs = map(np.random.default_rng, range(chains))
    return torch.from_numpy(np.stack([network.init(rng) for rng in rngs]))


def images(chains, rows, shape, seed=0):
    x = np.random.default_rng(seed).standard_normal((chains, rows, *shape))
    return torch.from_numpy(x)


def gradient(network, theta, x, codes):
    batch = Batch({"x": x, "y": codes}, 1.0, False, x.shape[1])
    out = torch.ones_like(theta)  # what is there is added to
    model = NetworkModel(network, Categorical(), Normal(), 1.0)
    model.likelihood_gradient(theta, batch, {}, None, out=out, scale=0.5)
    return out - 1.0


def in_torch(network, theta):
    """The same network as torch's own modules, activations before pools as is usual."""
    act = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid}[network.activation]
    parts, start = [], 0

    def take(*shape):
        nonlocal start
        start += int(np.prod(shape))
        return theta[start - int(np.prod(shape)) : start].view(shape)

    for layer in network.layers:
        conv = nn.Conv2d(layer.before, layer.after, layer.kernel, padding="same").double()
        kernel = take(layer.after, *layer.kernel, layer.before)
        conv.weight.data, conv.bias.data = kernel.permute(0, 3, 1, 2), take(layer.after)
        parts += [conv, act(), nn.MaxPool2d(tuple(layer.pool))]
    parts.append(ChannelsLastFlatten() if network.layers else nn.Flatten())
    for before, after in zip(network.top.units[:-1], network.top.units[1:], strict=True):
        linear = nn.Linear(before, after).double()
        linear.weight.data, linear.bias.data = take(before, after).T, take(after)
        parts += [linear, act()]
    return nn.Sequential(*parts[:-1])


class ChannelsLastFlatten(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)


@cases("settings", NETWORKS)
def test_outputs_are_those_of_torchs_modules(settings):
    """The same weights give the same outputs in float64: 1e-12."""
    network = CNN(*settings, n_outputs=3)
    theta = starts(network, 2)
    x = images(2, 7, settings[0])
    for c in range(2):
        theirs = in_torch(network, theta[c])(x[c])
        torch.testing.assert_close(network.outputs(theta, x)[c], theirs, rtol=0, atol=1e-12)


@cases("settings", NETWORKS)
def test_modules_of_one_draw_and_of_several_are_the_network(settings):
    """One draw: as many outputs and parameters. Several: the same outputs in float64, 1e-12."""
    network = CNN(*settings, n_outputs=3)
    theta, x = starts(network, 2), images(1, 7, settings[0])
    one = network.module()
    assert one(x[0].float()).shape == (7, 3)
    assert sum(p.numel() for p in one.parameters()) == theta.shape[1]
    draws = dict(zip(network.shapes, network.blocks(theta), strict=True))
    expected = network.outputs(theta, x)
    torch.testing.assert_close(network.stacked(draws)(x[0]), expected, rtol=0, atol=1e-12)


@cases("grouped", [False, True])
@cases("settings", NETWORKS)
def test_gradients_are_those_of_finite_differences(settings, grouped):
    """Central differences of 1e-6 in float64 are right to 1e-7; every fifth parameter."""
    network = CNN(*settings, n_outputs=3, grouped=grouped)
    theta, x = starts(network, 2), images(2, 6, settings[0])
    codes = torch.arange(12).view(2, 6) % 3
    g = gradient(network, theta, x, codes)
    model = NetworkModel(network, Categorical(), Normal(), 1.0)
    batch = Batch({"x": x, "y": codes}, 1.0, False, 6)

    def potentials(at):
        return -0.5 * model.log_lik(at, batch).sum(1)

    for i in range(0, theta.shape[1], 5):
        step = torch.zeros_like(theta)
        step[:, i] = 1e-6
        slope = (potentials(theta + step) - potentials(theta - step)) / 2e-6
        torch.testing.assert_close(slope, g[:, i], rtol=0, atol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("settings", NETWORKS)
def test_grouped_chains_are_the_chains_one_by_one(settings, shared):
    """As one grouped convolution or in turn, with rows of their own or shared: 1e-12."""
    together, in_turn = (CNN(*settings, n_outputs=3, grouped=grouped) for grouped in (True, False))
    theta, x = starts(together, 3), images(1 if shared else 3, 5, settings[0])
    torch.testing.assert_close(together.outputs(theta, x), in_turn.outputs(theta, x))
    codes = torch.arange(15).view(3, 5) % 3
    x = x.expand(3, *x.shape[1:])
    ours, theirs = (gradient(network, theta, x, codes) for network in (together, in_turn))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.statistical
@pytest.mark.slow
def test_cnn_knows_the_digits():
    """Measured 99% at defaults; 97% is reached with a tenth of the steps."""
    train, test = np.arange(len(y)) % 5 > 0, np.arange(len(y)) % 5 == 0
    clf = BayesianCNNClassifier(n_chains=2, burn_in=800, n_draws=40, thinning=5, random_state=0)
    assert clf.fit(X[train], y[train]).score(X[test], y[test]) > 0.95


@pytest.mark.parametrize(
    ("shape", "params", "image"),
    [
        ((-1, 64), {}, (1, 8, 8)),
        pytest.param((-1, 64), {"image_shape": (1, 4, 16)}, (1, 4, 16), marks=pytest.mark.slow),
        pytest.param((-1, 64), {"image_shape": (4, 4, 4)}, (4, 4, 4), marks=pytest.mark.slow),
        pytest.param((-1, 8, 8), {}, (1, 8, 8), marks=pytest.mark.slow),
        ((-1, 2, 4, 8), {}, (2, 4, 8)),
    ],
)
def test_images_come_in_several_shapes(shape, params, image):
    clf = BayesianCNNClassifier(conv_channels=2, hidden_layer_sizes=(), **params, **BRIEF)
    rows = X.reshape(shape)[:300]
    clf.fit(list(rows), y[:300])
    assert clf.image_shape_ == image
    np.testing.assert_array_equal(clf.predict_proba(rows), clf.predict_proba(X[:300]))


def test_rows_that_are_not_square_are_images_of_height_one():
    clf = BayesianCNNClassifier(conv_channels=2, **BRIEF).fit(X[:200, :50], y[:200])
    assert clf.image_shape_ == (1, 1, 50)
    assert clf.posterior_["kernel_1"].shape[2:] == (2, 1, 3, 1)


@cases(
    "params, message",
    [
        ({"image_shape": (1, 7, 8)}, r"image_shape=\(1, 7, 8\) is not allowed: a row of X has 64"),
        ({"image_shape": (8, 8)}, "image_shape=.* is not allowed: give .channels, height, width"),
        ({"image_shape": (1, 4, 16), "kernel_size": 5}, "kernel_size=5 is not allowed"),
        ({"conv_channels": (8, 0)}, "conv_channels=0 is not allowed"),
        ({"pool_size": 0}, "pool_size=0 is not allowed"),
        ({"activation": "swish"}, "activation='swish' is not allowed"),
        ({"augment": 3}, "augment=3 is not allowed"),
        ({"prior_scale": [1.0, 2.0]}, "the network has 4 layers"),
        ({"sampler": "mala", "prior_scale": "fan_in"}, "step_size='auto' is not allowed with MALA"),
    ],
)
def test_bad_parameters_of_cnns(params, message):
    with pytest.raises(ValueError, match=message):
        BayesianCNNClassifier(**(SHORT | params)).fit(X, y)


def test_images_of_another_shape_are_refused():
    clf = BayesianCNNClassifier(conv_channels=2, **BRIEF).fit(X[:100].reshape(-1, 8, 8), y[:100])
    with pytest.raises(ValueError, match=r"images of shape \(1, 4, 16\), but .* \(1, 8, 8\)"):
        clf.predict(X[:5].reshape(-1, 4, 16))
    with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 64\)\)"):
        clf.predict(np.zeros((0, 8, 8)))


@cases("shape", [(8, 8, 3), (8, 8, 1), (12, 9, 4)])
def test_images_with_their_channels_last_are_refused(shape):
    """Else rows of pixels would be taken for channels, and the fit would be poor."""
    images, labels = np.zeros((20, *shape)), np.arange(20) % 2
    clf = BayesianCNNClassifier(conv_channels=2, **BRIEF)
    with pytest.raises(ValueError, match=r"channels seem to be last. Give .*np.moveaxis\(X, -1, 1"):
        clf.fit(images, labels)
    assert clf.set_params(image_shape=shape).fit(images, labels).image_shape_ == shape


@cases("shape", [(4, 8, 8), (3, 8, 3), (8, 20, 1), (8, 1, 4)])
def test_images_that_only_look_like_it_are_taken(shape):
    clf = BayesianCNNClassifier(conv_channels=2, **BRIEF)
    assert clf.fit(np.zeros((20, *shape)), np.arange(20) % 2).image_shape_ == shape


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


@cases(
    "augment, message",
    [
        (lambda x, rng: x.numpy(), r"ndarray of shape \(20, 1, 8, 8\)"),
        (lambda x, rng: x.double(), "and float32. Return a tensor of this shape and type"),
        (Augmentation(), r"Augmentation has no method change\(x, u\)"),
    ],
)
def test_slips_of_own_augmentations_are_named(augment, message):
    clf = BayesianCNNClassifier(conv_channels=2, augment=augment, **SHORT)
    with pytest.raises((ValueError, NotImplementedError), match=message):
        clf.fit(X[:20], y[:20])


def test_divergence_names_step_chain_and_remedy():
    clf = BayesianCNNClassifier(conv_channels=2, sampler="sgld", step_size=1e6, **SHORT)
    with pytest.raises(SamplingError, match="2 of 2 chains diverged .chain 0 by"):
        clf.fit(X, y)
    assert not hasattr(clf, "posterior_")
