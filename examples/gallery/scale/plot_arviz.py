"""
Draws in ArviZ: diagnostics and model comparison
================================================

ArviZ has plots and statistics for any posterior. One function hands the draws over, with the log
likelihood of each row.
"""

# %%
# How does the number of doctor's visits depend on age and income? The counts are simulated, and
# vary more than Poisson's. Three models are compared.

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skbayes_sgmcmc import BayesianGLMRegressor, to_arviz

rng = np.random.default_rng(0)
X = pd.DataFrame({"age": rng.standard_normal(150), "income": rng.standard_normal(150)})
rate = np.exp(0.8 + 0.4 * X["age"] - 0.2 * X["income"])
visits = rng.poisson(rate * rng.gamma(2.0, 0.5, len(X)))
settings = {"n_draws": 250, "random_state": 0}
models = {
    "Poisson": BayesianGLMRegressor(likelihood="poisson", **settings),
    "negative binomial": BayesianGLMRegressor(likelihood="negative_binomial", **settings),
    "normal": BayesianGLMRegressor(**settings),
}
converted = {name: to_arviz(model.fit(X, visits), X, visits) for name, model in models.items()}

# %%
# Leave-one-out cross-validation (LOO) estimates from the draws how well each model predicts a row
# that it has not seen, without fitting again. ``elpd_diff`` is the distance from the best model,
# and ``dse`` its standard error.

table = az.compare(converted)
print(table[["rank", "elpd_loo", "p_loo", "elpd_diff", "dse"]].round(1))

# %%
# ArviZ computes its own diagnostics. They agree with those of ``summary()``.

best = converted["negative binomial"]
print(az.summary(best, var_names=["coef", "intercept"], round_to=3))
print(models["negative binomial"].summary())

# %%
# The comparison as a picture, and ranks of the draws: if chains agree, the ranks of each chain are
# spread evenly.

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
place = np.arange(len(table))
left.errorbar(table["elpd_loo"], place, xerr=table["se"], fmt="o", color="C0")
left.set(yticks=place, yticklabels=table.index, xlabel="expected log density of new rows (LOO)")
left.invert_yaxis()
left.set_title("Larger is better; bars: standard error")
draws = models["negative binomial"].posterior_["coef"][..., 0]
ranks = draws.ravel().argsort().argsort().reshape(draws.shape)
for k, chain in enumerate(ranks):
    count, edges = np.histogram(chain, bins=10, range=(0, draws.size))
    right.stairs(count, edges, color=f"C{k}", label=f"chain {k}", linewidth=1.5)
right.set(title="Ranks of the draws of age", xlabel="rank among all draws", ylabel="draws")
right.set_ylim(0, None)
right.legend(ncols=2, loc="lower center")
plt.show()
