"""
A decision with costs: lend, refuse or check
============================================

A lender has seen few loans, and a wrong decision is expensive. Does it pay to average over the
posterior instead of using the most probable coefficients?
"""

# %%
# The decision
# ------------
#
# An applicant will repay or default. A default costs 100, and refusing someone who would have repaid
# costs 20. A thorough check costs 5 and always gives the right answer. With the probability p of a
# default, the expected costs are 100 p for lending, 20 (1 - p) for refusing and 5 for the check. The
# cheapest of the three depends on p alone: lend below 5%, refuse above 75%, and check in between.

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression

DEFAULT, REFUSED, CHECK = 100.0, 20.0, 5.0


def costs_of_actions(p):
    """Expected costs (rows, 3) of lending, refusing and checking."""
    return np.column_stack([DEFAULT * p, REFUSED * (1 - p), np.full(len(p), CHECK)])


def cost(believed, true):
    """Expected cost of each decision by ``believed``, if the probabilities are ``true``."""
    action = costs_of_actions(believed).argmin(axis=1)
    return costs_of_actions(true)[np.arange(len(true)), action]


# %%
# Data and models
# ---------------
#
# The applicants are simulated, so that the true p is known and with it the exact expected cost of
# every decision. Ten correlated figures describe an applicant, and a quarter of the applicants
# would default.

coef = np.linspace(1.2, -0.8, 10)


def applicants(n, rng):
    """Their figures, the probabilities of a default, and whether it happens."""
    common = rng.standard_normal((n, 1))
    X = 0.5 * common + np.sqrt(0.75) * rng.standard_normal((n, 10))
    p = expit(X @ coef - 2.0)
    return X, p, rng.random(n) < p


# %%
# ``LogisticRegression`` and the first posterior have the same prior, so they differ only in the
# averaging. ``LogisticRegressionCV`` chooses the penalty by cross-validation, and the last posterior
# samples the scale of its prior.

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
# Twenty lenders
# --------------
#
# A hundred loans are a small sample, and one sample proves little: here are twenty lenders with a
# hundred loans each. New applicants judge their decisions.

costs = {name: [] for name in models}
best = []
for lender in range(20):
    rng = np.random.default_rng(lender)
    X, _, defaulted = applicants(100, rng)
    X_new, p_new, _ = applicants(2000, rng)
    best.append(cost(p_new, p_new).mean())
    believed = {}
    for name, model in models.items():
        pipe = make_pipeline(StandardScaler(), model).fit(X, defaulted)
        believed[name] = pipe.predict_proba(X_new)[:, 1]
        costs[name].append(cost(believed[name], p_new).mean())

print(f"{'for each applicant':30} mean cost    sd  worst lender")
print(f"{'the true probabilities':30} {np.mean(best):9.2f}")
print(f"{'check everyone':30} {CHECK:9.2f}")
for name, each in costs.items():
    label = name.replace("\n", " ")
    print(f"{label:30} {np.mean(each):9.2f} {np.std(each):5.2f} {max(each):13.2f}")

# %%
# What the average changes
# ------------------------
#
# TEXT
#
# Left, why. TEXT

reference, average = "most probable\ncoefficients", "posterior,\nlearned scale"
fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2))
for name, marker in ((reference, "^"), (average, "o")):
    left.plot(p_new[::4], believed[name][::4], marker, markersize=3, alpha=0.4,
              label=name.replace("\n", " "))  # fmt: skip
left.plot([1e-4, 1 - 1e-4], [1e-4, 1 - 1e-4], color="0.4", linewidth=1)
for limit in (CHECK / DEFAULT, 1 - CHECK / REFUSED):
    left.axhline(limit, color="0.4", linewidth=1, linestyle=":")
left.set(xscale="logit", yscale="logit", xlabel="true probability of a default",
         ylabel="probability of the model")  # fmt: skip
left.set_title("One lender (dotted: limits of the check)")
left.legend()
place = np.arange(len(costs))
right.barh(place, [np.mean(each) for each in costs.values()], color="C0", alpha=0.5)
for k, each in enumerate(costs.values()):
    right.plot(each, np.full(len(each), k), ".", color="black", markersize=4)
right.axvline(np.mean(best), color="C2", label="true probabilities")
right.axvline(CHECK, color="C3", linestyle="--", label="check everyone")
right.set(yticks=place, yticklabels=list(costs), xlabel="expected cost of an applicant")
right.set_title("Mean of twenty lenders (dots: each)")
right.invert_yaxis()
right.legend(loc="lower left")
plt.show()
