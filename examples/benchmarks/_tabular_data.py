"""The data sets and splits of ``tabular.py``.

Every set is a function of the seed that returns standardised ``X_train, y_train, X_test, y_test``.
Inputs and real-valued targets are standardised by the training part, so that the scores of
regression are in units of the training targets' standard deviation.
"""

from functools import partial

import numpy as np
from _common import load_a9a, load_australian, load_uci, open_npz
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

A9A_ROWS = 10_000
FRIEDMAN_ROWS = 1000
#: rows of the sets of ``many_rows.py``, of which a fifth is for testing
N_MANY = 37_500
FRIEDMAN = {"friedman1": FRIEDMAN_ROWS, "friedman1_many": N_MANY}
#: arguments of make_classification; each seed makes other data
MADE = {
    "made2": {"n_samples": 1000, "n_features": 20, "n_informative": 5, "n_redundant": 5,
              "flip_y": 0.05},
    "made5": {"n_samples": 2000, "n_features": 20, "n_informative": 10, "n_classes": 5,
              "flip_y": 0.02},
}  # fmt: skip
MADE_MANY = {
    "made5_many": MADE["made5"] | {"n_samples": N_MANY},
    "wide5_many": MADE["made5"] | {"n_samples": N_MANY, "n_features": 60, "n_informative": 20},
}
MANY_SETS = ("friedman1_many", "prices_many", *MADE_MANY)
#: sets of ``early_ends.py`` on which no default was chosen
UNSEEN = {
    "moons": partial(datasets.make_moons, 500, noise=0.3),
    "circles": partial(datasets.make_circles, 800, noise=0.15, factor=0.6),
    "made3": partial(datasets.make_classification, n_samples=600, n_features=12, n_informative=6,
                     n_classes=3, class_sep=0.7),
    "rings": partial(datasets.make_gaussian_quantiles, n_samples=1500, n_features=8, n_classes=4),
    "hastie": partial(datasets.make_hastie_10_2, 2000),
    "mostly_noise": partial(datasets.make_classification, n_samples=300, n_features=10,
                            n_informative=3, flip_y=0.5),
}  # fmt: skip
UCI = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "winered": "wine-quality-red",
    "yacht": "yacht",
}
BUNDLED = {
    "breast_cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
    "digits": datasets.load_digits,
}
REGRESSION = ("airfoil", "bikesharing", *UCI, "diabetes", "friedman1")
CLASSIFICATION = (*BUNDLED, "australian", "a9a", *MADE)
SETS = REGRESSION + CLASSIFICATION
#: the single split of bde's benchmark, of two of the sets; seeds are those of the methods
PUBLISHED_SPLITS = {"airfoil_42": "airfoil", "bikesharing_42": "bikesharing"}


def task_of(name):
    real = PUBLISHED_SPLITS.get(name, name) in (*REGRESSION, *FRIEDMAN, "prices_many")
    return "regression" if real else "classification"


def load_split(name, seed):
    """Standardised X_train, y_train, X_test, y_test, dense, of one seed."""
    if name in PUBLISHED_SPLITS:
        return load_split(PUBLISHED_SPLITS[name], 42)
    if name in UCI:
        X, y, train, test = load_uci(UCI[name])
        parts = X[train[seed]], X[test[seed]], y[train[seed]], y[test[seed]]
    elif name == "a9a":
        return _a9a(seed)
    else:
        X, y = _table(name, seed)
        classes = None if task_of(name) == "regression" else y
        parts = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=classes)
    X_train, X_test, y_train, y_test = parts
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    if task_of(name) == "regression":
        center, scale = y_train.mean(), y_train.std()
        y_train, y_test = (y_train - center) / scale, (y_test - center) / scale
    return X_train, y_train, X_test, y_test


def _table(name, seed):
    if name in BUNDLED:
        return BUNDLED[name](return_X_y=True)
    made = MADE | MADE_MANY
    if name in UNSEEN:
        X, y = UNSEEN[name](random_state=seed)
        return X, (y > 0).astype(int) if name == "hastie" else y
    if name in made:
        return datasets.make_classification(**made[name], random_state=seed)
    if name == "australian":
        return load_australian()
    if name == "prices_many":
        return _prices(seed)
    if name == "diabetes":
        return datasets.load_diabetes(return_X_y=True)
    if name in FRIEDMAN:
        return datasets.make_friedman1(FRIEDMAN[name], noise=1.0, random_state=seed)
    with open_npz("tabular_regression") as data:
        if data is None:
            raise SystemExit("Set SKBAYES_DATA to a folder that holds tabular_regression.npz.")
        return data[f"{name}/X"], data[f"{name}/y"]


def _prices(seed):
    """Prices of stones by weight, three sides and two grades; the noise is a tenth of the price."""
    rng = np.random.default_rng(seed)
    weight = np.exp(rng.normal(-0.4, 0.6, N_MANY))
    sides = np.cbrt(weight)[:, None] * np.exp(0.02 * rng.standard_normal((N_MANY, 3)))
    grades = rng.integers(0, 8, (N_MANY, 2))
    size = np.log(weight)
    log_price = 1.7 * size + 0.08 * grades[:, 0] + 0.1 * grades[:, 1] * (1.0 + 0.2 * size)
    price = np.exp(log_price + 0.1 * rng.standard_t(6, N_MANY))
    return np.column_stack([weight, sides, grades]), price


def _a9a(seed):
    """A9A_ROWS of the training rows, and all test rows; the features are binary, not scaled."""
    X_train, y_train, X_test, y_test = load_a9a()
    rows = np.random.default_rng(seed).permutation(len(y_train))[:A9A_ROWS]
    return X_train[rows].toarray(), y_train[rows], X_test.toarray(), y_test
