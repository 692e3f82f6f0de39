"""Modules whose forward pass is random, or no function of a row, or on another device."""

from __future__ import annotations

import copy
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from _cases import cases
from _links import messages
from _modules import TINY, X, trained, y
from scipy.special import softmax
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from skbayes_sgmcmc import (
    BayesianModuleClassifier,
    BayesianModuleRegressor,
    RandomLayerWarning,
    SamplingWarning,
    to_torch,
)
from skbayes_sgmcmc.models.networks.module import ModuleNetwork
from skbayes_sgmcmc.models.networks.module_checks import Rows, first_random
from skbayes_sgmcmc.priors import SpikeSlab

pytestmark = [
    pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning"),
    pytest.mark.filterwarnings("default::skbayes_sgmcmc.RandomLayerWarning"),
]


# random layers ------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Stochastic depth: a layer that is skipped at random in training."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        kept = not self.training or bool(torch.rand(()) < 0.5)
        return self.head(x + self.body(x) if kept else x)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.noise, self.head = Noise(), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.noise(x))


class Noise(nn.Module):
    def forward(self, x):
        return functional.dropout(x)  # also in evaluation mode


def dropout():
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 8), nn.Dropout(0.0), nn.Linear(8, 10))


@pytest.mark.parametrize(("make", "named"), [(dropout, r"\(0\)"), (Residual, r"\(body\)")])
def test_random_layers_are_switched_off_and_said_once(make, named):
    """Predictions of a draw are those of the module in evaluation mode; one warning each fit."""
    clf = BayesianModuleClassifier(make(), **TINY)
    state = torch.random.get_rng_state()
    with pytest.warns(RandomLayerWarning, match=f"random layers {named}, which are") as caught:
        clf.fit(X, y)
    (said,) = [w for w in caught if issubclass(w.category, RandomLayerWarning)]
    assert "so they run as in eval()" in str(said.message)
    assert torch.equal(state, torch.random.get_rng_state())
    with warnings.catch_warnings():
        warnings.simplefilter("error", RandomLayerWarning)
        p = clf.predict_proba_samples(X[:9])[0]
    module = make()
    module.load_state_dict({n: torch.from_numpy(v[0, 0]) for n, v in clf.posterior_.draws.items()})
    with torch.no_grad():
        expected = module.double().eval()(torch.from_numpy(X[:9])).softmax(1)
    np.testing.assert_allclose(p, expected, atol=1e-6)


def test_gradients_have_no_dropout():
    network = ModuleNetwork(dropout(), start="module")
    theta = torch.from_numpy(network.init(np.random.default_rng(0)))[None]
    found = [network.forward(theta, torch.from_numpy(X[None, :9]))[0] for _ in range(2)]
    assert torch.equal(*found)


def test_a_forward_that_is_always_random_is_refused_by_name():
    clf = BayesianModuleClassifier(Noisy(), **TINY)
    with pytest.raises(ValueError, match="evaluation mode differ, first in 'noise'"):
        clf.fit(X, y)
    rows = Rows(torch.rand(2, 64))
    assert first_random(dropout().eval(), rows) is None
    assert first_random(dropout().train(), rows) == "0"


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.head(x)


class Beside(nn.Module):
    """Centres the rows: what a row gives depends on the others."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(x - x.mean(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Counting, "its forward changes 'calls' in evaluation mode"),
        (Beside, "its output for a row depends on the rows beside it"),
        (
            lambda: nn.Sequential(nn.BatchNorm1d(64, track_running_stats=False), nn.Linear(64, 10)),
            "the batch norm '0' is not allowed, because it has no running statistics",
        ),
    ],
)
def test_modules_that_are_no_functions_of_rows_are_refused(make, message):
    clf = BayesianModuleClassifier(make(), **TINY)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y)
    assert not hasattr(clf, "posterior_")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs CUDA"))])  # fmt: skip
def test_modules_on_another_device_are_copied_to_that_of_the_chains(device):
    """The module stays where it is, and predictions are those of one that was never there."""
    module = trained()
    expected = BayesianModuleClassifier(copy.deepcopy(module), device="cpu", **TINY).fit(X, y)
    module.to(device)
    clf = BayesianModuleClassifier(module, device="cpu", **TINY).fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), expected.predict_proba(X))
    assert module[0].weight.device.type == device


def test_a_module_without_values_is_refused():
    clf = BayesianModuleClassifier(trained().to("meta"), **TINY)
    with pytest.raises(ValueError, match="'0.weight' is not allowed, because it has no values"):
        clf.fit(X, y)


class Cut(nn.Module):
    """A body without a gradient, and a head; a part that is not used."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, 10)
        self.spare = nn.Linear(3, 3)

    def forward(self, x):
        with torch.no_grad():
            features = self.body(x)
        return self.head(features)


def test_parameters_without_a_gradient_are_named():
    """Before, their draws were silently those of the prior, or torch's error named nothing."""
    with pytest.warns(SamplingWarning, match="no gradient in 'body.weight', 'body.bias', 'spare.w"):
        BayesianModuleClassifier(Cut(), **TINY).fit(X, y)
    with pytest.raises(ValueError, match="no gradient in 'spare.weight', 'spare.bias': its forwa"):
        BayesianModuleClassifier(Cut(), sample_parameters="spare", **TINY).fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*no gradient")
        BayesianModuleClassifier(Cut(), sample_parameters="head", **TINY).fit(X, y)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_modules_are_refused_by_name():
    module = torch.jit.trace(nn.Linear(64, 10), torch.zeros(2, 64))
    with pytest.raises(ValueError, match="what torch.jit has compiled does not take other param"):
        BayesianModuleClassifier(module, **TINY).fit(X, y)


# what outputs are ---------------------------------------------------------------------------------


def ending(*last, n_outputs=10):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, n_outputs), *last)


class Within(nn.Module):
    """A softmax that is no layer."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return functional.softmax(self.head(x), dim=1)


class Twice(nn.Module):
    """A final sigmoid that is an activation within the module, too."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.act = nn.Linear(64, 8), nn.Linear(8, 10), nn.Sigmoid()

    def forward(self, x):
        return self.act(self.head(self.act(self.body(x))))


@pytest.mark.parametrize("chosen", ["trainable", "last_layer"])
@pytest.mark.parametrize("last", [nn.Softmax(dim=-1), nn.Sigmoid()])
def test_a_final_softmax_or_sigmoid_is_left_out(last, chosen):
    """Draws, predictions, exports and students of the module without the layer: equal."""
    found = []
    for module in (ending(last), ending()):
        clf = BayesianModuleClassifier(module, sample_parameters=chosen, **TINY)
        texts = messages(partial(clf.fit, X, y))
        said = [text for text in texts if "'3', is left out" in text]
        assert len(said) == (len(module) == 4)
        student = clf.distill(X, n_epochs=1, random_state=0)
        with torch.no_grad():
            exported = to_torch(clf)(torch.from_numpy(X[:9]).float())
        found.append((clf.predict_proba(X), student.predict_proba(X), exported))
    for left_out, plain in zip(*found, strict=True):
        np.testing.assert_array_equal(left_out, plain)


def test_a_built_softmax_is_left_out_of_students_too():
    build = partial(ending, nn.Softmax(dim=1))
    clf = BayesianModuleClassifier(build, **TINY).fit(X, y)
    for student in (clf.distill(X, n_epochs=1), clf.distill(X, n_epochs=1, student=build)):
        last = [*pickle.loads(pickle.dumps(student))._module(torch.float32)[1]][-1]
        assert isinstance(last, nn.Identity)


@cases("make", [Within, Twice, partial(ending, nn.Softmin(dim=1))])
def test_other_probabilities_are_refused(make):
    with pytest.raises(ValueError, match="its outputs are probabilities"):
        BayesianModuleClassifier(make, **TINY).fit(X, y)


def test_logits_that_happen_to_be_probabilities_stay():
    """The outputs are 0.1 for all classes at the module's parameters, and only there."""
    module = ending()
    with torch.no_grad():
        module[2].weight.zero_()
        module[2].bias.fill_(0.1)
    for last in ((), (nn.LogSoftmax(dim=1),), (nn.ReLU(),)):
        clf = BayesianModuleClassifier(nn.Sequential(*module, *last), **TINY)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*left out")
            assert clf.fit(X, y)._left_out is None


@cases("likelihood", ["normal", "student_t", "poisson", "negative_binomial"])
@cases("last", [nn.ReLU, nn.Softplus, nn.Sigmoid, None])
def test_outputs_of_regressors_have_both_signs(likelihood, last):
    module = ending(*([] if last is None else [last()]), n_outputs=1)
    reg = BayesianModuleRegressor(module, likelihood=likelihood, **TINY)
    if last is None:
        reg.fit(X, y)
    else:
        with pytest.raises(ValueError, match="but none is negative"):
            reg.fit(X, y)


# parametrizations ---------------------------------------------------------------------------------


class Unit(nn.Module):
    def forward(self, weight):
        return weight / torch.linalg.matrix_norm(weight, 2)


def parametrized(kind, **options):
    return nn.Sequential(nn.Linear(64, 8), nn.Tanh(), kind(nn.Linear(8, 10), **options))


def unit(layer):
    return parametrize.register_parametrization(layer, "weight", Unit())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (partial(parametrized, parametrizations.spectral_norm), ["would update the buffers"]),
        (partial(parametrized, parametrizations.weight_norm), []),
        (partial(parametrized, parametrizations.orthogonal, orthogonal_map="cayley"), []),
        (partial(parametrized, unit), []),
    ],
    ids=["spectral", "weight", "orthogonal", "own"],
)
def test_parametrizations_are_sampled_by_their_tensors(make, said):
    """None is random. Only spectral_norm has buffers that training changes. torch is silent."""
    clf = BayesianModuleClassifier(make, sample_parameters="last_layer", **TINY)
    texts = messages(partial(clf.fit, X, y), Warning)
    assert not any("random layers" in text or "performance drop" in text for text in texts)
    assert [text for text in texts if "buffers" in text] == [
        text for text in texts if any(part in text for part in said)
    ]
    assert any("buffers" in text for text in texts) == bool(said)
    names = {name for name in clf.posterior_.draws if not name.startswith("scale")}
    assert names == {name for name, _ in make().named_parameters() if name.startswith("2.")}


def test_looks_at_training_change_no_buffer():
    module = parametrized(parametrizations.spectral_norm)
    before = copy.deepcopy(module.state_dict())
    clf = BayesianModuleClassifier(module, sample_parameters="0", **TINY).fit(X, y)
    for name, value in clf._module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0.0, atol=0.0)


def test_parametrizations_that_jump_are_refused():
    """Householder's map rounds signs, which any step would change."""
    with pytest.raises(ValueError, match="its outputs jump .* orthogonal_map='matrix_exp'"):
        BayesianModuleClassifier(parametrized(parametrizations.orthogonal), **TINY).fit(X, y)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_modules_that_can_not_be_copied_are_refused_by_name():
    build = partial(parametrized, nn.utils.weight_norm)
    for module in (build, build()):
        with pytest.raises(ValueError, match="can't be copied .* torch.nn.utils.parametrizations"):
            BayesianModuleClassifier(module, **TINY).fit(X, y)


# complex numbers, and none ------------------------------------------------------------------------


@cases(
    "where, dtype",
    [
        ("parameter", "float32"),
        ("parameter", "float64"),
        ("buffer", "float32"),
        ("buffer", "float64"),
    ],
)
def test_complex_numbers_keep_their_imaginary_parts(where, dtype):
    """``Module.to(torch.float32)`` leaves these out. Rotations of embeddings are such buffers."""

    class Magnitudes(nn.Module):
        def __init__(self):
            super().__init__()
            mixed = torch.complex(
                *torch.randn(2, 64, 8, generator=torch.Generator().manual_seed(0))
            )
            if where == "parameter":
                self.mixed = nn.Parameter(mixed, requires_grad=False)
            else:
                self.register_buffer("mixed", mixed)
            self.head = nn.Linear(8, 10)

        def forward(self, x):
            return self.head((x.to(self.mixed.dtype) @ self.mixed).abs())

    module = Magnitudes()
    features = np.abs(X @ module.mixed.detach().numpy())
    for clf in (
        BayesianModuleClassifier(module, dtype=dtype, **TINY),
        BayesianModuleClassifier(module, dtype=dtype, prior=SpikeSlab(), **TINY),
    ):
        weight, bias = (
            clf.fit(X, y).posterior_.select(f"head.{k}", slice(None)) for k in ("weight", "bias")
        )
        logits = np.einsum("nf,dkf->dnk", features, weight) + bias[:, None]
        expected = softmax(logits, axis=2).mean(0)
        np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-5)
        exported = to_torch(clf)(torch.from_numpy(X).float())
        np.testing.assert_allclose(exported.numpy(), expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"'mixed' has numbers of type complex64.*torch\.complex"):
        clf.set_params(module=Complex(), sample_parameters="all").fit(X, y)


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixed = nn.Parameter(torch.ones(64, 10, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(self.mixed.dtype) @ self.mixed).real


def test_parameters_without_numbers_are_left_out():
    module = nn.Sequential(nn.Linear(64, 10))
    module.register_parameter("nothing", nn.Parameter(torch.empty(0)))
    clf = BayesianModuleClassifier(module, **TINY).fit(X, y)
    assert {"0.weight", "0.bias"} == clf.posterior_.draws.keys()
