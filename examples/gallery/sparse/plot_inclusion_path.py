"""
Which features matter: inclusion probabilities
==============================================

Two hundred features, eighty rows, and four features that matter. The lasso gives a path of
coefficients; a spike-and-slab prior gives the probability that a feature belongs to the model.
"""

# %%
# Two of the four effects are large and two are small. Features come in correlated pairs, so a
# feature that does nothing may look like its neighbour.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LassoCV, lasso_path
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import SamplingWarning, SparseBayesianRegressor, SpikeSlab

rng = np.random.default_rng(0)
n, p = 80, 200
common = rng.standard_normal((n, p // 2))
X = np.repeat(common, 2, axis=1) + 0.9 * rng.standard_normal((n, p))
X = StandardScaler().fit_transform(X)
coef = np.zeros(p)
coef[[10, 50, 90, 130]] = 2.0, -1.5, 0.8, 0.6
y = X @ coef + rng.standard_normal(n)

# %%
# The lasso's path has one free number, the penalty, which cross-validation chooses. It keeps many
# features that do nothing, each with a small coefficient.

lasso = LassoCV(cv=5).fit(X, y)
alphas, path, _ = lasso_path(X, y - y.mean())
print("kept by the cross-validated lasso:", np.count_nonzero(lasso.coef_))

# %%
# The sparse regression samples the coefficients, and at the same time which of them belong to the
# slab. The "Gibbs" variant draws the memberships from their conditional distributions, so that the
# inclusion probabilities are those of the model's posterior.

reg = SparseBayesianRegressor(
    prior=SpikeSlab(adaptation="gibbs"), burn_in=5000, n_draws=100, thinning=20, random_state=0
).fit(X, y)
kept = np.flatnonzero(reg.get_support())
print("kept by the sparse regression:", kept)
for j in kept:
    print(f"feature {j:3}: probability {reg.inclusion_probability_[j]:.2f}, "
          f"coefficient {reg.coef_[j]:5.2f} (truth {coef[j]:.1f})")  # fmt: skip

# %%
# And as a path: what if a priori one feature in a thousand is expected to matter, or three in ten?
# By default this share is learned, and does not need to be chosen. Chains that are too short for
# anything else do for the picture.

short = {"n_chains": 2, "burn_in": 1500, "n_draws": 50, "thinning": 10, "random_state": 0}
warnings.simplefilter("ignore", SamplingWarning)
shares = np.array([0.001, 0.02, 0.3])
probability = []
for share in shares:
    prior = SpikeSlab(adaptation="gibbs", inclusion=share, learn_inclusion=False)
    probability.append(SparseBayesianRegressor(prior=prior, **short).fit(X, y))
probability = np.array([model.inclusion_probability_ for model in probability])

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
true = np.flatnonzero(coef)
others = np.setdiff1d(np.arange(p), true)
left.plot(alphas, path[others].T, color="0.75", linewidth=0.8)
right.plot(shares, probability[:, others], ".-", color="0.75", linewidth=0.8)
for k, j in enumerate(true):
    left.plot(alphas, path[j], color=f"C{k}", label=f"{coef[j]:g}")
    right.plot(shares, probability[:, j], "o-", color=f"C{k}")
left.axvline(lasso.alpha_, ymax=0.85, color="black", linestyle=":", linewidth=1)
left.text(lasso.alpha_, -1.38, " cross-validation", va="bottom", ha="left", fontsize=8)
left.set(title="Lasso (grey: 196 features that do nothing)", xlabel="penalty", ylabel="coefficient")
left.set(xscale="log", ylim=(-1.4, 3.4))
left.legend(title="true coefficient", ncols=4, columnspacing=1.0, loc="upper center")
right.set(
    title="Spike and slab",
    xlabel="share of features expected to matter",
    ylabel="inclusion probability",
    xscale="log",
    ylim=(-0.03, 1.03),
)
plt.show()
