"""Wide tables, made from narrow public ones: encodings, products, hashes and counts of words.

``load_wide(name, seed)`` returns X_train, y_train, X_test, y_test. X is as a user would have it
after encoding, not standardised. Real-valued targets are in units of the training targets'
standard deviation. ``random_table(seed)`` draws a source, an encoding and a size.
"""

import numpy as np
from _common import load_a9a, load_australian, load_newsgroups, load_uci, open_npz
from sklearn import datasets
from sklearn.feature_extraction import FeatureHasher
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures

#: rows of a table at most, test rows included
MOST_ROWS = 3000
UCI = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "winered": "wine-quality-red",
}
REGRESSION = ("airfoil", "bikesharing", *UCI, "diabetes")
BUNDLED = {
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "diabetes": datasets.load_diabetes,
}


def source(name):
    """X and y of a narrow table."""
    if name in UCI:
        X, y, _, _ = load_uci(UCI[name])
        return X, y
    if name in BUNDLED:
        return BUNDLED[name](return_X_y=True)
    if name == "australian":
        return load_australian()
    if name == "a9a":
        X, y, _, _ = load_a9a()
        return X[:20_000], y[:20_000]
    if name == "20news":
        return words()
    with open_npz("tabular_regression") as data:
        if data is None:
            raise SystemExit("Set SKBAYES_DATA to a folder that holds tabular_regression.npz.")
        return data[f"{name}/X"], data[f"{name}/y"]


def words(n_groups=5):
    """Counts of words in articles of the first groups."""
    (X, y), *_ = load_newsgroups()
    return X[y < n_groups], y[y < n_groups]


# Encodings: (X, rng, size) to a dense or sparse matrix of about ``size`` columns


def one_hot(X, rng, size):
    """Indicators of the values of every column, or of quantile bins where there are many."""
    most = max(size // X.shape[1], 2)
    columns = [_levels(X[:, j], most) for j in range(X.shape[1])]
    return OneHotEncoder().fit_transform(np.stack(columns, axis=1))


def _levels(x, most):
    if len(np.unique(x)) <= max(most, 30):
        return x
    edges = np.unique(np.quantile(x, np.linspace(0.0, 1.0, most + 1)[1:-1]))
    return np.searchsorted(edges, x)


def products(X, rng, size):
    """Products of columns, of the least degree that gives enough of them."""
    X = X[:, rng.permutation(X.shape[1])[:60]]
    for degree in (2, 3, 4):
        found = PolynomialFeatures(degree, include_bias=False)
        if found.fit(X[:1]).n_output_features_ >= size or degree == 4:
            return found.fit_transform(X)[:, :size]


def hashed(X, rng, size):
    """Pairs of binned values, hashed: signed counts."""
    bins = np.stack([_levels(X[:, j], 12) for j in range(X.shape[1])], axis=1)
    p = min(bins.shape[1], 10)
    pairs = [(i, j) for i in range(p) for j in range(i)]
    names = ([f"{i}={r[i]:g}" for i in range(len(r))] for r in bins)
    crossed = (
        one + [f"{i},{j}={r[i]:g},{r[j]:g}" for i, j in pairs]
        for one, r in zip(names, bins, strict=True)
    )
    return FeatureHasher(size, input_type="string").transform(crossed)


def crossed(X, rng, size):
    """Indicators of pairs of levels of the columns with the fewest, and the columns themselves."""
    few = np.argsort([len(np.unique(x)) for x in X.T])
    parts = [X]
    for i, a in enumerate(few):
        for b in few[:i]:
            if sum(part.shape[1] for part in parts) >= size:
                break
            one, other = _levels(X[:, a], 15), _levels(X[:, b], 15)
            both = np.unique(np.stack([one, other]), axis=1, return_inverse=True)[1].reshape(-1, 1)
            parts.append(OneHotEncoder(sparse_output=False).fit_transform(both))
    return np.concatenate(parts, axis=1)


def counts(X, rng, size):
    """The most frequent words, or columns."""
    often = np.argsort(-np.asarray((X > 0).sum(0)).ravel())[:size]
    return X[:, np.sort(often)]


ENCODINGS = {f.__name__: f for f in (one_hot, products, hashed, crossed, counts)}
#: source, encoding, columns asked for; the first ones were used to choose, the others to report
CHOOSING = {
    "bikesharing_one_hot": ("bikesharing", "one_hot", 250),
    "airfoil_one_hot": ("airfoil", "one_hot", 200),
    "diabetes_products": ("diabetes", "products", 285),
    "winered_hashed": ("winered", "hashed", 512),
    "winered_hashed_1024": ("winered", "hashed", 1024),
    "australian_crossed": ("australian", "crossed", 300),
    "20news_300": ("20news", "counts", 300),
}
REPORTING = {
    "bikesharing_crossed": ("bikesharing", "crossed", 400),
    "bikesharing_hashed": ("bikesharing", "hashed", 256),
    "concrete_products": ("concrete", "products", 164),
    "concrete_one_hot": ("concrete", "one_hot", 200),
    "boston_products": ("boston", "products", 559),
    "winered_one_hot": ("winered", "one_hot", 220),
    "energy_hashed": ("energy", "hashed", 256),
    "breast_cancer_products": ("breast_cancer", "products", 495),
    "digits_one_hot": ("digits", "one_hot", 1000),
    "a9a_columns": ("a9a", "counts", 123),
    "20news_1000": ("20news", "counts", 1000),
    "20news_2000": ("20news", "counts", 2000),
}
SETS = CHOOSING | REPORTING


def is_regression(name):
    return SETS[name][0] in REGRESSION


def load_wide(name, seed):
    return split(*SETS[name], seed)


def split(name, encoding, size, seed, most_rows=MOST_ROWS):
    X, y = source(name)
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(y))[:most_rows])
    X = ENCODINGS[encoding](X[rows], rng, size)
    X = X.toarray() if hasattr(X, "toarray") else X
    real = name in REGRESSION
    y = y[rows] if real else np.unique(y[rows], return_inverse=True)[1]
    parts = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=None if real else y)
    X_train, X_test, y_train, y_test = parts
    if real:
        center, scale = y_train.mean(), y_train.std()
        y_train, y_test = (y_train - center) / scale, (y_test - center) / scale
    return X_train, y_train, X_test, y_test


def random_table(seed):
    """Its description, and the same as ``load_wide``: 100 to 600 columns, 200 to 800 rows."""
    rng = np.random.default_rng([7, seed])
    names = (*REGRESSION, *REGRESSION, "australian", "breast_cancer", "digits", "20news")
    name = str(rng.choice(names))
    kinds = {"20news": ("counts",)}.get(name, ("one_hot", "products", "hashed", "crossed"))
    kind = str(rng.choice(kinds))
    size = int(np.exp(rng.uniform(np.log(100), np.log(600))))
    n_rows = int(rng.integers(200, 800))
    return (name, kind, size, n_rows), split(name, kind, size, seed, n_rows)
