"""Chosen blocks of a network's weights: their names and their places in theta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..._exceptions import not_allowed
from .network import Network


class Blocks:
    """Chosen blocks of weights: names in the network's order, of those with places in theta."""

    def __init__(self, names: Sequence[str], places: Mapping[str, slice]):
        self.names = tuple(names)
        #: places in theta, and numbers of coefficients
        self.slices = [places[name] for name in self.names]
        self.sizes = [part.stop - part.start for part in self.slices]
        self.n = sum(self.sizes)

    def coefficients(self, theta: Tensor) -> Tensor:
        """The coefficients (chains, n); a view if there is one block."""
        parts = [theta[:, part] for part in self.slices]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def find_blocks(parameter: str, layers: Any, network: Network) -> tuple[str, ...]:
    """Names of the blocks of weights that ``layers`` selects, in the network's order.

    ``layers`` is "all", or names of blocks or of the layers that contain them, as the parameter of
    that name has it, which the ``ValueError`` for names that do not fit shows.
    """
    if isinstance(layers, str):
        return tuple(network.fan_in)
    found: list[str] = []
    for name in layers:
        block = name if name in network.fan_in else f"{name}.weight"
        if block not in network.fan_in or block in found:
            listed = ", ".join(repr(block) for block in network.fan_in)
            raise not_allowed(
                f"{parameter}={layers!r} is not allowed: {name!r} is given twice, or is not a "
                f"block of the network's weights; give 'all' or some of {listed}."
            )
        found.append(block)
    return tuple(block for block in network.fan_in if block in found)
