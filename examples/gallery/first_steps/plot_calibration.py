"""
Probabilities that mean what they say
=====================================

With few rows for many features, the single best classifier is far too sure of itself. Averaging
over all classifiers that the rows allow is the remedy.
"""

# %%
# Eighty rows with twenty features train each classifier, and 2,000 rows test it. One such
# experiment would show chance as much as calibration, so there are five. The classes are drawn from
# a logistic regression, so only the forest is at a disadvantage.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc.inspection import ReliabilityDisplay, expected_calibration_error

models = {
    "BayesianLogisticRegression": BayesianLogisticRegression(
        prior_scale="learned", n_draws=400, random_state=0
    ),
    "LogisticRegression": LogisticRegression(),
    "LogisticRegression, no penalty": LogisticRegression(C=np.inf, max_iter=1000),
    "LogisticRegressionCV": LogisticRegressionCV(
        Cs=6,
        cv=3,
        scoring="neg_log_loss",
        l1_ratios=(0,),
        use_legacy_attributes=False,
        max_iter=1000,
    ),
    "RandomForestClassifier": RandomForestClassifier(random_state=0),
}
truth, probabilities = [], {name: [] for name in models}
for seed in range(5):
    rng = np.random.default_rng(seed)
    X, X_test = rng.standard_normal((80, 20)), rng.standard_normal((2000, 20))
    coef = 0.5 * rng.standard_normal(20)
    y, y_test = (rng.random(len(Z)) < 1 / (1 + np.exp(-Z @ coef)) for Z in (X, X_test))
    truth.append(y_test)
    for name, model in models.items():
        probabilities[name].append(model.fit(X, y).predict_proba(X_test))

# %%
# The log loss scores the probabilities, and the expected calibration error (ECE) says how far they
# are from the frequencies. Smaller is better. A cross-validated penalty is a good alternative if
# all you need is probabilities: it also keeps the coefficients small.

truth = np.concatenate(truth)
print(f"{'':32}{'error':>7}{'log loss':>10}{'ECE':>7}")
for name in models:
    p = probabilities[name] = np.concatenate(probabilities[name])
    error = np.mean(p.argmax(axis=1) != truth)
    print(
        f"{name:32}{error:7.3f}{log_loss(truth, p):10.3f}"
        f"{expected_calibration_error(truth, p, n_bins=10):7.3f}"
    )

# %%
# In a reliability diagram, a point below the diagonal is a promise that is not kept: where the
# classifier without a penalty is 95% sure, it is right far less often. The random forest errs on
# the other side.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, sharey=True)
shown = ("BayesianLogisticRegression", "LogisticRegression, no penalty", "RandomForestClassifier")
for k, (ax, name) in enumerate(zip(axes, shown, strict=True)):
    ReliabilityDisplay.from_predictions(
        truth, probabilities[name], n_bins=10, ax=ax, color=f"C{k}", name=name
    )
    ax.set(title=name, xlim=(0.48, 1.02), ylim=(0.0, 1.02), ylabel="")
    ax.get_legend().remove()
axes[0].set_ylabel("accuracy, and fraction of rows (grey)")
plt.show()
