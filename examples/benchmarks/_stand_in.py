"""Small stand-ins for the benchmarks' data sets, with which ``--quick`` runs everywhere.

They have the arrays of the files in ``SKBAYES_DATA``, by name, and are made of scikit-learn's own
data or of random numbers. They show that a benchmark runs; its numbers mean nothing.
"""

import io
import itertools
from functools import partial

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_friedman1

#: whether stand-ins may be used: ``parse_args`` sets it for ``--quick``
wanted = False
#: names of the data sets for which one was used
used: list[str] = []

N_SPLITS = 20


def arrays(name):
    """The arrays of a data set's file, as a dict."""
    if name not in used:
        used.append(name)
    return MAKERS[name]()


def australian():
    X, y = load_breast_cancer(return_X_y=True)
    return {"X": X[:, :14], "y": y}


def a9a():
    """Rows of 14 ones among 123 columns, one in each group of columns."""
    rng = np.random.default_rng(0)
    n_features, n_ones = 123, 14
    starts = np.linspace(0, n_features, n_ones + 1).astype(int)
    coef = rng.normal(size=n_features)
    data = {"n_features": n_features}
    for part, n in (("train", 2000), ("test", 1000)):
        columns = [rng.integers(low, high, n) for low, high in itertools.pairwise(starts)]
        columns = np.column_stack(columns)
        data[f"indices_{part}"] = columns.ravel()
        data[f"indptr_{part}"] = n_ones * np.arange(n + 1)
        logit = coef[columns].sum(axis=1)
        data[f"y_{part}"] = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-logit)), 1, -1)
    return data


def digits(size):
    """Scikit-learn's digits, three times as large and with a margin: uint8 images by part."""
    X, y = load_digits(return_X_y=True)
    images = np.kron(X.reshape(-1, 8, 8) * (255.0 / 16.0), np.ones((3, 3)))
    margin = (size - 24) // 2
    images = np.pad(images, ((0, 0), (margin, margin), (margin, margin))).astype(np.uint8)
    parts = (("train", slice(0, 1500)), ("test", slice(1500, None)))
    return {part: (images[rows], y[rows]) for part, rows in parts}


def mnist():
    data = {}
    for part, (images, y) in digits(28).items():
        data |= {f"X_{part}": images, f"y_{part}": y}
    return data


def cifar10():
    from PIL import Image

    data = {}
    for part, (images, y) in digits(32).items():
        files = []
        for image in images:
            file = io.BytesIO()
            Image.fromarray(np.repeat(image[:, :, None], 3, axis=2)).save(file, "JPEG")
            files.append(file.getvalue())
        data[f"bytes_{part}"] = np.frombuffer(b"".join(files), np.uint8)
        data[f"offsets_{part}"] = np.cumsum([0, *map(len, files)])
        data[f"y_{part}"] = y
    return data


def documents(parts, n_words=500, n_topics=10):
    """Word counts of documents, of few topics with few words; groups are main topics."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(n_words, 0.05), n_topics)
    data = {"vocab": np.array([f"word{w}" for w in range(n_words)])}
    data["groups"] = np.array([f"group{topic}" for topic in range(n_topics)])
    for end, n in parts.items():
        weights = rng.dirichlet(np.full(n_topics, 0.2), n)
        p, data[f"y{end}"] = weights @ topics, weights.argmax(axis=1)
        counts = np.stack([rng.multinomial(100, row / row.sum()) for row in p])
        data[f"counts{end}"] = counts[counts > 0]
        data[f"indices{end}"] = np.nonzero(counts)[1]
        data[f"indptr{end}"] = np.cumsum([0, *(counts > 0).sum(axis=1)])
    return data


def uci():
    rng = np.random.default_rng(0)
    X, y = load_diabetes(return_X_y=True)
    orders = np.stack([rng.permutation(len(y)) for _ in range(N_SPLITS)])
    n_test = len(y) // 10
    data = {}
    for name in ("bostonHousing", "yacht", "energy", "wine-quality-red", "concrete"):
        data |= {f"{name}/X": X, f"{name}/y": y / 10.0}
        data |= {f"{name}/train": orders[:, n_test:], f"{name}/test": orders[:, :n_test]}
    return data


def tabular():
    data = {}
    for seed, name in enumerate(("airfoil", "bikesharing")):
        data[f"{name}/X"], data[f"{name}/y"] = make_friedman1(300, random_state=seed)
    return data


MAKERS = {
    "australian": australian,
    "a9a": a9a,
    "mnist": mnist,
    "fashion_mnist": mnist,
    "cifar10_jpeg": cifar10,
    "uci_regression": uci,
    "tabular_regression": tabular,
    "20news_bow": partial(documents, {"_train": 400, "_test": 100}),
    "nips_bow": partial(documents, {"_train": 400, "_test": 100}),
    "reuters_bow": partial(documents, {"": 300}),
}
