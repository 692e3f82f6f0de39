"""The spike-and-slab prior's gradient and its latents' update, each in one pass.

They are the sums of many small operations otherwise. ``starts`` and ``stops`` are the places of the
sparse blocks in theta; the latents of all blocks follow each other.
"""

from __future__ import annotations

import math

import numpy as np

from . import jit


@jit
def gradient(theta, slab, sigma, starts, stops, spike, slope, out):
    """Add spike (1-r) sign(beta)/sigma + slope r beta/sigma^2 to out, chain by chain."""
    for c in range(len(theta)):
        a, b = spike / sigma[c, 0], slope / (sigma[c, 0] * sigma[c, 0])
        j = 0
        for start, stop in zip(starts, stops):  # noqa: B905, numba has no strict
            for i in range(start, stop):
                beta, r = theta[c, i], slab[c, j]
                out[c, i] += (1 - r) * a * np.sign(beta) + r * b * beta
                j += 1


@jit
def follow(
    theta, rho, slab, sigma, log_odds, mean_square, starts, stops, gain, v_0, v_1, sigma_terms,
    included, excluded, least,
):  # fmt: skip
    """Move rho and slab, then sigma and delta, by the gain.

    ``sigma_terms`` are N, R_a and nu lambda, with R_a = 0 where sigma stays; ``included`` (a - 1)
    and ``excluded`` (p + b - 1), by block, are empty where delta stays; ``least`` is the smallest
    delta.
    """
    constant = math.log(2 * v_0) - 0.5 * math.log(2 * math.pi * v_1)
    upper, lower = 1 / v_0, 0.5 / v_1
    n, count, least_squares = sigma_terms
    for c in range(len(theta)):
        s = float(sigma[c, 0])
        inverse = 1 / s
        absolute = squares = 0.0
        j = 0
        for block in range(len(starts)):
            odds_0, total = constant + float(log_odds[c, block]), 0.0
            for i in range(starts[block], stops[block]):
                z = abs(float(theta[c, i])) * inverse
                target = 1 / (1 + math.exp(-(odds_0 + z * (upper - lower * z))))
                p = rho[c, j] + gain * (target - rho[c, j])
                r = slab[c, j] + gain * (p - slab[c, j])
                rho[c, j], slab[c, j] = p, r
                absolute += (1 - r) * z
                squares += r * z * z
                total += p
                j += 1
            if len(included):
                one, other = total + included[block], excluded[block] - total
                odds = math.exp(float(log_odds[c, block]))
                delta = (1 - gain) * odds / (1 + odds) + gain * one / (one + other)
                rest = (1 - gain) / (1 + odds) + gain * other / (one + other)
                log_odds[c, block] = math.log(max(delta, least) / max(rest, least))
        if count > 0:
            linear = absolute * upper * s
            square = squares / v_1 * s * s + n * mean_square[c, 0] + least_squares
            mode = (linear + math.sqrt(linear * linear + 4 * count * square)) / (2 * count)
            sigma[c, 0] = s + gain * (mode - s)
