"""Torch modules of perceptrons and convolutional networks, with one set of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from .cnn import Convolution
from .mlp import ACTIVATIONS


class Architecture:
    """A function that builds a perceptron or a convolutional network, and can be stored in files.

    Parameters
    ----------
    kind : {"mlp", "cnn"}
        The function to call, :func:`mlp` or :func:`cnn`.
    *arguments
        Arguments of this function.
    """

    def __init__(self, kind: str, *arguments: Any):
        self.kind = kind
        self.arguments = arguments

    def __call__(self) -> nn.Module:
        return mlp(*self.arguments) if self.kind == "mlp" else cnn(*self.arguments)


def mlp(sizes: Sequence[int], activation: str) -> nn.Module:
    """Fully connected layers; ``sizes`` are the numbers of units, from inputs to outputs."""
    return nn.Sequential(nn.Flatten(), *_dense(sizes, ACTIVATIONS[activation]))


def cnn(
    image_shape: tuple[int, int, int],
    conv_channels: Sequence[int],
    kernel_size: int,
    pool_size: int,
    hidden_layer_sizes: Sequence[int],
    activation: str,
    n_outputs: int,
) -> nn.Module:
    """Convolutions with "same" padding, each with a max pool, and fully connected layers.

    If a side of the images has length 1, the corresponding side of kernels and pools is 1, too.
    """
    act = ACTIVATIONS[activation]
    channels, *sides = image_shape
    parts: list[nn.Module] = []
    for after in conv_channels:
        layer = Convolution(channels, after, (sides[0], sides[1]), kernel_size, pool_size)
        parts += [nn.Conv2d(channels, after, layer.kernel, padding="same"), act()]
        if max(layer.pool) > 1:
            parts.append(nn.MaxPool2d(tuple(layer.pool)))
        channels, sides = after, layer.sides_after
    units = channels * math.prod(sides)
    dense = _dense((units, *hidden_layer_sizes, n_outputs), act)
    return nn.Sequential(*parts, nn.Flatten(), *dense)


def _dense(sizes: Sequence[int], activation: Callable[[], nn.Module]) -> list[nn.Module]:
    """Linear layers with activations between them."""
    parts: list[nn.Module] = []
    for before, after in pairwise(sizes):
        parts += [nn.Linear(before, after), activation()]
    return parts[:-1]
