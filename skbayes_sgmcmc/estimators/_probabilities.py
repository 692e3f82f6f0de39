"""Code of all classifiers that starts from predicted probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._exceptions import not_allowed
from .._labels import codes_of, label_array
from .._pipelines import called_from
from .._sklearn import ClassifierMixin
from .._validation import check_consistent_length, check_sample_weight, column_or_1d

Array = NDArray[Any]

#: where scorers, displays and calibrators of scikit-learn ask for predictions
RESPONSES = "sklearn.utils._response"


class ProbabilityClassifier(ClassifierMixin):
    """Mixin of classifiers with ``predict_proba``."""

    classes_: Array

    def _probabilities(self, X: Any) -> Array:
        """Class probabilities of rows that are not checked yet."""
        raise NotImplementedError

    def predict_proba(self, X: Any) -> Array:
        """Predict class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples, n_classes)
            Columns are in the order of ``classes_``.
        """
        proba = self._probabilities(X)
        if called_from(RESPONSES) and not np.array_equal(self.classes_, np.unique(self.classes_)):
            raise not_allowed(
                f"y with the ordered categories {self.classes_.tolist()} is not allowed in scorers "
                "of probabilities and other tools of scikit-learn, which take the columns of "
                "predict_proba as sorted by label. Give the codes of the categories, y.cat.codes "
                "of pandas.",
                "classes-are-ordered-by-the-alphabet",
            )
        return proba

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of :meth:`predict_proba`, of shape (n_samples, n_classes)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> Array:
        """Log odds of the predicted probabilities, which rank the rows like the probabilities.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            With two classes, the log odds of the second class; otherwise, the log probabilities.
        """
        log_p = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of every row; an array of shape (n_samples,)."""
        most_probable = self._probabilities(X).argmax(axis=1)
        return self.classes_[most_probable]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy: the share of rows with the right label.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Their labels. A label that ``fit`` has not seen is never right.
        sample_weight : array of shape (n_samples,) or None, default=None
            Weights of the rows.

        Returns
        -------
        float
        """
        codes = codes_of(column_or_1d(label_array("y", y)), self.classes_)
        predicted = codes_of(self.predict(X), self.classes_)
        check_consistent_length(predicted, codes)
        weight = check_sample_weight(sample_weight, len(codes))
        return float(np.average(codes == predicted, weights=weight))
