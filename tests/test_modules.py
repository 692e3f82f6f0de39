"""Networks made of torch modules: gradients, batch norms, bad modules."""

from functools import partial

import numpy as np
import pytest
import torch
from _cases import cases
from _files import in_a_file
from _links import messages
from _modules import norm_module
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

import skbayes_sgmcmc as sk
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.models.likelihoods.base import Categorical, Gaussian
from skbayes_sgmcmc.models.networks import model as network
from skbayes_sgmcmc.models.networks.mlp import MLP
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.models.networks.module import ModuleNetwork, bind, build
from skbayes_sgmcmc.priors.factorised import Normal

X, y = load_digits(return_X_y=True)
SHORT = {"n_chains": 2, "n_draws": 20, "burn_in": 300, "thinning": 3, "random_state": 0}
#: for what does not depend on the draws; max_steps bounds the descents to the starts, too
TINY = {"n_chains": 2, "n_draws": 4, "burn_in": 2, "thinning": 1, "max_steps": 6,
        "random_state": 0, "prior_scale": "fan_in"}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def mlp_module():
    return nn.Sequential(nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))


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


class Exp(nn.Module):
    def forward(self, x):
        return torch.exp(x)


class Gated(nn.Module):
    """Torch's vmap can't take it: what it does depends on a number that it computes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x) if self.layer.weight.sum() > 0 else -self.layer(x)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("make", [mlp_module, norm_module])
def test_chains_together_are_the_chains_in_turn(make, shared):
    """Gradients through vmap and one by one, of rows of their own or shared: 1e-12."""
    together, in_turn = ModuleNetwork(make(), vectorized=True), ModuleNetwork(make())
    in_turn._separable = False
    rng = np.random.default_rng(0)
    theta = torch.from_numpy(np.stack([together.init(rng) for _ in range(3)]))
    x = torch.from_numpy(rng.standard_normal((1 if shared else 3, 20, 64)))
    delta, found = torch.from_numpy(rng.standard_normal((3, 20, 10))), []
    for chains, parts in ((together, 1), (in_turn, 3)):
        out = torch.ones_like(theta)
        f, tape = chains.forward(theta, x)
        chains.backward(tape, delta, out)
        found.append((f, out))
        assert len(tape) == parts
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


@cases("ending", [nn.Tanh, nn.ReLU, nn.Sigmoid, partial(nn.Softmax, -1), Exp])
@cases("likelihood", [Categorical(), Gaussian(10, None)])
def test_modules_may_end_in_any_operation(likelihood, ending):
    """Backward needs the outputs of these: gradients as autograd has them of the density, 1e-10."""
    net = ModuleNetwork(nn.Sequential(nn.Linear(64, 10), ending()))
    model = NetworkModel(net, likelihood, Normal(), 1.0)
    rng = np.random.default_rng(0)
    theta = torch.from_numpy(np.stack([model.init(rng) for _ in range(3)])).requires_grad_()
    x, codes = torch.from_numpy(X[:30] / 16.0), torch.from_numpy(y[:30])
    targets = codes if isinstance(likelihood, Categorical) else nn.functional.one_hot(codes, 10)
    batch = Batch({"x": x, "y": targets}, 1.0, True, len(x))
    (expected,) = torch.autograd.grad(-0.5 * model.log_lik(theta, batch).sum(), theta)
    assert net._together(theta)  # the path without copies
    found = gradient(model, theta.detach(), x, targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


class Sine(nn.Module):
    """The sine of its input, in its place or in a copy."""

    def __init__(self, in_place):
        super().__init__()
        self.in_place = in_place

    def forward(self, x):
        return x.sin_() if self.in_place else x.sin()


def waves(in_place, n_features, n_outputs):
    norm = nn.BatchNorm1d(n_features, affine=False)
    return nn.Sequential(Sine(in_place), norm, nn.Linear(n_features, n_outputs))


@cases("batch_size", ["auto", 20])
@cases("chain_method", ["auto", "sequential"])
@cases("kind", [sk.BayesianModuleClassifier, sk.BayesianModuleRegressor])
def test_modules_may_write_into_their_input(kind, chain_method, batch_size):
    """Draws, statistics, predictions and exports as of the module that makes a copy: equal.

    Steps with all rows, chains and draws of a prediction changed the same rows once more, each.
    """
    rows, found = X[:60, 20:30] + 0.0, []
    run = TINY | {"step_size": 1e-3, "batch_size": batch_size, "chain_method": chain_method}
    for in_place in (True, False):
        given = rows.copy()
        model = kind(partial(waves, in_place), **run).fit(given, y[:60])
        draws = np.concatenate([np.ravel(v) for v in model.posterior_.draws.values()])
        classifier = kind is sk.BayesianModuleClassifier
        predicted = model.predict_proba(given) if classifier else model.predict(given, True)
        inputs = torch.from_numpy(given)
        exported = sk.to_torch(model)(inputs)
        np.testing.assert_array_equal(given, rows)
        found.append([draws, *np.atleast_1d(predicted), *map(np.asarray, exported)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_modules_that_vmap_can_not_take_go_in_turn():
    """As with ``chain_method="auto"``; who insists hears it before any work."""
    clf = sk.BayesianModuleClassifier(Gated, **TINY).fit(X, y)
    theirs = clone(clf).set_params(chain_method="sequential").fit(X, y)
    np.testing.assert_array_equal(clf.posterior_["layer.weight"], theirs.posterior_["layer.weight"])
    forced = clone(clf).set_params(chain_method="vectorized")
    with pytest.raises(ValueError, match="chain_method='vectorized' is not allowed: torch.func"):
        forced.fit(X, y)
    assert not hasattr(forced, "posterior_")


@pytest.mark.parametrize(
    "clf",
    [
        sk.BayesianMLPClassifier(hidden_layer_sizes=10, dtype="float64", **TINY),
        sk.BayesianCNNClassifier(conv_channels=2, hidden_layer_sizes=(), dtype="float64", **TINY),
        pytest.param(
            sk.BayesianCNNClassifier(conv_channels=2, precision="bfloat16", **TINY),
            marks=pytest.mark.slow,
        ),
        sk.BayesianModuleClassifier(norm_module, **TINY),
        sk.BayesianModuleRegressor(partial(nn.Linear, 64, 1), **TINY),
        sk.SparseBayesianClassifier(hidden_layer_sizes=3, **TINY),
    ],
    ids=["mlp", "cnn", "bfloat16", "module", "regressor", "sparse"],
)
def test_chain_method_changes_rounding_only(clf):
    """Six steps together and in turn: 1e-6 (bfloat16, in other orders of sums: 1e-2)."""
    first, *others = (
        clone(clf).set_params(chain_method=method).fit(X[:200], y[:200]).posterior_.draws
        for method in ("auto", "vectorized", "sequential")
    )
    tolerance = 1e-2 if clf.get_params().get("precision") == "bfloat16" else 1e-6
    for draws in others:
        for name, values in first.items():
            np.testing.assert_allclose(draws[name], values, rtol=0, atol=tolerance)
    with pytest.raises(ValueError, match="chain_method='parallel' is not allowed"):
        clone(clf).set_params(chain_method="parallel").fit(X, y)


def test_batch_norms_keep_statistics_with_each_draw():
    """Predictions of a row do not depend on the rows beside it, and the statistics are those of
    the training rows under that draw (the variance is a mean over two halves of them: 3%).
    """
    clf = sk.BayesianModuleClassifier(norm_module, standardize=True, **SHORT).fit(X, y)
    np.testing.assert_allclose(clf.predict_proba(X[:1]), clf.predict_proba(X)[:1], atol=1e-6)
    posterior = clf.posterior_
    assert posterior["1.running_mean"].shape == (2, 20, 12)
    w, b = posterior["0.weight"][1, 7], posterior["0.bias"][1, 7]
    spread = X.std(0)
    hidden = (X - X.mean(0)) / np.where(spread > 0.0, spread, 1.0) @ w.T + b
    np.testing.assert_allclose(posterior["1.running_mean"][1, 7], hidden.mean(0), atol=1e-3)
    np.testing.assert_allclose(posterior["1.running_var"][1, 7], hidden.var(0, ddof=1), rtol=3e-2)


def test_batch_norms_have_the_statistics_of_the_rows_in_log_likelihoods_too():
    """As in steps, whatever rows the module has seen before: checks of draws and the rows that stop
    a descent compare log likelihoods.
    """
    network = ModuleNetwork(norm_module().double())
    model, n = NetworkModel(network, Categorical(), Normal(), 1.0), 30
    theta = torch.randn(2, model.n_parameters, dtype=torch.float64, generator=torch.manual_seed(0))
    x, codes = torch.from_numpy(X[:n] / 16.0), torch.from_numpy(y[:n])
    batch = Batch({"x": x, "y": codes}, 1.0, True, n)
    of_steps = torch.log_softmax(network.forward(theta, x[None])[0], dim=2)
    network.forward(theta, 100.0 * x[None] + 7.0)  # leaves its own statistics in the module
    expected = of_steps.gather(2, codes.expand(2, n)[:, :, None])[:, :, 0]
    torch.testing.assert_close(model.log_lik(theta, batch), expected)


def test_fits_with_batch_norms_are_not_said_to_be_astray():
    """Draws that describe the data: with other statistics, three warnings denied it."""
    clf = sk.BayesianModuleClassifier(norm_module, standardize=True, **(SHORT | {"burn_in": 600}))
    said = messages(partial(clf.fit, X[:300], y[:300]))
    assert clf.score(X[:300], y[:300]) > 0.95
    assert not [each for each in said if "describe" in each or "posterior for a while" in each]


@pytest.mark.parametrize("chain_method", ["sequential", "vectorized"])
def test_batch_norms_need_several_rows(chain_method):
    """Where a row has one value for each channel. Images of one row have more."""
    clf = sk.BayesianModuleClassifier(norm_module, batch_size=1, chain_method=chain_method, **TINY)
    with pytest.raises(ValueError, match="batch_size=1 is not allowed .* batch norm '1'"):
        clf.fit(X[:50], y[:50])
    clf.set_params(batch_size=2).fit(X[:50], y[:50])
    with pytest.raises(ValueError, match="or more rows"):
        clf.partial_fit(X[:1], y[:1])

    def images():
        return nn.Sequential(
            nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(128, 10)
        )

    clf.set_params(module=images, input_shape=(1, 8, 8), batch_size=1).fit(X[:50], y[:50])


def test_statistics_are_computed_one_draw_at_a_time(tmp_path, monkeypatch):
    """So that draws on disk, which may be larger than the memory, stay there."""
    sizes, decode = [], network.decode

    def recorded(values):
        sizes.append(values.size)
        return decode(values)

    monkeypatch.setattr(network, "decode", recorded)
    clf = sk.BayesianModuleClassifier(norm_module, storage=sk.Storage(dir=tmp_path), **TINY).fit(
        X, y
    )
    assert sizes == [64 * 12 + 12 + 24 + 120 + 10] * 8
    assert in_a_file(clf.posterior_.draws["0.weight"])


def test_a_fit_builds_the_module_and_predictions_do_not(limits):
    """However many blocks of rows and draws they take: what is not sampled stays what it was."""
    built = []

    def counted():
        built.append(1)
        return mlp_module()

    clf = sk.BayesianModuleClassifier(counted, **TINY).fit(X, y)
    whole, few = clf.predict_proba(X[:100]), clf.predict_proba_samples(X[:100])
    limits(block_numbers=100)
    for predict, expected in ((clf.predict_proba, whole), (clf.predict_proba_samples, few)):
        np.testing.assert_allclose(predict(X[:100]), expected, atol=1e-6)
    assert built == [1]
    assert clf._network is None


@cases(
    "module, message",
    [
        (lambda: nn.Sequential(nn.Linear(64, 5)), r"output has the shape \(2, 5\); give"),
        (lambda: nn.ReLU(), "module without parameters"),
        (lambda: "no module", "must build a torch.nn.Module, but it built str"),
        (
            lambda i, o: nn.Linear(i, o),
            r"^module=.* asks for 'i', 'o'; it may have the arguments n_features, input_shape, n_o",
        ),
        (partial(nn.Linear, 64), r"^module=.* asks for 'out_features'; it may have"),
        (nn.Linear(64, 10).weight, "give a torch.nn.Module, a callable"),
        (lambda: nn.Conv2d(1, 2, 3), r"rows of shape \(64,\) .* give the input_shape"),
        (lambda: nn.LSTM(64, 10), "depends on the rows beside it.* batch_first=True"),
        (lambda: nn.LazyLinear(10), "'weight' is not allowed, because it has no values yet"),
    ],
)
def test_bad_modules(module, message):
    clf = sk.BayesianModuleClassifier(module, **SHORT)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)
    assert not hasattr(clf, "classes_")


def test_a_module_of_one_logit_is_told_how_to_have_two():
    module = nn.Linear(64, 1)
    with pytest.raises(ValueError, match=r"such as torch\.nn\.Sequential\(module, .*Pad1d"):
        sk.BayesianModuleClassifier(module, **SHORT).fit(X, y > 4)
    module = nn.Sequential(module, nn.ConstantPad1d((1, 0), 0.0))
    proba = sk.BayesianModuleClassifier(module, **SHORT).fit(X, y > 4).predict_proba(X)
    assert proba.shape == (len(X), 2)


def test_building_modules_leaves_torchs_random_numbers_alone():
    state = torch.random.get_rng_state()
    build(mlp_module)
    assert torch.equal(state, torch.random.get_rng_state())


def named(**others):
    return others


@pytest.mark.parametrize("seed", [0, np.random.RandomState], ids=["number", "generator"])
def test_frozen_layers_of_a_built_module_follow_random_state(seed):
    """They followed torch's global state, which differs in every process."""

    def logits(global_seed):
        torch.manual_seed(global_seed)
        state = torch.random.get_rng_state()
        random_state = seed if seed == 0 else seed(0)
        some = TINY | {"random_state": random_state, "sample_parameters": "last_layer"}
        clf = sk.BayesianModuleClassifier(mlp_module, **some).fit(X[:200], y[:200])
        assert torch.equal(state, torch.random.get_rng_state())
        return clf.predict_proba(X[:20])

    np.testing.assert_array_equal(logits(0), logits(1))


def test_modules_are_told_the_widths_that_they_name():
    """One function for data of several widths; what a partial has fixed stays fixed."""
    got = []

    def record(n_outputs, n_features, hidden=3, **others):
        got.append((n_features, n_outputs, hidden, others))
        return nn.Linear(n_features, n_outputs)

    for columns, classes in ((64, 10), (20, 3)):
        clf = sk.BayesianModuleClassifier(record, **TINY).fit(X[:200, :columns], y[:200] % classes)
        assert clf.posterior_["weight"].shape == (2, 4, classes, columns)
        assert got[-1] == (columns, classes, 3, {})
    bind(partial(record, n_outputs=7), n_features=4, n_outputs=2)()
    assert got[-1][:2] == (4, 7)
    assert bind(named, n_features=4, n_outputs=2)() == {}
    assert bind(dict, n_features=4)() == {}  # compiled code has no signature
    # a class, which has the signature of its constructor
    reg = sk.BayesianModuleRegressor(Line, **TINY).fit(X[:50, :5], X[:50, 5:7])
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

    sk.BayesianModuleClassifier(image_module, input_shape=(1, 8, 8), **TINY).fit(X[:99], y[:99])
    assert set(shapes) == {(1, 8, 8)}
    with pytest.raises(ValueError, match=r"input_shape=\(1, 4, 4\) .* a row of X has 64 numbers"):
        sk.BayesianModuleClassifier(image_module, input_shape=(1, 4, 4), **TINY).fit(X, y)


def test_rows_may_have_the_shape_that_the_module_gets():
    """Images give the draws and predictions of their flat rows, with or without the parameter."""
    images = X[:60].reshape(-1, 1, 8, 8)

    def image_module():
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10))

    clf = sk.BayesianModuleClassifier(image_module, input_shape=(1, 8, 8), **TINY)
    flat = clone(clf).fit(X[:60], y[:60]).predict_proba(X[:60])
    np.testing.assert_array_equal(clf.fit(images, y[:60]).predict_proba(images), flat)
    np.testing.assert_array_equal(clf.predict_proba(X[:60]), flat)
    without = clone(clf).set_params(input_shape=None).fit(images, y[:60])
    np.testing.assert_array_equal(without.predict_proba(X[:60]), flat)
    with pytest.raises(ValueError, match=r"was fitted to rows of shape \(1, 8, 8\)"):
        without.predict(images[:, 0])
    other = clone(clf).set_params(input_shape=(8, 8))
    with pytest.raises(ValueError, match=r"X of shape \(60, 1, 8, 8\) .* input_shape=\(1, 8,"):
        other.fit(images, y[:60])
    with pytest.raises(ValueError, match=r"X of shape \(60, 8, 8\) .* input_shape=\(1, 8, 8\)"):
        clf.predict(images[:, 0])


@pytest.mark.slow
def test_module_regressor_with_several_outputs():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 4))
    B = A @ rng.standard_normal((4, 2)) * [1.0, 50.0] + rng.standard_normal((300, 2)) * [0.1, 5.0]
    reg = sk.BayesianModuleRegressor(two_outputs, **(SHORT | {"burn_in": 10_000})).fit(A, B)
    mean, sd = reg.predict(A, return_std=True)
    assert mean.shape == sd.shape == (300, 2) and reg.score(A, B) > 0.95
    np.testing.assert_allclose(sd.mean(0), [0.1, 5.0], rtol=0.3)


def two_outputs():
    return nn.Linear(4, 2)


def test_modules_may_have_their_inputs_augmented():
    """The callable sees every minibatch in the module's shape, and no rows of predictions."""
    seen = []

    def augment(x, rng):
        seen.append(tuple(x.shape))
        return x

    module = partial(nn.Sequential, nn.Flatten(), nn.Linear(64, 10))
    clf = sk.BayesianModuleClassifier(module, input_shape=(1, 8, 8), augment=augment, batch_size=50,
                                   **TINY).fit(X, y)  # fmt: skip
    assert set(seen) == {(2, 50, 1, 8, 8)}
    calls = len(seen)
    clf.predict(X[:9])
    assert len(seen) == calls
    with pytest.raises(ValueError, match="augment=3 is not allowed: give None or a callable"):
        sk.BayesianModuleRegressor(mlp_module, augment=3).fit(X, y)
