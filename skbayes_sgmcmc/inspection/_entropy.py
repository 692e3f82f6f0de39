"""Predictive entropy of rows like those of the fit, and of other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.metrics import roc_auc_score

from .._arrays import Array
from .._draws import prediction
from .._exceptions import not_allowed
from .._pipelines import last_step
from .._validation import check_array, check_choice, check_consistent_length, check_int
from ._common import Display, check_one_target, pyplot

#: label of the axis for each kind of entropy
KINDS = {
    "total": "predictive entropy (nats)",
    "aleatoric": "aleatoric entropy (nats)",
    "epistemic": "epistemic entropy (nats)",
}
#: names of the two sets, unless they are others
DISTRIBUTIONS = ("in distribution", "out of distribution")


@dataclass(eq=False, repr=False)
class EntropyHistogramDisplay(Display):
    """Histograms of predictive entropy in and out of distribution.

    A model that recognises unfamiliar rows predicts higher entropies for them. The AUROC measures
    this: 1 means that entropy separates the two sets of rows completely, and 0.5 that it does not
    separate them at all.

    Create a display with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    entropy : array of shape (n_samples,)
        Entropies of rows like those of the fit, in nats.
    entropy_other : array of shape (n_other,)
        Entropies of the other rows, in nats.
    kind : {"total", "aleatoric", "epistemic"}, default="total"
        Kind of the entropies.
    labels : pair of str, default=("in distribution", "out of distribution")
        Names of the two sets.

    Attributes
    ----------
    auroc : float
        Area under the ROC curve of separating the sets by entropy: the probability that a row of
        the second set has a higher entropy than a row of the first set, where ties count half.
    counts_ : pair of arrays of shape (n_bins,)
        Number of rows of each set in every bin.
    edges_ : array of shape (n_bins + 1,)
        Edges of the bins, in nats.
    ax_ : matplotlib Axes
        Axes of the histograms.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    See Also
    --------
    skbayes_sgmcmc.BayesianMLPClassifier.predict_uncertainty : Computes the entropies.

    References
    ----------
    Lakshminarayanan, Pritzel & Blundell (2017), Simple and scalable predictive uncertainty
    estimation using deep ensembles, NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayes_sgmcmc import BayesianLogisticRegression
    >>> from skbayes_sgmcmc.inspection import EntropyHistogramDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = BayesianLogisticRegression(random_state=0).fit(X[y < 2], y[y < 2])
    >>> display = EntropyHistogramDisplay.from_estimator(
    ...     clf, X[y < 2], X[y < 2][:, ::-1], labels=("irises", "columns in reverse")
    ... )
    >>> display.auroc > 0.9
    True
    """

    entropy: Array
    entropy_other: Array
    _: KW_ONLY
    kind: str = "total"
    labels: Sequence[str] = DISTRIBUTIONS

    def __post_init__(self) -> None:
        both = np.concatenate([self.entropy, self.entropy_other])
        other = np.repeat([0, 1], [len(self.entropy), len(self.entropy_other)])
        self.auroc = float(roc_auc_score(other, both))

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        X_other: Any = None,
        *,
        y: Any = None,
        kind: str = "total",
        labels: Sequence[str] | None = None,
        bins: int = 30,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the histograms of a fitted classifier.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier of this package, or a pipeline or search that ends in one.
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows like those of the fit, preferably not used in ``fit``.
        X_other : array or CSR matrix of shape (n_other, n_features), or None, default=None
            Rows of another kind.
        y : array of shape (n_samples,) or None, default=None
            Labels of X, in place of ``X_other``. The rows of X are then divided into those with a
            correct prediction (the first set) and those with a wrong one (the second).
        kind : {"total", "aleatoric", "epistemic"}, default="total"
            "total": entropy of the averaged probabilities. "aleatoric": the part that would remain
            if the parameters were known. "epistemic": the difference, which is due to disagreement
            between draws.
        labels : pair of str or None, default=None
            Names of the two sets. None: "in distribution" and "out of distribution", or, with
            ``y``, "right" and "wrong".
        bins : int, default=30
            Number of bins of equal width.
        ax : Axes or None, default=None
            Axes to draw on. None: a new figure.
        **kwargs
            Options of both histograms, passed to :meth:`matplotlib.axes.Axes.stairs`.

        Returns
        -------
        EntropyHistogramDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        check_choice("kind", kind, KINDS)
        check_int("bins", bins)
        if (X_other is None) == (y is None):
            raise not_allowed("X_other and y are not allowed together, nor neither: give one.")
        if getattr(X_other, "ndim", 2) == 1:
            raise not_allowed("X_other of one dimension is not allowed: give labels as y=.")
        last, X, X_other = last_step(estimator, X, X_other)
        if not hasattr(last, "predict_proba"):
            raise not_allowed(f"estimator={last!r} is not allowed: give a classifier.")
        check_one_target(
            last,
            f"{cls.__name__}.from_estimator",
            f"give columns of clf.predict_uncertainty(X)[{kind!r}] to {cls.__name__}(entropy, "
            f"entropy_other, kind={kind!r}).plot().",
        )
        entropy = last.predict_uncertainty(X)[kind]
        if y is None:
            sets = entropy, last.predict_uncertainty(X_other)[kind]
            names = DISTRIBUTIONS
        else:
            wrong = _wrong(last, X, y)
            sets, names = (entropy[~wrong], entropy[wrong]), ("right", "wrong")
        display = cls(*sets, kind=kind, labels=names if labels is None else labels)
        return display.plot(ax, bins=bins, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        proba: Any,
        proba_other: Any,
        *,
        labels: Sequence[str] = DISTRIBUTIONS,
        bins: int = 30,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the histograms of total entropy for the class probabilities of any model.

        Parameters
        ----------
        proba : array of shape (n_samples, n_classes)
            Probabilities for rows like those of the fit.
        proba_other : array of shape (n_other, n_classes)
            Probabilities for rows of another kind.
        labels, bins, ax, **kwargs
            As for :meth:`from_estimator`, for rows of two kinds.

        Returns
        -------
        EntropyHistogramDisplay
        """
        pyplot(f"{cls.__name__}.from_predictions")  # before any work
        check_int("bins", bins)
        proba = check_array(proba, input_name="proba")
        proba_other = check_array(proba_other, input_name="proba_other")
        if proba.shape[1] != proba_other.shape[1]:
            raise not_allowed(
                f"proba_other of {proba_other.shape[1]} classes is not allowed: proba has "
                f"{proba.shape[1]}; give the same number for both."
            )
        entropies = [prediction.entropy(p) for p in (proba, proba_other)]
        return cls(*entropies, labels=labels).plot(ax, bins=bins, **kwargs)

    def plot(self, ax: Any = None, *, bins: int = 30, **kwargs: Any) -> Self:
        """Plot the histograms, each with an area of 1.

        Parameters
        ----------
        ax, bins, **kwargs
            As for :meth:`from_estimator`. Bins lie between 0 and the largest entropy.

        Returns
        -------
        self
        """
        check_int("bins", bins)
        self._make_axes(ax)
        both = (np.asarray(self.entropy), np.asarray(self.entropy_other))
        largest = max(values.max() for values in both)
        self.edges_ = np.linspace(0.0, largest if largest > 0.0 else 1.0, bins + 1)
        counts = [np.histogram(values, self.edges_)[0] for values in both]
        self.counts_ = (counts[0], counts[1])
        for label, rows in zip(self.labels, self.counts_, strict=True):
            density = rows / (rows.sum() * np.diff(self.edges_))
            style = {"fill": True, "alpha": 0.5, "label": label} | kwargs
            self.ax_.stairs(density, self.edges_, **style)
        self.ax_.set(xlabel=KINDS[self.kind], ylabel="density")
        self.ax_.legend(title=f"AUROC {self.auroc:.3f}")
        return self


def _wrong(fitted: Any, X: Any, y: Any) -> Array:
    """Whether the predicted label of each row is wrong, which some are and some are not."""
    predicted = fitted.predict(X)
    check_consistent_length(predicted, y)
    wrong: Array = fitted._known_codes(predicted) != fitted._known_codes(y)
    if wrong.all() or not wrong.any():
        raise not_allowed(
            f"y is not allowed: {wrong.sum()} of {len(wrong)} predicted labels are wrong, and a "
            "histogram of either kind needs some. Give more rows."
        )
    return wrong
