"""What modules may get and return: tensors of any rank, integers, several arguments, objects."""

from __future__ import annotations

import io
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from _cases import cases
from sklearn.base import clone
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, BayesianModuleRegressor, to_onnx, to_torch
from skbayes_sgmcmc._data.layout import Layout
from skbayes_sgmcmc._validation import BOUNDS

rng = np.random.default_rng(0)
N, WORDS, LENGTH = 40, 12, 5
ids = rng.integers(0, WORDS, (N, LENGTH))
mask = rng.random((N, LENGTH)) > 0.3
numbers = rng.standard_normal((N, 2, 3)).astype(np.float32)
y = np.arange(N) % 3
TINY = {"n_chains": 2, "n_draws": 3, "burn_in": 2, "thinning": 1, "random_state": 0,
        "step_size": 1e-3, "prior_scale": "fan_in"}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


class Words(nn.Module):
    """Means of the embeddings of words; with a mask, of those that are not padding."""

    def __init__(self, returned="tensor"):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 4), nn.Linear(4, 3)
        self.returned = returned

    def forward(self, input_ids, attention_mask=None):
        assert input_ids.dtype == torch.int64
        h = self.embed(input_ids)
        if attention_mask is not None:
            assert attention_mask.dtype == torch.bool
            h = h * attention_mask[..., None]
        f = self.head(h.mean(-2))
        others = {"tensor": f, "tuple": (f, h), "object": SimpleNamespace(logits=f),
                  "mapping": {"logits": f}}  # fmt: skip
        return others[self.returned]


class Several(nn.Module):
    """Numbers of rank two beside words."""

    def __init__(self):
        super().__init__()
        self.words, self.numbers = Words(), nn.Linear(6, 3)

    def forward(self, words, numbers):
        return self.words(words) + self.numbers(numbers.flatten(-2))


def expected(module, clf, draw, *args, **kwargs):
    """Probabilities of a draw by the module itself."""
    state = {name: torch.from_numpy(clf.posterior_.select(name, [draw])[0])
             for name in clf.posterior_.draws}  # fmt: skip
    module.load_state_dict(state)
    tensors = [torch.as_tensor(each) for each in args]
    named = {name: torch.as_tensor(each) for name, each in kwargs.items()}
    with torch.no_grad():
        return module(*tensors, **named).softmax(1).numpy()


@pytest.mark.parametrize("chain_method", ["auto", "sequential"])
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_whole_numbers_reach_an_embedding_as_they_are(kind, chain_method):
    clf = BayesianModuleClassifier(Words(), chain_method=chain_method, **TINY)
    clf.fit(ids.astype(kind), y)
    assert "embed.weight" in clf.posterior_.draws
    found = clf.predict_proba_samples(ids.astype(kind))[4]
    np.testing.assert_allclose(found, expected(Words(), clf, 4, ids), atol=1e-6)
    with pytest.raises(ValueError, match="it has fractions, and the estimator was fitted to whole"):
        clf.predict(ids + 0.5)
    np.testing.assert_array_equal(clf.predict(ids.astype(float)), clf.predict(ids))


def test_modules_that_need_fractions_get_whole_numbers_as_such():
    """As before: images of integers, for layers that multiply."""
    clf = BayesianModuleClassifier(nn.Linear(LENGTH, 3), **TINY).fit(ids, y)
    floats = BayesianModuleClassifier(clf.module, **TINY).fit(ids.astype(float), y)
    np.testing.assert_array_equal(clf.predict_proba(ids), floats.predict_proba(ids))
    assert clf.predict(ids + 0.5).shape == (N,)


@pytest.mark.parametrize("last", [None, "last_layer"])
def test_named_arguments(last):
    """A mapping gives the module its arguments, by vmap and as a last layer of features."""
    given = {"input_ids": ids, "attention_mask": mask}
    clf = BayesianModuleClassifier(Words(), sample_parameters=last or "all", **TINY).fit(given, y)
    module = Words()
    module.load_state_dict(clf.module.state_dict())
    draws = {name: values for name, values in clf.posterior_.draws.items() if name != "scale"}
    state = {name: torch.from_numpy(values[1, 1]) for name, values in draws.items()}
    module.load_state_dict(state, strict=False)
    with torch.no_grad():
        f = module(torch.from_numpy(ids), torch.from_numpy(mask)).softmax(1)
    np.testing.assert_allclose(clf.predict_proba_samples(given)[4], f, atol=1e-6)
    file = io.BytesIO()
    joblib.dump(clf, file)
    again = joblib.load(io.BytesIO(file.getvalue()))
    np.testing.assert_array_equal(again.predict_proba(given), clf.predict_proba(given))
    tensors = {name: torch.from_numpy(values) for name, values in given.items()}
    np.testing.assert_allclose(to_torch(clf)(tensors), clf.predict_proba(given), atol=1e-6)
    np.testing.assert_array_equal(clf.predict_proba(tensors), clf.predict_proba(given))
    with pytest.raises(ValueError, match="to_onnx is not allowed for estimators of several arrays"):
        to_onnx(clf, "here.onnx")


def test_places_of_arguments_and_arrays_of_any_rank():
    clf = BayesianModuleClassifier(Several(), **TINY).fit((ids, numbers), y)
    found = clf.predict_proba_samples((ids, numbers))[2]
    np.testing.assert_allclose(found, expected(Several(), clf, 2, ids, numbers), atol=1e-6)


def test_only_fractions_are_standardised():
    """Words stay words; the module sees numbers with mean 0 and variance 1, to float32."""
    clf = BayesianModuleClassifier(Several(), standardize=True, **TINY)
    clf.fit((ids, 5.0 + 3.0 * numbers), y)
    flat = numbers.reshape(N, -1)
    scaled = ((flat - flat.mean(0)) / flat.std(0)).reshape(N, 2, 3)
    found = clf.predict_proba_samples((ids, 5.0 + 3.0 * numbers))[2]
    np.testing.assert_allclose(found, expected(Several(), clf, 2, ids, scaled), atol=1e-5)


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        assert x.shape[-2:] == (2, 3)
        return self.head(x.flatten(-2))


@pytest.mark.parametrize("tensor", [False, True])
def test_arrays_and_tensors_of_any_rank(tensor):
    given = torch.from_numpy(numbers) if tensor else numbers
    labels = torch.from_numpy(y) if tensor else y
    clf = BayesianModuleClassifier(Flat(), **TINY).fit(given, labels)
    np.testing.assert_array_equal(
        clf.predict_proba(given), clf.predict_proba(numbers.reshape(N, 6))
    )
    with pytest.raises(ValueError, match=r"fitted to rows of shape \(2, 3\)"):
        clf.predict(numbers.swapaxes(1, 2))
    with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 6\)\)"):
        clf.predict(numbers[:0])


@pytest.mark.parametrize("returned", ["tuple", "object", "mapping"])
def test_outputs_in_tuples_and_objects(returned):
    """As of the module that returns a tensor: equal draws, probabilities and exports."""
    found = []
    for kind in ("tensor", returned):
        module = Words(kind)
        with torch.no_grad():
            for i, value in enumerate(module.parameters()):
                value.copy_(torch.linspace(-1.0, 1.0 + i, value.numel()).view(value.shape))
        clf = BayesianModuleClassifier(module, **TINY).fit(ids, y)
        found.append((clf.predict_proba(ids), np.asarray(to_torch(clf)(torch.from_numpy(ids)))))
    np.testing.assert_array_equal(*(p for p, _ in found))
    np.testing.assert_array_equal(*(p for _, p in found))


class Nothing(nn.Linear):
    def forward(self, x):
        return {"loss": super().forward(x)}


@cases(
    "module, given, message",
    [
        (
            Words(),
            {"input_ids": ids, "mask": mask},
            r"not take a mapping of the arrays .*, 'mask' \(rows of shape \(5,\)\) .*unexpected "
            "keyword argument 'mask'.* Give the arrays the names",
        ),
        (Words(), {"input_ids": ids, "attention_mask": mask[:5]}, "different numbers of rows"),
        (Words(), {"input_ids": ids.astype(str)}, r"X\['input_ids'\] of type <U\d+ is not allowed"),
        (Words(), {"input_ids": ids + BOUNDS.whole}, "whole numbers that a module gets may be at"),
        (
            Words(),
            {"input_ids": np.full_like(ids, np.iinfo(np.int64).min)},
            "whole numbers that a module gets may be at",
        ),
        (
            Words(),
            {"input_ids": 3},
            r"X\['input_ids'\] is not allowed: give an array with the rows",
        ),
        (Nothing(5, 3), ids.astype(float), "returned dict: return a tensor, a tuple that begins"),
        (nn.Conv2d(1, 3, 2), numbers, "does not take rows of shape .* give the input_shape"),
    ],
)
def test_bad_inputs_and_outputs(module, given, message):
    clf = BayesianModuleClassifier(module, **TINY)
    with pytest.raises(ValueError, match=message):
        clf.fit(given, y)
    assert not hasattr(clf, "classes_")


def test_predictions_need_the_arguments_of_the_fit():
    given = {"input_ids": ids, "attention_mask": mask}
    clf = BayesianModuleClassifier(Words(), **TINY).fit(given, y)
    for other, message in (
        (ids, r"X of type ndarray is not allowed: give a mapping of the arrays 'input_ids' \(rows"),
        ({"input_ids": ids}, "X with 'input_ids' is not allowed: give a mapping of the arrays"),
        ({"input_ids": ids[:, :3], "attention_mask": mask}, r"rows of fit have the shape \(5,\)"),
        ({"input_ids": ids[:0], "attention_mask": mask[:0]}, r"0 sample\(s\) \(shape=\(0, 10\)\)"),
    ):
        with pytest.raises(ValueError, match=message):
            clf.predict(other)
    with pytest.raises(ValueError, match="input_shape=.* is not allowed with several arrays"):
        clone(clf).set_params(input_shape=(5,)).fit(given, y)
    with pytest.raises(ValueError, match="distill is not allowed with rows of whole numbers"):
        clf.distill(given)


def test_regressors_take_several_arrays_too():
    reg = BayesianModuleRegressor(SeveralToOne(), **TINY).fit((ids, numbers), numbers[:, 0, 0])
    assert reg.predict((ids, numbers)).shape == (N,)


class SeveralToOne(Several):
    def forward(self, words, numbers):
        return super().forward(words, numbers)[..., :1]


def test_layouts_give_back_what_they_took():
    """For tensors of single rows and of chains of rows, as of several arrays in a mapping."""
    given = {"ids": ids, "numbers": numbers, "mask": mask, "one": y}
    layout = Layout.of(given)
    rows = torch.from_numpy(layout.flat(given))
    args, named = layout.split(rows)
    assert args == ()
    for name, values in given.items():
        np.testing.assert_array_equal(named[name], values)
    assert torch.equal(layout.packed(named), rows.float())
    assert layout.split(rows.expand(3, N, -1))[1]["numbers"].shape == (3, N, 2, 3)


class Shop(nn.Module):
    """Columns of a table as arguments: a price, and a kind that is embedded."""

    def __init__(self):
        super().__init__()
        self.kinds, self.head = nn.Embedding(5, 3), nn.Linear(4, 2)

    def forward(self, price, kind):
        return self.head(torch.cat([self.kinds(kind), price[:, None]], 1))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_of_tables_are_arguments_by_name(library):
    """The draws and predictions of a mapping of the same columns, in any order of the columns."""
    frames = pytest.importorskip(library)
    rng = np.random.default_rng(0)
    columns = {"kind": rng.integers(0, 5, 40), "price": rng.standard_normal(40)}
    labels = (columns["kind"] > 2).astype(int)
    torch.manual_seed(0)
    module = Shop()
    expected = BayesianModuleClassifier(module, **TINY).fit(columns, labels)
    table = frames.table(columns) if library == "pyarrow" else frames.DataFrame(columns)
    clf = BayesianModuleClassifier(module, **TINY).fit(table, labels)
    np.testing.assert_array_equal(clf.predict_proba(table), expected.predict_proba(columns))
    chosen = table.select if library == "pyarrow" else table.__getitem__
    turned = chosen(["price", "kind"])
    np.testing.assert_array_equal(clf.predict_proba(turned), clf.predict_proba(table))
    with pytest.raises(ValueError, match="'kind'"):
        clf.predict_proba(chosen(["price"]))


def test_other_tables_are_rows_of_numbers():
    """Names that the module does not have, and a module that takes one argument."""
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 3)), columns=list("abc"))
    labels = (frame["a"] > 0.0).astype(int)
    clf = BayesianModuleClassifier(nn.Linear(3, 2), **TINY).fit(frame, labels)
    assert list(clf.feature_names_in_) == ["a", "b", "c"]
    arrow = pytest.importorskip("pyarrow").Table.from_pandas(frame)  # its columns are the values
    same = BayesianModuleClassifier(clf.module, **TINY).fit(arrow, labels)
    assert list(same.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(same.predict_proba(arrow), clf.predict_proba(frame))
    one = BayesianModuleClassifier(nn.Linear(1, 2), **TINY)
    assert one.fit(frame[["a"]].set_axis(["input"], axis=1), labels).n_features_in_ == 1


def test_errors_show_large_modules_on_one_line():
    """The reason is not below hundreds of lines of layers, as in those of pretrained networks."""
    deep = nn.Sequential(*[nn.Linear(3, 3) for _ in range(50)], nn.Linear(4, 3))
    with pytest.raises(
        ValueError, match=r"^module=Sequential\( \(0\): Linear.*it does not take"
    ) as e:
        BayesianModuleClassifier(deep, **TINY).fit(numbers[:, 0], y)
    assert len(str(e.value)) < 500


def test_whole_numbers_that_a_module_does_not_take_are_explained():
    """Both reasons are told; before, only that for floating-point numbers."""
    words = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(10, 2))
    ids = np.full((6, 3), 9)
    with pytest.raises(ValueError, match=r"as whole numbers: mat1 and mat2 .*; as floating-point"):
        BayesianModuleClassifier(words, **TINY).fit(ids, np.arange(6) % 2)


@pytest.mark.parametrize("sampler", ["psgld", "mclmc"])
@pytest.mark.parametrize("kind", [bool, np.int64, np.uint8])
def test_warm_starts_take_whole_numbers_as_the_first_fit(kind, sampler):
    """Layers that need floating-point numbers get them; embeddings get ids, and nothing else."""
    X = (ids > WORDS // 2).astype(kind)
    clf = BayesianModuleClassifier(
        lambda: nn.Sequential(nn.Linear(LENGTH, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
        warm_start=True, sampler=sampler, **TINY,
    )  # fmt: skip
    first = clf.fit(X, y).predict_proba(X)
    assert not np.array_equal(clf.fit(X, y).predict_proba(X), first)
    embed = nn.Sequential(nn.Embedding(WORDS, 2), nn.Flatten(), nn.Linear(2 * LENGTH, 3))
    words = BayesianModuleClassifier(embed, warm_start=True, **TINY).fit(ids, y).fit(ids, y)
    with pytest.raises(ValueError, match="it does not take rows of shape"):
        words.fit(ids + 0.5, y)


@pytest.mark.parametrize("option", [{"padding_idx": 0}, {"scale_grad_by_freq": True}], ids=str)
def test_embeddings_have_the_derivatives_of_their_outputs(option):
    """Torch gives a padded row no gradient, and chains would draw it from the prior."""
    ids, y = np.random.default_rng(0).integers(0, 3, (40, 4)), np.arange(40) % 2

    def gradient(**options):
        module = nn.Sequential(nn.Embedding(3, 2, **options), nn.Flatten(), nn.Linear(8, 2))
        log_joint = BayesianModuleClassifier(module, prior_scale=1.0).log_joint(ids, y)
        theta = torch.linspace(-1.0, 1.0, len(log_joint.start(0)), dtype=torch.float64)
        return torch.autograd.grad(log_joint(theta.requires_grad_()), theta)[0]

    np.testing.assert_allclose(gradient(**option), gradient(), rtol=1e-12)
