"""Held-out perplexity by document completion, for topics from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from ..._validation import check_random_state

Array = NDArray[Any]

#: steps of the fixed point for the proportions of a document
STEPS = 20
#: words whose probabilities are computed at once
BLOCK = 2**14


def split_documents(X: Any, random_state: Any = None) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Halves of every document: words to condition on, and words to score.

    Of its n words (equal ones count each) a document has floor(n / 2), taken at random, in the
    second half. A count c that is no whole number is ceil(c) words of weight c / ceil(c).

    Parameters
    ----------
    X : CSR matrix of shape (n_documents, n_words)
        Counts.
    random_state : int, RandomState or None, default=None
        Seed of the choice.

    Returns
    -------
    observed, held_out : CSR matrices of the shape of X
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
    """Probability of every word that has a count in the CSR matrix X, in the order of its data."""
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    by_word = np.ascontiguousarray(topics.T)
    parts = [  # blocks that stay in the cache
        np.einsum("ik,ik->i", proportions[row[part]], by_word[X.indices[part]])
        for part in gen_batches(len(row), BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def log_probabilities(topics: Array, proportions: Array, X: Any) -> Array:
    """Log probability of each document's words given its proportions, (documents,)."""
    logs = np.log(word_probabilities(topics, proportions, X)) * X.data
    return np.asarray(sp.csr_matrix((logs, X.indices, X.indptr), shape=X.shape).sum(axis=1)).ravel()


def mean_log_probability(draws: Iterable[tuple[Array, Array]], held_out: Any) -> float:
    """Log probability of a word of ``held_out``, averaged over its words.

    Parameters
    ----------
    draws : iterable of (topics, proportions)
        Of every draw, topics (n_topics, n_words) and the documents' proportions
        (n_documents, n_topics), whose products are probabilities. These are averaged over the
        draws before the logarithm.
    held_out : CSR matrix (n_documents, n_words)
        Counts.

    Raises
    ------
    ValueError
        No word is held out.
    """
    held_out = sp.csr_matrix(held_out)
    if held_out.sum() == 0:
        raise ValueError("X has no document of two words or more: none can be held out.")
    probability, n_draws = np.zeros(held_out.nnz), 0
    for topics, proportions in draws:
        probability += word_probabilities(topics, proportions, held_out)
        n_draws += 1
    logs = np.log(probability / n_draws)
    return float(logs @ held_out.data / held_out.data.sum())


def proportions(topics: Array, X: Any, doc_topic_prior: float, n_steps: int = STEPS) -> Array:
    """Expected proportions (n_documents, n_topics) of documents under topics, row by row.

    (n_dk + alpha) / (n_d + K alpha), where n_dk are the expected words of topic k: the fixed point
    of n_dk = sum_w x_dw r_dwk, r_dwk ~ (n_dk + alpha) phi_kw, from equal ones.

    Parameters
    ----------
    topics : array of shape (n_topics, n_words)
        Topics; rows sum to one.
    X : CSR matrix of shape (n_documents, n_words)
        Counts.
    doc_topic_prior : float
        alpha.
    n_steps : int, default=20
        Steps towards the fixed point.
    """
    import torch

    from .documents import fixed_point

    columns = torch.from_numpy(np.ascontiguousarray(topics.T))
    n = fixed_point(columns, X, doc_topic_prior, n_steps) + doc_topic_prior
    return np.asarray((n / n.sum(1, keepdim=True)).numpy())


def document_completion_perplexity(
    topics: Any, X: Any, *, doc_topic_prior: float | None = None, random_state: Any = None
) -> float:
    """Held-out perplexity of topics, from this package or another.

    Every document is split at random into halves. Its proportions are estimated from the first (by
    the fixed point of :func:`proportions`), for each draw of the topics; the probabilities of the
    words of the second half are averaged over the draws, and the perplexity is exp of minus
    their mean logarithm, over all words of all second halves. A uniform guess scores the number of
    words in the vocabulary; lower is better.

    Parameters
    ----------
    topics : array of shape (n_topics, n_words) or (n_draws, n_topics, n_words)
        Topics, or draws of them; rows are divided by their sums.
    X : array or CSR matrix of shape (n_documents, n_words)
        Counts of documents that the topics were not fitted to.
    doc_topic_prior : float or None, default=None
        alpha of the documents' proportions; None: 1 / n_topics.
    random_state : int, RandomState or None, default=None
        Seed of the halves. Give the same int to compare topics on the same halves.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        No document has two words.

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
    draws = np.asarray(topics, dtype=float)
    draws = draws[None] if draws.ndim == 2 else draws
    if draws.ndim != 3 or not (draws.sum(2) > 0).all() or draws.min() < 0:
        raise ValueError(
            f"topics of shape {np.shape(topics)} is not allowed: give rows of numbers >= 0 that "
            "are not all zero, (n_topics, n_words), or draws of them."
        )
    alpha = 1.0 / draws.shape[1] if doc_topic_prior is None else float(doc_topic_prior)

    def each(observed: Any) -> Iterable[tuple[Array, Array]]:
        for one in draws:
            normalised = one / one.sum(1, keepdims=True)
            yield normalised, proportions(normalised, observed, alpha)

    return completion_perplexity(each, X, random_state)


def completion_perplexity(
    each: Callable[[Any], Iterable[tuple[Array, Array]]], X: Any, random_state: Any
) -> float:
    """Held-out perplexity of any topic model; see :func:`document_completion_perplexity`.

    ``each(observed)`` gives the topics of every draw, and proportions of the documents estimated
    from ``observed``, the first halves.
    """
    observed, held_out = split_documents(X, random_state)
    return float(np.exp(-mean_log_probability(each(observed), held_out)))
