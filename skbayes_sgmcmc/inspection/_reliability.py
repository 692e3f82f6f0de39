"""Confidence against accuracy."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._pipelines import name_of
from .._validation import check_int
from ._common import class_codes, one_axes, pyplot

Array = NDArray[Any]

#: how far a row of probabilities may sum from 1
SUM_TOLERANCE = 1e-4


class ReliabilityDisplay:
    """Reliability diagram: the accuracy of predictions that are so confident.

    The confidence of a row is the largest of its class probabilities. Rows are put into bins of
    equal width by confidence; in each, a calibrated model's accuracy is its mean confidence. Grey
    bars are each bin's share of all rows: the accuracy of a bin of few rows is mostly chance.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one.

    Parameters
    ----------
    confidence : array of shape (n_bins,)
        Mean confidence of the rows in each bin; NaN without rows.
    accuracy : array of shape (n_bins,)
        Share of them whose most probable class is true; NaN without rows.
    counts : array of shape (n_bins,)
        Number of rows.
    name : str or None, default=None
        Label of the curve.

    Attributes
    ----------
    expected_calibration_error : float
        See :func:`expected_calibration_error`.
    line_ : matplotlib Line2D
        Accuracy against confidence.
    bars_ : matplotlib BarContainer
        Shares of the rows.
    ax_ : matplotlib Axes
        Axes of the diagram.
    figure_ : matplotlib Figure
        Their figure.

    See Also
    --------
    sklearn.calibration.CalibrationDisplay : The same of one class against the rest.

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

    def __init__(
        self, confidence: Array, accuracy: Array, counts: Array, *, name: str | None = None
    ):
        self.confidence = confidence
        self.accuracy = accuracy
        self.counts = counts
        self.name = name
        gaps = np.where(counts > 0, np.abs(confidence - accuracy), 0.0)
        self.expected_calibration_error = float(np.sum(counts * gaps) / np.sum(counts))

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
        """Draw the diagram of a fitted classifier.

        Parameters
        ----------
        estimator : estimator
            Any fitted classifier, pipeline or search with ``predict_proba``.
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows that the fit has not seen.
        y : array of shape (n_samples,)
            Their labels.
        n_bins : int, default=15
            Bins of equal width between 0 and 1.
        name : str or None, default=None
            Label of the curve; None: the class of the estimator.
        ax : Axes or None, default=None
            Where to draw; None: a new figure.
        **kwargs
            For the line, as in :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        NotFittedError
            The estimator is not fitted.
        ValueError
            n_bins is no positive whole number, the estimator has no probabilities, or y has labels
            that the fit has not seen.
        ImportError
            Matplotlib is not installed.
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        check_int("n_bins", n_bins)
        check_is_fitted(estimator)
        if not hasattr(estimator, "predict_proba"):
            raise ValueError(
                f"estimator={estimator!r} is not allowed: give a classifier with predict_proba."
            )
        return cls.from_predictions(
            y,
            estimator.predict_proba(X),
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
        """Draw the diagram of predicted probabilities.

        Parameters
        ----------
        y_true : array of shape (n_samples,)
            Labels.
        proba : array of shape (n_samples, n_classes) or (n_samples,)
            Probabilities of the classes, or of the second of two.
        n_bins : int, default=15
            Bins of equal width between 0 and 1.
        classes : array of shape (n_classes,) or None, default=None
            The sorted labels that the columns of proba stand for; None: those in y_true.
        name : str or None, default=None
            Label of the curve.
        ax : Axes or None, default=None
            Where to draw; None: a new figure.
        **kwargs
            For the line, as in :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        ValueError
            n_bins is no positive whole number, the shapes do not fit, proba are no probabilities,
            or y_true has labels that are not in classes.
        ImportError
            Matplotlib is not installed.
        """
        pyplot(f"{cls.__name__}.from_predictions")  # before any work
        confidence, accuracy, counts = _bins(y_true, proba, n_bins, classes)
        return cls(confidence, accuracy, counts, name=name).plot(ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the diagram.

        Parameters
        ----------
        ax : Axes or None, default=None
            Where to draw; None: a new figure. On axes that have a diagram already, the shares of
            rows of both are drawn over each other.
        name : str or None, default=None
            Label of the curve; None: the one given before.
        **kwargs
            For the line, as in :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        self
        """
        self.ax_ = one_axes(f"{type(self).__name__}.plot", ax)
        self.figure_ = self.ax_.figure
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
        self.ax_.legend(loc="upper left", fontsize="small")
        return self


def expected_calibration_error(
    y_true: Any, proba: Any, n_bins: int = 15, classes: Any = None
) -> float:
    r"""Distance between confidence and accuracy, averaged over the rows.

    .. math::
        \mathrm{ECE} = \sum_m \frac{n_m}{n} |\mathrm{acc}_m - \mathrm{conf}_m|

    over bins m of confidence, ((m - 1) / M, m / M].

    Parameters
    ----------
    y_true : array of shape (n_samples,)
        Labels.
    proba : array of shape (n_samples, n_classes) or (n_samples,)
        Probabilities of the classes, or of the second of two.
    n_bins : int, default=15
        Number M of bins of equal width.
    classes : array of shape (n_classes,) or None, default=None
        The sorted labels that the columns of proba stand for; None: those in y_true.

    Returns
    -------
    float
        Between 0 and 1. Chance alone makes it positive: by about
        :math:`\sum_m \sqrt{2 n_m c_m (1 - c_m) / \pi} / n` for calibrated predictions of
        confidences c_m, so compare models on the same rows and bins.

    Raises
    ------
    ValueError
        n_bins is no positive whole number, the shapes do not fit, proba are no probabilities, or
        y_true has labels that are not in classes.

    References
    ----------
    Naeini, Cooper & Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian
    binning, AAAI.

    Examples
    --------
    Sure at 90%, right three times of four:

    >>> from skbayes_sgmcmc.inspection import expected_calibration_error
    >>> expected_calibration_error([1, 1, 1, 0], [0.9, 0.9, 0.9, 0.9])
    0.15
    """
    confidence, accuracy, counts = _bins(y_true, proba, n_bins, classes)
    return ReliabilityDisplay(confidence, accuracy, counts).expected_calibration_error


def _bins(y_true: Any, proba: Any, n_bins: int, classes: Any) -> tuple[Array, Array, Array]:
    """Mean confidence, accuracy and number of rows of each bin."""
    check_int("n_bins", n_bins)
    y, p = column_or_1d(y_true), check_array(proba, ensure_2d=False, input_name="proba")
    if p.ndim == 1:
        p = np.column_stack([1.0 - p, p])
    known = np.unique(y) if classes is None else np.asarray(classes)
    check_consistent_length(y, p)
    if p.ndim != 2 or p.shape[1] != len(known):
        raise ValueError(
            f"proba of shape {np.shape(proba)} is not allowed for the classes {known.tolist()}: "
            "give one column a class, and classes if some are not in y_true."
        )
    if not np.array_equal(known, np.unique(known)):
        raise ValueError(f"classes={known.tolist()} is not allowed: give them sorted, each once.")
    if p.min() < -SUM_TOLERANCE or np.abs(p.sum(axis=1) - 1.0).max() > SUM_TOLERANCE:
        raise ValueError(
            "proba is not allowed: give numbers between 0 and 1 whose rows sum to 1 "
            f"(they lie in [{p.min():g}, {p.max():g}], the sums in "
            f"[{p.sum(axis=1).min():g}, {p.sum(axis=1).max():g}])."
        )
    confidence, right = p.max(axis=1), p.argmax(axis=1) == class_codes(y, known)
    inner = np.arange(1, n_bins) / n_bins
    place = np.searchsorted(inner, confidence)  # an edge belongs to the bin below it
    counts = np.bincount(place, minlength=n_bins)
    rows = np.where(counts > 0, counts, np.nan)
    return (
        np.bincount(place, confidence, minlength=n_bins) / rows,
        np.bincount(place, right, minlength=n_bins) / rows,
        counts,
    )
