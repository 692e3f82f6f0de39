"""The sub-flows that the second-order samplers share, with their letters in molecular dynamics.

A is the drift (of position and thermostat), B the kick, F the friction, N the noise, and O the
exact Ornstein-Uhlenbeck flow. ``s`` is the fraction of the step that a flow takes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from .._arrays import Array
from .._exceptions import not_allowed
from .._validation import check_real, check_unless, is_auto
from ._protocol import Sampler, State, Step
from ._tuning import TUNING, EnergyTuned, add_scaled

#: frequency of a thermostat of mass "auto", in units of the friction: it turns in 1 / (0.3 alpha)
#: steps
AUTO_FREQUENCY = 0.3


class MomentumSampler(EnergyTuned):
    """Base class of SGHMC and its thermostats, which differ only in the friction ``a``."""

    friction: float
    diffusion: float | None

    def check(self, name: str) -> None:
        check_real(f"{name}.friction", self.friction, low=0.0, closed="left")
        noise = self.diffusion
        check_unless(None, check_real, f"{name}.diffusion", noise, low=0.0, closed="left")

    def check_integrator(self, integrator: str) -> None:
        if integrator == "euler" and self.diffusion is None and self.friction >= 2.0:
            raise not_allowed(
                f"sampler.friction={self.friction!r} is not allowed with integrator='euler': its "
                "steps multiply momenta by 1 - friction. Give less than 2, such as 0.1, or "
                "integrator='splitting'."
            )

    def init_state(self, theta: Tensor, step: Step) -> State:
        return {"v": step.xi * math.sqrt(step.noise)}  # v ~ N(0, eta T / N)

    def rescale(self, state: State, ratio: float) -> None:
        state["v"].mul_(math.sqrt(ratio))

    def injected(self, eta: float, n: float) -> float:
        """The friction alpha of one step: ``friction``, or D h = D sqrt(eta / N) if D is given."""
        if self.diffusion is None:
            return float(self.friction)
        return float(self.diffusion) * math.sqrt(eta / n)

    def resistance(self) -> float:
        return float(self.friction)

    def for_steps(self, share: float) -> Sampler:
        # a friction of one step is D h, and h^2 goes with eta
        found = clone(self)
        found.friction *= math.sqrt(share)
        return found

    def spacing(self, eta: float) -> float:
        # against friction, slow directions move by eta / friction. Energies change in 1 / friction
        # steps, so squares, and the sds of draws, are not forgotten sooner
        friction = max(self.resistance(), 1e-3)
        return max(2.0 * friction / eta, 0.4 / friction)

    def largest_step(self, force: Array, distance: Array) -> Array:
        # the kick eta F begins an oscillation of the amplitude sqrt(eta) F. Most kicks of a wall
        # turn a momentum around, and what they add is about half of themselves
        return np.asarray(np.square(2.0 * distance / force))

    def tunes(self, step: Step) -> bool:
        # with D, the friction of a step follows from eta
        return self.diffusion is None and super().tunes(step)

    def friction_of(self, step: Step) -> float:
        return self.injected(step.eta, step.n)

    def rate(self, state: State, step: Step) -> Tensor | float:
        """The friction a of one step: a number, or a tensor that broadcasts against v."""
        return self.friction_of(step)

    def noise_rate(self, state: State, step: Step) -> Tensor | float:
        """The rate of injected noise: alpha minus the noise that the gradient already adds."""
        return self.friction_of(step)

    def thermostat(self, state: State, step: Step, s: float) -> None:
        """Move the friction until the kinetic energy has its target mean."""

    def statistics(self, state: State, step: Step) -> dict[str, Tensor]:
        if step.noise == 0.0:
            return {}
        return {"kinetic_temperature": state["v"].square().mean(1) / step.noise}

    # the flows ------------------------------------------------------------------------------------

    def drift(self, theta: Tensor, state: State, step: Step, s: float) -> None:
        add_scaled(theta, state["v"], s, state)
        self.thermostat(state, step, s)

    def kick(self, state: State, step: Step, g: Tensor, s: float) -> None:
        add_scaled(state["v"], g, -step.eta * s, state)

    def friction_flow(self, state: State, step: Step, s: float) -> None:
        a = self.rate(state, step)
        state["v"].mul_(torch.exp(-s * a) if isinstance(a, Tensor) else math.exp(-s * a))

    def noise(self, state: State, step: Step) -> None:
        if step.noise > 0.0:
            self._add_noise(state["v"], step, 2.0 * self.noise_rate(state, step) * step.noise)

    def ornstein_uhlenbeck(self, state: State, step: Step) -> None:
        """Solve friction and noise together exactly: v ~ N(e^-a v, b (1 - e^-2a) / a)."""
        a, rate = self.rate(state, step), self.noise_rate(state, step)
        spread: Tensor | float
        if isinstance(a, Tensor):
            spread = torch.where(a == 0, 2.0, -torch.expm1(-2.0 * a) / a)
            state["v"].mul_(torch.exp(-a))
        else:
            spread = 2.0 if a == 0 else -math.expm1(-2.0 * a) / a
            state["v"].mul_(math.exp(-a))
        if step.noise > 0.0:
            self._add_noise(state["v"], step, spread * rate * step.noise)

    def euler(self, theta: Tensor, state: State, step: Step) -> None:
        v = state["v"]
        add_scaled(theta, v, 1.0, state)
        g = self.gradient(theta, state, step)
        a = self.rate(state, step)
        add_scaled(v.mul_(1.0 - a), g, -step.eta, state)
        self.noise(state, step)
        self.thermostat(state, step, 1.0)

    @staticmethod
    def _add_noise(v: Tensor, step: Step, variance: Tensor | float) -> None:
        if isinstance(variance, Tensor):
            v.addcmul_(step.xi, variance.clamp(min=0.0).sqrt())
        else:
            v.add_(step.xi, alpha=math.sqrt(max(variance, 0.0)))


class ThermostatSampler(MomentumSampler):
    """Base class of samplers with a variable friction, driven by a thermostat of mass mu.

    Subclasses differ in ``kinetic``: over which parameters v^2 is averaged.
    """

    #: the thermostat takes away the heat of somewhat longer steps
    share = 0.3

    def __init__(
        self,
        friction: float = 0.1,
        diffusion: float | None = None,
        mass: float | str = "auto",
        initial_friction: float | None = None,
    ):
        self.friction = friction
        self.diffusion = diffusion
        self.mass = mass
        self.initial_friction = initial_friction

    def check(self, name: str) -> None:
        super().check(name)
        start = self.initial_friction
        check_unless(None, check_real, f"{name}.initial_friction", start, low=0.0, closed="left")
        check_unless("auto", check_real, f"{name}.mass", self.mass, low=0.0)
        if not is_auto(self.mass):
            return
        if (self.friction == 0 and self.diffusion is None) or self.diffusion == 0:
            raise not_allowed(
                f"{name}.mass='auto' is not allowed with zero friction: 'auto' means "
                "(eta/N)/(0.3 alpha)^2; give a positive number such as 1.0."
            )
        if self.diffusion is None and AUTO_FREQUENCY * self.friction > 1.0:
            raise not_allowed(
                f"{name}.friction={self.friction!r} is not allowed with {name}.mass='auto': steps "
                "cannot follow a thermostat that turns in less than one of them; give at most "
                f"{1.0 / AUTO_FREQUENCY:.1f}, or a number for {name}.mass. Friction is that of one "
                "step, such as 0.1."
            )

    def kinetic(self, v: Tensor) -> Tensor:
        """v^2, averaged over the parameters that share a thermostat."""
        raise NotImplementedError

    def init_state(self, theta: Tensor, step: Step) -> State:
        state = super().init_state(theta, step)
        first = self.initial_friction
        a = self.friction_of(step) if first is None else float(first)
        return state | {"a": torch.full_like(self.kinetic(state["v"]), a)}

    def rescale(self, state: State, ratio: float) -> None:
        super().rescale(state, ratio)
        # a follows alpha. If D is given, a/h stays constant. If the friction of a step is given, a
        # itself stays constant: scaling it would unbalance it from the noise, and with mu = 1 it
        # would take alpha N / eta steps to recover
        if self.diffusion is not None:
            state["a"].mul_(math.sqrt(ratio))

    def rate(self, state: State, step: Step) -> Tensor:
        return state["a"]

    def thermostat(self, state: State, step: Step, s: float) -> None:
        if step.temperature == 0.0:
            return
        kinetic = self.kinetic(state["v"])
        if self.tunes(step):
            # steps that are too long for a moment heat momenta without limit. They would carry a
            # chain far away, and the friction that answers takes 1 / (0.3 alpha)^2 steps for every
            # unit to fall again
            state["v"].mul_((TUNING.hottest * step.noise / kinetic).clamp(max=1.0).sqrt())
            kinetic = kinetic.clamp(max=TUNING.hottest * step.noise)
        inverse = s / (step.temperature * self._mass(step))
        state["a"].add_(kinetic, alpha=inverse).sub_(step.noise * inverse)

    def _mass(self, step: Step) -> float:
        if self.mass == "auto":
            return (step.eta / step.n) / (AUTO_FREQUENCY * self.friction_of(step)) ** 2
        return float(self.mass)

    def statistics(self, state: State, step: Step) -> dict[str, Tensor]:
        return super().statistics(state, step) | {"thermostat": state["a"].mean(dim=1)}
