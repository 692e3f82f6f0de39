"""Rows of words: fits and summaries of a logistic regression with far more columns than rows.

python examples/benchmarks/text.py
"""

import time
import warnings
from functools import partial

import numpy as np
import scipy.sparse as sp
from _common import load_newsgroups, markdown_table, parse_args, write_results
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

from skbayes_sgmcmc import BayesianLogisticRegression, SparseBayesianClassifier

BODY = """{table}

{n_rows:,} documents of {length:.0f} different words each, {n_words:,} words, two classes, as CSR
rows of `TfidfTransformer`; {n_test:,} more are for the log loss. Words are drawn from Zipf's law,
and a fifth of them are more frequent in one of the classes. Times are processor times of one
thread; that of the first fit includes the import of torch. `summary()` is that of all coefficients.
R-hat is the largest of all coefficients and the intercept, and the effective sample size is the
smallest.

{sparse}

{groups}
"""
GROUPS = """## Real documents, and a scale that is learned

{table}

Two groups of 20 Newsgroups, {n_rows} of their documents for the fit and all their test documents
for the scores, with the 2,000 words of the file in `SKBAYES_DATA`: log loss, error, and processor
time of the fit. "CV" is `LogisticRegressionCV` with `scoring="neg_log_loss"`.

Ten features or more that are mostly zero, with entries of one size, have one scale: the root mean
square of their standard deviations. Before, a word's effect was in units of one over its own
standard deviation, and the rarest words had the largest effects. Log losses of "learned" were then
.564, .592, .449 and .456 in the order of the table, and those of the spike-and-slab prior .422 and
.471 for the first two groups. On 300 and 1,000 rows of a9a, whose columns are indicators, "learned"
has .355 and .339 instead of .365 and .345 (CV .352 and .339). Tried: a word's size where it occurs,
which is its standard deviation over the root of the share of documents that have it. That was as
good for TF-IDF (.456 for the first two groups), and worse for their counts (.504): a word that
comes often in one document says much.
"""
SPARSE = """`SparseBayesianClassifier` with its defaults takes {fit:.0f} s ({target} s is the
target), and {predict:.2g} s for the probabilities of the {n_test:,} other documents, from {draws:,}
draws; log loss {loss:.3f}, {caught} warnings. Rows stay sparse in predictions, too: dense copies
took more than 100 s and a gigabyte."""
#: pairs of groups whose subjects are near each other, by their numbers
PAIRS = ((1, 2), (8, 9))
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


def newsgroups(n_rows, pairs):
    """A section on pairs of groups of real documents."""
    *parts, names = load_newsgroups()
    rng, table = np.random.default_rng(0), []
    for pair in pairs:
        chosen = [np.flatnonzero(np.isin(y, pair)) for _, y in parts]
        chosen[0] = rng.permutation(chosen[0])[:n_rows]
        counts, targets = zip(
            *((X[rows].astype(float), (y[rows] == pair[1]).astype(int))
              for (X, y), rows in zip(parts, chosen, strict=True)),
            strict=True,
        )  # fmt: skip
        tfidf = TfidfTransformer(sublinear_tf=True).fit(counts[0])
        for kind, rows in (("TF-IDF", [tfidf.transform(X) for X in counts]), ("counts", counts)):
            line = [" and ".join(names[group] for group in pair), kind]
            for model in (
                BayesianLogisticRegression(prior_scale="learned", random_state=0),
                SparseBayesianClassifier(random_state=0),
                LogisticRegressionCV(
                    scoring="neg_log_loss", max_iter=2000, l1_ratios=(0.0,),
                    use_legacy_attributes=False,
                ),
            ):  # fmt: skip
                _, fit = timed(partial(model.fit, rows[0], targets[0]))
                proba, test = model.predict_proba(rows[1]), targets[1]
                error = np.mean(proba.argmax(1) != test)
                line.append(f"{log_loss(proba, test):.3f}, {100 * error:.1f}%, {fit:.1f} s")
            table.append(line)
    head = ["groups", "numbers", '`prior_scale="learned"`', "spike and slab", "CV"]
    return GROUPS.format(table=markdown_table(head, table), n_rows=n_rows)


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
        groups=newsgroups(*((100, PAIRS[:1]) if args.short else (300, PAIRS))),
    )  # fmt: skip
    write_results(args, "text", "Logistic regression of words", body)


if __name__ == "__main__":
    main()
