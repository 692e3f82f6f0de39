"""Gibbs sampling of topic assignments: of documents given topics, and of a whole corpus.

Tokens are in the order of their documents; those of document d are ``starts[d]`` to
``starts[d + 1]``. A token's weight is what it adds to counts: 1, or less for fractional counts.
"""

from __future__ import annotations

import numpy as np

from . import jit


@jit
def sweep(topics, starts, words, weights, alpha, more, z, n, uniforms, fresh):
    """Sweeps of Gibbs sampling over the tokens of every document, given topics, in place.

    A token i goes to topic k with probability ~ (n_k + alpha_dk) phi_wk, where n does without it,
    and ``more`` is added to alpha of topics that have other tokens. ``topics`` are (words, topics),
    ``alpha``, ``more`` and ``n`` (documents, topics), ``z`` (tokens,) and ``uniforms``
    (tokens, sweeps). In the first sweep of ``fresh`` documents, which have nothing in z and n yet,
    tokens are put into empty documents one by one.
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
        of, prior, extra = n[d], alpha[d], more[d]
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
                row = topics[words[i]]
                k = draw(row, rest, of, extra, active, n_active, prior, u, share)
                if held[k] == 0:
                    active[n_active] = k
                    n_active += 1
                held[k] += 1
                of[k] += weights[i]
                z[i] = k


@jit
def expected_counts(topics, starts, words, weights, concentration, out):
    """Counts of topics (documents, topics), were each token split as concentration times phi."""
    n_topics = topics.shape[1]
    for d in range(len(starts) - 1):
        of, prior = out[d], concentration[d]
        of[:] = 0
        i, end = starts[d], starts[d + 1]
        while i < end:
            w = words[i]
            row, total, weight = topics[w], topics.dtype.type(0), weights[i]
            for k in range(n_topics):
                total += prior[k] * row[k]
            i += 1
            while i < end and words[i] == w:  # the same word again
                weight += weights[i]
                i += 1
            part = weight / total
            for k in range(n_topics):
                of[k] += part * prior[k] * row[k]


@jit
def remove(active, n_active, k):
    """Take ``k`` out of the first ``n_active`` entries; returns how many there are then."""
    for j in range(n_active):
        if active[j] == k:
            active[j] = active[n_active - 1]
            break
    return n_active - 1


@jit
def draw(row, rest, n, more, active, n_active, alpha, u, share):
    """A topic from p_k ~ (n_k + more_k if active + alpha_k) row_k.

    It is by the active topics' part, of few, or by the rest, the sum of alpha_k row_k.
    """
    near = row.dtype.type(0)
    for j in range(n_active):
        near += (n[active[j]] + more[active[j]]) * row[active[j]]
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
def add_expected(topics, starts, words, weights, alpha, more, z, n, sole, out):
    """Add to ``out`` (words, topics) p(z_i = k | the others) / topics times each token's weight.

    A token is its topic's only one if others weigh no more than ``sole`` times as much.
    """
    n_topics = topics.shape[1]
    # below this share of a token's probability there is nothing but rounding
    least = topics.dtype.type(4) * np.finfo(topics.dtype).eps
    weight = np.empty(n_topics, topics.dtype)  # of each topic, with all tokens
    for d in range(len(starts) - 1):
        of, prior, extra = n[d], alpha[d], more[d]
        for k in range(n_topics):
            weight[k] = of[k] + prior[k]
            if of[k] > 0:
                weight[k] += extra[k]
        i, end = starts[d], starts[d + 1]
        while i < end:
            w = words[i]
            row, to = topics[w], out[w]
            total, own = row.dtype.type(0), row.dtype.type(0)
            for k in range(n_topics):
                total += weight[k] * row[k]
            while i < end and words[i] == w:  # the same word again
                k, less = z[i], weights[i]
                if of[k] - less <= sole * less:
                    less = less + extra[k]
                part = weights[i] / max(total - less * row[k], least * total)
                to[k] -= less * part
                own += part
                i += 1
            for k in range(n_topics):
                to[k] += own * weight[k]


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
