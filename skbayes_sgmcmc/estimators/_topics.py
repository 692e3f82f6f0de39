"""Code that topic models share: counts, alignment of topics, proportions, words, perplexity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from .._arrays import Array
from .._data.kept_rows import KeptRows
from .._data.word_counts import word_counts
from .._draws.alignment import matched
from .._exceptions import later_not_allowed, not_allowed, warn
from .._limits import LIMITS, slices
from .._validation import (
    BOUNDS,
    check_int,
    check_is_fitted,
    check_predictions,
    check_real,
    check_scale,
    validate_data,
)
from ._mixing import MIXING, MustMix
from ._parameters import Check, choice, unless
from ._reading import check_fitted
from ._transformer import BayesianTransformer

if TYPE_CHECKING:
    from .._engine.settings import Settings
    from ..samplers import Sampler
    from ._fitting import Task


#: number of draws that predictions average
PREDICTION_DRAWS = 20


@dataclass(kw_only=True, eq=False, repr=False)
class TopicModel(BayesianTransformer):
    """Base class of models of word counts. The rows of their draws "components" are topics."""

    topic_word_prior: float | None = None
    parametrization: str = "expanded_mean"
    prior: str = "gamma"
    prior_scale: float = 1.0
    prior_mean: float = 0.1
    sampler: str | Sampler = "auto"
    n_chains: int = 1
    thinning: int | Literal["auto"] = "auto"
    init: str = "auto"

    #: blocks of draws, other than "components", with topics on the first axis
    _by_topic: ClassVar[tuple[str, ...]] = ()

    components_: Array = field(init=False)
    topic_word_prior_: float = field(init=False)
    n_features_in_: int = field(init=False)
    doc_sweeps: int = field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags

    def _validate_counts(self, X: Any, *, reset: bool = False, fitting: bool = False) -> Any:
        """Counts as a new CSR matrix without explicit zeros."""
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_non_negative=True,
        )
        X = word_counts(X)
        if fitting and X.nnz == 0:
            raise not_allowed(
                "X has no words: every count is zero. Give at least one document with words."
            )
        if fitting and reset and (X.data != np.floor(X.data)).any():
            warn(
                "X has counts that are not whole numbers: a count c is treated as ceil(c) words of "
                "weight c / ceil(c).",
                "counts-are-not-whole-numbers",
            )
        return X

    def _in_order(self, draws: dict[str, Array], previous: Any) -> dict[str, Array]:
        new, reference = draws["components"], None
        if previous is not None and self.components_.shape == new.shape[2:]:
            reference = self.components_
        ordered, orders = matched(new, reference)
        others = {}
        for name in draws.keys() & set(self._by_topic):
            values = draws[name]
            place = orders.reshape(orders.shape + (1,) * (values.ndim - 3))
            others[name] = np.take_along_axis(values, place, axis=2)
        return draws | {"components": ordered} | others

    # fitting --------------------------------------------------------------------------------------

    def _encoded(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool, stream: bool
    ) -> KeptRows:
        X = self._validate_counts(X, reset=first, fitting=True)
        if stream and self._chain_state is not None and not self._continues():
            assert self._fitted_as is not None
            raise later_not_allowed(
                f"parametrization={self.parametrization!r} is not allowed here: earlier calls had "
                f"{self._fitted_as[0]!r}; keep it, or start a new stream with a clone."
            )
        return KeptRows(X, None)

    def _meaning(self) -> tuple[Any, ...]:
        return self.parametrization, self.n_features_in_

    _checks: ClassVar[dict[str, Check]] = {
        "doc_sweeps": partial(check_int, low=0, high=BOUNDS.count),
        "init": choice("auto", "random", "map"),
        "prior": choice("gamma", "normal"),
        "prior_mean": partial(
            check_real, low=-BOUNDS.largest_scale, high=BOUNDS.largest_scale, closed="both"
        ),
        "prior_scale": check_scale,
        "thinning": unless("auto", check_int),
    }

    def _check_together(self, settings: Settings) -> None:
        super()._check_together(settings)
        if self.init == "map" and self.parametrization == "expanded_mean":
            raise not_allowed(
                "init='map' is not allowed with parametrization='expanded_mean': its target has "
                "no maximum. Give init='random', or parametrization='expanded_natural'."
            )
        if self.parametrization == "expanded_mean" and settings.temperature != 1.0:
            raise not_allowed(
                f"temperature={self.temperature!r} is not allowed with "
                "parametrization='expanded_mean': its target is improper at temperatures other "
                "than 1. Give temperature=1.0, or parametrization='expanded_natural'."
            )
        if self.prior == "normal" and self.parametrization == "expanded_mean":
            raise not_allowed(
                "prior='normal' is not allowed with parametrization='expanded_mean': give "
                "prior='gamma', or parametrization='expanded_natural'."
            )

    def _samplers(self) -> tuple[str, ...]:
        natural = self.parametrization != "expanded_mean"
        return ("auto", *(super()._samplers() if natural else ("rsgld",)))

    def _n_topics(self) -> int:
        """Number of topics K."""
        raise NotImplementedError

    def _beta(self) -> float:
        given = self.topic_word_prior
        return 1.0 / self._n_topics() if given is None else float(given)

    def _parametrization(self, X: Any) -> Any:
        from ..models.topics.parametrizations import PARAMETRIZATIONS, GammaTopics, NormalTopics

        prior: Any = GammaTopics(self._beta())
        if self.prior == "normal":
            prior = NormalTopics(self.prior_mean, self.prior_scale)
        return PARAMETRIZATIONS[self.parametrization](self._n_topics(), X.shape[1], prior)

    @staticmethod
    def _frequency(X: Any) -> Array:
        # one is added to every count, so that words not seen yet have a scale
        return np.asarray((np.asarray(X.sum(axis=0)).ravel() + 1.0) / X.shape[0])

    def _options(self) -> dict[str, Any]:
        """Parameters that all topic models take."""
        return {} if isinstance(self.batch_size, str) else {"batch_size": int(self.batch_size)}

    def _set_attributes(self) -> None:
        self.components_ = self.posterior_.mean("components")
        self.topic_word_prior_ = self._beta()

    def _must_mix(self, task: Task) -> MustMix:
        posterior, X = self.posterior_, task.rows.x
        chosen = np.unique(np.linspace(0, X.shape[0] - 1, MIXING.rows).astype(int))
        rows = X[chosen]
        filled = np.diff(rows.indptr) > 0
        chosen, rows = chosen[filled], rows[filled]
        if rows.shape[0] == 0 or rows.shape[1] == 1:  # one word has the probability 1
            return MustMix({}, {})
        from ..models.topics.completion import log_probabilities

        logs = np.stack(
            [
                log_probabilities(draw["components"], self._proportions(draw, rows), rows)
                for draw in self._draws(slice(None))
            ]
        )
        by_chain = logs.reshape(posterior.n_chains, posterior.n_draws, -1)
        labels = [f"log probability of row {row}" for row in chosen]
        return MustMix(
            {"documents": by_chain},
            {"documents": labels},
            r_hat_limit=MIXING.modes_r_hat,
            ess_limit=0.0,
            remedies=self._mixing_remedies(),
        )

    def _mixing_remedies(self) -> dict[str, str]:
        """What to give if chains have not mixed, by blocks of what must mix."""
        return {}

    # predictions ----------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Compute the expected topic proportions of documents.

        For each of up to 20 evenly spaced draws, expected topic counts n_dk are iterated to the
        fixed point of n_dk = sum_w x_dw r_dwk, where r_dwk is proportional to (n_dk + alpha) phi_kw
        and sums to 1 over k. The proportions (n_dk + alpha) / (n_d + K alpha) are averaged over the
        draws. The result is deterministic, and the proportions of a document do not depend on other
        documents.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Counts.

        Returns
        -------
        array of shape (n_samples, n_components)
            Proportions; each row sums to one.
        """
        check_fitted(self)
        X = self._validate_counts(X)
        out = np.zeros((X.shape[0], self._n_features_out), X.dtype)
        chosen, weights = self._chosen(PREDICTION_DRAWS)
        for draw, weight in zip(self._draws(chosen), weights, strict=True):
            for rows in slices(X.shape[0], LIMITS.module_rows):
                out[rows] += weight * self._proportions(draw, X[rows])
        return check_predictions(out, X)

    def _outcomes(self, draws: Array, x: Any) -> list[Array]:
        return [self._proportions(draw, x) for draw in self._draws(draws)]

    def _chosen(self, n_draws: int) -> tuple[Array, Array]:
        return self.posterior_.spaced(min(n_draws, self.n_chains_ * self.n_draws_))

    def _draws(self, chosen: Any) -> Iterator[dict[str, Array]]:
        """Yield some of the pooled draws, one at a time, as dictionaries of blocks."""
        blocks = {name: self.posterior_.select(name, chosen) for name in self.posterior_.draws}
        for i in range(len(blocks["components"])):
            yield {name: values[i] for name, values in blocks.items()}

    def _proportions(self, draw: Mapping[str, Array], X: Any) -> Array:
        """Expected topic proportions (documents, topics) under one draw."""
        raise NotImplementedError

    def perplexity(
        self, X: Any, *, n_draws: int = PREDICTION_DRAWS, random_state: Any = None
    ) -> float:
        """Compute the perplexity of held-out documents by document completion; lower is better.

        Every document is split at random into two halves. For each draw, the topic proportions are
        estimated from the first half, as in :meth:`transform`. The probabilities of the words of
        the second half are averaged over the draws, with their weights. The perplexity is exp(-m),
        where m is the mean log probability of all words of all second halves. Scikit-learn's method
        of the same name computes a bound on a different quantity. To score scikit-learn's topics in
        the same way, use :func:`skbayes_sgmcmc.document_completion_perplexity`.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features)
            Word counts of documents that were not used in ``fit``.
        n_draws : int, default=20
            Number of evenly spaced draws to use, at most all.
        random_state : int, RandomState or None, default=None
            Seed of the random split. Use the same int to compare models on the same halves.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            No document has at least two words.
        """
        from ..models.topics.completion import completion_perplexity

        check_fitted(self)
        check_int("n_draws", n_draws)
        X = self._validate_counts(X)
        chosen, weights = self._chosen(n_draws)

        def each(observed: Any) -> Iterator[tuple[Array, Array]]:
            for draw in self._draws(chosen):
                yield draw["components"], self._proportions(draw, observed)

        return completion_perplexity(each, X, random_state, weights)

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean log probability of a held-out word: minus the log of :meth:`perplexity`.

        The documents are split with ``random_state=0``, so scores of different models are
        comparable.

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
        return -float(np.log(self.perplexity(X, random_state=0)))

    def top_words(self, n: int = 10, feature_names: Any = None) -> Array:
        """List the most probable words of every topic by posterior mean, most probable first.

        Parameters
        ----------
        n : int, default=10
            Number of words per topic, at most all.
        feature_names : sequence of str or None, default=None
            The vocabulary. None: the names seen in ``fit`` or, without such names, x0, x1, ...

        Returns
        -------
        array of str, of shape (n_components, n)
        """
        check_is_fitted(self, "posterior_")
        check_int("n", n)
        names = np.asarray(self._columns.feature_labels if feature_names is None else feature_names)
        if names.shape != (self.n_features_in_,):
            raise not_allowed(
                f"feature_names of shape {names.shape} is not allowed: give {self.n_features_in_} "
                "names, one for each word."
            )
        return np.asarray(names[np.argsort(-self.components_, axis=1, kind="stable")[:, :n]])

    def _axes(self) -> dict[str, dict[str, list[Any]]]:
        topics = list(range(self._n_features_out))
        return {"components": {"topic": topics, "word": self._columns.feature_labels}}
