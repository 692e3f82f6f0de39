"""Outputs beside the means, such as noise, that depend on the row only late in a burn-in.

A network that predicts means and noise can explain a row by its mean, or give up and call it noise.
Large noise takes the row's weight away, so chains that begin with both seldom come back from the
second. They begin with one noise for all rows, and find the means; then the noise becomes the rows'
own. For outputs s = b + h'W of a row, with the last layer's biases b and inputs h, and a share a
that is 0 first, and 1 from half of the burn-in, the likelihood gets

    b + a h'W.

Meanwhile W drifts, because no row knows of it, and begins at 0 when it is needed. A share that grew
step by step, for chains to follow, lost those of many rows with little noise: minibatches took
their steps until W had run away, and predictive densities were 0.1 to 3.6 nats worse
(docs/project/network_defaults.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..._metric import State

#: finished fraction of the burn-in at which the outputs become the rows' own
BEGIN = 0.5
#: name of the share, (chains, 1, 1), in a chain's state
SHARE = "own_share"


def delayed(theta: Tensor) -> State:
    """The share of chains at their starts."""
    return {SHARE: theta.new_zeros(len(theta), 1, 1)}


def begin(weights: Tensor, groups: Sequence[slice], state: State) -> None:
    """Set the share to one, and W (chains, inputs, outputs) to what it has been with the share.

    Chains that go on after a run have a share of one already.
    """
    for columns in groups:
        weights[..., columns].mul_(state[SHARE])
    state[SHARE].fill_(1.0)


def active(state: State) -> State:
    """The state without the share if it is one, and so stays."""
    share = state.get(SHARE)
    if share is None or float(share[0, 0, 0]) < 1.0:
        return state
    return {name: tensor for name, tensor in state.items() if name != SHARE}


def delay(s: Tensor, groups: Sequence[slice], state: State, bias: Tensor) -> None:
    """Replace b + h'W by b + a h'W in some columns of outputs (chains, rows, outputs), in place.

    ``bias`` of shape (chains, 1, outputs) has the biases b of all columns. Without a share, a is 1.
    """
    if SHARE not in state:
        return
    for columns in groups:
        part = s[..., columns]
        part.copy_(torch.lerp(bias[..., columns], part, state[SHARE]))


def pull_back(g: Tensor, groups: Sequence[slice], state: State, bias_slope: Tensor) -> None:
    """Turn slopes by b + a h'W into slopes by h'W, in place; add what b lacks then to its slope."""
    if SHARE not in state:
        return
    share = state[SHARE]
    for columns in groups:
        part = g[..., columns]
        bias_slope[..., columns].add_(part.sum(1, keepdim=True).mul_(1.0 - share))
        part.mul_(share)
