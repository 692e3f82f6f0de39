"""
How many weights does a network need?
=====================================

Weights that are pruned while a network is sampled can be replaced by others. Weights that are cut
out of a finished network cannot.
"""

# %%
# A network with 50 hidden units has 3,700 weights for the digits. During sampling, ``prune`` sets
# more and more of the smallest ones to zero, until the given fraction is reached. The rival is a
# network of scikit-learn that loses its smallest weights after training. One short chain for each
# fraction is enough to compare.

import pickle
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from skbayes_sgmcmc import SamplingWarning, SparseBayesianClassifier

warnings.simplefilter("ignore", SamplingWarning)
X, y = load_digits(return_X_y=True)
X = X / 16.0
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)


def cut(network, fraction):
    """A copy of a trained network without its smallest weights."""
    copy = pickle.loads(pickle.dumps(network))
    limit = np.quantile(np.abs(np.concatenate([w.ravel() for w in copy.coefs_])), fraction)
    copy.coefs_ = [np.where(np.abs(w) < limit, 0.0, w) for w in copy.coefs_]
    return copy


# %%
# More zeros, more errors, and smaller files.

single = MLPClassifier((50,), max_iter=600, random_state=0).fit(X_train, y_train)
fractions = [0.5, 0.8, 0.9, 0.97]
errors = {"pruned while sampling": [], "cut after training": []}
sizes = []
print(f"{'zeros':>6}{'error, sampled':>16}{'error, cut':>12}{'kB, compressed':>16}")
for fraction in fractions:
    clf = SparseBayesianClassifier(
        hidden_layer_sizes=(50,),
        prune=fraction,
        n_chains=1,
        burn_in=2000,
        n_draws=30,
        thinning=20,
        random_state=0,
    ).fit(X_train, y_train)
    pair = clf, cut(single, fraction)
    for values, model in zip(errors.values(), pair, strict=True):
        values.append(1.0 - model.score(X_test, y_test))
    sizes.append(len(pickle.dumps(clf.compress())) / 1024)
    full = len(pickle.dumps(clf)) / 1024
    print(f"{fraction:6.2f}{errors['pruned while sampling'][-1]:16.3f}"
          f"{errors['cut after training'][-1]:12.3f}{sizes[-1]:16.0f}")  # fmt: skip

# %%
# Nine of ten weights can go at a small price, if the network may choose which. A fairer rival would
# train again after every cut; here nothing is trained twice. Files shrink with the weights.

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8))
percent = 100 * np.array(fractions)
for k, (name, values) in enumerate(errors.items()):
    left.plot(percent, 100 * np.array(values), "os"[k] + "-", label=name)
left.set(title="Held-out digits", xlabel="zeros among the weights (%)", ylabel="error (%)")
left.set_ylim(0, 100)
left.legend()
right.plot(percent, sizes, "o-", label="compress()")
right.axhline(full, color="0.4", linestyle=":", label="as fitted")
right.set(title="Pickle of thirty draws", xlabel="zeros among the weights (%)", ylabel="kB")
right.set_ylim(0, None)
right.legend()
plt.show()
