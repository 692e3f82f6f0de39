"""Euler steps of SGLD and pSGLD, including the noise, on a part of one chain's parameters."""

from __future__ import annotations

import numpy as np

from . import jit
from .philox import BLOCK, ROUNDS, box_muller, words

#: number of normals made at once
NUMBERS = 4 * BLOCK


@jit
def normals(bits, out, key, counter):
    """Fill ``out`` with ``NUMBERS`` standard normals."""
    words(bits, key, counter, ROUNDS)
    box_muller(bits, out)


@jit
def sgld(theta, g, eta, sd, key, counter):
    """Add sd xi - eta g to theta."""
    bits, xi = np.empty(NUMBERS, np.uint32), np.zeros(NUMBERS, np.float32)
    for start in range(0, len(theta), NUMBERS):
        if sd > 0:
            normals(bits, xi, key, counter)
            counter += np.uint64(BLOCK)
        at, by = theta[start : start + NUMBERS], g[start : start + NUMBERS]
        for i in range(len(at)):
            at[i] += sd * xi[i] - eta * by[i]


@jit
def psgld(
    theta, g, likelihood, V, rates, adapting, lag, share, regularization, cap, eta, sd, key, counter
):
    """Take the step of ``PSGLD.euler``, with the same symbols; ``rates`` may be empty."""
    bits, xi = np.empty(NUMBERS, np.uint32), np.zeros(NUMBERS, np.float32)
    G = np.empty(NUMBERS, theta.dtype)
    one = theta.dtype.type(1.0)
    floor = theta.dtype.type(0.01 if lag else 0.0)
    for start in range(0, len(theta), NUMBERS):
        if sd > 0:
            normals(bits, xi, key, counter)
            counter += np.uint64(BLOCK)
        block = slice(start, start + NUMBERS)
        at, by, data, v = theta[block], g[block], likelihood[block], V[block]
        if lag:
            for i in range(len(at)):
                G[i] = max(v[i], floor * data[i] * data[i])
        if adapting:
            for i in range(len(at)):
                v[i] = (one - share) * v[i] + share * data[i] * data[i]
        if not lag:
            for i in range(len(at)):
                G[i] = v[i]
        for i in range(len(at)):
            G[i] = one / (np.sqrt(G[i]) + regularization)
        if len(rates):
            rate = rates[block]
            for i in range(len(at)):
                G[i] = min(G[i], cap / rate[i])
        else:
            for i in range(len(at)):
                G[i] = min(G[i], cap)
        for i in range(len(at)):
            at[i] += sd * np.sqrt(G[i]) * xi[i] - eta * G[i] * by[i]
