"""Modules where only a final linear layer is sampled: the part before it, and the layer.

The part before, the body, maps rows to features. It has no sampled parameters, so the features of
the rows are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..._arrays import Array
from ..._data.layout import PLAIN, Layout
from ..._limits import LIMITS
from .ensemble import StackedLinear
from .module_checks import Rows, call, main_output
from .module_copies import light_copy, put
from .module_ids import OUT_OF_RANGE, check_ids
from .network import Network, draws_that_fit


@dataclass
class Head:
    """A final linear layer."""

    #: name of the layer in the module
    name: str
    n_features: int
    n_outputs: int
    bias: bool
    #: its values in the module, in one array: weights (n_outputs, n_features), then biases
    values: Array

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, as in the module."""
        before = f"{self.name}." if self.name else ""
        shapes: dict[str, tuple[int, ...]] = {f"{before}weight": (self.n_outputs, self.n_features)}
        return shapes | ({f"{before}bias": (self.n_outputs,)} if self.bias else {})


class Body(nn.Module):
    """A module without its last layer: its outputs are the inputs of that layer.

    The module has an identity in the place of the layer. None: rows are features.
    """

    def __init__(self, module: nn.Module | None, layout: Layout = PLAIN):
        super().__init__()
        self.module, self.layout = module, layout

    def forward(self, x: Tensor) -> Tensor:
        """Features (rows, n_features) of rows."""
        if self.module is None:
            return x
        args, kwargs = self.layout.split(x)
        return main_output(self.module(*args, **kwargs))


@torch.no_grad()
def split(module: nn.Module, names: Sequence[str], rows: Rows) -> tuple[Body, Head] | None:
    """The body and the head of a module; None if more is sampled than a final linear layer.

    ``names`` are the sampled parameters and ``rows`` are some inputs. A layer is final if it is
    called once, and its outputs are returned as they are.
    """
    layer = names[0].rpartition(".")[0]
    head = module.get_submodule(layer)
    if not isinstance(head, nn.Linear) or type(head).forward is not nn.Linear.forward:
        return None
    own = [f"{layer}.{part}" if layer else part for part in ("weight", "bias")]
    own = own if head.bias is not None else own[:1]
    if set(own) != set(names) or len(own) != len([*head.parameters()]):
        return None
    features = _features_before(module, head, rows)
    if features is None:
        return None
    body = _without(module, layer, rows.layout)
    if not _gives(body, rows, features):
        return None
    parts = (module.get_parameter(name).detach().double().numpy().reshape(-1) for name in own)
    size = head.in_features, head.out_features
    return body, Head(layer, *size, len(own) == 2, np.concatenate([*parts]))


def _features_before(module: nn.Module, head: nn.Linear, rows: Rows) -> Tensor | None:
    """The inputs of a layer if the module returns its outputs, whatever they are; else None."""
    found = [_returned(module, head, rows, sign) for sign in (1.0, -1.0)]
    return None if any(features is None for features in found) else found[0]


def _returned(module: nn.Module, head: nn.Linear, rows: Rows, sign: float) -> Tensor | None:
    """The inputs of a layer if the module returns its outputs times ``sign``, which it then has.

    With both signs, this shows what follows the layer, even if it depends on the values.
    """
    calls: list[tuple[Tensor, Tensor, Tensor]] = []

    def change(part: nn.Module, args: Any, output: Tensor) -> Tensor:
        changed = sign * output
        calls.append((args[0].clone(), changed, changed.clone()))
        return changed

    with head.register_forward_hook(change):
        found = main_output(call(module, rows))
    if len(calls) != 1 or found is not calls[0][1] or not torch.equal(found, calls[0][2]):
        return None
    return calls[0][0]


def _without(module: nn.Module, layer: str, layout: Layout) -> Body:
    if not layer:
        return Body(None)
    copied = light_copy(module)
    put(copied, layer, nn.Identity())
    return Body(copied, layout)


def _gives(body: Body, rows: Rows, features: Tensor) -> bool:
    """Whether a body gives these features; modules may need the layer that is gone."""
    try:
        found = body(rows.values)
    except Exception:  # whatever a module raises without its layer
        return False
    return found.ndim == 2 and torch.equal(found, features)


@torch.no_grad()
def features_of(body: Body, x: Any, out: Array) -> Array:
    """Write the features of the rows x, a field, to ``out`` (rows, n_features), part by part."""
    for start in range(0, len(out), LIMITS.module_rows):
        rows = slice(start, start + LIMITS.module_rows)
        some = x[rows]
        try:
            out[rows] = body(some).cpu().numpy()
        except OUT_OF_RANGE:
            check_ids(body.module or body, body.layout, some)
            raise
    return out


class LinearHead(Network):
    """A linear layer as a network of features, f = W x + b, with gradients by hand.

    ``start`` is as for :class:`ModuleNetwork`.
    """

    sampler = "psgld"

    def __init__(self, head: Head, start: str = "random"):
        self.head, self.start = head, start
        self.shapes = head.shapes
        self.fan_in = {next(iter(self.shapes)): head.n_features}

    def values(self) -> Array:
        return self.head.values

    def outputs(self, theta: Tensor, x: Tensor, buffers: dict[str, Tensor] | None = None) -> Tensor:
        weight, *bias = self.blocks(theta)
        f = torch.matmul(x, weight.mT)
        return f + bias[0][:, None] if bias else f

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Any]:
        return self.outputs(theta, x), x

    def backward(self, tape: Any, delta: Tensor, out: Tensor) -> None:
        weight, *bias = self.blocks(out)
        weight.add_(torch.matmul(delta.mT, tape))
        if bias:
            bias[0].add_(delta.sum(1))

    def draws_at_once(self, n_rows: int) -> int:
        return draws_that_fit(self, n_rows, self.head.n_outputs)

    def stacked(self, draws: dict[str, Tensor]) -> nn.Module:
        weight, *rest = draws.values()
        bias = rest[0] if rest else weight.new_zeros(weight.shape[:2])
        return StackedLinear(weight.mT, bias)
