"""What the benchmarks of logistic regression share: fits, draws of single chains, references."""

import time
import warnings

import numpy as np
import sklearn.datasets
from _common import REPOSITORY, load_a9a, load_australian
from scipy.special import expit
from sklearn.preprocessing import StandardScaler

from skbayes_sgmcmc import BayesianLogisticRegression, SamplingError, SamplingWarning
from skbayes_sgmcmc.diagnostics import effective_sample_size, r_hat

REFERENCES = REPOSITORY / "tests" / "data" / "reference_posteriors.npz"
PARTS = ("coef", "intercept")


def dense_a9a():
    """X_train, y_train, X_test, y_test; dense, since 123 columns are then three times faster."""
    X_train, y_train, X_test, y_test = load_a9a()
    return X_train.toarray(), y_train, X_test.toarray(), y_test


def fit(X, y, **parameters):
    """A fitted estimator (None if every chain diverged) and the seconds of its fit.

    Warnings of slow mixing and of single diverged chains are silenced: the tables say both.
    """
    model = BayesianLogisticRegression(**parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        start = time.perf_counter()
        try:
            model.fit(X, y)
        except SamplingError:
            model = None
        return model, time.perf_counter() - start


def flat_draws(posterior):
    """Draws of coefficients and intercepts side by side, (chains, draws, parameters)."""
    parts = [posterior["coef"], posterior["intercept"]]
    return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=2)


def smallest_ess(posterior, method="bulk"):
    return min(
        np.nanmin(effective_sample_size(posterior, name, method)) for name in posterior.draws
    )


def largest_r_hat(posterior):
    return max(np.nanmax(r_hat(posterior, name)) for name in posterior.draws)


def chain_probabilities(posterior, chain, X):
    """P(y = 1) of every row by every draw of one chain of a binary model, (draws, rows)."""
    coef, intercept = posterior["coef"][chain, :, 0], posterior["intercept"][chain]
    return expit(coef @ X.T + intercept)


def running_average(p, weights=None):
    """Averages of the first 1, 2, ... draws of p (draws, rows)."""
    w = np.ones(len(p)) if weights is None else weights
    return np.cumsum(w[:, None] * p, axis=0) / np.cumsum(w)[:, None]


def error(y, p):
    """Fraction of rows on the wrong side, for P(y = 1) with the rows last."""
    return np.mean((p > 0.5) != y, axis=-1)


def log_loss(y, p):
    """Mean negative log-likelihood of labels 0 and 1, for P(y = 1) with the rows last."""
    chosen = np.where(y == 1, p, 1.0 - p)
    return -np.mean(np.log(np.maximum(chosen, 1e-300)), axis=-1)


def load_reference(name):
    """X, y, the estimator's prior, and the means and sds of a long NUTS run.

    The data are prepared as in ``tests/data/make_reference_posteriors.py``.
    """
    if name == "a9a":
        X, y, _, _ = dense_a9a()
    else:
        if name.startswith("australian"):
            X, y = load_australian()
        else:
            X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
        if name != "iris":
            X = StandardScaler().fit_transform(X)
    with np.load(REFERENCES) as saved:
        mean, sd = (
            np.concatenate([saved[f"{name}/{part}_{stat}"].ravel() for part in PARTS])
            for stat in ("mean", "sd")
        )
        prior = {"prior": "laplace" if name.endswith("laplace") else "normal"}
        prior["prior_scale"] = float(saved[f"{name}/prior_scale"])
    return X, y, prior, mean, sd
