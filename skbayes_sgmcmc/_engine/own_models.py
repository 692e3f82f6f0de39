"""Looks at a model of the user's and its rows before they are sampled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._data.fields import Field
from .._data.minibatch import Data
from ..models._protocol import Model
from ..models.density import described, refused

#: rows at which a model is looked at, for two chains
ROWS = 5


def check_data(data: Data) -> None:
    """Refuse fields and weights that are not tensors with one entry for each row."""
    named = {f"fields[{name!r}]": field for name, field in data.fields.items()}
    named |= {} if data.weight is None else {"weight": data.weight}
    for name, held in named.items():
        if not isinstance(held, Tensor | Field):
            raise refused(
                f"data with {name} of type {type(held).__name__} is not allowed: give a tensor, "
                "such as torch.from_numpy(x)."
            )
        if (held.shape if name == "weight" else held.shape[:1]) != (data.n_rows,):
            raise refused(
                f"data with n_rows={data.n_rows!r} is not allowed with {name} of shape "
                f"{tuple(held.shape)}: rows are on the first axis, and n_rows is their number."
            )
    weight = torch.ones(1) if data.weight is None else data.weight
    if not (weight.isfinite().all() and (weight >= 0.0).all() and weight.any()):
        raise refused(
            "data is not allowed: its weight has values that are negative or not finite, or is "
            "zero for every row. Give nonnegative numbers, or None."
        )


def check_model(model: Model, data: Data, starts: Tensor) -> None:
    """Refuse log densities of other shapes than their own, which sums over them would hide.

    Also refuse those that change with theta and have no gradient. ``starts`` are positions (chains,
    n_parameters).
    """
    if starts.shape[1] != model.n_parameters:
        raise refused(
            f"target={model!r} is not allowed: its init returned {starts.shape[1]} numbers, and "
            f"its shapes have {model.n_parameters}."
        )
    shift = 1e-3 * torch.arange(2.0)[:, None]
    theta = (starts[[0, -1]] + shift.to(starts)).requires_grad_()
    batch = data.part(min(data.n_rows, ROWS)).all_rows()
    found: list[tuple[str, Any, str, tuple[int, ...]]] = []
    if type(model).prior_gradient is Model.prior_gradient:
        found.append(("log_prior", model.log_prior(theta), "(chains,)", (2,)))
    if model._by_autograd:
        lik = model.log_lik(theta, batch)
        found.append(("log_lik", lik, "(chains, rows)", (2, batch.size)))
    for function, given, axes, shape in found:
        if not isinstance(given, Tensor) or given.shape != shape:
            raise refused(
                f"target={model!r} is not allowed: its {function} returned {described(given)} for "
                f"2 chains and {batch.size} rows. Return a tensor of shape {axes}."
            )
        if not given.requires_grad and not torch.equal(given[0], given[1]):
            raise refused(
                f"target={model!r} is not allowed: its {function} returned a tensor without a "
                "gradient in theta. Compute it from theta by operations of torch."
            )
