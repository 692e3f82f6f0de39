r"""Integrators: symmetric compositions of a sampler's sub-flows, most with one gradient per step.

The letters are those of molecular dynamics: A drift, B kick, F friction, N noise, O exact
Ornstein-Uhlenbeck (F and N together). ``½`` is half a step.

====================  =====================  ==============================================
name                  formula                order of the bias in h at fixed D
====================  =====================  ==============================================
euler                 the sampler's own      1 (SGHMC: 1 in <v^2>, 2 in theta)
splitting             A½ F½ (B+N) F½ A½      2 (Li, Chen, Fan & Carin 2016)
baoab                 B½ A½ O A½ B½          2, and exact for theta on Gaussians
aboba                 A½ B½ O B½ A½          2 (SGHMC: exact for theta on Gaussians)
leimkuhler_matthews   SGLD, shared noise     2, and exact on Gaussians
metropolis            MALA's accept step     no bias
conditional           Gibbs' draws           no bias
leapfrog              B½ A B½ O              2 (MCLMC: its B is a turn of u)
minimal_norm          Bλ A½ B(1-2λ) A½ Bλ O  2, with a smaller constant; two gradients a step
====================  =====================  ==============================================

Those of one sampler alone are methods of it: ``leimkuhler_matthews``, ``metropolis``,
``conditional``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .._exceptions import not_allowed
from .._metric import State

if TYPE_CHECKING:
    from ._protocol import Step

Integrator = Callable[[Any, Tensor, State, "Step"], Any]

#: lambda of the minimal-norm scheme (Omelyan, Mryglod & Folk 2003)
MINIMAL_NORM = 0.1931833275037836


def euler(sampler: Any, theta: Tensor, state: State, step: Step) -> None:
    """Take the sampler's joint Euler step."""
    found = sampler.euler(theta, state, step)
    if found is not None:  # a user's own sampler may return the new positions
        if found.shape != theta.shape:
            raise not_allowed(
                f"sampler={sampler!r} is not allowed: its euler returned positions of shape "
                f"{tuple(found.shape)} for theta of shape {tuple(theta.shape)}. Return new "
                "positions of all chains, or None."
            )
        theta.copy_(found)


def splitting(sampler: Any, theta: Tensor, state: State, step: Step) -> None:
    """A½ F½ (B+N) F½ A½."""
    sampler.drift(theta, state, step, 0.5)
    sampler.friction_flow(state, step, 0.5)
    sampler.kick(state, step, sampler.gradient(theta, state, step), 1.0)
    sampler.noise(state, step)
    sampler.friction_flow(state, step, 0.5)
    sampler.drift(theta, state, step, 0.5)


def baoab(sampler: Any, theta: Tensor, state: State, step: Step) -> None:
    """B½ A½ O A½ B½; the first kick of a step reuses the gradient of the last kick before it."""
    sampler.kick(state, step, state["g"], 0.5)
    sampler.drift(theta, state, step, 0.5)
    sampler.ornstein_uhlenbeck(state, step)
    sampler.drift(theta, state, step, 0.5)
    state["g"].copy_(sampler.gradient(theta, state, step))
    sampler.kick(state, step, state["g"], 0.5)


def first_gradient(sampler: Any, theta: Tensor, state: State, step: Step) -> None:
    """Add the gradient of the first kick of all, which :func:`baoab` needs."""
    if "g" not in state:
        state["g"] = sampler.gradient(theta, state, step).clone()


def aboba(sampler: Any, theta: Tensor, state: State, step: Step) -> None:
    """A½ B½ O B½ A½."""
    sampler.drift(theta, state, step, 0.5)
    g = sampler.gradient(theta, state, step)
    sampler.kick(state, step, g, 0.5)
    sampler.ornstein_uhlenbeck(state, step)
    sampler.kick(state, step, g, 0.5)
    sampler.drift(theta, state, step, 0.5)


def leapfrog(sampler: Any, theta: Tensor, state: State, step: Step) -> None:
    """B½ A B½ O, where B turns the direction of motion."""
    before, epsilon = sampler.begin(theta, state, step), sampler.distance(theta, state, step)
    turned = before["turned"]
    sampler.turn(state, step, state["g"], epsilon, 0.5, turned)
    sampler.drift(theta, state, epsilon, 1.0)
    sampler.evaluate(theta, state, step)
    sampler.turn(state, step, state["g"], epsilon, 0.5, turned)
    sampler.finish(theta, state, step, epsilon, before)


def minimal_norm(sampler: Any, theta: Tensor, state: State, step: Step) -> None:
    """Bλ A½ B(1-2λ) A½ Bλ O; the errors of its terms of third order nearly cancel."""
    before, epsilon = sampler.begin(theta, state, step), sampler.distance(theta, state, step)
    turned = before["turned"]
    sampler.turn(state, step, state["g"], epsilon, MINIMAL_NORM, turned)
    sampler.drift(theta, state, epsilon, 0.5)
    sampler.turn(state, step, step.gradient(theta), epsilon, 1.0 - 2.0 * MINIMAL_NORM, turned)
    sampler.drift(theta, state, epsilon, 0.5)
    sampler.evaluate(theta, state, step)
    sampler.turn(state, step, state["g"], epsilon, MINIMAL_NORM, turned)
    sampler.finish(theta, state, step, epsilon, before)
