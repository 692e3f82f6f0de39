"""Faster ways to take the same steps, and what ``compiled`` means.

:data:`ACCELERATORS` lists all of them in order of preference. Each accelerator reports whether it
applies to a run, the reason if it does not, and whether it makes the run faster. A run has several
parts: its steps, and the parts of its model that compiled functions can compute. Each part uses the
first accelerator that applies (``compiled=True``), the first that applies and makes the run faster
(``compiled="auto"``), or none (``compiled=False``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..._exceptions import not_allowed
from ..._numba import why_no_numba
from ..recipe import Recipe
from ._base import Accelerator, Engine, Offer
from .cuda_graphs import CUDAGraph
from .fused_steps import FusedSteps
from .linear_momentum import LinearMomentum
from .linear_sgld import LinearSGLD
from .model_kernels import ModelKernel, PerceptronKernel
from .recorded_steps import FusedUpdates, RecordedSteps

__all__ = ["ACCELERATORS", "Choice", "Engine", "Offer", "choose", "equip", "offers"]

ACCELERATORS: tuple[Accelerator, ...] = (
    RecordedSteps(),
    FusedUpdates(),
    CUDAGraph(),
    LinearSGLD(),
    LinearMomentum(),
    FusedSteps(),
    PerceptronKernel(),
    ModelKernel("spike_slab", "the model has no spike-and-slab prior."),
    ModelKernel("documents", "the model is not one of documents."),
    ModelKernel("belief_network", "the model has no belief network."),
)


def offers(recipe: Recipe) -> list[Offer]:
    """The offer of every accelerator for this run."""
    return [accelerator.offer(recipe) for accelerator in ACCELERATORS]


class Choice(NamedTuple):
    """Names of the accelerators that a run uses, and why it does not use each of the others."""

    used: tuple[str, ...]
    why_not: dict[str, str]


def choose(compiled: Any, offered: Iterable[Offer]) -> Choice:
    """Which of the accelerators a run uses.

    Raises
    ------
    ValueError
        ``compiled`` is True and no accelerator applies. The message lists the reasons.
    """
    if compiled is False:
        return Choice((), {})
    chosen: dict[str, str] = {}  # by part
    reasons = {}
    for offer in offered:
        why_not = offer.why_not
        if why_not is None and offer.part in chosen:
            why_not = f"{chosen[offer.part]} is used in its place."
        if why_not is None and not (compiled is True or offer.pays):
            why_not = "it would not make the run faster."
        if why_not is None and offer.numba:
            why_not = why_no_numba()
        if why_not is None:
            chosen[offer.part] = offer.name
        else:
            reasons[offer.name] = why_not
    if compiled is True and not chosen:
        raise not_allowed(
            "compiled=True is not allowed here: no accelerator applies. Give compiled='auto'."
            + "".join(f"\n  {name}: {why_not}" for name, why_not in reasons.items())
        )
    return Choice(tuple(chosen.values()), reasons)


def equip(names: Sequence[str], recipe: Recipe) -> Engine:
    """The engine of a run with the accelerators of these names."""
    engine = Engine(recipe.target, recipe.cell, recipe.cell.integrator)
    for accelerator in ACCELERATORS:
        if accelerator.name in names:
            engine = accelerator.equip(engine, recipe)
    return engine
