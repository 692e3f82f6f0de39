"""
Intervals where the noise varies
================================

Predictions of motorcycle crashes, prices or counts are not equally uncertain everywhere. A network
that learns the noise along with the mean has intervals that are wide only where they must be.
"""

# %%
# The data are simulated, so the right answer is known: a wave with noise that grows from left to
# right, and with a gap in the middle.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from skbayes_sgmcmc import BayesianMLPRegressor


def mean(x):
    return np.sin(1.5 * x) + 0.2 * x


def noise(x):
    return 0.05 + 0.1 * x


rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(0, 2.5, 130), rng.uniform(3.7, 5, 70)])
y = mean(x) + noise(x) * rng.standard_normal(len(x))
X_test = rng.uniform(0, 5, 4000)[:, None]
y_test = mean(X_test[:, 0]) + noise(X_test[:, 0]) * rng.standard_normal(4000)

# %%
# The network has an output for the noise, too, which is its default. It is smaller than by default,
# and so are the chains, to keep the example quick. A Gaussian process learns one noise for all
# rows, and gradient boosting fits two quantiles.

network = BayesianMLPRegressor(
    hidden_layer_sizes=(16, 16), burn_in=1500, n_draws=50, thinning=10, random_state=0
).fit(x[:, None], y)
process = GaussianProcessRegressor(RBF() + WhiteKernel(), normalize_y=True, random_state=0).fit(
    x[:, None], y
)
boosting = [
    HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0).fit(x[:, None], y)
    for q in (0.05, 0.95)
]


def interval(model, rows):
    if model is boosting:
        return np.column_stack([quantile.predict(rows) for quantile in boosting])
    if model is process:
        middle, sd = process.predict(rows, return_std=True)
        return np.column_stack([middle - 1.645 * sd, middle + 1.645 * sd])
    return model.predict_interval(rows, coverage=0.9)


# %%
# A 90% interval should contain 90% of new targets, and do so everywhere: not more where there is
# little noise, and fewer where there is much. Narrow is good only among intervals that cover.

models = {
    "BayesianMLPRegressor": network,
    "Gaussian process": process,
    "gradient boosting": boosting,
}
thirds = np.digitize(X_test[:, 0], [5 / 3, 10 / 3])
print(f"{'coverage':22}{'left':>8}{'middle':>8}{'right':>8}{'mean width':>12}")
for name, model in models.items():
    low, high = interval(model, X_test).T
    inside = (low <= y_test) & (y_test <= high)
    figures = [inside[thirds == third].mean() for third in range(3)]
    print(f"{name:22}" + "".join(f"{f:8.2f}" for f in figures) + f"{np.mean(high - low):12.2f}")

# %%
# The dashed lines are the true 90% limits. In the gap, the network and the process grow less sure.

grid = np.linspace(-0.3, 5.3, 300)
fig, axes = plt.subplots(1, 3, figsize=(10, 3.8), sharex=True, sharey=True)
for k, (ax, (name, model)) in enumerate(zip(axes, models.items(), strict=True)):
    low, high = interval(model, grid[:, None]).T
    ax.fill_between(grid, low, high, alpha=0.3, linewidth=0, color=f"C{k}", label="90% interval")
    if model is not boosting:
        ax.plot(grid, model.predict(grid[:, None]), color=f"C{k}", label="mean")
    inner = (grid >= 0) & (grid <= 5)
    for sign in (-1.645, 1.645):
        ax.plot(
            grid[inner], (mean(grid) + sign * noise(grid))[inner], "--", color="0.3", linewidth=1
        )
    ax.plot(x, y, ".", color="black", markersize=3, label="rows")
    ax.set(title=name, xlabel="x", ylim=(-2, 3))
axes[0].set_ylabel("y")
axes[0].legend(loc="upper left")
plt.show()
