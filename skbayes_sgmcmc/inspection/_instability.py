"""Bar chart of the uncertainty of each independent component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._exceptions import not_allowed
from .._pipelines import last_step
from ._common import Display, pyplot


@dataclass(eq=False, repr=False)
class InstabilityDisplay(Display):
    r"""Bar chart of the instability of independent components, most certain first.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    instability : array of shape (n_components,)
        Instabilities :math:`I_i = \sum_j \mathrm{var}(W_{ij})\,\mathrm{var}(x_j)`, in any order.

    Attributes
    ----------
    order : array of shape (n_components,)
        Indices of the components in the order of the bars.
    bars_ : matplotlib BarContainer
        The bars.
    ax_ : matplotlib Axes
        Axes of the bars.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    See Also
    --------
    skbayes_sgmcmc.BayesianICA : Computes ``instability_``.

    References
    ----------
    Welling & Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics, figs. 4-6.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import BayesianICA
    >>> from skbayes_sgmcmc.inspection import InstabilityDisplay
    >>> X = np.random.default_rng(0).laplace(size=(200, 3))
    >>> ica = BayesianICA(random_state=0).fit(X)
    >>> display = InstabilityDisplay.from_estimator(ica)
    >>> len(display.bars_)
    3
    """

    instability: Array

    def __post_init__(self) -> None:
        self.instability = np.asarray(self.instability)
        self.order = np.argsort(self.instability, kind="stable")

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Plot the bars of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted :class:`~skbayes_sgmcmc.BayesianICA`, or a pipeline or search that ends in one.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the bars, passed to :meth:`matplotlib.axes.Axes.bar`.

        Returns
        -------
        InstabilityDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        (last,) = last_step(estimator)
        if not hasattr(last, "instability_"):
            raise not_allowed(
                f"estimator={estimator!r} is not allowed: give a fitted BayesianICA, or a pipeline "
                "or search that ends in one."
            )
        return cls(last.instability_).plot(ax, **kwargs)

    def _draw(self, **kwargs: Any) -> None:
        places = np.arange(len(self.order))
        self.bars_ = self.ax_.bar(places, self.instability[self.order], **kwargs)
        self.ax_.set_xticks(places, [str(number) for number in self.order])
        self.ax_.set(xlabel="component", ylabel="instability")
