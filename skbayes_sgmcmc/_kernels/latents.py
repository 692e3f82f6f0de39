"""The gradient of the spike-and-slab prior and the update of its latent variables, in one pass.

Without compilation they consist of many small operations. ``starts`` and ``stops`` are the places
of the sparse blocks in theta; the latent variables of all blocks are concatenated. The loops over
coefficients are written such that the compiler turns each into vector instructions.
"""

from __future__ import annotations

import math

import numpy as np

from .._polynomials import interpolated
from . import jit, polynomial

#: number of coefficients processed at once, so that intermediate results fit the first-level cache
PART = 512
#: bound on the argument of exp, within which exp is neither zero nor infinite
LARGEST = 700.0
#: log 2 as the sum of a number that has exact products with integers, and the rest
LOG_TWO_HIGH, LOG_TWO_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
EXPONENT_BITS, EXPONENT_BIAS = 52, np.int32(1023)

#: exp of numbers up to half of log 2, with relative error 2e-16
exp_rest = polynomial(interpolated(np.exp, -0.35, 0.35, 12, np.float64))


@jit
def gradient(theta, slab, sigma, starts, stops, spike, slope, out):
    """Add spike (1-r) sign(beta)/sigma + slope r beta/sigma^2 to ``out``, chain by chain."""
    number = theta.dtype.type
    zero = number(0.0)
    for c in range(len(theta)):
        a, b = number(spike / sigma[c, 0]), number(slope / (sigma[c, 0] * sigma[c, 0]))
        first = 0
        for start, stop in zip(starts, stops):  # noqa: B905, numba has no strict
            beta, total = theta[c, start:stop], out[c, start:stop]
            r = slab[c, first : first + stop - start]
            for i in range(len(beta)):
                inward = math.copysign(a, beta[i]) if beta[i] != zero else zero
                total[i] += inward + r[i] * (b * beta[i] - inward)
            first += stop - start


@jit
def against(beta, inverse, odds_0, upper, lower, z, power, bits):
    """Write z, and exp(-log odds) of the slabs as the product of exp(f) and 2^k.

    The last three arguments are for these, and hold at least as many numbers as ``beta``.
    """
    for i in range(len(beta)):
        z[i] = abs(float(beta[i])) * inverse
        x = -(odds_0 + z[i] * (upper - lower * z[i]))
        x = min(max(x, -LARGEST), LARGEST)
        k = np.floor(x * (1 / math.log(2.0)) + 0.5)
        power[i] = exp_rest(x - k * LOG_TWO_HIGH - k * LOG_TWO_LOW)
        bits[i] = np.int64(np.int32(k) + EXPONENT_BIAS) << EXPONENT_BITS


@jit
def move(beta, rho, slab, inverse, odds_0, gain, upper, lower, z, power, bits):
    """Update rho and slab of at most PART coefficients; return sum (1-r) z, sum r z^2, sum rho.

    The last three arguments are working memory.
    """
    against(beta, inverse, odds_0, upper, lower, z, power, bits)
    two = bits.view(np.float64)
    absolute = squares = total = 0.0
    for i in range(len(beta)):
        target = 1 / (1 + power[i] * two[i])
        p = rho[i] + gain * (target - rho[i])
        r = slab[i] + gain * (p - slab[i])
        rho[i], slab[i] = p, r
        absolute += (1 - r) * z[i]
        squares += r * z[i] * z[i]
        total += p
    return absolute, squares, total


@jit
def follow(
    theta, rho, slab, sigma, log_odds, mean_square_slope, starts, stops, gain, v_0, v_1,
    sigma_terms, included, excluded, least,
):  # fmt: skip
    """Update rho and slab, then sigma and delta, with the given gain.

    ``sigma_terms`` are N, R_a and nu lambda; R_a = 0 keeps sigma fixed. ``included`` (a - 1) and
    ``excluded`` (p + b - 1) have one entry per block; empty arrays keep delta fixed. ``least`` is
    the smallest delta.
    """
    z, power, bits = np.empty(PART), np.empty(PART), np.empty(PART, np.int64)
    constant = math.log(2 * v_0) - 0.5 * math.log(2 * math.pi * v_1)
    upper, lower = 1 / v_0, 0.5 / v_1
    n, count, least_squares = sigma_terms
    for c in range(len(theta)):
        s = float(sigma[c, 0])
        absolute = squares = 0.0
        first = 0
        for block in range(len(starts)):
            odds_0, total = constant + float(log_odds[c, block]), 0.0
            for start in range(starts[block], stops[block], PART):
                stop = min(start + PART, stops[block])
                beta, at = theta[c, start:stop], slice(first, first + stop - start)
                sums = move(
                    beta, rho[c, at], slab[c, at], 1 / s, odds_0, gain, upper, lower, z, power, bits
                )
                first += stop - start
                absolute, squares, total = absolute + sums[0], squares + sums[1], total + sums[2]
            if len(included):
                one, other = total + included[block], excluded[block] - total
                odds = math.exp(float(log_odds[c, block]))
                delta = (1 - gain) * odds / (1 + odds) + gain * one / (one + other)
                rest = (1 - gain) / (1 + odds) + gain * other / (one + other)
                log_odds[c, block] = math.log(max(delta, least) / max(rest, least))
        if count > 0:
            linear = absolute * upper * s
            square = (squares / v_1 + n * s * s * mean_square_slope[c, 0]) * s * s + least_squares
            mode = (linear + math.sqrt(linear * linear + 4 * count * square)) / (2 * count)
            sigma[c, 0] = s + gain * (mode - s)


@jit
def log_gamma(count, normal, accept, power):
    """The logarithm of a gamma variable, or NaN; see ``models/networks/latents.py``."""
    d = count + (1.0 - 1.0 / 3.0)
    v = (1.0 + normal / math.sqrt(9.0 * d)) ** 3
    if v <= 0.0 or accept >= 0.5 * normal * normal + d * (1.0 - v + math.log(v)):
        return math.nan
    return math.log(d) + math.log(v) + power / count


@jit
def draw(
    theta, rho, slab, sigma, log_odds, mean_square_slope, starts, stops, numbers, v_0, v_1,
    sigma_terms, width, delta_counts,
):  # fmt: skip
    """Draw slabs and deltas, and take a Metropolis-Hastings step of log sigma.

    ``numbers`` are uniform numbers (chains, n) for the slabs; the normal number of sigma's
    proposal, which is ``width`` times as wide as the target, and the logarithm of the uniform
    number that accepts it, (chains, 1); and the numbers of ``log_gamma``, (chains, 2, blocks) and
    (chains, 2, 2, blocks). ``delta_counts`` are a and p + b; empty arrays keep delta fixed.
    """
    u, noise, accept, normal, level = numbers
    a, rest = delta_counts
    z, power, bits = np.empty(PART), np.empty(PART), np.empty(PART, np.int64)
    two = bits.view(np.float64)
    constant = math.log(2 * v_0) - 0.5 * math.log(2 * math.pi * v_1)
    upper, lower = 1 / v_0, 0.5 / v_1
    n, count, least_squares = sigma_terms
    for c in range(len(theta)):
        s = float(sigma[c, 0])
        absolute = squares = 0.0
        first = 0
        for block in range(len(starts)):
            odds_0, total = constant + float(log_odds[c, block]), 0.0
            for start in range(starts[block], stops[block], PART):
                stop = min(start + PART, stops[block])
                against(theta[c, start:stop], 1 / s, odds_0, upper, lower, z, power, bits)
                for i in range(stop - start):
                    j = first + i
                    rho[c, j] = 1 / (1 + power[i] * two[i])
                    r = 1.0 if u[c, j] < rho[c, j] else 0.0
                    slab[c, j] = r
                    absolute += (1 - r) * z[i]
                    squares += r * z[i] * z[i]
                    total += r
                first += stop - start
            if len(a):
                one = log_gamma(
                    a[block] + total, normal[c, 0, block], level[c, 0, 0, block],
                    level[c, 1, 0, block],
                )  # fmt: skip
                other = log_gamma(
                    rest[block] - total, normal[c, 1, block], level[c, 0, 1, block],
                    level[c, 1, 1, block],
                )  # fmt: skip
                if one == one and other == other:  # neither is NaN
                    log_odds[c, block] = one - other
        if count > 0:
            linear = absolute * upper * s
            square = (squares / v_1 + n * s * s * mean_square_slope[c, 0]) * s * s + least_squares
            mode = (linear + math.sqrt(linear * linear + 4 * count * square)) / (2 * count)
            sd = width / math.sqrt(linear / mode + 2 * square / (mode * mode))
            now, proposal = math.log(s), math.log(mode) + sd * noise[c, 0]
            back = (now - math.log(mode)) / sd
            ratio = 0.5 * (noise[c, 0] * noise[c, 0] - back * back) - count * (proposal - now)
            ratio -= linear * (math.exp(-proposal) - math.exp(-now))
            ratio -= 0.5 * square * (math.exp(-2 * proposal) - math.exp(-2 * now))
            if accept[c, 0] < ratio:
                sigma[c, 0] = math.exp(proposal)
