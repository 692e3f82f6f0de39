"""Calls of a torch module with other tensors in the place of its parameters and buffers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from torch import Tensor, nn

from .module_checks import evaluation_mode
from .module_copies import converted, in_precision


class ModuleCalls:
    """A module that is called with other tensors in the place of some of its own.

    ``torch.func.functional_call`` does this, too, but goes through all parts of the module in every
    call, which takes longer than a small module itself. Here this is done once. One thread at a
    time can call the module.

    Parameters
    ----------
    module : nn.Module
        The module, which nothing else changes from now on.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self._slots: dict[str, list[tuple[Any, str]]] = {}
        #: what the module is prepared for
        self._ready: tuple[Any, ...] = ()

    def prepare(self, like: Tensor, active: tuple[str, ...] = ()) -> None:
        """Put the module into the mode of a call, on the device and in the precision of ``like``.

        The batch norms ``active`` use the statistics of the rows.
        """
        wanted = like.device, like.dtype, active
        if wanted == self._ready:
            return
        self._ready = ()  # until nothing has failed
        module = self.module
        evaluation_mode(module, active)
        for held in chain(module.parameters(), module.buffers()):
            if held.device != like.device or held.dtype != in_precision(held, like.dtype):
                converted(module, like.device, like.dtype)
                break
        self._slots = _slots(module)  # moving a module replaces its buffers
        self._ready = wanted

    def __call__(self, state: Mapping[str, Tensor], args: Any, kwargs: Any) -> Any:
        """The module's outputs with the tensors of ``state``, which have the names of its own.

        Where the module has one tensor in several places, all of them are replaced.
        """
        before = []
        try:
            for name, tensor in state.items():
                for held, key in self._slots[name]:
                    before.append((held, key, held[key]))
                    held[key] = tensor
            return self.module(*args, **kwargs)
        finally:
            for held, key, own in before:
                held[key] = own


class Latest:
    """A function of parts of a tensor; its latest results are kept while the tensor exists.

    ``make(part)`` returns something that depends on the tensor's memory and not on its values, such
    as views.
    """

    def __init__(self, make: Callable[[Tensor], Any]):
        self._make = make
        self._kept: tuple[weakref.ref[Tensor], Sequence[int | slice], list[Any]] | None = None

    def __call__(self, tensor: Tensor, parts: Sequence[int | slice]) -> list[Any]:
        """The results for ``tensor[part]`` of every part."""
        kept = self._kept  # read once: the end of a tensor, in any thread, takes them away
        if kept is not None and kept[0]() is tensor and kept[1] == parts:
            return kept[2]
        found = [self._make(tensor[part]) for part in parts]
        self._kept = weakref.ref(tensor, self._forget), parts, found
        return found

    def _forget(self, gone: weakref.ref[Tensor]) -> None:
        if self._kept is not None and self._kept[0] is gone:
            self._kept = None


def _slots(module: nn.Module) -> dict[str, list[tuple[Any, str]]]:
    """By the name of a parameter or buffer, where the module keeps it: dictionaries and keys."""
    names: dict[str, int] = {}
    places: dict[int, dict[tuple[int, str], tuple[Any, str]]] = {}
    # a part that the module has twice has two names and one place
    for prefix, part in module.named_modules(remove_duplicate=False):
        for held in (part._parameters, part._buffers):
            for key, tensor in held.items():
                if tensor is not None:
                    names[f"{prefix}.{key}" if prefix else key] = id(tensor)
                    places.setdefault(id(tensor), {})[id(held), key] = held, key
    return {name: list(places[tensor].values()) for name, tensor in names.items()}
