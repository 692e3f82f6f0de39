"""Torch modules as networks, and the modules of perceptrons and convolutional networks."""

from __future__ import annotations

import copy
import inspect
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from .ensemble import StackedModule
from .mlp import ACTIVATIONS
from .network import Network
from .passes import Autocast

Array = NDArray[Any]

#: largest number of parameters for which chains go through a module together: on a CPU (measured),
#: and on other devices, where starting an operation costs more than computing it
VECTORIZED_PARAMETERS, VECTORIZED_ELSEWHERE = 10_000, 1_000_000
#: number of rows that go through a module at once in predictions
PREDICTION_ROWS = 1000
_BATCH_NORM = nn.modules.batchnorm._BatchNorm
_DROPOUT = nn.modules.dropout._DropoutNd
#: torch's global random numbers are put aside by one thread at a time
_BUILDING = threading.Lock()


class ModuleNetwork(Network):
    """A torch module as a network, with parameters from theta and gradients by autograd.

    All chains go through a small module together, by ``torch.func.vmap``.

    Matrices and kernels start as in He et al. (2015), and biases start at zero. Other parameters,
    such as the scales of batch norms, start at the values of the module.

    Parameters
    ----------
    module : nn.Module
        The module.
    vectorized : bool, default=False
        Whether chains go through a module of any size together. Modules that do not support this
        are refused.

    Raises
    ------
    ValueError
        The module has no parameters, or has dropout, which makes the density random.
    """

    def __init__(self, module: nn.Module, vectorized: bool = False):
        dropout = [name for name, part in module.named_modules() if isinstance(part, _DROPOUT)]
        if dropout:
            raise ValueError(
                f"module with dropout ({', '.join(dropout)}) is not allowed, because the density "
                "of a posterior must not be random: remove the dropout. The prior and the average "
                "over draws regularise the network instead."
            )
        self.module = module
        self.vectorized = vectorized
        self.shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        if not self.shapes:
            raise ValueError("module without parameters is not allowed: there is nothing to learn.")
        self.fan_in = {
            name: math.prod(shape[1:]) for name, shape in self.shapes.items() if len(shape) > 1
        }
        self._sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.batch_norms = [
            name for name, part in module.named_modules() if isinstance(part, _BATCH_NORM)
        ]

        self.buffers = [
            f"{name}.{kind}"
            for name in self.batch_norms
            for kind in ("running_mean", "running_var")
        ]
        self._separable = True  # until vmap says no
        self._copies = _Copies()
        self._copies.module = module

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_copies"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._copies = _Copies()
        self._copies.module = self.module

    @property
    def _own(self) -> nn.Module:
        """The module of this thread: a call puts theta in the place of its parameters."""
        copies = self._copies
        if copies.module is None:
            copies.module = copy.deepcopy(self.module)
        return copies.module

    def init(self, rng: np.random.Generator) -> Array:
        parts = []
        for name, parameter in self.module.named_parameters():
            size = parameter.numel()
            if name in self.fan_in:
                parts.append(rng.standard_normal(size) * np.sqrt(2.0 / self.fan_in[name]))
            elif name.rsplit(".", 1)[-1] == "bias":
                parts.append(np.zeros(size))
            else:
                parts.append(parameter.detach().double().cpu().numpy().reshape(-1))
        return np.concatenate(parts)

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        self._prepare(theta, training=True)
        if len(theta) > 1 and self._together(theta):
            leaf = theta.detach().requires_grad_()
            try:
                f = self._all_chains(leaf, x)
            except RuntimeError as error:
                self._refuse(error)
            else:
                # a copy, which the likelihood may write into: backward needs the outputs of what
                # ends in an activation
                return f.detach().clone(), [(slice(None), leaf, f)]
        tape = []
        for c in range(len(theta)):
            leaf = theta[c].detach().requires_grad_()
            with torch.enable_grad():  # with autocast, the outputs have another precision
                f = self._call(self._views(leaf), x[c if len(x) > 1 else 0]).to(theta.dtype)
            tape.append((c, leaf, f))
        return torch.stack([f.detach() for _, _, f in tape]), tape

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        for part, leaf, f in tape:
            (gradient,) = torch.autograd.grad(f, leaf, delta[part])
            out[part].add_(gradient)

    def _together(self, theta: Tensor) -> bool:
        """Whether chains go through the module together."""
        few = VECTORIZED_PARAMETERS if theta.device.type == "cpu" else VECTORIZED_ELSEWHERE
        return self._separable and (self.vectorized or theta.shape[1] <= few)

    def _all_chains(self, theta: Tensor, x: Tensor) -> Tensor:
        # batch norms write to their statistics, so every chain needs its own
        buffers = {
            f"{name}.{kind}": buffer.expand(len(theta), *buffer.shape).clone()
            for name in self.batch_norms
            for kind, buffer in self._own.get_submodule(name).named_buffers()
        }
        own = len(x) > 1
        with torch.enable_grad():
            call = torch.func.vmap(self._call, in_dims=(0, 0 if own else None))
            f: Tensor = call(self._views(theta) | buffers, x if own else x[0])
            return f.to(theta.dtype)

    def _refuse(self, error: RuntimeError) -> None:
        """Remember that vmap fails, or raise an error if the user has asked for it."""
        if self.vectorized:
            raise ValueError(
                "chain_method='vectorized' is not allowed: torch.func.vmap does not support this "
                f"module ({error}); give 'sequential' or 'auto'."
            ) from error
        self._separable = False

    def _call(self, state: dict[str, Tensor], rows: Tensor) -> Tensor:
        # a copy, which the module may write into: the rows are those of all chains and steps
        outputs: Tensor = functional_call(self._own, state, (rows.clone(),))
        return outputs

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        # the module is in evaluation mode
        self._prepare(theta, training=False)
        found = []
        for c in range(len(theta)):
            state = self._views(theta[c])
            state |= {name: values[c] for name, values in (buffers or {}).items()}
            parts = x[c if len(x) > 1 else 0].split(PREDICTION_ROWS)
            found.append(torch.cat([self._call(state, p) for p in parts]))
        return torch.stack(found)

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        return StackedModule(self.module.float(), draws)

    def in_bfloat16(self) -> Autocast:
        return Autocast(self)

    @torch.no_grad()
    def buffer_values(self, theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        # the means and variances (units,) that batch norms use in predictions
        self._prepare(theta, training=True)
        module = self._own
        parts: list[Any] = [module.get_submodule(name) for name in self.batch_norms]
        momenta = [part.momentum for part in parts]
        try:
            for part in parts:
                part.momentum = None  # None averages over all rows
                part.reset_running_stats()
            # parts of equal length, because all parts have the same weight in the average
            for rows in x.tensor_split(-(-len(x) // PREDICTION_ROWS)):
                self._call(self._views(theta), rows)
        finally:
            for part, momentum in zip(parts, momenta, strict=True):
                part.momentum = momentum
        return {name: module.get_buffer(name).clone() for name in self.buffers}

    def _views(self, theta: Tensor) -> dict[str, Tensor]:
        parts = theta.split(self._sizes, dim=-1)
        return {
            name: part.view(*theta.shape[:-1], *shape)
            for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }

    def _prepare(self, like: Tensor, *, training: bool) -> None:
        module = self._own
        module.train(training)
        for buffer in module.buffers():
            if buffer.device != like.device or (
                buffer.is_floating_point() and buffer.dtype != like.dtype
            ):
                module.to(like.device, like.dtype)
                return


class _Copies(threading.local):
    """``module``: the one given in the thread that made this; in others None until it is set."""

    module: nn.Module | None = None


def bind(module: Callable[..., Any], **offered: Any) -> Callable[[], Any]:
    """Bind those of the offered arguments that the signature of ``module`` has.

    Arguments that a ``functools.partial`` has fixed remain fixed.
    """
    try:
        names = set(inspect.signature(module).parameters)
    except ValueError:  # compiled code may have no signature
        return module
    names -= set(module.keywords) if isinstance(module, partial) else set()
    given = {name: value for name, value in offered.items() if name in names}
    return partial(module, **given) if given else module


def build(module: Callable[[], Any], name: str = "module") -> nn.Module:
    """Build a module without changing the state of torch's global random numbers.

    Raises
    ------
    ValueError
        The result is not a module. ``name`` is the parameter that the message names.
    """
    with _BUILDING, torch.random.fork_rng(devices=[]):
        built = module()
    if not isinstance(built, nn.Module):
        raise ValueError(
            f"{name}={module!r} is not allowed: called without arguments it must build a "
            f"torch.nn.Module, but it built {type(built).__name__}."
        )
    return built


def check_builder(name: str, value: Any) -> None:
    """Refuse what is not a callable that builds modules, such as a module itself."""
    if isinstance(value, nn.Module):
        kind = type(value).__name__
        raise ValueError(
            f"{name}={value!r} is not allowed: it is a module. Give a callable that builds a new "
            f"one, such as a function, or {name}=lambda: {kind}(...)."
        )
    if not callable(value):
        raise ValueError(
            f"{name}={value!r} is not allowed: give a callable that builds a torch.nn.Module."
        )


def check_outputs(name: str, module: Any, outputs: Tensor, shape: tuple[int, int]) -> None:
    """Refuse a module whose outputs for some rows do not have the shape (rows, n_outputs)."""
    if outputs.shape != shape:
        raise ValueError(
            f"{name}={module!r} is not allowed: for {shape[0]} rows its output has the shape "
            f"{tuple(outputs.shape)}; give a module whose output has the shape {shape}."
        )


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
        height, width = (1 if side == 1 else kernel_size for side in sides)
        pool = tuple(min(pool_size, side) for side in sides)
        parts += [nn.Conv2d(channels, after, (height, width), padding="same"), act()]
        if max(pool) > 1:
            parts.append(nn.MaxPool2d(pool))
        channels, sides = after, [s // p for s, p in zip(sides, pool, strict=True)]
    units = channels * math.prod(sides)
    dense = _dense((units, *hidden_layer_sizes, n_outputs), act)
    return nn.Sequential(*parts, nn.Flatten(), *dense)


def _dense(sizes: Sequence[int], activation: Callable[[], nn.Module]) -> list[nn.Module]:
    """Linear layers with activations between them."""
    parts: list[nn.Module] = []
    for before, after in pairwise(sizes):
        parts += [nn.Linear(before, after), activation()]
    return parts[:-1]
