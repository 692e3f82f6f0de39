"""Code of all classifiers that starts from predicted probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

Array = NDArray[Any]


class ProbabilityClassifier(ClassifierMixin):
    """Mixin of classifiers with ``predict_proba``."""

    classes_: Array

    def predict_proba(self, X: Any) -> Array:
        """Predict class probabilities, of shape (n_samples, n_classes)."""
        raise NotImplementedError

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
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]
