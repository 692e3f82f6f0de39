"""
The last layer of a trained network
===================================

A network that was trained elsewhere gives good features. Sampling only its last layer costs little
and gives honest probabilities for a new task with few labels.
"""

# %%
# A small convolutional network learns the digits 0 to 6. It stands for a large network that
# somebody else has trained.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from torch import nn

from skbayes_sgmcmc import BayesianModuleClassifier
from skbayes_sgmcmc.inspection import ReliabilityDisplay, expected_calibration_error

torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
X = (X / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
old = y < 7

pretrained = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 7),
)  # fmt: skip
images, labels = torch.from_numpy(X[old]), torch.from_numpy(y[old])
adam = torch.optim.Adam(pretrained.parameters(), lr=3e-3)
for _ in range(15):
    for rows in torch.randperm(len(images)).split(50):
        adam.zero_grad()
        nn.functional.cross_entropy(pretrained(images[rows]), labels[rows]).backward()
        adam.step()

# %%
# The new task: 7, 8 and 9, with twenty labelled images of each, and a new last layer.
# ``sample_parameters="last_layer"`` samples the last linear layer and leaves all others as they
# are.

pretrained[-1] = nn.Linear(32, 3)
X_train, X_test, y_train, y_test = train_test_split(
    X[~old], y[~old], train_size=60, stratify=y[~old], random_state=0
)
clf = BayesianModuleClassifier(
    pretrained, sample_parameters="last_layer", n_draws=250, random_state=0
).fit(X_train, y_train)

# %%
# Rivals: a logistic regression on the same features, and one on the pixels. Digits are so simple,
# and this network so small, that pixels are the better features. For a large network and
# photographs, the opposite is true. What counts here is the comparison on the same features.

with torch.no_grad():
    features = pretrained[:-1]
    F_train, F_test = (features(torch.from_numpy(Z)).numpy() for Z in (X_train, X_test))
pixels, pixels_test = X_train.reshape(len(X_train), -1), X_test.reshape(len(X_test), -1)
point = LogisticRegression(max_iter=5000)
probabilities = {
    "sampled last layer": clf.predict_proba(X_test),
    "one point, same features": point.fit(F_train, y_train).predict_proba(F_test),
    "logistic regression of pixels": point.fit(pixels, y_train).predict_proba(pixels_test),
}
print(f"{'':30}{'accuracy':>9}{'log loss':>9}{'ECE':>7}")
for name, p in probabilities.items():
    print(
        f"{name:30}{np.mean(p.argmax(axis=1) + 7 == y_test):9.3f}{log_loss(y_test, p):9.3f}"
        f"{expected_calibration_error(y_test, p, n_bins=10):7.3f}"
    )

# %%
# The scale of the prior is estimated, where scikit-learn's ``C`` must be chosen. Reliability, and
# the accuracy if the least certain images are handed to a human.

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4))
for k, (name, p) in enumerate(probabilities.items()):
    ReliabilityDisplay.from_predictions(
        y_test, p, n_bins=6, ax=left, name=name, color=f"C{k}", classes=clf.classes_
    )
    confidence = p.max(axis=1)
    right_answers = (p.argmax(axis=1) + 7 == y_test)[np.argsort(-confidence)]
    kept = np.arange(1, len(y_test) + 1)
    right.plot(100 * kept / len(kept), 100 * np.cumsum(right_answers) / kept, color=f"C{k}")
left.legend(fontsize=7, loc="upper left")
left.set(
    title="Reliability",
    xlim=(0.33, 1.02),
    ylabel="accuracy, fraction of rows (grey)",
    ylim=(0, 1.5),
)
left.set_yticks([0, 0.25, 0.5, 0.75, 1])
right.set(title="The most certain images only", xlabel="images kept (%)", ylabel="accuracy (%)")
right.set(xlim=(20, 100), ylim=(84, 100.3))
plt.show()
