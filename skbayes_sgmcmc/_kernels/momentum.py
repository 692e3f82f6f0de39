"""Steps of ``SGHMC`` by ``baoab`` on a linear model whose rows have a mean, with all rows.

Rows are in the coordinates of the chains, features first, so that vectors of the processor run over
rows: predictors are ``z = shift + phi'x``. The slope of a row is ``weight mean(z) - y``, where the
mean is ``e^z`` of counts or ``1 / (1 + e^-z)``. That of the prior is ``curvature phi + slope``,
times the expected precision if its scale is learned.
"""

from __future__ import annotations

import numpy as np

from .._polynomials import interpolated
from . import jit, part, polynomial

#: features that products take at a time
FEATURES = 4
#: bound on the argument of exp, and a number that is smaller than its exponential
LARGEST, HUGE = 700.0, 1e304
#: log 2 as a number with exact products with integers, and the rest
LOG_TWO_HIGH, LOG_TWO_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: 2^k has the exponent k + 1023, which this number brings to the last bits
EXPONENT = 2.0**52 + 1023.0

#: exp of numbers up to half of log 2
exp_rest = polynomial(interpolated(np.exp, -0.35, 0.35, 11, np.float64))


@part
def exponentials(z, two):
    """Replace numbers by their exponentials; ``two`` is working memory."""
    bits = two.view(np.int64)
    for r in range(len(z)):
        x = min(max(z[r], -LARGEST), LARGEST)
        k = np.floor(x * (1.0 / np.log(2.0)) + 0.5)
        z[r] = exp_rest(x - k * LOG_TWO_HIGH - k * LOG_TWO_LOW)
        two[r] = k + EXPONENT
    for r in range(len(z)):
        bits[r] <<= np.int64(52)
    for r in range(len(z)):
        z[r] *= two[r]


@part
def slopes(z, weight, y, counts, two):
    """Replace predictors by the slopes of their rows."""
    if not counts:
        for r in range(len(z)):
            z[r] = -z[r]
    exponentials(z, two)
    if counts:
        for r in range(len(z)):  # beyond the bound infinite, so that chains are seen to diverge
            z[r] = weight[r] * (z[r] if z[r] < HUGE else np.inf) - y[r]
    else:
        for r in range(len(z)):
            z[r] = weight[r] / (1.0 + z[r]) - y[r]


@part
def add_prior(phi, prior, precision, pull, g):
    """Add the prior's slope at phi to g; ``pull`` is working memory.

    With k, b and c as ``precision``, the scale is learned: E[s^-2] is
    k / (b + (phi' curvature phi + 2 phi' slope + c) / 2).
    """
    curvature, slope = prior
    square, factor = 0.0, 1.0
    for i in range(len(curvature)):
        pull[i] = slope[i]
        for j in range(len(curvature)):
            pull[i] += curvature[i, j] * phi[j]
        square += phi[i] * (pull[i] + slope[i])
    if len(precision):
        factor = precision[0] / (precision[1] + 0.5 * (square + precision[2]))
    for i in range(len(curvature)):
        g[i] += factor * pull[i]


@part
def gradient(phi, design, counts, prior, precision, z, two, pull, g):
    """Write the gradient at phi to g; ``z``, ``two`` and ``pull`` are working memory."""
    x, shift, weight, y = design
    z[:] = shift
    for j in range(0, len(x), FEATURES):
        p0, p1, p2, p3 = phi[j], phi[j + 1], phi[j + 2], phi[j + 3]
        for r in range(len(z)):
            z[r] += p0 * x[j, r] + p1 * x[j + 1, r] + p2 * x[j + 2, r] + p3 * x[j + 3, r]
    slopes(z, weight, y, counts, two)
    for j in range(0, len(x), FEATURES):
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for r in range(len(z)):
            s0 += z[r] * x[j, r]
            s1 += z[r] * x[j + 1, r]
            s2 += z[r] * x[j + 2, r]
            s3 += z[r] * x[j + 3, r]
        g[j], g[j + 1], g[j + 2], g[j + 3] = s0, s1, s2, s3
    add_prior(phi, prior, precision, pull, g)


@jit
def take(phi, v, g, design, counts, prior, precision, eta, kept, sd, xi, positions):
    """Take the steps of all chains, in place, and write phi after each of them to ``positions``.

    ``design`` are x (features, rows), with zeros up to a multiple of ``FEATURES``, the shift, the
    weights and the targets; ``prior`` its curvature and slope. ``precision`` is empty if the
    prior's scale is given. Of a momentum, ``kept`` is left after a step, with normals of the given
    sd.
    """
    x, shift = design[:2]
    d = phi.shape[1]
    z, two = np.empty_like(shift), np.empty_like(shift)
    at, force, pull = np.zeros(len(x)), np.empty(len(x)), np.empty(d)
    for c in range(len(phi)):
        speed = v[c]
        at[:d], force[:d] = phi[c], g[c]
        for t in range(xi.shape[1]):
            for i in range(d):
                speed[i] -= 0.5 * eta * force[i]
                at[i] += 0.5 * speed[i]
                speed[i] = kept * speed[i] + sd * xi[c, t, i]
                at[i] += 0.5 * speed[i]
            gradient(at, design, counts, prior, precision, z, two, pull, force)
            for i in range(d):
                speed[i] -= 0.5 * eta * force[i]
                positions[c, t, i] = at[i]
        phi[c], g[c] = at[:d], force[:d]
