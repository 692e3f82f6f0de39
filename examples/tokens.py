"""A classifier of texts that knows when it has not seen such a text before.

Texts are synthetic: five subjects, each with words of its own among words that all share. A network
with an embedding and a transformer layer learns three of the subjects. Its last layer is then
sampled, and the entropy of the predictions tells texts on known subjects from the others. Texts of
different lengths are padded, and a mask says where. Nothing is downloaded; it takes a minute on one
core.

python examples/tokens.py
"""

import warnings

import numpy as np
import torch
from sklearn.metrics import log_loss, roc_auc_score
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier, RandomLayerWarning

N_SUBJECTS, N_KNOWN, N_OWN, N_SHARED, LENGTH = 5, 3, 20, 100, 24
N_WORDS = 1 + N_SHARED + N_SUBJECTS * N_OWN  # 0 is padding


def texts(n, subjects, rng):
    """Token ids (n, LENGTH) with their mask, and the subject of each text."""
    y = rng.choice(subjects, n)
    lengths = rng.integers(8, LENGTH + 1, n)
    mask = np.arange(LENGTH) < lengths[:, None]
    shared = 1 + rng.integers(0, N_SHARED, (n, LENGTH))
    own = 1 + N_SHARED + N_OWN * y[:, None] + rng.integers(0, N_OWN, (n, LENGTH))
    return {"ids": np.where(rng.random((n, LENGTH)) < 0.12, own, shared) * mask, "mask": mask}, y


class TextClassifier(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(N_WORDS, width, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.head = nn.Linear(width, N_KNOWN)

    def forward(self, ids, mask):
        h = self.layer(self.embed(ids), src_key_padding_mask=~mask)
        h = h * mask[:, :, None]
        return self.head(h.sum(1) / mask.sum(1, keepdim=True))


def train(module, X, y, epochs):
    x, codes = {key: torch.from_numpy(values) for key, values in X.items()}, torch.from_numpy(y)
    adam = torch.optim.Adam(module.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(100):
            adam.zero_grad()
            f = module(**{key: values[rows] for key, values in x.items()})
            nn.functional.cross_entropy(f, codes[rows]).backward()
            adam.step()
    return module.eval()


def entropies(p):
    return -(p * np.log(np.maximum(p, 1e-300))).sum(1)


def main():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    known, others = np.arange(N_KNOWN), np.arange(N_KNOWN, N_SUBJECTS)
    X, y = texts(2000, known, rng)
    X_new, y_new = texts(300, known, rng)
    X_test, y_test = texts(1000, known, rng)
    X_other, _ = texts(1000, others, rng)
    network = train(TextClassifier(), X, y, epochs=10)

    warnings.simplefilter("ignore", RandomLayerWarning)  # the transformer has dropout
    # texts that the features have not seen: 300 are enough for the last layer
    clf = BayesianModuleClassifier(network, sample_parameters="last_layer", random_state=0)
    clf.fit(X_new, y_new)
    with torch.no_grad():
        tensors = [{k: torch.from_numpy(v) for k, v in part.items()} for part in (X_test, X_other)]
        plain = [network(**each).double().softmax(1).numpy() for each in tensors]
    ours = [clf.predict_proba(part) for part in (X_test, X_other)]
    unknown = np.repeat([0, 1], 1000)
    for name, (p, q) in (("network", plain), ("last layer sampled", ours)):
        error = np.mean(p.argmax(1) != y_test)
        auroc = roc_auc_score(unknown, np.concatenate([entropies(p), entropies(q)]))
        print(
            f"{name}: error {100 * error:.1f}%, log loss {log_loss(y_test, p):.3f}, "
            f"AUROC of unknown subjects {auroc:.3f}"
        )


if __name__ == "__main__":
    main()
