"""Bar charts of the most probable words of topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._arrays import Array
from .._draws.posterior_samples import quantiles
from .._exceptions import not_allowed
from .._pipelines import last_step, with_column_names
from .._validation import central, check_int
from ._common import COLUMNS, Display, intervals, pyplot


@dataclass(eq=False, repr=False)
class TopicDisplay(Display):
    """Bar charts of the most probable words of topics, with intervals over the draws.

    Create a display with :meth:`from_estimator`.

    Parameters
    ----------
    topics : array of shape (n_topics,)
        Indices of the topics.
    words : array of shape (n_topics, n_words)
        Most probable words of each topic, by posterior mean.
    mean : array of shape (n_topics, n_words)
        Posterior means of the probabilities of these words.
    lower, upper : array of shape (n_topics, n_words)
        Ends of the central intervals of these probabilities.

    Attributes
    ----------
    axes_ : array of shape (n_topics,) of matplotlib Axes
        One axes per topic.
    ax_ : matplotlib Axes
        First of these axes.
    figure_ : matplotlib Figure
        Figure that contains the axes.

    See Also
    --------
    skbayes_sgmcmc.LatentDirichletAllocation.top_words : The words without their probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import LatentDirichletAllocation
    >>> from skbayes_sgmcmc.inspection import TopicDisplay
    >>> X = np.random.default_rng(0).poisson(2.0, (30, 6))
    >>> lda = LatentDirichletAllocation(2, algorithm="gibbs", random_state=0).fit(X)
    >>> display = TopicDisplay.from_estimator(lda, n_words=3)
    >>> display.words.shape
    (2, 3)
    """

    topics: Array
    words: Array
    mean: Array
    lower: Array
    upper: Array

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        topics: Any = None,
        *,
        n_words: int = 10,
        feature_names: Any = None,
        coverage: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the bars of a fitted topic model.

        Parameters
        ----------
        estimator : estimator
            Fitted topic model of this package, or a pipeline or search that ends in one.
        topics : sequence of int or None, default=None
            Indices of the topics. None: the first twelve topics.
        n_words : int, default=10
            Number of words per topic.
        feature_names : sequence of str or None, default=None
            The vocabulary. None: the names seen in ``fit``, those that a vectorizer before the
            model gives or, without such names, x0, x1, ...
        coverage : float, default=0.9
            Probability of the central intervals.
        ax : Axes, sequence of Axes or None, default=None
            One axes per panel, or a single axes that the panels share. None: a new figure.
        **kwargs
            Options of the bars, passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        TopicDisplay
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        tails = central(coverage)
        (last,) = last_step(estimator)
        if not hasattr(last, "top_words"):
            raise not_allowed(f"estimator={last!r} is not allowed: give a fitted topic model.")
        n_topics = len(last.components_)
        chosen = np.arange(min(n_topics, 12)) if topics is None else np.atleast_1d(topics)
        for topic in chosen.tolist():
            check_int("topics", topic, low=0, high=n_topics - 1)
        words = with_column_names(estimator).top_words(n_words, feature_names)[chosen]
        columns = np.argsort(-last.components_, axis=1, kind="stable")[chosen, :n_words]
        draws = last.posterior_.pooled("components")[:, chosen[:, None], columns]
        lower, upper = quantiles(draws, tails, last.posterior_.pooled_weights())
        mean = last.components_[chosen[:, None], columns]
        return cls(chosen, words, mean, lower, upper).plot(ax, **kwargs)

    def _n_panels(self) -> int:
        return len(self.topics)

    def _n_names(self) -> int:
        return int(self.words.shape[1])

    def _draw(self, **kwargs: Any) -> None:
        at = range(self.words.shape[1])
        for i, axes in enumerate(self.axes_):
            axes.barh(at, self.mean[i], **({"color": "C0", "alpha": 0.7} | kwargs))
            axes.set_title(f"topic {self.topics[i]}")
            intervals(axes, self.words[i], self.lower[i], self.upper[i])
        for axes in self.axes_[-COLUMNS:]:
            axes.set_xlabel("probability")
