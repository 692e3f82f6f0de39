r"""Topics, which are distributions phi_k over words, as functions of parameters theta.

There are two parametrisations. Each has its prior, and the chain rule that converts the gradient in
phi to the gradient in theta. Positions theta (chains, words * topics) are viewed as
(chains, words, topics). Draws are stored as the topics themselves, (topics, words).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._metric import DiagonalMetric, Metric

#: sd, on the scale of log phi, of the noise in the initial topics of chains
START_SPREAD = 0.5
#: smallest entry of a topic and of the expanded mean, so that no word is impossible
LEAST = 1e-30


class Parametrization:
    """Base class of parametrisations of K topics over V words, with a prior of each topic.

    This is a :class:`GammaTopics` or, for natural parameters, a :class:`NormalTopics`.
    """

    def __init__(self, n_topics: int, n_words: int, prior: Any):
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
        """Add scale * gradient in theta to ``out``, given the gradient in the topics."""
        raise NotImplementedError

    def prior_gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        """Write scale * grad(-log p(theta)) to ``out``."""
        raise NotImplementedError

    def start(self, frequency: Array, rng: np.random.Generator) -> Array:
        """Starting parameters (words * topics,): topics are noisy copies of ``frequency``."""
        share = (frequency + 1e-3 * frequency.mean()) / frequency.sum()
        noise = START_SPREAD * rng.standard_normal((self.n_words, self.n_topics))
        return self._from_log(np.log(share)[:, None] + noise).reshape(-1)

    def _from_log(self, log_topics: Array) -> Array:
        return np.asarray(log_topics + self.prior.log_total(self.n_words))

    def draws(self, draws: Array) -> Array:
        """Topics (..., topics, words) for parameters (..., words * topics)."""
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
        counts = gradient.mul_(topics)  # the expected counts n_wk
        counts.addcmul_(topics, counts.sum(1, keepdim=True), value=-1.0)
        self.view(out).add_(counts, alpha=scale)

    def prior_gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        self.prior.natural_gradient(theta, out)
        out.mul_(scale)


class ExpandedMean(Parametrization):
    r"""Gamma variables :math:`\phi_{kw} = |\theta_{kw}| / \sum_v |\theta_{kv}|`, diagonal metric.

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
        """The metric M = diag(theta), with the divergence one."""
        return DiagonalMetric(theta, torch.ones_like(theta))

    def project(self, theta: Tensor) -> None:
        """Reflect negative parameters at zero, in place."""
        theta.abs_().clamp_(min=LEAST)

    def _from_log(self, log_topics: Array) -> Array:
        return np.exp(super()._from_log(log_topics))


class NormalTopics:
    """Prior theta ~ N(mean, sd^2) of a topic's natural parameters, the same for every word.

    ``natural_gradient`` writes grad(-log p(theta)) to ``out``, and ``log_total`` is about the
    logarithm of the sum of e^theta over the words of a topic.
    """

    def __init__(self, mean: float, sd: float):
        self.mean = mean
        self.sd = sd

    def natural_gradient(self, theta: Tensor, out: Tensor) -> None:
        torch.sub(theta, self.mean, out=out)
        out.mul_(1.0 / self.sd**2)

    def log_total(self, n_words: int) -> float:
        return float(np.log(n_words) + self.mean + 0.5 * self.sd**2)


class GammaTopics:
    r"""Prior e^theta ~ Gamma(concentration, 1); the topic is then Dirichlet(concentration)."""

    def __init__(self, concentration: float):
        self.concentration = concentration

    def natural_gradient(self, theta: Tensor, out: Tensor) -> None:
        torch.exp(theta, out=out)
        out.sub_(self.concentration)

    def log_total(self, n_words: int) -> float:
        return float(np.log(self.concentration * n_words))


PARAMETRIZATIONS: dict[str, type[Parametrization]] = {
    "expanded_mean": ExpandedMean,
    "expanded_natural": ExpandedNatural,
}
