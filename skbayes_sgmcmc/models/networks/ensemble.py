"""Averages over draws of a network as torch modules, for ``torch.export`` and ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from ..._data.layout import PLAIN, Layout
from ..likelihoods import Likelihood
from .module_checks import main_output

Array = NDArray[Any]


class StackedLayers(nn.Module):
    """Fully connected layers of several draws; each layer is one batched product.

    Parameters
    ----------
    weights : sequence of Tensor of shape (draws, before, after)
        Weights of every layer.
    biases : sequence of Tensor of shape (draws, after)
        Biases of every layer.
    activation : nn.Module
        Activation between the layers.
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: nn.Module):
        super().__init__()
        self.activation = activation
        self.weights = nn.ParameterList(weights)
        self.biases = nn.ParameterList(biases)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (draws, rows, n_outputs) of rows (rows, n_inputs) or (draws, rows, n_inputs)."""
        h = x if x.ndim == 3 else x[None]
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = (self.activation(h) if layer else h) @ weight + bias[:, None]
        return h


class StackedConvolutions(nn.Module):
    """Convolutions of several draws as grouped convolutions, and the layers on top of them.

    Parameters
    ----------
    kernels : sequence of Tensor of shape (draws, after, before, height, width)
        Kernels of every convolution.
    offsets : sequence of Tensor of shape (draws, after)
        Offsets of every convolution.
    pools : sequence of tuple of int
        Sides of the max pool after each convolution.
    activation : nn.Module
        Activation after each pool.
    top : nn.Module
        Maps the units (draws, rows, units) after the convolutions, with channels last, to the
        outputs.
    """

    def __init__(
        self,
        kernels: Sequence[Tensor],
        offsets: Sequence[Tensor],
        pools: Sequence[tuple[int, ...]],
        activation: nn.Module,
        top: nn.Module,
    ):
        super().__init__()
        self.kernels = nn.ParameterList([kernel.flatten(0, 1) for kernel in kernels])
        self.offsets = nn.ParameterList([offset.flatten() for offset in offsets])
        self.n_draws, self.pools = len(kernels[0]), pools
        self.activation, self.top = activation, top

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (draws, rows, n_outputs) of images (rows, channels, height, width)."""
        h = x
        for kernel, offset, pool in zip(self.kernels, self.offsets, self.pools, strict=True):
            groups = h.shape[1] // kernel.shape[1]
            h = functional.conv2d(h, kernel, offset, padding="same", groups=groups)
            h = self.activation(functional.max_pool2d(h, pool) if max(pool) > 1 else h)
        parts = h.unflatten(1, (self.n_draws, -1)).permute(1, 0, 3, 4, 2)
        return self.top(parts.flatten(2))


class StackedModule(nn.Module):
    """A module with the parameters and buffers of several draws, called once for each draw.

    Parameters
    ----------
    module : nn.Module
        The module.
    states : dict of str to Tensor of shape (draws, ...)
        Draws of its parameters and buffers, by name. All draws share the others.
    layout : Layout, default=PLAIN
        What of a row is which argument of the module.
    """

    def __init__(self, module: nn.Module, states: dict[str, Tensor], layout: Layout = PLAIN):
        super().__init__()
        self.layout = layout
        # not as a submodule, whose parameters are not those of any draw
        self._call = partial(functional_call, module.eval())
        held = chain(module.named_parameters(), module.named_buffers())
        constant = {name: value.detach() for name, value in held if name not in states}
        self._drawn, self._constant = list(states), list(constant)
        for number, values in enumerate([*states.values(), *constant.values()]):
            self.register_buffer(f"values_{number}", values)  # the names may contain dots

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (draws, rows, n_outputs) of rows."""
        values = list(self.buffers())
        drawn, constant = values[: len(self._drawn)], values[len(self._drawn) :]
        shared = dict(zip(self._constant, constant, strict=True))
        states = [dict(zip(self._drawn, draw, strict=True)) for draw in zip(*drawn, strict=True)]
        # the arguments are copies, which the module may write into
        inputs = (self.layout.arguments(x) for _ in states)
        outputs = [self._call(shared | one, *x) for one, x in zip(states, inputs, strict=True)]
        return torch.stack([main_output(f) for f in outputs])


class MainOutput(nn.Module):
    """Takes the tensor of outputs from what a module returns."""

    def forward(self, found: Any) -> Tensor:
        """Outputs (rows, n_outputs)."""
        return main_output(found)


class Inputs(nn.Module):
    """Converts the user's rows to the network's inputs, (row - center) / scale.

    Parameters
    ----------
    center, scale : array of shape (n_features,) or (1,)
        Centre and scale of the rows.
    row_shape : sequence of int
        Shape of a row at the network's input.
    dtype : torch.dtype, default=torch.float32
        Precision of the network's input.
    layout : Layout, default=PLAIN
        What of a row is which argument of the network.
    """

    center: Tensor
    scale: Tensor

    def __init__(
        self,
        center: Array,
        scale: Array,
        row_shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        layout: Layout = PLAIN,
    ):
        super().__init__()
        self.row_shape, self.layout = tuple(row_shape), layout
        for name, value in {"center": center, "scale": scale}.items():
            self.register_buffer(name, torch.tensor(value, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Inputs (rows, *row_shape) of the network, for rows (rows, n_features) or images.

        If the network has several arguments, x is a tuple or a mapping of them.
        """
        z = (self.layout.packed(x) - self.center) / self.scale
        return z.to(self.center.dtype).reshape(-1, *self.row_shape)


class MeanProbabilities(nn.Module):
    """Class probabilities averaged over draws.

    Parameters
    ----------
    inputs : nn.Module
        Maps rows to the inputs of the network.
    network : nn.Module
        Maps these inputs to logits (draws, rows, n_classes).
    weights : array of shape (draws,)
        Weights of the draws; their sum is one.
    """

    weights: Tensor

    def __init__(self, inputs: nn.Module, network: nn.Module, weights: Array):
        super().__init__()
        self.inputs, self.network = inputs, network
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities (rows, n_classes) of rows (rows, n_features)."""
        p = torch.softmax(self.network(self.inputs(x)), dim=2)
        return torch.tensordot(self.weights, p, dims=1)


class Power(nn.Module):
    """Class probabilities to a power, normalised.

    Parameters
    ----------
    power : float
        The power: above 1, the larger probabilities grow.
    """

    def __init__(self, power: float):
        super().__init__()
        self.power = power

    def forward(self, p: Tensor) -> Tensor:
        """Probabilities (rows, n_classes) of probabilities."""
        tiny = torch.finfo(p.dtype).tiny
        return torch.softmax(self.power * p.clamp(min=tiny).log(), dim=1)


class MeanAndDeviation(nn.Module):
    """Mean of a target over draws, and standard deviation of a new observation.

    Parameters
    ----------
    inputs : nn.Module
        Maps rows to the inputs of the network.
    network : nn.Module
        Maps these inputs to outputs (draws, rows, n_outputs).
    likelihood : Likelihood
        Likelihood of the outputs.
    own : Tensor of shape (draws, m)
        Draws of the likelihood's own parameters.
    weights : array of shape (draws,)
        Weights of the draws; their sum is one.
    center, scale : array of shape (n_targets,)
        Centre and scale of the targets: a target is scale * (target of the likelihood) + center.
    squeeze : bool
        Whether to return vectors, for a single target.
    """

    own: Tensor
    weights: Tensor
    center: Tensor
    scale: Tensor

    def __init__(
        self,
        inputs: nn.Module,
        network: nn.Module,
        likelihood: Likelihood,
        own: Tensor,
        weights: Array,
        center: Array,
        scale: Array,
        squeeze: bool,
    ):
        super().__init__()
        self.inputs, self.network, self.squeeze = inputs, network, squeeze
        self.likelihood = likelihood
        self.register_buffer("own", own.float())
        values = {"weights": weights, "center": center, "scale": scale}
        for name, value in values.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, (rows,) or (rows, n_outputs), for rows."""
        one = self.likelihood.predictive(self.network(self.inputs(x)), self.own)
        mean = torch.tensordot(self.weights, one.mean(), dims=1)
        spread = torch.tensordot(self.weights, (one.mean() - mean) ** 2, dims=1)
        noise = torch.tensordot(self.weights, one.variance(), dims=1)
        sd = torch.sqrt(spread + noise) * self.scale
        mean = mean * self.scale + self.center
        return (mean[:, 0], sd[:, 0]) if self.squeeze else (mean, sd)
