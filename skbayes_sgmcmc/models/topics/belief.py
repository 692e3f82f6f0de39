r"""Deep sigmoid belief network over the binary units of documents.

.. math::
    P(h^l_k = 1 \mid h^{l+1}) = \sigma(w^l_k \cdot h^{l+1} + c^l_k), \qquad
    P(h^L_k = 1) = \sigma(c^L_k)

Layers are tensors (chains, documents, units) of zeros and ones. They are numbered from 0 in the
code and from 1 in the names of parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..._arrays import Array
from ..._data.chain_random import ChainRandom


class BeliefNetwork:
    """A sigmoid belief network: shapes of its parameters, Gibbs sampling and gradients.

    ``sizes`` are the numbers of units of the layers, starting with the layer nearest to the data,
    and ``scale`` is the sd of the normal prior of weights and biases. If ``compiled``, the compiled
    kernel samples the units, on a CPU.
    """

    def __init__(self, sizes: Sequence[int], scale: float, *, compiled: bool = False):
        self.sizes = tuple(sizes)
        self.scale = scale
        self.compiled = compiled
        self.shapes: dict[str, tuple[int, ...]] = {}
        for layer, size in enumerate(self.sizes, 1):
            if layer < len(self.sizes):
                self.shapes[f"weights_{layer}"] = (size, self.sizes[layer])
            self.shapes[f"biases_{layer}"] = (size,)

    @property
    def top(self) -> int:
        return len(self.sizes) - 1

    def start(self, rng: np.random.Generator) -> dict[str, Array]:
        """Random weights, so that units differ, and zero biases."""
        return {
            name: rng.standard_normal(shape) / np.sqrt(shape[1])
            if len(shape) == 2
            else np.zeros(shape)
            for name, shape in self.shapes.items()
        }

    def curvatures(self) -> dict[str, float]:
        """Bounds on the curvature of the mean potential in each block, in any direction.

        A bound is a quarter of the squared length of (h, 1), assuming that half of the units h are
        on.
        """
        widths = (*self.sizes[1:], 0)
        return {
            name: 0.25 * (1.0 + 0.5 * widths[int(name.rpartition("_")[2]) - 1])
            for name in self.shapes
        }

    # densities of a network's parameters, given as tensors (chains, *shape) by name -------------

    def activation(self, parameters: Mapping[str, Tensor], layer: int, above: Tensor) -> Tensor:
        """Log odds of a layer's units given the layer above, (chains, documents, units)."""
        weights = parameters[f"weights_{layer + 1}"]
        return torch.baddbmm(
            parameters[f"biases_{layer + 1}"][:, None], above, weights.transpose(1, 2)
        )

    def _log_odds(
        self, parameters: Mapping[str, Tensor], layer: int, layers: Sequence[Tensor]
    ) -> Tensor:
        if layer == self.top:
            bias = parameters[f"biases_{layer + 1}"]
            return bias[:, None].expand(-1, layers[-1].shape[1], -1)
        return self.activation(parameters, layer, layers[layer + 1])

    def draw_layers(
        self, parameters: Mapping[str, Tensor], n_rows: int, rng: ChainRandom
    ) -> list[Tensor]:
        """Draw all layers from the prior, from the top down."""
        bias = parameters[f"biases_{len(self.sizes)}"]
        log_odds = bias[:, None].expand(-1, n_rows, -1)
        layers: list[Tensor] = []
        for layer in range(self.top, -1, -1):
            if layer < self.top:
                log_odds = self.activation(parameters, layer, layers[0])
            u = rng.uniform(*log_odds.shape[1:], dtype=bias.dtype)
            layers.insert(0, (u < torch.sigmoid(log_odds)).to(bias.dtype))
        return layers

    def mean_log_odds(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Log odds (chains, 1, K) of the lowest layer's units, with means for the layers above."""
        log_odds = parameters[f"biases_{len(self.sizes)}"][:, None]
        for layer in range(self.top - 1, -1, -1):
            log_odds = self.activation(parameters, layer, torch.sigmoid(log_odds))
        return log_odds

    def sample_layer(
        self,
        parameters: Mapping[str, Tensor],
        layer: int,
        layers: Sequence[Tensor],
        rng: ChainRandom,
    ) -> Tensor:
        """Sample the units of a layer above the lowest one by one, in place, given all others.

        Returns the conditional probabilities of the units.
        """
        h, below = layers[layer], layers[layer - 1]
        weights = parameters[f"weights_{layer}"]
        lift = below @ weights + self._log_odds(parameters, layer, layers)
        activation = self.activation(parameters, layer - 1, h)
        u = rng.uniform(*h.shape[1:], dtype=h.dtype)
        probability = torch.empty_like(h)
        if self.compiled:
            from ..._kernels.belief import sample_units

            on = torch.sigmoid(activation.double())
            factor = weights.transpose(1, 2).double().exp().contiguous()
            for chain in zip(h, lift, on, factor, u, probability, strict=True):
                sample_units(*(part.numpy() for part in chain))
            return probability
        for m in range(h.shape[2]):
            of, w = h[..., m : m + 1], weights[:, None, :, m]
            activation.addcmul_(of, w, value=-1.0)  # the activation if the unit is off
            cost = (softplus(activation + w) - softplus(activation)).sum(2)
            probability[..., m] = torch.sigmoid(lift[..., m] - cost)
            h[..., m] = (u[..., m] < probability[..., m]).to(h.dtype)
            activation.addcmul_(of, w)
        return probability

    def add_gradient(
        self,
        parameters: Mapping[str, Tensor],
        layer: int,
        layers: Sequence[Tensor],
        probability: Tensor,
        out: Mapping[str, Tensor],
        scale: float,
    ) -> None:
        """Add scale * gradient of the log probability of a layer given the one above to ``out``.

        ``probability`` are the conditional expectations of the layer's units given all others,
        which makes the estimate Rao-Blackwellised.
        """
        log_odds = self._log_odds(parameters, layer, layers)
        residual = probability - torch.sigmoid(log_odds)
        out[f"biases_{layer + 1}"].add_(residual.sum(1), alpha=scale)
        if layer < self.top:
            product = residual.transpose(1, 2) @ layers[layer + 1]
            out[f"weights_{layer + 1}"].add_(product, alpha=scale)
