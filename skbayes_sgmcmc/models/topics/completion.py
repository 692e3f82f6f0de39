"""Held-out perplexity by document completion, for the topics of any model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..._arrays import Array
from ..._data.word_counts import word_counts
from ..._exceptions import not_allowed
from ..._limits import LIMITS, slices
from ..._validation import check_array, check_random_state, check_scale

#: number of fixed-point steps for the proportions of a document
STEPS = 20


def split_documents(
    X: Any, random_state: int | np.random.RandomState | None = None
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Split every document at random into two halves: words to condition on, and words to score.

    X and both halves are CSR matrices (documents, words). Every occurrence of a word counts. The
    second half of a document of n words has floor(n / 2) words. A count c that is not a whole
    number stands for ceil(c) words of weight c / ceil(c).
    """
    X = sp.csr_matrix(X, dtype=np.float64)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    whole = np.ceil(X.data).astype(np.int64)
    taken = np.zeros_like(whole)
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        counts = whole[start:stop]
        if len(counts):
            taken[start:stop] = rng.multivariate_hypergeometric(
                counts, counts.sum() // 2, method="marginals"
            )
    weight = X.data / np.maximum(whole, 1)
    parts = [
        sp.csr_matrix((data, X.indices.copy(), X.indptr.copy()), shape=X.shape)
        for data in ((whole - taken) * weight, taken * weight)
    ]
    for part in parts:
        part.eliminate_zeros()
    return parts[0], parts[1]


def word_probabilities(topics: Array, proportions: Array, X: Any) -> Array:
    """Probability of every word with a count in the CSR matrix X, in the order of ``X.data``."""
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    by_word = np.ascontiguousarray(topics.T)
    parts = [  # in blocks that fit into the cache
        np.einsum("ik,ik->i", proportions[row[part]], by_word[X.indices[part]])
        for part in slices(len(row), max(1, LIMITS.cache_numbers // len(topics)))
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def log_probabilities(topics: Array, proportions: Array, X: Any) -> Array:
    """Log probability of each document's words given its proportions, shape (documents,)."""
    logs = np.log(word_probabilities(topics, proportions, X)) * X.data
    return np.asarray(sp.csr_matrix((logs, X.indices, X.indptr), shape=X.shape).sum(axis=1)).ravel()


def mean_log_probability(
    draws: Iterable[tuple[Array, Array]], held_out: Any, weights: Array | None = None
) -> float:
    """Mean log probability of the words of ``held_out``, counts (documents, words).

    ``draws`` are topics (n_topics, n_words) and the documents' proportions (documents, n_topics),
    whose product is the probability of every word. Probabilities are averaged over the draws, by
    their ``weights``, before the logarithm is taken. Raises ``ValueError`` if no word is held out.
    """
    held_out = sp.csr_matrix(held_out)
    if held_out.sum() == 0:
        raise not_allowed("X has no document of two words or more: no word can be held out.")
    probability, total = np.zeros(held_out.nnz), 0.0
    for (topics, proportions), weight in zip(
        draws, repeat(1.0) if weights is None else weights, strict=False
    ):
        probability += weight * word_probabilities(topics, proportions, held_out)
        total += weight
    with np.errstate(divide="ignore"):  # a word that no topic has: the perplexity is infinite
        logs = np.log(probability / total)
    return float(logs @ held_out.data / held_out.data.sum())


def proportions(topics: Array, X: Any, doc_topic_prior: float, n_steps: int = STEPS) -> Array:
    """Expected proportions (documents, topics) of the topics (topics, words) in counts X.

    They are (n_dk + alpha) / (n_d + K alpha), where n_dk is the expected number of words of topic k
    in document d and alpha the ``doc_topic_prior``. These numbers are the fixed point, after so
    many steps, of n_dk = sum_w x_dw r_dwk with r_dwk ~ (n_dk + alpha) phi_kw. The iteration starts
    with equal numbers for all topics.
    """
    import torch

    from .documents import fixed_point

    columns = torch.from_numpy(np.ascontiguousarray(topics.T))
    n = fixed_point(columns, X, doc_topic_prior, n_steps) + doc_topic_prior
    return np.asarray((n / n.sum(1, keepdim=True)).numpy())


def document_completion_perplexity(
    topics: Any,
    X: Any,
    *,
    doc_topic_prior: float | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Held-out perplexity of topics from this package or any other; lower is better.

    Every document is split at random into two halves. For each draw of the topics, the proportions
    of the document are estimated from the first half. The probabilities of the words of the second
    half are then averaged over the draws. The perplexity is exp(-m), where m is the mean logarithm
    of these probabilities over all words of all second halves. The perplexity of a uniform guess is
    the number of words in the vocabulary.

    Parameters
    ----------
    topics : array of shape (n_topics, n_words) or (n_draws, n_topics, n_words)
        Topics, or draws of topics. Rows are normalised to sum to one.
    X : array or CSR matrix of shape (n_documents, n_words)
        Word counts of documents that were not used to fit the topics.
    doc_topic_prior : float or None, default=None
        alpha, the Dirichlet parameter of the documents' proportions. None means 1 / n_topics.
    random_state : int, RandomState or None, default=None
        Seed of the split. Give the same int to compare several models on the same halves.

    Returns
    -------
    float
        The perplexity; infinite if a word of a second half has the probability zero.

    Raises
    ------
    ValueError
        No document has two words, or an argument is not allowed, such as an X with other words than
        the topics.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import document_completion_perplexity
    >>> X = np.array([[4, 4, 0, 0], [0, 0, 4, 4]])
    >>> document_completion_perplexity(np.ones((1, 4)), X)
    4.0
    >>> topics = [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    >>> round(document_completion_perplexity(topics, X, doc_topic_prior=0.01), 2)
    2.01
    """
    draws = check_array(
        topics, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name="topics"
    )
    draws = draws[None] if draws.ndim == 2 else draws
    if draws.ndim != 3 or not (draws.sum(2) > 0).all() or draws.min() < 0:
        raise not_allowed(
            f"topics of shape {np.shape(topics)} is not allowed: give an array (n_topics, n_words) "
            "or (n_draws, n_topics, n_words) of numbers >= 0, not all zero in any row."
        )
    X = check_array(
        X, accept_sparse="csr", dtype=np.float64, ensure_non_negative=True, input_name="X"
    )
    if X.shape[1] != draws.shape[2]:
        raise not_allowed(
            f"X of shape {X.shape} is not allowed with topics of {draws.shape[2]} words: give the "
            "counts of the words of the topics, in the same order."
        )
    X, alpha = word_counts(X), 1.0 / draws.shape[1]
    if doc_topic_prior is not None:
        alpha = check_scale("doc_topic_prior", doc_topic_prior)

    def each(observed: Any) -> Iterable[tuple[Array, Array]]:
        for one in draws:
            normalised = one / one.sum(1, keepdims=True)
            yield normalised, proportions(normalised, observed, alpha)

    return completion_perplexity(each, X, random_state)


def completion_perplexity(
    each: Callable[[Any], Iterable[tuple[Array, Array]]],
    X: Any,
    random_state: Any,
    weights: Array | None = None,
) -> float:
    """Held-out perplexity of any topic model; see :func:`document_completion_perplexity`.

    ``each(observed)`` yields, for every draw, the topics and the documents' proportions, which are
    estimated from the first halves ``observed``; ``weights`` are those of the draws.
    """
    observed, held_out = split_documents(X, random_state)
    return float(np.exp(-mean_log_probability(each(observed), held_out, weights)))
