"""How often predictive intervals contain the target, beside how often they should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._validation import check_real
from ._common import Display, one_output, pyplot

#: probabilities of the intervals that are shown by default
COVERAGES = tuple(np.linspace(0.1, 0.9, 9).round(1).tolist())


@dataclass(eq=False, repr=False)
class IntervalCoverageDisplay(Display):
    """Share of targets inside central predictive intervals, against the intervals' probability.

    The curve of a calibrated regressor is the diagonal, up to the chance of a finite number of
    rows, which the band shows. Below the band, intervals are too narrow; above it, too wide.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    coverages : array of shape (n_intervals,)
        Probabilities of the intervals.
    observed : array of shape (n_intervals,)
        Shares of the targets inside.
    error : array of shape (n_intervals,)
        Standard errors of these shares, if the intervals are right.
    estimator_name : str or None, default=None
        Name of the curve.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    See Also
    --------
    ReliabilityDisplay : The same question about the probabilities of classes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayes_sgmcmc import BayesianGLMRegressor
    >>> from skbayes_sgmcmc.inspection import IntervalCoverageDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = BayesianGLMRegressor(random_state=0).fit(X[::2], y[::2])
    >>> display = IntervalCoverageDisplay.from_estimator(
    ...     reg, X[1::2], y[1::2], coverages=[0.5]
    ... )
    >>> bool(abs(display.observed[0] - 0.5) < 3 * display.error[0])
    True
    """

    coverages: Array
    observed: Array
    error: Array
    estimator_name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        coverages: Any = COVERAGES,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the coverage of a fitted regressor with one output.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor of this package, or a pipeline or search that ends in one.
        X : array of shape (n_samples, n_features)
            Rows, which should not be those of the fit.
        y : array of shape (n_samples,)
            Their targets.
        coverages : sequence of float, default=0.1, 0.2, ..., 0.9
            Probabilities of the intervals.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the curve, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        IntervalCoverageDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        shown = [check_real("coverages", each, low=0.0, high=1.0) for each in coverages]
        last, X, y = one_output(estimator, X, y)
        p = np.asarray(shown)
        ends = last.predict_quantiles(X, np.concatenate([0.5 - 0.5 * p, 0.5 + 0.5 * p]))
        lower, upper = ends[:, : len(p)], ends[:, len(p) :]
        observed = ((lower <= y[:, None]) & (y[:, None] <= upper)).mean(axis=0)
        error = np.sqrt(p * (1.0 - p) / len(y))
        return cls(p, observed, error, type(last).__name__).plot(ax, **kwargs)

    def _draw(self, **kwargs: Any) -> None:
        """Plot the curve, the diagonal, and a band of two standard errors about it."""
        axes = self.ax_
        p, width = self.coverages, 2.0 * self.error
        axes.fill_between(p, p - width, p + width, color="grey", alpha=0.25, linewidth=0)
        axes.plot([0.0, 1.0], [0.0, 1.0], color="grey", linestyle=":", linewidth=1)
        axes.plot(p, self.observed, **({"marker": ".", "label": self.estimator_name} | kwargs))
        axes.set(xlabel="probability of the interval", ylabel="share of targets inside")
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
