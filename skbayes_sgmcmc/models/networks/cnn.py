r"""Convolutional networks as functions of flat parameters, for many chains at once.

Activations are kept with the channels last, because this suits the libraries' kernels. The chains
of a small network are the groups of one grouped convolution. The chains of a large network are
computed one after another, because each convolution keeps a processor busy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .ensemble import StackedConvolution, StackedUnits
from .mlp import ACTIVATIONS, MLP, activate, times_slope
from .network import Network, draws_that_fit

_convolve: Any = torch.ops.aten.convolution
_convolve_backward: Any = torch.ops.aten.convolution_backward
_pool: Any = torch.ops.aten.max_pool2d_with_indices
_pool_backward: Any = torch.ops.aten.max_pool2d_with_indices_backward


class CNN(Network):
    """Convolutions with "same" padding, each with a max pool, and fully connected layers.

    The activation follows the pool. Because it is monotone, the result is the same as in the usual
    order, with less computation. If a side of the images has length 1, the corresponding side of
    kernels and pools is 1, too. The parameters are ``kernel_1`` (channels after, height, width,
    channels before), ``offset_1``, ..., and those of the :class:`MLP` on top.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width of an image.
    conv_channels : sequence of int
        Number of channels after each convolution.
    kernel_size, pool_size : int
        Sides of kernels and pools.
    hidden_layer_sizes : sequence of int
        Numbers of units of the hidden fully connected layers.
    activation : {"relu", "tanh", "logistic"}
        Activation after each layer except the last.
    n_outputs : int
        Number of units of the last layer.
    grouped : bool or None, default=None
        Whether all chains are computed as one grouped convolution. None groups the chains of small
        networks.
    """

    counts_products = True
    single_precision = True  # torch's fast convolutions on a CPU need float32

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        conv_channels: Sequence[int],
        kernel_size: int,
        pool_size: int,
        hidden_layer_sizes: Sequence[int],
        activation: str,
        n_outputs: int,
        grouped: bool | None = None,
    ):
        self.image_shape = image_shape
        self.activation = activation
        self.grouped = grouped
        self.shapes, self.fan_in = {}, {}
        self.layers: list[Convolution] = []
        before, *sides = image_shape
        for number, after in enumerate(conv_channels, 1):
            layer = Convolution(before, after, (sides[0], sides[1]), kernel_size, pool_size)
            self.layers.append(layer)
            self.shapes[f"kernel_{number}"] = (after, *layer.kernel, before)
            self.shapes[f"offset_{number}"] = (after,)
            self.fan_in[f"kernel_{number}"] = before * math.prod(layer.kernel)
            before, sides = after, layer.sides_after
        units = before * math.prod(sides)
        self.top = MLP((units, *hidden_layer_sizes, n_outputs), activation)
        self.shapes |= self.top.shapes
        self.fan_in |= self.top.fan_in
        self.n_convolved = sum(self.sizes) - sum(self.top.sizes)

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        h, _ = self._convolutions(theta, x, record=False)
        return self.top.outputs(theta[:, self.n_convolved :], h)

    @property
    def row_products(self) -> int:
        return sum(layer.multiplications for layer in self.layers) + self.top.row_products

    def draws_at_once(self, n_rows: int) -> int:
        if not self._in_groups(n_rows):
            return 1
        widest = max((math.prod(layer.sides) * layer.after for layer in self.layers), default=1)
        return draws_that_fit(self, n_rows, widest)

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        h, tapes = self._convolutions(theta, x, record=True)
        f, top = self.top.forward(theta[:, self.n_convolved :], h)
        return f, (tapes, top)

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        tapes, top = tape
        delta = self.top.pull_back(top, delta, out[:, self.n_convolved :], inputs=bool(self.layers))
        start, together = 0, len(out) // max(1, len(tapes))
        for steps in tapes:
            chains = slice(start, start + together)
            self._backward(steps, delta[chains], out[chains])
            start += together

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        layers = [
            StackedConvolution(draws[f"kernel_{n}"].permute(0, 1, 4, 2, 3), draws[f"offset_{n}"])
            for n in range(1, len(self.layers) + 1)
        ]
        units = StackedUnits(len(draws["weight_1"])) if layers else nn.Flatten()
        return nn.Sequential(*self._with_pools(layers), units, self.top.stacked(draws))

    def module(self) -> nn.Sequential:
        """A torch module like the network of one draw, with torch's own random weights."""
        layers = [
            nn.Conv2d(c.before, c.after, c.kernel, padding="same", dtype=torch.float32)
            for c in self.layers
        ]
        return nn.Sequential(*self._with_pools(layers), *self.top.module())

    def _with_pools(self, layers: Sequence[nn.Module]) -> list[nn.Module]:
        """Convolutions, each with its pool and the activation."""
        parts: list[nn.Module] = []
        for convolution, layer in zip(self.layers, layers, strict=True):
            pool = [nn.MaxPool2d(tuple(convolution.pool))] if max(convolution.pool) > 1 else []
            parts += [layer, *pool, ACTIVATIONS[self.activation]()]
        return parts

    # convolutions ---------------------------------------------------------------------------------

    def _in_groups(self, n_rows: int) -> bool:
        if self.grouped is not None:
            return self.grouped
        widest = max((layer.multiplications for layer in self.layers), default=0)
        return n_rows * widest <= 2**24  # multiplications of one chain's minibatch (measured)

    def _convolutions(self, theta: Tensor, x: Tensor, *, record: bool) -> tuple[Tensor, list[Any]]:
        """The units (chains, rows, units) after the convolutions, and one tape for each group."""
        if not self.layers:
            return x.flatten(2), []
        chains, together = len(theta), len(theta) if self._in_groups(x.shape[1]) else 1
        found, tapes = [], []
        for start in range(0, chains, together):
            some = slice(start, start + together)
            rows = x[some] if len(x) > 1 else x
            h, steps = self._forward(theta[some], rows, record=record)
            found.append(_by_chain(h, together))
            tapes.append(steps)
        return found[0] if len(found) == 1 else torch.cat(found), tapes

    def _forward(self, theta: Tensor, x: Tensor, *, record: bool) -> tuple[Tensor, list[Any]]:
        h, steps = _channels_last(x), []
        for layer, (kernel, offset) in zip(self.layers, self._kernels(theta), strict=True):
            groups = h.shape[1] // layer.before
            before = h if layer.padding is None else functional.pad(h, layer.padding)
            z = _convolve(before, kernel, offset, [1, 1], layer.half, [1, 1], False, [0, 0], groups)
            chosen = None
            h = z
            if max(layer.pool) > 1:
                h, chosen = _pool(z, layer.pool)
            h = activate(h, self.activation)
            if record:
                steps.append((layer, kernel, before, z, chosen, h))
        return h, steps

    def _backward(self, steps: list[Any], delta: Tensor, out: Tensor) -> None:
        gradients = self._views(out)
        layer, *_, h = steps[-1]
        delta = _by_row(delta, h)
        for number in range(len(steps) - 1, -1, -1):
            layer, kernel, before, z, chosen, h = steps[number]
            times_slope(delta, h, self.activation)
            if chosen is not None:
                pool = layer.pool
                delta = _pool_backward(delta, z, pool, pool, [0, 0], [1, 1], False, chosen)
            groups = before.shape[1] // layer.before
            wanted = [number > 0, True, True]
            delta, by_kernel, by_offset = _convolve_backward(
                delta, before, kernel, [len(kernel)], [1, 1], layer.half, [1, 1], False, [0, 0],
                groups, wanted,
            )  # fmt: skip
            by_chain = by_kernel.permute(0, 2, 3, 1).reshape(gradients[number][0].shape)
            gradients[number][0].add_(by_chain)
            gradients[number][1].add_(by_offset.view(gradients[number][1].shape))
            if number and layer.padding is not None:
                left, right, top, bottom = layer.padding
                rows, columns = delta.shape[2] - bottom, delta.shape[3] - right
                delta = delta[:, :, top:rows, left:columns]

    def _views(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Kernels (chains, after, height, width, before) and offsets (chains, after)."""
        blocks = self.blocks(theta)
        return [(next(blocks), next(blocks)) for _ in self.layers]

    def _kernels(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Kernels and offsets of all chains, in the shapes of one grouped convolution."""
        return [
            (kernel.flatten(0, 1).permute(0, 3, 1, 2), offset.reshape(-1))
            for kernel, offset in self._views(theta)
        ]


class Convolution:
    """Shapes of one convolution and its pool."""

    def __init__(
        self, before: int, after: int, sides: tuple[int, int], kernel_size: int, pool_size: int
    ):
        self.before, self.after, self.sides = before, after, sides
        height, width = (1 if side == 1 else kernel_size for side in sides)
        self.kernel = height, width
        self.pool = [min(pool_size, side) for side in sides]
        self.sides_after = [side // pool for side, pool in zip(sides, self.pool, strict=True)]
        self.multiplications = before * after * math.prod(self.kernel) * math.prod(sides)
        # zero padding on both sides; kernels of even length need one more zero after the image
        self.half = [length // 2 for length in self.kernel]
        self.padding: list[int] | None = None
        if any(length % 2 == 0 for length in self.kernel):
            self.half = [0, 0]
            self.padding = [(width - 1) // 2, width // 2, (height - 1) // 2, height // 2]


def _channels_last(x: Tensor) -> Tensor:
    """Images (chains, rows, channels, height, width) as (rows, chains * channels, height, width).

    In memory the channels come last. The strides say so even if there is one channel; otherwise the
    convolution would choose its own layout.
    """
    chains, rows, channels, height, width = x.shape
    last = x.permute(1, 3, 4, 0, 2).reshape(-1)
    return last.view(rows, height, width, chains * channels).permute(0, 3, 1, 2)


def _by_chain(h: Tensor, chains: int) -> Tensor:
    """Units (chains, rows, units) of grouped images (rows, chains * channels, height, width)."""
    last = h.permute(0, 2, 3, 1)
    parts = last.unflatten(3, (chains, -1)).permute(3, 0, 1, 2, 4)
    return parts.reshape(chains, len(h), -1)


def _by_row(delta: Tensor, like: Tensor) -> Tensor:
    """The reverse of :func:`_by_chain`."""
    chains, rows, _ = delta.shape
    height, width = like.shape[2:]
    parts = delta.view(chains, rows, height, width, -1).permute(1, 2, 3, 0, 4)
    return parts.reshape(rows, height, width, -1).permute(0, 3, 1, 2)
