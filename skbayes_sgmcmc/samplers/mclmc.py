r"""Microcanonical Langevin Monte Carlo (Robnik, De Luca, Silverstein & Seljak 2023).

SDE, with a direction u of length 1, :math:`S = U/T` and :math:`P(u) = I - uu^\top`:
:math:`d\theta = u\,dt;\; du = -P(u)\nabla S\,dt/(d-1) + \sqrt{2/(Ld)}\,P(u)\,dW`.
The invariant density is :math:`\propto e^{-S(\theta)}`, with u uniform on the sphere.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._validation import check_real
from ._protocol import Sampler, State, Step

#: while the step size is tuned, a step counts for this many steps
MEMORY = 100.0
#: the energy error that tuning aims at begins with this multiple of its last value
FIRST_ERROR = 5.0
#: width, in units of the energy error's exponent, of the errors that count in tuning
TRUSTED = 1.5
#: a step is undone if its energy error is this many times the usual one
HUGE = 30.0
#: the direction is kept for at least this many steps
LEAST_STEPS = 5.0
#: the length scale L comes from the positions in the last part of the burn-in: a position of step
#: k is forgotten by the weight 1 / (k / RECENT)
RECENT = 3.0


class MCLMC(Sampler):
    r"""Microcanonical Langevin Monte Carlo.

    The particle moves with constant speed and only turns, so a step cannot be large where the
    gradient is: the sampler needs no preconditioner in networks, and does not diverge where a noise
    becomes small. One step is a palindrome of drifts :math:`\theta \leftarrow \theta + \epsilon u`
    and turns (with :math:`e = -\nabla S/|\nabla S|`, :math:`\delta = \epsilon|\nabla S|/(d-1)`)

    .. math::
        u \leftarrow \frac{u + e\,(\sinh\delta + e^\top u\,(\cosh\delta - 1))}
        {\cosh\delta + e^\top u\,\sinh\delta},

    and then turns u by chance, so that it forgets its direction over the length L.

    Parameters
    ----------
    energy_error : "auto" or float, default="auto"
        With ``step_size="auto"``, every chain changes its step size in the burn-in, until the mean
        square of a step's energy error, divided by the number of parameters d, has this value.
        Larger values explore faster and have more bias. "auto": 5e-4, and 0.06 for networks.
    length : "auto" or float, default="auto"
        L, in units of the parameters. "auto": the root of the summed variances of the parameters
        in the burn-in.

    Notes
    -----
    The step size :math:`\eta` has the unit that it has for SGHMC: :math:`\epsilon = \sqrt{\eta T
    d/N}`, which is the distance that SGHMC travels in a step. There is no Metropolis correction:
    the bias is what ``energy_error`` allows. A step whose energy error is 30 times the usual one,
    or not finite, is undone.

    With minibatches, both ends of a step use the same rows. Gradient noise that is the same in all
    directions turns u by chance, and does no harm; other noise biases the draws.

    References
    ----------
    Robnik, De Luca, Silverstein & Seljak (2023), Microcanonical Hamiltonian Monte Carlo, JMLR.
    Robnik & Seljak (2024), Fluctuation without dissipation: microcanonical Langevin Monte Carlo.
    Sommer et al. (2025), Microcanonical Langevin ensembles, ICLR.

    Examples
    --------
    >>> from skbayes_sgmcmc.samplers import MCLMC
    >>> MCLMC(energy_error=0.01)
    MCLMC(energy_error=0.01)
    """

    needs_potential = True
    finds_step = True
    least_parameters = 2

    def __init__(self, energy_error: Any = "auto", length: Any = "auto"):
        self.energy_error = energy_error
        self.length = length

    def check(self, name: str) -> None:
        for parameter in ("energy_error", "length"):
            value = getattr(self, parameter)
            if value != "auto":
                check_real(f"{name}.{parameter}", value, low=0.0)

    # state ----------------------------------------------------------------------------------------

    def init_state(self, theta: Tensor, step: Step) -> State:
        one = theta.new_ones(len(theta), 1)
        value, g = step.value_and_gradient(theta)
        state = {
            "u": _unit(step.xi),
            "g": g.clone(),
            "energy": value * step.n,
            "scale": one.clone(),
            "error": one.new_zeros(one.shape),
            "weight": one.new_zeros(one.shape),
            "length": one.new_zeros(one.shape),
        }
        if self.length == "auto":
            state |= {"mean": theta.clone(), "square": torch.zeros_like(theta), "k": one.clone()}
        else:
            state["length"].fill_(float(self.length))
        return state

    def end_burn_in(self, state: State) -> None:
        for name in ("mean", "square", "k"):
            state.pop(name, None)
        # from here on the average of the errors is a statistic, not a part of the tuning
        state["weight"].zero_()
        state["error"].zero_()

    def statistics(self, state: State, step: Step) -> dict[str, Tensor]:
        mean = state["error"] / state["weight"].clamp(min=1e-30)
        return {"energy_error": mean[:, 0], "length": state["length"][:, 0]}

    def used_step(self, eta: float, state: State) -> float:
        return eta * float(state["scale"].square().mean()) if "scale" in state else eta

    # the letters ----------------------------------------------------------------------------------

    def distance(self, theta: Tensor, state: State, step: Step) -> Tensor:
        """Epsilon of each chain, (chains, 1)."""
        unit = math.sqrt(step.eta * step.temperature * theta.shape[1] / step.n)
        return state["scale"] * unit

    def begin(self, theta: Tensor, state: State, step: Step) -> dict[str, Tensor]:
        """The gradient and energy before a step, and what undoing it needs."""
        if not step.same_target:
            value, g = step.value_and_gradient(theta)
            state["energy"].copy_(value * step.n)
            state["g"].copy_(g)
        before = {name: state[name].clone() for name in ("u", "g", "energy")}
        return before | {"theta": theta.clone(), "turned": torch.zeros_like(state["energy"])}

    def drift(self, theta: Tensor, state: State, epsilon: Tensor, s: float) -> None:
        theta.addcmul_(state["u"], epsilon, value=s)

    def turn(self, state: State, step: Step, epsilon: Tensor, s: float, turned: Tensor) -> None:
        """Turn u by the gradient in ``state``; add the change of the kinetic energy to ``turned``.

        With zeta = e^-delta all numbers stay finite for every delta.
        """
        u, g = state["u"], state["g"]
        d = u.shape[1]
        size = torch.linalg.vector_norm(g, dim=1, keepdim=True).clamp_(
            min=torch.finfo(g.dtype).tiny
        )
        delta = epsilon * size * (s * step.n / (step.temperature * (d - 1)))
        zeta = torch.exp(-delta)
        c = -(g * u).sum(1, keepdim=True) / size
        u.mul_(2.0 * zeta).addcmul_(g, (zeta - 1.0) * (1.0 + zeta + c * (1.0 - zeta)) / size)
        u.div_(torch.linalg.vector_norm(u, dim=1, keepdim=True))
        delta, zeta, c = delta.double(), zeta.double(), c.double()
        growth = delta - math.log(2.0) + torch.log1p(c + (1.0 - c) * zeta * zeta)
        turned.add_(growth[:, 0], alpha=d - 1.0)

    def evaluate(self, theta: Tensor, state: State, step: Step) -> None:
        """Store energy and gradient at theta."""
        value, g = step.value_and_gradient(theta)
        state["energy"].copy_(value * step.n)
        state["g"].copy_(g)

    def finish(
        self, theta: Tensor, state: State, step: Step, epsilon: Tensor, before: dict[str, Tensor]
    ) -> None:
        """Undo a step with a huge energy error, tune, and turn u by chance."""
        d = theta.shape[1]
        change = (state["energy"] - before["energy"]) / step.temperature + before["turned"]
        error = (change.square() / d)[:, None].to(theta)
        bad = ~(error <= self._usual(state, step) * HUGE**2)
        bad |= ~torch.isfinite(state["g"]).all(1, keepdim=True)
        self._undo(theta, state, step, before, bad)
        if step.tuning:
            self._tune(state, error / self._aim(step), bad)
        else:
            self._average(state, torch.where(bad, 0.0, error), (~bad).to(error))
        self._measure(theta, state, epsilon)
        nu = torch.sqrt(torch.expm1(2.0 * epsilon / state["length"]) / d)
        state["u"].addcmul_(step.xi, nu)
        state["u"].div_(torch.linalg.vector_norm(state["u"], dim=1, keepdim=True))

    # adaptation -----------------------------------------------------------------------------------

    @staticmethod
    def _undo(
        theta: Tensor, state: State, step: Step, before: dict[str, Tensor], bad: Tensor
    ) -> None:
        # without asking whether a step is bad, which would wait for the device
        theta.copy_(torch.where(bad, before["theta"], theta))
        state["g"].copy_(torch.where(bad, before["g"], state["g"]))
        state["energy"].copy_(torch.where(bad[:, 0], before["energy"], state["energy"]))
        state["u"].copy_(torch.where(bad, _unit(step.xi), state["u"]))

    def _aim(self, step: Step) -> float:
        """The energy error that tuning aims at now; it falls during the burn-in."""
        last = step.energy_error if self.energy_error == "auto" else float(self.energy_error)
        return float(last * FIRST_ERROR ** (1.0 - step.progress))

    def _usual(self, state: State, step: Step) -> Tensor | float:
        """The energy error of a usual step, (chains, 1); infinite before it is known."""
        if step.tuning:
            return self._aim(step)
        mean = state["error"] / state["weight"].clamp(min=1.0)
        return torch.where(state["weight"] > LEAST_STEPS, mean.clamp(min=1e-12), math.inf)

    @staticmethod
    def _average(state: State, error: Tensor, weight: Tensor) -> None:
        state["error"].mul_(1.0 - 1.0 / MEMORY).add_(error)
        state["weight"].mul_(1.0 - 1.0 / MEMORY).add_(weight)

    def _tune(self, state: State, ratio: Tensor, bad: Tensor) -> None:
        """Change the step size, given the ratio of a step's energy error to the wanted one.

        The error of a symmetric step grows like epsilon^3, so its square like scale^6. The average
        is that of ratio / scale^6; errors far from the wanted one count less.
        """
        scale = state["scale"]
        ratio = torch.where(bad, 1e2, ratio).clamp(1e-8, 1e2)
        weight = torch.exp(-0.5 * (torch.log(ratio) / (6.0 * TRUSTED)) ** 2)
        self._average(state, weight * ratio / scale.pow(6), weight)
        scale.copy_((state["error"] / state["weight"]).pow(-1.0 / 6.0))

    def _measure(self, theta: Tensor, state: State, epsilon: Tensor) -> None:
        """L = root of the summed variances of recent positions."""
        if "k" not in state:
            return
        state["k"].add_(1.0)
        share = (RECENT / (state["k"] + RECENT - 1.0)).clamp(max=1.0)
        away = theta - state["mean"]
        state["mean"].addcmul_(away, share)
        away.mul_(theta - state["mean"]).sub_(state["square"])
        state["square"].addcmul_(away, share)
        state["length"].copy_(state["square"].sum(1, keepdim=True).sqrt())
        torch.maximum(state["length"], LEAST_STEPS * epsilon, out=state["length"])


def _unit(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
