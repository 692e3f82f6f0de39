"""Topics of a stream of documents that is never held in memory: documents a second, and memory.

python examples/stream_topics.py --documents 1000000
"""

import argparse
import resource
import sys
import time
import warnings

import numpy as np
import scipy.sparse as sp

from skbayes_sgmcmc import (
    DeepPoissonFactorAnalysis,
    LatentDirichletAllocation,
    SamplingWarning,
)
from skbayes_sgmcmc._draws.alignment import best_order


def make_topics(n_topics, n_words, rng):
    return rng.dirichlet(np.full(n_words, 0.05), size=n_topics)


def make_batch(topics, n_documents, length, rng):
    """Documents of ``length`` words, as a CSR matrix: each of two of the topics."""
    n_topics, n_words = topics.shape
    cumulative = topics.cumsum(axis=1)
    pair = rng.integers(n_topics, size=(n_documents, 2))
    share = rng.random((n_documents, 1))
    second = (rng.random((n_documents, length)) < share).astype(int)
    z = np.take_along_axis(pair, second, axis=1).ravel()
    u, words = rng.random(z.size), np.empty(z.size, dtype=np.int32)
    for k in range(n_topics):
        words[z == k] = np.searchsorted(cumulative[k] / cumulative[k, -1], u[z == k])
    indptr = np.arange(n_documents + 1) * length
    X = sp.csr_matrix((np.ones(z.size), words, indptr), shape=(n_documents, n_words))
    X.sum_duplicates()
    return X


def memory():
    """Largest memory so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=2_000, help="documents in one call")
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--words", type=int, default=1_000, help="words in the vocabulary")
    parser.add_argument("--length", type=int, default=50, help="words in a document")
    parser.add_argument("--deep", action="store_true", help="DPFA with a layer of 10 units, no LDA")
    args = parser.parse_args()

    warnings.simplefilter("ignore", SamplingWarning)
    rng = np.random.default_rng(0)
    topics = make_topics(args.topics, args.words, rng)
    test = make_batch(topics, 500, args.length, rng)
    common = {"parametrization": "expanded_mean", "topic_word_prior": 0.05, "random_state": 0}
    common |= {"total_samples": args.documents, "n_draws": 20}
    if args.deep:
        model = DeepPoissonFactorAnalysis((args.topics, 10), **common)
    else:
        model = LatentDirichletAllocation(args.topics, doc_topic_prior=0.1, **common)

    done, spent, looks = 0, 0.0, 0
    print(f"{'documents':>10}{'documents/s':>13}{'MiB':>7}{'perplexity':>12}")
    while done < args.documents:
        X = make_batch(topics, min(args.batch, args.documents - done), args.length, rng)
        start = time.perf_counter()
        model.partial_fit(X)
        spent += time.perf_counter() - start
        done += X.shape[0]
        if done >= args.documents * 2.0 ** (looks - 5) or done == args.documents:
            looks += 1
            score = model.perplexity(test, random_state=0)
            print(f"{done:10d}{done / spent:13.0f}{memory():7.0f}{score:12.1f}", flush=True)

    found = model.components_[best_order(model.components_, topics)]
    overlap = np.minimum(found, topics).sum(axis=1)
    print(f"Topics share {overlap.mean():.0%} of their probability with the true ones.")


if __name__ == "__main__":
    main()
