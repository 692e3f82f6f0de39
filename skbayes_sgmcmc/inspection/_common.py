"""What the displays share: axes to draw on, and checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._exceptions import extra, not_allowed
from .._pipelines import last_step
from .._validation import check_choice

#: maximal number of panels side by side
COLUMNS = 4


def pyplot(caller: str) -> Any:
    """Import ``matplotlib.pyplot``; if it is missing, the error names ``caller``."""
    with extra("plot", f"{caller} needs matplotlib"):
        import matplotlib.pyplot as plt
    return plt


def panels(caller: str, ax: Any, n_panels: int, n_names: int = 0) -> Array:
    """An array (n_panels,) of axes: new ones, the given ones, or new ones inside a given one.

    New ones are high enough for ``n_names`` names below each other.
    """
    plt = pyplot(caller)
    n_columns = min(n_panels, COLUMNS)
    n_rows = -(-n_panels // n_columns)
    if ax is None:
        size = (3.6 * n_columns, max(3.2, 0.7 + 0.2 * n_names) * n_rows)
        _, grid = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained")
        for unused in grid.ravel()[n_panels:]:
            unused.remove()
        return np.asarray(grid.ravel()[:n_panels])
    given = np.asarray(ax, dtype=object).ravel()
    if len(given) == n_panels:
        return given
    box = given[0].get_subplotspec() if len(given) == 1 else None
    if box is None:
        raise not_allowed(
            f"ax with {len(given)} axes is not allowed: give {n_panels} axes, one for each panel, "
            "or a single axes made by subplots, which the panels share."
        )
    given[0].set_axis_off()
    cells = box.subgridspec(n_rows, n_columns)
    axes = np.empty(n_panels, dtype=object)
    for i in range(n_panels):
        axes[i] = given[0].figure.add_subplot(cells[i // n_columns, i % n_columns])
    return axes


class Display:
    """What the displays share: the axes, which ``plot`` makes and ``_draw`` of a display fills.

    Methods that compute a display call ``pyplot`` first: an error of a missing extra comes before
    any work.
    """

    axes_: Array
    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Plot the display.

        Parameters
        ----------
        ax : Axes, sequence of Axes or None, default=None
            Axes to draw on. For several panels, one axes per panel, or a single axes that the
            panels share. None: a new figure.
        **kwargs
            Options of what is drawn, as in the method that computes the display.

        Returns
        -------
        self
        """
        self._make_axes(ax, self._n_panels())
        self._draw(**kwargs)
        return self

    def _make_axes(self, ax: Any, n_panels: int = 1) -> None:
        self.axes_ = panels(f"{type(self).__name__}.plot", ax, n_panels, self._n_names())
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure

    def _n_panels(self) -> int:
        return 1

    def _n_names(self) -> int:
        """Number of names below each other in a panel."""
        return 0

    def _draw(self, **kwargs: Any) -> None:
        """Draw on ``axes_``, with the options of the user."""
        raise NotImplementedError


def intervals(axes: Any, names: Any, lower: Array, upper: Array) -> None:
    """Horizontal intervals with their names, the first one at the top."""
    at = np.arange(len(names))
    axes.hlines(at, lower, upper, color="black", linewidth=1)
    axes.set(yticks=at, yticklabels=names)
    axes.invert_yaxis()


def several(name: str, values: Any, choices: Iterable[str]) -> list[str]:
    """A list of one or more strings, after checking that all of them are among the choices."""
    listed, choices = [values] if isinstance(values, str) else list(values), list(choices)
    return [check_choice(name, value, choices) for value in listed or [None]]


def one_output(estimator: Any, X: Any, y: Any) -> tuple[Any, Any, Array]:
    """The regressor at the end of a pipeline or search, its rows, and their targets (n_samples,).

    It must predict one output.
    """
    last, X = last_step(estimator, X)
    if not hasattr(last, "sample_y") or last._n_targets != 1:
        raise not_allowed(
            f"estimator={last!r} is not allowed: give a fitted regressor with one output."
        )
    targets = np.asarray(last._validate_targets(y, np.shape(X)[0]))
    if (targets != targets[:, :1]).any():
        raise not_allowed(
            "y with bounds is not allowed in a figure: give the rows with known times.",
            "bounds-of-times-are-not-allowed",
        )
    return last, X, targets[:, 0]


def check_one_target(estimator: Any, what: str, remedy: str) -> None:
    """Raise ``ValueError`` if a fitted classifier has several targets."""
    if hasattr(estimator, "_classes") and estimator._classes.several:
        raise not_allowed(
            f"{what} is not allowed with {estimator._classes.n_targets} targets: {remedy}"
        )
