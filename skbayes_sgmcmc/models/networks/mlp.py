"""Multilayer perceptrons: batched products for all chains, without autograd."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..._arrays import Array
from .ensemble import StackedLinear
from .network import Network, draws_that_fit

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid}


class MLP(Network):
    r"""Fully connected layers :math:`h_l = a(h_{l-1} W_l + b_l)`, the last one linear.

    Each layer is one batched product for all chains, forward and backward, without autograd.

    Parameters
    ----------
    sizes : sequence of int
        Number of units of every layer, from the inputs to the outputs.
    activation : {"relu", "tanh", "logistic"}
        Activation a.
    single_precision : bool, default=False
        Whether ``dtype="auto"`` means float32, which takes half the time.
    parts : array of int of shape (sizes[0],) or None, default=None
        Inputs that are indicators of one variable's values have the same number. Only one of them
        is not zero, and together they count as one input. None: none are.
    """

    counts_products = True
    takes_sparse = True

    def __init__(
        self,
        sizes: tuple[int, ...],
        activation: str,
        *,
        single_precision: bool = False,
        parts: Array | None = None,
    ):
        self.single_precision = single_precision
        self.units = sizes
        self.activation = activation
        self.linear = len(sizes) == 2
        self._seen: list[tuple[Tensor, list[tuple[Tensor, Tensor]]]] = []
        self.shapes, self.fan_in = {}, {}
        for layer, (before, after) in enumerate(pairwise(sizes), 1):
            self.shapes[f"weight_{layer}"] = (before, after)
            self.shapes[f"bias_{layer}"] = (after,)
            self.fan_in[f"weight_{layer}"] = before
        if parts is not None:  # a field of these networks only, as checkpoints know the others
            self.input_parts, self.fan_in["weight_1"] = parts, int(parts.max()) + 1
        last = len(sizes) - 1
        self.input_block, self.output_block = "weight_1", f"weight_{last}"
        self.output_bias = f"bias_{last}"

    def layers(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views of the weights (chains, before, after) and biases (chains, 1, after)."""
        # Positions and gradients, which stay where they are. Chains in other threads write here
        # too: what is returned was read once, and lists are replaced, never changed.
        kept = self._seen
        for seen, views in kept:
            if seen is theta:
                return views
        views = self._views(theta)
        self._seen = [(theta, views), *kept[:1]]
        return views

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_seen": []}

    def _views(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        blocks = self.blocks(theta)
        return [(weight, next(blocks)[:, None]) for weight in blocks]

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        return self.forward(theta, x)[0]

    def draws_at_once(self, n_rows: int) -> int:
        return draws_that_fit(self, n_rows, max(self.units[1:]))

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        numbers = range(1, len(self.units))
        layers = [StackedLinear(draws[f"weight_{n}"], draws[f"bias_{n}"]) for n in numbers]
        return nn.Sequential(*self._with_activations(layers))

    def module(self) -> nn.Sequential:
        """A torch module like the network of one draw, with torch's own random weights."""
        # in the same precision whatever torch.set_default_dtype says
        layers = [nn.Linear(*units, dtype=torch.float32) for units in pairwise(self.units)]
        return nn.Sequential(nn.Flatten(), *self._with_activations(layers))

    def _with_activations(self, layers: Iterable[nn.Module]) -> list[nn.Module]:
        """The layers with activations between them."""
        parts = [part for layer in layers for part in (layer, ACTIVATIONS[self.activation]())]
        return parts[:-1]

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        layers = self.layers(theta)
        hidden = [x.expand(len(theta), -1, -1) if isinstance(x, Tensor) else x]
        for number, (weight, bias) in enumerate(layers, 1):
            z = _affine(hidden[-1], weight, bias)
            hidden.append(activate(z, self.activation) if number < len(layers) else z)
        return hidden[-1], (layers, hidden)

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        self.pull_back(tape, delta, out, inputs=False)

    def pull_back(self, tape: Any, delta: Tensor, out: Tensor, *, inputs: bool) -> Tensor:
        """Like :meth:`backward`; returns d loss / d inputs if ``inputs`` is true."""
        layers, hidden = tape
        gradients = self.layers(out)
        for number in range(len(layers) - 1, -1, -1):
            weight_gradient, bias_gradient = gradients[number]
            _add_product(weight_gradient, hidden[number], delta)
            bias_gradient.add_(delta.sum(1, keepdim=True))
            if number or inputs:
                delta = delta @ layers[number][0].mT
            if number:
                times_slope(delta, hidden[number], self.activation)
        return delta


def activate(z: Tensor, activation: str) -> Tensor:
    """a(z), which may overwrite z."""
    if activation == "relu":
        return z.relu_()
    if activation == "logistic":
        return z.sigmoid_()
    # tanh z = 2 sigmoid(2z) - 1, because torch's tanh takes ten times as long as its sigmoid, which
    # is not overwritten: autograd needs it
    return z.mul_(2.0).sigmoid_().mul(2.0).sub_(1.0)


def times_slope(delta: Tensor, h: Tensor, activation: str) -> None:
    """Multiply delta by dh/dz, given h = a(z), in place."""
    if activation == "relu":
        torch.ops.aten.threshold_backward.grad_input(delta, h, 0, grad_input=delta)
    elif activation == "tanh":
        torch.ops.aten.tanh_backward.grad_input(delta, h, grad_input=delta)
    else:
        torch.ops.aten.sigmoid_backward.grad_input(delta, h, grad_input=delta)


def _affine(x: Any, weight: Tensor, bias: Tensor) -> Tensor:
    """X W + b for shapes (C, n, p), (C, p, q) and (C, 1, q); X may be a ``DesignBatch``."""
    if not isinstance(x, Tensor):
        return x.logits(weight) + bias
    if len(weight) == 1:  # a plain product is faster than a batch of one
        return torch.addmm(bias[0], x[0], weight[0])[None]
    return torch.baddbmm(bias, x, weight)


def _add_product(out: Tensor, x: Any, delta: Tensor) -> None:
    """Add X' D to ``out``, for shapes (C, n, p), (C, n, q) and (C, p, q)."""
    if not isinstance(x, Tensor):
        x.accumulate(out, delta, 1.0)
    elif len(out) == 1:
        out[0].addmm_(x[0].t(), delta[0])
    else:
        out.baddbmm_(x.mT, delta)
