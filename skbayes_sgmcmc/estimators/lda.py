"""Latent Dirichlet allocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from .._draws.alignment import align
from .._draws.posterior_samples import PosteriorSamples
from .._validation import check_choice, check_int, check_real
from ._topics import TopicModel

Array = NDArray[Any]

#: sweeps and draws of ``algorithm="gibbs"``
GIBBS_BURN_IN, GIBBS_DRAWS, GIBBS_THINNING = 200, 100, 5


class LatentDirichletAllocation(TopicModel):
    r"""Latent Dirichlet allocation with a posterior of the topics drawn by SG-MCMC.

    .. math::
        \phi_k \sim \mathrm{Dirichlet}(\beta),\quad \theta_d \sim \mathrm{Dirichlet}(\alpha),\quad
        z_{di} \sim \theta_d,\quad w_{di} \sim \phi_{z_{di}}

    A drop-in for scikit-learn's estimator of the same name. What is sampled are the topics; the
    gradient of a minibatch of documents is their expected counts, by Gibbs sampling of the
    documents' assignments.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K.
    doc_topic_prior : float or None, default=None
        alpha, Dirichlet parameter of the documents' proportions; None: 1 / n_components.
    topic_word_prior : float or None, default=None
        beta, Dirichlet parameter of the topics; None: 1 / n_components.
    algorithm : {"sgmcmc", "gibbs"}, default="sgmcmc"
        "gibbs": collapsed Gibbs sampling over all documents, the reference. ``burn_in`` (200),
        ``n_draws`` (100) and ``thinning`` (5) then count sweeps over the corpus.
    parametrization : {"expanded_mean", "expanded_natural"}, default="expanded_mean"
        phi_k as normalised Gamma variables in their own metric (SGRLD), or as the softmax of
        natural parameters, for any sampler.
    prior : {"gamma", "normal"}, default="gamma"
        "gamma": e^theta ~ Gamma(beta, 1), which makes topics Dirichlet(beta), in both
        parametrizations. "normal": natural parameters N(prior_mean, prior_scale^2) in place of it.
    prior_mean, prior_scale : float, default=0.1 and 1.0
        Of the normal prior.
    doc_sweeps : int, default=5
        Gibbs sweeps over the documents of a minibatch, after the one that begins.
    sampler : str or Sampler, default="auto"
        "rsgld" for the expanded mean; "msgnht", "sghmc", "sgnht", "sgld" or "psgld", or an object
        with parameters, for natural parameters. "auto": "rsgld" and "msgnht".
    integrator : str, default="auto"
        "splitting", "euler", "baoab", "aboba" (second-order samplers), "leimkuhler_matthews"
        (SGLD). "auto": the sampler's first, or Euler if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        eta, which multiplies the gradient of the mean potential (of one document). "auto": a rate
        in units of the words' frequencies, see Notes.
    batch_size : "auto" or int, default="auto"
        Documents in a minibatch; "auto": 100, or all of few.
    n_chains : int, default=1
        Chains. Each finds topics of its own; what several have in common is averaged, in
        predictions and in ``components_``.
    n_draws : "auto" or int, default="auto"
        Draws kept of each chain; "auto": 100, fewer where they would take more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Steps before the first draw. "auto": ten passes over the documents, or 3,000 steps if that
        is more; for natural parameters half of them at temperature 0.
    thinning : "auto" or int, default="auto"
        Steps between two draws; "auto": as many in all as ``burn_in``.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T); the expanded mean allows 1 only.
    total_samples : float or None, default=None
        Documents of the stream of ``partial_fit``; None: those seen so far.
    compiled : "auto" or bool, default="auto"
        Sample assignments by a compiled kernel (extra ``fast``, CPU), about fifteen times as fast;
        it draws other random numbers. "auto": where it is installed and there are 5,000 words.
    checkpoint : path or None, default=None
        File from which an interrupted fit with the same data and parameters goes on,
        bit-identically.
    device : str, default="auto"
        "cpu", "cuda", ...; "auto" takes CUDA if there.
    dtype : {"auto", "float32", "float64"}, default="auto"
        "auto": float32.
    n_jobs : int or None, default=None
        Groups of chains that run in parallel through joblib; None: all chains as one batch.
    random_state : int, RandomState or None, default=None
        Seed; chain c has the same random numbers whatever ``n_chains`` and ``n_jobs``.
    warm_start : bool, default=False
        Go on from the last state of the chains at the next ``fit``.
    verbose : int, default=0
        Print progress if positive. Scikit-learn's callbacks work too.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Posterior mean of the topics: rows are distributions over words.
    posterior_ : PosteriorSamples
        Draws "components" (n_chains, n_draws, n_components, n_features), their topics aligned over
        draws and chains.
    n_chains_, n_draws_ : int
        Chains and draws of each that ``posterior_`` holds.
    n_steps_ : int
        Steps (sweeps of "gibbs") of each chain in the last call.
    step_size_ : float
        eta of the last step ("sgmcmc").
    batch_size_ : int
        Documents in a minibatch ("sgmcmc").
    compiled_ : tuple of str
        Names of the accelerators in the last call, such as ("documents",);
        () if there were none.
    doc_topic_prior_, topic_word_prior_ : float
        alpha and beta.
    n_features_in_ : int
        Words in the vocabulary.
    feature_names_in_ : array of shape (n_features_in_,)
        Their names, if X had string column names.

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : Variational Bayes for the same model.
    skbayes_sgmcmc.document_completion_perplexity : Scores topics from anywhere.

    Notes
    -----
    Counts that are not whole are accepted, with a warning: c counts as ceil(c) words of weight
    c / ceil(c). Documents without words are allowed; their proportions are equal.

    ``step_size="auto"`` moves natural parameters in units of 1 / sqrt(times that the word occurs in
    a document), and the expanded mean in units of beta V over the words of a document and topic.

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
    >>> X = np.vstack([rng.poisson([4, 4, 0, 0], (50, 4)), rng.poisson([0, 0, 4, 4], (50, 4))])
    >>> lda = LatentDirichletAllocation(2, n_draws=50, burn_in=200, thinning=5, random_state=0)
    >>> proportions = lda.fit_transform(X)
    >>> proportions[[0, -1]].round(1).max(axis=1)
    array([1., 1.])
    >>> lda.top_words(2, ["ball", "goal", "vote", "law"]).shape
    (2, 2)
    >>> lda.perplexity(X) < 2.5
    True
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        doc_topic_prior: float | None = None,
        topic_word_prior: float | None = None,
        algorithm: str = "sgmcmc",
        parametrization: str = "expanded_mean",
        prior: str = "gamma",
        prior_mean: float = 0.1,
        prior_scale: float = 1.0,
        doc_sweeps: int = 5,
        sampler: Any = "auto",
        integrator: str = "auto",
        step_size: Any = "auto",
        batch_size: Any = "auto",
        n_chains: int = 1,
        n_draws: Any = "auto",
        burn_in: Any = "auto",
        thinning: Any = "auto",
        temperature: Any = 1.0,
        total_samples: float | None = None,
        compiled: Any = "auto",
        checkpoint: Any = None,
        device: str = "auto",
        dtype: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
    ):
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.algorithm = algorithm
        self.parametrization = parametrization
        self.prior = prior
        self.prior_mean = prior_mean
        self.prior_scale = prior_scale
        self.doc_sweeps = doc_sweeps
        self.sampler = sampler
        self.integrator = integrator
        self.step_size = step_size
        self.batch_size = batch_size
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.burn_in = burn_in
        self.thinning = thinning
        self.temperature = temperature
        self.total_samples = total_samples
        self.compiled = compiled
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    # fitting --------------------------------------------------------------------------------------

    def _takes_streams(self) -> bool:
        if self.algorithm == "gibbs":
            raise AttributeError(
                "algorithm='gibbs' is not allowed in partial_fit: it needs all documents at every "
                "sweep; give 'sgmcmc'."
            )
        return True

    def _fit_documents(self, X: Any, settings: Any, *, same: bool) -> None:
        if self.algorithm == "gibbs":
            self._fit_gibbs(X, settings)
        else:
            super()._fit_documents(X, settings, same=same)

    def _check(self) -> Any:
        check_int("n_components", self.n_components)
        if self.doc_topic_prior is not None:
            check_real("doc_topic_prior", self.doc_topic_prior, low=0.0)
        check_choice("algorithm", self.algorithm, ("sgmcmc", "gibbs"))
        if self.algorithm == "gibbs" and self.checkpoint is not None:
            raise ValueError(
                f"checkpoint={self.checkpoint!r} is not allowed with algorithm='gibbs': give None."
            )
        return super()._check()

    def _check_prior(self) -> None:
        super()._check_prior()
        if self.prior == "normal" and self.algorithm == "gibbs":
            raise ValueError(
                "prior='normal' is not allowed with algorithm='gibbs': give prior='gamma'."
            )

    def _n_topics(self) -> int:
        return self.n_components

    def _alpha(self) -> float:
        given = self.doc_topic_prior
        return 1.0 / self.n_components if given is None else float(given)

    def _model(self, X: Any, settings: Any) -> Any:
        from ..models.topics.lda import LDAModel

        parts = self._parametrization(X), self._frequency(X), self._alpha(), self.doc_sweeps
        return LDAModel(*parts, **self._options())

    def _fit_gibbs(self, X: Any, settings: Any) -> None:
        from .._engine.accelerators import Offer, choose, why_no_numba
        from ..models.topics.documents import WORTH_WORDS
        from ..models.topics.gibbs import gibbs_draws

        offer = Offer("documents", "sweeps", why_no_numba(), bool(X.sum() >= WORTH_WORDS))
        self.compiled_ = choose(self.compiled, [offer])
        lengths = {"burn_in": GIBBS_BURN_IN, "n_draws": GIBBS_DRAWS, "thinning": GIBBS_THINNING}
        for name, default in lengths.items():
            value = getattr(self, name)
            lengths[name] = default if isinstance(value, str) else check_int(name, value, low=0)
        draws = gibbs_draws(
            X,
            self.n_components,
            self._alpha(),
            self._beta(),
            settings.seeds(),
            compiled=bool(self.compiled_),
            **lengths,
        )
        self.posterior_ = PosteriorSamples({"components": align(draws)})
        self.n_chains_, self.n_draws_ = draws.shape[:2]
        self._chain_state = None
        self.n_steps_ = lengths["burn_in"] + lengths["n_draws"] * lengths["thinning"]
        self._set_attributes()

    def _set_attributes(self) -> None:
        super()._set_attributes()
        self.doc_topic_prior_ = self._alpha()

    def _proportions(self, draw: Mapping[str, Array], X: Any) -> Array:
        from ..models.topics.completion import proportions

        topics = draw["components"].astype(X.dtype, copy=False)
        return proportions(topics, X, self.doc_topic_prior_)
