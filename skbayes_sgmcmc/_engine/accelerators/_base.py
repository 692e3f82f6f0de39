"""What an accelerator is, and what it is told of a run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ..._data.minibatch import Minibatches
from ...samplers import Cell, Sampler
from ...samplers.integrators import Integrator
from ..target import Evaluator, Target


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a run will compute."""

    target: Target
    sampler: Sampler
    cell: Cell
    minibatches: Minibatches
    #: steps of one chain
    n_steps: int
    n_chains: int
    #: the run goes on with chains that have torch's random numbers
    torch_numbers: bool = False

    @property
    def device(self) -> str:
        return self.target.like.device.type


@dataclass(frozen=True)
class Engine:
    """What takes the steps.

    A ``kernel`` takes a whole chunk of steps at once. Without one, the ``integrator`` takes one
    step at a time, with gradients of the ``target`` computed by the ``evaluator``.
    """

    target: Target
    integrator: Integrator
    kernel: Any = None
    evaluator: type[Evaluator] = Evaluator
    #: whether random numbers come from the compiled generator
    philox: bool = False


@dataclass(frozen=True)
class Offer:
    """What an accelerator says of one run.

    Attributes
    ----------
    name : str
        The accelerator.
    part : str
        The part of the run that it would do; each part is done by one accelerator at most.
    why_not : str or None
        Why it does not apply, in one short sentence; None: it applies.
    pays : bool
        Whether ``compiled="auto"`` takes it where it applies.
    """

    name: str
    part: str
    why_not: str | None
    pays: bool


class Accelerator:
    """A faster way to do a part of a run; one file for each kind, and one entry in the list."""

    #: what ``compiled_`` and error messages call it
    name: str
    #: the part of a run that it does
    part: str = "steps"

    def why_not(self, work: Workload) -> str | None:
        """Why it does not apply to this run, in one short sentence; None: it applies."""
        raise NotImplementedError

    def pays(self, work: Workload) -> bool:
        """Whether the run will be faster with it, compilation included, where it applies."""
        raise NotImplementedError

    def equip(self, engine: Engine, work: Workload) -> Engine:
        """An engine with this accelerator in the place of what it replaces."""
        raise NotImplementedError

    def offer(self, work: Workload) -> Offer:
        why_not = self.why_not(work)
        return Offer(self.name, self.part, why_not, why_not is None and self.pays(work))


def why_no_numba() -> str | None:
    """Why there is no compiled code here; None: there is."""
    if find_spec("numba") is None:
        return "numba is not installed; install the extra 'skbayes-sgmcmc[fast]'."
    return None


def why_no_cpu(work: Workload) -> str | None:
    """Why code compiled for CPUs does not apply; None: it does."""
    return None if work.device == "cpu" else f"it needs a CPU, and the device is {work.device!r}."
