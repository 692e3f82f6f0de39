"""
A stream that is never held in memory
=====================================

Rows that arrive in chunks update the posterior. The estimator keeps a bounded number of them, and
its intervals shrink as they should.
"""

# %%
# Two hundred chunks of 500 rows. The generator stands for a file or a queue that is larger than
# memory.

import pickle
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

from skbayes_sgmcmc import BayesianLogisticRegression, SamplingWarning

coef = np.array([1.5, -1.0, 0.5, 0.0, 0.0])


def chunks(n_chunks, rng):
    for _ in range(n_chunks):
        X = rng.standard_normal((500, len(coef)))
        yield X, (rng.random(500) < 1 / (1 + np.exp(-X @ coef))).astype(int)


rng = np.random.default_rng(0)
((X_test, y_test),) = chunks(1, rng)

# %%
# Each call of ``partial_fit`` sees one chunk. Rows are kept until a Gaussian can replace them, and
# it is then the prior for later rows. A first chunk of 500 rows gives few draws; the warning about
# them is expected.

warnings.simplefilter("ignore", SamplingWarning)
clf = BayesianLogisticRegression(prior_scale=3.0, n_draws=200, random_state=0)
sgd = SGDClassifier(loss="log_loss", average=True, random_state=0)
record = []
for k, (X, y) in enumerate(chunks(200, rng)):
    clf.partial_fit(X, y, classes=[0, 1])
    sgd.partial_fit(X, y, classes=[0, 1])
    draws = clf.posterior_["coef"].reshape(-1, len(coef))
    record.append(
        {
            "rows": 500 * (k + 1),
            "mean": draws.mean(axis=0),
            "interval": np.quantile(draws, [0.05, 0.95], axis=0),
            "loss": log_loss(y_test, clf.predict_proba(X_test)),
            "sgd": log_loss(y_test, sgd.predict_proba(X_test)),
            "MB": len(pickle.dumps(clf)) / 1e6,
        }
    )

# %%
# The stream and a fit of all its rows at once should agree.

rng = np.random.default_rng(0)
next(chunks(1, rng))
everything = list(chunks(200, rng))
together = BayesianLogisticRegression(prior_scale=3.0, random_state=0).fit(
    np.concatenate([X for X, _ in everything]), np.concatenate([y for _, y in everything])
)
for name, model in {"stream": clf, "all at once": together}.items():
    draws = model.posterior_["coef"].reshape(-1, len(coef))
    print(f"{name:12} means {draws.mean(axis=0).round(3)}  sds {draws.std(axis=0).round(4)}")

# %%
# Left: the coefficients (dashed: the truth) with 90% intervals. Middle: the log loss of 500 other
# rows, beside that of averaged stochastic gradient descent. Right: the size of the pickled
# estimator, beside that of all rows so far. It falls each time that a Gaussian replaces rows.

rows = np.array([entry["rows"] for entry in record])
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(10.5, 3.8), width_ratios=(1.5, 1, 1))
for j in range(len(coef)):
    low, high = np.array([entry["interval"][:, j] for entry in record]).T
    left.fill_between(rows, low, high, color=f"C{j}", alpha=0.3, linewidth=0)
    left.plot(rows, [entry["mean"][j] for entry in record], color=f"C{j}")
    left.axhline(coef[j], color="black", linestyle="--", linewidth=0.7)
left.set(title="Coefficients", xlabel="rows so far", xscale="log")
middle.plot(rows, [entry["loss"] for entry in record], label="posterior")
middle.plot(rows, [entry["sgd"] for entry in record], label="SGDClassifier")
middle.set(title="Log loss of other rows", xlabel="rows so far", xscale="log")
middle.legend()
right.plot(rows, [entry["MB"] for entry in record], label="estimator")
right.plot(rows, 8e-6 * (len(coef) + 1) * rows, color="gray", linestyle=":", label="all rows")
right.set(title="Size (MB)", xlabel="rows so far")
right.legend()
plt.show()
