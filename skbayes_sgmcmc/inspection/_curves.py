"""Quality of the averaged prediction as draws accumulate: running averages and their scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor

from .._arrays import Array
from .._draws.posterior_samples import Seen
from .._draws.prediction import blocks
from .._exceptions import not_allowed
from .._limits import LIMITS
from .._validation import check_consistent_length

#: smaller probabilities are replaced by this one, as in :func:`sklearn.metrics.log_loss`
SMALLEST = float(np.finfo(np.float64).eps)


class Curves:
    """Scores of the running averages over the draws of an estimator that has validated its data.

    One running sum of predictions is stored for each chain, and no draws but the first.
    """

    metrics: tuple[str, ...]

    def __init__(self, estimator: Any, X: Any, y: Any):
        self.X = estimator._validate_rows(X)
        self.y = self._targets(estimator, y)
        check_consistent_length(self.X, self.y)
        self.seen = Seen()

    def _restart(self, n_chains: int) -> None:
        self.weight, self.n_chains = 0.0, n_chains
        #: for each metric, (1 + 2 n_chains, n_draws): scores of all chains, each chain, single
        #: draws
        self._found: dict[str, Array] = {}
        self._start(n_chains)

    def extend(self, estimator: Any) -> range:
        """Score the new draws, and return their places; the first is 0 where curves begin anew."""
        posterior = estimator.posterior_
        first, stop = self.seen.before(*posterior.draws.values()), posterior.n_draws
        if first == stop:
            return range(0)
        if first == 0:
            self._restart(posterior.n_chains)
        weights = np.ones(stop - first)
        if posterior.weights is not None:
            weights = np.asarray(posterior.weights[first:stop], np.float64)
        norms = self.weight + np.cumsum(weights)
        self.weight = float(norms[-1])
        norms = np.where(norms > 0.0, norms, np.nan)  # no prediction until a weight is positive
        new = self._score(estimator, slice(first, stop), weights, norms)
        for name, values in self._found.items():
            new[name] = np.concatenate([values, new[name]], axis=1)
        self._found = new
        return range(first, stop)

    def scores(self) -> list[dict[str, Array]]:
        """Scores (n_draws,) of the average over all chains, for each metric.

        Then those of averages over single chains, and those of single draws, (n_chains, n_draws).
        """
        _, each, single = _thirds(self.n_chains)
        return [
            {name: values[which] for name, values in self._found.items()}
            for which in (0, each, single)
        ]

    # what classifiers and regressors add ----------------------------------------------------------

    def _targets(self, estimator: Any, y: Any) -> Array:
        """Targets in the form that scores take."""
        raise NotImplementedError

    def _start(self, n_chains: int) -> None:
        """Reset the running sums."""
        raise NotImplementedError

    def _score(
        self, estimator: Any, draws: slice, weights: Array, norms: Array
    ) -> dict[str, Array]:
        """Scores (1 + 2 n_chains, draws) of some new draws of each chain, for each metric.

        ``weights`` are the weights of the draws, and ``norms`` the sums of weights from the first
        draw on.
        """
        raise NotImplementedError

    def _blocks(
        self, estimator: Any, predict: Any, draws: slice, n_outputs: int
    ) -> Iterator[tuple[slice, slice, Any]]:
        """Yield rows, places among these draws, and the result of ``predict(draws, rows)``.

        The draws are those of all chains, one chain after the other, and keep their order within
        every block of rows. Neither a block of predictions nor its parameters have many more
        numbers than ``LIMITS.block_numbers``.
        """
        posterior, X = estimator.posterior_, self.X
        n_chains, n_new = posterior.n_chains, draws.stop - draws.start
        n_parameters = sum(math.prod(shape) for shape in posterior.shapes.values())
        most = LIMITS.block_numbers // (n_chains * n_parameters)
        first = draws.start + posterior.n_draws * np.arange(n_chains)[:, None]
        for rows, all_places in blocks(X.shape[0], n_new, n_chains * n_outputs, most):
            part = X[rows]
            for places in all_places:
                chosen = (first + np.arange(places.start, places.stop)).ravel()
                yield rows, places, predict(chosen, part)

    def _by_chain(self, values: Array) -> Array:
        """(chains * draws, ...) as (chains, draws, ...)."""
        return values.reshape(self.n_chains, -1, *values.shape[1:])


class ClassifierCurves(Curves):
    """Error, accuracy and negative log likelihood of the averaged probabilities."""

    metrics = ("error", "accuracy", "nll")

    def _targets(self, estimator: Any, y: Any) -> Array:
        self.classes = estimator._classes
        return np.asarray(estimator._known_codes(y))

    def _start(self, n_chains: int) -> None:
        self.sums = np.zeros((n_chains, len(self.y), self.classes.n_outputs))

    def _score(
        self, estimator: Any, draws: slice, weights: Array, norms: Array
    ) -> dict[str, Array]:
        right = np.zeros((1 + 2 * self.n_chains, len(weights)))
        nll = np.zeros_like(right)
        predict, classes = estimator._predictor(), self.classes
        for rows, places, block in self._blocks(estimator, predict, draws, classes.n_outputs):
            p = self._by_chain(block)
            labels = self.y[rows]
            running = np.asarray(p * weights[places, None, None], np.float64)
            _accumulate(np.add, running, self.sums[:, rows])
            norm = norms[places, None, None]
            parts = ((running.mean(axis=0)[None], norm), (running, norm), (p, 1.0))
            for which, (q, divisor) in zip(_thirds(self.n_chains), parts, strict=True):
                nll[which, places] -= classes.log_of_labels(q / divisor, labels, SMALLEST).sum(
                    axis=2
                )
                hit = classes.most_probable(q) == labels
                hit = hit.all(axis=3) if classes.several else hit
                right[which, places] += np.sum(hit, axis=2)
        accuracy = right / len(self.y)
        accuracy[: 1 + self.n_chains, np.isnan(norms)] = np.nan
        return {"error": 1.0 - accuracy, "accuracy": accuracy, "nll": nll / len(self.y)}


class RegressorCurves(Curves):
    """RMSE of the averaged mean, and negative log likelihood of the mixture over draws.

    Where only bounds of a time are known, there is no RMSE.
    """

    metrics = ("rmse", "nll")

    def _targets(self, estimator: Any, y: Any) -> Array:
        targets = np.asarray(estimator._validate_targets(y, self.X.shape[0]))
        self.known = targets
        if targets.shape[1] > estimator._n_targets:  # bounds of times
            first = targets[:, :1]
            self.known = np.where(first == targets[:, 1:], first, np.nan)
        return targets

    def _start(self, n_chains: int) -> None:
        self.sums = np.zeros((n_chains, *self.known.shape))
        self.log_densities = np.full((n_chains, len(self.y)), -np.inf)

    def _score(
        self, estimator: Any, draws: slice, weights: Array, norms: Array
    ) -> dict[str, Array]:
        n_chains, n_outputs = self.n_chains, self.known.shape[1]
        predict = estimator._predictive()
        squares = np.zeros((1 + 2 * n_chains, len(weights), n_outputs))
        nll = np.zeros(squares.shape[:2])
        with np.errstate(divide="ignore"):  # some weights may be zero
            log_weights = np.log(weights)
        for rows, places, predictive in self._blocks(estimator, predict, draws, n_outputs):
            norm = norms[places, None]
            density = self._by_chain(predictive.log_density(self.y[rows]).sum(axis=2))
            summed = density + log_weights[places, None]
            _accumulate(np.logaddexp, summed, self.log_densities[:, rows])
            of_all = np.logaddexp.reduce(summed, axis=0)[None] - math.log(n_chains)
            logs = of_all - np.log(norm), summed - np.log(norm), density
            f, norm = self._by_chain(predictive.mean()), norm[:, :, None]
            running = np.asarray(f * weights[places, None, None], np.float64)
            _accumulate(np.add, running, self.sums[:, rows])
            means = running.mean(axis=0)[None] / norm, running / norm, f
            for which, log, mean in zip(_thirds(n_chains), logs, means, strict=True):
                nll[which, places] -= log.sum(axis=2)
                squares[which, places] += np.sum((self.known[rows] - mean) ** 2, axis=2)
        rmse = {"rmse": np.sqrt(squares / len(self.y)).mean(axis=2)}
        return ({} if np.isnan(self.known).any() else rmse) | {"nll": nll / len(self.y)}


def kind_of_curves(estimator: Any) -> type[Curves]:
    """The class of curves for an estimator, which need not be fitted."""
    if is_classifier(estimator):
        return ClassifierCurves
    if is_regressor(estimator):
        return RegressorCurves
    raise not_allowed(f"estimator={estimator!r} is not allowed: give a classifier or regressor.")


def _accumulate(add: Any, values: Array, before: Array) -> None:
    """Turn ``values`` (chains, draws, ...) into running sums that continue from ``before``.

    Both change in place: ``before`` (chains, ...) becomes the last sum. ``add`` is ``np.add``, or
    ``np.logaddexp`` for logarithms.
    """
    values[:, 0] = add(values[:, 0], before)
    add.accumulate(values, axis=1, out=values)
    before[...] = values[:, -1]


def _thirds(n_chains: int) -> tuple[slice, slice, slice]:
    """Places of the scores of all chains, of each chain, and of single draws."""
    return slice(0, 1), slice(1, 1 + n_chains), slice(1 + n_chains, None)
