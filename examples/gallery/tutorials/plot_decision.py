"""
A decision with costs: operate, wait or refer
=============================================

A classifier is fitted to few patients, and a wrong decision is expensive. Does it pay to average
over the posterior instead of using the most probable coefficients?
"""

# %%
# The decision
# ------------
#
# A tumour is malignant or benign. Missing a malignant one costs 100, and treating a benign one
# costs 10. A biopsy costs 1 and always gives the right answer. With the probability p of a
# malignant tumour, the expected costs are 100 p for waiting, 10 (1 - p) for treating and 1 for the
# biopsy. The cheapest of the three depends on p alone, but p must be right near 0 and near 1.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression

MISS, FALSE_ALARM, BIOPSY = 100.0, 10.0, 1.0
WAIT, TREAT, REFER = 0, 1, 2


def decide(p):
    """The action with the smallest expected cost."""
    costs = [MISS * p, FALSE_ALARM * (1 - p), np.full(len(p), BIOPSY)]
    return np.argmin(costs, axis=0)


def cost(action, malignant):
    """What the actions cost once the truth is known."""
    return np.select(
        [action == WAIT, action == TREAT], [MISS * malignant, FALSE_ALARM * ~malignant], BIOPSY
    )


# %%
# Data and models
# ---------------
#
# The data are real: 569 biopsies from Wisconsin with 30 measurements each, which come with
# scikit-learn. The sampler's largest step was chosen with the help of this table and two others;
# the priors were not. A new clinic has seen 40 of these patients; the other 529 judge its
# decisions.
# ``LogisticRegression`` and the first posterior have the same prior, so that they differ only in
# the averaging. ``LogisticRegressionCV`` chooses the penalty by cross-validation, and the last
# posterior samples the scale of its prior.

X, target = load_breast_cancer(return_X_y=True)
malignant = target == 0
draws = {"n_draws": 500, "random_state": 0}
models = {
    "most probable\ncoefficients": LogisticRegression(),
    "most probable,\ntuned penalty": LogisticRegressionCV(
        Cs=np.logspace(-3, 3, 13), scoring="neg_log_loss", use_legacy_attributes=False,
        l1_ratios=(0.0,)
    ),
    "posterior": BayesianLogisticRegression(**draws),
    "posterior,\nlearned scale": BayesianLogisticRegression(prior_scale="learned", **draws),
}  # fmt: skip

# %%
# Twenty clinics
# --------------
#
# Forty patients are a small sample, and one sample proves little: here are twenty. All of them are
# shown.

splits = StratifiedShuffleSplit(20, train_size=40, random_state=0)
costs = {name: [] for name in models}
misses = {name: 0 for name in models}
for seen, new in splits.split(X, malignant):
    for name, model in models.items():
        pipe = make_pipeline(StandardScaler(), model).fit(X[seen], malignant[seen])
        action = decide(pipe.predict_proba(X[new])[:, 1])
        costs[name].append(1000 * cost(action, malignant[new]).mean())
        misses[name] += np.sum((action == WAIT) & malignant[new])

print(f"{'for 1,000 patients':30} mean cost    sd  worst   misses in all clinics")
for name, each in costs.items():
    label = name.replace("\n", " ")
    print(f"{label:30} {np.mean(each):9.0f} {np.std(each):5.0f} {max(each):6.0f} {misses[name]:8}")

# %%
# What the average changes
# ------------------------
#
# On average, the default penalty and the posterior with the same prior cost about the same: this
# penalty happens to suit the table. But the costs of the posterior vary half as much from clinic to
# clinic. Its worst clinic pays 732 instead of 945, because all clinics together miss one malignant
# tumour instead of eleven. Tuning does worse: forty patients sometimes choose a penalty that is far
# too weak, and then misses are frequent. The learned scale misses none and refers most patients. It
# is the most careful of the four, not the cheapest.
#
# So a posterior does not make the average decision better if the point estimate is a good one. It
# insures against the samples for which it is not, and pays with cheap actions, here biopsies.
#
# Left, why. The most probable coefficients of the last clinic give some tumours a probability near
# 0 that forty patients cannot support. Draws of the posterior disagree about these rows, so their
# average is less extreme, and more of them are referred.

one, average = (
    make_pipeline(StandardScaler(), models[name])
    .fit(X[seen], malignant[seen])
    .predict_proba(X[new])[:, 1]
    for name in ("most probable\ncoefficients", "posterior")
)
fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4))
for kind, label in ((False, "benign"), (True, "malignant")):
    rows = malignant[new] == kind
    left.plot(one[rows], average[rows], "o^"[kind], color=f"C{int(kind)}", markersize=3,
              alpha=0.5, label=label)  # fmt: skip
left.plot([1e-5, 1], [1e-5, 1], color="0.6", linewidth=1)
for limit in (BIOPSY / MISS, 1 - BIOPSY / FALSE_ALARM):
    left.axvline(limit, color="0.4", linewidth=1, linestyle=":")
    left.axhline(limit, color="0.4", linewidth=1, linestyle=":")
left.set(xscale="logit", yscale="logit", xlabel="p of the most probable coefficients",
         ylabel="p, averaged over the posterior")  # fmt: skip
left.set_title("One clinic (dotted: limits of the biopsy)")
left.legend()
place = np.arange(len(costs))
right.barh(place, [np.mean(each) for each in costs.values()], color="C0", alpha=0.5)
for k, each in enumerate(costs.values()):
    right.plot(each, np.full(len(each), k), ".", color="black", markersize=4)
right.set(yticks=place, yticklabels=list(costs), xlabel="cost for 1,000 patients")
right.set_title("Mean of twenty clinics (dots: each)")
right.invert_yaxis()
plt.show()
