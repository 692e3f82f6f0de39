"""Chosen blocks of a network's weights: their names, and where they are in theta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .network import Network


class Blocks:
    """Some blocks of weights.

    Parameters
    ----------
    names : sequence of str
        Their names, in the network's order.
    places : mapping of str to slice
        Where every block of the model is in theta.

    Attributes
    ----------
    slices : list of slice
        Where the chosen ones are.
    sizes : list of int
        Numbers of their coefficients, ``n`` in all.
    """

    def __init__(self, names: Sequence[str], places: Mapping[str, slice]):
        self.names = tuple(names)
        self.slices = [places[name] for name in self.names]
        self.sizes = [part.stop - part.start for part in self.slices]
        self.n = sum(self.sizes)

    def coefficients(self, theta: Tensor) -> Tensor:
        """The coefficients (chains, n); a view if they are one block."""
        parts = [theta[:, part] for part in self.slices]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def find_blocks(parameter: str, layers: Any, network: Network) -> tuple[str, ...]:
    """Blocks of weights by their names, or those of their layers; "all": every one.

    Parameters
    ----------
    parameter : str
        Name of the parameter whose value ``layers`` is, for the message.
    layers : "all" or list of str
        The names.
    network : Network
        It has the blocks.

    Raises
    ------
    ValueError
        There is no such block.
    """
    if isinstance(layers, str):
        return tuple(network.fan_in)
    found: list[str] = []
    for name in layers:
        block = name if name in network.fan_in else f"{name}.weight"
        if block not in network.fan_in or block in found:
            listed = ", ".join(repr(block) for block in network.fan_in)
            raise ValueError(
                f"{parameter}={layers!r} is not allowed: {name!r} is not, or twice, among the "
                f"network's blocks of weights; give 'all' or some of {listed}."
            )
        found.append(block)
    return tuple(block for block in network.fan_in if block in found)
