"""Posterior predictive checks: histograms of targets and of replicated targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._validation import central, check_int
from ._common import Display, one_output, pyplot


@dataclass(eq=False, repr=False)
class PredictiveCheckDisplay(Display):
    """Histogram of the targets, with a band of the histograms of replicated targets.

    Replicated targets are drawn from the predictive distribution of the same rows. Bars outside of
    the band show what the likelihood does not describe, such as too many zeros or long tails.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    edges : array of shape (n_bins + 1,)
        Edges of the bins.
    observed : array of shape (n_bins,)
        Numbers of targets.
    mean : array of shape (n_bins,)
        Mean numbers of replicated targets.
    lower, upper : array of shape (n_bins,)
        Ends of the central intervals of these numbers.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the histogram.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import BayesianGLMRegressor
    >>> from skbayes_sgmcmc.inspection import PredictiveCheckDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> y = rng.poisson(rng.gamma(1.0, 1.0, 300) * np.exp(1.0 + X[:, 0]))
    >>> reg = BayesianGLMRegressor(likelihood="poisson", random_state=0).fit(X, y)
    >>> display = PredictiveCheckDisplay.from_estimator(reg, X, y, random_state=0)
    >>> bool(display.observed[0] > display.upper[0])  # more zeros than Poisson's
    True
    """

    edges: Array
    observed: Array
    mean: Array
    lower: Array
    upper: Array

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        n_bins: int = 20,
        n_samples: int = 200,
        coverage: float = 0.9,
        random_state: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the check of a fitted regressor with one output.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor of this package, or a pipeline or search that ends in one.
        X : array of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Their targets.
        n_bins : int, default=20
            Number of bins between the smallest and the largest target. Their edges are whole
            numbers for counts.
        n_samples : int, default=200
            Number of replicated data sets.
        coverage : float, default=0.9
            Probability of the band.
        random_state : int, RandomState or None, default=None
            Seed of the replications.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the bars, passed to :meth:`matplotlib.axes.Axes.bar`.

        Returns
        -------
        PredictiveCheckDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        tails = central(coverage)
        check_int("n_bins", n_bins)
        check_int("n_samples", n_samples, low=2)
        last, X, y = one_output(estimator, X, y)
        new = last.sample_y(X, n_samples, random_state).reshape(len(y), n_samples)
        edges = np.linspace(y.min(), y.max(), n_bins + 1)
        if (y == np.floor(y)).all() and (new == np.floor(new)).all():  # counts
            step = max(1, int(np.ceil((y.max() - y.min() + 1.0) / n_bins)))
            edges = np.arange(y.min() - 0.5, y.max() + step, step)
        found = np.stack([np.histogram(each, edges)[0] for each in new.T])
        lower, upper = np.quantile(found, tails, axis=0)
        observed = np.histogram(y, edges)[0]
        return cls(edges, observed, found.mean(axis=0), lower, upper).plot(ax, **kwargs)

    def _draw(self, **kwargs: Any) -> None:
        axes = self.ax_
        middle, width = 0.5 * (self.edges[1:] + self.edges[:-1]), np.diff(self.edges)
        style = {"color": "C0", "alpha": 0.4, "label": "targets"} | kwargs
        axes.bar(middle, self.observed, width, **style)
        error = np.maximum([self.mean - self.lower, self.upper - self.mean], 0.0)
        axes.errorbar(middle, self.mean, error, fmt="k.", capsize=2, label="replicated")
        axes.set(xlabel="y", ylabel="rows")
        axes.legend()
