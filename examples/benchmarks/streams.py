"""One pass of a stream in several orders, beside a fit of all rows and scikit-learn's SGD.

    SKBAYES_DATA=folder python examples/benchmarks/streams.py

a9a is read from the folder, or else from OpenML.
"""

import time
import warnings

import numpy as np
import torch
from _common import load_a9a, markdown_table, parse_args, write_results
from scipy.special import expit
from sklearn.linear_model import SGDClassifier

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc._limits import LIMITS

ROWS_OF_CALL = 1000
ORDERS = "shuffled", "by a feature", "one class in each call", "by label"
BODY = """{tables}

Logistic regression with the defaults, calls of {rows_of_call:,} rows, each seen once. Distance: the
largest distance of a mean from that of `fit` with all rows, over coefficients and intercept, in
posterior sds; sds: the smallest and the largest ratio to those of `fit`. Both have a Monte Carlo
error: of {n_means} means, the largest of errors with an sd of 0.05 is about 0.13. Kept: rows in the
state after the last call. ms: processor time of a call, on average. Made rows have {n_features}
features, standard normal or binary ones with means of 0.01 to 0.5, and 35% of one class. a9a is a
real table of 32,561 rows and 123 binary features, of which some occur in few rows.

"No rows kept" is what this package did before, a Gaussian after every call. SGD is scikit-learn's
`SGDClassifier(loss="log_loss", average=True)` by `partial_fit`, which has no uncertainty; its
distance is in the same sds.

Rows that are not in random order are kept, up to a million numbers; beyond, half as many rows stand
for all of them, with weights that preserve first and second moments. What these leave out grows
with the root of the rows for which one stands: {far}. Rows in random order become a Gaussian when
it says the same. "One class in each call" has calls of either class, in random order."""


def rows_of(kind, n_rows, n_features):
    """Features and classes."""
    if kind == "a9a":
        X, y, _, _ = load_a9a()
        return X[:n_rows], y[:n_rows]
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n_rows, n_features))
    if kind == "binary":
        X = (rng.random((n_rows, n_features)) < rng.uniform(0.01, 0.5, n_features)).astype(float)
    w = rng.standard_normal(n_features) * 1.5 / np.sqrt(n_features)
    return X, (rng.random(n_rows) < expit(X @ w - 0.7)).astype(int)


def in_order(order, X, y):
    """The rows' numbers in this order."""
    if order == "by a feature":
        first = X[:, [0]].toarray().ravel() if hasattr(X, "toarray") else X[:, 0]
        return np.argsort(first, kind="stable")
    if order == "by label":
        return np.argsort(y, kind="stable")
    shuffled = np.random.default_rng(0).permutation(len(y))
    if order == "shuffled":
        return shuffled
    calls = []
    for k in (0, 1):
        of_class = shuffled[y[shuffled] == k]
        calls += np.split(of_class, range(ROWS_OF_CALL, len(of_class), ROWS_OF_CALL))
    return np.concatenate([calls[i] for i in np.random.default_rng(1).permutation(len(calls))])


def fed(model, X, y):
    """Seconds of one pass, for each call."""
    began = time.process_time()
    for start in range(0, len(y), ROWS_OF_CALL):
        part = slice(start, start + ROWS_OF_CALL)
        model.partial_fit(X[part], y[part], classes=[0, 1])
    return (time.process_time() - began) / -(-len(y) // ROWS_OF_CALL)


def parameters(model):
    return np.concatenate([model.coef_.ravel(), model.intercept_])


def deviations(model):
    posterior = model.posterior_
    return np.concatenate([posterior.std(name).ravel() for name in ("coef", "intercept")])


def line(order, X, y, full, args):
    """One order: ours, ours without kept rows, and SGD."""
    index = in_order(order, X, y)
    X, y, sd, cells = X[index], y[index], deviations(full), []
    limits = LIMITS.kept_numbers, LIMITS.kept_per_parameter
    for keep in (True, False):
        LIMITS.kept_numbers, LIMITS.kept_per_parameter = limits if keep else (0, 0)
        model = BayesianLogisticRegression(prior_scale=1.0, random_state=1)
        seconds = fed(model, X, y)
        distance = np.abs((parameters(model) - parameters(full)) / sd).max()
        ratio = deviations(model) / sd
        cells += [f"{distance:.2f}", f"{ratio.min():.2f} to {ratio.max():.2f}"]
        if keep:
            rows = model._chain_state.memory.rows
            cells += [f"{0 if rows is None else rows.n_rows:,}", f"{1e3 * seconds:.0f}"]
    LIMITS.kept_numbers, LIMITS.kept_per_parameter = limits
    peer = SGDClassifier(loss="log_loss", average=True, random_state=0)
    fed(peer, X, y)
    return [order, *cells, f"{np.abs((parameters(peer) - parameters(full)) / sd).max():.0f}"]


def table_of(kind, n_rows, args):
    X, y = rows_of(kind, n_rows, args.n_features)
    full = BayesianLogisticRegression(prior_scale=1.0, random_state=0).fit(X, y)
    words = ["distance", "sds", "kept", "ms", "no rows kept", "sds", "SGD"]
    lines = [line(order, X, y, full, args) for order in ORDERS]
    return markdown_table([f"{kind}, {len(y):,} x {X.shape[1]}", *words], lines)


def main():
    warnings.simplefilter("ignore")  # of streams that have not mixed yet, and of their order
    torch.set_num_threads(1)
    args = parse_args(__doc__, 1, 1)
    args.n_features = 5 if args.quick else 20
    sizes = [("normal", 3000)] if args.quick else SIZES
    tables = [table_of(kind, n_rows, args) for kind, n_rows in sizes]
    body = BODY.format(
        tables="\n\n".join(tables),
        rows_of_call=ROWS_OF_CALL,
        n_features=args.n_features,
        n_means=args.n_features + 1,
        far="the lines of 200,000 rows by label",
    )
    write_results(args, "streams", "Streams in several orders", body)


SIZES = ("normal", 10_000), ("normal", 200_000), ("binary", 200_000), ("a9a", 32_561)


if __name__ == "__main__":
    main()
