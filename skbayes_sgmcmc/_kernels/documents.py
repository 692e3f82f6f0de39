"""Gibbs sampling of topic assignments: of documents given topics, and of a whole corpus.

Tokens are in the order of their documents; those of document d are ``starts[d]`` to
``starts[d + 1]``. A token's weight is what it adds to counts: 1, or less for fractional counts.
"""

from __future__ import annotations

import numpy as np

from . import jit


@jit
def sweep(topics, starts, words, weights, alpha, z, n, uniforms, fresh):
    """Sweeps of Gibbs sampling over the tokens of every document, given topics, in place.

    A token i goes to topic k with probability ~ (n_k + alpha_dk) phi_wk, where n does without it:
    ``topics`` are (words, topics), ``alpha`` and ``n`` (documents, topics), ``z`` (tokens,) and
    ``uniforms`` (tokens, sweeps). In the first sweep of ``fresh`` documents, which have nothing
    in z and n yet, tokens are put into empty documents one by one.
    """
    n_topics = topics.shape[1]
    longest = 0
    for d in range(len(starts) - 1):
        longest = max(longest, starts[d + 1] - starts[d])
    totals = np.empty(longest, topics.dtype)  # of alpha phi_w, which need not be found each time
    held = np.zeros(n_topics, np.int64)  # tokens of each topic
    active = np.empty(n_topics, np.int64)  # topics that have tokens
    share = np.empty(n_topics, topics.dtype)
    for d in range(len(starts) - 1):
        begin, end = starts[d], starts[d + 1]
        of, prior = n[d], alpha[d]
        held[:] = 0
        n_active = 0
        for i in range(begin, end):
            if i > begin and words[i] == words[i - 1]:
                totals[i - begin] = totals[i - begin - 1]
            else:
                row, total = topics[words[i]], topics.dtype.type(0)
                for k in range(n_topics):
                    total += row[k] * prior[k]
                totals[i - begin] = total
            if not fresh:
                if held[z[i]] == 0:
                    active[n_active] = z[i]
                    n_active += 1
                held[z[i]] += 1
        for s in range(uniforms.shape[1]):
            for i in range(begin, end):
                if s > 0 or not fresh:
                    k = z[i]
                    held[k] -= 1
                    of[k] -= weights[i]
                    if held[k] == 0:
                        of[k] = 0
                        n_active = remove(active, n_active, k)
                rest, u = totals[i - begin], uniforms[i, s]
                k = draw(topics[words[i]], rest, of, active, n_active, prior, u, share)
                if held[k] == 0:
                    active[n_active] = k
                    n_active += 1
                held[k] += 1
                of[k] += weights[i]
                z[i] = k


@jit
def remove(active, n_active, k):
    """Take ``k`` out of the first ``n_active`` entries; returns how many there are then."""
    for j in range(n_active):
        if active[j] == k:
            active[j] = active[n_active - 1]
            break
    return n_active - 1


@jit
def draw(row, rest, n, active, n_active, alpha, u, share):
    """A topic from p_k ~ (n_k + alpha_k) row_k: by its part n_k row_k, of few topics, or the rest.

    ``rest`` is the sum of alpha_k row_k.
    """
    near = row.dtype.type(0)
    for j in range(n_active):
        near += n[active[j]] * row[active[j]]
        share[j] = near
    at = u * (near + rest)
    if at < near:
        for j in range(n_active):
            if at < share[j]:
                return active[j]
    at -= near
    last = 0
    for k in range(len(row)):
        if alpha[k] > 0:
            last = k
            at -= alpha[k] * row[k]
            if at < 0:
                break
    return last


@jit
def add_expected(topics, starts, words, weights, alpha, z, n, least, out):
    """Add to ``out`` (words, topics) p(z_i = k | the others) / topics times each token's weight.

    ``least`` is the smallest share of a token's probability that is left without itself: below it
    there is nothing but rounding.
    """
    for d in range(len(starts) - 1):
        of, prior = n[d], alpha[d]
        i, end = starts[d], starts[d + 1]
        while i < end:
            w = words[i]
            row, to = topics[w], out[w]
            total, own = row.dtype.type(0), row.dtype.type(0)
            for k in range(len(row)):
                total += (of[k] + prior[k]) * row[k]
            while i < end and words[i] == w:  # the same word again
                part = weights[i] / max(total - weights[i] * row[z[i]], least * total)
                to[z[i]] -= weights[i] * part
                own += part
                i += 1
            for k in range(len(row)):
                to[k] += own * (of[k] + prior[k])


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
