"""A table, an interval, a decision, and a network that knows where it has no data.

    python examples/quickstart.py

The table is made here: 620 days of a bakery's sales, with columns of text, gaps and a
number. The first 500 days train the models, and the remaining days test them.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skbayes_sgmcmc import BayesianGLMRegressor, BayesianMLPRegressor

FIGURE = "quickstart.png"


def bakery(n_days, rng):
    """Loaves sold each day: they depend on the weekday and on rain."""
    table = pd.DataFrame(
        {
            "weekday": np.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat"])[np.arange(n_days) % 6],
            "weather": rng.choice(["sun", "rain", "fog", None], n_days, p=[0.45, 0.35, 0.1, 0.1]),
            "degrees": rng.normal(12.0, 7.0, n_days),
        }
    )
    rate = 3.2 + 0.35 * (table["weekday"] == "Sat") - 0.25 * (table["weather"] == "rain")
    return table, rng.poisson(np.exp(rate) * rng.gamma(10.0, 0.1, n_days))


# 1. A table of mixed columns. There is nothing to tune, scale or encode.
table, sold = bakery(620, np.random.default_rng(0))
train, test = slice(500), slice(500, None)
reg = BayesianGLMRegressor(likelihood="negative_binomial", random_state=0)
reg.fit(table[train], sold[train])
print(reg.summary(), "\n")

# 2. Intervals that hold what they promise, on days that the model has not seen.
print("promised  kept")
for coverage in (0.5, 0.8, 0.9):
    low, high = reg.predict_interval(table[test], coverage=coverage).T
    kept = np.mean((low <= sold[test]) & (sold[test] <= high))
    print(f"{coverage:8.0%}{kept:6.0%}")

# 3. A decision. A loaf that is missing costs 3, a loaf that is left over costs 1. Baking the
# quantile 3 / (3 + 1) of the predictive distribution has the smallest expected cost.


def cost(baked):
    """The mean cost of a test day."""
    missing = sold[test] - baked
    return np.mean(np.where(missing > 0, 3 * missing, -missing))


decisions = {
    "the expected number": np.round(reg.predict(table[test])),
    "the 0.75 quantile": reg.predict_quantiles(table[test], [0.75])[:, 0],
}
for name, baked in decisions.items():
    print(f"bake {name:20} cost of a day {cost(baked):6.2f}")

# 4. A network that says "I don't know". Where there are no data, the networks of the posterior
# disagree, and the standard deviation of their average grows.
rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-2.0, -0.5, 60), rng.uniform(0.5, 2.0, 60)])
y = np.sin(3 * x) + 0.1 * rng.standard_normal(120)
net = BayesianMLPRegressor(noise="infer", activation="tanh", max_steps=3000, random_state=0)
net.fit(x[:, None], y)
places = np.array([-1.2, 1.2, 0.0, 3.5])
_, sds = net.predict(places[:, None], return_std=True)
for at, sd in zip(places, sds, strict=True):
    print(f"x = {at:4}: standard deviation {sd:.2f}")

# 5. The same as a figure.
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")

days = np.arange(500, 530)
low, high = reg.predict_interval(table.iloc[days], coverage=0.9).T
left.vlines(days, low, high, color="C0", alpha=0.4, linewidth=5, label="90% interval")
left.plot(days, sold[days], "o", color="black", markersize=4, label="sold")
left.set(title="Days that the model has not seen", xlabel="day", ylabel="loaves")
left.set_ylim(0, 1.25 * max(high))
left.legend(loc="upper left", ncols=2)

levels = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95])
costs = [cost(baked) for baked in reg.predict_quantiles(table[test], levels).T]
middle.plot(levels, costs, "o-", color="C0", label="bake a quantile")
middle.axhline(cost(decisions["the expected number"]), color="C1", label="bake the expected number")
middle.axvline(0.75, color="0.6", linestyle=":")
middle.set(title="What a decision costs", xlabel="quantile", ylabel="cost of a day")
middle.legend()

grid = np.linspace(-4.0, 4.0, 200)
mean, sd = net.predict(grid[:, None], return_std=True)
low, high = mean - 1.645 * sd, mean + 1.645 * sd
right.fill_between(grid, low, high, color="C0", alpha=0.25, label="90% interval")
right.plot(grid, mean, color="C0", label="mean")
right.plot(x, y, ".", color="black", markersize=4, label="data")
right.set(title="A network, near its data and far away", xlabel="x", ylabel="y")
right.set_ylim(-1.9, 1.6)
right.legend(loc="lower left", ncols=3)

for ax in (left, middle, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(FIGURE, dpi=100)
print(f"\nFigure written to {FIGURE}")
