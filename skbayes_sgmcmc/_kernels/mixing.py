"""Quantiles, R-hat, effective sample size and error of the mean, from one sort of the draws."""

from __future__ import annotations

import math

import numpy as np

from . import jit


@jit
def figures(draws, order, scores, places, found):
    """Write figures of every coordinate to ``found``: see ``_draws/mixing.py``.

    ``draws`` (coordinates, chains, draws) has at least four draws per chain, and ``order``
    (coordinates, chains * draws) sorts those of a coordinate. ``scores[k]`` is the normal score of
    the mean rank k / 2, and ``places`` are positions of quantiles among the sorted draws. The
    columns of ``found`` are effective sample size, R-hat, error of the mean, and the quantiles.
    """
    n_chains, n = draws.shape[1:]
    half = n // 2
    size, total = 2 * n_chains * half, n_chains * n
    # with an end on both sides, for the merge
    bounded, bounded_place = np.full(size + 2, np.inf), np.zeros(size + 2, np.int64)
    bounded[0] = -np.inf
    values, inner = bounded[1:-1], bounded_place[1:-1]
    folded = np.empty(size)
    place_of_folded = np.empty(size, np.int64)
    place_of = np.full(total, -1)  # of a draw in the halves; the middle one of an odd number is out
    for chain in range(n_chains):
        for draw in range(half):
            place_of[chain * n + draw] = chain * half + draw
            place_of[chain * n + n - half + draw] = (n_chains + chain) * half + draw
    z, halves = np.empty((2 * n_chains, half)), np.empty((2 * n_chains, half))
    flat_halves = halves.ravel()
    for c in range(len(draws)):
        flat = draws[c].reshape(total)
        first, last = flat[order[c, 0]], flat[order[c, total - 1]]
        if not last - first < np.inf:  # NaN, which comes last, or infinite
            found[c] = np.nan
            continue
        for q in range(len(places)):
            low = int(places[q])
            share = places[q] - low
            a, b = flat[order[c, low]], flat[order[c, min(low + 1, total - 1)]]
            found[c, 3 + q] = a + (b - a) * share if share < 0.5 else b - (b - a) * (1.0 - share)
        count = 0
        for i in order[c]:
            if place_of[i] >= 0:
                values[count], inner[count] = flat[i], place_of[i]
                count += 1
        _write_scores(values, inner, scores, z)
        found[c, 0], found[c, 1] = _ess(z), _r_hat(z)
        middle = 0.5 * (values[size // 2 - 1] + values[size // 2])
        low, high = size // 2, size // 2 + 1  # the nearest to the median that are left
        for k in range(size):
            below, above = middle - bounded[low], bounded[high] - middle
            lower = below <= above  # without a branch, which could not be foreseen
            folded[k] = min(below, above)
            place_of_folded[k] = bounded_place[low if lower else high]
            low, high = low - lower, high + 1 - lower
        _write_scores(folded, place_of_folded, scores, z)
        of_tails = _r_hat(z)
        if of_tails > found[c, 1]:
            found[c, 1] = of_tails
        mean, square = 0.0, 0.0
        for value in flat:
            mean += value
        mean /= total
        for value in flat:
            square += (value - mean) ** 2
        for k in range(size):
            flat_halves[inner[k]] = values[k]
        found[c, 2] = math.sqrt(square / (total - 1) / _ess(halves))


@jit
def _write_scores(ordered, place, scores, z):
    """Write the scores of sorted values to their places; equal values have their mean rank."""
    flat, size, start = z.ravel(), len(ordered), 0
    while start < size:
        stop = start + 1
        while stop < size and ordered[stop] == ordered[start]:
            stop += 1
        score = scores[start + stop + 1]  # twice the mean of the ranks start + 1, ..., stop
        for k in range(start, stop):
            flat[place[k]] = score
        start = stop


@jit
def _mean(chain):
    """The mean, which is exact for a chain that stands still."""
    total = 0.0
    for value in chain:
        total += value - chain[0]
    return chain[0] + total / len(chain)


@jit
def _r_hat(chains):
    """R-hat of chains (chains, draws)."""
    n_chains, n = chains.shape
    means, within = np.empty(n_chains), 0.0
    for c in range(n_chains):
        square, means[c] = 0.0, _mean(chains[c])
        for value in chains[c]:
            square += (value - means[c]) ** 2
        within += square / (n - 1) / n_chains
    between = n * np.sum((means - means.mean()) ** 2) / (n_chains - 1)
    return math.sqrt((between / within + n - 1) / n)


@jit
def _ess(chains):
    """As ``_ess`` in ``_draws/mixing.py``, with only those autocovariances that count."""
    n_chains, n = chains.shape
    away, means = np.empty((n_chains, n)), np.empty(n_chains)
    for c in range(n_chains):
        means[c] = _mean(chains[c])
        for i in range(n):
            away[c, i] = chains[c, i] - means[c]
    first, second = _autocovariances(away, 0)
    variance = first + np.sum((means - means.mean()) ** 2) / (n_chains - 1)
    if not variance > 0.0:
        return np.nan
    within, last = first * n / (n - 1.0), max(0, (n - 3) // 2)
    before, smallest, k = 0.0, np.inf, 0
    even, odd = 1.0, 1.0 - (within - second) / variance
    while k < last and even + odd > 0.0:
        smallest = min(smallest, even + odd)
        before += smallest
        k += 1
        first, second = _autocovariances(away, 2 * k)
        even, odd = 1.0 - (within - first) / variance, 1.0 - (within - second) / variance
    pair = even + odd
    tau = -1.0 + 2.0 * before + (even if even > 0.0 or pair >= 0.0 else 0.0)
    total = n_chains * n
    return total / max(tau, 1.0 / math.log10(total))


@jit
def _autocovariances(away, lag):
    """Means over chains of the autocovariances of deviations at a lag and the next one."""
    even, odd, n = 0.0, 0.0, away.shape[1]
    for chain in away:
        for i in range(n - lag - 1):
            even += chain[i] * chain[i + lag]
            odd += chain[i] * chain[i + lag + 1]
        even += chain[n - lag - 1] * chain[n - 1]
    return even / (n * len(away)), odd / (n * len(away))
