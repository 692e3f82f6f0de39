"""Histograms of drawn parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._draws.posterior_samples import PosteriorSamples
from .._pipelines import last_step
from .._validation import check_int, check_random_state
from ._common import COLUMNS, panels, pyplot, several

Array = NDArray[Any]

#: numbers of one block of parameters that its histogram looks at, at most
MOST_NUMBERS = 10**6


class WeightHistogramDisplay:
    """Histograms of the draws of each block of parameters, one panel a block.

    A block's numbers, of all its coordinates and all draws, make one histogram: the posterior of a
    coordinate taken at random. It shows which layers have learned heavy tails or many weights near
    zero, and whether a prior fits.

    Use :meth:`from_estimator` to make one.

    Parameters
    ----------
    densities : dict of str to array of shape (n_bins,)
        By block, densities of its numbers.
    edges : dict of str to array of shape (n_bins + 1,)
        By block, edges of the bins.

    Attributes
    ----------
    axes_ : array of shape (n_blocks,) of matplotlib Axes
        One a block.
    ax_ : matplotlib Axes
        The first of them.
    figure_ : matplotlib Figure
        Their figure.

    See Also
    --------
    PosteriorSamples : The draws.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import WeightHistogramDisplay
    >>> clf = BayesianLogisticRegression(random_state=0).fit(*load_iris(return_X_y=True))
    >>> display = WeightHistogramDisplay.from_estimator(clf)
    >>> list(display.densities)
    ['coef', 'intercept']
    """

    def __init__(self, densities: Mapping[str, Array], edges: Mapping[str, Array]):
        self.densities = dict(densities)
        self.edges = dict(edges)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        names: Any = None,
        *,
        bins: int = 100,
        random_state: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the histograms of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator of this package, or a pipeline or search that ends in one.
        names : str, sequence of str or None, default=None
            Blocks of ``posterior_``; None: all.
        bins : int, default=100
            Bins, of equal width.
        random_state : int, RandomState or None, default=None
            Seed of the choice, with replacement, of a million numbers from a block of more. (From
            fewer, all are counted.)
        ax : Axes, sequence of Axes or None, default=None
            One a panel, or one that the panels share; None: a new figure.
        **kwargs
            For the histograms, as in :meth:`matplotlib.axes.Axes.stairs`.

        Returns
        -------
        WeightHistogramDisplay

        Raises
        ------
        NotFittedError
            The estimator is not fitted.
        ValueError
            A parameter is not allowed, or the estimator is none of this package.
        ImportError
            Matplotlib is not installed.
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        check_int("bins", bins)
        (last,) = last_step(estimator)
        posterior = last.posterior_
        names = several("names", posterior.draws if names is None else names, posterior.draws)
        rng = check_random_state(random_state)
        densities, edges = {}, {}
        for name in names:
            values, weights = _numbers(posterior, name, rng)
            densities[name], edges[name] = np.histogram(values, bins, density=True, weights=weights)
        return cls(densities, edges).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the histograms.

        Parameters
        ----------
        ax : Axes, sequence of Axes or None, default=None
            One a panel, or one that the panels share; None: a new figure.
        **kwargs
            For the histograms, as in :meth:`matplotlib.axes.Axes.stairs`.

        Returns
        -------
        self
        """
        self.axes_ = panels(f"{type(self).__name__}.plot", ax, len(self.densities))
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        for axes, (name, density) in zip(self.axes_, self.densities.items(), strict=True):
            axes.stairs(density, self.edges[name], **({"fill": True} | kwargs))
            axes.set(title=name, xlabel="value", yticks=[])
        for axes in self.axes_[:: min(len(self.axes_), COLUMNS)]:
            axes.set_ylabel("density")
        return self


def _numbers(posterior: PosteriorSamples, name: str, rng: Any) -> tuple[Array, Array | None]:
    """Numbers of a block, as (n,), with their weights; a random million of more."""
    draws, weights = posterior[name], posterior.weights
    if draws.size <= MOST_NUMBERS:
        if weights is not None:
            per_draw = weights.reshape(-1, *[1] * (draws.ndim - 2))
            weights = np.broadcast_to(per_draw, draws.shape).ravel()
        return draws.ravel(), weights
    chosen = np.unravel_index(rng.randint(draws.size, size=MOST_NUMBERS), draws.shape)
    return draws[chosen], None if weights is None else weights[chosen[1]]
