"""Bar charts of the most probable words of topics."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._exceptions import not_allowed
from .._pipelines import last_step, with_column_names
from .._validation import check_int, check_real
from ._common import COLUMNS, panels, pyplot

Array = NDArray[Any]


class TopicDisplay:
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

    def __init__(self, topics: Array, words: Array, mean: Array, lower: Array, upper: Array):
        self.topics = topics
        self.words = words
        self.mean = mean
        self.lower = lower
        self.upper = upper

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
            One axes per panel, or a single axes whose area the panels share. None: a new figure.
        **kwargs
            Options of the bars, passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        TopicDisplay

        Raises
        ------
        NotFittedError
            The estimator is not fitted.
        ValueError
            A parameter is invalid, or the estimator is not a topic model of this package.
        ImportError
            Matplotlib is not installed.
        """
        pyplot(f"{cls.__name__}.from_estimator")  # before any work
        check_real("coverage", coverage, low=0.0, high=1.0)
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
        tails = [(1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0]
        lower, upper = np.quantile(draws, tails, axis=0)
        mean = last.components_[chosen[:, None], columns]
        return cls(chosen, words, mean, lower, upper).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Plot the bars.

        Parameters
        ----------
        ax : Axes, sequence of Axes or None, default=None
            One axes per panel, or a single axes whose area the panels share. None: a new figure.
        **kwargs
            Options of the bars, passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        self
        """
        self.axes_ = panels(f"{type(self).__name__}.plot", ax, len(self.topics))
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        at = np.arange(self.words.shape[1])
        for i, axes in enumerate(self.axes_):
            axes.barh(at, self.mean[i], **({"color": "C0", "alpha": 0.7} | kwargs))
            axes.hlines(at, self.lower[i], self.upper[i], color="black", linewidth=1)
            axes.set(title=f"topic {self.topics[i]}", yticks=at, yticklabels=self.words[i])
            axes.invert_yaxis()
        for axes in self.axes_[-COLUMNS:]:
            axes.set_xlabel("probability")
        return self
