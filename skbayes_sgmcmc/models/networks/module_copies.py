"""Copies of torch modules, with other parts, in other precisions, and in files."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..._exceptions import module_not_allowed

#: the kind of a module, which copies keep
AnyModule = TypeVar("AnyModule", bound=nn.Module)


def light_copy(module: AnyModule) -> AnyModule:
    """A copy that shares the memory of the parameters, which a call does not change.

    The copy may be moved to another device or precision: its parameters then have their own memory.
    """
    shared = {
        id(parameter): nn.Parameter(parameter.detach(), parameter.requires_grad)
        for parameter in module.parameters()
    }
    return copied(module, shared)


def copied(module: AnyModule, memo: dict[int, Any] | None = None) -> AnyModule:
    """A deep copy of a module.

    Raises
    ------
    ValueError
        The module can't be copied.
    """
    try:
        return copy.deepcopy(module, memo)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise module_not_allowed(
            f"module={type(module).__name__} is not allowed: it can't be copied ({error}); give a "
            "callable that builds it, and torch.nn.utils.parametrizations in the place of "
            "torch.nn.utils.weight_norm and spectral_norm."
        ) from error


def converted(module: AnyModule, device: Any, dtype: torch.dtype) -> AnyModule:
    """The module on a device and in a precision.

    ``Module.to`` would leave out the imaginary parts of complex numbers.
    """
    return module._apply(lambda held: held.to(device, in_precision(held, dtype)))


def in_precision(held: Tensor, dtype: torch.dtype) -> torch.dtype:
    """The type of a tensor in a precision: whole numbers keep theirs."""
    if held.is_complex():
        return dtype.to_complex()
    return dtype if held.is_floating_point() else held.dtype


def put(module: nn.Module, name: str, part: nn.Module) -> None:
    """Put another part in the place of that of some name."""
    parent, _, child = name.rpartition(".")
    setattr(module.get_submodule(parent), child, part)


class PickleOnly:
    """Base class of objects that contain torch modules: pickle can write them, and skops can not.

    A skops file has no code, so that a module can't be restored from it. Skops asks objects for
    their ``__getstate__``, which pickle and copies, given a ``__reduce__``, do not.
    """

    def __reduce__(self) -> Any:
        return _restored, (type(self), vars(self))

    def __getstate__(self) -> Any:
        raise module_not_allowed(
            "skops is not allowed for fitted estimators of torch modules, and for their students, "
            "if these contain the module itself: use pickle or joblib, or to_onnx for predictions."
        )


def _restored(kind: Any, state: dict[str, Any]) -> Any:
    found = kind.__new__(kind)
    vars(found).update(state)
    return found
