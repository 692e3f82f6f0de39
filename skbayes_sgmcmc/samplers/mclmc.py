r"""Microcanonical Langevin Monte Carlo (Robnik, De Luca, Silverstein & Seljak 2023).

SDE, with a direction u of length 1, :math:`S = U/T` and :math:`P(u) = I - uu^\top`:
:math:`d\theta = u\,dt;\; du = -P(u)\nabla S\,dt/(d-1) + \sqrt{2/(Ld)}\,P(u)\,dW`.
The invariant density is :math:`\propto e^{-S(\theta)}`, with u uniform on the sphere.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from .._arrays import Array
from .._validation import check_choice, check_real, check_unless, is_auto
from ._protocol import State, Step
from ._tuning import TUNING, Scaled, adapt, wanted


class MCLMC(Scaled):
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
        Larger values explore faster and have more bias. "auto": 5e-4, and 0.005 for networks.
    length : "auto" or float, default="auto"
        L, in units of the parameters. "auto": 1.5 times the root of the summed variances of the
        parameters in the burn-in.
    noise_scaling : bool, default=True
        Whether, with minibatches, a step moves every parameter in units of one over the sd of its
        gradient's noise. Chains measure it in the burn-in and keep it afterwards. With all rows
        there is no such noise, and this has no effect.

    Notes
    -----
    The step size :math:`\eta` has the unit that it has for SGHMC: :math:`\epsilon = \sqrt{\eta T
    d/N}`, which is the distance that SGHMC travels in a step. There is no Metropolis correction:
    the bias is what ``energy_error`` allows. A step with an energy error that is not finite, or 30
    times the wanted one (the usual one, if it is larger and the step size was given), is undone.
    The chain goes on in another direction with half the step, which grows by a tenth with every
    step that is kept.

    With minibatches, both ends of a step use the same rows. Gradient noise that is the same in all
    directions turns u by chance, and does little harm; other noise biases the draws, and
    ``noise_scaling`` finds coordinates where it is the same. A step begins where the last one
    ended, with other rows: the difference of the two gradients is noise alone, and costs nothing.

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

    cools = False
    needs_potential = True
    finds_step = True
    injects = False
    least_parameters = 2

    def __init__(
        self,
        energy_error: float | Literal["auto"] = "auto",
        length: float | Literal["auto"] = "auto",
        noise_scaling: bool = True,
    ):
        self.energy_error = energy_error
        self.length = length
        self.noise_scaling = noise_scaling

    def check(self, name: str) -> None:
        for parameter in ("energy_error", "length"):
            value = getattr(self, parameter)
            check_unless("auto", check_real, f"{name}.{parameter}", value, low=0.0)
        check_choice(f"{name}.noise_scaling", self.noise_scaling, (False, True))

    # state ----------------------------------------------------------------------------------------

    def init_state(self, theta: Tensor, step: Step) -> State:
        value, g = step.value_and_gradient(theta)
        energy = (value * step.n)[:, None]
        # no step leads away from a position without a gradient: such a chain has diverged
        inside = torch.isfinite(g).all(1, keepdim=True) & torch.isfinite(energy)
        theta.masked_fill_(~inside, math.nan)
        one = torch.ones_like(theta[:, :1])
        state = {
            "u": _unit(step.xi),
            "g": g.clone(),
            "energy": energy,
            "scale": one,
            # weight of the average that sets the scale
            "trust": torch.zeros_like(one),
            # the share of its step that a chain takes, which is less than 1 after an undone step
            "caution": one.clone(),
            # number of steps, of steps that were undone, and the sum of the others' errors
            "steps": torch.zeros_like(one),
            "undone": torch.zeros_like(one),
            "errors": torch.zeros_like(one),
        }
        if not step.tuning:  # a step size that was given has an energy error of its own
            state["usual"] = torch.full_like(one, self._aim(step))
        if is_auto(self.length):
            state |= {"length": torch.zeros_like(one), "k": torch.ones_like(one)}
            state |= {"mean": theta.clone(), "square": torch.zeros_like(theta)}
        else:
            state["length"] = torch.full_like(one, float(self.length))
        if self.noise_scaling and not step.same_rows:
            state |= {"scaling": torch.ones_like(theta), "noise": torch.zeros_like(theta)}
            state["batches"] = torch.zeros_like(one)
        return state

    def numbers(self, step: Step) -> tuple[Any, ...]:
        return step.tuning, step.progress

    def prepare(self, theta: Tensor, state: State, step: Step) -> None:
        state["energy"] = state["energy"].double()  # earlier chains' are in the run's precision

    def rescale(self, state: State, ratio: float) -> None:
        if "usual" in state:
            state["usual"].mul_(ratio**3)  # energy errors grow like epsilon^3

    def end_burn_in(self, state: State) -> None:
        for name in ("mean", "square", "k", "noise", "batches"):
            state.pop(name, None)
        for name in ("steps", "undone", "errors"):
            state[name].zero_()

    def statistics(self, state: State, step: Step) -> dict[str, Tensor]:
        if not state:
            return {}
        steps, undone, errors = (state[name][:, 0] for name in ("steps", "undone", "errors"))
        return {
            "energy_error": errors / (steps - undone).clamp(min=1.0),
            "undone": undone / steps.clamp(min=1.0),
            "length": state["length"][:, 0],
        }

    def doubts(self, statistics: dict[str, Array]) -> str | None:
        undone, error = statistics["undone"].max(), statistics["energy_error"].max()
        if not (undone > TUNING.most_undone or error > TUNING.largest_error):
            return None
        return (
            f"The steps of MCLMC are too large: up to {undone:.0%} of a chain's steps were undone, "
            f"and the mean energy error of the others is up to {error:.2g} per parameter (at most "
            f"{TUNING.most_undone:.0%} and {TUNING.largest_error:g} are sound). The draws are "
            "biased. Give a smaller step_size (try a tenth), or step_size='auto' with a longer "
            "burn_in."
        )

    def forget_step(self, state: State) -> None:
        state["scale"].fill_(1.0)

    # the letters ----------------------------------------------------------------------------------

    def distance(self, theta: Tensor, state: State, step: Step) -> Tensor:
        """Epsilon of each chain, (chains, 1)."""
        unit = math.sqrt(step.eta * step.temperature * theta.shape[1] / step.n)
        return (state["scale"] * state["caution"]).mul_(unit)

    def begin(self, theta: Tensor, state: State, step: Step) -> dict[str, Tensor]:
        """Energy and gradient before a step, and what undoing it needs."""
        if not step.same_target:
            value, g = step.value_and_gradient(theta)
            if "noise" in state:  # the other one is at the same position, by the last step's rows
                self._learn_scaling(state, g - state["g"])
            self._store(state, step, value, g)
        before = {name: state[name].clone() for name in ("g", "energy")}
        return before | {"theta": theta.clone(), "turned": torch.zeros_like(state["scale"])}

    def drift(self, theta: Tensor, state: State, epsilon: Tensor, s: float) -> None:
        u = state["u"] * state["scaling"] if "scaling" in state else state["u"]
        theta.addcmul_(u, epsilon, value=s)

    def turn(
        self, state: State, step: Step, g: Tensor, epsilon: Tensor, s: float, turned: Tensor
    ) -> None:
        """Turn u by g; add delta + log ``|u|``, before it is normalised, to ``turned``.

        With b = e^-delta - 1 and w = (1 - e'u) / 2, the turned u is ((1 + b) u - b (1 + b w) e) / q
        with q = 1 + w b (2 + b), and the kinetic energy grows by (d - 1) (delta + log q). All of
        these are finite for every delta, and exact to rounding for small ones.
        """
        u, factor = state["u"], -s * step.n / (step.temperature * (g.shape[1] - 1))
        if "scaling" in state:
            g = g * state["scaling"]
        size = torch.linalg.vector_norm(g, dim=1, keepdim=True)
        size.clamp_(min=torch.finfo(g.dtype).tiny)
        away = (g * u).sum(1, keepdim=True).div_(size)  # -e'u
        slow = (epsilon * factor).mul_(size)
        b = torch.expm1(slow)
        twice_bw = torch.addcmul(b, b, away)
        q = torch.addcmul(twice_bw, twice_bw, b, value=0.5)  # minus 1
        turned.add_(torch.log1p(q).sub_(slow))
        u.addcmul_(u, b).addcmul_(g, torch.addcmul(b, b, twice_bw, value=0.5).div_(size))
        u.div_(q.add_(1.0))

    def evaluate(self, theta: Tensor, state: State, step: Step) -> None:
        """Store energy and gradient at theta."""
        self._store(state, step, *step.value_and_gradient(theta))

    @staticmethod
    def _store(state: State, step: Step, value: Tensor, g: Tensor) -> None:
        torch.mul(value[:, None], step.n, out=state["energy"])
        state["g"].copy_(g)

    def finish(
        self, theta: Tensor, state: State, step: Step, epsilon: Tensor, before: dict[str, Tensor]
    ) -> None:
        """Undo a step with a huge energy error, tune, and turn u by chance."""
        d = theta.shape[1]
        change = (state["energy"] - before["energy"]).mul_(1.0 / step.temperature)
        change = change.add_(before["turned"], alpha=d - 1.0)
        error = change.square_().mul_(1.0 / d).to(theta)
        aim = self._aim(step)
        # an error that is not a number is not below a bound either
        bad = ~(error <= self._bound(state, error, aim))
        self._undo(theta, state, step, before, bad)
        state["steps"].add_(1.0)
        state["undone"].add_(bad)
        state["errors"].add_(error.masked_fill_(bad, 0.0))
        if step.tuning:
            # what the error of a whole step would have been
            ratio = error.div_(state["caution"] ** 6).mul_(1.0 / aim)
            adapt(state, ratio.masked_fill_(bad, TUNING.largest_ratio), step.progress)
        caution = state["caution"]
        torch.where(bad, 0.5 * caution, TUNING.recovery * caution, out=caution).clamp_(max=1.0)
        self._measure(theta, state, epsilon)
        self.refresh(state["u"], step.xi, epsilon, state["length"])

    def refresh(self, u: Tensor, xi: Tensor, epsilon: Tensor, length: Tensor) -> None:
        """Turn u by the standard normals xi, so that it is forgotten over the length L."""
        nu = (epsilon / length).mul_(2.0).clamp_(max=TUNING.forgotten).expm1_().sqrt_()
        u.addcmul_(xi, nu, value=u.shape[1] ** -0.5)
        u.div_(torch.linalg.vector_norm(u, dim=1, keepdim=True))

    @staticmethod
    def _bound(state: State, error: Tensor, aim: float) -> Tensor | float:
        """The largest squared error with which a step is kept; the usual error learns this one.

        An error counts as 30 times the usual one at most. So single errors hardly raise the bound,
        and only a step size that often has such errors does.
        """
        if "usual" not in state:
            return TUNING.huge**2 * aim
        usual = state["usual"]
        bound = usual.clamp(min=aim).mul_(TUNING.huge**2)
        usual.lerp_(torch.fmin(error, usual * TUNING.huge), 1.0 / TUNING.memory)
        return bound

    @staticmethod
    def _undo(
        theta: Tensor, state: State, step: Step, before: dict[str, Tensor], bad: Tensor
    ) -> None:
        """Put chains back, with a new direction. Asking first if there are any would wait."""
        torch.where(bad, before["theta"], theta, out=theta)
        others = {"g": before["g"], "energy": before["energy"], "u": _unit(step.xi)}
        for name, other in others.items():
            torch.where(bad, other, state[name], out=state[name])

    # adaptation -----------------------------------------------------------------------------------

    def _aim(self, step: Step) -> float:
        """The energy error that tuning aims at now."""
        return wanted(self.last_aim(step), step.progress)

    def last_aim(self, step: Step) -> float:
        """The energy error that tuning aims at in the end."""
        return step.energy_error if is_auto(self.energy_error) else float(self.energy_error)

    @staticmethod
    def _learn_scaling(state: State, change: Tensor) -> None:
        """Coordinates where the noise of the gradient is the same in all directions.

        ``change`` is the difference of two minibatches' gradients at one position.
        """
        share = _next_share(state["batches"])
        noise = state["noise"]
        noise.add_(change.square_().sub_(noise).mul_(share))
        even = noise.mean(1, keepdim=True).clamp_(min=torch.finfo(noise.dtype).tiny)
        scaling = torch.rsqrt(noise / even + TUNING.least_noise)
        root = scaling.square().mean(1, keepdim=True).sqrt_()
        torch.div(scaling, root, out=state["scaling"])

    @staticmethod
    def _measure(theta: Tensor, state: State, epsilon: Tensor) -> None:
        """L = 1.5 times the root of the summed variances of recent positions."""
        if "k" not in state:
            return
        share = _next_share(state["k"])
        away = theta - state["mean"]
        state["mean"].addcmul_(away, share)
        away.mul_(theta - state["mean"]).sub_(state["square"])
        state["square"].addcmul_(away, share)
        spread = state["square"]
        if "scaling" in state:
            spread = spread / state["scaling"].square()
        length = spread.sum(1, keepdim=True).sqrt_().mul_(TUNING.length)
        torch.maximum(length, TUNING.least_steps * epsilon, out=state["length"])


def _next_share(count: Tensor) -> Tensor:
    """Weight of the next value in an average of recent ones; ``count`` grows by it."""
    return TUNING.recent / count.add_(1.0).add(TUNING.recent - 1.0)


def _unit(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
