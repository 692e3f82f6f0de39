"""Gibbs sampling of topic assignments, for documents given topics and for a whole corpus.

Tokens are in the order of their documents. Document d has the tokens ``starts[d]`` to
``starts[d + 1]``. The weight of a token is its contribution to counts: 1, or less for fractional
counts.
"""

from __future__ import annotations

import numpy as np

from . import jit


@jit
def sweep(topics, starts, words, weights, alpha, more, z, n, base, uniforms, fresh, few):
    """Take sweeps of Gibbs sampling over the tokens of every document, given topics, in place.

    A token is assigned to topic k with probability ~ (n_k + alpha_dk) phi_wk, where n does not
    count this token. For topics that have other tokens, ``more`` is added to alpha. Shapes are
    (words, topics) for ``topics``, (documents, topics) for ``alpha``, ``more``, ``n`` and ``base``,
    (tokens,) for ``z`` and (tokens, sweeps) for ``uniforms``. The part ``base`` of n belongs to
    other tokens, which keep their topics. With ``fresh``, z has no values yet and n is ``base``, to
    which the first sweep adds tokens one by one. With ``few``, the weights of all topics are
    computed for each token, which takes vector instructions, and otherwise those of the topics that
    its document has.
    """
    n_topics = topics.shape[1]
    longest = 0
    for d in range(len(starts) - 1):
        longest = max(longest, starts[d + 1] - starts[d])
    totals = np.empty(longest, topics.dtype)  # sums of alpha phi_w, the same in every sweep
    held = np.zeros(n_topics, np.int64)  # number of tokens of each topic
    active = np.empty(n_topics, np.int64)  # topics that have tokens
    share = np.empty(n_topics, topics.dtype)
    for d in range(len(starts) - 1):
        begin, end = starts[d], starts[d + 1]
        of, prior, extra = n[d], alpha[d], more[d]
        n_active = 0
        for k in range(n_topics):
            held[k] = 0
            if base[d, k] > 0:  # like a token that is never removed
                held[k] = 1
                active[n_active] = k
                n_active += 1
        for i in range(begin, end):
            if not few:
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
                        if not few:
                            n_active = remove(active, n_active, k)
                u, row = uniforms[i, s], topics[words[i]]
                if few:
                    k = draw_of_few(row, of, extra, held, prior, u, share)
                else:
                    rest = totals[i - begin]
                    k = draw(row, rest, of, extra, active, n_active, prior, u, share)
                if not few and held[k] == 0:
                    active[n_active] = k
                    n_active += 1
                held[k] += 1
                of[k] += weights[i]
                z[i] = k


@jit
def expected_counts(topics, starts, words, weights, concentration, out):
    """Counts (documents, topics) if each token is split in proportion to concentration * phi."""
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
    """Remove ``k`` from the first ``n_active`` entries; return the new number of entries."""
    for j in range(n_active):
        if active[j] == k:
            active[j] = active[n_active - 1]
            break
    return n_active - 1


@jit
def draw(row, rest, n, more, active, n_active, alpha, u, share):
    """Draw a topic k with probability ~ ((n_k + more_k if k is active) + alpha_k) row_k.

    The topic is drawn from the part of the active topics, which are few, or from the rest, whose
    weight ``rest`` is the sum of alpha_k row_k.
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
def draw_of_few(row, n, more, held, alpha, u, share):
    """Draw a topic k like :func:`draw`, by the weights of all topics."""
    n_topics, zero = len(row), row.dtype.type(0)
    for k in range(n_topics):
        share[k] = (n[k] + alpha[k] + (more[k] if held[k] > 0 else zero)) * row[k]
    total = zero
    for k in range(n_topics):
        total += share[k]
        share[k] = total
    at, k = u * total, 0
    for j in range(n_topics):
        k += share[j] <= at
    return min(k, n_topics - 1)


@jit
def add_expected(topics, starts, words, weights, alpha, more, z, n, sole, out):
    """Add p(z_i = k | other tokens) / topics, times each token's weight, to ``out``.

    ``out`` has shape (words, topics). A token counts as the only one of its topic if the other
    tokens weigh at most ``sole`` times as much.
    """
    n_topics = topics.shape[1]
    # a smaller fraction of a token's probability is only rounding
    least = topics.dtype.type(4) * np.finfo(topics.dtype).eps
    weight = np.empty(n_topics, topics.dtype)  # weight of each topic, with all tokens
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
    """Take sweeps of collapsed Gibbs sampling over a corpus, in place.

    ``uniforms`` has shape (sweeps, tokens).
    """
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
