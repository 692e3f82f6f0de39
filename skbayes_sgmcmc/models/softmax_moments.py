r"""Predictions of multinomial logistic regression from the moments of its draws.

With the mean logits m of a row, p = softmax(m), and the variances :math:`u_k` over the draws of the
logits relative to their mean :math:`\sum_k p_k z_k`, the average over the draws is

.. math::
    \frac{1}{S} \sum_s \mathrm{softmax}_k(z_s) \approx
    p_k \left(1 + \tfrac{1}{2}\left(u_k - \sum_j p_j u_j\right)\right),

to second order; there is no term of first order. What is left grows with the skewness of the draws
and with :math:`u^2`. The largest u for which it is below ``TOLERANCE`` is found from the draws, as
for two classes (``logit_moments.py``). Rows beyond it are left to the draws.

The variances of a row take a product with a matrix for each pair of classes. Where they are so
small that a third more or less does not matter, a few random combinations of the draws give them.
All of this depends on the row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.utils import gen_batches

from .logit_moments import TOLERANCE, Moments

Array = NDArray[Any]

#: variances of relative logits that are tried
VARIANCES = (0.1, 0.05, 0.03, 0.01)
#: random combinations of draws, which give u to sqrt(2 / 16), and the largest p (1 - p) u for which
#: twice that error changes no probability by more than ``TOLERANCE``
COMBINATIONS, SMALL_TERM = 16, 8e-4
#: coordinates and random directions along which the error is looked at, and lead of one class
WORST, RANDOM_DIRECTIONS = 16, 16
#: mean logits of the first two classes at which the error is looked at; those of the others are 0
LEADS = ((0.0, 0.0), (1.5, 0.0), (3.0, 0.0), (4.0, 4.0), (5.0, 4.0), (7.0, 5.0))
#: rows at once: in the first pass, and where all pairs of classes are needed
ROWS, PAIR_ROWS = 4096, 512


class SoftmaxMoments(Moments):
    """Means and covariances of several classes' logits over the draws.

    Parameters
    ----------
    draws : array of shape (n_draws, n_classes, n_features + 1)
        Coefficients and intercepts.
    weights : array of shape (n_draws,) or None
        Normalised weights of the draws. None: all are equal.

    Attributes
    ----------
    largest : float
        Variance of a relative logit up to which probabilities are right to about ``TOLERANCE``; 0
        if they are not even for the smallest that was tried.
    """

    rows = ROWS

    def __init__(self, draws: Array, weights: Array | None):
        n, k, width = draws.shape
        self.n_classes = k
        weights = np.full(n, 1.0 / n) if weights is None else weights
        self.mean = np.tensordot(weights, draws, 1)
        away = draws - self.mean
        flat = away.reshape(n, -1) * np.sqrt(weights)[:, None]
        with np.errstate(over="ignore"):  # what is not finite is left to the draws
            covariance = (flat.T @ flat).reshape(k, width, k, width)
            #: for each class, its covariances with it and with the later ones: (width, -1)
            self._pairs = [
                covariance[a, :, a:].reshape(width, -1).astype(np.float32) for a in range(k)
            ]
            mixed = np.random.default_rng(0).standard_normal((COMBINATIONS, n)) @ flat
            mixed = mixed.reshape(-1, width).T / np.sqrt(COMBINATIONS)
            self._mixed = np.ascontiguousarray(mixed.astype(np.float32))
        self.largest = self._largest(away, weights)

    def _largest(self, away: Array, weights: Array) -> float:
        """Find ``largest``: along features with skewed or heavy-tailed draws, and at random."""
        k, width = self.mean.shape
        square = away * away
        second, third, fourth = (
            np.tensordot(weights, power, 1) for power in (square, square * away, square * square)
        )
        with np.errstate(all="ignore"):
            skewed = np.abs(third) / second**1.5 + fourth / second**2
        worst = np.argsort(-np.nan_to_num(skewed).max(0))[:WORST]
        sd = np.sqrt(second.mean(0))
        random = np.random.default_rng(0).standard_normal((width, RANDOM_DIRECTIONS))
        random /= np.where(sd > 0.0, sd, 1.0)[:, None]
        directions = np.hstack([np.eye(width)[:, worst], random]).T
        leads = [np.r_[lead, np.zeros(k - 2)] for lead in LEADS]
        for variance in VARIANCES:
            errors = (self._error(away @ x, weights, variance, leads) for x in directions)
            if all(error <= TOLERANCE for error in errors):
                return variance
        return 0.0

    @staticmethod
    def _error(moves: Array, weights: Array, variance: float, leads: list[Array]) -> float:
        """Largest error for logits that move like these (draws, classes), around some means."""
        worst = 0.0
        for mean in leads:
            p = softmax(mean)
            relative = moves - (moves @ p)[:, None]
            u = weights @ np.square(relative)
            if u.max() > 0.0:
                stretch = np.sqrt(variance / u.max())
                exact = weights @ softmax(mean + stretch * relative, axis=1)
                worst = max(worst, np.abs(exact - _second_order(p, stretch**2 * u)).max())
        return float(worst)

    def _of_block(self, x: Any) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):  # what is not finite is left to the draws
            p = softmax(np.asarray(x @ self.mean[:, :-1].T) + self.mean[:, -1], axis=1)
            single, k = x.astype(np.float32), len(self.mean)
            moved = np.asarray(single @ self._mixed[:-1]) + self._mixed[-1]
            moved = moved.reshape(len(p), -1, k)
            near = p.astype(np.float32)
            moved -= moved @ near[:, :, None]
            rough = np.einsum("nrk,nrk->nk", moved, moved)
            found = _second_order(p, rough)
            enough = (p * (1.0 - p)).max(1) * rough.max(1) <= SMALL_TERM
            left = np.flatnonzero(~enough)
            for some in gen_batches(len(left), PAIR_ROWS) if len(left) else ():
                rows = left[some]
                u = self._variances(single[rows], p[rows])
                found[rows] = _second_order(p[rows], u)
                enough[rows] = u.max(1) <= self.largest
        return found, enough & np.isfinite(found).all(1)

    def _variances(self, x: Any, p: Array) -> Array:
        """Variances (rows, classes) of the relative logits."""
        dense = x.toarray() if hasattr(x, "toarray") else x
        n, k = p.shape
        wide = np.ones((n, dense.shape[1] + 1), np.float32)
        wide[:, :-1] = dense
        covariance = np.empty((n, k, k))
        for a, pairs in enumerate(self._pairs):
            moved = (wide @ pairs).reshape(n, k - a, -1)
            covariance[:, a, a:] = np.matmul(moved, wide[:, :, None])[..., 0]
            covariance[:, a:, a] = covariance[:, a, a:]
        with_mean = np.matmul(covariance, p[:, :, None])[..., 0]
        of_mean = (with_mean * p).sum(1, keepdims=True)
        return np.diagonal(covariance, axis1=1, axis2=2) - 2.0 * with_mean + of_mean


def _second_order(p: Array, u: Array) -> Array:
    """Averages of a softmax of which p is that of the mean; u are variances of relative logits."""
    return np.asarray(p * (1.0 + 0.5 * (u - (p * u).sum(-1, keepdims=True))))
