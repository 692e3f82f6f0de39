"""Words that occur many times in a document: one multinomial draw in place of one for each token.

Given the proportions theta of a document, the m tokens of a word have the topics
Multinomial(m, ~ theta_k phi_wk), so the cost of a draw does not grow with m. Proportions are drawn
from Dirichlet(n + alpha) for this purpose, and then forgotten. The step leaves the distribution of
all assignments with theta integrated out as it is, and so may follow a sweep that samples the
tokens of other words one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..._data.chain_random import ChainRandom
from .._sums import add_at


@dataclass
class Repeated:
    """The words with many occurrences, in the order of chains and documents."""

    #: document and word, numbered consecutively over all chains, (n,)
    row: Tensor
    word: Tensor
    times: Tensor
    #: contribution of each of these tokens to counts, (n,)
    weight: Tensor
    #: number of such words of each chain
    sizes: list[int]

    @property
    def total(self) -> Tensor:
        """Total weight of the tokens of each word."""
        return self.times * self.weight

    def draw(self, likelihood: Tensor, proportions: Tensor, rng: ChainRandom) -> Tensor:
        """Numbers of tokens of each topic (n, topics), given the documents' proportions.

        ``likelihood`` (n, topics) is phi of each word.
        """
        share = likelihood.double().clamp(min=1e-300)
        share *= proportions.index_select(0, self.row).double()
        share /= share.sum(1, keepdim=True)
        share.nan_to_num_(1.0 / share.shape[1])  # of a chain that has left the finite numbers
        parts = [
            generator.multinomial(times.numpy(), share.numpy())
            for generator, times, share in zip(
                rng.rows, self.times.cpu().split(self.sizes), share.cpu().split(self.sizes),
                strict=True,
            )
        ]  # fmt: skip
        return torch.from_numpy(np.concatenate(parts)).to(likelihood)

    def counts(self, numbers: Tensor, n_rows: int) -> Tensor:
        """Total weight (documents, topics) of what :meth:`draw` returns."""
        out = numbers.new_zeros(n_rows, numbers.shape[1])
        return add_at(out, self.row, numbers * self.weight[:, None])
