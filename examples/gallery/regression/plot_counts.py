"""
Counts that vary more than Poisson's
====================================

A Poisson regression of overdispersed counts finds the right rates, and intervals that are far too
narrow. How to see this, and what to do.
"""

# %%
# Complaints at 300 branches of a shop, observed for different numbers of weeks. Branches differ in
# ways that no column records, so the counts vary more than a Poisson distribution allows. The
# number of weeks is the exposure: a known factor of the rate.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skbayes_sgmcmc import BayesianGLMRegressor
from skbayes_sgmcmc.inspection import PredictiveCheckDisplay

truth = {"size": 0.5, "parking": -0.3, "weekend": 0.0}


def branches(n, rng):
    X = pd.DataFrame({name: rng.standard_normal(n) for name in truth})
    X["weeks"] = rng.integers(4, 30, n).astype(float)
    unseen = rng.gamma(1.25, 1 / 1.25, n)  # mean 1, variance 0.8
    rate = 0.3 * np.exp(X[list(truth)] @ np.array(list(truth.values())))
    return X, rng.poisson(X["weeks"] * rate * unseen)


rng = np.random.default_rng(1)
X, y = branches(300, rng)
X_test, y_test = branches(2000, rng)

# %%
# Both models predict nearly the same means. On new branches they differ in their intervals, and in
# the density that they had given to what happened: larger is better. The intervals are quantiles of
# simulated counts, which for many rows is much quicker than the exact ``predict_interval``.

models = {
    name: BayesianGLMRegressor(likelihood=name, exposure="weeks", n_draws=250, random_state=0).fit(
        X, y
    )
    for name in ("poisson", "negative_binomial")
}
print(f"{'':18}{'RMSE':>7}{'90% interval holds':>20}{'log density':>13}")
for name, reg in models.items():
    new = reg.sample_y(X_test, n_samples=1000, random_state=0)
    low, high = np.quantile(new, [0.05, 0.95], axis=-1)
    inside = np.mean((low <= y_test) & (y_test <= high))
    rmse = np.sqrt(np.mean((reg.predict(X_test) - y_test) ** 2))
    density = reg.predict_log_density(X_test, y_test).mean()
    print(f"{name:18}{rmse:7.2f}{inside:20.2f}{density:13.2f}")

# %%
# The coefficients as rate ratios: one more unit of the feature multiplies the rate by this.

print(models["negative_binomial"].summary(exponentiate=True))

# %%
# On the left, each model's rate ratios beside the truth (crosses): Poisson's intervals are too
# short to contain it. On the right, replicated data: bars are the observed counts, and points with
# 90% intervals are where the model expects them. Too many zeros and a long tail contradict the
# Poisson model.

fig, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.8), width_ratios=(1, 1.2, 1.2))
for k, (name, reg) in enumerate(models.items()):
    draws = np.exp(reg.sample_posterior(1000, random_state=0)["coef"]).reshape(1000, -1)
    low, middle_, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    place = np.arange(len(truth)) + 0.24 * k - 0.12
    left.hlines(place, low, high, f"C{k}")
    left.plot(middle_, place, "o", color=f"C{k}", markersize=5, label=name.replace("_", " "))
left.plot(np.exp(list(truth.values())), np.arange(3), "x", color="black", label="truth", zorder=3)
left.axvline(1.0, color="0.7", linewidth=1, zorder=0)
left.set(title="Rate ratios, 90% intervals", yticks=np.arange(3), yticklabels=list(truth))
left.set(xscale="log", xlabel="ratio", ylim=(-0.6, 3.4))
left.set_xticks([0.7, 1.0, 1.4], ["0.7", "1", "1.4"], minor=False)
left.minorticks_off()
left.legend(loc="upper right")
for ax, (name, reg) in zip((middle, right), models.items(), strict=True):
    PredictiveCheckDisplay.from_estimator(reg, X, y, n_bins=25, random_state=0, ax=ax)
    ax.set(
        title=f"{name.replace('_', ' ').capitalize()} model of counts",
        xlabel="complaints",
        xlim=(0, 42),
        ylim=(0, 130),
    )
plt.show()
