"""Predicted means or probabilities as functions of one feature, with bands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .._arrays import Array
from .._draws.posterior_samples import quantiles
from .._exceptions import not_allowed
from .._pipelines import last_step, with_column_names
from .._validation import central, check_choice, check_int
from ._common import Display, pyplot


@dataclass(eq=False, repr=False)
class PartialEffectDisplay(Display):
    """Mean of the target as a function of each of some features, with a band over the draws.

    All other columns keep the values that they have in some rows, over which the means are
    averaged. The band is that of the mean, and does not include the noise of a new observation.
    Of a classifier, it is the probability of a class, before it is calibrated if it is.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    names : list of str
        Names of the features.
    grids : array of shape (n_features, n_points)
        Values of the features.
    mean : array of shape (n_features, n_points)
        Posterior means.
    lower, upper : array of shape (n_features, n_points)
        Ends of the central intervals.
    target : str, default="mean of y"
        What the means are of.

    Attributes
    ----------
    axes_ : array of matplotlib Axes, of shape (n_features,)
        One panel for each feature.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayes_sgmcmc import BayesianGLMRegressor
    >>> from skbayes_sgmcmc.inspection import PartialEffectDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> reg = BayesianGLMRegressor(random_state=0).fit(X, y)
    >>> display = PartialEffectDisplay.from_estimator(reg, X, ["bmi", "bp"])
    >>> bool((display.upper > display.lower).all())
    True
    """

    names: list[str]
    grids: Array
    mean: Array
    lower: Array
    upper: Array
    target: str = "mean of y"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        features: Any,
        *,
        label: Any = None,
        n_points: int = 30,
        coverage: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot partial effects of a fitted regressor or classifier.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor or classifier of this package, or a pipeline or search that ends in
            one. Features are then those that it gets.
        X : array of shape (n_samples, n_columns)
            Rows. The grid of a feature covers its central 90%; at most 100 rows, evenly spaced, are
            averaged over.
        features : int, str or list of them
            Indices or names of the columns.
        label : label, int or None, default=None
            Class of a classifier, or index of one of several targets. None: the last class, or the
            first target.
        n_points : int, default=30
            Number of values of each feature.
        coverage : float, default=0.9
            Probability of the band.
        ax : Axes, array of Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the curves, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        PartialEffectDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        tails = central(coverage)
        check_int("n_points", n_points, low=2)
        last, X = last_step(estimator, X)
        means_of, target = _means(last, label)
        X = last._validate_x(X)
        labels = with_column_names(estimator)._columns.given_labels
        several = np.iterable(features) and not isinstance(features, str)
        columns = [_column(each, labels) for each in (features if several else [features])]
        for j in columns:
            encoded = last._encoding.categories(len(labels))[j]
            if encoded or j in last._known_labels:
                what = "categories" if encoded else "groups"
                raise not_allowed(
                    f"features with {labels[j]!r} is not allowed: the column holds {what}. Give "
                    "columns of numbers."
                )
        origin = last._encoding.origin(len(labels))
        rows = X[np.unique(np.linspace(0, X.shape[0] - 1, 100).astype(int))]
        rows = rows.toarray() if sp.issparse(rows) else np.array(rows)
        posterior = last.posterior_
        n_draws = min(400, posterior.n_pooled)
        chosen, kept = posterior.spaced(n_draws)
        weights = None if posterior.weights is None else kept
        grids, means = [], []
        for place, j in zip(np.searchsorted(origin, columns), columns, strict=True):
            column = int(place)
            values = X[:, [column]].toarray() if sp.issparse(X) else X[:, column]
            low, high = np.quantile(values, [0.05, 0.95])
            grids.append(np.linspace(low, high, n_points))
            changed, at = rows.copy(), []
            changed[:, origin == j] = 0.0  # no row has a gap then
            for value in grids[-1]:
                changed[:, column] = value
                at.append(means_of(chosen, changed).mean(axis=1))
            means.append(at)
        draws = np.moveaxis(np.asarray(means), 2, 0)  # (draws, features, points)
        lower, upper = quantiles(draws, tails, weights)
        names, mean = [labels[j] for j in columns], np.average(draws, axis=0, weights=weights)
        return cls(names, np.asarray(grids), mean, lower, upper, target).plot(ax, **kwargs)

    def _n_panels(self) -> int:
        return len(self.names)

    def _draw(self, **kwargs: Any) -> None:
        for k, axes in enumerate(self.axes_):
            (line,) = axes.plot(self.grids[k], self.mean[k], **kwargs)
            color = line.get_color()
            axes.fill_between(self.grids[k], self.lower[k], self.upper[k], color=color, alpha=0.2)
            axes.set(xlabel=self.names[k], ylabel=self.target)


def _means(fitted: Any, label: Any) -> tuple[Callable[[Any, Any], Array], str]:
    """A function of draws and rows that returns the means (draws, rows), and what they are of."""
    if hasattr(fitted, "_mixture"):
        predictive, several, k = fitted._predictive(), fitted._n_targets > 1, 0
        if label is not None and not several:
            raise not_allowed(
                f"label={label!r} is not allowed with a regressor of one target: give None."
            )
        if label is not None:
            k = check_int("label", label, low=0, high=fitted._n_targets - 1)
        name = f"mean of y[{k}]" if several else "mean of y"
        return lambda draws, X: np.asarray(predictive(draws, X).mean())[..., k], name
    if not hasattr(fitted, "classes_"):
        raise not_allowed(f"estimator={fitted!r} is not allowed: give a regressor or classifier.")
    places = fitted._classes.choices
    label = [*places][-1] if label is None else check_choice("label", label, places)
    place, predict = places[label], fitted._predictor()
    name = f"probability of {fitted._classes.names[place]}"
    return lambda draws, X: np.asarray(predict(draws, X))[..., place], name


def _column(given: Any, labels: list[str]) -> int:
    if isinstance(given, Integral) and 0 <= int(given) < len(labels):
        return int(given)
    if isinstance(given, str) and given in labels:
        return labels.index(given)
    raise not_allowed(
        f"features with {given!r} is not allowed: give indices below {len(labels)}, or names of "
        "columns, as a list."
    )
