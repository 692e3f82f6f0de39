"""
A search over the scale of a prior
==================================

The prior of a logistic regression has a scale, which is learned by default. A grid search can
choose it by cross-validation, too, like any other parameter. How much does it matter, and how does
the result compare with scikit-learn's logistic regression?
"""

# %%
# Thirty measurements of cells tell benign from malignant tumours. The features are standardised,
# because a given scale is the prior sd of each coefficient. Short chains are enough to compare
# scales.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)

scales = np.array([0.1, 0.3, 1.0, 3.0, 10.0])
search = GridSearchCV(
    make_pipeline(
        StandardScaler(), BayesianLogisticRegression(n_chains=2, n_draws=400, random_state=0)
    ),
    {"bayesianlogisticregression__prior_scale": scales},
    scoring="neg_log_loss",
    cv=3,
).fit(X, y)
print("best scale:", search.best_params_["bayesianlogisticregression__prior_scale"])

# %%
# The penalty of scikit-learn's :class:`~sklearn.linear_model.LogisticRegression` is the same prior
# with ``C = prior_scale**2``, but it takes the mode of the posterior instead of averaging over it.
# The same search over it, and both on test rows that no search has seen:

mode = GridSearchCV(
    make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
    {"logisticregression__C": scales**2},
    scoring="neg_log_loss",
    cv=3,
).fit(X, y)
for name, found in {"posterior": search, "mode": mode}.items():
    print(f"{name:9} log loss on test rows {-found.score(X_test, y_test):.3f}")

# %%
# By default, the scale is sampled along with the coefficients, without a search: the dashed line.
# Near the best scale the two models are alike. With too wide a prior, the mode becomes
# overconfident, and the average over the posterior much less so. Leave the step size out of
# searches: the fit finds it from the data.

learned = clone(search.estimator).set_params(bayesianlogisticregression__prior_scale="auto")
without_search = log_loss(y_test, learned.fit(X, y).predict_proba(X_test))
print(f"learned   log loss on test rows {without_search:.3f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), sharey=True)
for name, found in {"posterior": search, "mode": mode}.items():
    left.plot(scales, -found.cv_results_["mean_test_score"], "o-", label=name)
    losses = [
        log_loss(y_test, clone(found.estimator).set_params(**each).fit(X, y).predict_proba(X_test))
        for each in found.cv_results_["params"]
    ]
    right.plot(scales, losses, "o-", label=name)
right.axhline(without_search, linestyle="--", color="C2", label="scale learned, no search")
left.set(title="3-fold cross-validation", ylabel="log loss")
right.set(title="Test rows")
for ax in (left, right):
    ax.set(xlabel="prior scale", xscale="log", ylim=(0.0, None))
right.legend()
plt.show()
