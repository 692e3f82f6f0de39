r"""Distillation: one network that imitates the average over the draws of a posterior.

The parameters w of this network, the student, minimise

.. math::
    -\frac1N \sum_i \mathrm{E}\big[ \textstyle\sum_k \bar p_k(x_i + \epsilon) \log q_k(x_i +
    \epsilon; w) \big]

where p̄ is the probability averaged over the draws, q is the student's probability and ε is small
Gaussian noise. The targets are averages over a few draws, which are chosen anew, by weight, for
every block of rows. The expectation of the targets, and hence of the gradient, is that of the
average over all draws. The online method of Korattikara et al. (2015) does the same with one draw.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..._arrays import Array
from ..._exceptions import explained
from ..._limits import slices
from ..._modes import OwnNumbers
from .module_checks import batch_norms, explain_single_row
from .module_copies import PickleOnly, put

#: number of rows that get their targets at once, with the same draws
BLOCK_ROWS = 2000


@dataclass
class Blueprint:
    """A network that can be the student of a classifier."""

    #: function without arguments that builds the ``torch.nn.Module``. It can be pickled
    architecture: Callable[[], Any]
    #: (n_features,) or (1,): the network's input is (row - center) / scale
    center: Array
    scale: Array
    #: shape of a row at the network's input
    row_shape: tuple[int, ...]


@dataclass
class Trainable(PickleOnly):
    """A function that copies a module, to train some parameters of the copy."""

    module: nn.Module
    #: names of these parameters. The copies start at the values of the module
    names: Sequence[str]

    def __call__(self) -> nn.Module:
        copied = copy.deepcopy(self.module)
        for name in self.names:
            copied.get_parameter(name).requires_grad_(True)
        return copied


@dataclass
class Without:
    """A function that builds a module without one of its parts, such as a final softmax."""

    #: function without arguments that builds the ``torch.nn.Module``
    architecture: Callable[[], Any]
    part: str

    def __call__(self) -> nn.Module:
        built: nn.Module = self.architecture()
        put(built, self.part, nn.Identity())
        return built


@dataclass
class Training:
    """The training of a student."""

    #: number of passes over the rows; "auto": 30, or as many as take 8000 steps
    n_epochs: Any
    batch_size: int
    #: initial learning rate of Adam. It falls to zero along half a cosine
    learning_rate: float
    #: standard deviation of the noise, in units of each feature's standard deviation
    perturbation: float

    def run(
        self,
        module: nn.Module,
        rows: Array,
        targets: Callable[[Array], Array],
        rng: np.random.Generator,
        numbers: OwnNumbers,
        report: Callable[[str], None],
    ) -> Array:
        """Train a module and return its mean cross-entropy in each epoch, (n_epochs,).

        The module maps rows (n, n_features) to logits (n, n_classes), on its own device and in its
        own precision; ``targets`` maps rows to probabilities (n, n_classes). ``rows`` have no noise
        yet; ``rng`` orders them and makes it, and ``numbers`` are those of dropout. ``report`` gets
        a message after every epoch. A ``FloatingPointError`` says that the cross-entropy is not
        finite.
        """
        like = next(module.parameters())
        blocks = list(slices(len(rows), max(BLOCK_ROWS, self.batch_size)))
        parts = [math.ceil((block.stop - block.start) / self.batch_size) for block in blocks]
        n_epochs = self.n_epochs
        if isinstance(n_epochs, str):
            n_epochs = max(30, math.ceil(8000 / sum(parts)))
        optimizer = torch.optim.Adam(module.parameters(), lr=self.learning_rate, fused=True)
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_epochs * sum(parts))
        # in float32 but for its powers of two, with which columns of any size have their spread
        spread, powers = np.frexp(self.perturbation * rows.std(axis=0, dtype=np.float64))
        spread = spread.astype(np.float32)
        losses = np.zeros(n_epochs)
        module.train()
        for epoch in range(n_epochs):
            order, total = rng.permutation(len(rows)), like.new_zeros(())
            for block, n_parts in zip(blocks, parts, strict=True):
                x = rows[order[block]]
                if self.perturbation:
                    noise = spread * rng.standard_normal(x.shape, dtype=np.float32)
                    x = x + np.ldexp(noise.astype(x.dtype), powers)
                data = [torch.from_numpy(values).to(like) for values in (x, targets(x))]
                with numbers.in_use():
                    for inputs, p in zip(*(v.tensor_split(n_parts) for v in data), strict=True):
                        total += self._step(module, optimizer, inputs, p) * len(inputs)
                        rates.step()
            losses[epoch] = float(total) / len(rows)
            if not np.isfinite(losses[epoch]):
                raise explained(
                    FloatingPointError(
                        f"the student's cross-entropy is not finite in epoch {epoch + 1}: give a "
                        f"learning_rate smaller than {self.learning_rate:g}."
                    ),
                    "the-training-of-a-student-diverged",
                )
            report(f"epoch {epoch + 1} of {n_epochs}, cross-entropy {losses[epoch]:.4f}")
        return losses

    def _step(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, p: Tensor
    ) -> Tensor:
        """Make a step on a minibatch and return its mean cross-entropy."""
        optimizer.zero_grad()
        try:
            loss = cross_entropy(module(inputs), p)
        except ValueError as error:
            explain_single_row(error, len(inputs), batch_norms(module))
            raise
        loss.backward()
        optimizer.step()
        return loss.detach()


def few_draws(
    predict: Callable[[Array, Array], Array],
    weights: Array,
    n_draws: int,
    rng: np.random.Generator,
) -> Callable[[Array], Array]:
    """A function that makes targets for rows: averages over draws that each call chooses anew.

    ``predict(draws, rows)`` takes the indices of some draws and returns probabilities (draws, rows,
    n_classes). Each call uses ``n_draws`` draws, such that the expectation of the targets is the
    average by the ``weights`` of all draws.
    """
    n_draws = min(n_draws, len(weights))
    cumulative = np.cumsum(weights) / np.sum(weights)

    def targets(rows: Array) -> Array:
        # systematic sampling chooses draws that are far apart, so that every chain is represented
        places = (rng.random() + np.arange(n_draws)) / n_draws
        chosen = np.minimum(np.searchsorted(cumulative, places), len(weights) - 1)
        return predict(chosen, rows).mean(axis=0)

    return targets
