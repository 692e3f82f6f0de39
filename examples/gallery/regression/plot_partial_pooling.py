"""
Schools with few pupils: partial pooling
========================================

Is the best school the best, or the smallest? Effects of groups with a learned spread answer with
as much caution as each group's rows deserve.
"""

# %%
# Scores of pupils in thirty schools, between 3 and 80 pupils each. A pupil's preparation matters,
# and so does the school. The true effects have a standard deviation of 4 points.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skbayes_sgmcmc import BayesianGLMRegressor

rng = np.random.default_rng(3)
sizes = rng.permutation(np.geomspace(3, 80, 30).astype(int))
effects = 4.0 * rng.standard_normal(30)
school = np.repeat(np.arange(30), sizes)
preparation = rng.standard_normal(len(school)) + 0.1 * effects[school]
score = 60 + 5 * preparation + effects[school] + 9 * rng.standard_normal(len(school))
X = pd.DataFrame({"preparation": preparation, "school": school})

# %%
# ``groups="school"`` gives each school an intercept of its own. Their spread is learned.

reg = BayesianGLMRegressor(groups="school", n_draws=500, random_state=0).fit(X, score)
spread = reg.posterior_["sd_school"]
print("preparation", reg.posterior_["coef"].mean().round(2), "(truth: 5)")
print("sd of the schools' effects", spread.mean().round(2), "±", spread.std().round(2))

# %%
# Two other answers: no pooling estimates each school from its own pupils, and complete pooling says
# that all schools are alike.

slope = reg.posterior_["coef"].mean()
alone = np.array([np.mean((score - slope * preparation)[school == s]) for s in range(30)])
alone -= np.average(alone, weights=sizes)
draws = reg.sample_posterior(2000, random_state=0)["effect_school"].reshape(2000, -1)
pooled = draws.mean(axis=0)
for name, guess in {
    "each school alone": alone,
    "all schools alike": np.zeros(30),
    "partial pooling": pooled,
}.items():
    print(f"{name:18} error of the effects (RMSE) {np.sqrt(np.mean((guess - effects) ** 2)):.2f}")

# %%
# Small schools are pulled far towards the mean, large ones hardly. Which school is the best? The
# posterior gives a probability, where the estimates of single schools give a winner.

best = np.bincount(draws.argmax(axis=1), minlength=30) / len(draws)
ranked = np.argsort(-best)[:5]
print("probability of being the best school")
for s in ranked:
    rank = 1 + np.sum(alone > alone[s])
    print(f"school {s:2}, {sizes[s]:2} pupils: {best[s]:.2f}   alone: rank {rank}")

order = np.argsort(sizes)
place = np.arange(30)
low, high = np.quantile(draws, [0.05, 0.95], axis=0)
fig, ax = plt.subplots(figsize=(9, 4.2))
ax.axhline(0, color="0.7", linewidth=1, zorder=0)
ax.vlines(place, low[order], high[order], "C0", alpha=0.4, linewidth=3, label="90% interval")
ax.vlines(place, alone[order], pooled[order], "C1", linewidth=0.8, linestyle=":")
ax.plot(place, alone[order], "s", color="C1", markersize=4, label="each school alone")
ax.plot(place, pooled[order], "o", color="C0", markersize=5, label="partial pooling")
ax.plot(place, effects[order], "x", color="black", markersize=5, label="truth")
ax.set_xticks(place[::3], sizes[order][::3])
ax.set(title="Effects of schools", xlabel="pupils of the school", ylabel="points")
ax.legend(ncols=4, loc="lower right")
plt.show()
