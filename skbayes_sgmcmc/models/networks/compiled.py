"""Gradients of perceptrons by a compiled kernel, with rows that stay in the cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._data.minibatch import Batch
from ..._metric import State
from ..likelihoods import TYPICAL_NOISE, Categorical, Categoricals, Gaussian, Heteroscedastic
from .delayed_outputs import SHARE
from .mlp import ACTIVATIONS, MLP

if TYPE_CHECKING:
    from .model import NetworkModel

Array = NDArray[Any]

#: likelihoods, with the kernel's numbers
LIKELIHOODS = {Categorical: 0, Categoricals: 0, Gaussian: 1, Heteroscedastic: 2}


def has_kernel(model: NetworkModel) -> bool:
    """Whether the kernel computes the gradients of a model's likelihood."""
    return type(model.network) is MLP and type(model.likelihood) in LIKELIHOODS


class PerceptronGradient:
    """The gradient of a perceptron's likelihood, and its value, in one pass over the rows.

    Results are those of :class:`MLP` and of the likelihood, up to rounding.

    Parameters
    ----------
    network : MLP
        The perceptron.
    likelihood : Likelihood
        One of ``LIKELIHOODS``.
    """

    def __init__(self, network: MLP, likelihood: Any):
        self._sizes = np.array(network.units)
        self._activation = list(ACTIVATIONS).index(network.activation)
        self._kind = LIKELIHOODS[type(likelihood)]
        self._classes = np.array(getattr(likelihood, "sizes", network.units[-1:]))
        log_noise, floor = np.array([math.log(TYPICAL_NOISE)]), np.zeros(1)
        if isinstance(likelihood, Heteroscedastic):
            floor = likelihood.floor
        elif isinstance(likelihood, Gaussian):
            log_noise = log_noise.repeat(likelihood.n_outputs)
            if likelihood.noise is not None:
                log_noise = np.log(likelihood.noise)
        self._noise = log_noise.astype(np.float32), floor.astype(np.float32)

    def add_gradient(
        self, theta: Tensor, batch: Batch, state: State, out: Tensor, scale: float
    ) -> Tensor:
        """Add the scaled gradient to ``out``; return the scaled sums of -log p, (chains,)."""
        from ..._kernels.perceptron import gradient

        rows = self.rows(batch, state, len(theta), scale)
        value = gradient(theta.contiguous().numpy(), rows, out.numpy())
        return torch.from_numpy(-value)

    def rows(self, batch: Batch, state: State, n_chains: int, scale: float) -> tuple[Any, ...]:
        """What the kernels need besides the positions: rows, scaled weights and the likelihood."""
        x, y = (_by_chain(batch.fields[name], batch) for name in ("x", "y"))
        classes = self._kind == 0
        return (
            x,
            np.zeros((1, 0, 1), np.float32) if classes else y,
            y.reshape(*y.shape[:2], -1) if classes else np.zeros((1, 0, 1), np.int64),
            self._classes,
            _weights(batch, x.shape[1], scale),
            self._sizes,
            self._activation,
            self._kind,
            *self._noise,
            state[SHARE].numpy().ravel() if SHARE in state else np.ones(n_chains, np.float32),
        )


def _by_chain(field: Tensor, batch: Batch) -> Array:
    """A field with an axis of chains, of length 1 if they share the field."""
    values = np.ascontiguousarray(field.numpy())
    return values[None] if batch.shared else values


def _weights(batch: Batch, n_rows: int, scale: float) -> Array:
    """Scaled weights (chains or 1, rows)."""
    if not isinstance(batch.weight, Tensor):
        return np.full((1, n_rows), batch.weight * scale, np.float32)
    weight = np.ascontiguousarray((batch.weight * scale).float().numpy())
    return weight[None] if batch.shared else weight
