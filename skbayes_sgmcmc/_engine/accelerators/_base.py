"""The interface of accelerators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...samplers import Cell
from ...samplers.integrators import Integrator
from ..recipe import Recipe
from ..target import Evaluator, Target


@dataclass(frozen=True)
class Engine:
    """The parts that take the steps.

    A ``kernel`` takes a whole chunk of steps at once, and returns the positions to keep, of shape
    (chains, kept, parameters). Without a kernel, the ``integrator`` takes one step at a time,
    and the ``evaluator`` computes the gradients of the ``target``. A ``block`` takes the steps
    between two changes of the target in place of the integrator: it is also given the evaluator,
    whose batch has the rows of all these steps, the step's noise is (chains, steps, parameters),
    and it returns as many positions.
    """

    target: Target
    cell: Cell
    integrator: Integrator
    kernel: Any = None
    block: Any = None
    #: takes several steps of the descent to a start
    descent: Any = None
    evaluator: type[Evaluator] = Evaluator
    #: ``recorder(chains)`` takes each step, with its rows and its noise, in place of the integrator
    recorder: Any = None
    #: the integrator of the steps that are recorded; None: the same
    recorded: Any = None
    #: whether random numbers come from the compiled generator
    philox: bool = False
    #: whether steps make their own noise, so that the loop makes none
    own_noise: bool = False


@dataclass(frozen=True)
class Offer:
    """An accelerator's answer whether it applies to a run."""

    #: name of the accelerator
    name: str
    #: the part of the run that it would compute. At most one accelerator computes each part
    part: str
    #: the reason why it does not apply, in one short sentence. None if it applies
    why_not: str | None
    #: whether it applies and makes the run faster, so that ``compiled="auto"`` takes it
    pays: bool
    #: whether it needs numba, which is looked at only before it is taken: importing it takes time
    numba: bool = False


class Accelerator:
    """Base class of accelerators: faster ways to compute a part of a run."""

    #: name of the accelerator in ``compiled_`` and in error messages
    name: str
    #: the part of a run that it computes
    part: str = "steps"
    #: whether it needs numba
    numba: bool = True

    def why_not(self, recipe: Recipe) -> str | None:
        """The reason why it does not apply to this run, in one short sentence; else None."""
        raise NotImplementedError

    def pays(self, recipe: Recipe) -> bool:
        """Whether it makes the run faster, compilation included; called only if it applies."""
        raise NotImplementedError

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        """A copy of the engine that uses this accelerator."""
        raise NotImplementedError

    def offer(self, recipe: Recipe) -> Offer:
        why_not = self.why_not(recipe)
        pays = why_not is None and self.pays(recipe)
        return Offer(self.name, self.part, why_not, pays, self.numba)


def why_no_share(recipe: Recipe) -> str | None:
    """The reason why a process cannot take a share of each minibatch; None if it has all of it."""
    return "several ranks share the minibatches." if recipe.minibatches.divided else None


def why_no_cpu(recipe: Recipe) -> str | None:
    """The reason why code compiled for CPUs does not apply; None if it does."""
    if recipe.device == "cpu":
        return None
    return f"it needs a CPU, and the device is {recipe.device!r}."
