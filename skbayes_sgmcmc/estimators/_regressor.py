"""What all regressors share: fitting, streams of rows, predictions with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from .._callbacks import with_callbacks
from .._draws import prediction
from .._validation import check_int, check_random_state, check_real
from ._base import SGMCMCEstimator, all_or_nothing

if TYPE_CHECKING:
    from ..models._protocol import Model

Array = NDArray[Any]

#: bisections for a quantile: the bracket of some twenty sd shrinks to 1e-8 sd
BISECTIONS = 32


class BayesianRegressor(RegressorMixin, SGMCMCEstimator):
    """Base of regressors with normal noise."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Draw the posterior of the parameters.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array of shape (n_samples,) or None, default=None
            Exponents of the rows' likelihoods, not negative.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A parameter or the data are not allowed.
        SamplingError
            Every chain left the finite numbers; nothing is fitted then.
        """
        settings, before = self._check(), self._widths()
        X, y = self._validate_xy(X, y, reset=True)
        X, y, weight = self._weights(X, y, sample_weight)
        previous = self._previous(stream=False, same=before == self._widths())
        model, previous = self._begin(
            lambda first: self._make_model(X, y, weight, first=first), previous
        )
        self._fit_rows(model, X, y, weight, settings, previous=previous, stream=False)
        self._check_mixing(X)
        return self

    @all_or_nothing
    @with_callbacks
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Go on sampling with new rows of a stream, for one pass over them.

        The target is the posterior of ``total_samples`` data if that is given, else of the rows
        seen so far; the newest ``n_draws`` draws of each chain are kept.

        Parameters
        ----------
        X, y, sample_weight : arrays
            New rows, as for ``fit``.

        Returns
        -------
        self
        """
        settings = self._check()
        self._check_stream()
        first = not hasattr(self, "posterior_")
        X, y = self._validate_xy(X, y, reset=first)
        n_outputs = math.prod(self._y_shape)
        if y.shape[1] != n_outputs:
            raise ValueError(
                f"y with {y.shape[1]} outputs is not allowed: earlier calls had {n_outputs}."
            )
        X, y, weight = self._weights(X, y, sample_weight)
        previous = None if first else self._previous(stream=True)
        model = self._make_model(X, y, weight, first=first)
        self._fit_rows(model, X, y, weight, settings, previous=previous, stream=True)
        return self

    def _widths(self) -> tuple[int, ...]:
        """Features and outputs of the data; nothing before the first fit."""
        if not hasattr(self, "_y_shape"):
            return ()
        return self.n_features_in_, math.prod(self._y_shape)

    # what subclasses add --------------------------------------------------------------------------

    n_features_in_: int
    _y_shape: tuple[int, ...]
    #: about where the targets are: squares are of what is beyond it
    _y_center: Any = 0.0

    def _make_model(self, X: Any, y: Array, weight: Array | None, *, first: bool) -> Model:
        """The model of rows like X; ``first`` unless it goes on with an earlier one's chains."""
        raise NotImplementedError

    def _check_mixing(self, X: Any) -> None:
        """Warn if the chains have not mixed."""
        raise NotImplementedError

    def _noise_sd(self) -> Array:
        """Standard deviation of the noise, (draws, outputs), of all pooled draws."""
        raise NotImplementedError

    def _validate_xy(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        X, y = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse=self._sparse(),
            dtype=(np.float64, np.float32),
            multi_output=True,
            y_numeric=True,
        )
        if reset:
            self._y_shape = y.shape[1:]
        return X, np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def _given(self, target: Array) -> Array:
        return self._shaped(target)

    def _validate_rows(self, X: Any) -> Any:
        return validate_data(
            self, X, reset=False, accept_sparse=self._sparse(), dtype=(np.float64, np.float32)
        )

    # prediction -----------------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of the target.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        return_std : bool, default=False
            Also return the standard deviation of a new observation, noise included.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs), or a pair of them
        """
        X = self._validate_x(X)
        posterior, k, means = self.posterior_, self._noise_sd().shape[1], self._predictor()

        def with_square(draws: slice, part: Any) -> Array:
            f = means(draws, part) - self._y_center
            return np.concatenate([f, f * f], axis=2) if return_std else f

        width = 2 * k if return_std else k
        n_draws, weights = posterior.n_chains * posterior.n_draws, posterior.pooled_weights()
        moments = prediction.average(with_square, X, n_draws, width, weights)
        mean = self._shaped(moments[:, :k] + self._y_center)
        if not return_std:
            return mean
        noise = np.average(self._noise_sd() ** 2, axis=0, weights=weights)
        spread = np.maximum(moments[:, k:] - moments[:, :k] ** 2, 0.0)
        return mean, self._shaped(np.sqrt(spread + noise))

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of a new observation: of the draws' mixture of normal distributions.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        quantiles : sequence of float, default=(0.05, 0.5, 0.95)
            Probabilities in (0, 1).

        Returns
        -------
        array of shape (n_samples, n_quantiles) or (n_samples, n_quantiles, n_outputs)
        """
        levels = [check_real("quantiles", q, low=0.0, high=1.0) for q in np.atleast_1d(quantiles)]
        X, sd = self._validate_x(X), self._noise_sd()[:, None]
        weights = self.posterior_.pooled_weights()
        parts = [
            np.stack([_mixture_quantile(f, sd, weights, q) for q in levels], axis=1)
            for f in self._means(X)
        ]
        out = np.concatenate(parts)
        return out if len(self._y_shape) else out[:, :, 0]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central interval of a new observation, noise included.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Its probability, in (0, 1).

        Returns
        -------
        array of shape (n_samples, 2) or (n_samples, 2, n_outputs)
            Lower and upper ends.
        """
        check_real("coverage", coverage, low=0.0, high=1.0)
        return self.predict_quantiles(X, (0.5 - coverage / 2.0, 0.5 + coverage / 2.0))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """New observations, each with a draw of the parameters and noise of its own.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        n_samples : int, default=1
            Observations of every row.
        random_state : int, RandomState or None, default=None
            Seed.

        Returns
        -------
        array of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
        """
        check_int("n_samples", n_samples)
        X, rng, noise = self._validate_x(X), check_random_state(random_state), self._noise_sd()
        chosen = rng.choice(len(noise), size=n_samples, p=self.posterior_.pooled_weights())
        f = np.concatenate(list(self._means(X, chosen)), axis=1)
        y = np.moveaxis(f + noise[chosen][:, None] * rng.standard_normal(f.shape), 0, -1)
        return y if len(self._y_shape) else y[:, 0]

    def _means(self, X: Any, draws: Any = None) -> Iterator[Array]:
        """Blocks (draws, rows, outputs) of the draws' means, in the order of the rows."""
        total = self.posterior_.n_chains * self.posterior_.n_draws
        chosen = slice(0, total) if draws is None else draws
        n_draws = total if draws is None else len(draws)
        at_once = max(1, prediction.BLOCK_NUMBERS // (n_draws * self._noise_sd().shape[1]))
        means = self._predictor()
        for start in range(0, X.shape[0], at_once):
            yield means(chosen, X[start : start + at_once])

    def _log_lik_blocks(self, X: Any, y: Any) -> Iterator[Array]:
        X, y, start = self._validate_x(X), np.asarray(y, dtype=np.float64), 0
        sd = self._noise_sd()[:, None]
        if y.shape not in ((len(X), *self._y_shape), (len(X), sd.shape[2])):
            raise ValueError(
                f"y of shape {y.shape} is not allowed: give the outputs of the rows, "
                f"{(len(X), *self._y_shape)}."
            )
        y = y.reshape(len(X), -1)
        for f in self._means(X):
            z = (y[start : start + f.shape[1]] - f) / sd
            start += f.shape[1]
            yield np.sum(-0.5 * z * z - np.log(sd) - 0.5 * np.log(2.0 * np.pi), axis=2)

    def _shaped(self, values: Array) -> Array:
        return values if len(self._y_shape) else values[:, 0]


def _mixture_quantile(f: Array, sd: Array, weights: Array | None, q: float) -> Array:
    """Quantile (rows, outputs) of the mixture over draws of N(f, sd^2), by bisection."""
    low, high = (f - 9.0 * sd).min(axis=0), (f + 9.0 * sd).max(axis=0)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        below = np.average(ndtr((middle - f) / sd), axis=0, weights=weights) < q
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
