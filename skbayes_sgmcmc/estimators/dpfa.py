"""Deep Poisson factor analysis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from .._validation import check_int, check_real, check_sizes
from ._topics import TopicModel

Array = NDArray[Any]

#: steps of the fixed point for the proportions of a document
STEPS = 20


class DeepPoissonFactorAnalysis(TopicModel):
    r"""Topics of word counts under a deep network of binary units, sampled by SG-MCMC.

    .. math::
        x_{wj} &\sim \mathrm{Poisson}(\textstyle\sum_k \phi_{wk} \theta_{kj}), \qquad
        \theta_{kj} \sim \mathrm{Gamma}(r_k h^1_{kj},\ \mathrm{scale}\ p_j / (1 - p_j)),\\
        P(h^l_k = 1 \mid h^{l+1}) &= \sigma(w^l_k \cdot h^{l+1} + c^l_k), \qquad
        P(h^L_k = 1) = \sigma(c^L_k),\\
        r_k &\sim \mathrm{Gamma}(\gamma_0, \mathrm{rate}\ c_0), \qquad
        \gamma_0 \sim \mathrm{Gamma}(e_0, \mathrm{rate}\ f_0)

    A document has the topics whose unit of the lowest layer is on; layers above say which topics
    go together, and r_k how much of a topic a document has. What is sampled are the topics phi, the
    network, r and gamma_0, as one vector; the documents' variables are Gibbs-sampled for every
    minibatch.

    Parameters
    ----------
    n_components : int or sequence of int, default=(128, 64, 32)
        Topics K, and units of the layers above. An int or one number is Poisson factor analysis
        without a network, in which all topics are on everywhere.
    success_probability : float or None, default=None
        p of all documents, 0.5 as published; None: p_j of each document, uniform on (0, 1).
    topic_word_prior : float or None, default=None
        beta, Dirichlet parameter of the topics; None: 1 / K.
    r_rate : float, default=1.0
        c_0.
    gamma_prior : tuple of float, default=(1.0, 1.0)
        e_0 and f_0.
    network_scale : float, default=1.0
        sd of the normal prior of weights w and biases c.
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
    doc_sweeps : int, default=15
        Gibbs sweeps over the documents of a minibatch, at least one. Layers above the lowest are
        sampled in the last fifth of them.
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
        potential is that of one document. "auto": a rate in units of the parameters' curvatures,
        see Notes.
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
    components_ : array of shape (K, n_features)
        Posterior mean of the topics: rows are distributions over words.
    r_ : array of shape (K,)
        Posterior mean of r.
    posterior_ : PosteriorSamples
        Draws, (n_chains, n_draws, ...): "components" (K, n_features), "r" (K,), "gamma" (), and the
        network's "weights_1" (K, K_2), "biases_1" (K,), "weights_2" (K_2, K_3) and so on. Topics
        are aligned over draws and chains, with their r, biases and rows of "weights_1". Units above
        the lowest layer are as the chain had them: their numbers mean nothing, and in other chains
        something else.
    n_chains_, n_draws_ : int
        Chains and draws of each that ``posterior_`` holds.
    n_steps_ : int
        Steps of each chain in the last call.
    step_size_ : float
        eta of the last step.
    batch_size_ : int
        Documents in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators in the last call, such as ("documents", "belief_network");
        () if there were none.
    topic_word_prior_ : float
        beta.
    n_features_in_ : int
        Words in the vocabulary.
    feature_names_in_ : array of shape (n_features_in_,)
        Their names, if X had string column names.

    See Also
    --------
    LatentDirichletAllocation : Topics without a network, of equal r.
    skbayes_sgmcmc.document_completion_perplexity : Scores topics from anywhere.

    Notes
    -----
    Counts that are not whole are accepted, with a warning: c counts as ceil(c) words of weight
    c / ceil(c). Documents without words are allowed; their proportions are those of the prior.

    :meth:`transform` gives proportions as :class:`LatentDirichletAllocation` does, with alpha_jk =
    r_k q_jk, where q_jk is the probability of topic k being on, in a mean field of the documents'
    variables.

    ``step_size="auto"`` moves natural parameters in units of 1 / sqrt(times that the word occurs in
    a document), weights and biases of a unit in units of 2 / sqrt(1 + half the units above it), and
    log r in units of 1 / sqrt(1 + a quarter of the words of a document and topic).

    References
    ----------
    Zhou & Carin (2015), Negative binomial process count and mixture modeling.
    Gan, Chen, Henao, Carlson & Carin (2015), Scalable deep Poisson factor analysis for topic
    modeling.
    Li, Chen, Fan & Carin (2016), High-order stochastic gradient thermostats for Bayesian learning
    of deep models.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayes_sgmcmc import DeepPoissonFactorAnalysis
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.poisson([4, 4, 0, 0], (50, 4)), rng.poisson([0, 0, 4, 4], (50, 4))])
    >>> dpfa = DeepPoissonFactorAnalysis(
    ...     (2, 1), n_draws=50, burn_in=200, thinning=5, random_state=0
    ... )
    >>> proportions = dpfa.fit_transform(X)
    >>> proportions[[0, -1]].max(axis=1) > 0.8
    array([ True,  True])
    >>> dpfa.posterior_["weights_1"].shape
    (1, 50, 2, 1)
    >>> dpfa.perplexity(X) < 2.5
    True
    """

    _by_topic = ("r", "weights_1", "biases_1")

    def __init__(
        self,
        n_components: Any = (128, 64, 32),
        *,
        success_probability: float | None = None,
        topic_word_prior: float | None = None,
        r_rate: float = 1.0,
        gamma_prior: Any = (1.0, 1.0),
        network_scale: float = 1.0,
        parametrization: str = "expanded_mean",
        prior: str = "gamma",
        prior_scale: float = 1.0,
        prior_mean: float = 0.1,
        doc_sweeps: int = 15,
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
        self.success_probability = success_probability
        self.topic_word_prior = topic_word_prior
        self.r_rate = r_rate
        self.gamma_prior = gamma_prior
        self.network_scale = network_scale
        self.parametrization = parametrization
        self.prior = prior
        self.prior_scale = prior_scale
        self.prior_mean = prior_mean
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

    def _check(self) -> Any:
        self._sizes()
        if self.success_probability is not None:
            check_real("success_probability", self.success_probability, low=0.0, high=1.0)
        check_real("r_rate", self.r_rate, low=0.0)
        check_real("network_scale", self.network_scale, low=0.0)
        check_int("doc_sweeps", self.doc_sweeps)
        pair = self.gamma_prior
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(f"gamma_prior={pair!r} is not allowed: give a pair of numbers.")
        for number in pair:
            check_real("gamma_prior", number, low=0.0)
        return super()._check()

    def _sizes(self) -> tuple[int, ...]:
        """K and the units of the layers above."""
        sizes = check_sizes("n_components", self.n_components)
        if not sizes:
            raise ValueError(
                f"n_components={self.n_components!r} is not allowed: give the number of topics, "
                "and units of layers above if there are to be some."
            )
        return sizes

    def _n_topics(self) -> int:
        return self._sizes()[0]

    def _model(self, X: Any, settings: Any) -> Any:
        from ..models.topics.belief import BeliefNetwork
        from ..models.topics.dpfa import DPFAModel

        sizes = self._sizes()
        network = None
        if len(sizes) > 1:
            network = BeliefNetwork(sizes, self.network_scale)
        e, f = self.gamma_prior
        return DPFAModel(
            self._parametrization(X),
            self._frequency(X),
            self.doc_sweeps,
            network,
            self.success_probability,
            self.r_rate,
            (float(e), float(f)),
            **self._options(),
        )

    def _set_attributes(self) -> None:
        super()._set_attributes()
        self.r_ = self.posterior_.mean("r")

    def _proportions(self, draw: Mapping[str, Array], X: Any) -> Array:
        from ..models.topics.dpfa import proportions

        topics = draw["components"].astype(X.dtype, copy=False)
        return proportions(dict(draw, components=topics), X, self.success_probability, STEPS)
