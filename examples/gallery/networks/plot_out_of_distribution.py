"""
Pictures that belong to no class
================================

A network that has seen the digits 0 to 4 must say something about a 7. It should say it with less
confidence.
"""

# %%
# Half of the digits 0 to 4 train a network; the other half, and all of 5 to 9, test it.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import entropy
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from skbayes_sgmcmc import BayesianMLPClassifier

X, y = load_digits(return_X_y=True)
known = y < 5
X_train, X_test, y_train, y_test = train_test_split(
    X[known], y[known], test_size=0.5, stratify=y[known], random_state=0
)
unknown = X[~known]

models = {
    "posterior": BayesianMLPClassifier(burn_in=1000, n_draws=50, thinning=10, random_state=0),
    "single network": MLPClassifier((32, 32), max_iter=1000, random_state=0),
    "random forest": RandomForestClassifier(random_state=0),
}
for model in models.values():
    model.fit(X_train, y_train)

# %%
# The entropy of the predicted probabilities is a measure of doubt. The area under the ROC curve is
# the probability that an unknown digit has more of it than a known one. Epistemic uncertainty, the
# part that is disagreement among networks, is the measure made for the purpose; whether it is the
# better one depends on the data.

print(f"{'':28}{'accuracy, 0-4':>14}{'AUROC':>8}")
for name, model in models.items():
    inside, outside = (entropy(model.predict_proba(rows), axis=1) for rows in (X_test, unknown))
    labels = np.repeat([0, 1], [len(inside), len(outside)])
    area = roc_auc_score(labels, np.concatenate([inside, outside]))
    print(f"{name + ', entropy':28}{model.score(X_test, y_test):14.3f}{area:8.3f}")
doubt = [models["posterior"].predict_uncertainty(rows).epistemic for rows in (X_test, unknown)]
print(f"{'posterior, epistemic':42}{roc_auc_score(labels, np.concatenate(doubt)):8.3f}")

# %%
# The histograms show how sure each model is. Below them are the unknown digits with the smallest
# and the largest epistemic uncertainty. The most certain ones do look like a known digit.

order = np.argsort(doubt[1])
fig, axes = plt.subplot_mosaic(
    [["bayes"] * 5 + ["single"] * 5, [f"digit {k}" for k in range(10)]],
    figsize=(9.5, 4.6),
    height_ratios=(3.2, 1),
)
bins = np.linspace(0, np.log(5), 25)
for place, name in (("bayes", "posterior"), ("single", "single network")):
    ax = axes[place]
    for rows, label in ((X_test, "0 to 4"), (unknown, "5 to 9")):
        doubt_of_rows = entropy(models[name].predict_proba(rows), axis=1)
        heights, *_ = ax.hist(doubt_of_rows, bins, density=True, alpha=0.5, label=label)
        if heights[0] > 6.0:  # so that the others can be seen
            ax.text(bins[1] + 0.02, 5.7, f"to {heights[0]:.0f}", fontsize="small")
    ax.set(title=name, xlabel="entropy in nats", ylim=(0, 6))
axes["bayes"].set_ylabel("density")
axes["bayes"].legend(title="digits")
for k, row in enumerate([*order[:5], *order[-5:]]):
    ax = axes[f"digit {k}"]
    ax.imshow(unknown[row].reshape(8, 8), cmap="gray_r")
    guess = models["posterior"].predict(unknown[row : row + 1])[0]
    ax.set(title=f"like {guess}?", xticks=[], yticks=[])
axes["digit 2"].set_xlabel("least epistemic uncertainty")
axes["digit 7"].set_xlabel("most")
plt.show()
