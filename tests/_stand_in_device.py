"""A device that is not the CPU, without one: tensors that say that they are elsewhere.

Their numbers are on the CPU, so results are those of the CPU, but they are reached as those of a
GPU are: a tensor there does not mix with one on the CPU, has no ``numpy()``, and is copied only by
name. What the CPU would have to wait for is counted. Torch's own device "meta", which has shapes
without numbers, lends its name.
"""

from __future__ import annotations

import contextlib

import torch
from _inside import having, inside
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "meta"
aten = torch.ops.aten
#: operations whose result, or its size, the CPU has to wait for
WAITS = {
    aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten._unique2,
    aten.is_nonzero, aten.repeat_interleave, aten.allclose,
}  # fmt: skip
#: operations that take indices from the CPU: CUDA copies them, which takes a wait
INDEXED = {aten.index, aten.index_put_, aten.index_put, aten._index_put_impl_}
#: operations that add in the order of arrival of the threads of CUDA
UNORDERED = {
    aten.index_add, aten.index_add_, aten.scatter_add, aten.scatter_add_, aten.scatter_reduce,
    aten.scatter_reduce_, aten.bincount, aten.histc,
}  # fmt: skip
#: what waits for the stand-in, in the order of the calls
waited: list[str] = []
#: and what adds there in no fixed order
unordered: list[str] = []


class Elsewhere(torch.Tensor):
    """A tensor of the stand-in; ``here`` has its numbers."""

    @staticmethod
    def __new__(cls, here):
        return torch.Tensor._make_wrapper_subclass(
            cls, here.size(), strides=here.stride(), storage_offset=here.storage_offset(),
            dtype=here.dtype, device=NAME,
        )  # fmt: skip

    def __init__(self, here):
        self.here = here

    def __repr__(self, *, tensor_contents=None):
        return f"Elsewhere({self.here!r})"

    def tolist(self):
        waited.append("tolist")
        return self.here.tolist()

    def __reduce_ex__(self, protocol):
        raise AssertionError("a tensor of the device in what is stored")

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return call(function, args, kwargs or {})


class Mode(TorchDispatchMode):
    """Makes the tensors that are asked for on the device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return call(function, args, kwargs or {})


def call(function, args, kwargs):
    """Compute on the CPU what would be computed on the device."""
    tensors = []
    _with_tensors(tensors.append, (*args, *kwargs.values()))
    there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
    asked = kwargs.get("device")
    if not there and (asked is None or torch.device(asked).type != NAME):
        return function(*args, **kwargs)
    name = function.overloadpacket
    if name in (aten._to_copy, aten.copy_):
        return _copied(function, args, kwargs)
    plain = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.ndim > 0]
    if plain and name in INDEXED and isinstance(args[0], Elsewhere):
        waited.append(f"{function} with indices of the CPU")
    elif plain and there:
        raise RuntimeError(f"{function}: Expected all tensors to be on the same device")
    if name in UNORDERED:
        unordered.append(str(function))
    masks = args[1] if name in INDEXED else ()
    if name in WAITS or any(m is not None and m.dtype == torch.bool for m in masks):
        waited.append(str(function))
    return _computed(function, args, kwargs)


def _computed(function, args, kwargs):
    wrappers = {}

    def unwrapped(tensor):
        if isinstance(tensor, Elsewhere):
            wrappers[id(tensor.here)] = tensor
        return _here(tensor)

    args, kwargs = _with_tensors(unwrapped, args), _with_tensors(unwrapped, kwargs)
    if "device" in kwargs:
        kwargs = kwargs | {"device": "cpu"}
    result = function(*args, **kwargs)
    # what was changed in place is the same tensor as before
    return _with_tensors(lambda t: wrappers[id(t)] if id(t) in wrappers else Elsewhere(t), result)


def _with_tensors(change, value):
    """The value with its tensors changed. Torch's own ``tree_map`` takes ten times as long."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(_with_tensors(change, each) for each in value)
    if type(value) is dict:
        return {name: _with_tensors(change, each) for name, each in value.items()}
    return value


def _copied(function, args, kwargs):
    if function.overloadpacket is aten.copy_:
        source, target = args[1], args[0]
        result, moved = target, isinstance(source, Elsewhere) != isinstance(target, Elsewhere)
        _here(target).copy_(_here(source))
    else:
        source, to = args[0], kwargs.get("device")
        there = isinstance(source, Elsewhere)
        goes = there if to is None else torch.device(to).type == NAME
        moved = goes != there
        options = {k: v for k, v in kwargs.items() if k not in ("device", "non_blocking")}
        copy = function(_here(source), **options)
        result = Elsewhere(copy) if goes else copy
    if moved and source.ndim > 0 and not kwargs.get("non_blocking"):
        waited.append(f"{function} between devices")
    return result


def _here(tensor):
    return tensor.here if isinstance(tensor, Elsewhere) else tensor


@contextlib.contextmanager
def stand_in(monkeypatch):
    """While it is open, ``device="meta"`` is allowed and computes."""
    original = inside("resolve_device")
    allow = lambda device: NAME if device == NAME else original(device)  # noqa: E731
    with monkeypatch.context() as patch, Mode():
        for module in having("resolve_device"):
            patch.setattr(module, "resolve_device", allow)
        waited.clear()
        unordered.clear()
        yield
