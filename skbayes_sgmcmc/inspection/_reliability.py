"""Accuracy as a function of confidence."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .._arrays import Array
from .._exceptions import not_allowed
from .._labels import known_codes, label_array
from .._pipelines import name_of
from .._validation import (
    check_array,
    check_consistent_length,
    check_int,
    check_is_fitted,
    column_or_1d,
)
from ._common import Display, pyplot

#: allowed deviation of the sum of a row of probabilities from 1
SUM_TOLERANCE = 1e-4


@dataclass(eq=False, repr=False)
class ReliabilityDisplay(Display):
    """Reliability diagram: accuracy as a function of confidence.

    The confidence of a row is the largest of its class probabilities. Rows are grouped by
    confidence into bins of equal width. In each bin, the accuracy of a calibrated model equals its
    mean confidence. Grey bars show the fraction of all rows in each bin; in bins with few rows, the
    accuracy is mostly chance.

    Create a display with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    confidence : array of shape (n_bins,)
        Mean confidence of the rows in each bin; NaN for empty bins.
    accuracy : array of shape (n_bins,)
        Fraction of correctly classified rows in each bin; NaN for empty bins.
    counts : array of shape (n_bins,)
        Number of rows in each bin.
    name : str or None, default=None
        Label of the curve.

    Attributes
    ----------
    expected_calibration_error : float
        See :func:`expected_calibration_error`.
    line_ : matplotlib Line2D
        Accuracy as a function of confidence.
    bars_ : matplotlib BarContainer
        Fraction of the rows in each bin.
    ax_ : matplotlib Axes
        Axes of the diagram.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    See Also
    --------
    sklearn.calibration.CalibrationDisplay : Calibration of the probability of one class.

    References
    ----------
    Guo, Pleiss, Sun & Weinberger (2017), On calibration of modern neural networks, ICML.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import ReliabilityDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X[::2], y[::2])
    >>> display = ReliabilityDisplay.from_estimator(clf, X[1::2], y[1::2], n_bins=5)
    >>> int(display.counts.sum())
    75
    >>> display.expected_calibration_error < 0.15
    True
    """

    confidence: Array
    accuracy: Array
    counts: Array
    _: KW_ONLY
    name: str | None = None

    def __post_init__(self) -> None:
        gaps = np.where(self.counts > 0, np.abs(self.confidence - self.accuracy), 0.0)
        ece = np.sum(self.counts * gaps) / np.sum(self.counts)
        self.expected_calibration_error = float(ece)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        n_bins: int = 15,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the diagram of a fitted classifier.

        Parameters
        ----------
        estimator : estimator
            Any fitted classifier, pipeline or search with ``predict_proba``.
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows that were not used in ``fit``.
        y : array of shape (n_samples,)
            Labels of the rows.
        n_bins : int, default=15
            Number of bins of equal width between 0 and 1.
        name : str or None, default=None
            Label of the curve. None: the class name of the estimator.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of the line, passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        ReliabilityDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        check_int("n_bins", n_bins)
        check_is_fitted(estimator)
        if not hasattr(estimator, "predict_proba"):
            raise not_allowed(
                f"estimator={estimator!r} is not allowed: give a classifier with predict_proba."
            )
        proba = estimator.predict_proba(X)
        if np.ndim(y) > 1 and np.shape(y)[1:] != (1,):
            raise not_allowed(
                f"y of shape {np.shape(y)} is not allowed: the diagram has one target. Give the "
                "label and the probabilities of one to from_predictions, such as y[:, 0] and "
                "np.column_stack([1 - p[:, 0], p[:, 0]]) of multilabel ones p."
            )
        return cls.from_predictions(
            y,
            proba,
            n_bins=n_bins,
            classes=estimator.classes_,
            name=name_of(estimator) if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        proba: Any,
        *,
        n_bins: int = 15,
        classes: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the diagram of predicted probabilities.

        Parameters
        ----------
        y_true : array of shape (n_samples,)
            Labels.
        proba : array of shape (n_samples, n_classes) or (n_samples,)
            Probabilities of the classes, or of the second of two classes.
        n_bins : int, default=15
            Number of bins of equal width between 0 and 1.
        classes : array of shape (n_classes,) or None, default=None
            Labels of the columns of proba. None: the labels that occur in y_true, sorted.
        name, ax, **kwargs
            As for :meth:`from_estimator`, without a label as default.

        Returns
        -------
        ReliabilityDisplay
        """
        pyplot(f"{cls.__name__}.from_predictions")  # before any work
        confidence, accuracy, counts = _bins(y_true, proba, n_bins, classes)
        return cls(confidence, accuracy, counts, name=name).plot(ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Plot the diagram.

        Parameters
        ----------
        ax, name, **kwargs
            As for :meth:`from_estimator`, but with the ``name`` of the display as default. If the
            axes already have a diagram, the bars of both diagrams overlap.

        Returns
        -------
        self
        """
        self._make_axes(ax)
        drawn = self.ax_.get_legend_handles_labels()[1]
        if "calibrated" not in drawn:
            self.ax_.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linestyle=":", label="calibrated")
        n_bins, some = len(self.counts), self.counts > 0
        self.bars_ = self.ax_.bar(
            (np.arange(n_bins) + 0.5) / n_bins,
            self.counts / self.counts.sum(),
            width=1.0 / n_bins,
            color="0.5",
            alpha=0.3,
            label=None if "share of the rows" in drawn else "share of the rows",
        )
        label = self.name if name is None else name
        ece = f"ECE {self.expected_calibration_error:.3f}"
        line = {"marker": "o", "label": ece if label is None else f"{label}, {ece}"} | kwargs
        (self.line_,) = self.ax_.plot(self.confidence[some], self.accuracy[some], **line)
        self.ax_.set(xlabel="confidence", ylabel="accuracy", xlim=(0.0, 1.02), ylim=(0.0, 1.02))
        self.ax_.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small")
        return self


def expected_calibration_error(
    y_true: ArrayLike, proba: ArrayLike, n_bins: int = 15, classes: ArrayLike | None = None
) -> float:
    r"""Compute the mean distance between confidence and accuracy.

    .. math::
        \mathrm{ECE} = \sum_m \frac{n_m}{n} |\mathrm{acc}_m - \mathrm{conf}_m|

    The sum is over bins of confidence, ((m - 1) / M, m / M], with :math:`n_m` of all n rows in bin
    m.

    Parameters
    ----------
    y_true : array of shape (n_samples,)
        Labels.
    proba : array of shape (n_samples, n_classes) or (n_samples,)
        Probabilities of the classes, or of the second of two classes.
    n_bins : int, default=15
        Number M of bins of equal width.
    classes : array of shape (n_classes,) or None, default=None
        Labels of the columns of proba. None: the labels that occur in y_true, sorted.

    Returns
    -------
    float
        The error, between 0 and 1. It is positive even for calibrated predictions, by chance: about
        :math:`\sum_m \sqrt{2 n_m c_m (1 - c_m) / \pi} / n` for confidences c_m. Compare models only
        on the same rows and bins.

    Raises
    ------
    ValueError
        n_bins is not a positive whole number, the shapes do not match, proba has values that are
        not probabilities, or y_true has labels that are not in classes.

    References
    ----------
    Naeini, Cooper & Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian
    binning, AAAI.

    Examples
    --------
    Predictions with a confidence of 90% that are correct in three of four cases:

    >>> from skbayes_sgmcmc.inspection import expected_calibration_error
    >>> expected_calibration_error([1, 1, 1, 0], [0.9, 0.9, 0.9, 0.9])
    0.15
    """
    confidence, accuracy, counts = _bins(y_true, proba, n_bins, classes)
    return ReliabilityDisplay(confidence, accuracy, counts).expected_calibration_error


def _bins(y_true: Any, proba: Any, n_bins: int, classes: Any) -> tuple[Array, Array, Array]:
    """Mean confidence, accuracy and number of rows of each bin."""
    check_int("n_bins", n_bins)
    y, p = label_array("y_true", y_true), check_array(proba, ensure_2d=False, input_name="proba")
    if p.ndim == 1:
        p = np.column_stack([1.0 - p, p])
    known = np.unique(y) if classes is None else np.asarray(classes)
    check_consistent_length(y, p)
    if p.ndim != 2 or p.shape[1] != len(known):
        raise not_allowed(
            f"proba of shape {np.shape(proba)} is not allowed for the classes {known.tolist()}: "
            "give one column for each class, and the parameter classes if y_true lacks some."
        )
    if len(np.unique(known)) < len(known):
        raise not_allowed(f"classes={known.tolist()} is not allowed: give each class once.")
    if p.min() < -SUM_TOLERANCE or np.abs(p.sum(axis=1) - 1.0).max() > SUM_TOLERANCE:
        raise not_allowed(
            "proba is not allowed: give numbers between 0 and 1 where rows sum to 1 "
            f"(the given numbers lie in [{p.min():g}, {p.max():g}], their sums in "
            f"[{p.sum(axis=1).min():g}, {p.sum(axis=1).max():g}])."
        )
    confidence, right = p.max(axis=1), p.argmax(axis=1) == known_codes(column_or_1d(y), known)
    inner = np.arange(1, n_bins) / n_bins
    place = np.searchsorted(inner, confidence)  # an edge belongs to the bin below it
    counts = np.bincount(place, minlength=n_bins)
    rows = np.where(counts > 0, counts, np.nan)
    return (
        np.bincount(place, confidence, minlength=n_bins) / rows,
        np.bincount(place, right, minlength=n_bins) / rows,
        counts,
    )
