"""
Credit scoring: accept, refer or reject
=======================================

From a raw table with missing values and categories to a decision with costs. What is gained by
knowing how uncertain a score is?
"""

# %%
# The raw table
# -------------
#
# No public credit data come with scikit-learn, so the table is simulated: loans of a bank that has
# little experience, of which one in fourteen defaults. It has what such tables have: skewed
# amounts, categories (some of them rare), and values that are missing more often where something is
# wrong.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression


def applications(n, rng):
    trade = rng.choice(
        ["employee", "self-employed", "civil servant", "retired", "artist", "diplomat"],
        size=n, p=[0.6, 0.18, 0.1, 0.09, 0.02, 0.01],
    )  # fmt: skip
    income = np.exp(7.6 + 0.5 * rng.standard_normal(n))
    amount = np.exp(8.5 + 0.8 * rng.standard_normal(n))
    age = rng.integers(19, 75, n).astype(float)
    late = rng.poisson(0.6, n).astype(float)
    effect = {"self-employed": 0.5, "civil servant": -0.8, "artist": 0.6, "diplomat": -0.5}
    logit = -3.4 + 0.8 * (np.log(amount / income) - 0.9) + 0.6 * late - 0.02 * (age - 45)
    logit += np.array([effect.get(name, 0.0) for name in trade])
    risk = 1 / (1 + np.exp(-logit))
    default = rng.random(n) < risk
    table = pd.DataFrame(
        {"income": income, "amount": amount, "age": age, "late": late, "trade": trade}
    )
    table.loc[rng.random(n) < 0.08 + 0.1 * default, "income"] = np.nan
    table.loc[rng.random(n) < 0.05, "age"] = np.nan
    return table, default.astype(int), risk


rng = np.random.default_rng(2)
table, default, risk = applications(2150, rng)
print(table.head())
print(f"missing incomes: {table['income'].isna().mean():.1%}, defaults: {default.mean():.1%}")

# %%
# From columns to features
# ------------------------
#
# Amounts become logarithms, missing numbers become medians with an indicator, and categories become
# columns. All of this belongs in the pipeline, so that it is learned from training rows only.

X, X_test, y, y_test, _, risk_test = train_test_split(
    table, default, risk, train_size=150, stratify=default, random_state=0
)
numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
features = make_column_transformer(
    (make_pipeline(FunctionTransformer(np.log), numbers), ["income", "amount"]),
    (numbers, ["age", "late"]),
    (OneHotEncoder(handle_unknown="ignore"), ["trade"]),
)
clf = make_pipeline(
    features, BayesianLogisticRegression(prior_scale="learned", n_draws=250, random_state=0)
)
clf.fit(X, y)

# %%
# Is the score any good?
# ----------------------
#
# Beside what one would use otherwise. With 150 applications and ten defaults, a linear model is
# hard to beat.

rivals = {
    "posterior": clf,
    "LogisticRegression": make_pipeline(features, LogisticRegression(max_iter=1000)),
    "gradient boosting": make_pipeline(features, HistGradientBoostingClassifier(random_state=0)),
}
for name, model in rivals.items():
    p = model.fit(X, y).predict_proba(X_test)[:, 1]
    print(f"{name:20} AUROC {roc_auc_score(y_test, p):.3f}  log loss {log_loss(y_test, p):.4f}")

# %%
# Costs
# -----
#
# A loan that is paid back earns 10, and one that defaults costs 90, so a loan pays if the
# probability of a default is below a tenth. A clerk who looks into an application costs 1. The
# clerk is assumed to find out the risk as it would be if the coefficients were known.
#
# For a point estimate the decision is: accept if p < 0.1. A posterior adds a third answer. Each
# draw has a p of its own, and a best decision of its own. How much would be gained, on average over
# the draws, if it were known which draw is true? This is the value of information. If it exceeds
# what the clerk costs, the application is referred.

gain, loss, clerk = 10.0, 90.0, 1.0


def decide(clf, X):
    """Probabilities of default in each draw, and whether to accept and to refer."""
    draws = clf[-1].predict_proba_samples(clf[:-1].transform(X), 1000, random_state=0)[:, :, 1]
    value = gain * (1 - draws) - loss * draws  # of accepting, for each draw and application
    mean = value.mean(axis=0)
    information = np.maximum(value, 0).mean(axis=0) - np.maximum(mean, 0)
    return draws, mean > 0, information > clerk


draws, accept, refer = decide(clf, X_test)
print(f"accepted {np.mean(accept & ~refer):.0%}, referred {refer.mean():.0%}, "
      f"rejected {np.mean(~accept & ~refer):.0%}")  # fmt: skip

# %%
# What the decisions are worth
# ----------------------------
#
# The data are simulated, so the true risk of each application is known, and decisions can be judged
# without the luck of single loans. One table of 150 loans is luck as well: here are five. For the
# comparison, the point estimate may refer applications, too: as many of them, those that are
# nearest to the limit.


def profits(clf, point, X, risk):
    _, accept, refer = decide(clf, X)
    p = point.predict_proba(X)[:, 1]
    limit = gain / (gain + loss)
    borderline = np.argsort(np.argsort(np.abs(p - limit))) < refer.sum()
    known = gain * (1 - risk) - loss * risk
    seen = np.maximum(known, 0) - clerk
    return {
        "accept all": known,
        "point estimate": np.where(p < limit, known, 0),
        "point estimate,\nrefers the borderline": np.where(
            borderline, seen, np.where(p < limit, known, 0)
        ),
        "posterior": np.where(accept, known, 0),
        "posterior,\nrefers by value": np.where(refer, seen, np.where(accept, known, 0)),
        "true risks": np.maximum(known, 0),
    }


totals = {}
for seed in range(5):
    new, defaults, _ = applications(150, np.random.default_rng(10 + seed))
    pair = (clone(rivals[name]).fit(new, defaults) for name in ("posterior", "LogisticRegression"))
    for name, profit in profits(*pair, X_test, risk_test).items():
        totals.setdefault(name, []).append(1000 * profit.mean())
for name, total in totals.items():
    label = name.replace("\n", " ")
    print(f"{label:38} {np.mean(total):6.0f} for 1,000 applications")

# %%
# The decision
# ------------
#
# Left: each application by its probability of default and how much the draws disagree about it.
# Referred are those near the limit, and also some further away whose risk is uncertain; a point
# estimate cannot tell these from others with the same probability. Right: what each rule earns.

fig, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), width_ratios=(1.3, 1))
p, sd = draws.mean(axis=0), draws.std(axis=0)
for k, (name, chosen) in enumerate(
    {"accept": accept & ~refer, "refer": refer, "reject": ~accept & ~refer}.items()
):
    left.plot(p[chosen], sd[chosen], "o^s"[k], color=("C0", "C4", "C1")[k], markersize=3,
              alpha=0.5, label=name)  # fmt: skip
left.axvline(gain / (gain + loss), color="0.4", linewidth=1, linestyle=":")
left.set(xscale="log", yscale="log", xlabel="probability of default", ylabel="sd over the draws")
left.set_xticks([0.01, 0.1, 1.0], ["1%", "10%", "100%"])
left.set_title("Decisions")
left.legend()
place = np.arange(len(totals))
right.barh(place, [np.mean(total) for total in totals.values()], color="C0", alpha=0.7)
for k, total in enumerate(totals.values()):
    right.plot(total, np.full(5, k), ".", color="black", markersize=4)
right.set(yticks=place, yticklabels=list(totals), xlabel="profit for 1,000 applications")
right.set_title("Mean of five tables (dots: each)")
right.invert_yaxis()
plt.show()
