"""Code that estimators of linear models share: scales of the prior, and units of the features."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp

from .._arrays import Array
from .._data.scaling import center_and_scale, scale_of_effects
from .._draws import prediction
from .._exceptions import listed, not_allowed, warn
from .._limits import LIMITS, slices
from .._validation import check_choice, check_feature_names_in, is_auto
from ._base import SGMCMCEstimator
from ._classifier import BayesianClassifier
from ._learned_scale import CATEGORICAL_SHAPE, LINEAR, can_learn, check_prior_scale, learned_scale
from ._mixing import SCALE_REMEDY, MustMix, short_name
from ._reading import check_fitted
from ._sense import check_spread, check_strays

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor, nn

    from .._data.kept_rows import KeptRows
    from .._draws.posterior_samples import PosteriorSamples
    from .._draws.storage import Storage
    from .._engine.run import Run
    from .._engine.settings import Settings
    from ..diagnostics import Summary
    from ..models.networks.distillation import Blueprint
    from ..priors.factorised import Prior
    from ..priors.learned_scale import LearnedScale
    from ..samplers import Sampler
    from ._fitting import Task


#: prior sd of the difference between two rows' linear predictors below which a prior forbids
#: effects, unless the rows together outweigh it: with a sum of squares of about one they begin to
LEAST_DIFFERENCE, SURE_INFORMATION = 0.01, 1.0
#: prior sd of the difference that a feature makes between any two rows, below which it is as good
#: as left out beside one whose difference is NOTED or more
LEFT_OUT, NOTED = 0.05, 1.0
#: mean of a feature, in its sds, from which curvatures round off what it says: products with the
#: intercept are larger by its square, which leaves three digits here and none at 1e8
FARTHEST = 3e6


@dataclass(kw_only=True, eq=False, repr=False)
class LinearEstimator(SGMCMCEstimator):
    """Mixin of estimators with a linear model: ``prior_scale`` and ``fit_intercept``."""

    prior: Prior | Literal["normal", "laplace"] = "normal"
    categorical_features: ArrayLike | Literal["from_dtype"] | None = "from_dtype"
    sampler: str | Sampler = "auto"
    preconditioner: ArrayLike | Literal["auto", "hessian", "diagonal"] | None = "auto"
    gradient: str = "auto"
    init: ArrayLike | Literal["auto", "random", "map", "gaussian"] = "auto"
    storage: Storage | None = None

    fit_intercept: bool = field(init=False)
    prior_scale: Any = field(init=False)
    #: standard deviations of the features in the first fit
    _x_scale: Array = field(init=False)
    #: blocks that coefficients of all rows add to, and their signs
    _baselines: ClassVar[dict[str, int]] = {"intercept": 1}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _samplers(self) -> tuple[str, ...]:
        return (*super()._samplers(), "mclmc", "mala")

    def _check_together(self, settings: Settings) -> None:
        super()._check_together(settings)
        allowed = "'auto', 'learned', a positive number, or an array of shape (n_features,)"
        learned, words = self._learned_scale() is not None, ("auto",)
        check_prior_scale(self.prior_scale, self.prior, allowed, learned=learned, words=words)

    def _learned_scale(self) -> LearnedScale | None:
        """The hyperprior of the scales, or None if the scales are given."""
        return learned_scale(self.prior_scale, LINEAR, unasked=can_learn(self.prior))

    def _model_scale(self, units: Any) -> Any:
        """Scale of the model's prior: numbers, or what is learned of coefficients in ``units``."""
        from ..models.linear.coefficient_priors import ScalesOfFeatures
        from ..priors.learned_scale import LearnedScale

        given = self._learned_scale()
        if given is None:
            return self._given_scale()
        n_features = len(self._columns.parts()[1])
        shape: Any = given.shape
        scale: Any = float(given.typical(1.0 / math.sqrt(n_features)))
        if not given.inputs and not self._encoding.plain:
            shape, scale = self._scales_of_parts(given, scale)
        hyper = LearnedScale(shape, scale, given.inputs)
        return ScalesOfFeatures(hyper, units, self._scale_parts()[0])

    def _given_scale(self) -> Any:
        """Scale of the model's prior in numbers: one, or one for each feature."""
        part, names = self._columns.parts()
        n_features = len(names)
        if np.ndim(self.prior_scale) != 1:
            return 1.0 if is_auto(self.prior_scale) else self.prior_scale
        if len(self.prior_scale) != n_features:
            raise not_allowed(
                f"prior_scale of length {len(self.prior_scale)} is not allowed: X has "
                f"{n_features} features; give one number for each of them."
            )
        return np.asarray(self.prior_scale)[part]

    def _scales_of_parts(self, given: LearnedScale, scale: float) -> tuple[Any, ...]:
        """Parameters of the hyperprior for each scale; ``scale`` is that of columns of numbers.

        That of a column of categories is typical for as many features as it has indicators.
        """
        part, names = self._columns.parts(numbers_as_one=True)
        categories = np.ones(len(names), dtype=bool)
        categories[part[self._columns.numbers]] = False
        auto = isinstance(getattr(self.prior_scale, "shape", "auto"), str)
        found = (
            np.where(categories & auto, CATEGORICAL_SHAPE, given.shape),
            np.where(categories, given.typical(np.bincount(part) ** -0.5), scale),
        )
        return tuple(float(each[0]) if len(names) == 1 else each for each in found)

    def _scale_parts(self) -> tuple[Array | None, list[str]]:
        """Of every feature, which learned scale it has; None: the prior says, one for all or each.

        A column of categories has a scale of its own. Names of the scales come with it.
        """
        given = self._learned_scale()
        own = given is not None and bool(given.inputs)
        part, names = self._columns.parts(numbers_as_one=not own)
        each = own and len(names) == len(part)
        return None if each or (len(names) == 1 and self._encoding.plain) else part, names

    def _units(self, X: Any, weight: Array | None, *, first: bool) -> Array:
        """Units of the coefficients: one over the scale of each feature."""
        if first or not hasattr(self, "_x_scale"):
            numbers = self._columns.numbers
            self._x_scale = np.ones(len(numbers))  # indicators of categories stay as they are
            x = X if numbers.all() else X[:, numbers]
            self._x_scale[numbers] = scale_of_effects(x, weight)
        return 1.0 / self._x_scale

    def _run(self, task: Task) -> None:
        model = self._in_coordinates(task)
        super()._run(replace(task, model=model))
        if model.merges:  # every step takes all of them
            self.batch_size_ = task.rows.n_rows
        if task.previous is None or not task.stream:  # once a stream
            self._warn_of_far_features(self._columns.of_features(task.rows.x))

    def _in_coordinates(self, task: Task) -> Any:
        """The model in coordinates of its coefficients, and for rows, that suit the data."""
        settings = task.settings
        alone = not task.stream and not self.warm_start  # other rows span another space
        free = (settings.step_size, settings.gradient, settings.preconditioner, settings.init)
        if not (alone and settings.temperature == 1.0 and all(map(is_auto, free))):
            return task.model
        features = self._columns.of_features(task.rows.x)
        model = task.model.in_space_of(features, task.rows.weight)
        return model.merging(features) if is_auto(settings.batch_size) else model

    def _check_run(self, run: Run) -> None:
        super()._check_run(run)
        # automatic steps are checked by their energy errors, before the run ends
        if not run.plan.auto:
            check_spread(self, run)
            check_strays(self, run)

    def _check_sense(self, rows: KeptRows) -> None:
        super()._check_sense(rows)
        if self._learned_scale() is not None:  # it is in units of the features
            return
        n_rows, what, differ = rows.n_rows, "", 0.0
        X, scale = self._columns.of_features(rows.x), self._given_scale()
        allowed = _differences(X, scale)
        if 0.0 < allowed < min(SURE_INFORMATION, n_rows * LEAST_DIFFERENCE**2):
            what, differ = "X", math.sqrt(allowed / n_rows)
        elif (effects := _left_out(X, scale)).any():
            names = np.array(self._columns.feature_labels, dtype=object)[effects > 0.0]
            what, differ = listed(map(repr, names)), effects.max()
        if what:
            other = "prior_scale='learned' or " if can_learn(self.prior) else ""
            warn(
                f"prior_scale={self.prior_scale!r} hardly lets {short_name(self)} depend on {what}"
                ": it is in units of the coefficients, and under this prior the linear predictors "
                f"of two rows differ by {differ:.2g} (prior sd). Scale the features to unit "
                f"variance (StandardScaler), or give {other}larger numbers as prior_scale.",
                "the-prior-hardly-allows-any-effect",
            )

    def _warn_of_far_features(self, X: Any) -> None:
        """Warn of features that differ from row to row by next to nothing of their mean."""
        if not self.fit_intercept or not isinstance(X, np.ndarray):
            return
        some = X[:: -(-len(X) // LIMITS.sampled_rows)].astype(np.float64)
        center, scale = center_and_scale(some, None)
        constant = np.ptp(some, axis=0) <= 100.0 * np.finfo(np.float64).eps * np.abs(center)
        far = np.flatnonzero((np.abs(center) > FARTHEST * scale) & ~constant)
        if len(far):
            names = np.array(self._columns.feature_labels, dtype=object)[far]
            warn(
                f"{listed(map(repr, names))} of {short_name(self)}: the mean {center[far[0]]:.3g} "
                f"is {abs(center[far[0]]) / scale[far[0]]:.1g} times the sd, so that rounding may "
                "decide the coefficient. Subtract a constant from such a column, its first value "
                "or its mean (StandardScaler).",
                "numbers-are-too-large-or-too-small",
            )

    def summary(
        self,
        coverage: float = 0.9,
        exponentiate: bool = False,
        reference: Mapping[str, Any] | None = None,
    ) -> Summary:
        """Summarise every parameter by its mean, sd, central interval, ESS, R-hat and MCSE.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability of the central interval.
        exponentiate : bool, default=False
            If True, the table has the medians and intervals of the exponentials of coefficients,
            intercepts and effects of groups, and nothing else: odds ratios of a logistic
            regression, rate ratios of a model of counts. Its title says what they multiply, such
            as "odds of 'ill'".
        reference : dict or None, default=None
            For columns of categories, by name, the category that the others are compared with, such
            as ``{"smoker": "never"}``. The table has the differences from its coefficient (with
            ``exponentiate``, the ratios) in the place of the column's coefficients, and an
            intercept for rows with this category. Differences are narrower than coefficients, which
            compare with an average over categories that is itself uncertain. None has the
            coefficients.

        Returns
        -------
        Summary
            A dict of columns that prints as a table. ``to_frame()`` converts it to a DataFrame.

        Raises
        ------
        ValueError
            ``reference`` names a column without categories, or a category that ``fit`` has not
            seen.
        """
        from .._draws.posterior_samples import PosteriorSamples
        from ..diagnostics import Summary, summary

        check_fitted(self)
        check_choice("exponentiate", exponentiate, (True, False))
        posterior, labels = self._in_units(), self._labels()
        if reference is not None:
            posterior, labels["coef"] = self._compared(posterior, labels["coef"], reference)
        if not exponentiate:
            return summary(posterior, labels=labels, coverage=coverage)
        logs = {name: posterior[name] for name in self._ratio_blocks()}
        posterior = PosteriorSamples(logs, posterior.weights)
        table = summary(posterior, labels=labels, coverage=coverage)
        middle = np.concatenate([np.ravel(posterior.quantile(name, 0.5)) for name in logs])
        with np.errstate(over="ignore"):
            ratios = Summary(
                name=table["name"],
                median=np.exp(middle),  # a mean would be that of its longer tail
                lower=np.exp(table["lower"]),
                upper=np.exp(table["upper"]),
                ess=table["ess"],
                r_hat=table["r_hat"],
            )
        ratios.title = self._ratio_title()
        return ratios

    def _compared(
        self, posterior: PosteriorSamples, labels: list[str], reference: Any
    ) -> tuple[PosteriorSamples, list[str]]:
        """Draws with coefficients of categories relative to one of them, and their labels."""
        from .._draws.posterior_samples import PosteriorSamples

        base, added = self._columns.references(reference)
        draws = {name: posterior[name] for name in posterior.draws}
        coef, kept = draws["coef"], base != np.arange(len(base))
        draws["coef"] = np.where(base >= 0, coef - coef[..., base], coef)[..., kept]
        moved = coef[..., ~kept].sum(-1)
        for name, sign in self._baselines.items():
            if name in draws:
                extra = draws[name].ndim - moved.ndim
                draws[name] = draws[name] + sign * moved[(..., *[None] * extra)]
        table = np.array(labels, dtype=object).reshape(-1, len(base)) + added
        return PosteriorSamples(draws, posterior.weights), table[:, kept].ravel().tolist()

    def _ratio_blocks(self) -> list[str]:
        """Blocks of draws that are logarithms of ratios, of odds or rates."""
        return ["coef", "intercept"]

    # names of draws -------------------------------------------------------------------------------

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Array:
        """Names of the coefficients' columns, in the order of ``coef_``.

        A column of numbers has its own name, a column of categories one name for each category.
        Columns that are not features, such as exposures, have none.

        Parameters
        ----------
        input_features : array-like of str of shape (n_features,), optional
            Names of the columns of X, for a fit to an array without names. By default
            ``feature_names_in_``, or x0, x1 and so on.

        Returns
        -------
        names : ndarray of str of shape (n_coefficients,)

        Raises
        ------
        ValueError
            If ``input_features`` has another length, or other names than X in ``fit``.
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.

        Examples
        --------
        >>> import pandas as pd
        >>> from skbayes_sgmcmc import BayesianLogisticRegression
        >>> X = pd.DataFrame({"age": [21, 35, 42, 60] * 9, "city": ["a", "b", "c", "a"] * 9})
        >>> clf = BayesianLogisticRegression(random_state=0).fit(X, [0, 0, 1, 1] * 9)
        >>> clf.get_feature_names_out().tolist()
        ['age', 'city=a', 'city=b', 'city=c']
        """
        check_fitted(self)
        names = check_feature_names_in(self, input_features).tolist()
        return np.array(replace(self._columns, names=names).feature_labels, dtype=object)

    def _must_mix(self, task: Task) -> MustMix:
        posterior = self._in_units()
        draws = {name: posterior[name] for name in posterior.draws}
        if not self.fit_intercept:  # it is zero
            draws.pop("intercept", None)
        return MustMix(draws, self._labels(), remedies=SCALE_REMEDY)

    def _scale_axes(self) -> dict[str, dict[str, list[Any]]]:
        """Those of learned scales, if there are several."""
        if not self.posterior_.shapes.get("scale"):
            return {}
        names = self._scale_parts()[1]
        return {"scale": {"feature" if self._encoding.plain else "column": names}}

    def _with_few(self, names: tuple[str, ...], one_of: int) -> Self | None:
        """With one of so many draws, which stand for all; None if that saves little."""
        from ..models.moments.few_draws import few_for_all

        found = few_for_all(self.posterior_, names, one_of)
        if found is None:
            return None
        other = copy.copy(self)
        other.posterior_ = found
        return other if other._has_valid_draws() else None

    def _has_valid_draws(self) -> bool:
        """Whether the draws are positions that chains could have."""
        return True


class LinearClassifier(LinearEstimator, BayesianClassifier):
    """Base class of classifiers with a linear model: two blocks of draws determine the logits."""

    #: these blocks
    _logit_blocks = ("coef", "intercept")
    #: hidden units of a student
    _student_units: tuple[int, ...] = ()

    def _model_class(self) -> Any:
        """Class of the model, which takes the same of all linear classifiers."""
        raise NotImplementedError

    def _learned_scale(self) -> LearnedScale | None:
        # of thousands of coefficients, classes say so little that their scale mixes slowly
        columns = getattr(self, "_columns", None)
        wide = columns is not None and len(columns.numbers) > LIMITS.full_hessian
        if is_auto(self.prior_scale) and wide and self._encoding.plain:
            return None
        return super()._learned_scale()

    def _make_model(self, rows: KeptRows, *, first: bool) -> Any:
        learned = self._learned_scale() is not None
        units = self._units(rows.x, rows.weight, first=first) if learned else None
        return self._model_class()(
            rows.x.shape[1],
            len(self.classes_),
            self._prior(),
            self._model_scale(units),
            self.fit_intercept,
        )

    def _mean_proba(self, x: Any) -> Array:
        """Averages over all draws, or over few that stand for them."""
        from ..models.moments.few_draws import LEVELS, largest_sd, roots_of

        few: Any = [self._with_few(self._logit_blocks, one_of) for _, one_of in LEVELS]
        limits = [most for most, _ in LEVELS[:-1]]
        if None in few:
            return super()._mean_proba(x)
        proba = np.empty((x.shape[0], len(self.classes_)))
        coef, other = (few[-1].posterior_.pooled(name) for name in self._logit_blocks)
        roots = roots_of(coef.reshape(len(coef), -1, x.shape[1]), other.reshape(len(coef), -1))
        for rows in slices(x.shape[0], LIMITS.block_rows):
            part, found = x[rows], proba[rows]
            level = np.digitize(largest_sd(part, roots), limits)
            for k in np.unique(level):
                some = np.flatnonzero(level == k)
                found[some] = super(LinearClassifier, few[k])._mean_proba(part[some])
        return proba

    def _logit_module(self, coef: Tensor, other: Tensor) -> nn.Module:
        """Logits (draws, rows, classes) of some draws, as a function of rows."""
        raise NotImplementedError

    def _iter_logits(self, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        coef, other = (
            prediction.tensor_of(self.posterior_.pooled(name)) for name in self._logit_blocks
        )
        for some in LIMITS.blocks(len(coef), len(x) * len(self.classes_)):
            yield some, self._logit_module(coef[some], other[some])(x.to(coef.dtype))

    def _student(self, X: Array) -> Blueprint:
        from ..models.networks.distillation import Blueprint
        from ..models.networks.mlp import MLP

        network = MLP((X.shape[1], *self._student_units, len(self.classes_)), "relu").module
        return Blueprint(network, *center_and_scale(X, None), X.shape[1:])

    def _ensemble(self, chosen: Array, weights: Array) -> nn.Module:
        import torch

        from ..models.networks.ensemble import Inputs, MeanProbabilities

        draws = [self.posterior_.select(name, chosen) for name in self._logit_blocks]
        outputs = self._logit_module(*(torch.from_numpy(block).float() for block in draws))
        unchanged = Inputs(np.zeros(1), np.ones(1), (self.n_features_in_,))
        return MeanProbabilities(unchanged, outputs, weights)


def _left_out(X: Any, prior_scale: Any) -> Array:
    """Largest differences that features make between two rows, as prior sds; 0 where not too small.

    Sparse rows are left alone: a word matters little alone, and as much as others.
    """
    scale = np.broadcast_to(np.asarray(prior_scale, dtype=np.float64), X.shape[1:])
    if not isinstance(X, np.ndarray):
        return np.zeros(len(scale))
    with np.errstate(all="ignore"):
        effects = np.ptp(X, axis=0) * scale
    small = (effects < LEFT_OUT) & (len(X) * np.square(effects) < SURE_INFORMATION)
    return np.where(small & (effects.max(initial=0.0) >= NOTED), effects, 0.0)


def _differences(X: Any, prior_scale: Any) -> float:
    """Sum over rows of the prior variance of f(row) - f(first row), or what exceeds the limits.

    Differences from the first row, not from the mean, are exactly zero for constants. Those of
    sparse rows are from zero.
    """
    sparse, found = sp.issparse(X), 0.0
    first = 0.0 if sparse else np.array(X[:1], dtype=np.float64)
    scale = np.broadcast_to(np.asarray(prior_scale, dtype=np.float64), X.shape[1:])
    with np.errstate(all="ignore"):  # infinite sums exceed every limit
        for rows in LIMITS.blocks(*X.shape):
            some = X[rows].multiply(scale).data if sparse else (X[rows] - first) * scale
            found += float(np.sum(np.square(some)))
            if not found < SURE_INFORMATION:
                break
    return found
