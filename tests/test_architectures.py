"""Architectures of other packages pass through unchanged; those that are not installed are skipped.

Weights are random, so nothing is downloaded. Each passes through fit, prediction, joblib and
``to_torch``, with predictions of the exported module equal up to float32: 1e-4.
"""

from __future__ import annotations

import copy
import io

import joblib
import numpy as np
import pytest
import torch
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, low_rank_adapters, to_torch

rng = np.random.default_rng(0)
y = np.arange(24) % 3
images = rng.standard_normal((24, 3, 32, 32)).astype(np.float32)
words = {"input_ids": rng.integers(0, 50, (24, 6)), "attention_mask": np.ones((24, 6), dtype=bool)}
TINY = {"n_chains": 2, "n_draws": 2, "burn_in": 2, "thinning": 1, "random_state": 0,
        "step_size": 1e-4, "prior_scale": "fan_in"}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")


def passes_through(module, X, chosen, names):
    """Fit, predict, store, export; ``names`` must be in the names of all draws."""
    clf = BayesianModuleClassifier(module, sample_parameters=chosen, **TINY).fit(X, y)
    assert all(any(each in name for each in names) for name in clf.posterior_.draws)
    p = clf.predict_proba(X)
    assert p.shape == (24, 3)
    file = io.BytesIO()
    joblib.dump(clf, file)
    np.testing.assert_array_equal(joblib.load(io.BytesIO(file.getvalue())).predict_proba(X), p)
    tensors = {k: torch.from_numpy(v) for k, v in X.items()} if isinstance(X, dict) else X
    given = tensors if isinstance(tensors, dict) else torch.from_numpy(X)
    np.testing.assert_allclose(to_torch(clf)(given), p, atol=1e-4)
    return clf


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_timm(name):
    timm = pytest.importorskip("timm", exc_type=ImportError)
    torch.manual_seed(0)
    size = {"img_size": 32} if name.startswith("vit") else {}
    module = timm.create_model(name, pretrained=False, num_classes=3, **size)
    assert passes_through(module, images, "last_layer", ["fc.", "head."])._head is not None


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_torchvision(name):
    models = pytest.importorskip("torchvision.models", exc_type=ImportError)
    torch.manual_seed(0)
    module = getattr(models, name)(weights=None, num_classes=3)
    assert passes_through(module, images, "last_layer", ["fc.", "classifier."])._head is not None


def bert():
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, num_labels=3, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(config)


@pytest.mark.parametrize("chosen", ["last_layer", "all"])
def test_transformers(chosen):
    """A model that returns an object with logits, and takes its arguments by name."""
    clf = passes_through(bert(), words, chosen, ["classifier."] if chosen == "last_layer" else [""])
    assert (clf._head is not None) == (chosen == "last_layer")


@pytest.mark.parametrize("kind", [None, "numpy", "torch"])
def test_datasets_of_hugging_face(kind):
    """A dataset gives what the arrays in it give, whatever the type of its items."""
    datasets = pytest.importorskip("datasets", exc_type=ImportError)
    columns = {name: values.tolist() for name, values in words.items()}
    dataset = datasets.Dataset.from_dict(columns | {"label": y.tolist()}).with_format(kind)
    clf = BayesianModuleClassifier(bert(), sample_parameters="last_layer", **TINY)
    p = clf.fit(words, y).predict_proba(words)
    np.testing.assert_array_equal(clf.fit(dataset).predict_proba(dataset), p)
    assert clf.score(dataset) == clf.score(words, y)
    with pytest.raises(ValueError, match=r"several datasets, 'train', 'test'\. Give one of them"):
        clf.fit(dataset.train_test_split(0.5, seed=0))


def test_peft():
    """Its adapters are what is trainable, by the default of ``sample_parameters``."""
    peft = pytest.importorskip("peft", exc_type=ImportError)
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], lora_dropout=0.1)
    passes_through(peft.get_peft_model(bert(), config), words, "trainable", ["lora_"])


class Attention(nn.Module):
    """Torch's own transformer layer between an embedding and a head."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, input_ids, attention_mask):
        h = self.layer(self.embed(input_ids), src_key_padding_mask=~attention_mask)
        return self.head(h.mean(1))


@pytest.mark.parametrize("chosen", ["last_layer", "layer.linear1", "all"])
def test_torchs_own_transformer(chosen):
    names = {"last_layer": ["head."], "layer.linear1": ["layer.linear1."], "all": [""]}[chosen]
    torch.manual_seed(0)
    passes_through(Attention(), words, chosen, names)


# low-rank adapters --------------------------------------------------------------------------------


def test_adapters_change_nothing_at_first_and_are_what_is_sampled():
    """The copy gives the outputs of the module, to rounding; the module has no adapters."""
    torch.manual_seed(0)
    module = Attention().eval()
    before = copy.deepcopy(module.state_dict())
    adapted = low_rank_adapters(module, ["layer.linear*", "head"], rank=2)
    rows = [torch.from_numpy(values) for values in words.values()]
    torch.testing.assert_close(adapted(*rows), module(*rows), rtol=0, atol=1e-6)
    clf = passes_through(adapted, words, "trainable", [".down", ".up"])
    assert [name.rpartition(".")[0] for name in clf.posterior_.draws] == [
        name for name in ("head", "layer.linear1", "layer.linear2") for _ in range(2)
    ]
    assert clf.posterior_["layer.linear1.up"].shape[2:] == (16, 2)
    assert module.state_dict().keys() == before.keys()
    assert all(p.requires_grad for p in module.parameters())


def test_an_adapter_adds_a_product_of_its_factors():
    """W + U D in the place of W: 1e-6."""
    layer = nn.Linear(5, 3)
    adapted = low_rank_adapters(layer, rank=2)
    nn.init.normal_(adapted.up)
    x = torch.randn(4, 5)
    expected = x @ (layer.weight + adapted.up @ adapted.down).T + layer.bias
    torch.testing.assert_close(adapted(x), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "rank", "message"),
    [
        ("conv", 2, "'conv' matches no torch.nn.Linear; the module has '0'"),
        ("0", 0, "rank=0 is not allowed"),
    ],
)
def test_bad_adapters(layers, rank, message):
    with pytest.raises(ValueError, match=message):
        low_rank_adapters(nn.Sequential(nn.Linear(2, 2)), layers, rank=rank)
