"""Histograms of draws of the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._draws.posterior_samples import PosteriorSamples
from .._limits import LIMITS
from .._pipelines import last_step
from .._validation import check_int, check_random_state
from ._common import COLUMNS, Display, pyplot, several


@dataclass(eq=False, repr=False)
class WeightHistogramDisplay(Display):
    """Histograms of the draws, with one panel for each block of parameters.

    The histogram of a block contains the values of all its coordinates in all draws. It is the
    posterior of a coordinate chosen at random. It shows which layers have heavy tails or many
    weights near zero, and whether a prior fits.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    densities : dict of str to array of shape (n_bins,)
        Densities of the values, for each block.
    edges : dict of str to array of shape (n_bins + 1,)
        Edges of the bins, for each block.

    Attributes
    ----------
    axes_ : array of shape (n_blocks,) of matplotlib Axes
        One axes per block.
    ax_ : matplotlib Axes
        First of these axes.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    See Also
    --------
    skbayes_sgmcmc.PosteriorSamples : The draws.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import WeightHistogramDisplay
    >>> clf = BayesianLogisticRegression(random_state=0).fit(*load_iris(return_X_y=True))
    >>> display = WeightHistogramDisplay.from_estimator(clf)
    >>> list(display.densities)
    ['coef', 'intercept', 'scale']
    """

    densities: Mapping[str, Array]
    edges: Mapping[str, Array]

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
        """Plot the histograms of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator of this package, or a pipeline or search that ends in one.
        names : str, sequence of str or None, default=None
            Names of blocks of ``posterior_``. None: all blocks.
        bins : int, default=100
            Number of bins of equal width.
        random_state : int, RandomState or None, default=None
            Seed. From a block with more than a million values, a million are chosen with
            replacement. From a smaller block, all values are used.
        ax : Axes, sequence of Axes or None, default=None
            One axes per panel, or a single axes that the panels share. None: a new figure.
        **kwargs
            Options of the histograms, passed to :meth:`matplotlib.axes.Axes.stairs`.

        Returns
        -------
        WeightHistogramDisplay
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

    def _n_panels(self) -> int:
        return len(self.densities)

    def _draw(self, **kwargs: Any) -> None:
        for axes, (name, density) in zip(self.axes_, self.densities.items(), strict=True):
            axes.stairs(density, self.edges[name], **({"fill": True} | kwargs))
            axes.set(title=name, xlabel="value", yticks=[])
        for axes in self.axes_[:: min(len(self.axes_), COLUMNS)]:
            axes.set_ylabel("density")


def _numbers(posterior: PosteriorSamples, name: str, rng: Any) -> tuple[Array, Array | None]:
    """Values of a block, of shape (n,), and their weights; a random subset if there are many."""
    draws, weights = posterior[name], posterior.weights
    if draws.size <= LIMITS.plotted_numbers:
        if weights is not None:
            per_draw = weights.reshape(-1, *[1] * (draws.ndim - 2))
            weights = np.broadcast_to(per_draw, draws.shape).ravel()
        return draws.ravel(), weights
    chosen = np.unravel_index(rng.randint(draws.size, size=LIMITS.plotted_numbers), draws.shape)
    return draws[chosen], None if weights is None else weights[chosen[1]]
