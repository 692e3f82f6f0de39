r"""Latent Dirichlet allocation: topics by SG-MCMC, the documents' variables by Gibbs sampling.

.. math::
    \phi_k \sim \mathrm{Dirichlet}(\beta),\quad \theta_d \sim \mathrm{Dirichlet}(\alpha),\quad
    z_{di} \sim \theta_d,\quad w_{di} \sim \phi_{z_{di}}

The parameters are the topics' alone: the gradient of a minibatch of documents is an expectation
over their assignments, of which a Gibbs sample is taken at every step.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch
from ..._metric import State
from .corpus import CorpusModel
from .documents import Tokens, topic_gradient
from .parametrizations import Parametrization

Array = NDArray[Any]


class LDAModel(CorpusModel):
    """Latent Dirichlet allocation of counts (documents, words).

    Parameters
    ----------
    parametrization : Parametrization
        Of the topics, with their prior.
    frequency : array of shape (n_words,)
        Times that each word occurs in a document, on average over some documents.
    doc_topic_prior : float
        alpha.
    doc_sweeps : int
        Gibbs sweeps over the documents of a minibatch.
    **options
        Those of :class:`CorpusModel`.

    References
    ----------
    Patterson & Teh (2013), Stochastic gradient Riemannian Langevin dynamics on the probability
    simplex. Li, Chen, Fan & Carin (2016), High-order stochastic gradient thermostats.
    """

    def __init__(
        self,
        parametrization: Parametrization,
        frequency: Array,
        doc_topic_prior: float,
        doc_sweeps: int,
        **options: Any,
    ):
        super().__init__(parametrization, frequency, doc_sweeps, **options)
        self.doc_topic_prior = doc_topic_prior

    def likelihood_gradient(
        self,
        theta: Tensor,
        batch: Batch,
        state: State,
        rng: ChainRandom,
        *,
        out: Tensor,
        scale: float,
    ) -> dict[str, Tensor]:
        topics = self.parametrization.topics(theta)
        gradient = topic_gradient(
            topics,
            Tokens.of(batch.fields["counts"], len(theta)),
            self.doc_topic_prior,
            self.doc_sweeps,
            rng,
            compiled=self.compiled,
        )
        self.parametrization.pull_back(theta, topics, gradient, out, -scale)
        return {}
