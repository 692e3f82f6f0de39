r"""Deep Poisson factor analysis: word counts under a deep network of binary units.

.. math::
    x_{wj} &\sim \mathrm{Poisson}(\textstyle\sum_k \phi_{wk} \theta_{kj}), \qquad
    \theta_{kj} \sim \mathrm{Gamma}(r_k h^1_{kj},\ \mathrm{scale}\ p_j / (1 - p_j)),\\
    P(h^l_k = 1 \mid h^{l+1}) &= \sigma(w^l_k \cdot h^{l+1} + c^l_k), \qquad
    r_k \sim \mathrm{Gamma}(\gamma_0, \mathrm{rate}\ c_0), \qquad
    \gamma_0 \sim \mathrm{Gamma}(e_0, \mathrm{rate}\ f_0)

Topics phi_k sum to one. With theta integrated out, the number n_kj of words of topic k is therefore
negative binomial, NB(r_k h^1_kj, p_j), and the topics of tokens are those of a document with
Dirichlet parameters r_k h^1_kj. The parameters are those of the topics and of the network, log r
and log gamma_0. Densities are in these coordinates, so log r has the density r^gamma_0 e^(-c_0 r),
with the power gamma_0 instead of gamma_0 - 1.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch
from ..._metric import DiagonalMetric, Metric, State
from .._protocol import named_blocks
from .belief import BeliefNetwork
from .completion import STEPS
from .corpus import CorpusModel
from .documents import REPEATED_STEPS, Assignments, Tokens, fixed_point
from .parametrizations import Parametrization


@dataclass
class Locals:
    """A Gibbs sample of the variables of some documents."""

    #: topics of the tokens
    assignments: Assignments
    #: Dirichlet parameters of the assignments, (documents of all chains, topics)
    empty: Tensor
    full: Tensor
    #: counts of the tokens of each topic, (chains, documents, topics)
    n: Tensor
    #: units (chains, documents, units) of the network, the lowest layer first; empty without one
    layers: list[Tensor]
    #: conditional probabilities that the units are on, (chains, documents, units)
    probabilities: list[Tensor]
    #: log(1 - p_j), which broadcasts against n
    log_miss: Tensor


class DPFAModel(CorpusModel):
    """Deep Poisson factor analysis of counts (documents, words).

    Parameters
    ----------
    parametrization, frequency, doc_sweeps, **options
        As in :class:`CorpusModel`.
    network : BeliefNetwork or None
        Network of the units h. None means that all topics are on in all documents.
    success : float or None
        p of all documents. With None, every document has its own p_j, uniform on (0, 1).
    r_rate : float, default=1.0
        c_0.
    gamma_prior : tuple of float, default=(1.0, 1.0)
        e_0 and f_0.

    References
    ----------
    Gan, Chen, Henao, Carlson & Carin (2015), Scalable deep Poisson factor analysis for topic
    modeling. Li, Chen, Fan & Carin (2016), High-order stochastic gradient thermostats.
    """

    least_burn_in = 1500

    def __init__(
        self,
        parametrization: Parametrization,
        frequency: Array,
        doc_sweeps: int,
        network: BeliefNetwork | None,
        success: float | None,
        r_rate: float = 1.0,
        gamma_prior: tuple[float, float] = (1.0, 1.0),
        **options: Any,
    ):
        super().__init__(parametrization, frequency, doc_sweeps, **options)
        self.network = network
        self.success = success
        self.r_rate = r_rate
        self.gamma_prior = gamma_prior
        if network is not None:
            self.shapes |= network.shapes
            self.kernels = ("documents", "belief_network")
        self.shapes |= {"log_r": (parametrization.n_topics,), "log_gamma": ()}
        if self.metric is not None:
            self.metric, self.project = self._metric, self._project

    def with_kernel(self, name: str) -> Self:
        if name != "belief_network":
            return super().with_kernel(name)
        compiled, network = copy.copy(self), copy.copy(self.network)
        assert network is not None
        network.compiled, compiled.network = True, network
        return compiled

    def _blocks(self, theta: Tensor) -> dict[str, Tensor]:
        """Views (chains, *shape) of every block of theta; the block of topics remains flat."""
        return {
            name: theta[:, place].view(
                len(theta), *(self.shapes[name] if name != "theta" else [-1])
            )
            for name, place in self.places().items()
        }

    def proportions(self, draw: Mapping[str, Array], X: Any) -> Array:
        return proportions(draw, X, self.success)

    # where chains start, and their units --------------------------------------------------------

    def init(self, rng: np.random.Generator) -> Array:
        K = self.parametrization.n_topics
        on = 1.0 if self.network is None else 0.5
        r = 0.1
        if self.success is not None:  # gives the mean number of words of a document
            r = self.frequency.sum() * (1.0 - self.success) / self.success / (K * on)
        parts: dict[str, Any] = {"theta": super().init(rng), "log_gamma": 0.0}
        parts["log_r"] = np.full(K, np.log(r))
        if self.network is not None:
            parts |= self.network.start(rng)
        return np.concatenate([np.ravel(parts[name]) for name in self.shapes])

    def scales(self) -> Array | None:
        topics = super().scales()
        return None if topics is None else np.concatenate([topics, self._other_scales()])

    def _other_scales(self) -> Array:
        """1 / sqrt(bound on the mean potential's curvature), for all parameters except topics.

        The bound for log r is one, or more if topics have many words in a document. It is not
        larger because p_j absorbs much of the information of the counts about r.
        """
        words = self.frequency.sum() / self.parametrization.n_topics
        curvature = {"log_r": 1.0 + 0.25 * words, "log_gamma": 1.0}
        if self.network is not None:
            curvature |= self.network.curvatures()
        return np.concatenate(
            [
                np.full(int(np.prod(shape)), curvature[name] ** -0.5)
                for name, shape in self.shapes.items()
                if name != "theta"
            ]
        )

    def _metric(self, theta: Tensor) -> Metric:
        """The metric of the expanded mean, with a constant metric for the other parameters.

        The constant metric is scaled so that one step size suits all parameters.
        """
        place = self.places()["theta"]
        inner = self.parametrization.metric(theta[:, place])  # type: ignore[attr-defined]
        constant = torch.from_numpy(self._other_scales() ** 2 / self.unit()).to(theta)
        m = torch.cat([inner.m, constant.expand(len(theta), -1)], 1)
        divergence = torch.zeros_like(m)
        divergence[:, place] = inner.divergence
        return DiagonalMetric(m, divergence)

    def _project(self, theta: Tensor) -> None:
        self.parametrization.project(theta[:, self.places()["theta"]])  # type: ignore[attr-defined]

    def prior_curvature(self) -> float:
        """The curvature of log gamma_0, about K; the data inform gamma_0 only through r."""
        return float(self.parametrization.n_topics)

    # gradients ----------------------------------------------------------------------------------

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        at, to = self._blocks(theta), self._blocks(out)
        self.parametrization.prior_gradient(at["theta"], to["theta"], scale)
        if self.network is not None:
            for name in self.network.shapes:
                torch.mul(at[name], scale / self.network.scale**2, out=to[name])
        log_r, gamma = at["log_r"], at["log_gamma"].exp()
        to["log_r"].copy_((self.r_rate * log_r.exp() - gamma[:, None]) * scale)
        each = log_r.sum(1) + log_r.shape[1] * (np.log(self.r_rate) - torch.digamma(gamma))
        e, f = self.gamma_prior
        to["log_gamma"].copy_((f * gamma - e - gamma * each) * scale)

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
        at, to = self._blocks(theta), self._blocks(out)
        topics = self.parametrization.topics(at["theta"])
        r = at["log_r"].exp().clamp_(min=1e-6)[:, None]  # of topics that no document has
        tokens = Tokens.of(batch.fields["counts"], len(theta))
        found = self.sample_locals(topics, tokens, r, at, rng)
        gradient = found.assignments.gradient(found.empty, found.full)
        self.parametrization.pull_back(at["theta"], topics, gradient, to["theta"], -scale)
        # derivatives of log Gamma(n + r) / Gamma(r) if a topic has words, and of r log(1 - p) if it
        # may be on
        digammas = torch.digamma(found.n + r).sub_(torch.digamma(r)).mul_(found.n > 0)
        missed = found.log_miss
        if self.network is not None:
            missed = missed * found.probabilities[0]
        slope = (digammas + missed).sum(1) * r[:, 0]
        to["log_r"].add_(slope, alpha=-scale)
        if self.network is not None:
            for layer, probability in enumerate(found.probabilities):
                self.network.add_gradient(at, layer, found.layers, probability, to, -scale)
        return {}

    def sample_locals(
        self,
        topics: Tensor,
        tokens: Tokens,
        r: Tensor,
        parameters: Mapping[str, Tensor],
        rng: ChainRandom,
    ) -> Locals:
        """Gibbs sampling of the documents' variables, with theta integrated out.

        The sampling starts from a mean field. A sweep samples, in this order: the layers from the
        top to the second, in the last fifth of the sweeps; p_j; the topics of the tokens, with the
        lowest layer integrated out; and the lowest layer.
        """
        net, n_chains = self.network, len(r)
        shape = (n_chains, tokens.n_rows // n_chains, r.shape[2])
        full = empty = r.expand(shape).flatten(0, 1)
        words = tokens.lengths()
        assignments = Assignments(topics, tokens, compiled=self.compiled)
        field = MeanField(net, parameters, r, self.success)
        n = words[:, None].expand(-1, shape[2]) / shape[2]
        for _ in range(10 if tokens.repeated is None else REPEATED_STEPS):
            n = assignments.expected_counts(n + field(n.view(shape)).flatten(0, 1))
        assignments.begin(n + field(n.view(shape)).flatten(0, 1), rng)
        layers = [] if net is None else net.draw_layers(parameters, shape[1], rng)
        probabilities = list(layers)
        on = topics.new_ones(shape)
        shallow = self.doc_sweeps - int(np.ceil(0.2 * self.doc_sweeps))
        for sweep in range(self.doc_sweeps):
            if net is not None:
                on = layers[0]
                if sweep >= shallow:
                    for layer in range(net.top, 0, -1):
                        probabilities[layer] = net.sample_layer(parameters, layer, layers, rng)
            log_miss = self._log_miss(words.view(*shape[:2], 1), r * on, rng)
            if net is not None:
                q = torch.sigmoid(net.activation(parameters, 0, layers[1]) + r * log_miss)
                empty = (r * q).flatten(0, 1)
            assignments.sweep(empty, full, rng)
            n = assignments.n.view(shape)
            if net is not None:
                probabilities[0] = q.masked_fill_(n > 0, 1.0)
                u = rng.uniform(*shape[1:], dtype=n.dtype)
                layers[0] = (u < q).to(n.dtype)
        return Locals(assignments, empty, full, n, layers, probabilities, log_miss)

    def _log_miss(self, words: Tensor, concentration: Tensor, rng: ChainRandom) -> Tensor:
        """log(1 - p) for a given p, or for p_j sampled from Beta(1 + words, 1 + sum_k r_k h_kj)."""
        if self.success is not None:
            return words.new_full((1, 1, 1), float(np.log1p(-self.success)))
        parts = torch.cat([words, concentration.sum(2, keepdim=True)], 2)
        hit, miss = rng.gamma(1.0 + parts).split(1, 2)
        return torch.log(miss / (hit + miss))

    # draws --------------------------------------------------------------------------------------

    def unpack(self, draws: Array) -> dict[str, Array]:
        others = named_blocks(draws, self.shapes)
        parts = super().unpack(others.pop("theta").reshape(*draws.shape[:-1], -1)) | others
        for name in ("r", "gamma"):
            parts[name] = np.exp(parts.pop(f"log_{name}"))
        return parts


class MeanField:
    """Mean field: Dirichlet parameters r_k q_k of documents, given expected counts n of topics.

    A unit of the lowest layer is on with probability
    q_k = 1 - e^(-n_k) (1 - sigmoid(a_k + r_k log(1 - p))). A topic with words is on, and e^(-n_k)
    approximates the probability that the topic has no words. Units of the layers above have little
    effect here, and are replaced by their prior means.

    The network of the units, if there is one, has parameters (chains, *shape); r is (chains, 1,
    topics). ``success`` is p of all documents. With None, every document has its own p_j, which is
    integrated out.
    """

    def __init__(
        self,
        network: BeliefNetwork | None,
        parameters: Mapping[str, Tensor],
        r: Tensor,
        success: float | None,
    ):
        self.r = r
        self.success = success
        self.log_odds, self.q = None, None
        if network is not None:
            self.log_odds = network.mean_log_odds(parameters)
            self.q = torch.sigmoid(self.log_odds)

    def __call__(self, n: Tensor) -> Tensor:
        """Dirichlet parameters (chains, documents, topics), given counts n of the same shape."""
        if self.q is None or self.log_odds is None:
            return self.r.expand_as(n)
        rate = (self.r * self.q).sum(2, keepdim=True)
        if self.success is None:
            words = n.sum(2, keepdim=True)
            log_miss = torch.digamma(1.0 + rate) - torch.digamma(2.0 + rate + words)
        else:
            log_miss = torch.full_like(rate, float(np.log1p(-self.success)))
        self.q = 1.0 - torch.exp(-n) * torch.sigmoid(-(self.log_odds + self.r * log_miss))
        return self.r * self.q


def proportions(
    draw: Mapping[str, Array], X: Any, success: float | None, n_steps: int = STEPS
) -> Array:
    """Expected proportions (documents, topics) of counts X given one draw of the parameters.

    They are n_k + r_k q_k, normalised, at the fixed point of the counts n and of a
    :class:`MeanField` with this ``success``. Documents do not influence each other. The draw has
    "components" (topics, words), "r" (topics,) and a network's "weights_l" and "biases_l".
    """
    topics = torch.from_numpy(np.ascontiguousarray(draw["components"].T))
    depth = sum(name.startswith("biases") for name in draw)
    network = None
    if depth:
        sizes = [len(draw[f"biases_{layer}"]) for layer in range(1, depth + 1)]
        network = BeliefNetwork(sizes, 1.0)
    parameters = {
        name: torch.from_numpy(np.array(values))[None].to(topics) for name, values in draw.items()
    }
    field = MeanField(network, parameters, parameters["r"][:, None], success)
    n = fixed_point(topics, X, lambda n: field(n[None])[0], n_steps)
    theta = n + field(n[None])[0]
    return np.asarray((theta / theta.sum(1, keepdim=True)).numpy())
