"""Code that transformers share, which have rows and no targets: topic models, and ICA."""

from __future__ import annotations

from operator import methodcaller
from typing import Any, Self

from sklearn.utils.metaestimators import available_if

from .._sklearn import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from ._base import SGMCMCEstimator


class BayesianTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SGMCMCEstimator):
    """Base class of transformers: the columns that they make are their components."""

    components_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sample the posterior of the parameters.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows. Those of topic models are documents, with nonnegative counts of words in the
            columns, and may be a CSR matrix.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A parameter or the data are invalid, for example if the rank of X is lower than the
            number of components of :class:`BayesianICA`.
        SamplingError
            Every chain diverged. The estimator then stays as it was before the call.
        """
        self._fit(X)
        return self

    def _takes_streams(self) -> bool:
        """Whether ``partial_fit`` is available; if not, raise an ``AttributeError``."""
        return True

    @available_if(methodcaller("_takes_streams"))
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Continue sampling with new rows of a stream, for one pass over these rows.

        The target is the posterior given ``total_samples`` rows or, if that is None, given the rows
        seen so far. The rows are not stored. The newest ``n_draws`` draws of each chain are kept.
        The vocabulary of topic models, and the mean and the whitening of :class:`BayesianICA`, are
        those of the rows of the first call. The first call after ``fit`` starts a new stream,
        unless ``warm_start=True``.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            New rows, in a form that ``fit`` takes.
        y : None
            Ignored.

        Returns
        -------
        self
        """
        self._fit(X, stream=True)
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
