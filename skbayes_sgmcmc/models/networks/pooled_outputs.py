"""Outputs beside the means, such as noise, that rows share at the beginning of a burn-in.

A network that predicts means and noise can explain a row by its mean, or give up and call it noise.
Large noise takes the row's weight away, so chains that begin with both seldom come back from the
second. They begin with one noise for all rows, and find the means; then the noise becomes the rows'
own. With the outputs s of rows of the weights w, whose sum is W, and a share a that grows from 0 to
1, the likelihood gets

    A s,   A = a I + (1 - a) 1w'/W.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..._metric import State

#: finished fraction of the burn-in at which the share begins to grow, and at which it is 1
FIRST, LAST = 0.5, 0.75
#: number of steps in which it grows: after each, samplers compute a gradient again
LEVELS = 20
#: name of the share, (chains, 1, 1), in a chain's state
SHARE = "own_share"


def init_state(theta: Tensor) -> State:
    """The share of chains at their starts."""
    return {SHARE: theta.new_zeros(len(theta), 1, 1)}


def anneal(state: State, progress: float) -> bool:
    """Let the share grow; chains that go on after a run keep theirs, which is 1."""
    part = min(max((progress - FIRST) / (LAST - FIRST), 0.0), 1.0)
    share = int(part * LEVELS) / LEVELS
    changed = share > float(state[SHARE][0, 0, 0])
    if changed:
        state[SHARE].fill_(share)
    return changed


def pool(s: Tensor, groups: Sequence[slice], state: State, weight: Tensor | float) -> None:
    """Multiply some columns of outputs (chains, rows, outputs) by A, in place.

    ``weight`` of shape (chains or 1, rows, 1) has the rows' weights; a number if all are the same.
    """
    if _is_one(state[SHARE]):
        return
    for columns in groups:
        part = s[..., columns]
        if isinstance(weight, Tensor):
            mean = (part * _parts(weight)).sum(1, keepdim=True)
        else:
            mean = part.mean(1, keepdim=True)
        part.sub_(mean).mul_(state[SHARE]).add_(mean)


def pull_back(g: Tensor, groups: Sequence[slice], state: State, weight: Tensor | float) -> None:
    """Multiply some columns of the slopes by A s, (chains, rows, outputs), by A', in place."""
    share = state[SHARE]
    if _is_one(share):
        return
    for columns in groups:
        part = g[..., columns]
        common = part.sum(1, keepdim=True).mul_(1.0 - share)
        parts = _parts(weight) if isinstance(weight, Tensor) else 1.0 / g.shape[1]
        part.mul_(share).add_(common * parts)


def _is_one(share: Tensor) -> bool:
    # devices other than the CPU would have to be waited for
    return share.device.type == "cpu" and float(share[0, 0, 0]) == 1.0


def _parts(weight: Tensor) -> Tensor:
    """The weights, divided by their sum; zeros if that is zero."""
    total = weight.sum(1, keepdim=True)
    return weight / torch.where(total > 0.0, total, 1.0)
