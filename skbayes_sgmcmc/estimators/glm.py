"""Bayesian generalised linear models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit

from .._arrays import Array
from .._draws.mixture import Mixture, WithFew
from .._exceptions import not_allowed
from ._descriptions import LINEAR, SHARED, described
from ._likelihoods import FAMILIES
from ._linear import LinearEstimator
from ._linear_predictor import LinearPredictor
from ._regressor import BayesianRegressor
from ._times import as_columns, bounds_of
from .tables import groups as grouped
from .tables.offsets import center_of, check_known, check_offsets, offsets_of, trials_of

if TYPE_CHECKING:
    from torch import nn

    from .._data.kept_rows import KeptRows
    from .._engine.settings import Settings
    from ..models.likelihoods.student import StudentT
    from ..models.likelihoods.tweedie import Tweedie
    from ..models.linear.glm import GLMModel
    from ..priors import LearnedScale


@described(SHARED | LINEAR)
@dataclass(kw_only=True, eq=False, repr=False)
class BayesianGLMRegressor(LinearEstimator, BayesianRegressor):
    r"""Bayesian generalised linear model, sampled by stochastic-gradient MCMC.

    .. math::
        y \mid x \sim p(\cdot \mid f, \phi),\quad f = \beta^\top x + b + \text{offset},\quad
        \beta_j \sim N(0, s^2 / \mathrm{sd}(x_j)^2)

    With real targets, f is the mean; with counts and positive targets, it is the logarithm of the
    mean; with successes among trials, it is the log odds; with times, it is the centre of their
    logarithms. The defaults need no tuning and no scaled features: the scale s is learned from the
    data, and the chains move as those of :class:`BayesianLogisticRegression`.

    Parameters
    ----------
    exposure : int, str or None, default=None
        Index or name of the column of X that holds the exposure of each row, such as a time or a
        number of persons: rates are proportional to it. For counts only. The column is not a
        feature.
    offset : int, str or None, default=None
        Index or name of the column of X that is added to f. The column is not a feature.
    n_trials : int, str or None, default=None
        Index or name of the column of X that holds the number of trials of each row, for
        ``likelihood="binomial"``. None: one trial each. The column is not a feature.
    groups : int, str, list of them or None, default=None
        Indices or names of the columns of X that hold groups of rows, such as schools, as numbers
        or text. Labels are compared as they are given: whole numbers of any size in tables, but
        only up to 2^53 in arrays of floating-point numbers. Each group shifts the intercept by its
        own effect, with the prior N(0, s^2), where s is learned. Groups that were not seen in
        ``fit`` are predicted with an effect of zero: the prediction of the population. The columns
        are not features.
    group_slopes : int, str, list of them or None, default=None
        Indices or names of the features with coefficients that depend on the group, too. All such
        effects are independent a priori, with a scale for each feature.
    group_scale : "learned", LearnedScale or float, default="learned"
        Prior sd s of the effects, in units of sd(y) if targets are real, and of 1/sd(x_j) for
        slopes. "learned": s^2 ~ IG(1, s_0^2), separately for intercepts and for each slope, where
        s_0 is 2 / sqrt(number of groups), but at least 0.3 and at most 1.
    fit_intercept : bool, default=True
        If True, the model has an intercept, with a flat prior.
    prior : {"normal", "laplace"} or Prior, default="normal"
        Prior on the coefficients.
    prior_scale : "auto", "learned", LearnedScale, float or array (n_features,), default="auto"
        Scale of the prior. "learned": coefficient j has the prior sd s / sd(x_j), times sd(y) for
        real targets, and s is learned from the data. ``LearnedScale(inputs=True)`` learns one scale
        for each feature (see :class:`~skbayes_sgmcmc.priors.LearnedScale`). Numbers are in units of
        the coefficients, of standardised targets if they are real. "auto": "learned" with a normal
        prior, otherwise 1.0.
    likelihood : str, StudentT or Tweedie, default="normal"
        Distribution of the targets: "normal", "student_t", "poisson", "negative_binomial",
        "zero_inflated_poisson", "zero_inflated_negative_binomial", "gamma", "tweedie",
        "log_normal", "weibull" or "binomial". Student's t distribution has heavy tails, so that
        outliers matter less. The Poisson and the negative binomial distribution are for counts; the
        variance of the latter exceeds the mean, and zero-inflated ones have more zeros. The gamma
        distribution is for positive numbers with a standard deviation proportional to their mean,
        Tweedie's for amounts that are exactly zero in some rows. Log-normal and Weibull ones are
        for times; y may have two columns, their lower and upper bounds. The binomial one is for
        successes among ``n_trials``.
    noise : "infer" or float, default="infer"
        Standard deviation of the noise in units of y, or the scale of Student's t distribution.
        "infer": log(noise / (0.3 sd(y))) ~ N(0, 1). With an offset, y is y - offset here. With
        ``likelihood="student_t"``, sd(y) is 1.48 times the median distance of y from its median,
        here and for all priors: outliers do not change it.
    {categorical_features}
    sampler : str or Sampler, default="auto"
        Sampler, as a name or as an object with parameters such as ``SGHMC(friction=0.05)``. Names:
        "sgld", "psgld", "sghmc", "sgnht", "msgnht", "mclmc", "mala" (exact, with all rows in every
        step) and "gibbs" (exact and nearly independent draws; only for normal likelihoods with a
        normal prior, one scale for all features and no groups). "auto": "sgld" if a parameter of
        steps is given; otherwise "gibbs" where it applies, or "sghmc" if steps take all rows and
        the prior is smooth, or else "sgld".
    {integrator} {step_size} {preconditioner} {gradient} {batch_size} {n_chains} {n_draws} {burn_in}
    {thinning} {max_steps} {temperature} {init} {total_samples} {warm_start} {compiled} {device}
    {dtype} {storage} {checkpoint} {n_jobs} {random_state} {verbose}

    Attributes
    ----------
    coef_ : array of shape ``(n_features_in_,)``
        Posterior mean of the coefficients of all columns: zero for those that are not features. A
        column of categories has one for each category, and one with gaps has two.
    intercept_ : float
        Posterior mean of the intercept.
    posterior_ : PosteriorSamples
        Draws "coef" of shape (n_chains, n_draws, n_features) and "intercept" of shape (n_chains,
        n_draws), in units of y. With learned scales also "scale". Groups have their effects
        "effect_<column>" of shape (n_chains, n_draws, n_groups) and the prior sd of these
        "sd_<column>", and "effect_<column>_<feature>" and "sd_<column>_<feature>" if they have
        slopes. Parameters of the likelihood, which ``summary`` shows in natural units:
        "log_noise", log(noise / (0.3 sd(y))); "log_df", log((df - 2) / 8); "log_dispersion",
        log(dispersion / 0.3). The variance of y is mean + dispersion * mean^2 of negative binomial
        targets, and dispersion * mean^2 of gamma targets. Zeros by force have the probability
        Phi("zero_probit"), with the standard normal distribution function Phi. Tweedie targets
        divided by their mean have the dispersion exp("log_dispersion") and the power
        1.01 + 0.98 Phi("power_probit"). Logarithms of times have the scale exp("log_sigma").
    {n_chains_, n_draws_} {n_steps_} {step_size_} {batch_size_}
    compiled_ : tuple of str
        Names of the accelerators used in the last call; () if none.
    {not_compiled_} {sampling_threshold_} {device_}
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : array of shape ``(n_features_in_,)``
        Names of the columns, if X had string column names.

    See Also
    --------
    sklearn.linear_model.BayesianRidge : Normal targets, with an approximate posterior.
    sklearn.linear_model.PoissonRegressor : The maximum of a posterior of counts.

    References
    ----------
    McCullagh & Nelder (1989), Generalized linear models.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import BayesianGLMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> y = rng.poisson(np.exp(1.0 + X @ [0.5, -0.5]))
    >>> reg = BayesianGLMRegressor(likelihood="poisson", random_state=0).fit(X, y)
    >>> reg.coef_.round(1)
    array([ 0.5, -0.5])
    """

    _likelihoods = tuple(FAMILIES)
    _is_glm = True
    _column_parameters = ("exposure", "offset", "n_trials")
    _label_parameters = ("groups",)
    _read_with_draws = (*_column_parameters, *_label_parameters)
    #: groups, and the centre of the offsets in units of users, of the first fit
    _groupings: grouped.Groupings = field(default=(), init=False)
    _offset_center = 0.0

    exposure: int | str | None = None
    offset: int | str | None = None
    n_trials: int | str | None = None
    groups: int | str | Sequence[int | str] | None = None
    group_slopes: int | str | Sequence[int | str] | None = None
    group_scale: float | LearnedScale | Literal["learned"] = "learned"
    fit_intercept: bool = True
    prior_scale: ArrayLike | LearnedScale | Literal["auto", "learned"] = "auto"
    likelihood: str | StudentT | Tweedie = "normal"
    noise: float | Literal["infer"] = "infer"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags

    def _samplers(self) -> tuple[str, ...]:
        return ("auto", *super()._samplers(), "gibbs")

    def _check_together(self, settings: Settings) -> None:
        grouped.check_groups(self.groups, self.group_slopes, self.group_scale)
        super()._check_together(settings)
        check_known(self._family, self.likelihood, self.exposure, self.n_trials)

    # rows -----------------------------------------------------------------------------------------

    def _inputs(self, X: Any) -> tuple[Any, Array | None, Array | None]:
        """Columns of effects and features; offsets of rows, in units of f; what is known of y."""
        return *self._linear.inputs(X), self._trials(X)

    def _trials(self, X: Any) -> Array | None:
        """Numbers of trials of rows, (rows, 1), for likelihoods that have them."""
        return trials_of(self._columns, X) if self._family.trials else None

    def _with_known(self, X: Any, y: Array) -> Array:
        known = self._trials(X)
        return y if known is None else np.hstack([y, known])

    def _validate_xy(self, X: Any, y: Any, *, reset: bool, weight: Any = None) -> tuple[Any, Array]:
        bounds = bounds_of(y) if self._family.times else None
        y = y if bounds is None else bounds.max(axis=1)
        X, y = super()._validate_xy(X, y, reset=reset, weight=weight)
        if not self._columns.features:
            raise not_allowed(
                f"{' and '.join(self._columns.special)} leave no feature of the {X.shape[1]} "
                "columns of X: give X more columns."
            )
        return X, y if bounds is None else bounds

    def _in_rows(self, y: Any) -> Any:
        return as_columns(y) if self._family.times else y

    def _validate_targets(self, y: Any, n_rows: int) -> Array:
        if not self._family.times:
            return super()._validate_targets(y, n_rows)
        bounds = bounds_of(y)
        if len(bounds) != n_rows:
            raise not_allowed(
                f"y with {len(bounds)} rows is not allowed: give the times of the {n_rows} rows of "
                "X, or their bounds."
            )
        return bounds

    # model ----------------------------------------------------------------------------------------

    def _make_model(self, rows: KeptRows, *, first: bool) -> GLMModel:
        from ..models.linear.glm import GLMModel

        X, y, weight, columns = rows.x, rows.target, rows.weight, self._columns
        offset = offsets_of(columns, X)
        if first:
            targets, choice = self._with_known(X, y), self._choice
            if self.fit_intercept:
                choice.check_intercept(targets)
            self._offset_center = 0.0  # without an intercept, f = 0 means what it says
            if offset is not None and self.fit_intercept:
                self._offset_center = center_of(offset, weight, self._family.link)
            if offset is not None and self._family.standardised:
                targets = targets - (offset - self._offset_center)[:, None]
            n_features = len(columns.features)
            choice.check_spread(targets, weight, n_features, self.fit_intercept, self.offset)
            self._fit_targets(targets, weight)
            self._groupings = grouped.groupings_of(columns, X, self.group_slopes)
        if offset is not None and self._family.link == "log":
            away = offset - self._offset_center
            check_offsets(columns, away, y, fit_intercept=self.fit_intercept)
        grouped.check_known_groups(self._groupings, columns, X)
        features, place = columns.of_features(X), columns.features.index
        n_features, units = features.shape[1], self._units(features, weight, first=first)
        linear = self._linear
        return GLMModel(
            n_features,
            self._likelihood(),
            self._prior(),
            self._model_scale(units),
            self.fit_intercept,
            linear.constant,
            linear.scale,
            grouped.group_terms(
                self._groupings, self.group_scale, lambda j: float(units[place(j)])
            ),
        )

    def _fit_targets(self, y: Array, weight: Array | None) -> None:
        super()._fit_targets(y, weight)
        if not self.fit_intercept:  # f = 0 then means what it says
            self._y_center = np.zeros(1)
            self._y_typical = np.array([self._family.at_zero])

    @property
    def _linear(self) -> LinearPredictor:
        """What f is: the model standardises it if there is no link."""
        center, scale = float(np.ravel(self._y_center)[0]), float(np.ravel(self._y_scale)[0])
        if not self._family.standardised:
            center = float((np.log if self._family.link == "log" else logit)(self._y_typical[0]))
        return LinearPredictor(self._columns, self._groupings, center, scale, self._offset_center)

    def _set_attributes(self) -> None:
        self.coef_ = np.zeros(self._columns.width)
        self.coef_[self._columns.features] = self.posterior_.mean("coef")
        self.intercept_ = float(self.posterior_.mean("intercept"))

    def _predict_block(self, draws: Any, x: Any) -> Array:
        columns, offset, known = self._inputs(x)
        f = self._linear.of(self.posterior_, draws, columns, offset)[:, :, None]
        if known is None:
            return f
        return np.concatenate([f, np.broadcast_to(known, (len(f), *known.shape))], axis=2)

    def _mixture(self) -> Mixture:
        """Its smooth averages are over few draws where these stand for all."""
        from ..models.moments.few_draws import OF_LINKED, OF_NEAR

        names = *self._linear.blocks, "intercept", *self._likelihood().own_names
        one_of = OF_NEAR if self._family.standardised else OF_LINKED
        few, whole = self._with_few(names, one_of), super()._mixture()
        if few is None:
            return whole
        return WithFew(whole, super(BayesianGLMRegressor, few)._mixture(), few._is_near)

    def _is_near(self, x: Any) -> Array:
        """Whether the linear predictors of rows vary little over the draws.

        Without a link, a predictor is compared with the noise.
        """
        from ..models.moments.few_draws import LEVELS, LOG, NOISE

        linear = self._linear
        sd = linear.sds(self.posterior_, self._inputs(x)[0])
        if not self._family.standardised:
            return np.asarray(sd <= (LOG if self._family.link == "log" else LEVELS[0][0]))
        lengths = self._predictive()(slice(None), x[:1]).length().min() / linear.scale
        return np.asarray(sd <= NOISE * lengths)

    def _export_parts(self, chosen: Array) -> tuple[nn.Module, nn.Module]:
        from ..models.networks.ensemble import Inputs

        known = self._columns.special.get("n_trials", 1.0) if self._family.trials else None
        unchanged = Inputs(np.zeros(1), np.ones(1), (self.n_features_in_,))
        return unchanged, self._linear.module(self.posterior_, chosen, known)

    def _ratio_blocks(self) -> list[str]:
        return [*super()._ratio_blocks(), *grouped.effect_names(self._groupings)]

    def _ratio_title(self) -> str:
        if self._family.times:
            return "ratio of times"
        named = {"log": "ratio of means", "logit": "odds of a success"}
        return named.get(self._family.link, super()._ratio_title())

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        features = {"coef": {"feature": self._columns.feature_labels}}
        return grouped.effect_axes(self._groupings) | features | self._scale_axes()

    def _labels(self) -> dict[str, list[str]]:
        return super()._labels() | grouped.effect_labels(self._groupings)
