"""Rows of several steps that are one compiled call."""

from __future__ import annotations

from . import part


@part
def one_of(arrays, t):
    """Array t of several, or the only one."""
    return arrays[t if len(arrays) > 1 else 0]


@part
def lookups_of(lookups, t):
    """What is looked up in step t; a function of its own, which is compiled for none, too."""
    if lookups is None:
        return None
    (values, columns, starts, chosen, width), places, constant = lookups
    return (values, columns, starts, one_of(chosen, t), width), places, constant


@part
def of_step(given, t):
    """What the gradient takes in step t, of what several steps are given."""
    theta, (x, y, labels, weight), network, images, lookups, g, total = given
    rows = one_of(x, t), one_of(y, t), one_of(labels, t), one_of(weight, t)
    return theta, rows, network, images, lookups_of(lookups, t), g, total
