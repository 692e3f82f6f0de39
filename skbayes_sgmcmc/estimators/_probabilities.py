"""Code of all classifiers that starts from predicted probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import Array
from .._exceptions import not_allowed
from .._pipelines import called_from
from .._sklearn import ClassifierMixin
from .._validation import check_consistent_length, check_is_fitted, check_sample_weight
from ._classes import Classes, logs

#: where scorers, displays and calibrators of scikit-learn ask for predictions
RESPONSES = "sklearn.utils._response"


class ProbabilityClassifier(ClassifierMixin):
    """Mixin of classifiers with ``predict_proba``."""

    #: one array, or a list with one for each target
    classes_: Any
    #: whether each column of y is 0 or 1; ``classes_`` are then the numbers of the columns
    _multilabel = False

    @property
    def _classes(self) -> Classes:
        check_is_fitted(self, "classes_")
        return Classes.of(self)

    def _known_codes(self, y: Any) -> Array:
        """Places of the labels y among the classes; others are refused."""
        labels, remedy = self._classes.labels(y), "give labels of these classes only."
        return self._classes.known_codes(labels, "classes_", remedy)

    def _probabilities(self, X: Any) -> Array:
        """Probabilities (rows, outputs) of all classes, for rows that are not checked yet."""
        raise NotImplementedError

    def _all_probabilities(self, X: Any) -> Array:
        """The same for users; tools of scikit-learn get none in an order that they do not know."""
        proba = self._probabilities(X)
        in_order = all(np.array_equal(known, np.unique(known)) for known in self._classes.of_each)
        if called_from(RESPONSES) and not in_order:
            raise not_allowed(
                f"y with the ordered categories {self.classes_.tolist()} is not allowed in scorers "
                "of probabilities and other tools of scikit-learn, which take the columns of "
                "predict_proba as sorted by label. Give the codes of the categories, y.cat.codes "
                "of pandas.",
                "classes-are-ordered-by-the-alphabet",
            )
        return proba

    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples, n_classes)
            Columns are in the order of ``classes_``. With labels of 0 and 1 in each column of y,
            an array of shape (n_samples, n_targets) with the probabilities of 1; with other labels
            in several columns, a list with one array for each of them.
        """
        return self._classes.shaped(self._all_probabilities(X))

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithm of :meth:`predict_proba`, of the same shape."""
        proba = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return [np.log(p) for p in proba] if isinstance(proba, list) else np.log(proba)

    def decision_function(self, X: Any) -> Any:
        """Log odds of the predicted probabilities, which rank the rows like the probabilities.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            With two classes, the log odds of the second class; otherwise, the log probabilities.
            With labels of 0 and 1 in each column of y, the log odds of 1, (n_samples, n_targets);
            with other labels in several columns, a list with one array for each of them.
        """

        def scores(log_p: Array) -> Array:
            return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

        log_p = logs(self._all_probabilities(X))
        found = [scores(part) for part in self._classes.parts(log_p)]
        if not self._classes.several:
            return found[0]
        return np.stack(found, axis=1) if self._multilabel else found

    def predict(self, X: Any) -> Array:
        """Predict the most probable class of every row, in the shape of y."""
        return self._classes.given(self._classes.most_probable(self._probabilities(X)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy: the share of rows with the right label, or all right labels.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,) or (n_samples, n_targets)
            Their labels. A label that ``fit`` has not seen is never right.
        sample_weight : array of shape (n_samples,) or None, default=None
            Weights of the rows.

        Returns
        -------
        float
        """
        codes = self._classes.codes(self._classes.labels(y))
        predicted = self._classes.codes(self.predict(X))
        check_consistent_length(predicted, codes)
        weight = check_sample_weight(sample_weight, len(codes))
        right = (codes == predicted).reshape(len(codes), -1).all(axis=1)
        return float(np.average(right, weights=weight))
