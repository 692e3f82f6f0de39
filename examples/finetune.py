"""Honest probabilities of a trained network from 500 new rows: a last layer, then adapters.

A small vision transformer is trained on the digits 0 to 4, then has to tell 5 to 9 apart. Nothing
is downloaded, and the whole takes some minutes on one core.

python examples/finetune.py
"""

import copy
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, RandomLayerWarning, low_rank_adapters


class VisionTransformer(nn.Module):
    """Patches of 2 x 2 pixels as the words of a transformer layer."""

    def __init__(self, n_classes, width=24):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, stride=2)
        self.place = nn.Parameter(0.02 * torch.randn(16, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x):
        h = self.patches(x).flatten(2).mT + self.place
        return self.head(self.layer(h).mean(1))


def train(module, X, y, epochs):
    x, codes = torch.from_numpy(X), torch.from_numpy(y)
    adam = torch.optim.Adam(module.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(50):
            adam.zero_grad()
            nn.functional.cross_entropy(module(x[rows]), codes[rows]).backward()
            adam.step()
    return module.eval()


def main():
    torch.manual_seed(0)
    X, y = load_digits(return_X_y=True)
    X = (X / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    new = y > 4
    pretrained = train(VisionTransformer(5), X[~new], y[~new], epochs=20)
    train_rows, test_rows, labels, test_labels = train_test_split(
        X[new], y[new], train_size=500, random_state=0, stratify=y[new]
    )
    pretrained.head = nn.Linear(24, 5)  # for the new classes
    warnings.simplefilter("ignore", RandomLayerWarning)  # the transformer has dropout

    plain = train(copy.deepcopy(pretrained), train_rows, labels - 5, epochs=20)
    with torch.no_grad():
        p = plain(torch.from_numpy(test_rows)).softmax(1).numpy()
    report("all weights, one network", p, test_labels)

    last = BayesianModuleClassifier(pretrained, sample_parameters="last_layer", random_state=0)
    report("last layer", last.fit(train_rows, labels).predict_proba(test_rows), test_labels)

    adapted = low_rank_adapters(pretrained, ["layer.linear1", "layer.linear2"], rank=2)
    adapters = BayesianModuleClassifier(
        adapted,
        sample_parameters=["*.down", "*.up", "head"],
        n_chains=2,
        burn_in=3000,
        n_draws=40,
        thinning=50,
        random_state=0,
    )
    report("adapters and last layer", adapters.fit(train_rows, labels).predict_proba(test_rows),
           test_labels)  # fmt: skip


def report(name, p, labels):
    error, loss = np.mean(p.argmax(1) + 5 != labels), log_loss(labels, p)
    print(f"{name}: error {100 * error:.1f}%, log loss {loss:.3f}")


if __name__ == "__main__":
    main()
