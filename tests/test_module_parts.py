"""Modules that were trained before: where chains start, the prior, and what is sampled."""

from __future__ import annotations

import copy
from collections import OrderedDict
from functools import partial

import joblib
import numpy as np
import pytest
import torch
from _cases import cases
from _modules import TINY, X, trained, y
from sklearn.base import clone
from torch import nn
from torch.nn import functional

from skbayes_sgmcmc import BayesianModuleClassifier, BayesianModuleRegressor, to_torch
from skbayes_sgmcmc._data.minibatch import Batch
from skbayes_sgmcmc.models.likelihoods.base import Categorical
from skbayes_sgmcmc.models.networks.learned_scales import LearnedScalesModel
from skbayes_sgmcmc.models.networks.model import NetworkModel
from skbayes_sgmcmc.models.networks.module import ModuleNetwork
from skbayes_sgmcmc.models.networks.module_checks import Rows
from skbayes_sgmcmc.models.networks.network import START_SPREAD
from skbayes_sgmcmc.models.networks.selection import select
from skbayes_sgmcmc.priors import LearnedScale, Normal

#: the draws stay where the chains start: steps of 1e-12 move nothing
STILL = {"n_chains": 3, "n_draws": 2, "burn_in": 0, "thinning": 1, "random_state": 0,
         "step_size": 1e-12, "prior_scale": "fan_in"}  # fmt: skip
pytestmark = [
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.filterwarnings("default::skbayes_sgmcmc.RandomLayerWarning"),
]


def sampled(estimator):
    """Names of the sampled parameters; the learned scale of a last layer is none of the module."""
    return [name for name in estimator.posterior_.draws if name != "scale"]


# instances ----------------------------------------------------------------------------------------


def test_chains_start_at_the_weights_of_a_module():
    """Each has its own normal numbers around them: 1% of the root mean square of a tensor.

    Their sd is estimated from 3 x 512 numbers, so to 2%; four of these standard errors are 8%.
    """
    module = trained()
    draws = BayesianModuleClassifier(module, **STILL).fit(X, y).posterior_
    for name, value in module.named_parameters():
        size = float(value.detach().square().mean().sqrt())
        away = draws[name][:, 0] - value.detach().numpy()
        assert np.abs(away).max() < 6.0 * START_SPREAD * size, name
        assert (np.abs(away).reshape(3, -1).max(1) > 0.0).all()
        assert not np.array_equal(away[0], away[1])
    away = draws["0.weight"][:, 0] - module[0].weight.detach().numpy()
    size = float(module[0].weight.detach().square().mean().sqrt())
    np.testing.assert_allclose(away.std(), START_SPREAD * size, rtol=0.08)


def test_a_tensor_of_zeros_has_the_spread_of_all_parameters():
    module = nn.Linear(64, 10)
    nn.init.constant_(module.weight, 3.0)
    nn.init.zeros_(module.bias)
    network = ModuleNetwork(module, start="module")
    starts = np.stack([network.init(np.random.default_rng(i)) for i in range(500)])
    overall = 3.0 * np.sqrt(640 / 650)
    np.testing.assert_allclose(starts[:, 640:].std(), START_SPREAD * overall, rtol=0.05)


@pytest.mark.parametrize("init", ["random", "map"])
def test_other_starts_do_not_see_the_weights_of_a_module(init):
    module = nn.Linear(64, 10)
    nn.init.constant_(module.weight, 1e3)
    draws = BayesianModuleClassifier(module, init=init, **STILL).fit(X, y).posterior_
    assert np.abs(draws["weight"]).max() < 2.0


def test_callables_start_at_random_unless_they_are_told():
    def build():
        module = nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 10))
        nn.init.constant_(module[0].weight, 1e3)
        return module

    for init, at_module in (("auto", False), ("module", True)):
        draws = BayesianModuleClassifier(build, init=init, **STILL).fit(X, y).posterior_
        assert (np.abs(draws["0.weight"]).min() > 900.0) == at_module


def build():
    return nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))


def test_weights_are_a_state_dict_or_a_file(tmp_path):
    """The same draws as of the module that has these weights: starts, centre and frozen parts."""
    module = build()
    path = tmp_path / "weights.pt"
    torch.save(module.state_dict(), path)
    chosen = {"sample_parameters": ["0.bias", "2"], "prior_center": "module", **TINY}
    expected = BayesianModuleClassifier(module, **chosen).fit(X, y).predict_proba(X)
    for weights in (module.state_dict(), path, str(path)):
        clf = clone(BayesianModuleClassifier((build, weights), **chosen)).fit(X, y)
        np.testing.assert_array_equal(clf.predict_proba(X), expected)
    path.unlink()  # a fitted estimator does not need it
    np.testing.assert_array_equal(joblib_copy(clf, tmp_path).predict_proba(X), expected)


def joblib_copy(estimator, folder):
    joblib.dump(estimator, folder / "fitted.joblib")
    return joblib.load(folder / "fitted.joblib")


@cases(
    "module, message",
    [
        ((nn.Linear(64, 10), {}), r"module\[0\]=Linear.* it is a module"),
        ((build, 3), r"module\[1\]=3 is not allowed: give the weights"),
        ((build, "missing.pt"), r"module\[1\]='missing.pt' is not allowed: .*No such file"),
        ((build, __file__), r"module\[1\]='.*' is not allowed: (.|\n)*Give the state dict"),
        ((build, nn.Linear(64, 10).state_dict()), r"\[1\] is not allowed: (.|\n)*Missing key"),
        ((build,), "give a torch.nn.Module, a callable that builds one, or a pair"),
    ],
)
def test_bad_weights(module, message):
    with pytest.raises(ValueError, match=message):
        BayesianModuleClassifier(module, **TINY).fit(X, y)


def test_a_module_is_copied_and_never_changed():
    """Its values, gradients' flags and mode after a fit and predictions are those from before; and
    what its owner does with it afterwards changes no prediction.
    """
    module = trained().train()
    module[0].weight.requires_grad_(False)
    before = copy.deepcopy(module.state_dict())
    clf = BayesianModuleClassifier(module, sample_parameters="last_layer", **TINY).fit(X, y)
    p = clf.predict_proba(X[:9])
    assert module.training and not module[0].weight.requires_grad and module[3].bias.requires_grad
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    with torch.no_grad():
        module[0].weight.zero_()
    np.testing.assert_array_equal(clf.predict_proba(X[:9]), p)


def test_warm_starts_go_on_only_with_the_same_module():
    """The same one continues; another one, or another choice of parameters, starts afresh."""
    clf = BayesianModuleClassifier(trained(), warm_start=True, **STILL).fit(X, y)
    last = clf.posterior_["3.weight"][:, -1]
    np.testing.assert_allclose(clf.fit(X, y).posterior_["3.weight"][:, 0], last, atol=1e-3)
    clf.set_params(module=nn.Sequential(nn.Linear(64, 8), nn.Identity(), nn.Linear(8, 10)))
    assert "2.weight" in clf.fit(X, y).posterior_.draws
    stream = BayesianModuleClassifier(trained(), **TINY).partial_fit(X, y)
    with pytest.raises(ValueError, match="not allowed to change in partial_fit"):
        stream.set_params(sample_parameters="all").partial_fit(X, y)


def test_what_a_callable_builds_at_random_is_kept():
    """Frozen weights and buffers are those of the fit in each prediction, not newly built ones."""

    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("directions", torch.randn(64, 16))
            self.frozen, self.head = nn.Linear(16, 16), nn.Linear(16, 10)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.head(torch.relu(self.frozen(x @ self.directions)))

    clf = BayesianModuleClassifier(Features, **TINY).fit(X, y)
    assert sampled(clf) == ["head.weight", "head.bias"]
    torch.rand(3)
    np.testing.assert_array_equal(clf.predict_proba(X[:5]), clf.predict_proba(X[:5]))
    found = to_torch(clf)(torch.from_numpy(X[:5]))
    np.testing.assert_allclose(found, clf.predict_proba(X[:5]), atol=1e-5)


# the prior's centre -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NetworkModel, LearnedScalesModel])
def test_a_prior_has_its_centre_at_the_module(kind):
    """The density at theta is that of a prior about 0 at theta - centre: to rounding, 1e-10.

    Its gradient and potential are those of this density, at given scales.
    """
    network = ModuleNetwork(trained().double())
    scale = LearnedScale() if kind is LearnedScalesModel else "fan_in"
    centred = kind(network, Categorical(), Normal(), scale, center=network.values())
    plain = kind(network, Categorical(), Normal(), scale)
    rng = np.random.default_rng(0)
    theta = torch.from_numpy(network.values() + rng.standard_normal((2, centred.n_parameters)))
    moved = theta - torch.from_numpy(network.values())
    torch.testing.assert_close(centred.log_prior(theta), plain.log_prior(moved), rtol=0, atol=1e-10)
    state = centred.init_state(theta)
    at = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(centred.prior_potential(at, state).sum(), at)
    out = torch.empty_like(theta)
    centred.prior_gradient(theta, state, out, 1.0)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


@pytest.mark.statistical
@pytest.mark.slow
def test_without_information_the_posterior_is_the_prior_about_the_module():
    """Weights of rows of 1e-9 leave the prior N(module, 0.5): means within 4 MCSE, sds within 10%.

    The 10% are 4 standard errors of an sd with an effective sample size of 800.
    """
    module = nn.Linear(2, 2)
    nn.init.constant_(module.weight, 7.0)
    clf = BayesianModuleClassifier(
        module, prior_center="module", prior_scale=0.5, sampler="sgld", step_size=2e-10,
        n_draws=1000, thinning=20, burn_in=500, random_state=0,
    )  # fmt: skip
    clf.fit(X[:20, :2], y[:20] % 2, sample_weight=np.full(20, 1e-9))
    draws, table = clf.posterior_, clf.summary()
    centers = np.concatenate([np.full(4, 7.0), module.bias.detach().numpy()])
    found = np.concatenate([draws.mean(name).ravel() for name in ("weight", "bias")])
    spread = np.concatenate([draws.std(name).ravel() for name in ("weight", "bias")])
    assert (np.abs(found - centers) < 4.0 * np.asarray(table["mcse"])).all()
    assert (np.abs(spread / 0.5 - 1.0) < 0.1).all()


@cases(
    "changes, message",
    [
        ({"prior_center": "module", "module": partial(nn.Linear, 64, 10)}, "which is built anew"),
        ({"prior_center": "module", "prior": "spike_slab"}, "set weights to zero"),
        ({"prior_center": "module", "prune": 0.5}, "set weights to zero"),
        ({"prior_center": 1.0}, "prior_center=1.0 is not allowed: give one of 0, 'module'"),
        ({"prior_center": "zero"}, "prior_center='zero' is not allowed: give one of 0, 'module'"),
        ({"prior_center": np.timedelta64(0, "s")}, "give one of 0, 'module'"),  # equal to 0
        ({"init": "pretrained"}, "init='pretrained' is not allowed"),
    ],
)
def test_bad_priors_and_starts(changes, message):
    clf = BayesianModuleClassifier(nn.Linear(64, 10), **TINY).set_params(**changes)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)
    assert not hasattr(clf, "classes_")


# what is sampled ----------------------------------------------------------------------------------

LAST = ["3.weight", "3.bias"]
NORM = ["1.weight", "1.bias"]
FIRST = ["0.weight", "0.bias"]


@cases(
    "chosen, names",
    [
        ("all", FIRST + NORM + LAST),
        ("trainable", NORM + LAST),
        ("last_layer", LAST),
        ("3", LAST),
        ("3.*", LAST),
        ("*.bias", ["0.bias", "1.bias", "3.bias"]),
        (["3.bias", "0.weight"], ["0.weight", "3.bias"]),
        (lambda name, parameter: parameter.ndim == 2, ["0.weight", "3.weight"]),
    ],
)
def test_only_chosen_parameters_are_sampled(chosen, names):
    """The others have the module's values in predictions, which have the draws of these only."""
    module = trained()
    module[0].requires_grad_(False)
    clf = BayesianModuleClassifier(module, sample_parameters=chosen, **TINY).fit(X, y)
    statistics = [name for name in sampled(clf) if "running" in name]
    assert [name for name in sampled(clf) if name not in statistics] == names
    assert bool(statistics) == (set(NORM) <= set(names))
    state = module.state_dict()
    state |= {name: torch.tensor(clf.posterior_[name][1, 2]) for name in sampled(clf)}
    module.load_state_dict(state)
    with torch.no_grad():
        expected = module.double().eval()(torch.from_numpy(X[:20])).softmax(1)
    found = clf.predict_proba_samples(X[:20])[4 + 2]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_gradients_of_a_part_are_those_of_the_whole():
    """The density of some parameters has their part of the gradient of all; batch norms that are
    not sampled are functions of a row. Bound: rounding, 1e-10.
    """
    module = trained().double()
    names = select(module, "3", Rows(torch.zeros(2, 64, dtype=torch.float64)))
    part = NetworkModel(ModuleNetwork(copy.deepcopy(module), sampled=names), Categorical(),
                        Normal(), 1.0)  # fmt: skip
    rng = np.random.default_rng(0)
    theta = torch.from_numpy(rng.standard_normal((2, 90)))
    x, codes = torch.from_numpy(X[:30]), torch.from_numpy(y[:30])
    out = torch.zeros_like(theta)
    part.likelihood_gradient(theta, Batch({"x": x, "y": codes}, 1.0, True, 30), {}, None,
                             out=out, scale=1.0)  # fmt: skip
    module.eval()
    for c in range(2):
        with torch.no_grad():
            module[3].weight.copy_(theta[c, :80].view(10, 8))
            module[3].bias.copy_(theta[c, 80:])
        loss = functional.cross_entropy(module(x), codes, reduction="sum")
        expected = torch.autograd.grad(loss, [module[3].weight, module[3].bias])
        found = torch.cat([e.reshape(-1) for e in expected])
        torch.testing.assert_close(out[c], found, rtol=0, atol=1e-10)


class Tied(nn.Module):
    """An autoencoder's weights in two places, and a head."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.there, self.back = nn.Linear(64, 8), nn.Linear(8, 64)
        self.head = nn.Linear(64, 10)
        self.back.weight = nn.Parameter(self.there.weight.detach().t().contiguous())
        self.third = nn.Linear(64, 8)
        self.third.weight = self.there.weight

    def forward(self, x):
        return self.head(self.back(torch.tanh(self.there(x) + self.third(x))))


def test_tied_weights_are_one_parameter():
    clf = BayesianModuleClassifier(Tied(), **TINY).fit(X, y)
    assert "there.weight" in sampled(clf) and "third.weight" not in sampled(clf)
    module = clf._module
    state = {name: torch.tensor(clf.posterior_[name][0, 0]) for name in sampled(clf)}
    state["third.weight"] = state["there.weight"]
    module = Tied()
    module.load_state_dict(state)
    with torch.no_grad():
        expected = module.double()(torch.from_numpy(X[:9])).softmax(1)
    np.testing.assert_allclose(clf.predict_proba_samples(X[:9])[0], expected, atol=1e-6)
    both = BayesianModuleClassifier(Tied(), sample_parameters=["third", "there.weight"], **TINY)
    assert sampled(both.fit(X, y)) == ["there.weight", "third.bias"]


class Twice(nn.Module):
    """A part that the module has under two names, and calls twice."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(64, 64), nn.Linear(64, 10)
        self.second = self.first

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_a_part_with_two_names_is_sampled_once_and_put_back():
    """Gradients as autograd has them, 1e-10; before, theta stayed in the module after a call."""
    network = ModuleNetwork(Twice().double(), start="module")
    model = NetworkModel(network, Categorical(), Normal(), 1.0)
    theta = torch.from_numpy(model.init(np.random.default_rng(0)))[None]
    batch = Batch({"x": torch.from_numpy(X[:9]), "y": torch.from_numpy(y[:9])}, 1.0, True, 9)
    found = torch.zeros_like(theta)
    model.likelihood_gradient(theta, batch, {}, None, out=found, scale=1.0)
    module = network._here.calls.module
    assert all(isinstance(part.weight, nn.Parameter) for part in (module.second, module.head))
    leaf = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(-model.log_lik(leaf, batch).sum(), leaf)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    clf = BayesianModuleClassifier(Twice(), **TINY).fit(
        X, y
    )  # what looks at modules puts back, too
    assert sampled(clf) == ["first.weight", "first.bias", "head.weight", "head.bias"]


def test_steps_do_not_go_through_the_parts_of_the_module(monkeypatch):
    """Only the first does. Before, it was a tenth of a step of a small convolutional network."""
    network = ModuleNetwork(Twice(), start="module")
    model = NetworkModel(network, Categorical(), Normal(), 1.0)
    theta = torch.from_numpy(model.init(np.random.default_rng(0))).float()[None]
    x, out = torch.from_numpy(X[:9]).float(), torch.zeros_like(theta)
    batch = Batch({"x": x, "y": torch.from_numpy(y[:9])}, 1.0, True, 9)
    model.likelihood_gradient(theta, batch, {}, None, out=out, scale=1.0)

    def walk(*args, **options):
        raise AssertionError("a step goes through the parts")

    for method in ("named_modules", "named_parameters", "train"):
        monkeypatch.setattr(nn.Module, method, walk)
    theta.add_(0.01)  # in the place of the blocks that the first step has found
    second = out.clone().zero_()
    model.likelihood_gradient(theta, batch, {}, None, out=second, scale=1.0)
    monkeypatch.undo()
    leaf = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(-model.log_lik(leaf, batch).sum(), leaf)
    torch.testing.assert_close(second, expected, rtol=0, atol=1e-4)


def frozen():
    return trained().requires_grad_(False)


@cases(
    "module, chosen, message",
    [
        (trained, "head.*", r"'head.\*' matches no parameter; the module has '0.weight', '0.bias'"),
        (trained, ["3", "4"], "'4' matches no parameter"),
        (trained, lambda name, parameter: False, "selects no parameter, because none fits"),
        (frozen, "trainable", r"all are frozen \(requires_grad=False\); give 'all', 'last_layer'"),
        (Tied, "third", "it selects 'third.weight', which is the same tensor as 'there.weight'"),
        (trained, 3, "give 'trainable', 'all', 'last_layer', names or patterns"),
        (trained, [], "give 'trainable', 'all', 'last_layer', names or patterns"),
        (partial(nn.Bilinear, 64, 64, 10), "last_layer", "does not take rows of shape"),
    ],
)
def test_bad_choices_of_parameters(module, chosen, message):
    clf = BayesianModuleClassifier(module(), sample_parameters=chosen, **TINY)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)
    assert not hasattr(clf, "classes_")


def test_errors_list_the_names_of_the_head():
    """Of many names the first and the last: a typing error is most often in that of the head."""
    layers = [nn.Linear(64, 64) for _ in range(20)]
    module = nn.Sequential(OrderedDict(body=nn.Sequential(*layers), classifier=nn.Linear(64, 10)))
    clf = BayesianModuleClassifier(module, sample_parameters="head.*", **TINY)
    message = r"has 'body.0.weight', .*\.\.\. \(\d+ more\) \.\.\., .*, 'classifier.bias'\.\nMore"
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)


def test_a_module_without_linear_layers_has_no_last_one():
    module = nn.Sequential(nn.Conv1d(64, 10, 1), nn.Flatten())
    clf = BayesianModuleClassifier(module, sample_parameters="last_layer", input_shape=(64, 1))
    with pytest.raises(ValueError, match="calls no torch.nn.Linear; give some of '0.weight'"):
        clf.set_params(**TINY).fit(X, y)


def test_the_last_layer_is_the_one_that_is_called_last():
    class Reversed(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.body = nn.Linear(8, 10), nn.Linear(64, 8)

        def forward(self, x):
            return self.head(torch.tanh(self.body(x)))

    clf = BayesianModuleClassifier(Reversed(), sample_parameters="last_layer", **TINY).fit(X, y)
    assert sampled(clf) == ["head.weight", "head.bias"]


def test_half_precision_is_computed_in_that_of_the_chains():
    """Draws and predictions as of the same module in single precision: equal."""
    module = trained().half()
    found = []
    for given in (module, copy.deepcopy(module).float()):
        clf = BayesianModuleClassifier(given, sample_parameters="last_layer", **TINY).fit(X, y)
        found.append(clf.predict_proba(X[:9]))
    np.testing.assert_array_equal(*found)
    assert module[0].weight.dtype == torch.float16


def test_numbers_that_are_not_real_can_stay_but_not_be_sampled():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.power = nn.Parameter(torch.tensor(2), requires_grad=False)
            self.head = nn.Linear(64, 10)

        def forward(self, x):
            return self.head(x**self.power)

    clf = BayesianModuleClassifier(Scaled(), **TINY).fit(X, y)
    assert sampled(clf) == ["head.weight", "head.bias"]
    with pytest.raises(ValueError, match="'power' has numbers of type int64"):
        clf.set_params(sample_parameters="all").fit(X, y)


def test_distilled_students_learn_only_what_is_sampled():
    module = trained()
    clf = BayesianModuleClassifier(module, sample_parameters="last_layer", **TINY).fit(X, y)
    student = clf.distill(X, n_epochs=1, random_state=0)
    for name, value in module.named_parameters():
        learned = not np.array_equal(student.weights_[name], value.detach().numpy())
        assert learned == (name in LAST), name


def test_regressors_sample_parts_too():
    module = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 1))
    reg = BayesianModuleRegressor(module, sample_parameters="2", **TINY).fit(X, X[:, 20])
    assert sampled(reg) == ["2.weight", "2.bias", "log_noise"]
