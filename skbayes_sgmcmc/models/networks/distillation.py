r"""Distillation: one network that imitates an average over the draws of a posterior.

The student's parameters w minimise

.. math::
    -\frac1N \sum_i \mathrm{E}\big[ \textstyle\sum_k \bar p_k(x_i + \epsilon) \log q_k(x_i +
    \epsilon; w) \big]

where p̄ is the probability averaged over the draws, q the student's and ε small Gaussian noise.
Targets are the average over a few draws, chosen anew by weight for every block of rows: their
expectation, and so that of the gradient, is that of the average over all draws, as in the online
method of Korattikara et al. (2015), which has one draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import gen_batches
from torch import nn
from torch.nn.functional import cross_entropy

Array = NDArray[Any]

#: rows whose targets are made at once, with the same draws
BLOCK_ROWS = 2000
#: passes over the rows and steps that ``n_epochs="auto"`` makes at least
AUTO_EPOCHS, AUTO_STEPS = 30, 8000


@dataclass
class Blueprint:
    """A network that can be the student of a classifier.

    Parameters
    ----------
    architecture : callable
        Without arguments it builds the ``torch.nn.Module``; it can be pickled.
    center, scale : array of shape (n_features,) or (1,)
        What is subtracted from rows, and by what they are divided then, before the network.
    row_shape : tuple of int
        Shape of a row for the network.
    """

    architecture: Callable[[], Any]
    center: Array
    scale: Array
    row_shape: tuple[int, ...]


@dataclass
class Training:
    """How a student is trained.

    Parameters
    ----------
    n_epochs : int or "auto"
        Passes over the rows.
    batch_size : int
        Rows in a minibatch.
    learning_rate : float
        Of Adam, at first; it falls to zero along half a cosine.
    perturbation : float
        Standard deviation of the noise, in units of each feature's over the rows.
    """

    n_epochs: Any
    batch_size: int
    learning_rate: float
    perturbation: float

    def run(
        self,
        module: nn.Module,
        rows: Array,
        targets: Callable[[Array], Array],
        rng: np.random.Generator,
        report: Callable[[str], None],
    ) -> Array:
        """Train a module and return its mean cross-entropy in each epoch, (n_epochs,).

        Parameters
        ----------
        module : nn.Module
            It maps rows (n, n_features) to logits (n, n_classes), in its own device and precision.
        rows : array of shape (n_samples, n_features)
            Without perturbation.
        targets : callable
            It maps rows to probabilities (n, n_classes).
        rng : Generator
            Of the order of rows and the noise.
        report : callable
            It is told of every epoch.

        Raises
        ------
        FloatingPointError
            The student left the finite numbers.
        """
        like = next(module.parameters())
        blocks = list(gen_batches(len(rows), max(BLOCK_ROWS, self.batch_size)))
        parts = [math.ceil((block.stop - block.start) / self.batch_size) for block in blocks]
        n_epochs = self.n_epochs
        if isinstance(n_epochs, str):
            n_epochs = max(AUTO_EPOCHS, math.ceil(AUTO_STEPS / sum(parts)))
        optimizer = torch.optim.Adam(module.parameters(), lr=self.learning_rate, fused=True)
        rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_epochs * sum(parts))
        spread = (self.perturbation * rows.std(axis=0, dtype=np.float64)).astype(np.float32)
        losses = np.zeros(n_epochs)
        module.train()
        for epoch in range(n_epochs):
            order, total = rng.permutation(len(rows)), like.new_zeros(())
            for block, n_parts in zip(blocks, parts, strict=True):
                x = rows[order[block]]
                if self.perturbation:
                    x = x + spread * rng.standard_normal(x.shape, dtype=np.float32)
                data = [torch.from_numpy(values).to(like) for values in (x, targets(x))]
                for inputs, p in zip(*(v.tensor_split(n_parts) for v in data), strict=True):
                    optimizer.zero_grad()
                    loss = cross_entropy(module(inputs), p)
                    loss.backward()
                    optimizer.step()
                    rates.step()
                    total += loss.detach() * len(inputs)
            losses[epoch] = float(total) / len(rows)
            if not np.isfinite(losses[epoch]):
                raise FloatingPointError(
                    f"the student left the finite numbers in epoch {epoch + 1}: give a "
                    f"learning_rate smaller than {self.learning_rate:g}."
                )
            report(f"epoch {epoch + 1} of {n_epochs}, cross-entropy {losses[epoch]:.4f}")
        return losses


def few_draws(
    predict: Callable[[Array, Array], Array],
    weights: Array,
    n_draws: int,
    rng: np.random.Generator,
) -> Callable[[Array], Array]:
    """Targets for rows: averages over so many draws, chosen anew at every call.

    Parameters
    ----------
    predict : callable
        ``predict(numbers of draws, rows)`` gives probabilities (draws, rows, n_classes).
    weights : array of shape (all draws,)
        Of the average whose expectation the targets have.
    n_draws : int
        Draws at a call.
    rng : Generator
        Of the choice.
    """
    n_draws = min(n_draws, len(weights))
    cumulative = np.cumsum(weights) / np.sum(weights)

    def targets(rows: Array) -> Array:
        # systematic: far apart, so that there are some of every chain
        places = (rng.random() + np.arange(n_draws)) / n_draws
        chosen = np.minimum(np.searchsorted(cumulative, places), len(weights) - 1)
        return predict(chosen, rows).mean(axis=0)

    return targets


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Torch's own random numbers from a seed, and as they were before afterwards.

    Modules take their starting values, and dropout its choices, from nowhere else.
    """
    cuda = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        for each in cuda:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(seed)
        yield
