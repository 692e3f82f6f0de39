"""Averages over draws of a network as torch modules, for ``torch.export`` and ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from ..._arrays import Array
from ..._data.layout import PLAIN, Layout
from ..._data.sending import exported
from ..likelihoods.base import Likelihood
from .module_checks import main_output


class StackedLinear(nn.Module):
    """A fully connected layer with the parameters of several draws, as one batched product.

    Weights are (draws, before, after), and biases (draws, after).
    """

    def __init__(self, weight: Tensor, bias: Tensor):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (draws, rows, after) of inputs (rows, before) or (draws, rows, before)."""
        return x @ self.weight + self.bias[:, None]


class StackedConvolution(nn.Module):
    """A "same" convolution with the parameters of several draws, as groups of one convolution.

    Kernels are (draws, after, before, height, width), and offsets (draws, after).
    """

    def __init__(self, kernel: Tensor, offset: Tensor):
        super().__init__()
        self.kernel = nn.Parameter(kernel.flatten(0, 1))
        self.offset = nn.Parameter(offset.flatten())

    def forward(self, x: Tensor) -> Tensor:
        """Images (rows, draws * after, height, width); before the first, draws share theirs."""
        groups = x.shape[1] // self.kernel.shape[1]
        return functional.conv2d(x, self.kernel, self.offset, padding="same", groups=groups)


class StackedUnits(nn.Module):
    """Units (draws, rows, units), with channels last, of images (rows, draws * channels, ...)."""

    def __init__(self, n_draws: int):
        super().__init__()
        self.n_draws = n_draws

    def forward(self, x: Tensor) -> Tensor:
        """Units of images."""
        return x.unflatten(1, (self.n_draws, -1)).permute(1, 0, 3, 4, 2).flatten(2)


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
        # not as a submodule: its parameters are not those of any draw
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
        inputs = (self.layout.split(x) for _ in states)
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
            self.register_buffer(name, torch.tensor(value, dtype=dtype, device="cpu"))

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
    sizes : sequence of int or None, default=None
        Numbers of classes of several targets. None: there is one target.
    """

    weights: Tensor

    def __init__(
        self,
        inputs: nn.Module,
        network: nn.Module,
        weights: Array,
        sizes: Sequence[int] | None = None,
    ):
        super().__init__()
        self.inputs, self.network, self.sizes = inputs, network, sizes
        self.register_buffer("weights", exported(weights))

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities (rows, n_classes) of rows (rows, n_features)."""
        p = _softmax(self.network(self.inputs(x)), self.sizes)
        return torch.tensordot(self.weights, p, dims=1)


class Power(nn.Module):
    """Class probabilities to a power, normalised: above 1, the larger probabilities grow.

    ``sizes`` are the numbers of classes of several targets. None: there is one target.
    """

    def __init__(self, power: float, sizes: Sequence[int] | None = None):
        super().__init__()
        self.power, self.sizes = power, sizes

    def forward(self, p: Tensor) -> Tensor:
        """Probabilities (rows, n_classes) of probabilities."""
        tiny = torch.finfo(p.dtype).tiny
        return _softmax(self.power * p.clamp(min=tiny).log(), self.sizes)


class ByTarget(nn.Module):
    """Probabilities of several targets in the form of ``predict_proba``.

    ``sizes`` are their numbers of classes; if ``multilabel``, each has the classes 0 and 1.
    """

    def __init__(self, sizes: Sequence[int], multilabel: bool):
        super().__init__()
        self.sizes, self.multilabel = sizes, multilabel

    def forward(self, p: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Probabilities (rows, targets) of the class 1, or those of each target's classes."""
        return p[:, 1::2] if self.multilabel else torch.split(p, list(self.sizes), dim=1)


def _softmax(outputs: Tensor, sizes: Sequence[int] | None) -> Tensor:
    """The softmax over the outputs (..., outputs) of each target."""
    parts = (outputs,) if sizes is None else torch.split(outputs, list(sizes), dim=-1)
    return torch.cat([part.softmax(-1) for part in parts], dim=-1)


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
            self.register_buffer(name, exported(value))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, (rows,) or (rows, n_outputs), for rows."""
        one = self.likelihood.predictive(self.network(self.inputs(x)), self.own)
        mean = torch.tensordot(self.weights, one.mean(), dims=1)
        spread = torch.tensordot(self.weights, (one.mean() - mean) ** 2, dims=1)
        noise = torch.tensordot(self.weights, one.variance(), dims=1)
        sd = torch.sqrt(spread + noise) * self.scale
        mean = mean * self.scale + self.center
        return (mean[:, 0], sd[:, 0]) if self.squeeze else (mean, sd)
