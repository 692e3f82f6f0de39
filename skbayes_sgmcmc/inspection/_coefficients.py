"""Forest plots of coefficients and other parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._draws.posterior_samples import PosteriorSamples, unique_names
from .._pipelines import last_step, with_column_names
from .._validation import central, check_choice
from ._common import Display, intervals, pyplot, several


@dataclass(eq=False, repr=False)
class CoefficientDisplay(Display):
    """Forest plot: the middle and a central interval of every coefficient, one below the other.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    names : array of shape (n_shown,)
        Names of the coefficients.
    middle : array of shape (n_shown,)
        Posterior means; the medians of ratios.
    lower, upper : array of shape (n_shown,)
        Ends of the central intervals.
    exponentiate : bool, default=False
        Whether these are ratios, which have a logarithmic axis.
    title : str, default="coefficient"
        Label of the axis: what the numbers are.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the intervals.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayes_sgmcmc import BayesianGLMRegressor
    >>> from skbayes_sgmcmc.inspection import CoefficientDisplay
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> reg = BayesianGLMRegressor(random_state=0).fit(X, y)
    >>> display = CoefficientDisplay.from_estimator(reg)
    >>> str(display.names[display.lower.argmax()])  # the largest effect
    'bmi'
    """

    names: Array
    middle: Array
    lower: Array
    upper: Array
    exponentiate: bool = False
    title: str = "coefficient"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        parameters: Any = "coef",
        exponentiate: bool = False,
        coverage: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the coefficients of a fitted linear model.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator of this package, or a pipeline or search that ends in one.
        parameters : str or list of str, default="coef"
            Blocks of draws to show, such as "coef" or "effect_school", in the units of the
            summary.
        exponentiate : bool, default=False
            If True, the exponentials are shown: rate ratios or odds ratios.
        coverage : float, default=0.9
            Probability of the central intervals.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the points, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        CoefficientDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        tails = central(coverage)
        check_choice("exponentiate", exponentiate, (True, False))
        (last,) = last_step(estimator)
        posterior, labels = last._in_units(), with_column_names(estimator)._labels()
        blocks = {name: posterior[name] for name in several("parameters", parameters, posterior)}
        names = np.asarray(unique_names({k: v.shape[2:] for k, v in blocks.items()}, labels))
        flat = [values.reshape(*values.shape[:2], -1) for values in blocks.values()]
        shown = PosteriorSamples({"x": np.concatenate(flat, axis=2)}, posterior.weights)
        lower, upper = shown.quantile("x", tails)
        if not exponentiate:
            return cls(names, shown.mean("x"), lower, upper).plot(ax, **kwargs)
        with np.errstate(over="ignore"):  # infinite, as in the summary
            middle, lower, upper = map(np.exp, (shown.quantile("x", 0.5), lower, upper))
        return cls(names, middle, lower, upper, True, last._ratio_title()).plot(ax, **kwargs)

    def _n_names(self) -> int:
        return len(self.names)

    def _draw(self, **kwargs: Any) -> None:
        self.ax_.axvline(float(self.exponentiate), color="grey", linewidth=1, linestyle=":")
        intervals(self.ax_, self.names, self.lower, self.upper)
        style = {"marker": "o", "linestyle": "", "color": "C0"} | kwargs
        self.ax_.plot(self.middle, range(len(self.middle)), **style)
        if self.exponentiate:
            self.ax_.set_xscale("log")
        self.ax_.set_xlabel(self.title)
