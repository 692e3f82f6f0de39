"""The distribution of new targets: a mixture with one component for each draw.

Memory is bounded as in ``prediction.py``: a block has at most ``LIMITS.block_numbers``
numbers. For quantiles and samples, which need all draws at once, a block has at least one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaincinv, gammaln, logsumexp, xlogy

from .._arrays import Array
from .._limits import LIMITS
from .._validation import check_densities
from . import prediction
from .posterior_samples import quantiles

if TYPE_CHECKING:
    from ..models.likelihoods.predictive import Predictive


#: tolerance of a quantile, in units of the shortest length of the components at that row
TOLERANCE = 1e-9
#: largest number of steps for a quantile; bisection alone needs about log2(bracket / tolerance)
STEPS = 200


class Mixture:
    """Predictive distribution of new targets: the mixture over all draws.

    ``predictive(draws, rows)`` returns the distributions given some of the ``n_draws`` pooled draws
    (a slice or an index array), for some rows of ``n_targets`` targets. ``weights`` (n_draws,) are
    normalised; None: all are equal. ``means(draws, rows)`` returns the means of the distributions,
    for models that have them without the rest.
    """

    def __init__(
        self,
        predictive: Callable[[Any, Any], Predictive],
        n_draws: int,
        n_targets: int,
        weights: Array | None,
        means: prediction.Predict | None = None,
    ):
        self.predictive = predictive
        self.given_means = means
        self.n_draws = n_draws
        self.n_targets = n_targets
        self.given_weights = weights
        self.weights = np.full(n_draws, 1.0 / n_draws) if weights is None else weights

    def moments(self, x: Any, *, variance: bool = True) -> Array:
        """Means and both parts of the variances, (3, rows, targets); zero without ``variance``.

        The first part is the mean of the components' variances, the second the variance of their
        means.
        """
        found = np.zeros((3, x.shape[0], self.n_targets))
        mean, within, between = found
        only_means = None if variance else self.given_means
        for rows, draw_blocks in prediction.blocks(x.shape[0], self.n_draws, self.n_targets):
            part, origin = x[rows], None
            for draws in draw_blocks:
                weights = self.weights[draws]
                if only_means is None:
                    one = self.predictive(draws, part)
                    values = one.mean()
                else:
                    values = only_means(draws, part)
                if origin is None:  # near the means, to avoid cancellation in the variances
                    origin = values[0].copy()
                away = values - origin
                mean[rows] += np.tensordot(weights, away, axes=1)
                if variance:
                    between[rows] += np.tensordot(weights, away * away, axes=1)
                    within[rows] += np.tensordot(weights, one.variance(), axes=1)
            between[rows] -= mean[rows] ** 2
            mean[rows] += origin
        np.maximum(between, 0.0, out=between)
        return found

    def means(self, draws: Any, x: Any) -> Iterator[Array]:
        """Means given some pooled draws, in blocks (draws, rows, targets) of rows."""
        n = self.n_draws if isinstance(draws, slice) else len(draws)
        for rows in self._rows(x, n):
            mean = np.asarray(self.predictive(draws, x[rows]).mean())
            yield np.broadcast_to(mean, (n, x[rows].shape[0], self.n_targets))

    def mean_quantiles(self, x: Any, levels: Sequence[float]) -> Array:
        """Quantiles (rows, levels, targets) of the components' means over the draws."""
        found = [
            quantiles(means, levels, self.given_weights)
            for means in self.means(slice(0, self.n_draws), x)
        ]
        return np.moveaxis(np.concatenate(found, axis=1), 0, 1)

    def quantiles(self, x: Any, levels: Sequence[float]) -> Array:
        """Quantiles (rows, levels, targets) of the mixture."""
        out = np.empty((x.shape[0], len(levels), self.n_targets))
        for rows in self._rows(x, self.n_draws):
            one = self.predictive(slice(0, self.n_draws), x[rows])
            least = np.full(out[rows, 0].shape, -np.inf)
            for k in np.argsort(levels, kind="stable"):
                least = np.maximum(least, quantile(one, self.weights, levels[k]))
                out[rows, k] = least  # so that rounding errors never change their order
        return out

    def cdf(self, x: Any, values: Array) -> Array:
        """Probabilities (rows, values, targets) that new targets are at most some values."""
        out = np.zeros((x.shape[0], len(values), self.n_targets))
        for rows, draw_blocks in prediction.blocks(x.shape[0], self.n_draws, self.n_targets):
            for draws in draw_blocks:
                one, weights = self.predictive(draws, x[rows]), self.weights[draws]
                for k, value in enumerate(values):
                    below = one.cdf(np.full(out[rows, k].shape, value))
                    out[rows, k] += np.tensordot(weights, below, axes=1)
        return np.minimum(out, 1.0)

    def log_density(self, x: Any, y: Array) -> Array:
        """Joint log density (rows,), in nats, of the targets y (rows, targets) of each row.

        Of targets that are possible it is finite, or an error.
        """
        out, beyond = np.full(len(y), -np.inf), np.zeros(len(y), bool)
        with np.errstate(all="ignore"):  # weights of zero; what is not finite is refused
            log_weights = np.log(self.weights)[:, None]
            for rows, draw_blocks in prediction.blocks(len(y), self.n_draws, self.n_targets):
                part = x[rows]
                for draws in draw_blocks:
                    each, refused = _log_density(self.predictive(draws, part), y[rows])
                    beyond[rows] |= refused
                    block = logsumexp(each + log_weights[draws], axis=0)
                    out[rows] = np.logaddexp(out[rows], block)
        check_densities(out, beyond, y)
        return out

    def log_densities(self, x: Any, y: Array) -> Iterator[Array]:
        """Log densities given each draw, in blocks (draws, rows) in the order of the rows."""
        for rows in self._rows(x, self.n_draws):
            one = self.predictive(slice(0, self.n_draws), x[rows])
            each, refused = _log_density(one, y[rows])
            check_densities(each.max(axis=0), refused, y[rows], rows.start)
            yield each

    def sample(self, x: Any, n_samples: int, rng: np.random.RandomState) -> Array:
        """New targets (n_samples, rows, targets); each sample uses one draw for all rows."""
        chosen = rng.choice(self.n_draws, size=n_samples, p=self.given_weights)
        return self.sample_of(chosen, x, rng)

    def sample_of(self, chosen: Array, x: Any, rng: np.random.RandomState) -> Array:
        """New targets (len(chosen), rows, targets), one of each chosen draw."""
        rows = self._rows(x, len(chosen))
        return np.concatenate([self.predictive(chosen, x[r]).sample(rng) for r in rows], axis=1)

    def _rows(self, x: Any, n_draws: int) -> Iterator[slice]:
        """Blocks of rows such that one block with ``n_draws`` draws is not too large."""
        return LIMITS.blocks(x.shape[0], n_draws * self.n_targets)


class WithFew(Mixture):
    """A mixture with the smooth averages of another, with few draws, for near rows.

    ``near(rows)`` says for which rows the other stands for all.
    """

    def __init__(self, whole: Mixture, few: Mixture, near: Callable[[Any], Array]):
        sizes = whole.n_draws, whole.n_targets
        super().__init__(whole.predictive, *sizes, whole.given_weights, whole.given_means)
        self.few = few
        self.near = near

    def moments(self, x: Any, *, variance: bool = True) -> Array:
        whole = super().moments
        return self._divided(
            x,
            lambda rows: self.few.moments(rows, variance=variance).swapaxes(0, 1),
            lambda rows: whole(rows, variance=variance).swapaxes(0, 1),
        ).swapaxes(0, 1)

    def quantiles(self, x: Any, levels: Sequence[float]) -> Array:
        whole = super().quantiles
        return self._divided(
            x, lambda rows: self.few.quantiles(rows, levels), lambda rows: whole(rows, levels)
        )

    def _divided(self, x: Any, few: Callable[[Any], Array], whole: Callable[[Any], Array]) -> Array:
        """What ``few`` finds for near rows, and ``whole`` for the others, in their order."""
        near = self.near(x)
        if near.all():
            return few(x)
        if not near.any():
            return whole(x)
        of_near = few(x[near])
        out = np.empty((len(near), *of_near.shape[1:]))
        out[near], out[~near] = of_near, whole(x[~near])
        return out


def _log_density(components: Predictive, y: Array) -> tuple[Array, Array]:
    """Joint log densities (draws, rows), and rows that have one which is wrongly not finite."""
    with np.errstate(all="ignore"):  # what is not finite is refused
        joint = components.log_density(y).sum(axis=2)
    bad = ~np.isfinite(joint)
    if bad.any():
        bad &= components.possible(y).all(axis=-1)
    return joint, bad.any(axis=0)


def quantile(components: Predictive, weights: Array, q: float) -> Array:
    """The q-quantile (rows, targets) of the mixture of components (draws, rows, targets).

    The quantile lies between the smallest and the largest q-quantile of the components. Within this
    bracket it is found by Newton's method on the cdf of the mixture. A bisection replaces a Newton
    step that leaves the bracket, or that follows a step which has not halved the error. For whole
    numbers, a gamma distribution with the mixture's moments gives the start and the slope.
    """
    low, high = components.bounds(q)
    start = np.tensordot(weights, 0.5 * (low + high), axes=1)
    low, high = low.min(axis=0), high.max(axis=0)

    def above(y: Array) -> Array:
        return np.asarray(np.tensordot(weights, components.cdf(y), axes=1) - q)

    if components.discrete:
        like = GammaLike.of(components, weights)
        return _least_whole_number(
            above, np.floor(low) - 1.0, np.ceil(high), like.quantile(q), like
        )
    y, best = np.clip(start, low, high), np.full(start.shape, np.inf)
    tolerance = TOLERANCE * components.length().min(axis=0)
    done = np.zeros(start.shape, bool)
    if components.has_atom:
        done = above(low) >= 0.0
        y = np.where(done, low, y)
    for _ in range(STEPS):
        error = above(y)
        low, high = np.where(error < 0.0, y, low), np.where(error > 0.0, y, high)
        with np.errstate(all="ignore"):  # far from the components
            slope = np.tensordot(weights, np.exp(components.log_density(y)), axes=1)
            newton = y - error / slope
        newton = np.where(error == 0.0, y, newton)
        trusted = (low <= newton) & (newton <= high) & (np.abs(error) <= 0.5 * best)
        best = np.minimum(best, np.abs(error))
        following = np.where(trusted, newton, 0.5 * (low + high))
        left = np.where(trusted, np.abs(newton - y), high - low)
        allowed = np.maximum(tolerance, np.spacing(np.abs(y)))
        y = np.where(done, y, following)
        done |= ~(left > allowed)  # also true for numbers that are not finite
        if done.all():
            break
    return y


@dataclass
class GammaLike:
    """The gamma distribution with the mean and the variance of a mixture, which it resembles."""

    #: its parameters, (rows, targets)
    shape: Array
    scale: Array

    @classmethod
    def of(cls, components: Predictive, weights: Array) -> GammaLike:
        means = components.mean()
        mean = np.tensordot(weights, means, axes=1)
        spread = np.square(means - mean) + components.variance()
        with np.errstate(all="ignore"):  # what is not finite is not used
            scale = np.tensordot(weights, spread, axes=1) / mean
            return cls(mean / scale, scale)

    def quantile(self, q: float) -> Array:
        return np.asarray(gammaincinv(self.shape, q) * self.scale)

    def density(self, y: Array) -> Array:
        z = y / self.scale
        return np.asarray(np.exp(xlogy(self.shape - 1.0, z) - z - gammaln(self.shape)) / self.scale)


def _least_whole_number(
    above: Callable[[Array], Array], low: Array, high: Array, y: Array, like: GammaLike
) -> Array:
    """The smallest whole number at which the increasing function ``above`` is not negative.

    ``above`` must be negative at ``low``, and must not be negative at ``high``. The search begins
    at y with the slope of ``like``, and goes on with that between the last two points. Should this
    not end in 8 steps, every other one halves the bracket.
    """
    last = before = np.full(y.shape, np.nan)
    for k in range(STEPS):
        wide = high - low > 1.0
        if not wide.any():
            break
        halved = ~np.isfinite(y) | (k >= 8 and k % 2 == 0)
        y = np.where(halved, np.floor(0.5 * (low + high)), np.rint(y))
        y = np.where(wide, np.clip(y, low + 1.0, high - 1.0), high)
        error = above(y)
        below = error < -1e-13  # by more than rounding
        low, high = np.where(wide & below, y, low), np.where(wide & ~below, y, high)
        with np.errstate(all="ignore"):  # far from the components slopes are zero
            slope = (error - before) / (y - last)
            step = error / np.where(slope > 0.0, slope, like.density(y))
        last, before = y, error
        y = y - np.where(below, np.minimum(step, -1.0), np.maximum(step, 1.0))
    return high
