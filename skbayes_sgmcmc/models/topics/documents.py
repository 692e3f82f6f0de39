"""Topic assignments of documents given topics: Gibbs sampling, and a fixed point for predictions.

A document's tokens have topics z_i ~ theta_d and words ~ phi_z, with theta_d ~ Dirichlet(alpha).
Topics are tensors (words, topics), so that what is gathered for a word is contiguous. Nothing here
knows how topics are parametrised, or what their prior is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._data.chain_random import ChainRandom
from .._design import SparseBatch

#: words of a call's documents from which on the compiled kernels are worth their seconds
WORTH_WORDS = 5000
#: steps of the fixed point from which blocked Gibbs sampling starts
START_STEPS = 5
#: smallest weight of a topic that a document may have
LEAST_SHARE = 1e-8
#: less than this part of a token's weight is rounding of sums of weights
SOLE = 1e-3


@dataclass
class Tokens:
    """The words of some documents, one entry each, in the order of chains and documents.

    A count that is no whole number c is ceil(c) tokens of weight c / ceil(c).

    Attributes
    ----------
    row, word : Tensor of shape (n_tokens,)
        Document and word of each token, numbered through all chains.
    weight : Tensor of shape (n_tokens,)
        What it adds to counts.
    sizes : list of int
        Tokens of each chain.
    n_rows : int
        Documents of all chains.
    """

    row: Tensor
    word: Tensor
    weight: Tensor
    sizes: list[int]
    n_rows: int

    @classmethod
    def of(cls, batch: SparseBatch, n_chains: int) -> Tokens:
        """The tokens of a batch of counts: of each chain's own documents, or shared ones."""
        row, word, count, n_rows = batch.row, batch.column, batch.value[:, 0], batch.n_rows
        if batch.shared and n_chains > 1:
            chain = torch.arange(n_chains, device=row.device).repeat_interleave(len(row))
            row = row.repeat(n_chains) + chain * n_rows
            word = word.repeat(n_chains) + chain * batch.n_columns
            count, n_rows = count.repeat(n_chains), n_rows * n_chains
        repeats = count.ceil()
        times = repeats.long()
        row = row.repeat_interleave(times)
        ends = torch.arange(1, n_chains + 1, device=row.device) * (n_rows // n_chains)
        sizes = torch.searchsorted(row, ends).diff(prepend=ends.new_zeros(1)).tolist()
        weight = (count / repeats).repeat_interleave(times)
        return cls(row, word.repeat_interleave(times), weight, sizes, n_rows)


class Assignments:
    """The topics of tokens, Gibbs-sampled given topics, with the proportions integrated out.

    A topic is on in a document, with a Dirichlet parameter ``full``, or off, where it has no
    tokens; it is on with probability ``empty`` / ``full`` (documents of all chains, topics) if
    it has none, which is integrated out too where tokens are sampled one by one. In plain models
    topics are on everywhere, and the two are one.

    Parameters
    ----------
    topics : Tensor of shape (chains, words, topics)
        phi; columns sum to one, or to anything else.
    tokens : Tokens
        The documents' words.
    compiled : bool
        Sample tokens one by one by the compiled kernel (CPU); else all at once, in turns with the
        proportions.

    Attributes
    ----------
    n : Tensor of shape (documents of all chains, topics)
        Weight of the tokens of each topic.
    """

    def __init__(self, topics: Tensor, tokens: Tokens, *, compiled: bool):
        self.shape = topics.shape
        self.topics = topics.reshape(-1, topics.shape[2])
        self.tokens = tokens
        self.compiled = compiled
        self.n = self.topics.new_zeros(tokens.n_rows, topics.shape[2])
        if compiled:
            ends = torch.arange(tokens.n_rows + 1)
            self._z = torch.zeros(len(tokens.word), dtype=torch.int64)
            self._starts = torch.searchsorted(tokens.row, ends).numpy()
        else:
            self._likelihood = self.topics.index_select(0, tokens.word)

    def expected_counts(self, concentration: Tensor) -> Tensor:
        """Counts (documents, topics), were each token split as ``concentration`` times phi."""
        if not self.compiled:
            return _expected_counts(concentration, self._likelihood, self.tokens)
        from ..._kernels import documents

        word, weight = self.tokens.word.numpy(), self.tokens.weight.numpy()
        out = torch.empty_like(concentration)
        arrays = concentration.contiguous().numpy(), out.numpy()
        documents.expected_counts(self.topics.numpy(), self._starts, word, weight, *arrays)
        return out

    def begin(self, empty: Tensor, full: Tensor, n_sweeps: int, rng: ChainRandom) -> None:
        """Give every token a topic, and sweep over all of them so many times."""
        if not self.compiled:
            self.n.fill_(1.0)
            for _ in range(START_STEPS):
                self.n = _expected_counts(self.n + empty, self._likelihood, self.tokens)
        self._sweep(empty, full, n_sweeps + 1, rng, fresh=True)

    def sweep(self, empty: Tensor, full: Tensor, rng: ChainRandom) -> None:
        """Sample every token once more."""
        self._sweep(empty, full, 1, rng, fresh=False)

    def _sweep(
        self, empty: Tensor, full: Tensor, n_sweeps: int, rng: ChainRandom, *, fresh: bool
    ) -> None:
        if self.compiled:
            from ..._kernels import documents

            sizes = [size * n_sweeps for size in self.tokens.sizes]
            uniforms = rng.ragged_uniform(sizes, empty.dtype).view(-1, n_sweeps).numpy()
            documents.sweep(*self._arrays(empty, full), uniforms, fresh)
            return
        for _ in range(n_sweeps):
            alpha = full
            if empty is not full:
                n_chains = len(self.tokens.sizes)
                u = rng.uniform(len(full) // n_chains, full.shape[1], dtype=full.dtype)
                alpha = full * ((self.n > 0) | (u.view_as(full) * full < empty))
            self._z, self.n = blocked_sweep(self._likelihood, self.tokens, alpha, self.n, rng)

    def _arrays(self, empty: Tensor, full: Tensor) -> tuple[Any, ...]:
        """What both compiled functions take first."""
        word, weight = self.tokens.word, self.tokens.weight
        tensors = (word, weight, empty.contiguous(), full - empty, self._z, self.n)
        return self.topics.numpy(), self._starts, *(tensor.numpy() for tensor in tensors)

    def gradient(self, empty: Tensor, full: Tensor) -> Tensor:
        """Gradient of log p(tokens | topics) in the topics, (chains, words, topics).

        Entry (w, k) is sum_i p(z_i = k | ...) / phi_wk over the tokens of word w: the expected
        assignment of each token given the sample of all others of its document
        (Rao-Blackwellised).
        """
        out = torch.zeros_like(self.topics)
        if self.compiled:
            from ..._kernels import documents

            documents.add_expected(*self._arrays(empty, full), SOLE, out.numpy())
        else:
            self._add_expected(empty, full, out)
        return out.view(self.shape)

    def _add_expected(self, empty: Tensor, full: Tensor, out: Tensor) -> None:
        """Out += p(z_i = k | the others) / phi_wk times the weight of every token i."""
        tokens, z, n = self.tokens, self._z, self.n
        others = (n + torch.where(n > 0, full, empty)).index_select(0, tokens.row)
        at, K = tokens.row * n.shape[1] + z, n.shape[1]
        own, less = n.view(-1)[at], tokens.weight
        sole = own - less <= SOLE * less
        less = less + (full - empty).reshape(-1)[at] * sole
        others.view(-1).index_add_(0, torch.arange(len(z), device=z.device) * K + z, -less)
        others.clamp_(min=0.0)  # of rounding
        total = (others * self._likelihood).sum(1).clamp_(min=torch.finfo(n.dtype).tiny)
        out.index_add_(0, tokens.word, others.mul_((tokens.weight / total)[:, None]))


def topic_gradient(
    topics: Tensor,
    tokens: Tokens,
    alpha: float,
    n_sweeps: int,
    rng: ChainRandom,
    *,
    compiled: bool,
) -> Tensor:
    """Gradient of log p(tokens | topics) with equal Dirichlet parameters, in the topics.

    Parameters
    ----------
    topics : Tensor of shape (chains, words, topics)
        phi.
    tokens : Tokens
        The documents' words.
    alpha : float
        Dirichlet parameter of the documents' proportions.
    n_sweeps : int
        Gibbs sweeps over every document, after the one that begins.
    rng : ChainRandom
        Random numbers.
    compiled : bool
        As :class:`Assignments` has it.

    Returns
    -------
    Tensor of shape (chains, words, topics)
    """
    assignments = Assignments(topics, tokens, compiled=compiled)
    equal = torch.full_like(assignments.n, alpha)
    assignments.begin(equal, equal, n_sweeps, rng)
    return assignments.gradient(equal, equal)


def blocked_sweep(
    likelihood: Tensor, tokens: Tokens, alpha: Tensor | float, n: Tensor, rng: ChainRandom
) -> tuple[Tensor, Tensor]:
    """Proportions given counts ``n`` (documents, topics), and all assignments given these.

    ``likelihood`` (tokens, topics) is of each token's word. Returns assignments and counts.
    """
    n_topics = n.shape[1]
    concentration = n + alpha
    proportions = rng.gamma(concentration.view(len(tokens.sizes), -1, n_topics)).view_as(n)
    # what has no chance stays without: torch's Gamma(0) is its smallest number
    proportions.clamp_(min=LEAST_SHARE).mul_(concentration > 0)
    cumulative = likelihood.mul(proportions.index_select(0, tokens.row)).cumsum_(1)
    u = rng.ragged_uniform(tokens.sizes, n.dtype) * cumulative[:, -1]
    z = (cumulative <= u[:, None]).sum(1).clamp_(max=n_topics - 1)
    n = torch.zeros_like(n)
    n.view(-1).index_add_(0, tokens.row * n_topics + z, tokens.weight)
    return z, n


def _expected_counts(concentration: Tensor, likelihood: Tensor, tokens: Tokens) -> Tensor:
    """Counts (documents, topics), were each token split as ``concentration`` times likelihood."""
    share = likelihood * concentration.index_select(0, tokens.row)
    share.mul_((tokens.weight / share.sum(1))[:, None])
    return torch.zeros_like(concentration).index_add_(0, tokens.row, share)


# predictions --------------------------------------------------------------------------------------


def fixed_point(
    topics: Tensor, counts: Any, alpha: float | Callable[[Tensor], Tensor], n_steps: int
) -> Tensor:
    """Expected topic counts n (documents, topics) of documents, row by row and without noise.

    Repeats n_dk = sum_w x_dw r_dwk with r_dwk ~ (n_dk + alpha_dk) phi_wk, from no counts.

    Parameters
    ----------
    topics : Tensor of shape (words, topics)
        phi.
    counts : CSR matrix (documents, words)
        x.
    alpha : float or callable
        Dirichlet parameter, or ``alpha(n)``, which returns one for each document and topic.
    n_steps : int
        Repetitions.
    """
    counts = counts.tocsr()
    lengths = torch.from_numpy(np.diff(counts.indptr).astype(np.int64))
    row = torch.arange(counts.shape[0]).repeat_interleave(lengths)
    count = torch.from_numpy(np.asarray(counts.data)).to(topics)
    likelihood = topics.index_select(0, torch.from_numpy(counts.indices.astype(np.int64)))
    n = topics.new_zeros(counts.shape[0], topics.shape[1])
    for _ in range(n_steps):
        concentration = n + (alpha(n) if callable(alpha) else alpha)
        share = concentration.index_select(0, row).mul_(likelihood)
        share.mul_((count / share.sum(1).clamp_(min=torch.finfo(topics.dtype).tiny))[:, None])
        n = torch.zeros_like(n).index_add_(0, row, share)
    return n
