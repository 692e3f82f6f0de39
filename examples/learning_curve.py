"""A search over samplers and step sizes of a Bayesian network, and four views of the best one.

    python examples/learning_curve.py [figure.png]

The data are scikit-learn's digits: 1797 images of 8 x 8 pixels. Budgets are small, so that it all
takes less than a minute on two cores. Networks are searched and scored like any other estimator of
scikit-learn, by cross-validation of the log-likelihood of the averaged prediction.
"""

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianMLPClassifier, SamplingWarning
from skbayes_sgmcmc.inspection import (
    EntropyHistogramDisplay,
    LearningCurveDisplay,
    ReliabilityDisplay,
    WeightHistogramDisplay,
)

FIGURE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png")

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)

# 1. Search. Few draws from few steps: enough to tell a good step size from a bad one, but not for
# chains to agree. Each fit says so, which need not be read six times over.
warnings.simplefilter("ignore", SamplingWarning)
network = BayesianMLPClassifier(
    hidden_layer_sizes=50, n_chains=4, burn_in=500, n_draws=25, thinning=20, random_state=0
)
search = GridSearchCV(
    make_pipeline(StandardScaler(), network),
    [
        {
            "bayesianmlpclassifier__sampler": ["psgld"],
            "bayesianmlpclassifier__step_size": [1e-3, 3e-3, 1e-2],
        },
        {
            "bayesianmlpclassifier__sampler": ["sgld"],
            "bayesianmlpclassifier__step_size": [3e-2, 1e-1, 3e-1],
        },
    ],
    scoring="neg_log_loss",
    cv=2,
    n_jobs=2,
)
search.fit(X_train, y_train)

print(f"{'sampler':10}{'step size':>10}{'NLL of 2 folds':>16}{'rank':>6}")
results = search.cv_results_
for parameters, score, rank in zip(
    results["params"], results["mean_test_score"], results["rank_test_score"], strict=True
):
    sampler, step_size = parameters.values()
    print(f"{sampler:10}{step_size:10.4f}{-score:16.4f}{rank:6}")

# 2. Held-out images: what averaging over draws and over chains is worth.
figure, axes = plt.subplots(2, 2, figsize=(13, 8.5), layout="constrained")
curves = LearningCurveDisplay.from_estimator(
    search, X_test, y_test, per_chain=True, name="all chains", ax=axes[0, 0]
)
best = search.best_estimator_[-1]
print(f"\n{f'{len(y_test)} held-out images':30}{'error':>8}{'NLL':>8}")
for label, values, t in (
    ("one draw", curves.chain_values, 0),
    ("all draws of one chain", curves.chain_values, -1),
    ("all draws of all chains", curves.values, -1),
):
    error, nll = (values[metric][..., t].mean() for metric in ("error", "nll"))
    print(f"{label:30}{error:8.4f}{nll:8.4f}")
print(f"({best.n_chains_} chains x {best.n_draws_} draws; of one chain: the mean over chains)\n")

# 3. Is it as often right as it is sure to be?
reliability = ReliabilityDisplay.from_estimator(search, X_test, y_test, n_bins=10, ax=axes[0, 1])
print(f"expected calibration error     {reliability.expected_calibration_error:.4f}")

# 4. Does it know what it does not know? Images with shuffled pixels are no digits.
shuffled = np.random.default_rng(0).permuted(X_test, axis=1)
entropies = EntropyHistogramDisplay.from_estimator(
    search, X_test, shuffled, labels=("digits", "shuffled pixels"), ax=axes[1, 0]
)
print(f"AUROC of digits and no digits  {entropies.auroc:.4f}")

# 5. The posterior of each layer's weights.
WeightHistogramDisplay.from_estimator(search, ["weight_1", "weight_2"], ax=axes[1, 1])

figure.savefig(FIGURE, dpi=100)
print(f"\nFigure written to {FIGURE}")
