r"""Predictions of binary logistic regression from the moments of its draws.

The average of :math:`\sigma(z)` over thousands of draws takes thousands of products a row. Where a
row's logit varies little, it hardly depends on more than the logit's mean m and variance v over the
draws:

.. math::
    \frac{1}{S} \sum_s \sigma(z_s) \approx \int \sigma(m + \sqrt{v}\,t)\, \phi(t)\, dt.

What is left grows with the skewness of z and with :math:`v^{3/2}`. The largest v for which it is
below ``TOLERANCE`` is found from the draws themselves, along many directions. Which rows are beyond
it depends on the row alone, so that a prediction does not depend on the other rows of a call.

Rows beyond it are averages over a fourth of the draws, which stand for all
(``few_draws.py``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
import torch
from scipy.linalg.blas import strmm
from scipy.sparse import issparse
from scipy.special import expit
from torch import Tensor

from ..._arrays import Array
from ..._limits import LIMITS, slices
from .._quadrature import gauss
from .few_draws import FOR_EACH, LEVELS, matched

#: largest error along the directions that are looked at, and variances of logits that are tried
TOLERANCE, VARIANCES = 3e-4, (0.25, 0.1, 0.03, 0.01)
#: number of random directions that are looked at, and of random rows and pairs of features
RANDOM_DIRECTIONS = 64
#: means of logits at which the error is looked at; it is odd in them for symmetric draws
MEANS = np.linspace(-4.0, 4.0, 9)
#: of a quadrature with an error of 4e-8 for the largest variance
NODES, WEIGHTS = gauss(6)


class Moments:
    """Base class of predictions from moments, block by block."""

    #: largest variance of a logit, or of one relative to the others, while probabilities are right
    #: to about ``TOLERANCE``; 0 if they are not even for the smallest that was tried
    largest: float
    n_classes: int

    def probabilities(self, x: Any) -> tuple[Array, Array]:
        """Probabilities (rows, classes), and the indices of rows that need the draws."""
        n = x.shape[0]
        p, near = np.empty((n, self.n_classes)), np.zeros(n, dtype=bool)
        if self.largest > 0.0:
            for rows in slices(n, LIMITS.block_rows):
                p[rows], near[rows] = self._of_block(x[rows])
        return p, np.flatnonzero(~near)

    def _of_block(self, x: Any) -> tuple[Array, Array]:
        """Probabilities of some rows, and which of them are right."""
        raise NotImplementedError


class LogitMoments(Moments):
    """Means and variances of logits over the draws (n_draws, n_features + 1).

    They are those of coefficients and intercept, with normalised weights; None: all are equal.
    """

    n_classes = 2

    def __init__(self, draws: Array, weights: Array | None):
        weights = np.full(len(draws), 1.0 / len(draws)) if weights is None else weights
        self.mean = weights @ draws
        away = draws - self.mean
        sd = np.sqrt(weights @ np.square(away))
        away = away / np.where(sd > 0.0, sd, 1.0)
        _, singular, axes = scipy.linalg.svd(away * np.sqrt(weights)[:, None], full_matrices=False)
        # the covariance is R'R for an upper triangle R, with the intercept first: its product with
        # a row takes half the time of that with another root. In single precision, because a
        # variance may be off by a thousandth; what is beyond its range gives infinity or NaN, which
        # are not below ``largest``
        root = sd[:, None] * axes.T * singular
        triangle = scipy.linalg.qr(np.roll(root, 1, axis=0).T, mode="r", check_finite=False)[0]
        with np.errstate(over="ignore"):
            self._triangle = np.asfortranarray(triangle[: len(root)], dtype=np.float32)
        kept = singular > 1e-6 * singular[0]
        whitened = away @ (axes[kept].T / singular[kept])
        self.largest = self._largest(whitened, weights)
        #: logits of rows are those of the mean plus x'root u, for the draws u that stand for all
        self._root = root[:, kept]
        few = max(math.ceil(len(draws) / LEVELS[-1][1]), FOR_EACH * whitened.shape[1])
        alike = matched(whitened, weights, min(few, len(draws)))
        #: a last row of ones is for the mean of what is a sum over columns
        self._few = None if alike is None else with_ones(alike)

    def _largest(self, whitened: Array, weights: Array) -> float:
        """Find ``largest``: along coordinates, random directions, and outlying draws."""
        size = whitened.shape[1]
        far = np.argsort(-np.square(whitened).sum(1))[: RANDOM_DIRECTIONS // 4]
        random = np.random.default_rng(0).standard_normal((size, RANDOM_DIRECTIONS))
        directions = np.hstack([np.eye(size), random, whitened[far].T])
        moves = whitened @ (directions / np.linalg.norm(directions, axis=0))
        moves = moves / np.sqrt(weights @ np.square(moves))
        for variance in VARIANCES:
            sd = np.sqrt(variance)
            exact = np.array([weights @ expit(mean + sd * moves) for mean in MEANS])
            error = exact - (expit(MEANS[:, None] + sd * NODES) @ WEIGHTS)[:, None]
            if np.abs(error).max() <= TOLERANCE:
                return variance
        return 0.0

    def _variances(self, x: Any) -> Array:
        """Variances of the logits of some rows."""
        single, edge, corner = x.astype(np.float32), self._triangle[0, 1:], self._triangle[0, 0]
        along = np.asarray(single @ edge) + corner
        if issparse(single):
            moved = np.asarray(single @ self._triangle[1:, 1:].T)
        else:  # in place of the copy: its transpose is in the order of Fortran
            moved = strmm(1.0, self._triangle[1:, 1:], single.T, overwrite_b=True).T
        variance = np.square(along) + np.einsum("ij,ij->i", moved, moved)
        return np.asarray(variance, dtype=np.float64)

    def probabilities(self, x: Any) -> tuple[Array, Array]:
        p, far = super().probabilities(x)
        if self._few is None:
            return p, far
        for start in range(0, len(far), LIMITS.block_rows):
            some = slice(start, start + LIMITS.block_rows)
            rows = some if len(far) == len(p) else far[some]  # a slice is no copy
            p[rows] = self._of_far(x[rows])
        return p, far[~np.isfinite(p[far]).all(axis=1)]

    def _of_far(self, x: Any) -> Array:
        """Averages over the draws that stand for all.

        Differences from the mean logit are in single precision, and so have errors of 1e-7 of its
        sd, however large the features are.
        """
        with np.errstate(all="ignore"):
            mean = np.asarray(x @ self.mean[:-1] + self.mean[-1])
            along = np.asarray(x @ self._root[:-1] + self._root[-1])
            sign = np.where(mean > 0.0, -1.0, 1.0)
            parts = torch.from_numpy(np.column_stack([along, mean]) * sign[:, None]).float()
        assert self._few is not None
        at_once = max(1, LIMITS.cache_numbers // self._few.shape[1])
        found = [(part @ self._few).sigmoid_().mean(1) for part in parts.split(at_once)]
        smaller = torch.cat(found).double()
        tiny = torch.nonzero(smaller < torch.finfo(torch.float32).tiny)[:, 0]
        for rows in tiny.split(at_once):  # sigma is exp there, beyond single precision
            logarithm = (parts[rows] @ self._few).logsumexp(1).double()
            smaller[rows] = (logarithm - math.log(self._few.shape[1])).exp()
        return _both(mean, smaller.numpy())

    def _of_block(self, x: Any) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):  # what is not finite is left to the draws
            mean = np.asarray(x @ self.mean[:-1] + self.mean[-1])
            variance = self._variances(x)
            near = np.isfinite(mean) & (variance <= self.largest)
            sd, distance, smaller = np.sqrt(variance), np.abs(mean), np.zeros(len(mean))
            # the smaller probability: its logarithm must be finite where the other one is 1
            for node, weight in zip(NODES, WEIGHTS, strict=True):
                smaller += weight * expit(sd * node - distance)
        return _both(mean, smaller), near


def _both(mean: Array, smaller: Array) -> Array:
    """Probabilities of both classes, from the smaller one and the mean logit."""
    first = np.where(mean > 0.0, smaller, 1.0 - smaller)
    return np.column_stack([first, np.where(mean > 0.0, 1.0 - smaller, smaller)])


def with_ones(draws: Array) -> Tensor:
    """Draws as columns, above a row of ones."""
    return torch.from_numpy(np.vstack([draws.T, np.ones(len(draws))])).float()
