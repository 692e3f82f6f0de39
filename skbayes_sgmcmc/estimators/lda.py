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
    parametrization : {"expanded_mean", "expanded_natural"}, default="expanded_mean"
        phi_k as normalised Gamma variables in their own metric (SGRLD), or as the softmax of
        natural parameters, for any sampler.
    prior : {"gamma", "normal"}, default="gamma"
        "gamma": e^theta ~ Gamma(beta, 1), which makes topics Dirichlet(beta), in both
        parametrizations. "normal": natural parameters N(prior_mean, prior_scale^2) in place of it.
    prior_scale : float, default=1.0
        Standard deviation of the normal prior.
    prior_mean : float, default=0.1
        Mean of the normal prior.
    algorithm : {"sgmcmc", "gibbs"}, default="sgmcmc"
        "gibbs": collapsed Gibbs sampling over all documents, the reference. ``burn_in`` (200),
        ``n_draws`` (100) and ``thinning`` (5) then count sweeps over the corpus.
    doc_sweeps : int, default=5
        Gibbs sweeps over the documents of a minibatch, after the one that begins.
    sampler : str or Sampler, default="auto"
        The sampler, by name or as an object with parameters such as ``SGHMC(friction=0.05)``:
        "rsgld" for the expanded mean; "msgnht", "sghmc", "sgnht", "sgld" or "psgld" for natural
        parameters. "auto": "rsgld" and "msgnht".
    integrator : str, default="auto"
        How a step of the sampler is discretised: "euler", "leimkuhler_matthews" (SGLD),
        "splitting", "baoab", "aboba" (second-order samplers) or "metropolis" (MALA). "auto": the
        sampler's most exact one, or Euler if ``step_size`` is a number.
    step_size : "auto", float or Schedule, default="auto"
        eta, which multiplies the gradient of the mean potential, like a learning rate. The
        potential is that of one document. "auto": a rate in units of the words' frequencies, see
        Notes.
    batch_size : "auto" or int, default="auto"
        Rows in a minibatch, at most all. A row is a document. "auto": 100, or every document if
        there are fewer.
    shared_minibatch : bool, default=False
        One minibatch for all chains of a step. This is faster, but the chains' errors are then
        correlated, so that R-hat and MCSE are too small.
    n_chains : int, default=1
        Number of chains. Each finds topics of its own; what several have in common is averaged, in
        predictions and in ``components_``.
    n_draws : "auto" or int, default="auto"
        Draws kept of each chain. "auto": 100, or fewer where they would need more than 1 GiB.
    burn_in : "auto" or int, default="auto"
        Steps before the first draw. "auto": ten passes over the rows, at least 3000 steps; for
        natural parameters half of them at temperature 0.
    thinning : "auto" or int, default="auto"
        Steps between two draws of a chain. "auto": so that the draws take as long as the burn-in.
    temperature : float or Schedule, default=1.0
        T of the target exp(-U/T): 1 is the posterior, 0 an optimiser. The expanded mean allows 1
        only.
    init : {"auto", "random", "map"}, default="auto"
        Where chains start. "random": topics near the words' frequencies. "map": from there, the
        first half of the burn-in at temperature 0, an optimiser; not for the expanded mean. "auto":
        "map" for natural parameters with ``step_size="auto"``, else "random".
    total_samples : float or None, default=None
        N of ``partial_fit``, the number of rows of the whole stream; None: the rows seen so far.
    warm_start : bool, default=False
        Go on from the last state of the chains at the next ``fit``.
    compiled : "auto" or bool, default="auto"
        Use the compiled code of the extra ``fast`` where it applies (on a CPU, for the documents'
        variables, about fifteen times as fast). It has a random number generator of its own, and so
        other draws for the same seed. "auto": where it is installed and there are 5,000 words.
    device : str, default="auto"
        "cpu", "cuda", ...; "auto" takes CUDA if there.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Precision of the sampling. "auto": float32.
    checkpoint : path or None, default=None
        File from which an interrupted fit with the same data and parameters goes on,
        bit-identically on a CPU. It is kept after the fit.
    n_jobs : int or None, default=None
        Groups of chains that run in parallel through joblib; None: all chains as one batch.
    random_state : int, RandomState or None, default=None
        Seed; chain c has the same random numbers whatever ``n_chains`` and ``n_jobs``.
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
        parametrization: str = "expanded_mean",
        prior: str = "gamma",
        prior_scale: float = 1.0,
        prior_mean: float = 0.1,
        algorithm: str = "sgmcmc",
        doc_sweeps: int = 5,
        sampler: Any = "auto",
        integrator: str = "auto",
        step_size: Any = "auto",
        batch_size: Any = "auto",
        shared_minibatch: bool = False,
        n_chains: int = 1,
        n_draws: Any = "auto",
        burn_in: Any = "auto",
        thinning: Any = "auto",
        temperature: Any = 1.0,
        init: str = "auto",
        total_samples: float | None = None,
        warm_start: bool = False,
        compiled: Any = "auto",
        device: str = "auto",
        dtype: str = "auto",
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.parametrization = parametrization
        self.prior = prior
        self.prior_scale = prior_scale
        self.prior_mean = prior_mean
        self.algorithm = algorithm
        self.doc_sweeps = doc_sweeps
        self.sampler = sampler
        self.integrator = integrator
        self.step_size = step_size
        self.batch_size = batch_size
        self.shared_minibatch = shared_minibatch
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.burn_in = burn_in
        self.thinning = thinning
        self.temperature = temperature
        self.init = init
        self.total_samples = total_samples
        self.warm_start = warm_start
        self.compiled = compiled
        self.device = device
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
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
