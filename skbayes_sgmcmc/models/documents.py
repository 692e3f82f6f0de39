"""Topic assignments of documents given topics: Gibbs sampling, and a fixed point for predictions.

A document's tokens have topics z_i ~ theta_d and words ~ phi_z, with theta_d ~ Dirichlet(alpha).
Topics are tensors (words, topics), so that what is gathered for a word is contiguous. Nothing here
knows how topics are parametrised, or what their prior is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..streams import ChainRandom
from ._design import SparseBatch

#: steps of the fixed point from which blocked Gibbs sampling starts
START_STEPS = 5


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


def topic_gradient(
    topics: Tensor,
    tokens: Tokens,
    alpha: float,
    n_sweeps: int,
    rng: ChainRandom,
    *,
    compiled: bool,
) -> Tensor:
    """Gradient of log p(tokens | topics), proportions integrated out, in the topics.

    Entry (w, k) is sum_i p(z_i = k | ...) / phi_wk over the tokens of word w: the expected
    assignment of each token given a sample of all others of its document (Rao-Blackwellised).

    Parameters
    ----------
    topics : Tensor of shape (chains, words, topics)
        phi; columns sum to one, or to anything else.
    tokens : Tokens
        The documents' words.
    alpha : float
        Dirichlet parameter of the documents' proportions.
    n_sweeps : int
        Gibbs sweeps over every document.
    rng : ChainRandom
        Random numbers.
    compiled : bool
        Sample assignments one by one, proportions integrated out, by the compiled kernel (CPU);
        else all at once, in turns with the proportions.

    Returns
    -------
    Tensor of shape (chains, words, topics)
    """
    flat = topics.reshape(-1, topics.shape[2])
    out = torch.zeros_like(flat)
    if compiled:
        _one_by_one(flat, tokens, alpha, n_sweeps, rng, out)
    else:
        z, n = _blocked(flat, tokens, alpha, n_sweeps, rng)
        _add_expected(flat, tokens, alpha, z, n, out)
    return out.view(topics.shape)


def _one_by_one(
    topics: Tensor, tokens: Tokens, alpha: float, n_sweeps: int, rng: ChainRandom, out: Tensor
) -> None:
    from .._kernels import documents

    ends = torch.arange(tokens.n_rows + 1)
    uniforms = rng.ragged_uniform([size * (n_sweeps + 1) for size in tokens.sizes], topics.dtype)
    number: Any = topics.numpy().dtype.type
    documents.topic_gradient(
        topics.numpy(),
        torch.searchsorted(tokens.row, ends).numpy(),
        tokens.word.numpy(),
        tokens.weight.numpy(),
        number(alpha),
        n_sweeps,
        uniforms.view(-1, n_sweeps + 1).numpy(),
        out.numpy(),
    )


def _blocked(
    topics: Tensor, tokens: Tokens, alpha: float, n_sweeps: int, rng: ChainRandom
) -> tuple[Tensor, Tensor]:
    """Assignments z (tokens,) and counts (documents, topics): z | theta, theta | z in turns."""
    likelihood = topics.index_select(0, tokens.word)
    n_topics = topics.shape[1]
    n = topics.new_full((tokens.n_rows, n_topics), 1.0)
    for _ in range(START_STEPS):
        share = likelihood * (n + alpha).index_select(0, tokens.row)
        share.mul_((tokens.weight / share.sum(1))[:, None])
        n = torch.zeros_like(n).index_add_(0, tokens.row, share)
    for _ in range(n_sweeps + 1):
        z, n = blocked_sweep(likelihood, tokens, alpha, n, rng)
    return z, n


def blocked_sweep(
    likelihood: Tensor, tokens: Tokens, alpha: float, n: Tensor, rng: ChainRandom
) -> tuple[Tensor, Tensor]:
    """Proportions given counts ``n`` (documents, topics), and all assignments given these.

    ``likelihood`` (tokens, topics) is of each token's word. Returns assignments and counts.
    """
    n_topics = n.shape[1]
    proportions = rng.gamma((n + alpha).view(len(tokens.sizes), -1, n_topics)).view_as(n)
    cumulative = likelihood.mul(proportions.index_select(0, tokens.row)).cumsum_(1)
    u = rng.ragged_uniform(tokens.sizes, n.dtype) * cumulative[:, -1]
    z = (cumulative <= u[:, None]).sum(1).clamp_(max=n_topics - 1)
    n = torch.zeros_like(n)
    n.view(-1).index_add_(0, tokens.row * n_topics + z, tokens.weight)
    return z, n


def _add_expected(
    topics: Tensor, tokens: Tokens, alpha: float, z: Tensor, n: Tensor, out: Tensor
) -> None:
    """Out += p(z_i = k | the others) / phi_wk times the weight of every token i."""
    n_topics = topics.shape[1]
    others = (n + alpha).index_select(0, tokens.row)
    others.view(-1).index_add_(
        0, torch.arange(len(z), device=z.device) * n_topics + z, -tokens.weight
    )
    others.clamp_(min=0.0)  # of rounding
    likelihood = topics.index_select(0, tokens.word)
    scale = tokens.weight / (others * likelihood).sum(1)
    out.index_add_(0, tokens.word, others.mul_(scale[:, None]))


# predictions --------------------------------------------------------------------------------------


def fixed_point(topics: Tensor, counts: Any, alpha: float, n_steps: int) -> Tensor:
    """Expected topic counts n (documents, topics) of documents, row by row and without noise.

    Repeats n_dk = sum_w x_dw r_dwk with r_dwk ~ (n_dk + alpha) phi_wk, from equal proportions.

    Parameters
    ----------
    topics : Tensor of shape (words, topics)
        phi.
    counts : CSR matrix (documents, words)
        x.
    alpha : float
        Dirichlet parameter.
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
        share = (n + alpha).index_select(0, row).mul_(likelihood)
        share.mul_((count / share.sum(1).clamp_(min=torch.finfo(topics.dtype).tiny))[:, None])
        n = torch.zeros_like(n).index_add_(0, row, share)
    return n
