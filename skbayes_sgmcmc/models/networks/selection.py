"""Which parameters of a torch module are sampled; the others keep the values of the module."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from ..._draws.storage import dtype_name
from ..._exceptions import not_allowed
from ..._validation import are_names
from .module_checks import Rows, last_linear

#: values of ``sample_parameters`` with a meaning of their own
WORDS = ("trainable", "all", "last_layer")
PARAMETER = "sample_parameters"


def check_selection(chosen: Any) -> None:
    """Refuse what is not a word, a pattern, a sequence of patterns or a callable."""
    if not (isinstance(chosen, str) or callable(chosen) or are_names(chosen)):
        listed = ", ".join(repr(word) for word in WORDS)
        raise not_allowed(
            f"{PARAMETER}={chosen!r} is not allowed: give {listed}, names or patterns such as "
            "'head.*', or a callable of name and parameter."
        )


def select(module: nn.Module, chosen: Any, rows: Rows) -> tuple[str, ...]:
    """Names of the parameters that ``sample_parameters=chosen`` selects, in the module's order.

    ``rows``, some inputs of the module, show its last layer. Raises ``ValueError`` if nothing is
    selected, a pattern matches nothing, a tensor with several names is selected by some of them
    only, or a selected parameter has no floating-point numbers.
    """
    names = _tied_names(module)
    flat = [name for group in names.values() for name in group]
    wanted = _wanted(module, chosen, rows, flat)
    found = []
    for first, group in names.items():
        parts = [name for name in group if name in wanted]
        if parts and len(parts) < len(group):
            other = next(name for name in group if name not in parts)
            raise not_allowed(
                f"{PARAMETER}={chosen!r} is not allowed: it selects {parts[0]!r}, which is the "
                f"same tensor as {other!r}; select both or neither."
            )
        if parts:
            _check_numbers(first, module.get_parameter(first), chosen)
            found.append(first)
    if not found:
        raise not_allowed(
            f"{PARAMETER}={chosen!r} is not allowed: it selects no parameter, because "
            + ("all are frozen (requires_grad=False)" if chosen == "trainable" else "none fits")
            + f"; give 'all', 'last_layer' or some of {_list(flat)}."
        )
    return tuple(found)


def _wanted(module: nn.Module, chosen: Any, rows: Rows, names: Sequence[str]) -> set[str]:
    """The names that are selected; of a tensor with several names maybe only some."""
    if callable(chosen):
        return {name for name in names if chosen(name, module.get_parameter(name))}
    if isinstance(chosen, str) and chosen == "all":
        return set(names)
    if isinstance(chosen, str) and chosen == "trainable":
        return {name for name in names if module.get_parameter(name).requires_grad}
    if isinstance(chosen, str) and chosen == "last_layer":
        layer = last_linear(module, rows)
        if layer is None:
            raise not_allowed(
                f"{PARAMETER}='last_layer' is not allowed: the module calls no torch.nn.Linear; "
                f"give some of {_list(names)}."
            )
        # a parametrization keeps its tensors in a part of the layer
        return {name for name in names if not layer or name.startswith(f"{layer}.")}
    patterns = [chosen] if isinstance(chosen, str) else list(chosen)
    wanted: set[str] = set()
    for pattern in patterns:
        found = {name for name in names if _fits(name, pattern)}
        if not found:
            raise not_allowed(
                f"{PARAMETER}={chosen!r} is not allowed: {pattern!r} matches no parameter; the "
                f"module has {_list(names)}."
            )
        wanted |= found
    return wanted


def _fits(name: str, pattern: str) -> bool:
    """Whether a parameter has the name ``pattern``, matches it, or lies in the layer of it."""
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")


def _tied_names(module: nn.Module) -> dict[str, list[str]]:
    """All names of each tensor that has numbers, by its first name."""
    first: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.numel() > 0:
            names.setdefault(first.setdefault(id(parameter), name), []).append(name)
    return names


def _check_numbers(name: str, parameter: Tensor, chosen: Any) -> None:
    if not parameter.is_floating_point():
        raise not_allowed(
            f"{PARAMETER}={chosen!r} is not allowed: {name!r} has numbers of type "
            f"{dtype_name(parameter.dtype)}, and only floating-point numbers can be sampled: "
            "select other parameters"
            + (", or make it of two real ones by torch.complex." if parameter.is_complex() else ".")
        )


def _list(names: Sequence[str]) -> str:
    """Names for a message; of many, six at each end: the last ones are those of the head."""
    listed = [repr(name) for name in names]
    if len(listed) > 12:
        listed[6:-6] = [f"... ({len(listed) - 12} more) ..."]
    return ", ".join(listed)
