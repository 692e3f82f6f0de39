r"""Few draws that stand for all in averages of smooth functions.

An average over thousands of draws takes thousands of products a row. Of a function that is
quadratic in the parameters, it is known from their mean and covariance alone. So a part of the
draws, evenly spaced, is shifted and stretched to the mean and the covariance of all: its averages
of every quadratic function are then exact, and what is left is the error of the rest. With the
share :math:`R^2` of a function's variance that a quadratic function explains, and one of n draws,
that is :math:`\sqrt{(n - 1)(1 - R^2)}` Monte Carlo errors of all draws. For a logistic function of
a logit with the sd 1 and n = 16, it is a half; for a step and n = 4, it is one.

Whether a row's linear predictors vary little enough depends on the row alone, so that a prediction
does not depend on the other rows of a call.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg

from ..._arrays import Array
from ..._draws.posterior_samples import PosteriorSamples, kept_with_posterior

#: largest sds of logits, and of how many draws one is then taken
LEVELS = ((1.0, 16), (2.0, 8), (math.inf, 4))
#: the same of a mean in units of the noise, and of the logarithm of a mean; all draws beyond it.
#: With a link, variances of means are no quadratic functions, and take more draws
NOISE, OF_NEAR = 0.5, 16
LOG, OF_LINKED = 0.25, 4
#: least number of draws for each number of a draw, and by how many times there must be fewer
FOR_EACH, GAIN = 4, 2
#: fewer draws than this are used as they are
LEAST = 2000


@kept_with_posterior
def few_for_all(
    posterior: PosteriorSamples, names: tuple[str, ...], one_of: int
) -> PosteriorSamples | None:
    """One of so many draws of these blocks, with the moments of all; None if that saves little."""
    total = posterior.n_pooled
    width = sum(math.prod(posterior.shapes[name]) for name in names)
    few = max(math.ceil(total / one_of), FOR_EACH * width)
    if total < LEAST or few * GAIN > total:
        return None
    blocks = [posterior.pooled(name).reshape(total, -1) for name in names]
    draws = np.concatenate(blocks, axis=1).astype(np.float64)
    if not np.isfinite(draws).all():
        return None
    weights = posterior.pooled_weights()
    weights = np.full(total, 1.0 / total) if weights is None else weights
    mean = weights @ draws
    draws -= mean
    sd = np.sqrt(weights @ np.square(draws))
    draws /= np.where(sd > 0.0, sd, 1.0)
    square, axes = scipy.linalg.eigh(draws.T @ (draws * weights[:, None]))
    kept = square > 1e-10 * square[-1]
    root = axes[:, kept] * np.sqrt(square[kept])
    some = matched(draws @ (axes[:, kept] / np.sqrt(square[kept])), weights, few)
    if some is None:
        return None
    stand_ins = np.split(
        (some @ root.T) * sd + mean, np.cumsum([b.shape[1] for b in blocks])[:-1], 1
    )
    return PosteriorSamples(
        {
            name: each.reshape(1, few, *posterior.shapes[name])
            for name, each in zip(names, stand_ins, strict=True)
        }
    )


def matched(whitened: Array, weights: Array, few: int) -> Array | None:
    """Few draws (few, width) with the mean 0 and the covariance 1 of all, which are whitened.

    They are evenly spaced, so that they are less correlated than draws in a row. None if chains
    moved so little that these few are not spread in all directions.
    """
    places = (np.arange(few) + 0.5) / few
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), places), len(whitened) - 1)
    some = whitened[chosen] - whitened[chosen].mean(axis=0)
    try:
        root = scipy.linalg.cholesky(some.T @ some / few, lower=True)
    except scipy.linalg.LinAlgError:
        return None
    return np.asarray(scipy.linalg.solve_triangular(root, some.T, lower=True).T)


def roots_of(coef: Array, constant: Array) -> list[Array]:
    """Roots of the covariances, over the draws, of coefficients and constant of each predictor.

    ``coef`` (draws, k, features) and ``constant`` (draws, m) are relative to their means over the k
    predictors; for k = 1 there is no other.
    """
    if coef.shape[1] > 1:
        coef, constant = (each - each.mean(axis=1, keepdims=True) for each in (coef, constant))
    found = []
    for k in range(coef.shape[1]):
        both = np.column_stack([coef[:, k], constant[:, k]])
        root: Array = scipy.linalg.qr(both - both.mean(axis=0), mode="r")[0][: both.shape[1]]
        found.append(root / math.sqrt(len(both)))
    return found


def largest_sd(x: Any, roots: list[Array]) -> Array:
    """The largest sd (rows,) over the draws of the predictors of rows, from their roots."""
    found = np.zeros(x.shape[0])
    for root in roots:
        moved = np.asarray(x @ root[:, :-1].T) + root[:, -1]
        found = np.maximum(found, np.sqrt(np.einsum("ij,ij->i", moved, moved)))
    return found
