"""Steps of ``SGHMC`` by ``baoab`` on a linear model with all rows.

All that the potential depends on is a linear function of phi, the position in the coordinates of
the chains: the predictors of rows, theta itself, which the priors are about, and with it the
likelihood's own parameters. So they are the rows of one matrix. Columns that most of them use are
stored dense, features first, so that vectors of the processor run over rows. The columns before
these, which are those of groups, are used by few: each row has the places and values of its own.
"""

from __future__ import annotations

import numpy as np

from . import copy, jit, part
from .linear import prior_slopes
from .slopes import SLOPES

#: dense columns that products take at a time
COLUMNS = 4


@part
def predictors(phi, rows, z):
    """Write shift + A phi to z."""
    x, first, places, values, shift = rows
    copy(shift, z)
    for j in range(0, len(x), COLUMNS):
        i = first + j
        p0, p1, p2, p3 = phi[i], phi[i + 1], phi[i + 2], phi[i + 3]
        for r in range(len(z)):
            z[r] += p0 * x[j, r] + p1 * x[j + 1, r] + p2 * x[j + 2, r] + p3 * x[j + 3, r]
    for k in range(len(places)):
        place, value = places[k], values[k]
        for r in range(len(z)):
            z[r] += phi[place[r]] * value[r]


@part
def pull_back(z, rows, g):
    """Write A' z to g."""
    x, first, places, values, _ = rows
    for j in range(0, len(x), COLUMNS):
        i = first + j
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for r in range(len(z)):
            s0 += z[r] * x[j, r]
            s1 += z[r] * x[j + 1, r]
            s2 += z[r] * x[j + 2, r]
            s3 += z[r] * x[j + 3, r]
        g[i], g[i + 1], g[i + 2], g[i + 3] = s0, s1, s2, s3
    g[:first] = 0.0
    for k in range(len(places)):
        place, value = places[k], values[k]
        for r in range(len(z)):
            g[place[r]] += z[r] * value[r]


def _steps(slopes):
    @jit
    def take(phi, v, g, rows, likelihood, prior, eta, kept, sd, xi, positions):
        """Take the steps of all chains, in place, and write phi after each of them to positions.

        ``rows`` are dense columns x (columns, rows), with zeros up to a multiple of ``COLUMNS``,
        how many columns come before them, their places and values (numbers of a row, rows), and
        the shift. ``likelihood`` are targets and weights of the first rows, which those of theta
        follow, and of the numbers that all rows share their places (-1: given) and shifts. Of a
        momentum, ``kept`` is left after a step, with normals of the given sd.
        """
        x, first, _, _, shift = rows
        y, weight, places, shifts = likelihood
        d, n, n_own = phi.shape[1], len(y), len(places)
        z, work = np.empty_like(shift), np.empty((2, n))
        own, sums, squares = np.empty(n_own), np.empty(n_own), np.empty(len(prior[2]))
        at, force = np.zeros(first + len(x)), np.empty(first + len(x))
        for c in range(len(phi)):
            speed = v[c]
            copy(phi[c], at[:d])
            copy(g[c], force[:d])
            for t in range(xi.shape[1]):
                for i in range(d):
                    speed[i] -= 0.5 * eta * force[i]
                    at[i] += 0.5 * speed[i]
                    speed[i] = kept * speed[i] + sd * xi[c, t, i]
                    at[i] += 0.5 * speed[i]
                predictors(at, rows, z)
                for i in range(n_own):
                    own[i] = shifts[i] + (z[places[i]] if places[i] >= 0 else 0.0)
                prior_slopes(z[n : n + d], prior, squares)
                slopes(z[:n], y, weight, own, sums, work)
                for i in range(n_own):
                    if places[i] >= 0:
                        z[places[i]] += sums[i]
                pull_back(z, rows, force)
                for i in range(d):
                    speed[i] -= 0.5 * eta * force[i]
                    positions[c, t, i] = at[i]
            copy(at[:d], phi[c])
            copy(force[:d], g[c])

    return take


#: the steps by likelihood; each function is compiled at its first call
STEPS = {name: _steps(slopes) for name, slopes in SLOPES.items()}
