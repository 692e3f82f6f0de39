"""Code that all regressors share: fitting, units of targets, predictions with uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, overload

import numpy as np
from sklearn.utils import Bunch, get_tags

from .._arrays import Array
from .._data.kept_rows import KeptRows
from .._draws import prediction
from .._draws.mixture import Mixture
from .._draws.posterior_samples import PosteriorSamples
from .._exceptions import later_not_allowed, not_allowed
from .._sklearn import RegressorMixin
from .._validation import (
    central,
    check_array,
    check_choice,
    check_int,
    check_predictions,
    check_random_state,
    check_real,
    check_unless,
    is_real,
)
from ._base import SGMCMCEstimator
from ._likelihoods import FEWEST_FOR_OWN_NOISE, OF_NETWORKS, Choice, Family
from ._methods import fit, log_joint
from ._score import score
from ._sense import check_regression
from .tables.checks import validate_numbers, weighted

if TYPE_CHECKING:
    from torch import nn

    from .._engine.settings import Settings
    from ..models.likelihoods.base import Likelihood
    from ..models.likelihoods.predictive import Predictive


class BayesianRegressor(RegressorMixin, SGMCMCEstimator):
    """Base class of regressors: the ``predictive`` of their likelihood describes new targets."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Continue sampling with new rows of a stream, for one pass over these rows.

        The target is the posterior given ``total_samples`` rows or, if that is None, given the rows
        seen so far. The newest ``n_draws`` draws of each chain are kept. The first call after
        ``fit`` starts a new stream, unless ``warm_start=True``.

        Parameters
        ----------
        X, y, sample_weight : arrays
            New rows, as for ``fit``.

        Returns
        -------
        self
        """
        self._fit(X, y, sample_weight, stream=True)
        return self

    fit = fit
    log_joint = log_joint
    score = score

    def _encoded(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool, stream: bool
    ) -> KeptRows:
        X, y = self._validate_xy(X, y, reset=first, weight=sample_weight)
        rows = weighted(X, y, sample_weight)
        if not stream:
            n = rows.n_rows if rows.weight is None else rows.weight.sum()
            self._few_rows = bool(n < FEWEST_FOR_OWN_NOISE)
        return rows

    def _meaning(self) -> tuple[Any, ...]:
        # other likelihoods have other parameters, and see targets in other units
        choice = self._choice
        kind = choice.name, choice.heteroscedastic
        return kind, self._columns.meaning, self._n_targets

    def _check_sense(self, rows: KeptRows) -> None:
        if self._likelihood().has_moments:
            check_regression(self, self._mixture(), rows.x, rows.target, rows.weight)

    # the distribution of the targets --------------------------------------------------------------

    likelihood: Any
    noise: Any
    n_features_in_: int
    #: names of the likelihoods that the estimator has, and whether it is a GLM
    _likelihoods: tuple[str, ...] = OF_NETWORKS
    _is_glm = False
    _read_with_draws: ClassVar[tuple[str, ...]] = ("likelihood", "noise")
    _y_shape: tuple[int, ...]
    #: the model sees targets minus this centre, divided by this scale
    _y_center: Any = 0.0
    _y_scale: Any = 1.0
    #: how far standardised targets are rounded; for other links than the identity, typical means
    _y_rounding: Any = None
    _y_typical: Any = None
    #: whether the latest fit had too few rows for a noise of their own; streams have no such number
    _few_rows = False

    def _check_together(self, settings: Settings) -> None:
        self._choice.check(self._likelihoods, linear=self._is_glm)
        super()._check_together(settings)

    @property
    def _choice(self) -> Choice:
        plain = isinstance(self.prior, str) and self.prior == "normal"  # it may not be checked yet
        return Choice(self.likelihood, self.noise, plain and not self._few_rows)

    @property
    def _family(self) -> Family:
        return self._choice.family

    def _with_known(self, X: Any, y: Array) -> Array:
        """Targets, followed by what is known of their rows."""
        return y

    def _fit_targets(self, y: Array, weight: Array | None) -> None:
        """Store the units of the targets; y as in :meth:`_with_known`."""
        self._y_center, self._y_scale = np.zeros(self._n_targets), np.ones(self._n_targets)
        if self._family.standardised:
            from ..models.likelihoods.noise import rounding

            self._y_center, self._y_scale = self._choice.units(y, weight)
            self._y_rounding = rounding(y, weight) / self._y_scale
        elif self._choice.own is None:
            self._y_typical = self._family.kind.typical_means(y, weight)

    def _likelihood(self) -> Likelihood:
        """Likelihood of the model's targets, given the values of ``_predict_block``."""
        return self._choice.likelihood(
            self._n_targets, self._y_scale, self._y_rounding, self._y_typical
        )

    # targets --------------------------------------------------------------------------------------

    def _validate_xy(self, X: Any, y: Any, *, reset: bool, weight: Any = None) -> tuple[Any, Array]:
        several = get_tags(self).target_tags.multi_output
        X, y = validate_numbers(self, X, y, reset=reset, weight=weight, multi_output=several)
        if reset:
            self._y_shape = y.shape[1:]
        y = y.reshape(len(y), -1)
        if y.shape[1] != self._n_targets:
            raise later_not_allowed(
                f"y with {y.shape[1]} outputs is not allowed: earlier calls had {self._n_targets}. "
                "Keep that number, or start a new stream with a clone of the estimator."
            )
        kind = self._family.kind if self._choice.own is None else self._likelihood()
        kind.check_targets(self._with_known(X, y))
        return X, y

    @property
    def _n_targets(self) -> int:
        return math.prod(self._y_shape)

    def _targets(self, y: Array) -> Array:
        return np.asarray((y - self._y_center) / self._y_scale)

    def _outcomes(self, draws: Array, x: Any) -> list[Array]:
        one = self._predictive()(draws, x)
        if not self._likelihood().has_moments:
            return list(one.parameters())
        mean = one.mean()
        return [mean, one.variance(), (mean - mean[:1]) ** 2]  # their mixture adds its spread

    # prediction -----------------------------------------------------------------------------------

    def _predictive(self) -> Callable[[Any, Any], Predictive]:
        """A function of pooled draws and rows: distributions of new targets, in the units of y."""
        return self._of_draws()[0]

    def _of_draws(self) -> tuple[Callable[[Any, Any], Predictive], prediction.Predict | None]:
        """The same, and one for the distributions' means, if outputs begin with them."""
        import torch

        likelihood, outputs, n = self._likelihood(), self._predictor(), self._n_targets

        def predictive(draws: Any, rows: Any) -> Predictive:
            with np.errstate(all="ignore"):  # what is not finite is refused
                f = torch.from_numpy(outputs(draws, rows)).double()
            one = likelihood.predictive(f, likelihood.own_draws(self.posterior_, draws)).numpy()
            for value in one.parameters():  # rates may overflow although the outputs do not
                check_predictions(value, rows)
            return one.moved(self._y_center, self._y_scale)

        def means(draws: Any, rows: Any) -> Array:
            return np.asarray(outputs(draws, rows)[..., :n] * self._y_scale + self._y_center)

        return predictive, means if likelihood.outputs_means else None

    def _mixture(self) -> Mixture:
        """The predictive distribution of new targets: a mixture over all draws."""
        posterior, (predictive, means) = self.posterior_, self._of_draws()
        sizes = posterior.n_pooled, self._n_targets
        return Mixture(predictive, *sizes, posterior.pooled_weights(), means)

    def _figure(self, X: Any, of: Callable[[Mixture, Any], Array]) -> Array:
        """What ``of`` makes of the predictive distribution and the rows of X."""
        X = self._validate_x(X)
        with np.errstate(all="ignore"):  # what is not finite is refused
            return self._shaped(check_predictions(of(self._mixture(), X), X))

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of the target, averaged over the posterior.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        return_std : bool, default=False
            If True, also return the standard deviation of a new observation, including the noise.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs), or a pair of such arrays
        """
        mean, within, between = self._figure(
            X, lambda mixture, X: mixture.moments(X, variance=return_std)
        )
        return (mean, np.sqrt(within + between)) if return_std else mean

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> Array:
        """Predict quantiles of a new observation under the mixture of the draws' distributions.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        quantiles : sequence of float, default=(0.05, 0.5, 0.95)
            Probability levels in (0, 1).

        Returns
        -------
        array of shape (n_samples, n_quantiles) or (n_samples, n_quantiles, n_outputs)
        """
        given = np.atleast_1d(quantiles).tolist()
        levels = [check_real("quantiles", q, low=0.0, high=1.0) for q in given]
        if not levels:
            raise not_allowed(f"quantiles={quantiles!r} is not allowed: give one or more numbers.")
        return self._figure(X, lambda mixture, X: mixture.quantiles(X, levels))

    def predict_interval(
        self, X: Any, coverage: float = 0.9, kind: Literal["target", "mean"] = "target"
    ) -> Array:
        """Predict a central interval of a new observation, or of its mean.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Probability of the interval, in (0, 1).
        kind : {"target", "mean"}, default="target"
            "target": the interval of a new observation, including the noise. "mean": the interval
            of the mean of many new observations of the row, which shrinks to a point as the number
            of training rows grows.

        Returns
        -------
        array of shape (n_samples, 2) or (n_samples, 2, n_outputs)
            Lower and upper ends of the intervals.
        """
        levels = central(coverage)
        check_choice("kind", kind, ("target", "mean"))
        if kind == "target":
            return self.predict_quantiles(X, levels)
        return self._figure(X, lambda mixture, X: mixture.mean_quantiles(X, levels))

    def predict_survival(self, X: Any, times: Any) -> Array:
        """Predict the probabilities that a new observation exceeds some numbers.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        times : float or array of shape (n_times,)
            Finite numbers in the units of y, such as times.

        Returns
        -------
        array of shape (n_samples, n_times) or (n_samples, n_times, n_outputs)
        """
        times = [times] if is_real(times) else times
        times = check_array(times, dtype=np.float64, ensure_2d=False, input_name="times")
        if times.ndim != 1:
            raise not_allowed(
                f"times of shape {times.shape} is not allowed: give a list of numbers, which are "
                "the same for all rows."
            )
        return self._figure(X, lambda mixture, X: 1.0 - mixture.cdf(X, times))

    def predict_mean_samples(
        self, X: Any, n_draws: int | None = None, random_state: Any = None
    ) -> Array:
        """Predict the means of new observations given single draws.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        n_draws : int or None, default=None
            Number of draws, chosen with replacement in proportion to their weights. None: every
            draw once. ``predict`` averages them with the weights ``posterior_.pooled_weights()``.
        random_state : int, RandomState or None, default=None
            Seed for the choice of draws.

        Returns
        -------
        array of shape (n_draws, n_samples) or (n_draws, n_samples, n_outputs)
        """

        def means(mixture: Mixture, X: Any) -> Array:
            check_unless(None, check_int, "n_draws", n_draws)
            chosen = self.posterior_.chosen(n_draws, random_state)
            return np.concatenate(list(mixture.means(chosen, X)), axis=1)

        return self._figure(X, means)

    def predict_uncertainty(self, X: Any) -> Bunch:
        r"""Predict the variance of a new observation, and split it into two parts.

        .. math::
            \operatorname{Var}(y) = \operatorname{E}[\operatorname{Var}(y | \theta)]
            + \operatorname{Var}(\operatorname{E}[y | \theta])

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        Bunch
            Arrays of shape (n_samples,) or (n_samples, n_outputs), in squares of the units of y.
            ``total``: the variance, the square of the standard deviation of :meth:`predict`.
            ``aleatoric``: the mean over the draws of the variance given the parameters, which would
            remain if these were known. ``epistemic``: the variance over the draws of the mean,
            which more training rows would reduce.
        """
        _, within, between = self._figure(X, lambda mixture, X: mixture.moments(X))
        return Bunch(total=within + between, aleatoric=within, epistemic=between)

    def predict_log_density(self, X: Any, y: Any) -> Array:
        r"""Compute the log predictive density of given targets.

        .. math::
            \log p(y | x, \text{data}) \approx \log \sum_d w_d\, p(y | x, \theta_d)

        Here :math:`\theta_d` are the draws and :math:`w_d` their weights. Minus the mean over test
        rows is the negative log likelihood (NLL), a common score of probabilistic regressions.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        Returns
        -------
        array of shape (n_samples,)
            Log densities in nats, for targets in the units of y: measuring y in units half as large
            subtracts log 2. With several outputs, the density is joint. For counts, the value is
            the log probability.

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
        """Sample new observations, each with its own draw of the parameters and its own noise.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.
        n_samples : int, default=1
            Number of observations for every row.
        random_state : int, RandomState or None, default=None
            Seed.

        Returns
        -------
        array of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
        """
        check_int("n_samples", n_samples)
        rng = check_random_state(random_state)
        y = self._figure(X, lambda mixture, X: mixture.sample(X, n_samples, rng))
        return np.moveaxis(y, 0, -1)

    def _new_targets(self, chosen: Array, X: Any, rng: np.random.RandomState) -> Array:
        """New targets (draws, rows, ...) of rows, one of each chosen pooled draw."""
        return self._figure(X, lambda mixture, X: mixture.sample_of(chosen, X, rng))

    def _ensemble(self, chosen: Array, weights: Array) -> nn.Module:
        from ..models.networks.ensemble import MeanAndDeviation

        likelihood, (inputs, outputs) = self._likelihood(), self._export_parts(chosen)
        own = likelihood.own_draws(self.posterior_, chosen)
        units: Any = {"center": self._y_center, "scale": self._y_scale}
        units["squeeze"] = not self._y_shape
        return MeanAndDeviation(inputs, outputs, likelihood, own, weights, **units)

    def _export_parts(self, chosen: Array) -> tuple[nn.Module, nn.Module]:
        """Modules for the inputs and the outputs of some pooled draws, as parts of ensembles."""
        raise NotImplementedError

    def _log_lik_blocks(self, X: Any, y: Any) -> Iterator[Array]:
        X = self._validate_x(X)
        yield from self._mixture().log_densities(X, self._validate_targets(y, X.shape[0]))

    def _validate_targets(self, y: Any, n_rows: int) -> Array:
        """Targets of ``n_rows`` rows, as an array (rows, targets)."""
        y = check_array(y, dtype=np.float64, ensure_2d=False, ensure_min_samples=0, input_name="y")
        if y.shape not in ((n_rows, *self._y_shape), (n_rows, self._n_targets)):
            raise not_allowed(
                f"y of shape {y.shape} is not allowed: give the targets of the rows, an array of "
                f"shape {(n_rows, *self._y_shape)}."
            )
        return y.reshape(n_rows, -1)

    def _natural(self) -> dict[str, Any]:
        """What the likelihood's own draws, by name, are in the units of users."""
        names = self.posterior_.draws
        return {name: each for name, each in self._likelihood().natural.items() if name in names}

    def _in_units(self) -> PosteriorSamples:
        posterior, natural = super()._in_units(), self._natural()
        if not natural:
            return posterior
        draws = {}
        with np.errstate(over="ignore"):  # a summary may say that a number is infinite
            for name, values in posterior.draws.items():
                known, of = natural.get(name, (name, None))
                draws[known] = values if of is None else of(posterior, self._y_scale)
        return PosteriorSamples(draws, posterior.weights)

    def _labels(self) -> dict[str, list[str]]:
        one = self._natural().values() if self._n_targets == 1 else ()
        return super()._labels() | {name: [name] for name, _ in one}

    def _shaped(self, values: Array) -> Array:
        """Values (..., outputs), without the last axis if y had none."""
        return values if self._y_shape else values[..., 0]
