"""
A classifier that knows how sure it is
======================================

A logistic regression of tumours, fitted in the usual way. Its probabilities are averages over the
posterior, and each of them comes with an interval.
"""

# %%
# The data are scikit-learn's breast cancer set: 569 tumours with 30 measurements each. Half of them
# train the model.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)

# %%
# There is nothing to tune: step size, preconditioner and length of the chains are found from the
# data.

clf = make_pipeline(StandardScaler(), BayesianLogisticRegression(random_state=0))
clf.fit(X_train, y_train)

# %%
# On the other half, it is compared with scikit-learn's model with the same prior. With data as easy
# as these there is little to gain from averaging, and which loss is smaller depends on the split.

point = make_pipeline(StandardScaler(), LogisticRegression()).fit(X_train, y_train)
for name, model in {"posterior": clf, "single best point": point}.items():
    loss = log_loss(y_test, model.predict_proba(X_test))
    print(f"{name:18} accuracy {model.score(X_test, y_test):.3f}, log loss {loss:.4f}")

# %%
# The difference is what else there is to ask. Each draw of the posterior is a classifier, and where
# they disagree, the data do not settle the question. A pipeline passes only scikit-learn's own
# methods on, so the others are called on its last step.

rows = clf[:-1].transform(X_test)
draws = clf[-1].predict_proba_samples(rows, 400)[:, :, 1]
low, high = np.quantile(draws, [0.05, 0.95], axis=0)
uncertainty = clf[-1].predict_uncertainty(rows)
print("epistemic uncertainty, in nats: median", np.median(uncertainty.epistemic).round(4))
print("                                largest", uncertainty.epistemic.max().round(4))

# %%
# The figure shows the sixty tumours whose averaged probabilities are closest to one half. A wide
# interval marks a tumour to look at again. Two malignant ones on the right have narrow intervals
# and are wrong: the posterior knows what the coefficients leave open, and not what the model leaves
# out.

p = clf.predict_proba(X_test)[:, 1]
unsure = np.argsort(np.abs(p - 0.5))[:60]
unsure = unsure[np.argsort(p[unsure])]
place, truth = np.arange(len(unsure)), y_test.to_numpy()[unsure]

fig, ax = plt.subplots(figsize=(8, 4))
ax.axhline(0.5, color="0.7", linewidth=1)
for label, marker, name in ((1, "o", "benign"), (0, "s", "malignant")):
    chosen = truth == label
    ax.vlines(place[chosen], low[unsure][chosen], high[unsure][chosen], f"C{1 - label}", alpha=0.4)
    ax.plot(place[chosen], p[unsure][chosen], marker, color=f"C{1 - label}", label=f"is {name}")
ax.set(
    title="Held-out tumours, with 90% posterior intervals",
    xlabel="the sixty least sure, in order",
    ylabel="probability of benign",
    ylim=(-0.03, 1.03),
)
ax.legend(loc="upper left")
plt.show()
