"""What the estimators of torch modules refuse or warn of before they sample one.

``given`` is the parameter ``module``, for messages; ``module`` is the estimator's own copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from .._data.layout import Layout
from .._exceptions import RandomLayerWarning, listed, module_not_allowed, not_allowed, warn
from .._validation import brief
from ..models.networks import module_checks as checks
from ..models.networks.module_checks import Rows
from ..models.networks.module_ids import UnknownId


def tried(
    given: Any, module: nn.Module, few: Any, layout: Layout, input_shape: Any, row_shape: Any
) -> tuple[Any, Rows]:
    """The module's outputs for a few rows, and these as the module takes them.

    Whole numbers in a single array are given as such only to modules that take them.
    """
    layouts = [layout]
    if layout.whole.any() and not layout.several:
        layouts.append(layout.with_floats())
    reasons: list[Exception] = []
    for one in layouts:
        x = Rows(few, one)
        try:
            with torch.no_grad():
                outputs = checks.main_output(checks.call(module, x))
        except UnknownId:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError, KeyError) as error:
            reasons.append(error)
        else:
            return outputs, x
    why = str(reasons[0])
    if len(reasons) > 1:
        why = f"as whole numbers: {why}; as floating-point numbers: {reasons[1]}"
    if layout.several:
        asked = f": it does not take {layout.expected()}"
        hint = "Give the arrays the names, or the places, of its forward's arguments"
    else:
        asked = f" with input_shape={input_shape!r}: it does not take rows of shape {row_shape}"
        hint = (
            "If these are images or sequences, give the input_shape that the module expects, such "
            "as (channels, height, width)"
        )
    raise module_not_allowed(
        f"module={brief(given)} is not allowed{asked} ({why}). {hint}; else change the module's "
        "inputs."
    ) from reasons[0]


@contextmanager
def counted_products(module: nn.Module) -> Iterator[Callable[[], int]]:
    """Count the multiplications of linear layers and convolutions for a row of the calls."""
    found: dict[nn.Module, int] = {}

    def count(part: Any, args: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.ndim:  # subclasses may return anything
            found[part] = part.weight[0].numel() * out[0].numel()

    parts = [part for part in module.modules() if isinstance(part, nn.Linear | _ConvNd)]
    handles = [part.register_forward_hook(count) for part in parts]
    try:
        yield lambda: sum(found.values())
    finally:
        for handle in handles:
            handle.remove()


def check_behaviour(given: Any, module: nn.Module, x: Rows) -> None:
    """Refuse a module that is no function of single rows; warn of random layers."""
    checks.batch_norms(module)
    changed = checks.changed_by_forward(module, x)
    if changed:
        raise module_not_allowed(
            f"module={brief(given)} is not allowed: its forward changes {changed[0]!r} "
            "in evaluation mode; a posterior needs a function that stays the same."
        )
    part = checks.first_random(module, x)
    if part is not None:
        raise module_not_allowed(
            f"module={brief(given)} is not allowed: two evaluations of the same rows in "
            f"evaluation mode differ, first in {part!r}, and the density of a posterior must "
            "not be random; switch this off when self.training is false."
        )
    if checks.mixes_rows(module, x):
        raise module_not_allowed(
            f"module={brief(given)} is not allowed: its output for a row depends on the "
            "rows beside it. Rows are on the first axis of its inputs and outputs (for layers "
            "of sequences, batch_first=True)."
        )
    layers = checks.random_layers(module, x)
    if layers:
        warn(
            f"the module has dropout or other random layers ({listed(layers)}), which are "
            "switched off while sampling and in predictions: a posterior needs one fixed density, "
            "so they run as in eval(). The prior and the average over draws regularise the network "
            "instead.",
            "random-layers-are-switched-off",
            RandomLayerWarning,
        )


def check_range(
    given: Any, module: nn.Module, x: Rows, link: str | None, likelihood: Any = None
) -> str | None:
    """Take a final softmax or sigmoid of a classifier off ``module``, and return its name.

    Refuse other modules that return what the likelihood makes of their outputs. ``link`` is that of
    a regressor's likelihood, and None for classifiers.
    """
    if link is None:
        return checks.leave_out_probabilities("module", given, module, x)
    if link != "none" and checks.confined(module, x, 0.0, math.inf).any():
        what = {"identity": "standardised targets", "log": "logarithms of means"}[link]
        raise module_not_allowed(
            f"module={brief(given)} is not allowed with likelihood={likelihood!r}: "
            f"its outputs are {what}, which have both signs, but none is negative, whatever "
            "its parameters are; leave out the activation at its end."
        )
    return None


def check_gradients(
    module: nn.Module, names: Sequence[str], sample_parameters: Any, x: Rows
) -> None:
    """Refuse a choice of parameters if the outputs have a gradient in none of them."""
    still = checks.without_gradient(module, names, x)
    if not still:
        return
    named = listed(map(repr, still))
    reason = "its forward does not use them, or does so under torch.no_grad or detach()"
    if len(still) == len(names):
        raise not_allowed(
            f"sample_parameters={sample_parameters!r} is not allowed: the outputs of the "
            f"module have no gradient in {named}: {reason}. Change the module, or select "
            "other parameters.",
            "parameters-without-a-gradient",
        )
    warn(
        f"the outputs of the module have no gradient in {named}: {reason}. Their draws will be "
        "those of the prior. Change the module, or select other parameters.",
        "parameters-without-a-gradient",
    )


def check_parametrizations(given: Any, module: nn.Module, names: Sequence[str], x: Rows) -> None:
    """Refuse those that are not continuous; warn of those that are others in training."""
    for part, own in checks.parametrized(module, names).items():
        if checks.jumps(module, own, x):
            raise module_not_allowed(
                f"module={brief(given)} is not allowed: its outputs jump where the "
                f"parameters of {part!r} change, so that these have no density that gradients "
                "could sample; for orthogonal weights, give orthogonal_map='matrix_exp'."
            )
        if checks.moves_in_training(module, part, x):
            warn(
                f"training would update the buffers of {part!r}, which keep their values while "
                "sampling, so that the weights of spectral_norm do not have the norm 1. "
                "Register a parametrization without buffers, or select other parameters.",
                "a-parametrization-keeps-its-buffers",
            )
