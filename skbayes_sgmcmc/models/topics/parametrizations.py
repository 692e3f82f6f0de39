r"""Topics, distributions phi_k over words, as functions of unconstrained parameters theta.

Two parametrisations, each with the prior that it needs and the chain rule from the gradient in phi
to that in theta. Positions theta (chains, words * topics) are read as (chains, words, topics); what
a model keeps of a draw are the topics themselves, (topics, words).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._metric import DiagonalMetric, Metric

Array = NDArray[Any]

#: spread, on the scale of log phi, of the topics that chains start from
START_SPREAD = 0.5
#: smallest entry of a topic, so that no word is impossible, and of the expanded mean
LEAST = 1e-30


class Parametrization:
    """What both have in common; ``n_topics`` K and ``n_words`` V are sizes.

    Parameters
    ----------
    n_topics, n_words : int
        K and V.
    prior : GammaTopics or NormalTopics
        Of the parameters of each topic.
    """

    def __init__(self, n_topics: int, n_words: int, prior: TopicPrior):
        self.n_topics = n_topics
        self.n_words = n_words
        self.prior = prior

    def view(self, theta: Tensor) -> Tensor:
        return theta.view(len(theta), self.n_words, self.n_topics)

    def topics(self, theta: Tensor) -> Tensor:
        """The columns phi_k, (chains, words, topics)."""
        raise NotImplementedError

    def pull_back(
        self, theta: Tensor, topics: Tensor, gradient: Tensor, out: Tensor, scale: float
    ) -> None:
        """Out += scale * gradient in theta, for the gradient in the topics at ``theta``."""
        raise NotImplementedError

    def prior_gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        """Out = scale * grad(-log p(theta))."""
        raise NotImplementedError

    def start(self, frequency: Array, rng: np.random.Generator) -> Array:
        """Parameters (words * topics,) of noisy copies of the words' ``frequency`` (words,)."""
        share = (frequency + 1e-3 * frequency.mean()) / frequency.sum()
        noise = START_SPREAD * rng.standard_normal((self.n_words, self.n_topics))
        return self._from_log(np.log(share)[:, None] + noise).reshape(-1)

    def _from_log(self, log_topics: Array) -> Array:
        raise NotImplementedError

    def draws(self, draws: Array) -> Array:
        """Topics (..., topics, words) of parameters (..., words * topics)."""
        theta = torch.from_numpy(draws.reshape(-1, draws.shape[-1]))
        topics = np.empty((len(theta), self.n_topics, self.n_words), draws.dtype)
        for one, into in zip(theta, topics, strict=True):  # one at a time, to spare memory
            into[:] = self.topics(one[None])[0].t().numpy()
        return topics.reshape(*draws.shape[:-1], self.n_topics, self.n_words)


class ExpandedNatural(Parametrization):
    r"""Natural parameters: :math:`\phi_{kw} = e^{\theta_{kw}} / \sum_v e^{\theta_{kv}}`."""

    def topics(self, theta: Tensor) -> Tensor:
        return torch.softmax(self.view(theta), dim=1).clamp_(min=LEAST)

    def pull_back(
        self, theta: Tensor, topics: Tensor, gradient: Tensor, out: Tensor, scale: float
    ) -> None:
        counts = gradient.mul_(topics)  # expected: n_wk
        counts.addcmul_(topics, counts.sum(1, keepdim=True), value=-1.0)
        self.view(out).add_(counts, alpha=scale)

    def prior_gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        self.prior.natural_gradient(theta, out)
        out.mul_(scale)

    def _from_log(self, log_topics: Array) -> Array:
        return log_topics + self.prior.log_total(self.n_words)


class ExpandedMean(Parametrization):
    r"""Gamma variables: :math:`\phi_{kw} = |\theta_{kw}| / \sum_v |\theta_{kv}|`, of metric diag.

    References
    ----------
    Patterson & Teh (2013), Stochastic gradient Riemannian Langevin dynamics on the probability
    simplex.
    """

    def topics(self, theta: Tensor) -> Tensor:
        at = self.view(theta)
        return (at / at.sum(1, keepdim=True)).clamp_(min=LEAST)

    def pull_back(
        self, theta: Tensor, topics: Tensor, gradient: Tensor, out: Tensor, scale: float
    ) -> None:
        mean = (topics * gradient).sum(1, keepdim=True)
        total = self.view(theta).sum(1, keepdim=True)
        self.view(out).addcdiv_(gradient.sub_(mean), total, value=scale)

    def prior_gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        beta = self.prior.concentration
        torch.reciprocal(theta, out=out)
        out.mul_(scale * (1.0 - beta)).add_(scale)

    def metric(self, theta: Tensor) -> Metric:
        """M = diag(theta), whose divergence is one."""
        return DiagonalMetric(theta, torch.ones_like(theta))

    def project(self, theta: Tensor) -> None:
        """Reflect what has passed zero, in place."""
        theta.abs_().clamp_(min=LEAST)

    def _from_log(self, log_topics: Array) -> Array:
        return np.exp(log_topics + self.prior.log_total(self.n_words))


class TopicPrior:
    """A prior of a topic's parameters, the same for every word."""

    concentration: float = 1.0

    def natural_gradient(self, theta: Tensor, out: Tensor) -> None:
        """Out = grad(-log p(theta)) of natural parameters."""
        raise NotImplementedError

    def log_total(self, n_words: int) -> float:
        """Log of about what e^theta adds up to over the words of a topic."""
        raise NotImplementedError


class GammaTopics(TopicPrior):
    r"""e^theta ~ Gamma(concentration, 1), so that the topic is Dirichlet(concentration)."""

    def __init__(self, concentration: float):
        self.concentration = concentration

    def natural_gradient(self, theta: Tensor, out: Tensor) -> None:
        torch.exp(theta, out=out)
        out.sub_(self.concentration)

    def log_total(self, n_words: int) -> float:
        return float(np.log(self.concentration * n_words))


class NormalTopics(TopicPrior):
    """Theta ~ N(mean, sd^2): natural parameters only."""

    def __init__(self, mean: float, sd: float):
        self.mean = mean
        self.sd = sd

    def natural_gradient(self, theta: Tensor, out: Tensor) -> None:
        torch.sub(theta, self.mean, out=out)
        out.mul_(1.0 / self.sd**2)

    def log_total(self, n_words: int) -> float:
        return float(np.log(n_words) + self.mean + 0.5 * self.sd**2)


PARAMETRIZATIONS: dict[str, type[Parametrization]] = {
    "expanded_mean": ExpandedMean,
    "expanded_natural": ExpandedNatural,
}
