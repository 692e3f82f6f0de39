"""Looks at a torch module before it is sampled: what is random, what it changes, what it returns.

All functions call the module on a few rows. None of them changes torch's global random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import ParametrizationList

from ..._data.layout import PLAIN, Layout
from ..._exceptions import module_not_allowed, warn
from ..._modes import numbers_put_aside
from ..._validation import brief
from .module_copies import light_copy, put
from .module_ids import OUT_OF_RANGE, check_ids

#: layers with fused code for evaluation mode that has no derivative, which torch chooses where it
#: sees no gradients, as under vmap
_FUSED = nn.MultiheadAttention | nn.TransformerEncoderLayer | nn.TransformerEncoder
_DROPOUT = nn.modules.dropout._DropoutNd
_BATCH_NORM = nn.modules.batchnorm._BatchNorm
#: largest difference between two evaluations of a row that rounding explains, in units of the
#: largest output
ROUNDING = 1e-3


def evaluation_mode(module: nn.Module, active: tuple[str, ...] = ()) -> None:
    """Put a module into evaluation mode, but for the batch norms ``active``.

    Random layers do nothing in evaluation mode. Active batch norms use the statistics of the
    minibatch. Attention takes the code that can be differentiated.
    """
    module.eval()
    for name in active:
        module.get_submodule(name).train()
    for part in module.modules():
        if isinstance(part, _FUSED):
            part.training = True  # the flag alone: the parts inside stay in evaluation mode
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0


def main_output(found: Any) -> Tensor:
    """The outputs of a module: a tensor, the first of a tuple, or an attribute or item "logits".

    Raises
    ------
    ValueError
        There is no such tensor.
    """
    if isinstance(found, Tensor):
        return found
    logits = found.get("logits") if isinstance(found, Mapping) else getattr(found, "logits", None)
    first = found[0] if isinstance(found, tuple | list) and len(found) else None
    for each in (logits, first):
        if isinstance(each, Tensor):
            return each
    raise module_not_allowed(
        f"the module returned {type(found).__name__}: return a tensor, a tuple that begins with "
        "one, or an object with the attribute logits"
    )


def batch_norms(module: nn.Module) -> list[str]:
    """Names of the batch norms.

    Raises
    ------
    ValueError
        A batch norm has no running statistics, so that a prediction of a row would depend on the
        rows beside it.
    """
    found = [name for name, part in module.named_modules() if isinstance(part, _BATCH_NORM)]
    for name in found:
        if module.get_submodule(name).running_mean is None:
            raise module_not_allowed(
                f"module with the batch norm {name!r} is not allowed, because it has no running "
                "statistics, which predictions need: give track_running_stats=True."
            )
    return found


def explain_single_row(error: ValueError, n_rows: int, norms: Sequence[str]) -> None:
    """Raise an error that names ``batch_size`` if that of a module is one of a single row."""
    if n_rows == 1 and norms:
        raise module_not_allowed(
            f"batch_size=1 is not allowed for a module with the batch norm {norms[0]!r}, which "
            f"needs the mean and the variance of several rows ({error}); give a larger batch_size, "
            "or more rows."
        ) from error


def check_parameters(module: nn.Module) -> None:
    """Refuse compiled modules, and those without parameters or with parameters without values."""
    if isinstance(module, torch.jit.ScriptModule):
        raise module_not_allowed(
            f"module={type(module).__name__} is not allowed: what torch.jit has compiled does not "
            "take other parameters; give the torch.nn.Module that it was made from."
        )
    if next(module.parameters(), None) is None:
        raise module_not_allowed(
            "module without parameters is not allowed: there is nothing to learn."
        )
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter) or parameter.is_meta:
            raise module_not_allowed(
                f"module with the parameter {name!r} is not allowed, because it has no values yet "
                "(a lazy layer, or the device 'meta'): call the module once on some rows before."
            )


@torch.no_grad()
def random_layers(module: nn.Module, rows: Rows) -> list[str]:
    """Names of the layers that are random in training, such as dropout."""
    named = module.named_modules()
    found = [name for name, part in named if isinstance(part, _DROPOUT) and part.p > 0.0]
    if found:
        return found
    try:
        first = first_random(_in_training(module), rows)
    except (RuntimeError, ValueError, TypeError):
        first = None  # a module that can't be called in training is only evaluated
    return [] if first is None else [first]


@torch.no_grad()
def first_random(module: nn.Module, rows: Rows) -> str | None:
    """Name of the first part with other outputs in two calls with equal inputs, or None.

    If the calls go through different parts, it is the first of these. The name of the module itself
    is its class.
    """
    # of copies, because a call in training may change buffers, where the second would begin
    first, second = (_trace(light_copy(module), rows, seed) for seed in range(2))
    for (name, before, after), (other, *again) in zip(first, second, strict=False):
        if name != other or (before == again[0] and after != again[1]):
            return name
    return None


def _trace(module: nn.Module, rows: Rows, seed: int) -> list[tuple[str, Any, Any]]:
    """Digests of the inputs and outputs of all parts of a module, in the order of their ends.

    ``seed`` is that of torch's random numbers during the call.
    """
    found: list[tuple[str, Any, Any]] = []
    waiting: list[Any] = []
    with ExitStack() as hooks, numbers_put_aside(seed):
        for name, part in module.named_modules():

            def before(part: Any, args: Any, kwargs: Any) -> None:
                waiting.append(_digest((args, kwargs)))

            def after(part: Any, args: Any, output: Any, name: str = name) -> None:
                found.append((name or type(part).__name__, waiting.pop(), _digest(output)))

            hooks.enter_context(part.register_forward_pre_hook(before, with_kwargs=True))
            hooks.enter_context(part.register_forward_hook(after))
        call(module, rows)
    return found


def _digest(values: Any) -> Any:
    """Sums of the tensors in nested tuples, lists and mappings: numbers that can be compared."""
    if isinstance(values, Tensor):
        held = values.detach()
        held = torch.view_as_real(held) if held.is_complex() else held
        numbers = torch.nan_to_num(held.double())
        return tuple(values.shape), float(numbers.sum()), float(numbers.square().sum())
    if isinstance(values, Mapping):
        return tuple((str(key), _digest(value)) for key, value in values.items())
    if isinstance(values, tuple | list):
        return tuple(_digest(value) for value in values)
    return None


@dataclass(frozen=True)
class Rows:
    """Some rows, and how a module gets them as arguments."""

    #: the rows, (rows, ...)
    values: Tensor
    layout: Layout = PLAIN

    def __getitem__(self, chosen: slice) -> Rows:
        return Rows(self.values[chosen], self.layout)


def call(module: nn.Module, rows: Rows, state: dict[str, Tensor] | None = None) -> Any:
    """The module's outputs for a copy of rows; with the parameters of ``state``."""
    args, kwargs = rows.layout.split(rows.values)
    try:
        if state is None:
            return module(*args, **kwargs)
        # torch leaves tensors in the place of parameters in a part that the module has twice
        return functional_call(light_copy(module), state, args, kwargs)
    except OUT_OF_RANGE:
        check_ids(module, rows.layout, rows.values)
        raise


@torch.no_grad()
def changed_by_forward(module: nn.Module, rows: Rows) -> list[str]:
    """Names of the parameters and buffers that a call changes."""
    before = {name: value.clone() for name, value in _state(module)}
    call(module, rows)
    return [
        name
        for name, value in _state(module)
        if name not in before or before[name].shape != value.shape or not _same(before[name], value)
    ]


def _in_training(module: nn.Module) -> nn.Module:
    """A copy in training mode, but for batch norms, which need more than one row there."""
    copied = light_copy(module).train()
    for name in batch_norms(copied):
        copied.get_submodule(name).eval()
    return copied


def parametrized(module: nn.Module, sampled: Sequence[str]) -> dict[str, list[str]]:
    """Sampled parameters that torch computes others from, by the name of the parametrization."""
    parts = [n for n, part in module.named_modules() if isinstance(part, ParametrizationList)]
    own = {part: [name for name in sampled if name.startswith(f"{part}.")] for part in parts}
    return {part: names for part, names in own.items() if names}


def moves_in_training(module: nn.Module, part: str, rows: Rows) -> bool:
    """Whether a call in training changes buffers of some part of a module."""
    changed = changed_by_forward(_in_training(module), rows)
    return any(name.startswith(f"{part}.") for name in changed)


@torch.no_grad()
def jumps(module: nn.Module, names: Sequence[str], rows: Rows) -> bool:
    """Whether the outputs are not continuous at the values of some parameters.

    They then change as much if parameters change a little as if these change a hundred times more.
    """
    generator = torch.Generator().manual_seed(0)
    values = {name: module.get_parameter(name) for name in names}
    noise = {n: _normals(v, generator) for n, v in values.items()}

    def outputs(by: float) -> Tensor:
        return main_output(call(module, rows, {n: v + by * noise[n] for n, v in values.items()}))

    start = outputs(0.0)
    for by in (1e-5, -1e-5):
        near = outputs(by)
        change, further = ((f - start).abs().max() for f in (near, outputs(100.0 * by)))
        if change > 0.01 * near.abs().max() and change > 0.3 * further:
            return True
    return False


def _state(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))


def without_gradient(module: nn.Module, names: Sequence[str], rows: Rows) -> list[str]:
    """Names of those parameters that the outputs for some rows have no gradient in.

    The forward does not use them, or it does under ``torch.no_grad``, or detaches what they give.
    """
    parameters = [module.get_parameter(name) for name in names]
    before = [parameter.requires_grad for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.requires_grad_()
        with torch.enable_grad():
            outputs = main_output(call(module, rows))
            if not outputs.requires_grad:
                return list(names)
            slopes = torch.autograd.grad(outputs.sum(), parameters, allow_unused=True)
    finally:
        for parameter, required in zip(parameters, before, strict=True):
            parameter.requires_grad_(required)
    return [name for name, slope in zip(names, slopes, strict=True) if slope is None]


@torch.no_grad()
def mixes_rows(module: nn.Module, rows: Rows) -> bool:
    """Whether the output of the last of some rows changes if it comes alone."""
    together, alone = (main_output(call(module, x)) for x in (rows, rows[-1:]))
    if together.shape[1:] != alone.shape[1:] or len(alone) != 1:
        return True
    difference = (together[-1:] - alone).abs().max()
    return bool(difference > ROUNDING * together.abs().max())


@torch.no_grad()
def confined(module: nn.Module, rows: Rows, low: float, high: float) -> Tensor:
    """Which outputs stay between two bounds whatever the parameters are, (n_outputs,) of bool.

    This is seen at the module's parameters and at 24 that are random. Outputs that end in a
    linear layer have either sign with probability 1/2 there, so that chance hardly keeps them
    within the bounds 0 and infinity.
    """
    outputs = main_output(call(module, rows))
    inside = torch.ones_like(outputs[0], dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    for _ in range(24):
        inside &= ((outputs >= low) & (outputs <= high)).all(0)
        if not inside.any():
            break
        try:
            outputs = main_output(call(module, rows, _random_parameters(module, generator)))
        except Exception:  # whatever a module raises at parameters that it does not allow
            return torch.zeros_like(inside)
    return inside


def _random_parameters(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Normal parameters with the variance of He et al. (2015); vectors have the variance 1."""
    return {
        name: _normals(parameter, generator)
        * math.sqrt(2.0 / max(1, math.prod(parameter.shape[1:])) if parameter.ndim > 1 else 1.0)
        for name, parameter in module.named_parameters()
        if parameter.is_floating_point()
    }


def _normals(like: Tensor, generator: torch.Generator) -> Tensor:
    found = torch.randn(like.shape, generator=generator, dtype=torch.float32, device="cpu")
    return found.to(like)


def leave_out_probabilities(name: str, given: Any, module: nn.Module, rows: Rows) -> str | None:
    """Put an identity in the place of a final softmax or sigmoid, warn, and return its name.

    None: outputs are no probabilities, and the module is as before.

    Raises
    ------
    ValueError
        Outputs are probabilities, but not those of a last layer. The message shows the parameter
        ``name`` as it was ``given``.
    """
    if not confined(module, rows, 0.0, 1.0).all():
        return None
    last = _ends_in(module, rows, nn.Softmax | nn.Sigmoid)
    if last is not None:
        put(module, last, nn.Identity())
        if not confined(module, rows, 0.0, 1.0).all():
            warn(
                f"the outputs of {name} are probabilities: its last layer, {last!r}, is left out, "
                "because the likelihood has a softmax and needs logits. Leave it out yourself.",
                "the-outputs-of-a-module-are-probabilities",
            )
            return last
    raise module_not_allowed(
        f"{name}={brief(given)} is not allowed: its outputs are probabilities, which lie between "
        "0 and 1 whatever its parameters are, but the softmax of the likelihood needs logits; "
        "leave out the softmax or sigmoid at the end of its forward."
    )


def _ends_in(module: nn.Module, rows: Rows, kinds: Any) -> str | None:
    """Name of the part of some kinds that returns the module's outputs and is called once."""
    found, called = _watched(module, rows, kinds)
    names = [name for name, _ in called]
    outputs = main_output(found)
    last = [name for name, output in called if output is outputs and names.count(name) == 1]
    return last[0] if last else None


@torch.no_grad()
def last_linear(module: nn.Module, rows: Rows) -> str | None:
    """Name of the linear layer that is called last, or None."""
    _, called = _watched(module, rows, nn.Linear)
    return called[-1][0] if called else None


def _watched(module: nn.Module, rows: Rows, kinds: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """The module's outputs, and names and outputs of parts of some kinds in order of their ends."""
    called: list[tuple[str, Any]] = []

    def ended(part: Any, args: Any, output: Any, *, name: str) -> None:
        called.append((name, output))

    with ExitStack() as hooks:
        for name, part in module.named_modules():
            if isinstance(part, kinds):
                hooks.enter_context(part.register_forward_hook(partial(ended, name=name)))
        return call(module, rows), called
