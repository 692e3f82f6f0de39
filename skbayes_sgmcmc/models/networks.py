r"""Feed-forward networks as functions of flat parameters, for many chains at once.

A network maps positions (chains, n_parameters) and inputs (chains or 1, rows, ...) to outputs
(chains, rows, n_outputs), and the derivatives of a loss by the outputs back to the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ._passes import Rounded
from ._products import add_product, affine, times_transposed
from .ensemble import StackedLayers

Array = NDArray[Any]

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid}
#: numbers in one layer's outputs when several draws predict at once
ACTIVATION_NUMBERS = 2**20


class Network:
    """Base of networks.

    Attributes
    ----------
    shapes : dict of str to tuple
        Name and shape of every block of parameters, in their order.
    fan_in : dict of str to int
        Inputs of a unit, by block of weights; blocks that are not in it are biases and the like.
    buffers : sequence of str
        Names of what depends on a draw without being sampled (batch norms' statistics).
    single_precision : bool
        Whether ``dtype="auto"`` means float32 for small networks too.
    """

    shapes: dict[str, tuple[int, ...]]
    fan_in: dict[str, int]
    buffers: Sequence[str] = ()
    single_precision: bool = False
    #: whether outputs are linear in theta
    linear: bool = False

    def init(self, rng: np.random.Generator) -> Array:
        """Random starting weights of variance 2 / fan-in (He et al. 2015), other blocks zero."""
        parts = []
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            if name in self.fan_in:
                parts.append(rng.standard_normal(size) * np.sqrt(2.0 / self.fan_in[name]))
            else:
                parts.append(np.zeros(size))
        return np.concatenate(parts)

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        """Outputs (chains, rows, n_outputs), given the ``buffers`` (chains, ...)."""
        raise NotImplementedError

    def in_bfloat16(self) -> Any:
        """Its :meth:`forward` and :meth:`backward` in bfloat16, from and to theta's precision."""
        return Rounded(self)

    def buffer_values(self, theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        """The ``buffers`` of one position (n_parameters,), over the rows x."""
        return {}

    def design(self, x: Tensor) -> Tensor:
        """The design matrix of rows x, of which ``linear`` networks have one."""
        raise NotImplementedError

    def draws_at_once(self, n_rows: int) -> int:
        """How many draws to predict so many rows with at once."""
        return 1

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        """A module for the outputs (draws, rows, n_outputs) of some draws of rows (rows, ...).

        The draws are those of ``shapes`` and ``buffers``, in float32.
        """
        raise NotImplementedError

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        """Outputs, and what :meth:`backward` needs."""
        raise NotImplementedError

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        """out += d loss / d theta, for delta = d loss / d outputs, which may be overwritten."""
        raise NotImplementedError


class MLP(Network):
    r"""Fully connected layers, :math:`h_l = a(h_{l-1} W_l + b_l)`, linear at the end.

    All chains advance as one batched product per layer, forward and backward, without autograd.

    Parameters
    ----------
    sizes : sequence of int
        Units of every layer, from the inputs to the outputs.
    activation : {"relu", "tanh", "logistic"}
        a.
    """

    def __init__(self, sizes: tuple[int, ...], activation: str):
        self.sizes = sizes
        self.activation = activation
        self.linear = len(sizes) == 2
        self._seen: list[tuple[Tensor, list[tuple[Tensor, Tensor]]]] = []
        self.shapes, self.fan_in = {}, {}
        for layer, (before, after) in enumerate(pairwise(sizes), 1):
            self.shapes[f"weight_{layer}"] = (before, after)
            self.shapes[f"bias_{layer}"] = (after,)
            self.fan_in[f"weight_{layer}"] = before

    def layers(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views of the weights (chains, before, after) and biases (chains, 1, after)."""
        for seen, views in self._seen:  # positions and gradients, which stay where they are
            if seen is theta:
                return views
        self._seen = [(theta, self._views(theta)), *self._seen[:1]]
        return self._seen[0][1]

    def _views(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        views, start, chains = [], 0, len(theta)
        for before, after in pairwise(self.sizes):
            middle, stop = start + before * after, start + before * after + after
            weight = theta[:, start:middle].view(chains, before, after)
            views.append((weight, theta[:, middle:stop].view(chains, 1, after)))
            start = stop
        return views

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        return self.forward(theta, x)[0]

    def design(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x, (0, 1), value=1.0)

    def draws_at_once(self, n_rows: int) -> int:
        return draws_that_fit(n_rows, max(self.sizes[1:]))

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        layers = range(1, len(self.sizes))
        return StackedLayers(
            [draws[f"weight_{layer}"] for layer in layers],
            [draws[f"bias_{layer}"] for layer in layers],
            ACTIVATIONS[self.activation](),
        )

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        layers = self.layers(theta)
        hidden = [x.expand(len(theta), -1, -1)]
        for number, (weight, bias) in enumerate(layers, 1):
            z = affine(hidden[-1], weight, bias)
            hidden.append(activate(z, self.activation) if number < len(layers) else z)
        return hidden[-1], (layers, hidden)

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        self.pull_back(tape, delta, out, inputs=False)

    def pull_back(self, tape: Any, delta: Tensor, out: Tensor, *, inputs: bool) -> Tensor:
        """As :meth:`backward`; returns d loss / d inputs if ``inputs``."""
        layers, hidden = tape
        gradients = self.layers(out)
        for number in range(len(layers) - 1, -1, -1):
            weight_gradient, bias_gradient = gradients[number]
            add_product(weight_gradient, hidden[number], delta)
            bias_gradient.add_(delta.sum(1, keepdim=True))
            if number or inputs:
                delta = times_transposed(delta, layers[number][0])
            if number:
                times_slope(delta, hidden[number], self.activation)
        return delta


class ReferenceClass(Network):
    """A network of one output f as one of two classes: the logits are 0 and f.

    Parameters
    ----------
    network : Network
        The function f.
    """

    def __init__(self, network: Network):
        self.network = network
        self.shapes, self.fan_in = network.shapes, network.fan_in
        self.buffers, self.single_precision = network.buffers, network.single_precision
        self.linear = network.linear

    def init(self, rng: np.random.Generator) -> Array:
        return self.network.init(rng)

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        return _after_zero(self.network.outputs(theta, x, buffers))

    def design(self, x: Tensor) -> Tensor:
        return self.network.design(x)

    def draws_at_once(self, n_rows: int) -> int:
        return self.network.draws_at_once(n_rows)

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        return nn.Sequential(self.network.stacked(draws), nn.ConstantPad1d((1, 0), 0.0))

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        f, tape = self.network.forward(theta, x)
        return _after_zero(f), tape

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        self.network.backward(tape, delta[..., 1:].contiguous(), out)


def _after_zero(f: Tensor) -> Tensor:
    return nn.functional.pad(f, (1, 0))


def draws_that_fit(n_rows: int, widest: int) -> int:
    """How many draws have at most ``ACTIVATION_NUMBERS`` outputs of the widest layer."""
    return max(1, ACTIVATION_NUMBERS // (n_rows * widest))


def activate(z: Tensor, activation: str) -> Tensor:
    """a(z), in place."""
    if activation == "relu":
        return z.relu_()
    return z.tanh_() if activation == "tanh" else z.sigmoid_()


def times_slope(delta: Tensor, h: Tensor, activation: str) -> None:
    """delta *= dh/dz, in terms of h = a(z)."""
    if activation == "relu":
        torch.ops.aten.threshold_backward.grad_input(delta, h, 0, grad_input=delta)
    elif activation == "tanh":
        torch.ops.aten.tanh_backward.grad_input(delta, h, grad_input=delta)
    else:
        torch.ops.aten.sigmoid_backward.grad_input(delta, h, grad_input=delta)
