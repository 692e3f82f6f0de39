"""Fits of default estimators on a device, each in a process of its own, as a user meets them.

    python examples/benchmarks/_gpu_fits.py "MLP digits" cuda

prints the seconds of the fit, with the first use of CUDA and of compiled functions in them, but
without imports.
"""

import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

#: seconds after which a fit is stopped
LIMIT = 20.0
STEPS = 1000


def digits(**settings):
    from sklearn.datasets import load_digits

    return settings, *load_digits(return_X_y=True)


def breast_cancer():
    from sklearn.datasets import load_breast_cancer

    return {}, *load_breast_cancer(return_X_y=True)


def a9a():
    from _common import load_a9a

    return {}, *load_a9a()[:2]


def diabetes():
    from sklearn.datasets import load_diabetes

    return {}, *load_diabetes(return_X_y=True)


def counts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 10))
    return {"likelihood": "poisson"}, X, rng.poisson(np.exp(0.3 * X @ rng.normal(size=10)))


def sparse():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 200))
    return {}, X, np.tanh(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=100)


def documents():
    """1,000 documents of about 70 words, from ten topics."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(2000, 0.05), 10)
    shares = rng.dirichlet(np.full(10, 0.3), 1000)
    return {}, rng.poisson(70.0 * shares @ topics), None


def module(n_features, n_outputs):
    from torch import nn

    return nn.Sequential(nn.Linear(n_features, 100), nn.ReLU(), nn.Linear(100, n_outputs))


#: label -> name of the estimator, and its settings and rows
FITS = {
    "logistic breast_cancer": ("BayesianLogisticRegression", breast_cancer),
    "logistic a9a": ("BayesianLogisticRegression", a9a),
    "Poisson GLM": ("BayesianGLMRegressor", counts),
    "MLP regressor diabetes": ("BayesianMLPRegressor", diabetes),
    "MLP digits": ("BayesianMLPClassifier", digits),
    "CNN digits": ("BayesianCNNClassifier", lambda: digits(max_steps=STEPS)),
    "module digits": ("BayesianModuleClassifier", lambda: digits(module=module, max_steps=STEPS)),
    "sparse regressor": ("SparseBayesianRegressor", sparse),
    "LDA": ("LatentDirichletAllocation", documents),
}


def made(label, **settings):
    """The estimator of a fit, not fitted, and its rows."""
    import skbayes_sgmcmc

    name, load = FITS[label]
    own, X, y = load()
    return getattr(skbayes_sgmcmc, name)(random_state=0, **own | settings), X, y


def fit(label, device, small=False):
    """Seconds of one fit."""
    estimator, X, y = made(label, device=device, **{"max_steps": 20} if small else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        estimator.fit(X, y)
        seconds = time.perf_counter() - start
    return {"wall": seconds, "took": estimator.device_}


def numbers(label, device, small=False):
    """The same in a process of its own, if it ends before the limit."""
    if small:
        return fit(label, device, small)
    command = [sys.executable, __file__, label, device]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT + 10.0, check=True
        )
    except subprocess.TimeoutExpired:
        return {"wall": None, "more_than": LIMIT}
    except subprocess.CalledProcessError as error:
        raise RuntimeError(error.stderr[-2000:]) from None
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(fit(*sys.argv[1:3])))
