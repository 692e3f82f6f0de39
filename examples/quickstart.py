"""Bayesian logistic regression on real data, from fit to figure, in a few seconds.

    python examples/quickstart.py

The data are scikit-learn's breast cancer set: 569 tumours, 30 measurements each, benign or not.
Half of them train the model; the other half, which it never sees, say how good it is.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc.inspection import ReliabilityDisplay, expected_calibration_error

FIGURE = "quickstart.png"

# 1. Fit. The estimator needs no tuning: it finds start, step size and preconditioner by itself.
data = load_breast_cancer()
X_train, X_test, y_train, y_test = train_test_split(
    data.data, data.target, test_size=0.5, stratify=data.target, random_state=0
)
bayes = make_pipeline(StandardScaler(), BayesianLogisticRegression(random_state=0))
bayes.fit(X_train, y_train)

# scikit-learn's model with the same prior (C = prior_scale ** 2) finds its single best point.
point = make_pipeline(StandardScaler(), LogisticRegression(C=1.0)).fit(X_train, y_train)

# A wider prior leaves more open, and then averaging matters more.
wide_bayes = make_pipeline(
    StandardScaler(), BayesianLogisticRegression(prior_scale=3.0, random_state=0)
).fit(X_train, y_train)
wide_point = make_pipeline(StandardScaler(), LogisticRegression(C=9.0)).fit(X_train, y_train)

# 2. Held-out rows: how often wrong, how good the probabilities, how honest the confidence?
print(f"{len(y_test)} held-out tumours (smaller is better; one split, so small gaps are chance)")
print(f"{'':44}{'error':>8}{'NLL':>8}{'ECE':>8}")
probabilities = {}
for name, model in {
    "BayesianLogisticRegression": bayes,
    "LogisticRegression": point,
    "BayesianLogisticRegression, prior_scale=3": wide_bayes,
    "LogisticRegression, C=9": wide_point,
}.items():
    proba = probabilities[name] = model.predict_proba(X_test)
    error = np.mean(model.predict(X_test) != y_test)
    ece = expected_calibration_error(y_test, proba, n_bins=10)
    print(f"{name:44}{error:8.4f}{log_loss(y_test, proba):8.4f}{ece:8.4f}")
print("NLL: negative log-likelihood; ECE: expected calibration error (bins of 0.1 in confidence)\n")

# 3. What the data say about each coefficient. R-hat near 1: the chains agree; ESS: what the draws
# are worth in independent ones.
clf = bayes[-1]
table = clf.summary(coverage=0.9)
table["name"] = [*data.feature_names, "intercept"]
print(f"Posterior of {clf.n_chains_} chains x {clf.n_draws_} draws, with 90% intervals")
print(table, "\n")

# 4. Which predictions to trust? Entropy (in nats) that stays even if the coefficients were known
# is aleatoric; what more data would take away is epistemic.
uncertainty = bayes[-1].predict_uncertainty(bayes[:-1].transform(X_test))
wrong = bayes.predict(X_test) != y_test
print("The five least certain held-out tumours")
print(f"{'row':>6}{'P(benign)':>11}{'total':>8}{'aleatoric':>11}{'epistemic':>11}  truth")
for row in np.argsort(-uncertainty.total)[:5]:
    figures = (
        f"{probabilities['BayesianLogisticRegression'][row, 1]:11.2f}{uncertainty.total[row]:8.3f}"
        f"{uncertainty.aleatoric[row]:11.3f}{uncertainty.epistemic[row]:11.3f}"
    )
    print(f"{row:6}{figures}  {data.target_names[y_test[row]]}")

# 5. The same three things as a figure.
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 5.2), layout="constrained")

order = np.argsort(table["mean"][:-1])  # without the intercept
mean, lower, upper = (table[column][order] for column in ("mean", "lower", "upper"))
left.axvline(0.0, color="0.7", linewidth=1)
left.hlines(np.arange(len(order)), lower, upper, color="C0", alpha=0.6, linewidth=2.5)
left.plot(mean, np.arange(len(order)), "o", color="C0", markersize=4, label="mean and 90% interval")
left.plot(point[-1].coef_[0, order], np.arange(len(order)), "x", color="C1", markersize=5,
          label="LogisticRegression")  # fmt: skip
left.set_yticks(np.arange(len(order)), data.feature_names[order], fontsize=7)
left.set(title="Coefficients", xlabel="coefficient (per sd of the feature)")
left.set_ylim(-1, len(order) + 3)  # room for the legend
left.legend(fontsize=8, loc="upper left")

for name, colour in (("BayesianLogisticRegression", "C0"), ("LogisticRegression", "C1")):
    ReliabilityDisplay.from_predictions(
        y_test, probabilities[name], n_bins=10, name=name, ax=middle, color=colour, alpha=0.7
    )
middle.set(title="Calibration", xlim=(0.48, 1.02), ylabel="accuracy of rows so confident")
middle.legend(fontsize=8, loc=(0.02, 0.2))

for which, colour, label in ((~wrong, "C0", "right"), (wrong, "C3", "wrong")):
    right.plot(uncertainty.aleatoric[which], uncertainty.epistemic[which], "o", color=colour,
               alpha=0.6, markersize=5, label=label)  # fmt: skip
right.set(title="Uncertainty of each held-out tumour", xlabel="aleatoric (nats)",
          ylabel="epistemic (nats)")  # fmt: skip
right.legend(fontsize=8, title="prediction")

for ax in (left, middle, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(FIGURE, dpi=100)
print(f"\nFigure written to {FIGURE}")
