r"""Predictions of multinomial logistic regression from the moments of its draws.

With the mean logits m of a row, p = softmax(m), and the variances :math:`u_k` over the draws of the
logits relative to their mean :math:`\sum_k p_k z_k`, the average over the draws is

.. math::
    \frac{1}{S} \sum_s \mathrm{softmax}_k(z_s) \approx
    p_k \left(1 + \tfrac{1}{2}\left(u_k - \sum_j p_j u_j\right)\right),

to second order; there is no term of first order. What is left grows with the skewness of the draws
and with :math:`u^2`. The largest u for which it is below ``TOLERANCE`` is found from the draws, as
for two classes (``logit_moments.py``). Rows beyond it are left to the draws.

The variances of a row are those of bilinear forms of the coefficients. Their covariances are nearly
a product of a matrix of classes and one of features. They are written as a sum of such products
(``_kronecker.py``); each takes one quadratic form of the row. How far the first of them
are off is found from the draws, too: one is enough for rows of small variances, and the others have
as many as rows of the largest one need. All of this depends on the row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from scipy.special import softmax

from ..._arrays import Array
from ..._draws.posterior_samples import PosteriorSamples, kept_with_posterior
from .kronecker import kronecker_terms, quadratic_forms
from .logit import RANDOM_DIRECTIONS, TOLERANCE, LogitMoments, Moments

#: variances of relative logits that are tried
VARIANCES = (0.1, 0.05, 0.03, 0.01)
#: largest sum of p u over unlikely classes (their u may be larger), and variances that are tried
SMALL_TERM, CERTAIN_VARIANCES = 8e-4, (1.0, 0.3)
#: mean logits of the first two classes at which the error is looked at; those of the others are 0
LEADS = ((0.0, 0.0), (1.5, 0.0), (3.0, 0.0), (4.0, 4.0), (5.0, 4.0), (7.0, 5.0))
#: largest error that few terms may add
TERMS_TOLERANCE = 4e-4


@kept_with_posterior
def moments_of(posterior: PosteriorSamples) -> Moments | None:
    """The moments of a posterior of two classes or more; None if its draws are few for its size."""
    weights, (k, n_features) = posterior.pooled_weights(), posterior.shapes["coef"]
    n_draws = posterior.n_pooled if weights is None else int((weights > 0).sum())
    # fewer draws for each coefficient are as quick
    if n_draws < (8 if k == 1 else 2) * k * (n_features + 1):
        return None
    coef, intercept = (posterior.pooled(name) for name in ("coef", "intercept"))
    draws = np.concatenate([coef, intercept[:, :, None]], axis=2).astype(np.float64)
    if not np.isfinite(draws).all():
        return None
    return LogitMoments(draws[:, 0], weights) if k == 1 else SoftmaxMoments(draws, weights)


class SoftmaxMoments(Moments):
    """Means and covariances of logits over the draws (n_draws, n_classes, n_features + 1).

    They are those of coefficients and intercepts, with normalised weights; None: all are equal.
    """

    def __init__(self, draws: Array, weights: Array | None):
        n, k, _ = draws.shape
        self.n_classes = k
        weights = np.full(n, 1.0 / n) if weights is None else weights
        self.mean = np.tensordot(weights, draws, 1)
        away = draws - self.mean
        away -= away.mean(axis=1, keepdims=True)  # probabilities know nothing of it
        with np.errstate(all="ignore"):
            sd = np.sqrt(np.tensordot(weights, away * away, 1).mean(0))
            sd[sd == 0.0] = 1.0
            away /= sd  # columns in units that make their coefficients vary alike
        self.largest = self._certain = 0.0  # what is not finite is left to the draws
        if np.isfinite(away).all():
            moves = _typical_moves(away, weights)
            leads = [np.r_[lead, np.zeros(k - 2)] for lead in LEADS]
            self.largest = _largest(moves, weights, dict.fromkeys(VARIANCES, leads))
            certain = {u: _certain_leads(k, SMALL_TERM / u) for u in CERTAIN_VARIANCES}
            self._certain = _largest(moves, weights, certain)
        if self.largest > 0.0:
            self._make_terms(away, weights, sd)

    def _make_terms(self, away: Array, weights: Array, sd: Array) -> None:
        """Products of matrices, as many as rows of the largest variance need."""
        n, k, width = away.shape
        basis = scipy.linalg.helmert(k)  # of the differences of classes
        flat = (basis @ away).reshape(n, -1) * np.sqrt(weights)[:, None]
        covariance = (flat.T @ flat).reshape(k - 1, width, k - 1, width)
        classes, features, root = kronecker_terms(covariance)
        rows = _rows_to_look_at(root)
        of_logits = [
            np.einsum("kilj,ni,nj->nkl", covariance, some, some, optimize=True)
            for some in np.array_split(rows, max(1, len(rows) // 32))
        ]
        errors = _errors_of_terms(
            basis.T @ np.concatenate(of_logits) @ basis,
            quadratic_forms(rows @ root, features).T,
            basis.T @ classes @ basis,
            TERMS_TOLERANCE / self.largest,
        )
        # larger errors, as parts of p (1 - p) u, say nothing of u
        reliable = np.flatnonzero([of_size <= 0.25 for _, of_size in errors])
        if not len(reliable):
            self.largest = 0.0
            return
        #: numbers of terms, and their errors: few that are tried first, and as many as are needed
        self._stages = [(int(r) + 1, errors[r]) for r in sorted({reliable[0], reliable[-1]})]
        n_terms = int(reliable[-1]) + 1
        classes = (basis.T @ classes[:n_terms] @ basis).astype(np.float32)
        self._diagonals, self._classes = _diagonals(classes), np.hstack(list(classes))
        self._root = sd[:, None] * root
        # a quadratic form needs every pair of features once: above the diagonal, twice its entries
        upper = 2.0 * np.triu(features[:n_terms], 1) + features[:n_terms] * np.eye(width)
        upper = upper.astype(np.float32)
        parts = np.array_split(np.arange(width), max(1, width // 16))
        self._parts = [
            (slice(part[0], part[-1] + 1), np.hstack(list(upper[:, : part[-1] + 1, part])))
            for part in parts
        ]

    def _of_block(self, x: Any) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):  # what is not finite is left to the draws
            p = softmax(np.asarray(x @ self.mean[:, :-1].T) + self.mean[:, -1], axis=1)
            z = (np.asarray(x @ self._root[:-1]) + self._root[-1]).astype(np.float32)
            found, left = np.empty_like(p), np.arange(len(p))
            for n_terms, errors in self._stages:
                if not len(left):
                    break
                found[left], right = self._averages(z[left], p[left], n_terms, errors)
                left = left[~right]
            near = np.isfinite(found).all(1)
            near[left] = False
        return found, near

    def _averages(
        self, z: Array, p: Array, n_terms: int, errors: tuple[float, float]
    ) -> tuple[Array, Array]:
        """Averages of the softmax by some terms, and which of them are right."""
        u = self._variances(z, p.astype(np.float32), n_terms)
        top = np.abs(u).max(1)
        size = (p * (1.0 - p)).max(1) * top
        exact = np.minimum(top * errors[0], size * errors[1]) <= TERMS_TOLERANCE
        unlikely = (p * u * (u > self.largest)).sum(1) <= SMALL_TERM
        near = (top <= self.largest) | ((top <= self._certain) & unlikely)
        return _second_order(p, u), exact & near

    def _variances(self, z: Array, p: Array, n_terms: int) -> Array:
        """Variances (rows, classes) of the relative logits, by the first terms."""
        n, k = p.shape
        forms = np.zeros((n, n_terms), np.float32)
        for part, features in self._parts:
            own = z[:, part]
            half = z[:, : part.stop] @ features[:, : n_terms * own.shape[1]]
            forms += np.matmul(half.reshape(n, n_terms, -1), own[:, :, None])[:, :, 0]
        moved = (p @ self._classes[:, : n_terms * k]).reshape(n, n_terms, k)
        with_mean = np.matmul(forms[:, None], moved)[:, 0]
        of_mean = (with_mean * p).sum(1, keepdims=True)
        return np.asarray(forms @ self._diagonals[:n_terms] - 2.0 * with_mean + of_mean)


def _typical_moves(away: Array, weights: Array) -> list[Array]:
    """Logits (draws, k) along 16 features with skewed or heavy-tailed draws, and 16 at random."""
    square, width = away * away, away.shape[2]
    second, third, fourth = (
        np.tensordot(weights, power, 1) for power in (square, square * away, square * square)
    )
    with np.errstate(all="ignore"):
        skewed = np.abs(third) / second**1.5 + fourth / second**2
    worst = np.argsort(-np.nan_to_num(skewed).max(0))[:16]
    random = np.random.default_rng(0).standard_normal((width, 16))
    return [away @ row for row in np.hstack([np.eye(width)[:, worst], random]).T]


def _certain_leads(k: int, doubt: float) -> list[Array]:
    """Mean logits with one class in the lead, over another or all: its p (1 - p) is ``doubt``.

    One of the first four classes leads; classes that are out of the way have the logit -8.
    """
    leads = []
    for leader in range(min(k, 4)):
        for others in (0.0, -8.0):
            lead = np.full(k, others)
            lead[(leader + 1) % k] = 0.0
            lead[leader] = np.log(np.exp(np.delete(lead, leader)).sum() / doubt)
            leads.append(lead)
    return leads


def _largest(moves: list[Array], weights: Array, leads: dict[float, list[Array]]) -> float:
    """The first variance with no error above ``TOLERANCE``, around its mean logits."""
    for variance, means in leads.items():
        if all(_error(move, weights, variance, means) <= TOLERANCE for move in moves):
            return variance
    return 0.0


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


def _rows_to_look_at(root: Array) -> Array:
    """Features, pairs of them, principal axes, and random rows, for roots of a covariance."""
    width, rng = len(root), np.random.default_rng(0)
    pairs = np.zeros((RANDOM_DIRECTIONS, width))
    for row in pairs:
        row[rng.choice(width, 2, replace=False)] = rng.choice([-1.0, 1.0], 2)
    axes = np.linalg.inv(root)
    random = rng.standard_normal((RANDOM_DIRECTIONS, width)) @ axes
    return np.vstack([np.eye(width), pairs, axes, random])


def _errors_of_terms(
    covariances: Array, forms: Array, classes: Array, enough: float
) -> list[tuple[float, float]]:
    """Largest errors of probabilities by one term, by two, and so on, until they are enough.

    They are parts of u, and of p (1 - p) u. ``covariances`` (rows, k, k) are those of logits, and
    ``forms`` (terms, rows) and ``classes`` (terms, k, k) what the terms make of them.
    """
    rng, k = np.random.default_rng(0), classes.shape[1]
    p = softmax([rng.permutation(np.r_[lead, np.zeros(k - 2)]) for lead in 3 * LEADS], axis=1)
    u = _relative(covariances[:, None], p)
    top = np.maximum(u.max(2), np.finfo(float).tiny)
    size, exact = (p * (1.0 - p)).max(1), _second_order(p, u)
    found, errors = np.zeros_like(u), []
    for form, of_classes in zip(forms, _relative(classes[:, None], p), strict=True):
        found += form[:, None, None] * of_classes
        error = np.abs(_second_order(p, found) - exact).max(2) / top
        errors.append((float(error.max()), float((error / size).max())))
        if errors[-1][0] <= enough:
            break
    return errors


def _relative(covariance: Array, p: Array) -> Array:
    """Variances (..., k) of logits relative to their mean, of covariances (..., k, k)."""
    moved = (covariance @ p[..., None])[..., 0]
    of_mean = (moved * p).sum(-1, keepdims=True)
    return np.asarray(_diagonals(covariance) - 2.0 * moved + of_mean)


def _diagonals(matrices: Array) -> Array:
    return np.asarray(np.diagonal(matrices, axis1=-2, axis2=-1))


def _second_order(p: Array, u: Array) -> Array:
    """Averages of a softmax, where p is that of the mean; u are variances of relative logits."""
    return np.asarray(p * (1.0 + 0.5 * (u - (p * u).sum(-1, keepdims=True))))
