"""What the displays share: axes to draw on, and checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._exceptions import explained, not_allowed
from .._validation import check_choice

Array = NDArray[Any]

#: maximal number of panels side by side
COLUMNS = 4
#: size of one panel in inches
WIDTH, HEIGHT = 3.6, 3.2


def pyplot(caller: str) -> Any:
    """Import ``matplotlib.pyplot``; if it is missing, the error names ``caller``."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise explained(
            ImportError(f"{caller} needs matplotlib: install the extra 'skbayes-sgmcmc[plot]'."),
            "an-extra-is-missing",
        ) from error
    return plt


def panels(caller: str, ax: Any, n_panels: int) -> Array:
    """An array (n_panels,) of axes: new ones, the given ones, or new ones inside a given one."""
    plt = pyplot(caller)
    n_columns = min(n_panels, COLUMNS)
    n_rows = -(-n_panels // n_columns)
    if ax is None:
        size = (WIDTH * n_columns, HEIGHT * n_rows)
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
            "or a single axes made by subplots, whose area the panels share."
        )
    given[0].set_axis_off()
    cells = box.subgridspec(n_rows, n_columns)
    axes = np.empty(n_panels, dtype=object)
    for i in range(n_panels):
        axes[i] = given[0].figure.add_subplot(cells[i // n_columns, i % n_columns])
    return axes


def one_axes(caller: str, ax: Any) -> Any:
    """The given axes, or new ones."""
    return panels(caller, ax, 1)[0]


def several(name: str, values: Any, choices: Iterable[str]) -> list[str]:
    """A list of one or more strings, after checking that all of them are among the choices."""
    listed, choices = [values] if isinstance(values, str) else list(values), list(choices)
    return [check_choice(name, value, choices) for value in listed or [None]]


def one_output(estimator: Any, X: Any, y: Any) -> Array:
    """The targets (n_samples,) of rows, after checking that a regressor predicts one output."""
    if not hasattr(estimator, "sample_y") or estimator._n_targets != 1:
        raise not_allowed(
            f"estimator={estimator!r} is not allowed: give a fitted regressor with one output."
        )
    return np.asarray(estimator._validate_targets(y, np.shape(X)[0]))[:, 0]
