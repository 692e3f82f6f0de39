"""Residuals with the bands where the model expects them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from .._arrays import Array
from .._validation import central
from ._common import Display, one_output, pyplot


@dataclass(eq=False, repr=False)
class ResidualDisplay(Display):
    """Residuals against predictions, with the predictive interval of each row.

    A residual is the target minus the median of its predictive distribution. If residuals bend, the
    model's mean is wrong; if their width does not follow that of the intervals, its noise is wrong.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    median : array of shape (n_samples,)
        Predictive medians.
    residual : array of shape (n_samples,)
        Targets minus medians.
    lower, upper : array of shape (n_samples,)
        Ends of the central predictive intervals, minus medians.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the residuals.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayes_sgmcmc import BayesianGLMRegressor
    >>> from skbayes_sgmcmc.inspection import ResidualDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = BayesianGLMRegressor(random_state=0).fit(X[::2], y[::2])
    >>> display = ResidualDisplay.from_estimator(reg, X[1::2], y[1::2], coverage=0.9)
    >>> inside = (display.lower <= display.residual) & (display.residual <= display.upper)
    >>> bool(abs(inside.mean() - 0.9) < 0.06)
    True
    """

    median: Array
    residual: Array
    lower: Array
    upper: Array

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        coverage: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the residuals of a fitted regressor with one output.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor of this package, or a pipeline or search that ends in one.
        X : array of shape (n_samples, n_features)
            Rows, which should not be those of the fit.
        y : array of shape (n_samples,)
            Their targets.
        coverage : float, default=0.9
            Probability of the intervals.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the points, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        ResidualDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        low, high = central(coverage)
        last, X, y = one_output(estimator, X, y)
        lower, median, upper = last.predict_quantiles(X, [low, 0.5, high]).T
        return cls(median, y - median, lower - median, upper - median).plot(ax, **kwargs)

    def _draw(self, **kwargs: Any) -> None:
        axes = self.ax_
        axes.vlines(self.median, self.lower, self.upper, color="grey", alpha=0.35, linewidth=1.5)
        axes.axhline(0.0, color="grey", linestyle=":", linewidth=1)
        outside = (self.residual < self.lower) | (self.residual > self.upper)
        style = {"marker": ".", "linestyle": "none", "color": "C0"} | kwargs
        axes.plot(self.median[~outside], self.residual[~outside], **style)
        axes.plot(
            self.median[outside], self.residual[outside], **(style | {"color": "C1", "marker": "x"})
        )
        axes.set(xlabel="predictive median", ylabel="target minus median")
