"""Gibbs sampling of latent Dirichlet allocation on a whole corpus, as a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..designs.design import SparseDesign
from .documents import Tokens, blocked_sweep, draw_proportions


class GibbsChain:
    """One chain of topic assignments z of all tokens of counts X, which start at random.

    alpha and beta are the Dirichlet parameters of documents and topics. If ``compiled``, the
    compiled kernel does collapsed sampling, token by token. Otherwise topics and proportions are
    sampled too, and then all assignments at once. This is exact as well, but mixes more slowly.
    Words with many tokens in a document are sampled in this way in any case.
    """

    def __init__(
        self,
        X: Any,
        n_topics: int,
        alpha: float,
        beta: float,
        seed: np.random.SeedSequence,
        *,
        compiled: bool,
    ):
        design = SparseDesign(sp.csr_matrix(X), torch.float64, "cpu")
        self.tokens = Tokens.of(design.whole(), 1)
        self.shape = (X.shape[0], X.shape[1], n_topics)
        self.alpha, self.beta, self.compiled = alpha, beta, compiled
        self.random = ChainRandom([seed])
        self.rng = self.random.rows[0]
        self.rows, self.words = self.tokens.row.numpy(), self.tokens.word.numpy()
        self.weights = self.tokens.weight.numpy()
        self._count(self.rng.integers(n_topics, size=len(self.rows)))
        if self.tokens.repeated is not None:
            equal = torch.ones(X.shape[0], n_topics, dtype=torch.float64, device="cpu")
            self._sample_repeated(np.ones((n_topics, X.shape[1])), equal)

    def _count(self, z: Array, numbers: Array | None = None) -> None:
        """Count the tokens of topics z, and ``numbers`` of those of words with many tokens."""
        n_rows, n_words, n_topics = self.shape
        self.z, self.numbers = z, numbers
        self.n_dk, self.n_wk = np.zeros((n_rows, n_topics)), np.zeros((n_words, n_topics))
        np.add.at(self.n_dk, (self.rows, z), self.weights)
        np.add.at(self.n_wk, (self.words, z), self.weights)
        many = self.tokens.repeated
        if many is not None and numbers is not None:
            weights = numbers * many.weight.numpy()[:, None]
            np.add.at(self.n_dk, many.row.numpy(), weights)
            np.add.at(self.n_wk, many.word.numpy(), weights)
        self.n_k = self.n_wk.sum(0)

    def _sample_repeated(self, topics: Array, proportions: Tensor) -> None:
        """Sample the topics of words with many tokens, given topics and proportions."""
        many = self.tokens.repeated
        assert many is not None
        likelihood = torch.from_numpy(topics.T[many.word.numpy()])
        numbers = many.draw(likelihood, proportions, self.random)
        self._count(self.z, numbers.numpy())

    def run(self, n_sweeps: int) -> None:
        """Take ``n_sweeps`` sweeps over all tokens."""
        for _ in range(n_sweeps):
            if self.compiled:
                from ..._kernels.documents import collapsed_sweeps

                tokens = (self.rows, self.words, self.weights, self.z)
                counts = (self.n_dk, self.n_wk, self.n_k)
                u = self.rng.random((1, len(self.z)))
                collapsed_sweeps(*tokens, *counts, self.alpha, self.beta, u)
            else:
                likelihood = torch.from_numpy(self.topics().T[self.words])
                n = torch.from_numpy(self.n_dk)
                z, _ = blocked_sweep(likelihood, self.tokens, n + self.alpha, self.random)
                self._count(z.numpy(), self.numbers)
            if self.tokens.repeated is not None:
                n = torch.from_numpy(self.n_dk)
                proportions = draw_proportions(n + self.alpha, 1, self.random)
                self._sample_repeated(self.topics(), proportions)

    def topics(self) -> Array:
        """A draw of the topics (n_topics, n_words) given the assignments."""
        gammas = self.rng.standard_gamma(self.n_wk.T + self.beta)
        return gammas / gammas.sum(1, keepdims=True)


def gibbs_draws(
    X: Any,
    n_topics: int,
    alpha: float,
    beta: float,
    seeds: Sequence[np.random.SeedSequence],
    *,
    burn_in: int,
    n_draws: int,
    thinning: int,
    compiled: bool,
    on_sweep: Callable[[int], None] = lambda done: None,
) -> Array:
    """Draws of the topics, (chains, n_draws, n_topics, n_words).

    ``burn_in`` and ``thinning`` are in sweeps; ``on_sweep`` gets the number of sweeps so far.
    """
    done = count(1)
    draws = np.empty((len(seeds), n_draws, n_topics, X.shape[1]))
    for into, seed in zip(draws, seeds, strict=True):
        chain = GibbsChain(X, n_topics, alpha, beta, seed, compiled=compiled)
        for kept, n_sweeps in enumerate([burn_in, *[thinning] * n_draws]):
            for _ in range(n_sweeps):
                chain.run(1)
                on_sweep(next(done))
            if kept:
                into[kept - 1] = chain.topics()
    return draws
