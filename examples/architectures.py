"""Networks of other packages by their names: torchvision, timm and transformers, if installed.

Weights are random, so nothing is downloaded: the example shows that such modules pass through
unchanged, not that they predict well. With pretrained weights, only the calls that build the
modules change. Each takes some seconds on one core.

python examples/architectures.py
"""

import importlib
import warnings

import numpy as np
import torch

from skbayes_sgmcmc import BayesianModuleClassifier, SamplingWarning, to_torch

N_ROWS, N_CLASSES = 30, 3


def torchvision_resnet(package):
    return package.models.resnet18(weights=None, num_classes=N_CLASSES)


def timm_transformer(package):
    name = "vit_tiny_patch16_224"
    return package.create_model(name, pretrained=False, num_classes=N_CLASSES, img_size=32)


def bert(package):
    config = package.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, num_labels=N_CLASSES, max_position_embeddings=16,
    )  # fmt: skip
    return package.BertForSequenceClassification(config)


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    y = np.arange(N_ROWS) % N_CLASSES
    images = rng.standard_normal((N_ROWS, 3, 32, 32)).astype(np.float32)
    words = {
        "input_ids": rng.integers(0, 100, (N_ROWS, 12)),
        "attention_mask": np.ones((N_ROWS, 12), dtype=bool),
    }
    warnings.simplefilter("ignore", SamplingWarning)  # of dropout, and of random features
    for name, build, X in (
        ("torchvision", torchvision_resnet, images),
        ("timm", timm_transformer, images),
        ("transformers", bert, words),
    ):
        try:
            module = build(importlib.import_module(name))
        except ImportError:
            print(f"{name}: not installed")
            continue
        clf = BayesianModuleClassifier(module, sample_parameters="last_layer", random_state=0)
        p = clf.fit(X, y).predict_proba(X)
        tensors = X if isinstance(X, np.ndarray) else {k: torch.from_numpy(v) for k, v in X.items()}
        given = torch.from_numpy(X) if isinstance(X, np.ndarray) else tensors
        exported = to_torch(clf)(given).detach().numpy()
        print(f"{name}: {', '.join(clf.posterior_.draws)}; probabilities of the exported module "
              f"differ by at most {np.abs(exported - p).max():.0e}")  # fmt: skip


if __name__ == "__main__":
    main()
