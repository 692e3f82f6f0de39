"""Bar charts of the relevance of input features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._exceptions import not_allowed
from .._pipelines import last_step, with_column_names
from .._validation import central, check_int
from ._common import Display, intervals, pyplot


@dataclass(eq=False, repr=False)
class RelevanceDisplay(Display):
    """Bar chart of the relevance of the input features, with intervals over the draws.

    The relevance of a feature is its learned scale in the first layer, divided by the sum of these
    scales over all features. A small scale means that the network hardly uses the feature.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    names : array of shape (n_shown,)
        Names of the features, beginning with the most relevant one.
    mean : array of shape (n_shown,)
        Posterior means of their relevance.
    lower, upper : array of shape (n_shown,)
        Ends of the central intervals of their relevance.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the bars.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    See Also
    --------
    skbayes_sgmcmc.priors.LearnedScale : The prior with learned scales.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianMLPClassifier
    >>> from skbayes_sgmcmc.inspection import RelevanceDisplay
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = BayesianMLPClassifier(prior_scale="learned", random_state=0).fit(X, y)
    >>> display = RelevanceDisplay.from_estimator(clf)
    >>> set(display.names[:2].tolist())
    {'petal ...'}
    """

    names: Array
    mean: Array
    lower: Array
    upper: Array

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        n_features: int | None = None,
        feature_names: Any = None,
        coverage: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the bars of a fitted perceptron with learned scales of the inputs.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator with ``relevance_``, or a pipeline or search that ends in one.
        n_features : int or None, default=None
            Number of features to show. None: the 20 most relevant ones.
        feature_names : sequence of str or None, default=None
            Names of all features. None: the names seen in ``fit``, those that steps before the
            estimator give or, without such names, x0, x1, ...
        coverage : float, default=0.9
            Probability of the central intervals.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the bars, passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        RelevanceDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        tails = central(coverage)
        (last,) = last_step(estimator)
        if not hasattr(last, "relevance_"):
            raise not_allowed(
                f"estimator={last!r} is not allowed: give a multilayer perceptron that was fitted "
                "with prior_scale='learned'."
            )
        relevance = last.relevance_
        if n_features is None:
            n_features = min(20, len(relevance))
        check_int("n_features", n_features, high=len(relevance))
        if feature_names is None:
            feature_names = with_column_names(estimator)._columns.parts()[1]
        names = np.asarray(feature_names)
        if names.shape != relevance.shape:
            raise not_allowed(
                f"feature_names of shape {names.shape} is not allowed: give {len(relevance)} names."
            )
        shown = np.argsort(-relevance, kind="stable")[:n_features]
        lower, upper = last._relevance().quantile("relevance", tails)[:, shown]
        return cls(names[shown], relevance[shown], lower, upper).plot(ax, **kwargs)

    def _n_names(self) -> int:
        return len(self.names)

    def _draw(self, **kwargs: Any) -> None:
        self.ax_.barh(range(len(self.mean)), self.mean, **({"color": "C0", "alpha": 0.7} | kwargs))
        self.ax_.set_xlabel("relevance")
        intervals(self.ax_, self.names, self.lower, self.upper)
