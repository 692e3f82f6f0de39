"""
Are the intervals right? Coverage and residuals
===============================================

Two pictures tell whether a regressor's intervals can be believed, and what is wrong if they cannot.
"""

# %%
# The noise of the targets grows with the first feature. One model has the same noise for all rows;
# the other is a network that predicts the noise, too.

import matplotlib.pyplot as plt
import numpy as np

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianMLPRegressor
from skbayes_sgmcmc.inspection import IntervalCoverageDisplay, ResidualDisplay

rng = np.random.default_rng(0)
X = rng.uniform(0.0, 1.0, (600, 2))
y = 3.0 * X[:, 0] - X[:, 1] + (0.05 + X[:, 0] ** 2) * rng.standard_normal(600)
X, X_test, y, y_test = X[:300], X[300:], y[:300], y[300:]

linear = BayesianGLMRegressor(random_state=0).fit(X, y)
network = BayesianMLPRegressor(
    hidden_layer_sizes=(8,), noise="heteroscedastic", random_state=0
).fit(X, y)

# %%
# Both have nearly the same error, and 90% intervals of both contain about 90% of new targets. So
# neither number can tell them apart. The density of the targets can: smaller is better.

for model in (linear, network):
    error = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
    lower, upper = model.predict_interval(X_test, coverage=0.9).T
    inside = np.mean((lower <= y_test) & (y_test <= upper))
    nll = -model.predict_log_density(X_test, y_test).mean()
    print(f"{type(model).__name__:22} error {error:.2f}, inside {inside:.0%}, NLL {nll:.2f}")

# %%
# On the left, the share of targets inside intervals of every probability. The linear
# model's intervals of low probability are too wide, because it has one noise for all rows
# (the band is two standard errors). On the right, why: its intervals (grey) have the same width
# everywhere, and targets outside of them (crosses) are all on one side of the picture. Those of the
# network follow the residuals.

fig, axes = plt.subplots(1, 3, figsize=(11, 3.8))
for model, colour in ((linear, "C1"), (network, "C0")):
    IntervalCoverageDisplay.from_estimator(model, X_test, y_test, ax=axes[0], color=colour)
for ax, model in zip(axes[1:], (linear, network), strict=True):
    ResidualDisplay.from_estimator(model, X_test, y_test, ax=ax)
    ax.set_title(type(model).__name__)
axes[0].set_title("Coverage of intervals")
axes[2].sharey(axes[1])
plt.show()
