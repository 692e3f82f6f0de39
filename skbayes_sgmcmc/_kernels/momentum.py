"""Steps of ``SGHMC`` by ``baoab`` on a logistic regression of two classes, with all rows.

Rows are in the coordinates of the chains, features first, so that vectors of the processor run over
rows: the logits are ``shift + phi'x``, and the prior's slope is ``curvature phi + slope``.
"""

from __future__ import annotations

import numpy as np

from .._polynomials import interpolated
from . import jit, part, polynomial

#: features that products take at a time
FEATURES = 4
#: bound on the argument of exp; log 2 as a number with exact products with integers, and the
#: rest
LARGEST = 700.0
LOG_TWO_HIGH, LOG_TWO_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: 2^k has the exponent k + 1023, which this number brings to the last bits
EXPONENT = 2.0**52 + 1023.0

#: exp of numbers up to half of log 2
exp_rest = polynomial(interpolated(np.exp, -0.35, 0.35, 11, np.float64))


@part
def logistic(z, two, scale):
    """Replace numbers by ``scale / (1 + exp(-z))``; ``two`` is working memory."""
    bits = two.view(np.int64)
    for r in range(len(z)):
        x = min(max(-z[r], -LARGEST), LARGEST)
        k = np.floor(x * (1.0 / np.log(2.0)) + 0.5)
        z[r] = exp_rest(x - k * LOG_TWO_HIGH - k * LOG_TWO_LOW)
        two[r] = k + EXPONENT
    for r in range(len(z)):
        bits[r] <<= np.int64(52)
    for r in range(len(z)):
        z[r] = scale / (1.0 + z[r] * two[r])


@part
def gradient(phi, x, shift, weight, curvature, slope, scale, z, two, g):
    """Write the gradient at phi to g; ``z`` and ``two`` are working memory."""
    z[:] = shift
    for j in range(0, len(x), FEATURES):
        p0, p1, p2, p3 = phi[j], phi[j + 1], phi[j + 2], phi[j + 3]
        for r in range(len(z)):
            z[r] += p0 * x[j, r] + p1 * x[j + 1, r] + p2 * x[j + 2, r] + p3 * x[j + 3, r]
    logistic(z, two, scale)
    for r in range(len(weight)):
        z[r] *= weight[r]
    for j in range(0, len(x), FEATURES):
        s0, s1, s2, s3 = slope[j], slope[j + 1], slope[j + 2], slope[j + 3]
        for r in range(len(z)):
            s0 += z[r] * x[j, r]
            s1 += z[r] * x[j + 1, r]
            s2 += z[r] * x[j + 2, r]
            s3 += z[r] * x[j + 3, r]
        g[j], g[j + 1], g[j + 2], g[j + 3] = s0, s1, s2, s3
    for i in range(len(curvature)):
        total = 0.0
        for j in range(len(curvature)):
            total += curvature[i, j] * phi[j]
        g[i] += total


@jit
def take(phi, v, g, rows, prior, scale, eta, kept, sd, xi, positions):
    """Take the steps of all chains, in place, and write phi after each of them to ``positions``.

    ``rows`` are x (features, rows), with zeros up to a multiple of ``FEATURES``, the shift, and the
    weights, which are empty if all are one; ``prior`` has its curvature and slope. Of a momentum,
    ``kept`` is left after a step, with normals of the given sd.
    """
    x, shift, weight = rows
    curvature, slope = prior
    d = phi.shape[1]
    z, two = np.empty_like(shift), np.empty_like(shift)
    at, force = np.zeros(len(x)), np.empty(len(x))
    for c in range(len(phi)):
        speed = v[c]
        at[:d], force[:d] = phi[c], g[c]
        for t in range(xi.shape[1]):
            for i in range(d):
                speed[i] -= 0.5 * eta * force[i]
                at[i] += 0.5 * speed[i]
                speed[i] = kept * speed[i] + sd * xi[c, t, i]
                at[i] += 0.5 * speed[i]
            gradient(at, x, shift, weight, curvature, slope, scale, z, two, force)
            for i in range(d):
                speed[i] -= 0.5 * eta * force[i]
                positions[c, t, i] = at[i]
        phi[c], g[c] = at[:d], force[:d]
