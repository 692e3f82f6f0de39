"""
A search over step sizes, and its learning curves
=================================================

A step size given as a number can be searched like any other parameter. Learning curves show what
it buys: how soon the averaged prediction is good, and how good it becomes.
"""

# %%
# By default the step size is found from the data, and no search is needed. This example gives a
# number instead, as the papers do, to plain SGLD on a small network of digits.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skbayes_sgmcmc import BayesianMLPClassifier, SamplingWarning
from skbayes_sgmcmc.inspection import LearningCurveDisplay

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)

# %%
# The chains are short, which is enough to tell good step sizes from bad ones, but not for them to
# agree. Each fit would warn of it, and is told not to.

network = BayesianMLPClassifier(
    hidden_layer_sizes=30,
    prior_scale="fan_in",
    sampler="sgld",
    n_chains=2,
    burn_in=200,
    n_draws=40,
    thinning=10,
    random_state=0,
)
step_sizes = [0.01, 0.03, 0.1, 0.3, 1.0]
search = GridSearchCV(
    make_pipeline(MinMaxScaler(), network),
    {"bayesianmlpclassifier__step_size": step_sizes},
    scoring="neg_log_loss",
    cv=2,
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", SamplingWarning)
    search.fit(X, y)
print("best:", search.best_params_)

# %%
# For the curves, every step size is fitted once more on all training rows. Their test rows played
# no part in the search.

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), width_ratios=(1, 1.5))
scores = -search.cv_results_["mean_test_score"]
folds = [-search.cv_results_[f"split{fold}_test_score"] for fold in range(search.n_splits_)]
left.plot(step_sizes, np.transpose(folds), ".", color="0.6")
left.plot(step_sizes, scores, "o-", color="black")
left.set(
    title="2-fold cross-validation (dots: folds)",
    xlabel="step size",
    ylabel="log loss",
    xscale="log",
    ylim=(0.0, None),
)
for k, step_size in enumerate(step_sizes):
    pipe = clone(search.estimator).set_params(bayesianmlpclassifier__step_size=step_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        pipe.fit(X, y)
    LearningCurveDisplay.from_estimator(
        pipe, X_test, y_test, metric="nll", ax=right, name=f"{step_size:g}", color=f"C{k}"
    )
right.set(title="Average of the first draws, on test rows", ylabel="log loss", ylim=(0.0, None))
right.legend(title="step size", ncols=2)
plt.show()
