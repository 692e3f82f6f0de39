"""Rows of several steps that are one compiled call."""

from __future__ import annotations

from . import part


@part
def one_of(arrays, t):
    """Array t of several, or the only one."""
    return arrays[t if len(arrays) > 1 else 0]


@part
def of_step(given, t):
    """What the gradient takes in step t, of what several steps are given."""
    theta, (x, y, labels, weight, _), network, images, lookups, g, total = given
    t = t if len(x) > 1 else 0
    first = t * len(theta) * x.shape[2]
    rows = x[t], one_of(y, t), one_of(labels, t), one_of(weight, t), first
    return theta, rows, network, images, lookups, g, total
