"""Latent Dirichlet allocation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .._arrays import Array
from .._callbacks import Progress
from .._draws.alignment import matched
from .._draws.posterior_samples import PosteriorSamples
from .._exceptions import explained, not_allowed
from .._limits import LIMITS
from .._validation import BOUNDS, check_int
from ._descriptions import SHARED, TOPICS, described
from ._fitting import Task, renew_attributes
from ._named_draws import attributes
from ._topics import TopicModel

if TYPE_CHECKING:
    from .._data.kept_rows import KeptRows
    from .._engine.settings import Settings


#: sweeps, draws and thinning that "auto" means with ``algorithm="gibbs"``
GIBBS_BURN_IN, GIBBS_DRAWS, GIBBS_THINNING = 200, 100, 5


@described(SHARED | TOPICS)
@dataclass(eq=False, repr=False)
class LatentDirichletAllocation(TopicModel):
    r"""Latent Dirichlet allocation with the posterior of the topics sampled by SG-MCMC.

    .. math::
        \phi_k \sim \mathrm{Dirichlet}(\beta),\quad \theta_d \sim \mathrm{Dirichlet}(\alpha),\quad
        z_{di} \sim \theta_d,\quad w_{di} \sim \phi_{z_{di}}

    This estimator is a drop-in replacement for scikit-learn's estimator of the same name. SG-MCMC
    samples the topics. The gradient of a minibatch needs the expected topic counts of its
    documents, which Gibbs sampling of the assignments z estimates.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K.
    doc_topic_prior : float or None, default=None
        Parameter alpha of the Dirichlet prior of the documents' topic proportions. None: 1 /
        n_components.
    topic_word_prior : float or None, default=None
        Parameter beta of the Dirichlet prior of the topics. None: 1 / n_components.
    {parametrization} {prior} {prior_scale} {prior_mean}
    algorithm : {"sgmcmc", "gibbs"}, default="sgmcmc"
        "gibbs" is collapsed Gibbs sampling over all documents, as a reference. ``burn_in``,
        ``thinning`` and ``max_steps`` then count sweeps over the corpus, and "auto" means
        ``burn_in=200``, ``n_draws=100`` and ``thinning=5``.
    doc_sweeps : int, default=3
        Number of Gibbs sweeps over the documents of a minibatch, which start at the fixed point of
        :meth:`transform`.
    {sampler} {integrator}
    step_size : "auto", float or Schedule, default="auto"
        Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
        The mean potential is that of one document. "auto": a step size scaled by the word
        frequencies; see Notes.
    {batch_size} {n_chains} {n_draws}
    burn_in : "auto" or int, default="auto"
        Number of steps before the first draw in ``fit``. "auto": ten passes over the rows, but at
        least 750 steps (3000 with "expanded_natural"); half as many as the draws take if
        ``step_size`` is a number.
    {thinning} {max_steps}
    {temperature}
        ``parametrization="expanded_mean"`` allows only 1.
    {init} {total_samples} {warm_start} {compiled} {device} {dtype} {checkpoint} {n_jobs}
    {random_state} {verbose}

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Posterior mean of the topics. Each row is a distribution over words.
    posterior_ : PosteriorSamples
        Draws "components" of shape (n_chains, n_draws, n_components, n_features), with topics
        aligned over draws and chains.
    {n_chains_, n_draws_}
    n_steps_ : int
        Number of steps (sweeps with "gibbs") of each chain in the last call.
    step_size_ : float
        Step size eta of the last step; only with "sgmcmc".
    batch_size_ : int
        Number of documents in a minibatch; only with "sgmcmc".
    compiled_ : tuple of str
        Names of the accelerators used in the last call, such as ("documents",); () if none.
    {not_compiled_}
    sampling_threshold_ : dict or None
        Noise of minibatches along the run; only with "sgmcmc". See
        :class:`~skbayes_sgmcmc.inspection.NoisePhaseDisplay`.
    {device_}
    doc_topic_prior_, topic_word_prior_ : float
        Values of alpha and beta.
    {n_features_in_} {feature_names_in_}

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : Variational Bayes for the same model.
    skbayes_sgmcmc.document_completion_perplexity : Perplexity of the topics of any package.

    Notes
    -----
    Counts that are not whole numbers are accepted with a warning: a count c is treated as ceil(c)
    words of weight c / ceil(c). Documents without words are allowed; they have equal proportions.

    With ``step_size="auto"``, the unit of length of a natural parameter is 1 / sqrt(mean count of
    its word per document). That of the expanded mean is beta V divided by the number of words per
    document and topic.

    References
    ----------
    Blei, Ng & Jordan (2003), Latent Dirichlet allocation.
    Patterson & Teh (2013), Stochastic gradient Riemannian Langevin dynamics on the probability
    simplex.
    Li, Chen, Fan & Carin (2016), High-order stochastic gradient thermostats for Bayesian learning
    of deep models.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import LatentDirichletAllocation
    >>> rng = np.random.default_rng(0)
    >>> rates = np.repeat([[4, 4, 0, 0], [0, 0, 4, 4]], 50, axis=0)
    >>> X = rng.poisson(rates)
    >>> lda = LatentDirichletAllocation(
    ...     2, n_draws=50, burn_in=200, thinning=5, random_state=0
    ... )
    >>> proportions = lda.fit_transform(X)
    >>> proportions[[0, -1]].round(1).max(axis=1)
    array([1., 1.])
    >>> lda.top_words(2, ["ball", "goal", "vote", "law"]).shape
    (2, 2)
    >>> lda.perplexity(X) < 2.5
    True
    """

    n_components: int = 10
    _: KW_ONLY
    doc_topic_prior: float | None = None
    algorithm: str = "sgmcmc"
    doc_sweeps: int = 3

    # fitting --------------------------------------------------------------------------------------

    def _takes_streams(self) -> bool:
        if self.algorithm == "gibbs":
            raise explained(
                AttributeError(
                    "algorithm='gibbs' is not allowed in partial_fit, because it needs all "
                    "documents in every sweep: give algorithm='sgmcmc'."
                )
            )
        return True

    def _run(self, task: Task) -> None:
        if self.algorithm == "gibbs":
            self._fit_gibbs(task)
        else:
            super()._run(task)

    _checks = TopicModel._checks | {"n_components": partial(check_int, high=BOUNDS.count)}

    def _check_together(self, settings: Settings) -> None:
        super()._check_together(settings)
        if self.algorithm == "gibbs" and self.checkpoint is not None:
            raise not_allowed(
                f"checkpoint={self.checkpoint!r} is not allowed with algorithm='gibbs': give "
                "checkpoint=None."
            )
        if self.prior == "normal" and self.algorithm == "gibbs":
            raise not_allowed(
                "prior='normal' is not allowed with algorithm='gibbs': give prior='gamma'."
            )

    def _mixing_remedies(self) -> dict[str, str]:
        if self.algorithm == "gibbs":
            return {"documents": "a longer burn_in"}
        return {} if self.prior == "normal" else {"documents": "algorithm='gibbs'"}

    def _n_topics(self) -> int:
        return self.n_components

    def _alpha(self) -> float:
        given = self.doc_topic_prior
        return 1.0 / self.n_components if given is None else float(given)

    def _make_model(self, rows: KeptRows, *, first: bool) -> Any:
        from ..models.topics.lda import LDAModel

        X = rows.x
        parts = self._parametrization(X), self._frequency(X), self._alpha(), self.doc_sweeps
        return LDAModel(*parts, **self._options())

    def _fit_gibbs(self, task: Task) -> None:
        from .._engine.accelerators import Offer, choose
        from .._engine.lengths import Lengths
        from ..models.topics.gibbs import gibbs_draws

        X, settings = task.rows.x, task.settings
        offer = Offer("documents", "sweeps", None, bool(X.sum() >= LIMITS.worth_words), numba=True)
        self.compiled_, self.not_compiled_ = choose(self.compiled, [offer])
        lengths = Lengths(GIBBS_BURN_IN, GIBBS_DRAWS, GIBBS_THINNING).with_given(settings)
        n_steps = lengths.n_steps
        progress = Progress(self, task.data)

        def on_sweep(done: int) -> None:
            progress.show(done // self.n_chains, n_steps, dict)
            progress(done / (n_steps * self.n_chains), lambda: None)

        draws = gibbs_draws(
            X,
            self.n_components,
            self._alpha(),
            self._beta(),
            settings.seeds(),
            compiled=bool(self.compiled_),
            on_sweep=on_sweep,
            **asdict(lengths),
        )
        posterior = PosteriorSamples({"components": matched(draws)[0]})
        vars(self).update(attributes(posterior, n_steps), device_="cpu")
        self._chain_state = self._stream_rows = self._mixing = None
        for of_steps in ("step_size_", "batch_size_", "sampling_threshold_"):
            vars(self).pop(of_steps, None)  # of an earlier fit with the other algorithm
        renew_attributes(self)
        progress.close()

    def _set_attributes(self) -> None:
        super()._set_attributes()
        self.doc_topic_prior_ = self._alpha()

    def _proportions(self, draw: Mapping[str, Array], X: Any) -> Array:
        from ..models.topics.completion import proportions

        topics = draw["components"].astype(X.dtype, copy=False)
        return proportions(topics, X, self.doc_topic_prior_)
