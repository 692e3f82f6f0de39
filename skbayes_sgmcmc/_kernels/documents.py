"""Gibbs sampling of topic assignments: of documents given topics, and of a whole corpus.

Tokens are in the order of their documents; those of document d are ``starts[d]`` to
``starts[d + 1]``. A token's weight is what it adds to counts: 1, or less for fractional counts.
"""

from __future__ import annotations

import numpy as np

from . import jit


@jit
def topic_gradient(topics, starts, words, weights, alpha, n_sweeps, uniforms, out):
    """Add to ``out`` the gradient of log p(tokens | topics) in the topics, each (words, topics).

    Assignments z are sampled with the documents' proportions integrated out: one by one into an
    empty document, then again in each of ``n_sweeps``. Of the last state the expected assignment of
    every token given all others counts. ``uniforms`` are (tokens, 1 + n_sweeps).
    """
    n_topics = topics.shape[1]
    totals = np.full(topics.shape[0], topics.dtype.type(-1))
    z = np.empty(len(words), np.int64)
    n = np.zeros(n_topics, topics.dtype)  # weight of each topic in the document
    held = np.zeros(n_topics, np.int64)  # tokens of each topic
    active = np.empty(n_topics, np.int64)  # topics that have tokens
    share = np.empty(n_topics, topics.dtype)
    for d in range(len(starts) - 1):
        begin, end = starts[d], starts[d + 1]
        n[:] = 0
        held[:] = 0
        n_active = 0
        for sweep in range(n_sweeps + 1):
            for i in range(begin, end):
                row = topics[words[i]]
                if sweep > 0:
                    k = z[i]
                    held[k] -= 1
                    n[k] -= weights[i]
                    if held[k] == 0:
                        n[k] = 0
                        n_active = remove(active, n_active, k)
                if totals[words[i]] < 0:
                    totals[words[i]] = row.sum()
                k = draw(
                    row, totals[words[i]], n, active, n_active, alpha, uniforms[i, sweep], share
                )
                if held[k] == 0:
                    active[n_active] = k
                    n_active += 1
                held[k] += 1
                n[k] += weights[i]
                z[i] = k
        add_expected(topics, words, weights, begin, end, z, n, alpha, out)


@jit
def remove(active, n_active, k):
    """Take ``k`` out of the first ``n_active`` entries; returns how many there are then."""
    for j in range(n_active):
        if active[j] == k:
            active[j] = active[n_active - 1]
            break
    return n_active - 1


@jit
def draw(row, total, n, active, n_active, alpha, u, share):
    """A topic from p_k ~ (n_k + alpha) row_k: by its part n_k row_k, of few topics, or the rest."""
    near = row.dtype.type(0)
    for j in range(n_active):
        near += n[active[j]] * row[active[j]]
        share[j] = near
    at = u * (near + alpha * total)
    if at < near:
        for j in range(n_active):
            if at < share[j]:
                return active[j]
    at = (at - near) / alpha
    for k in range(len(row) - 1):
        at -= row[k]
        if at < 0:
            return k
    return len(row) - 1


@jit
def add_expected(topics, words, weights, begin, end, z, n, alpha, out):
    """Add p(z_i = k | the others) / topics, times the weight, of the tokens of one document."""
    i = begin
    while i < end:
        w = words[i]
        row, to = topics[w], out[w]
        total, own = row.dtype.type(0), row.dtype.type(0)
        for k in range(len(row)):
            total += (n[k] + alpha) * row[k]
        while i < end and words[i] == w:  # the same word again
            part = weights[i] / (total - weights[i] * row[z[i]])
            to[z[i]] -= weights[i] * part
            own += part
            i += 1
        for k in range(len(row)):
            to[k] += own * (n[k] + alpha)


@jit
def collapsed_sweeps(rows, words, weights, z, n_dk, n_wk, n_k, alpha, beta, uniforms):
    """Sweeps of collapsed Gibbs sampling over a corpus, in place; ``uniforms`` (sweeps, tokens)."""
    n_topics = len(n_k)
    smoothing = beta * n_wk.shape[0]
    cumulative = np.empty(n_topics)
    for sweep in range(len(uniforms)):
        for i in range(len(words)):
            of_document, of_word, k = n_dk[rows[i]], n_wk[words[i]], z[i]
            of_document[k] -= weights[i]
            of_word[k] -= weights[i]
            n_k[k] -= weights[i]
            for j in range(n_topics):
                cumulative[j] = (
                    (of_document[j] + alpha) * (of_word[j] + beta) / (n_k[j] + smoothing)
                )
            total = 0.0
            for j in range(n_topics):
                total += cumulative[j]
                cumulative[j] = total
            k = min(np.searchsorted(cumulative, uniforms[sweep, i] * total, "right"), n_topics - 1)
            z[i] = k
            of_document[k] += weights[i]
            of_word[k] += weights[i]
            n_k[k] += weights[i]
