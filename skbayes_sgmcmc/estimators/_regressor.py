"""What all regressors share: fitting, streams of rows, predictions with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from .._callbacks import with_callbacks
from .._draws.mixture import Mixture
from .._validation import (
    check_int,
    check_magnitude,
    check_predictions,
    check_random_state,
    check_real,
)
from ._base import SGMCMCEstimator, all_or_nothing

if TYPE_CHECKING:
    from ..models._protocol import Model
    from ..models.likelihoods import Likelihood
    from ..models.predictive import Predictive

Array = NDArray[Any]


class BayesianRegressor(RegressorMixin, SGMCMCEstimator):
    """Base of regressors: what they say of new targets is their likelihood's ``predictive``."""

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
        if y.shape[1] != self._n_targets:
            raise ValueError(
                f"y with {y.shape[1]} outputs is not allowed: earlier calls had {self._n_targets}."
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
        return self.n_features_in_, self._n_targets

    # what subclasses add --------------------------------------------------------------------------

    n_features_in_: int
    _y_shape: tuple[int, ...]
    #: the model sees targets with this centre and scale as ones with 0 and 1
    _y_center: Any = 0.0
    _y_scale: Any = 1.0

    def _make_model(self, X: Any, y: Array, weight: Array | None, *, first: bool) -> Model:
        """The model of rows like X; ``first`` unless it goes on with an earlier one's chains."""
        raise NotImplementedError

    def _check_mixing(self, X: Any) -> None:
        """Warn if the chains have not mixed."""
        raise NotImplementedError

    def _likelihood(self) -> Likelihood:
        """Of the targets as the model sees them, given what ``_predict_block`` returns."""
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
        check_magnitude("X", X)
        check_magnitude("y", y)
        return X, np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    @property
    def _n_targets(self) -> int:
        return math.prod(self._y_shape)

    def _targets(self, y: Array) -> Array:
        return np.asarray((y - self._y_center) / self._y_scale)

    def _given(self, target: Array) -> Array:
        return self._shaped(target)

    def _validate_rows(self, X: Any) -> Any:
        return validate_data(
            self, X, reset=False, accept_sparse=self._sparse(), dtype=(np.float64, np.float32)
        )

    def _outcomes(self, draws: Array, x: Any) -> list[Array]:
        one = self._predictive()(draws, x)
        return [one.mean(), one.variance()]

    # prediction -----------------------------------------------------------------------------------

    def _predictive(self) -> Callable[[Any, Any], Predictive]:
        """Distributions of new targets, given some pooled draws and rows, in the targets' units."""
        import torch

        likelihood, outputs = self._likelihood(), self._predictor()

        def predictive(draws: Any, rows: Any) -> Predictive:
            with np.errstate(all="ignore"):  # what is not finite is refused
                f = torch.from_numpy(check_predictions(outputs(draws, rows), rows)).double()
            one = likelihood.predictive(f, likelihood.own_draws(self.posterior_, draws))
            return one.numpy().moved(self._y_center, self._y_scale)

        return predictive

    def _mixture(self) -> Mixture:
        """What all draws together say of new targets."""
        posterior = self.posterior_
        n_draws = posterior.n_chains * posterior.n_draws
        return Mixture(self._predictive(), n_draws, self._n_targets, posterior.pooled_weights())

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
        with np.errstate(all="ignore"):  # what is not finite is refused
            mean, variance = self._mixture().moments(X, variance=return_std)
        check_predictions(mean if variance is None else mean + variance, X)
        if variance is None:
            return self._shaped(mean)
        return self._shaped(mean), self._shaped(np.sqrt(variance))

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of a new observation: those of the mixture of the draws' distributions.

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
        X = self._validate_x(X)
        out = self._mixture().quantiles(X, levels)
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

    def predict_log_density(self, X: Any, y: Any) -> Array:
        r"""Log predictive density of given targets.

        .. math::
            \log p(y | x, \text{data}) \approx \log \sum_d w_d\, p(y | x, \theta_d)

        over the draws :math:`\theta_d` with their weights. Minus its mean over test rows is the
        negative log likelihood (NLL), by which probabilistic regressions are compared.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        Returns
        -------
        array of shape (n_samples,)
            In nats, for targets in the units of y: halving these units subtracts log 2. With
            several outputs it is their joint density; for counts it is the log probability.

        Examples
        --------
        >>> import numpy as np
        >>> from skbayes_sgmcmc import BayesianMLPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = np.linspace(-2.0, 2.0, 100)[:, None]
        >>> y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(100)
        >>> reg = BayesianMLPRegressor(hidden_layer_sizes=30, random_state=0).fit(X, y)
        >>> nll = -reg.predict_log_density(X, y).mean()
        >>> best = 0.5 * np.log(2.0 * np.pi * 0.1**2) + 0.5  # the entropy of the noise
        >>> bool(abs(nll - best) < 0.2)
        True
        """
        X = self._validate_x(X)
        return self._mixture().log_density(X, self._validate_targets(y, X.shape[0]))

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
        X, rng = self._validate_x(X), check_random_state(random_state)
        y = np.moveaxis(self._mixture().sample(X, n_samples, rng), 0, -1)
        return y if len(self._y_shape) else y[:, 0]

    def _log_lik_blocks(self, X: Any, y: Any) -> Iterator[Array]:
        X = self._validate_x(X)
        yield from self._mixture().log_densities(X, self._validate_targets(y, X.shape[0]))

    def _validate_targets(self, y: Any, n_rows: int) -> Array:
        """Targets of so many rows as (rows, targets)."""
        y = np.asarray(y, dtype=np.float64)
        if y.shape not in ((n_rows, *self._y_shape), (n_rows, self._n_targets)):
            raise ValueError(
                f"y of shape {y.shape} is not allowed: give the outputs of the rows, "
                f"{(n_rows, *self._y_shape)}."
            )
        return y.reshape(n_rows, -1)

    def _shaped(self, values: Array) -> Array:
        return values if len(self._y_shape) else values[:, 0]
