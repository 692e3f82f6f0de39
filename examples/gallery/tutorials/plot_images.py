"""
Reading digits, with the right to say "I don't know"
====================================================

A network is trained in the usual way, and then its last layer is sampled. What comes out is a
reader of forms that hands to a person what it cannot read, and what is not a digit at all.
"""

# %%
# Raw data
# --------
#
# 1,797 scans of 8 x 8 pixels. Forms contain other things, too: crossed-out fields, smudges, noise.
# The reader will meet these, but nobody has labelled any.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier
from skbayes_sgmcmc.inspection import expected_calibration_error

torch.manual_seed(0)
rng = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
X = (X / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
X_train, X_rest, y_train, y_rest = train_test_split(
    X, y, train_size=300, stratify=y, random_state=0
)
X_choose, X_test, y_choose, y_test = train_test_split(
    X_rest, y_rest, train_size=500, stratify=y_rest, random_state=0
)
foreign = {
    "crossed out": np.maximum(X_test, np.maximum(np.eye(8), np.eye(8)[::-1]).astype(np.float32)),
    "smudged": np.clip(X_test + 0.5 * rng.random(X_test.shape), 0, 1).astype(np.float32),
    "shuffled": rng.permuted(X_test.reshape(-1, 64), axis=1).reshape(-1, 1, 8, 8),
}

# %%
# The network
# -----------
#
# Trained by Adam, as one would without this package.

network = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(128, 48), nn.ReLU(), nn.Linear(48, 10),
)  # fmt: skip
images, labels = torch.from_numpy(X_train), torch.from_numpy(y_train)
adam = torch.optim.Adam(network.parameters(), lr=3e-3)
for _ in range(60):
    for rows in torch.randperm(len(images)).split(50):
        adam.zero_grad()
        nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()
        adam.step()
network.eval()


def network_proba(rows):
    with torch.no_grad():
        return network(torch.from_numpy(rows)).softmax(1).numpy().astype(float)


# %%
# The posterior of its last layer
# -------------------------------
#
# The layer is sampled by the same 300 images. It costs seconds, and the network stays as it is.

clf = BayesianModuleClassifier(
    network, sample_parameters="last_layer", n_draws=200, random_state=0
).fit(X_train, y_train)
for name, p in {"network": network_proba(X_test), "last layer": clf.predict_proba(X_test)}.items():
    print(f"{name:11} accuracy {np.mean(p.argmax(axis=1) == y_test):.3f}  log loss "
          f"{log_loss(y_test, p / p.sum(axis=1, keepdims=True)):.3f}  "
          f"ECE {expected_calibration_error(y_test, p):.3f}")  # fmt: skip

# %%
# The decision
# ------------
#
# The rule: read a field if the probability of the most likely digit is high enough, else hand it to
# a person. "High enough" is chosen on 500 other images such that 99% of what is read is right.


def threshold(proba):
    confidence = proba.max(axis=1)
    right = (proba.argmax(axis=1) == y_choose)[np.argsort(-confidence)]
    share = np.cumsum(right) / np.arange(1, len(right) + 1)
    last = np.flatnonzero(share >= 0.99)[-1]
    return np.sort(confidence)[::-1][last]


readers = {"network": network_proba, "last layer": clf.predict_proba}
limits = {name: threshold(proba(X_choose)) for name, proba in readers.items()}
for name, proba in readers.items():
    p = proba(X_test)
    read = p.max(axis=1) >= limits[name]
    right = np.mean(p.argmax(axis=1)[read] == y_test[read])
    print(f"{name:11} reads at {limits[name]:.3f}: {read.mean():.1%} of the digits, "
          f"{right:.2%} of them right")  # fmt: skip

# %%
# What is not a digit
# -------------------
#
# Nothing in the rule knows of foreign fields. A reader that stays sure of them puts nonsense into a
# database, without a trace. The shuffled pixels are the extreme case. Neither reader is safe: what
# the layers below have never seen, they may turn into the features of a digit, and only the last
# layer is sampled here.

passed = {
    name: [np.mean(proba(rows).max(axis=1) >= limits[name]) for rows in foreign.values()]
    for name, proba in readers.items()
}
for k, kind in enumerate(foreign):
    print(f"{kind:12} read by the network {passed['network'][k]:.1%}, "
          f"by the last layer {passed['last layer'][k]:.1%}")  # fmt: skip

fig, axes = plt.subplot_mosaic(
    [["trade"] * 3 + ["bars"] * 3, ["a", "b", "c", "d", "e", "f"]],
    figsize=(10, 5.4), height_ratios=(2.6, 1),
)  # fmt: skip
for k, (name, proba) in enumerate(readers.items()):
    p = proba(X_test)
    order = np.argsort(-p.max(axis=1))
    kept = np.arange(1, len(order) + 1)
    wrong = np.cumsum((p.argmax(axis=1) != y_test)[order]) / kept
    axes["trade"].plot(100 * kept / len(kept), 100 * wrong, color=f"C{k}", label=name)
    axes["bars"].bar(np.arange(3) + 0.35 * k, 100 * np.array(passed[name]), 0.33, color=f"C{k}")
axes["trade"].set(title="Digits", xlabel="digits that are read (%)", ylabel="errors among them (%)")
axes["trade"].legend()
axes["bars"].set_xticks(np.arange(3) + 0.17, list(foreign))
axes["bars"].set(title="Foreign fields that are read", ylabel="%")
unsure = np.argsort(clf.predict_proba(X_test).max(axis=1))[:3]
shown = [X_test[i] for i in unsure] + [rows[0] for rows in foreign.values()]
titles = ["to a person"] * 3 + list(foreign)
for place, image, title in zip("abcdef", shown, titles, strict=True):
    axes[place].imshow(image.reshape(8, 8), cmap="gray_r")
    axes[place].set(title=title, xticks=[], yticks=[])
plt.show()
