"""What topic models share: counts, topics put in one order, proportions, words, perplexity."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from .._validation import check_int
from ..alignment import align
from ..exceptions import warn
from ._base import SGMCMCEstimator

Array = NDArray[Any]

#: draws that predictions average, and documents whose proportions are found at once
PREDICTION_DRAWS, BLOCK_ROWS = 20, 1000


class TopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SGMCMCEstimator):
    """Base of models of word counts whose draws "components" are topics, in rows."""

    components_: Array
    doc_topic_prior_: float
    n_features_in_: int
    n_chains_: int
    n_draws_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validate_counts(self, X: Any, *, reset: bool = False, fitting: bool = False) -> Any:
        """Counts as a CSR matrix of its own, without zeros."""
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_non_negative=True,
        )
        X = sp.csr_matrix(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        if fitting and X.nnz == 0:
            raise ValueError("X has no words: every count is zero; give some documents with words.")
        if fitting and reset and (X.data != np.floor(X.data)).any():
            warn("X has counts that are not whole: they are taken as words with weights.")
        return X

    def _in_order(self, draws: dict[str, Array], previous: Any) -> dict[str, Array]:
        new, reference = draws["components"], None
        if previous is not None and self.components_.shape == new.shape[2:]:
            reference = self.components_
        return {"components": align(new, reference)}

    # predictions ----------------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def transform(self, X: Any) -> Array:
        """Expected proportions of the topics in documents.

        For each of up to 20 draws, evenly spaced, the fixed point of n_dk = sum_w x_dw r_dwk,
        r_dwk ~ (n_dk + alpha) phi_kw; its proportions (n_dk + alpha) / (n_d + K alpha) are averaged
        over the draws. Deterministic, and a document's result depends on it alone.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Counts.

        Returns
        -------
        array of shape (n_samples, n_components)
            Rows sum to one.
        """
        check_is_fitted(self, "posterior_")
        X = self._validate_counts(X)
        out = np.zeros((X.shape[0], self._n_features_out), X.dtype)
        chosen, weights = self._chosen(PREDICTION_DRAWS)
        draws = self.posterior_.select("components", chosen)
        for topics, weight in zip(draws, weights, strict=True):
            for rows in gen_batches(X.shape[0], BLOCK_ROWS):
                out[rows] += weight * self._proportions(topics, X[rows])
        return out

    def _chosen(self, n_draws: int) -> tuple[Array, Array]:
        return self.posterior_.spaced(min(n_draws, self.n_chains_ * self.n_draws_))

    def _proportions(self, topics: Array, X: Any) -> Array:
        from ..models.completion import proportions

        return proportions(topics.astype(X.dtype, copy=False), X, self.doc_topic_prior_)

    def perplexity(
        self, X: Any, *, n_draws: int = PREDICTION_DRAWS, random_state: Any = 0
    ) -> float:
        """Perplexity of held-out documents by document completion; lower is better.

        Every document is split at random into halves; proportions are estimated from the first,
        for each draw as in :meth:`transform`, and the probabilities of the words of the second are
        averaged over draws. The perplexity is exp of minus their mean logarithm, over all words
        of all second halves. (Scikit-learn's method of this name bounds another quantity; score its
        topics with :func:`skbayes_sgmcmc.document_completion_perplexity`.)

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Counts of documents that were not in the fit.
        n_draws : int, default=20
            Draws used, evenly spaced, at most all.
        random_state : int or RandomState, default=0
            Seed of the halves.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            No document has two words.
        """
        from ..models.completion import document_completion_perplexity

        check_is_fitted(self, "posterior_")
        check_int("n_draws", n_draws)
        X = self._validate_counts(X)
        chosen, _ = self._chosen(n_draws)
        return document_completion_perplexity(
            self.posterior_.select("components", chosen),
            X,
            doc_topic_prior=self.doc_topic_prior_,
            random_state=random_state,
        )

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log probability of a held-out word: minus the logarithm of :meth:`perplexity`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Counts.
        y : None
            Ignored.

        Returns
        -------
        float
        """
        return -float(np.log(self.perplexity(X)))

    def top_words(self, n: int = 10, feature_names: Any = None) -> Array:
        """The most probable words of every topic, by posterior mean, most probable first.

        Parameters
        ----------
        n : int, default=10
            Words of a topic; at most all.
        feature_names : sequence of str or None, default=None
            The vocabulary; None: names seen in ``fit``, else x0, x1, ...

        Returns
        -------
        array of str, of shape (n_components, n)
        """
        check_is_fitted(self, "posterior_")
        check_int("n", n)
        names = np.asarray(self._feature_labels() if feature_names is None else feature_names)
        if names.shape != (self.n_features_in_,):
            raise ValueError(
                f"feature_names of shape {names.shape} is not allowed: give {self.n_features_in_}."
            )
        return np.asarray(names[np.argsort(-self.components_, axis=1, kind="stable")[:, :n]])

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        topics = list(range(self._n_features_out))
        return {"components": {"topic": topics, "word": self._feature_labels()}}

    def _labels(self) -> dict[str, list[str]]:
        names = self._feature_labels()
        return {"components": [f"{k}: {w}" for k in range(self._n_features_out) for w in names]}
