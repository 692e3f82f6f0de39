"""Topic assignments of documents given topics: Gibbs sampling, and a fixed point for predictions.

The tokens of a document have topics z_i ~ theta_d and words ~ phi_z, with theta_d ~
Dirichlet(alpha). Topics are tensors (words, topics), so that the numbers of one word are
contiguous. This module does not depend on the parametrisation or the prior of topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._data.chain_random import ChainRandom
from ..._limits import LIMITS
from .._sums import add_at
from ..designs.batches import SparseBatch
from .repeated import Repeated

#: number of fixed-point steps before Gibbs sampling starts; many tokens of one word move slowly, so
#: that words with many need more
START_STEPS, REPEATED_STEPS = 5, 20
#: remaining weight, relative to a token's weight, below which it is a rounding error
SOLE = 1e-3


@dataclass
class Tokens:
    """The tokens (occurrences of words) of some documents, in the order of chains and documents.

    A count c that is not a whole number stands for ceil(c) tokens of weight c / ceil(c). Words with
    more than ``LIMITS.tokens`` tokens in a document are kept as such, without a topic for each.
    """

    #: document and word of each token, numbered consecutively over all chains, (n_tokens,)
    row: Tensor
    word: Tensor
    #: contribution of each token to counts, (n_tokens,)
    weight: Tensor
    #: number of tokens of each chain
    sizes: list[int]
    #: number of documents of all chains
    n_rows: int
    #: words with more tokens; None if there are none
    repeated: Repeated | None = None

    @classmethod
    def of(cls, batch: SparseBatch, n_chains: int) -> Tokens:
        """The tokens of a batch of counts; the chains may share its documents."""
        (row, word, count), n_rows = batch.triplets(), batch.n_rows
        if batch.shared and n_chains > 1:
            chain = torch.arange(n_chains, device=row.device).repeat_interleave(len(row))
            row = row.repeat(n_chains) + chain * n_rows
            word = word.repeat(n_chains) + chain * batch.n_columns
            count, n_rows = count.repeat(n_chains), n_rows * n_chains
        repeats = count.ceil()
        times, weight = repeats.long(), count / repeats
        ends = torch.arange(1, n_chains + 1, device=row.device) * (n_rows // n_chains)

        def sizes(rows: Tensor) -> list[int]:
            return torch.searchsorted(rows, ends).diff(prepend=ends.new_zeros(1)).tolist()

        repeated, many = None, times > LIMITS.tokens
        if many.any():
            of = row[many]
            repeated = Repeated(of, word[many], times[many], weight[many], sizes(of))
            times = times.masked_fill(many, 0)
        row = row.repeat_interleave(times)
        word, weight = word.repeat_interleave(times), weight.repeat_interleave(times)
        return cls(row, word, weight, sizes(row), n_rows, repeated)

    def lengths(self) -> Tensor:
        """Total weight of the tokens of each document."""
        out = add_at(self.weight.new_zeros(self.n_rows), self.row, self.weight)
        if self.repeated is not None:
            add_at(out, self.repeated.row, self.repeated.total)
        return out


class Assignments:
    """Topic assignments of tokens, sampled by Gibbs sampling given the topics.

    The proportions of topics in a document are integrated out. In a document, a topic is either on,
    with the Dirichlet parameter ``full``, or off, and then has no tokens. A topic without tokens is
    on with probability ``empty`` / ``full``, and has the expected Dirichlet parameter ``empty``.
    Both have shape (documents of all chains, topics). In models without such units, all topics are
    on and ``empty`` is ``full``.

    Parameters
    ----------
    topics : Tensor of shape (chains, words, topics)
        phi. Columns need not sum to one.
    tokens : Tokens
        Tokens of the documents.
    compiled : bool
        Whether the compiled kernel samples tokens one by one (CPU). Otherwise all tokens are
        sampled at once, alternating with the proportions and with whether topics are on. Words with
        many tokens are sampled in this way in any case.
    """

    def __init__(self, topics: Tensor, tokens: Tokens, *, compiled: bool):
        self.shape = topics.shape
        self.topics = topics.reshape(-1, topics.shape[2])
        self.tokens = tokens
        self.compiled = compiled
        #: total weight of the tokens of each topic, (documents of all chains, topics)
        self.n = self.topics.new_zeros(tokens.n_rows, topics.shape[2])
        self._base = torch.zeros_like(self.n)  # the part of n of words with many tokens
        if tokens.repeated is not None:
            self._of_repeated = self.topics.index_select(0, tokens.repeated.word)
        if compiled:
            ends = torch.arange(tokens.n_rows + 1, device="cpu")
            self._z = torch.zeros(len(tokens.word), dtype=torch.int64, device="cpu")
            self._starts = torch.searchsorted(tokens.row, ends).numpy()
        else:
            self._likelihood = self.topics.index_select(0, tokens.word)

    def expected_counts(self, concentration: Tensor) -> Tensor:
        """Counts (documents, topics) if tokens are split in proportion to concentration * phi."""
        if not self.compiled:
            weights = self.tokens.row, self.tokens.weight
            out = _expected_counts(concentration, self._likelihood, *weights)
        else:
            from ..._kernels import documents

            word, weight = self.tokens.word.numpy(), self.tokens.weight.numpy()
            out = torch.empty_like(concentration)
            arrays = concentration.contiguous().numpy(), out.numpy()
            documents.expected_counts(self.topics.numpy(), self._starts, word, weight, *arrays)
        many = self.tokens.repeated
        if many is not None:
            out += _expected_counts(concentration, self._of_repeated, many.row, many.total)
        return out

    def begin(self, concentration: Tensor, rng: ChainRandom) -> None:
        """Give every token a topic.

        ``concentration`` (documents, topics) is the sum of expected counts of the tokens and of
        Dirichlet parameters. The compiled kernel goes from token to token. It counts those that
        have topics already, and ``concentration`` has little weight beside them: tokens drawn
        without regard to each other spread over more topics than documents have. Otherwise all
        tokens are drawn at once, given proportions.
        """
        if self.tokens.repeated is not None:
            self._draw_repeated(concentration, rng)
        self.n = self._base.clone()
        if self.compiled:
            start = 0.1 * concentration
            self._sweep_compiled(start, start, 1, rng, fresh=True)
        else:
            self._sweep_blocked(concentration, rng)

    def sweep(self, empty: Tensor, full: Tensor, rng: ChainRandom, n_sweeps: int = 1) -> None:
        """Sample the topic of every token once more, or several times."""
        many = self.tokens.repeated is not None
        if self.compiled and not many and n_sweeps:
            self._sweep_compiled(empty, full, n_sweeps, rng)
            return
        for _ in range(n_sweeps):
            if self.compiled:
                self._sweep_compiled(empty, full, 1, rng)
            else:
                self._sweep_blocked(self.n + self._parameters(empty, full, rng), rng)
            if many:
                self._draw_repeated(self.n + self._parameters(empty, full, rng), rng)
                self.n = _counted(self._z, self.tokens, self.n) + self._base

    def _sweep_compiled(
        self, empty: Tensor, full: Tensor, n_sweeps: int, rng: ChainRandom, *, fresh: bool = False
    ) -> None:
        from ..._kernels import documents

        sizes = [size * n_sweeps for size in self.tokens.sizes]
        uniforms = rng.ragged_uniform(sizes, empty.dtype).view(-1, n_sweeps).numpy()
        few = self.topics.shape[1] <= LIMITS.few_topics
        documents.sweep(*self._arrays(empty, full), self._base.numpy(), uniforms, fresh, few)

    def _sweep_blocked(self, concentration: Tensor, rng: ChainRandom) -> None:
        self._z, n = blocked_sweep(self._likelihood, self.tokens, concentration, rng)
        self.n = n + self._base

    def _draw_repeated(self, concentration: Tensor, rng: ChainRandom) -> None:
        """Sample the topics of words with many tokens, given all counts and parameters."""
        many = self.tokens.repeated
        assert many is not None
        proportions = draw_proportions(concentration, len(many.sizes), rng)
        self._numbers = many.draw(self._of_repeated, proportions, rng)
        self._base = many.counts(self._numbers, len(self.n))

    def _parameters(self, empty: Tensor, full: Tensor, rng: ChainRandom) -> Tensor:
        """Dirichlet parameters, after sampling which of the topics without tokens are on."""
        if empty is full:
            return full
        n_chains = len(self.tokens.sizes)
        u = rng.uniform(len(full) // n_chains, full.shape[1], dtype=full.dtype)
        return full * ((self.n > 0) | (u.view_as(full) * full < empty))

    def _arrays(self, empty: Tensor, full: Tensor) -> tuple[Any, ...]:
        """The first arguments of both compiled functions."""
        word, weight = self.tokens.word, self.tokens.weight
        tensors = (word, weight, empty.contiguous(), full - empty, self._z, self.n)
        return self.topics.numpy(), self._starts, *(tensor.numpy() for tensor in tensors)

    def gradient(self, empty: Tensor, full: Tensor) -> Tensor:
        """Gradient of log p(tokens | topics) in the topics, (chains, words, topics).

        Entry (w, k) is the sum of p(z_i = k | ...) / phi_wk over the tokens i of word w. It is
        Rao-Blackwellised: the probabilities are conditional on the sampled topics of all other
        tokens of the document.
        """
        out = torch.zeros_like(self.topics)
        if self.compiled:
            from ..._kernels import documents

            documents.add_expected(*self._arrays(empty, full), SOLE, out.numpy())
        else:
            self._add_expected(empty, full, out)
        if self.tokens.repeated is not None:
            self._add_repeated(empty, full, self.tokens.repeated, out)
        return out.view(self.shape)

    def _add_expected(self, empty: Tensor, full: Tensor, out: Tensor) -> None:
        """Add p(z_i = k | other tokens) / phi_wk times the weight of every token i to ``out``."""
        tokens, z, n = self.tokens, self._z, self.n
        others = (n + torch.where(n > 0, full, empty)).index_select(0, tokens.row)
        at, K = tokens.row * n.shape[1] + z, n.shape[1]
        own, less = n.view(-1)[at], tokens.weight
        sole = own - less <= SOLE * less
        less = less + (full - empty).reshape(-1)[at] * sole
        others.view(-1)[torch.arange(len(z), device=z.device) * K + z] -= less
        others.clamp_(min=0.0)  # rounding can make them negative
        total = (others * self._likelihood).sum(1).clamp_(min=torch.finfo(n.dtype).tiny)
        add_at(out, tokens.word, others.mul_((tokens.weight / total)[:, None]))

    def _add_repeated(self, empty: Tensor, full: Tensor, many: Repeated, out: Tensor) -> None:
        """Do the same for words with many tokens; those of one topic are alike."""
        n, weight, phi = self.n.index_select(0, many.row), many.weight[:, None], self._of_repeated
        full, empty = full.index_select(0, many.row), empty.index_select(0, many.row)
        each = n + torch.where(n > 0, full, empty)
        less = weight + (full - empty) * (n - weight <= SOLE * weight)
        total = (each * phi).sum(1, keepdim=True)
        least = 4.0 * torch.finfo(n.dtype).eps * total
        part = self._numbers / torch.maximum(total - less * phi, least)
        sums = each * part.sum(1, keepdim=True) - less * part
        add_at(out, many.word, sums.clamp_(min=0.0).mul_(weight))


def topic_gradient(
    topics: Tensor,
    tokens: Tokens,
    alpha: float,
    n_sweeps: int,
    rng: ChainRandom,
    *,
    compiled: bool,
) -> Tensor:
    """Gradient of log p(tokens | topics) in the topics phi, (chains, words, topics).

    The documents' proportions have equal Dirichlet parameters ``alpha``. Every document has
    ``n_sweeps`` sweeps of Gibbs sampling after the initial one; ``compiled`` is as in
    :class:`Assignments`.
    """
    assignments = Assignments(topics, tokens, compiled=compiled)
    equal = torch.full_like(assignments.n, alpha)
    expected = torch.ones_like(equal)
    for _ in range(START_STEPS if tokens.repeated is None else REPEATED_STEPS):
        expected = assignments.expected_counts(expected + equal)
    assignments.begin(expected + equal, rng)
    assignments.sweep(equal, equal, rng, n_sweeps)
    return assignments.gradient(equal, equal)


def blocked_sweep(
    likelihood: Tensor, tokens: Tokens, concentration: Tensor, rng: ChainRandom
) -> tuple[Tensor, Tensor]:
    """Sample proportions given counts and parameters, then all assignments given them.

    ``concentration`` (documents, topics) is their sum, and ``likelihood`` (tokens, topics) is phi
    of each token's word. Returns assignments and counts.
    """
    proportions = draw_proportions(concentration, len(tokens.sizes), rng)
    cumulative = likelihood.mul(proportions.index_select(0, tokens.row)).cumsum_(1)
    u = rng.ragged_uniform(tokens.sizes, concentration.dtype) * cumulative[:, -1]
    z = (cumulative <= u[:, None]).sum(1).clamp_(max=concentration.shape[1] - 1)
    return z, _counted(z, tokens, concentration)


def draw_proportions(concentration: Tensor, n_chains: int, rng: ChainRandom) -> Tensor:
    """Gamma variates, which are proportions up to a factor, for all documents of all chains."""
    shape = (n_chains, -1, concentration.shape[1])
    proportions = rng.gamma(concentration.view(shape)).view_as(concentration)
    # others can occur, but topics with concentration 0 can not; torch's Gamma(0) is its smallest
    # number
    return proportions.clamp_(min=1e-8).mul_(concentration > 0)


def _counted(z: Tensor, tokens: Tokens, like: Tensor) -> Tensor:
    """Counts (documents, topics) of the tokens, of the shape of ``like``."""
    n = torch.zeros_like(like)
    add_at(n.view(-1), tokens.row * n.shape[1] + z, tokens.weight)
    return n


def _expected_counts(
    concentration: Tensor, likelihood: Tensor, row: Tensor, weight: Tensor
) -> Tensor:
    """Counts (documents, topics) if tokens are split as ``concentration`` times ``likelihood``."""
    share = concentration.index_select(0, row).mul_(likelihood)
    # a word that no topic has adds nothing
    share.mul_((weight / share.sum(1).clamp_(min=torch.finfo(share.dtype).tiny))[:, None])
    return add_at(torch.zeros_like(concentration), row, share)


# predictions --------------------------------------------------------------------------------------


def fixed_point(
    topics: Tensor, counts: Any, alpha: float | Callable[[Tensor], Tensor], n_steps: int
) -> Tensor:
    """Expected topic counts n (documents, topics) of documents, by a deterministic fixed point.

    The iteration n_dk = sum_w x_dw r_dwk with r_dwk ~ (n_dk + alpha_dk) phi_wk starts with n = 0,
    for topics phi (words, topics) and a CSR matrix of counts x. The Dirichlet parameter is a number
    or a function ``alpha(n)`` that returns one for each document and topic. Documents do not
    influence each other.
    """
    counts = counts.tocsr()
    lengths = torch.from_numpy(np.diff(counts.indptr).astype(np.int64))
    row = torch.arange(counts.shape[0], device=lengths.device).repeat_interleave(lengths)
    count = torch.from_numpy(np.asarray(counts.data)).to(topics)
    likelihood = topics.index_select(0, torch.from_numpy(counts.indices.astype(np.int64)))
    n = topics.new_zeros(counts.shape[0], topics.shape[1])
    for _ in range(n_steps):
        concentration = n + (alpha(n) if callable(alpha) else alpha)
        n = _expected_counts(concentration, likelihood, row, count)
    return n
