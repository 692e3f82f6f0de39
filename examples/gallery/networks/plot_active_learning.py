"""
Ask for the label that teaches most
===================================

Labels are expensive, rows are not. The most useful rows to label are those where draws of the
posterior disagree: they teach more than random rows, and more than rows that are merely undecided.
"""

# %%
# A pool of rows with two classes. A fifth of the rows have labels that a coin decides: the feature
# that tells the classes apart is zero there. A model soon finds these rows undecidable, and asking
# for their labels teaches nothing.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from skbayes_sgmcmc import BayesianLogisticRegression, SamplingWarning

coef = np.array([3.0, -2.5, 2.0, -1.5, 1.0, 0, 0, 0])


def draw_rows(n, rng):
    X = rng.standard_normal((n, len(coef)))
    X[rng.random(n) < 0.3] *= 0.05  # undecidable
    return X, (rng.random(n) < 1 / (1 + np.exp(-X @ coef))).astype(int)


# %%
# Start with ten labels. In each round the model asks for those of five more rows, chosen by one of
# three rules. Three pools are averaged.


def scores(rule, clf, rows, rng):
    if rule == "random":
        return rng.random(len(rows))
    uncertainty = clf.predict_uncertainty(rows)
    return uncertainty.total if rule == "entropy" else uncertainty.epistemic


rules, n_rounds, n_pools = ("epistemic", "entropy", "random"), 8, 3
warnings.simplefilter("ignore", SamplingWarning)
losses = {rule: np.empty((n_pools, n_rounds)) for rule in rules}
for pool in range(n_pools):
    rng = np.random.default_rng(pool)
    (X, y), (X_test, y_test) = draw_rows(500, rng), draw_rows(2000, rng)
    first = np.r_[np.flatnonzero(y == 0)[:5], np.flatnonzero(y == 1)[:5]]
    for rule in rules:
        asked = list(first)
        for round_ in range(n_rounds):
            clf = BayesianLogisticRegression(
                prior_scale=3.0, n_chains=2, n_draws=150, random_state=0
            ).fit(X[asked], y[asked])
            losses[rule][pool, round_] = log_loss(y_test, clf.predict_proba(X_test))
            value = scores(rule, clf, X, rng)
            value[asked] = -np.inf
            asked.extend(np.argsort(-value)[:5])

# %%
# With few labels there is little to choose between the rules. Then the epistemic rule pulls ahead.
# Entropy spends its questions on hopeless rows, and learns less than with random rows.

n_labels = 10 + 5 * np.arange(n_rounds)
print("labels   " + "".join(f"{n:7}" for n in n_labels))
for rule in rules:
    print(f"{rule:9}" + "".join(f"{loss:7.3f}" for loss in losses[rule].mean(axis=0)))

fig, ax = plt.subplots(figsize=(7, 4))
for k, rule in enumerate(rules):
    ax.plot(n_labels, losses[rule].T, color=f"C{k}", alpha=0.25, linewidth=1)
    ax.plot(n_labels, losses[rule].mean(axis=0), "o-", color=f"C{k}", label=rule)
ax.set(
    title="Mean over pools (thin: each pool)",
    xlabel="labels asked for",
    ylabel="log loss on new rows",
    yscale="log",
    yticks=[0.4, 0.5, 0.6, 0.7, 0.8, 1.0],
)
ax.yaxis.set_major_formatter("{x:g}")
ax.minorticks_off()
ax.legend(title="rule")
plt.show()
