"""Rows of words: fits and summaries of a logistic regression with far more columns than rows.

python examples/benchmarks/text.py
"""

import time
import warnings

import numpy as np
import scipy.sparse as sp
from _common import markdown_table, parse_args, write_results
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

from skbayes_sgmcmc import BayesianLogisticRegression, SparseBayesianClassifier

BODY = """{table}

{n_rows:,} documents of {length:.0f} different words each, {n_words:,} words, two classes, as CSR
rows of `TfidfTransformer`; {n_test:,} more are for the log loss. Words are drawn from Zipf's law,
and a fifth of them are more frequent in one of the classes. Times are processor times of one
thread; that of the first fit includes the import of torch. `summary()` is that of all coefficients.
R-hat is the largest of all coefficients and the intercept, and the effective sample size is the
smallest.

{sparse}
"""
SPARSE = """`SparseBayesianClassifier` with its defaults takes {fit:.0f} s ({target} s is the
target), and {predict:.2g} s for the probabilities of the {n_test:,} other documents, from {draws:,}
draws; log loss {loss:.3f}, {caught} warnings. Rows stay sparse in predictions, too: dense copies
took more than 100 s and a gigabyte."""
#: seconds of a fit with a spike-and-slab prior that are aimed at
TARGET = 60


def documents(n_rows, n_words, rng):
    """TF-IDF rows of documents with lognormal lengths, and their classes."""
    y = rng.integers(0, 2, n_rows)
    share = 1.0 / (np.arange(n_words) + 2.7)
    tilt = 0.5 * rng.standard_normal(n_words) * (rng.random(n_words) < 0.2)
    ends = [np.cumsum(share * np.exp(sign * tilt)) for sign in (-1.0, 1.0)]
    lengths = np.maximum(10, rng.lognormal(np.log(120.0), 0.7, n_rows)).astype(int)
    words = [
        np.searchsorted(ends[c], rng.random(m) * ends[c][-1])
        for c, m in zip(y, lengths, strict=True)
    ]
    row, word = (
        np.repeat(np.arange(n_rows), lengths),
        np.minimum(np.concatenate(words), n_words - 1),
    )
    counts = sp.csr_matrix((np.ones(len(row)), (row, word)), shape=(n_rows, n_words))
    return TfidfTransformer(sublinear_tf=True).fit_transform(counts).tocsr(), y


def timed(call):
    start = time.process_time()
    return call(), time.process_time() - start


def log_loss(p, y):
    return -np.log(p[np.arange(len(y)), y]).mean()


def spike_and_slab(X, y, train, test, most):
    """A paragraph on a fit with a spike-and-slab prior, of so many steps at most."""
    clf = SparseBayesianClassifier(max_steps=most, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, fit = timed(lambda: clf.fit(X[train], y[train]))
    proba, predict = timed(lambda: clf.predict_proba(X[test]))
    return SPARSE.format(
        fit=fit,
        target=TARGET,
        predict=predict,
        n_test=len(proba),
        draws=clf.n_chains_ * clf.n_draws_,
        loss=log_loss(proba, y[test]),
        caught=len(caught),
    )


def main():
    args = parse_args(__doc__, seeds=1, quick_seeds=1)
    n_rows, n_words = (200, 3000) if args.short else (3000, 36_746)
    X, y = documents(2 * n_rows, n_words, np.random.default_rng(0))
    train, test = slice(n_rows), slice(n_rows, None)
    table = []
    for scale in (1.0, 3.0):
        clf = BayesianLogisticRegression(prior_scale=scale, random_state=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, fit = timed(lambda clf=clf: clf.fit(X[train], y[train]))
        if scale == 1.0:
            clf.summary()  # compiled code is made, or read, once
        found, summary = timed(clf.summary)
        table.append(
            [f"`prior_scale={scale:g}`", f"{fit:.2g} s", f"{summary:.2g} s",
             f"{np.max(found['r_hat']):.3f}", f"{np.min(found['ess']):.0f}",
             f"{clf.n_chains_ * clf.n_draws_:,}", f"{len(caught)}",
             f"{log_loss(clf.predict_proba(X[test]), y[test]):.3f}"]
        )  # fmt: skip
        peer = LogisticRegression(C=scale**2, max_iter=1000)
        _, fit = timed(lambda peer=peer: peer.fit(X[train], y[train]))
        loss = log_loss(peer.predict_proba(X[test]), y[test])
        name = f"`LogisticRegression(C={scale**2:g})`"
        table.append([name, f"{fit:.2g} s", "", "", "", "", "", f"{loss:.3f}"])
    head = ["", "fit", "`summary()`", "R-hat", "ESS", "draws", "warnings", "log loss"]
    body = BODY.format(
        table=markdown_table(head, table), n_rows=n_rows, n_words=n_words, n_test=n_rows,
        length=X[train].nnz / n_rows,
        sparse=spike_and_slab(X, y, train, test, 500 if args.short else None),
    )  # fmt: skip
    write_results(args, "text", "Logistic regression of words", body)


if __name__ == "__main__":
    main()
