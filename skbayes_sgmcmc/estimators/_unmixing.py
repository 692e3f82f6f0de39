"""What a fitted unmixing matrix does: sources of rows, rows of sources, and names."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import Array
from .._exceptions import not_allowed
from .._sklearn import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from .._validation import check_array, check_is_fitted, check_predictions
from ._base import SGMCMCEstimator


class Unmixing(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SGMCMCEstimator):
    """Base class of estimators with ``components_``, ``mixing_`` and ``mean_``."""

    components_: Array
    mixing_: Array
    mean_: Array
    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def transform(self, X: Any) -> Array:
        """Compute the sources of the rows, averaged over the posterior.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples, n_components)
        """
        X = self._validate_x(X)
        with np.errstate(all="ignore"):  # what is not finite is refused
            sources = ((X - self.mean_) @ self.components_.T).astype(X.dtype)
        return check_predictions(sources, X)

    def inverse_transform(self, X: Any) -> Array:
        """Compute the rows that have the given sources.

        Parameters
        ----------
        X : array of shape (n_samples, n_components)
            Sources.

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        check_is_fitted(self, "posterior_")
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != len(self.components_):
            raise not_allowed(
                f"X with {X.shape[1]} columns is not allowed: there are {len(self.components_)} "
                "components; give one column for each of them."
            )
        with np.errstate(all="ignore"):  # what is not finite is refused
            rows = (X @ self.mixing_.T + self.mean_).astype(X.dtype)
        return check_predictions(rows, X)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        names = self.get_feature_names_out().tolist()
        return {"components": {"component": names, "feature": self._columns.feature_labels}}
