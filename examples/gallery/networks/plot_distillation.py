"""
One network in the place of two hundred
=======================================

A posterior predicts with all of its draws, which takes time and memory. A distilled network learns
the averaged prediction, and serves alone.
"""

# %%
# The digits, and a posterior with 200 draws of a network.
#
# Each chain of a network explores one part of the posterior only, and the fit would warn that the
# chains do not agree. An average over several parts is still better than a single network, and the
# warning is turned off here.

import pickle
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from skbayes_sgmcmc import BayesianMLPClassifier, SamplingWarning

warnings.simplefilter("ignore", SamplingWarning)
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
clf = BayesianMLPClassifier(burn_in=1500, n_draws=50, thinning=30, random_state=0)
clf.fit(X_train, y_train)

# %%
# The student sees the training rows without their labels, and noisy copies of them. Its targets are
# the averaged probabilities. The rival is a network of the same size, trained on the labels.

student = clf.distill(X_train, n_epochs=100, random_state=0)
single = MLPClassifier((32, 32), max_iter=1000, random_state=0).fit(X_train, y_train)


def seconds(model):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        model.predict_proba(X_test)
        times.append(time.perf_counter() - start)
    return min(times)


models = {"posterior": clf, "distilled": student, "trained on labels": single}
probabilities = {name: model.predict_proba(X_test) for name, model in models.items()}
print(f"{'':18}{'accuracy':>9}{'log loss':>9}{'ms':>7}{'kB':>8}")
for name, p in probabilities.items():
    size = len(pickle.dumps(models[name])) / 1024
    print(
        f"{name:18}{np.mean(p.argmax(axis=1) == y_test):9.3f}{log_loss(y_test, p):9.3f}"
        f"{1000 * seconds(models[name]):7.1f}{size:8.0f}"
    )

# %%
# Where the posterior is unsure, the student should be so, too. Points are the test rows; those that
# are wrong are drawn larger. The network trained on labels is sure of nearly everything, also of
# its errors.

fig, axes = plt.subplots(1, 2, figsize=(8.5, 4), sharex=True, sharey=True)
sure = probabilities["posterior"].max(axis=1)
for k, (ax, name) in enumerate(zip(axes, ("distilled", "trained on labels"), strict=True)):
    p = probabilities[name]
    wrong = p.argmax(axis=1) != y_test
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    ax.plot(sure[~wrong], p.max(axis=1)[~wrong], ".", color=f"C{k}", markersize=4, alpha=0.6,
            label="right")  # fmt: skip
    ax.plot(sure[wrong], p.max(axis=1)[wrong], "X", color="black", markersize=7, label="wrong")
    ax.set(title=name, xlabel="confidence of the posterior", xlim=(0.2, 1.02), ylim=(0.2, 1.02))
    ax.legend(loc="lower right")
axes[0].set_ylabel("confidence of the network")
plt.show()
