r"""Latent Dirichlet allocation: SG-MCMC for topics, Gibbs sampling for documents' variables.

.. math::
    \phi_k \sim \mathrm{Dirichlet}(\beta),\quad \theta_d \sim \mathrm{Dirichlet}(\alpha),\quad
    z_{di} \sim \theta_d,\quad w_{di} \sim \phi_{z_{di}}

Only the topics have parameters. The gradient of a minibatch of documents is an expectation over
their topic assignments, which Gibbs sampling estimates at every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch
from ..._metric import State
from .completion import proportions
from .corpus import CorpusModel
from .documents import Tokens, topic_gradient
from .parametrizations import Parametrization


class LDAModel(CorpusModel):
    """Latent Dirichlet allocation of counts (documents, words).

    Parameters
    ----------
    parametrization, frequency, doc_sweeps, **options
        As in :class:`CorpusModel`.
    doc_topic_prior : float
        alpha, the Dirichlet parameter of the documents' proportions.

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

    def proportions(self, draw: Mapping[str, Array], X: Any) -> Array:
        return proportions(draw["components"], X, self.doc_topic_prior)

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
