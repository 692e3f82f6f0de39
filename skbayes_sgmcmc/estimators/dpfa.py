"""Deep Poisson factor analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .._arrays import Array
from .._exceptions import not_allowed
from .._validation import BOUNDS, check_int, check_scale_pair, check_sizes
from ._descriptions import SHARED, TOPICS, described
from ._topics import TopicModel

if TYPE_CHECKING:
    from .._data.kept_rows import KeptRows


def _check_layers(name: str, sizes: Any) -> None:
    if not check_sizes(name, sizes, high=BOUNDS.count):
        raise not_allowed(
            f"{name}={sizes!r} is not allowed: give the number of topics, followed by the number "
            "of units of each layer above, if any."
        )


@described(SHARED | TOPICS)
@dataclass(eq=False, repr=False)
class DeepPoissonFactorAnalysis(TopicModel):
    r"""Topic model of word counts with a deep network of binary units, sampled by SG-MCMC.

    .. math::
        x_{wj} &\sim \mathrm{Poisson}(\textstyle\sum_k \phi_{wk} \theta_{kj}), \qquad
        \theta_{kj} \sim \mathrm{Gamma}(r_k h^1_{kj},\ \mathrm{scale}\ p_j / (1 - p_j)),\\
        P(h^l_k = 1 \mid h^{l+1}) &= \sigma(w^l_k \cdot h^{l+1} + c^l_k), \qquad
        P(h^L_k = 1) = \sigma(c^L_k),\\
        r_k &\sim \mathrm{Gamma}(\gamma_0, \mathrm{rate}\ c_0), \qquad
        \gamma_0 \sim \mathrm{Gamma}(e_0, \mathrm{rate}\ f_0)

    A document contains a topic if its unit in the lowest layer is on. The layers above model
    which topics occur together, and r_k is the typical weight of topic k in the documents that
    contain it. SG-MCMC samples the topics phi, the network, r and gamma_0 as one vector. The
    variables of the documents are Gibbs-sampled for every minibatch.

    Parameters
    ----------
    n_components : int or sequence of int, default=(128, 64, 32)
        Number of topics K, followed by the number of units of each layer above. An int, or a
        sequence of one number, gives Poisson factor analysis without a network, where every
        document contains all topics.
    success_probability : float or None, default=None
        Success probability p, the same for all documents (0.5 in the papers). None: each document
        has its own p_j with a uniform prior on (0, 1).
    topic_word_prior : float or None, default=None
        Parameter beta of the Dirichlet prior of the topics. None: 1 / K.
    r_rate : float, default=1.0
        Rate c_0 of the Gamma prior of r.
    gamma_prior : tuple of float, default=(1.0, 1.0)
        Shape e_0 and rate f_0 of the Gamma prior of gamma_0.
    network_scale : float, default=1.0
        Standard deviation of the normal prior of the network's weights w and biases c.
    {parametrization} {prior} {prior_scale} {prior_mean}
    doc_sweeps : int, default=15
        Number of Gibbs sweeps over the documents of a minibatch, at least one. The layers above the
        lowest are sampled only in the last fifth of the sweeps.
    {sampler} {integrator}
    step_size : "auto", float or Schedule, default="auto"
        Step size eta, which multiplies the gradient of the mean potential, like a learning rate.
        The mean potential is that of one document. "auto": a step size scaled by the curvatures of
        the parameters; see Notes.
    {batch_size} {n_chains} {n_draws}
    burn_in : "auto" or int, default="auto"
        Number of steps before the first draw in ``fit``. "auto": ten passes over the rows, but at
        least 1500 steps (3000 with "expanded_natural"); half as many as the draws take if
        ``step_size`` is a number.
    {thinning} {max_steps}
    {temperature}
        ``parametrization="expanded_mean"`` allows only 1.
    {init} {total_samples} {warm_start} {compiled} {device} {dtype} {checkpoint} {n_jobs}
    {random_state} {verbose}

    Attributes
    ----------
    components_ : array of shape (K, n_features)
        Posterior mean of the topics. Each row is a distribution over words.
    r_ : array of shape (K,)
        Posterior mean of r.
    posterior_ : PosteriorSamples
        Draws, each of shape ``(n_chains, n_draws, *shape)``: "components" of shape (K, n_features),
        "r" (K,), "gamma" (), and for the network "weights_1" (K, K_2), "biases_1" (K,), "weights_2"
        (K_2, K_3) and so on. Topics are aligned over draws and chains, together with their r,
        biases and rows of "weights_1". Unit indices above the lowest layer are arbitrary and do not
        correspond across chains.
    {n_chains_, n_draws_} {n_steps_} {step_size_}
    batch_size_ : int
        Number of documents in a minibatch.
    compiled_ : tuple of str
        Names of the accelerators used in the last call, such as ("documents", "belief_network"); ()
        if none.
    {not_compiled_} {sampling_threshold_} {device_}
    topic_word_prior_ : float
        Value of beta.
    {n_features_in_} {feature_names_in_}

    See Also
    --------
    LatentDirichletAllocation : Topics without a network and with equal r.
    skbayes_sgmcmc.document_completion_perplexity : Perplexity of the topics of any package.

    Notes
    -----
    Counts that are not whole numbers are accepted with a warning: a count c is treated as ceil(c)
    words of weight c / ceil(c). Documents without words are allowed; they have the proportions of
    the prior.

    :meth:`transform` computes proportions as :class:`LatentDirichletAllocation` does, with alpha_jk
    = r_k q_jk. Here q_jk is the probability that topic k is on in document j, under a mean-field
    approximation of the variables of the document.

    With ``step_size="auto"``, each parameter has its own unit of length. For a natural parameter,
    it is 1 / sqrt(mean count of its word per document). For the weights and biases of a unit, it is
    2 / sqrt(1 + half the number of units above it). For log r, it is 1 / sqrt(1 + a quarter of the
    number of words per document and topic).

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
    >>> rates = np.repeat([[4, 4, 0, 0], [0, 0, 4, 4]], 50, axis=0)
    >>> X = rng.poisson(rates)
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

    _checks = TopicModel._checks | {
        "doc_sweeps": partial(check_int, high=BOUNDS.count),
        "gamma_prior": check_scale_pair,
        "n_components": _check_layers,
    }
    _by_topic = ("r", "weights_1", "biases_1")
    _read_with_draws = ("success_probability",)

    n_components: int | Sequence[int] = (128, 64, 32)
    _: KW_ONLY
    success_probability: float | None = None
    r_rate: float = 1.0
    gamma_prior: tuple[float, float] = (1.0, 1.0)
    network_scale: float = 1.0
    doc_sweeps: int = 15

    def _sizes(self) -> tuple[int, ...]:
        """K, and the number of units of each layer above."""
        return check_sizes("n_components", self.n_components)

    def _n_topics(self) -> int:
        return self._sizes()[0]

    def _make_model(self, rows: KeptRows, *, first: bool) -> Any:
        from ..models.topics.belief import BeliefNetwork
        from ..models.topics.dpfa import DPFAModel

        sizes = self._sizes()
        network = None
        if len(sizes) > 1:
            network = BeliefNetwork(sizes, float(self.network_scale))
        e, f = self.gamma_prior
        return DPFAModel(
            self._parametrization(rows.x),
            self._frequency(rows.x),
            self.doc_sweeps,
            network,
            self.success_probability,
            float(self.r_rate),
            (float(e), float(f)),
            **self._options(),
        )

    def _set_attributes(self) -> None:
        super()._set_attributes()
        self.r_ = self.posterior_.mean("r")

    def _proportions(self, draw: Mapping[str, Array], X: Any) -> Array:
        from ..models.topics.dpfa import proportions

        topics = draw["components"].astype(X.dtype, copy=False)
        return proportions(dict(draw, components=topics), X, self.success_probability)
