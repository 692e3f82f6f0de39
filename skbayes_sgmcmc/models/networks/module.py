"""Torch modules as networks: parameters from theta, gradients by autograd, weights as starts."""

from __future__ import annotations

import inspect
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..._arrays import Array
from ..._data.layout import PLAIN, Layout
from ..._exceptions import module_not_allowed
from ..._limits import LIMITS
from ..._modes import numbers_put_aside
from ..._validation import brief
from .ensemble import StackedModule
from .module_calls import Latest, ModuleCalls
from .module_checks import batch_norms, check_parameters, explain_single_row, main_output
from .module_copies import converted, copied, light_copy
from .module_ids import with_checked_ids
from .network import Network
from .passes import Autocast


class ModuleNetwork(Network):
    """A torch module as a network, with parameters from theta and gradients by autograd.

    All chains go through a small module together, by ``torch.func.vmap``. The module is in
    evaluation mode, where dropout and other random layers do nothing. Only batch norms all of whose
    parameters are sampled use the statistics of the minibatch in gradients.

    Parameters
    ----------
    module : nn.Module
        The module, which belongs to the network from now on.
    vectorized : bool, default=False
        Whether chains go through a module of any size together. Modules that do not support this
        are refused.
    sampled : sequence of str or None, default=None
        Names of the parameters that are sampled, in the order of the module. The others keep their
        values. None: all parameters.
    start : {"random", "module"}, default="random"
        Where chains start. "random": matrices and kernels as in He et al. (2015), biases at zero,
        and other parameters, such as the scales of batch norms, at the values of the module.
        "module": at the values of the module, plus normal numbers with a standard deviation of
        ``START_SPREAD`` times the root mean square of a block's values (of all sampled values if
        the block is zero).
    layout : Layout, default=PLAIN
        What of a row is which argument of the module.

    Raises
    ------
    ValueError
        The module has a batch norm without running statistics.
    """

    recordable = False  # a module may do anything

    #: the choice by rows was measured on perceptrons only (docs/project/network_defaults.md)
    sampler = "psgld"
    #: multiplications of the outputs of a row, if they are known
    counted_products = 0

    def __init__(
        self,
        module: nn.Module,
        vectorized: bool = False,
        sampled: Sequence[str] | None = None,
        start: str = "random",
        layout: Layout = PLAIN,
    ):
        self.module = module.requires_grad_(False)
        self.layout = layout
        self.vectorized = vectorized
        self.start = start
        parameters = dict(module.named_parameters())
        sampled = list(parameters if sampled is None else sampled)
        self.shapes = {name: tuple(parameters[name].shape) for name in sampled}
        self.fan_in = {
            name: math.prod(shape[1:]) for name, shape in self.shapes.items() if len(shape) > 1
        }
        last = [name for name, parameter in parameters.items() if parameter.ndim > 1][-1:]
        self.ends_in_outputs = last == list(self.fan_in)[-1:]
        # large networks are trained, and fast, in single precision
        self.single_precision = sum(p.numel() for p in parameters.values()) > 100_000
        #: batch norms with statistics that depend on the draw
        self.batch_norms = tuple(
            name
            for name in batch_norms(module)
            if self._all_sampled(module.get_submodule(name), name, len(parameters))
        )
        self.buffers = [
            f"{name}.{kind}"
            for name in self.batch_norms
            for kind in ("running_mean", "running_var")
        ]
        self._separable = True  # until vmap says no
        self._tried = vectorized  # whether it is known what vmap says
        self._here = _InThread(self)

    def _all_sampled(self, norm: nn.Module, name: str, n_parameters: int) -> bool:
        """Whether all parameters of a batch norm are sampled; if it has none, of the module."""
        own = [f"{name}.{part}" if name else part for part, _ in norm.named_parameters()]
        return set(own) <= self.shapes.keys() if own else len(self.shapes) == n_parameters

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_here"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._here = _InThread(self)

    @property
    def row_products(self) -> int:
        return max(self.counted_products, super().row_products)

    def values(self) -> Array:
        """The module's own values of the sampled parameters, (n_parameters,) in float64."""
        found = (self.module.get_parameter(name) for name in self.shapes)
        return np.concatenate([_flat(parameter) for parameter in found])

    def _start_of(self, name: str, size: int) -> Array:
        biases = name.rsplit(".", 1)[-1] == "bias"
        return np.zeros(size) if biases else _flat(self.module.get_parameter(name))

    @with_checked_ids
    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        here = self._here
        here.calls.prepare(theta, self.batch_norms)
        if len(theta) > 1 and self._together(theta):
            every = slice(None)
            (leaves,) = here.leaves(theta, [every])
            try:
                f = self._all_chains(leaves, x)
            except (RuntimeError, UserWarning) as error:
                self._refuse(error)
            else:
                # a copy, which the likelihood may write into: backward needs the outputs of what
                # ends in an activation
                return f.detach().clone(), [(every, leaves, f)]
        tape = []
        for c, leaves in enumerate(here.leaves(theta, range(len(theta)))):
            with torch.enable_grad():  # with autocast, the outputs have another precision
                f = self._call(leaves, x[c if len(x) > 1 else 0]).to(theta.dtype)
            tape.append((c, leaves, f))
        return torch.stack([f.detach() for _, _, f in tape]), tape

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        sums = self._here.views(out, [part for part, *_ in tape])
        for (part, leaves, f), blocks in zip(tape, sums, strict=True):
            slopes = torch.autograd.grad(f, [*leaves.values()], delta[part], allow_unused=True)
            for into, slope in zip(blocks.values(), slopes, strict=True):
                if slope is not None:  # None: the outputs do not depend on this block
                    into.add_(slope)

    def _leaves(self, theta: Tensor) -> dict[str, Tensor]:
        """Blocks of theta for autograd; gradients of blocks need not be put together first."""
        leaves = self._views(theta.detach())
        for leaf in leaves.values():
            leaf.requires_grad_()
        return leaves

    def _together(self, theta: Tensor) -> bool:
        """Whether chains go through the module together."""
        # measured; on devices other than CPUs, to start an operation costs more than to compute it
        few = 10_000 if theta.device.type == "cpu" else 1_000_000
        return self._separable and (self.vectorized or theta.shape[1] <= few)

    def _all_chains(self, leaves: dict[str, Tensor], x: Tensor) -> Tensor:
        first = next(iter(leaves.values()))
        # batch norms write to their statistics, so every chain needs its own
        buffers = {
            f"{name}.{kind}": buffer.expand(len(first), *buffer.shape).clone()
            for name in self.batch_norms
            for kind, buffer in self._here.calls.module.get_submodule(name).named_buffers()
        }
        own = len(x) > 1
        with torch.enable_grad():
            call = torch.func.vmap(self._call, in_dims=(0, 0 if own else None))
            with nullcontext() if self._tried else _no_loops():
                f: Tensor = call(leaves | buffers, x if own else x[0])
            self._tried = True
            return f.to(first.dtype)

    def _refuse(self, error: RuntimeError | UserWarning) -> None:
        """Remember that vmap fails, or raise an error if the user has asked for it."""
        if self.vectorized:
            raise module_not_allowed(
                "chain_method='vectorized' is not allowed: torch.func.vmap does not support this "
                f"module ({error}); give 'sequential' or 'auto'."
            ) from error
        self._separable = False

    def _call(self, state: dict[str, Tensor], rows: Tensor) -> Tensor:
        # these are copies, which the module may write into: the rows are those of all chains
        args, kwargs = self.layout.split(rows)
        try:
            return main_output(self._here.calls(state, args, kwargs))
        except ValueError as error:
            explain_single_row(error, len(rows), self.batch_norms)
            raise

    @with_checked_ids
    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        # of a single row there are no statistics
        active = self.batch_norms if buffers is None and x.shape[1] > 1 else ()
        self._here.calls.prepare(theta, active)
        found = []
        for c in range(len(theta)):
            state = self._views(theta[c])
            state |= {name: values[c] for name, values in (buffers or {}).items()}
            parts = self._parts(x[c if len(x) > 1 else 0])
            found.append(torch.cat([self._call(state, p) for p in parts]))
        return torch.stack(found)

    @staticmethod
    def _parts(x: Tensor) -> tuple[Tensor, ...]:
        """Rows of one call each: of equal length, since batch norms average over parts."""
        return x.tensor_split(-(-len(x) // LIMITS.module_rows))

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        return StackedModule(
            converted(light_copy(self.module), "cpu", torch.float32), draws, self.layout
        )

    def in_bfloat16(self) -> Autocast:
        return Autocast(self)

    @torch.no_grad()
    def buffer_values(self, theta: Tensor, x: Tensor) -> dict[str, Tensor]:
        # the means and variances (units,) that batch norms use in predictions
        calls = self._here.calls
        calls.prepare(theta, self.batch_norms)
        module = calls.module
        parts: list[Any] = [module.get_submodule(name) for name in self.batch_norms]
        momenta = [part.momentum for part in parts]
        try:
            for part in parts:
                part.momentum = None  # None averages over all rows
                part.reset_running_stats()
            for rows in self._parts(x):
                self._call(self._views(theta), rows)
        finally:
            for part, momentum in zip(parts, momenta, strict=True):
                part.momentum = momentum
        return {name: module.get_buffer(name).clone() for name in self.buffers}

    def _views(self, theta: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.shapes, self.blocks(theta), strict=True))


@contextmanager
def _no_loops() -> Iterator[None]:
    """An error where vmap would warn at every step that it goes through the chains in a loop."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "There is a performance drop", UserWarning)
        yield


class _InThread(threading.local):
    """What a thread has of its own: the module that it calls, and the blocks of positions.

    Steps come with the same tensors, so that their blocks are made once.
    """

    def __init__(self, network: ModuleNetwork):
        self.calls = ModuleCalls(light_copy(network.module))
        self.leaves, self.views = Latest(network._leaves), Latest(network._views)


def own_copy(module: nn.Module) -> nn.Module:
    """A copy of a module that the user goes on with, on the CPU, in evaluation mode.

    Modules in half precision become modules in single precision: that of chains is no smaller.

    Raises
    ------
    ValueError
        The module can't be copied.
    """
    return in_one_precision(copied(module))


def in_one_precision(module: nn.Module) -> nn.Module:
    """The module on the CPU, in evaluation mode, in double precision or else in single."""
    check_parameters(module)
    _follow_derivatives(module)
    kinds = {p.dtype for p in module.parameters() if p.is_floating_point()}
    kind = torch.float64 if kinds == {torch.float64} else torch.float32
    return converted(module.eval(), "cpu", kind)


class Embedding(nn.Embedding):
    """An embedding whose gradient is the derivative of its outputs.

    Torch gives the row ``padding_idx`` none, so that it stays as it is in training. A chain would
    draw it from the prior, and outputs would depend on these draws. The attribute stays, because
    forwards make masks of it.
    """

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight, None, self.max_norm, self.norm_type)


def _follow_derivatives(module: nn.Module) -> None:
    """Let embeddings have the derivatives of their outputs as gradients."""
    for part in module.modules():
        if type(part) is nn.Embedding:
            part.__class__ = Embedding
        elif isinstance(part, nn.Embedding | nn.EmbeddingBag):
            part.scale_grad_by_freq = False  # bags leave padded ids out of their sums, too


def precision(module: nn.Module) -> torch.dtype:
    """The type of the parameters of a module in one precision."""
    kinds = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(kinds, torch.float32)


def _flat(parameter: Tensor) -> Array:
    return np.asarray(parameter.detach().double().cpu()).reshape(-1)


def bind(module: Callable[..., Any], **offered: Any) -> Callable[[], Any]:
    """Bind those of the offered arguments that the signature of ``module`` has.

    Arguments that a ``functools.partial`` has fixed remain fixed.

    Raises
    ------
    ValueError
        An argument has no value: it has no default, and is none of those that are offered.
    """
    try:
        parameters = inspect.signature(module).parameters
    except ValueError:  # compiled code may have no signature
        return module
    names = set(parameters)
    names -= set(module.keywords) if isinstance(module, partial) else set()
    given = {name: value for name, value in offered.items() if name in names}
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    unknown = [name for name in required if name not in given]
    if unknown:
        raise module_not_allowed(
            f"module={brief(module)} is not allowed: it asks for {', '.join(map(repr, unknown))}; "
            f"it may have the arguments {', '.join(offered)} by these names, and others with "
            "defaults."
        )
    return partial(module, **given) if given else module


def argument_names(module: Any) -> list[str]:
    """Names of the arguments of a module, of a class of modules, or of the first of a pair.

    They are not known of modules that a function builds.
    """
    module = module[0] if isinstance(module, tuple) else module
    forward = getattr(module, "forward", None)
    return [] if forward is None else list(inspect.signature(forward).parameters)


def build(module: Callable[[], Any], name: str = "module", seed: int | None = None) -> nn.Module:
    """Build a module on the CPU, without changing the state of torch's global random numbers.

    The module's own random numbers come from ``seed``; with None, from the global state.

    Raises
    ------
    ValueError
        The result is not a module. ``name`` is the parameter that the message names.
    """
    with numbers_put_aside(seed), torch.device("cpu"):
        built = module()
    if not isinstance(built, nn.Module):
        raise module_not_allowed(
            f"{name}={brief(module)} is not allowed: called without arguments it must build a "
            f"torch.nn.Module, but it built {type(built).__name__}."
        )
    return built


def check_builder(name: str, value: Any) -> None:
    """Refuse what is not a callable that builds modules, such as a module itself."""
    if isinstance(value, nn.Module):
        kind = type(value).__name__
        raise module_not_allowed(
            f"{name}={value!r} is not allowed: it is a module. Give a callable that builds a new "
            f"one, such as a function, or {name}=lambda: {kind}(...)."
        )
    if not callable(value):
        raise module_not_allowed(
            f"{name}={value!r} is not allowed: give a callable that builds a torch.nn.Module."
        )


def check_module(name: str, value: Any) -> None:
    """Refuse what is no module, no callable that builds one, and no callable with weights."""
    if isinstance(value, tuple) and len(value) == 2:
        check_builder(f"{name}[0]", value[0])
        if not isinstance(value[1], str | os.PathLike | Mapping):
            raise module_not_allowed(
                f"{name}[1]={value[1]!r} is not allowed: give the weights of the module, as a "
                "state dict or the path of a file that torch.save wrote."
            )
    elif not callable(value):  # modules are
        raise module_not_allowed(
            f"{name}={value!r} is not allowed: give a torch.nn.Module, a callable that builds one, "
            "or a pair of such a callable and weights."
        )


def with_weights(module: nn.Module, weights: Any) -> nn.Module:
    """A module with the weights of a state dict, or of the file that has one.

    Raises
    ------
    ValueError
        The file can't be read, or the weights are not those of the module.
    """
    shown = f"module[1]={weights!r}" if isinstance(weights, str | os.PathLike) else "module[1]"
    try:
        if isinstance(weights, str | os.PathLike):
            weights = torch.load(weights, map_location="cpu", weights_only=True)
        module.load_state_dict(weights)
    except (OSError, RuntimeError, TypeError, ValueError, EOFError, UnpicklingError) as error:
        raise module_not_allowed(
            f"{shown} is not allowed: {error}. Give the state dict of a module like that which "
            "module[0] builds, or the path of a file with torch.save(net.state_dict(), path)."
        ) from error
    return module


def check_outputs(name: str, module: Any, outputs: Tensor, shape: tuple[int, int]) -> None:
    """Refuse a module if its outputs for some rows do not have the shape (rows, n_outputs)."""
    if outputs.shape != shape:
        remedy = ""
        if outputs.shape == (shape[0], 1) and shape[1] == 2:
            remedy = (
                ", such as torch.nn.Sequential(module, torch.nn.ConstantPad1d((1, 0), 0.0)) if it "
                "returns the logit of the second class, without a sigmoid"
            )
        raise module_not_allowed(
            f"{name}={brief(module)} is not allowed: for {shape[0]} rows its output has the shape "
            f"{tuple(outputs.shape)}; give a module with an output of the shape {shape}"
            f"{remedy}."
        )
