"""Error and log likelihood of the averaged prediction as draws accumulate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._exceptions import not_allowed
from .._pipelines import last_step, name_of
from ._common import Display, pyplot, several
from ._curves import Curves, kind_of_curves

#: label of the axis for each metric
LABELS = {
    "error": "error",
    "accuracy": "accuracy",
    "rmse": "RMSE (units of y)",
    "nll": "NLL (nats per row)",
}


@dataclass(eq=False, repr=False)
class LearningCurveDisplay(Display):
    r"""Quality of the averaged prediction as a function of the number of averaged draws.

    At t draws per chain, the prediction is the (weighted) average over the first t draws of every
    chain, in the order of their drawing. If the curve still falls at its end, more draws
    will help. If the curves of single chains end above the curve of all chains, as is usual for
    networks, averaging over several modes helps.

    Create a display with :meth:`from_estimator` from a fitted estimator, or with
    :meth:`from_callback` from a :class:`LearningCurve` that has recorded a fit.

    Parameters
    ----------
    draws_per_chain : array of shape (n_draws,)
        Numbers of draws per chain: 1, 2, ..., n_draws.
    values : dict of str to array of shape (n_draws,)
        Scores for each metric: "error", "accuracy" and "nll" for classifiers, "rmse" and "nll" for
        regressors.
    chain_values : dict of str to array of shape (n_chains, n_draws) or None, default=None
        Scores of each single chain.
    draw_values : dict of str to array of shape (n_chains, n_draws) or None, default=None
        Scores of each single draw.
    name : str or None, default=None
        Label of the curve.

    Attributes
    ----------
    axes_ : array of shape (n_metrics,) of matplotlib Axes
        One axes per metric.
    ax_ : matplotlib Axes
        First of these axes.
    figure_ : matplotlib Figure
        Figure that contains the axes.
    lines_ : list of matplotlib Line2D
        Curves of all chains together, one per metric.
    chain_lines_ : list of matplotlib Line2D
        Curves of single chains, if plotted.
    draw_lines_ : list of matplotlib Line2D
        Points of single draws, if plotted, one object per metric.

    See Also
    --------
    LearningCurve : Records the same curves during the fit.
    sklearn.model_selection.LearningCurveDisplay : Score for increasing numbers of training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import LearningCurveDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X[::2], y[::2])
    >>> display = LearningCurveDisplay.from_estimator(clf, X[1::2], y[1::2], per_chain=True)
    >>> bool(display.values["accuracy"][-1] == clf.score(X[1::2], y[1::2]))
    True
    """

    draws_per_chain: Array
    values: Mapping[str, Array]
    _: KW_ONLY
    chain_values: Mapping[str, Array] | None = None
    draw_values: Mapping[str, Array] | None = None
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        metric: Any = None,
        per_chain: bool = False,
        per_draw: bool = False,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Compute and plot the curves of a fitted estimator.

        In addition to the curves, the computation needs memory for one running sum per chain, of
        shape (n_chains, n_samples, n_outputs) in total, and for one block of predictions.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier or regressor of this package, or a pipeline or search that ends in
            one.
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows, preferably not used in ``fit``.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Labels or targets of the rows. Bounds of times have the NLL only.
        metric : str, sequence of str or None, default=None
            Metrics to plot, with one panel each: "error" or "accuracy" (classifiers), "rmse"
            (regressors; in the units of y, averaged over outputs), or "nll", the negative log
            likelihood in nats per row. None: the NLL, and the error or the RMSE.
        per_chain : bool, default=False
            If True, also plot one thin line per chain.
        per_draw : bool, default=False
            If True, also plot a point for every single draw.
        name : str or None, default=None
            Label of the curve. None: the class name of the estimator.
        ax : Axes, sequence of Axes or None, default=None
            One axes per panel, or a single axes that the panels share. None: a new figure.
        **kwargs
            Options of the main lines, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        LearningCurveDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        label = name_of(estimator) if name is None else name
        last, X = last_step(estimator, X)
        kind = kind_of_curves(last)
        _metrics(metric, kind.metrics)
        curves = kind(last, X, y)
        curves.extend(last)
        display = cls._of(curves, label)
        return display.plot(ax, metric=metric, per_chain=per_chain, per_draw=per_draw, **kwargs)

    @classmethod
    def from_callback(
        cls,
        callback: Any,
        *,
        metric: Any = None,
        per_chain: bool = False,
        per_draw: bool = False,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the curves that a callback has recorded, which is possible even during the fit.

        Parameters
        ----------
        callback : LearningCurve
            Callback that has recorded at least one draw.
        metric, per_chain, per_draw, name, ax, **kwargs
            As for :meth:`from_estimator`.

        Returns
        -------
        LearningCurveDisplay
        """
        pyplot(f"{cls.__name__}.from_callback")
        curves = getattr(callback, "curves", None)
        if curves is None or not curves.seen.n_draws:
            raise not_allowed(
                f"callback={callback!r} is not allowed: give a LearningCurve that has recorded "
                "draws."
            )
        display = cls._of(curves, callback.estimator_name if name is None else name)
        return display.plot(ax, metric=metric, per_chain=per_chain, per_draw=per_draw, **kwargs)

    @classmethod
    def _of(cls, curves: Curves, name: str) -> Self:
        values, of_chains, of_draws = curves.scores()
        steps = np.arange(1, curves.seen.n_draws + 1)
        return cls(steps, values, chain_values=of_chains, draw_values=of_draws, name=name)

    def plot(
        self,
        ax: Any = None,
        *,
        metric: Any = None,
        per_chain: bool = False,
        per_draw: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the curves.

        Parameters
        ----------
        ax, metric, per_chain, per_draw, name, **kwargs
            As for :meth:`from_estimator`, but with the ``name`` of the display as default.

        Returns
        -------
        self
        """
        names = _metrics(metric, tuple(self.values))
        self._make_axes(ax, len(names))
        self.lines_, self.chain_lines_, self.draw_lines_ = [], [], []
        label = self.name if name is None else name
        for metric_name, axes in zip(names, self.axes_, strict=True):
            line = {"label": label, "zorder": 3} | kwargs
            self.lines_ += axes.plot(self.draws_per_chain, self.values[metric_name], **line)
            if per_chain and self.chain_values is not None:
                for c, values in enumerate(self.chain_values[metric_name]):
                    self.chain_lines_ += axes.plot(
                        self.draws_per_chain,
                        values,
                        color=self.lines_[-1].get_color(),
                        linewidth=0.7,
                        alpha=0.5,
                        label=None if c else "single chains",
                    )
            if per_draw and self.draw_values is not None:
                values = self.draw_values[metric_name]
                self.draw_lines_ += axes.plot(
                    np.tile(self.draws_per_chain, len(values)),
                    values.ravel(),
                    ".",
                    color=self.lines_[-1].get_color(),
                    markersize=2,
                    alpha=0.5,
                    label="single draws",
                )
            axes.set(xlabel="draws per chain", ylabel=LABELS.get(metric_name, metric_name))
            if line["label"] is not None or per_chain or per_draw:
                axes.legend()
        return self


def _metrics(metric: Any, known: tuple[str, ...]) -> list[str]:
    """The metrics to plot; by default those that fall as predictions improve."""
    if metric is None:
        return [name for name in known if name != "accuracy"]
    return several("metric", metric, known)
