"""Scikit-learn's base classes with types, which it does not have.

For a type checker, a class with a base of unknown type has every attribute. With these, a method
that does not exist is an error, and editors know what a fitted estimator offers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Self

    class BaseEstimator:
        """Parameters by name."""

        def __getstate__(self) -> dict[str, Any]: ...
        def __setstate__(self, state: dict[str, Any]) -> None: ...
        def __sklearn_tags__(self) -> Any: ...
        def __sklearn_clone__(self) -> Self: ...
        def get_metadata_routing(self) -> Any: ...
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...

    class ClassifierMixin:
        """Accuracy as the score."""

        def __sklearn_tags__(self) -> Any: ...
        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class RegressorMixin:
        """R² as the score."""

        def __sklearn_tags__(self) -> Any: ...
        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class TransformerMixin:
        """``fit_transform``, and the type of what ``transform`` returns."""

        def __sklearn_tags__(self) -> Any: ...
        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any: ...
        def set_output(self, *, transform: str | None = None) -> Self: ...

    class ClassNamePrefixFeaturesOutMixin:
        """Names of output columns."""

        def get_feature_names_out(self, input_features: Any = None) -> Any: ...

    class SelectorMixin(TransformerMixin):
        """Columns that are kept."""

        def get_feature_names_out(self, input_features: Any = None) -> Any: ...
        def get_support(self, indices: bool = False) -> Any: ...
        def inverse_transform(self, X: Any) -> Any: ...
        def transform(self, X: Any) -> Any: ...

else:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.feature_selection import SelectorMixin

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "RegressorMixin",
    "SelectorMixin",
    "TransformerMixin",
]
