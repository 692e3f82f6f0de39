"""Whole steps that are recorded once as a CUDA graph and then replayed.

The time of a step of a small model on a GPU is the time to launch its operations, one by one: those
that gather rows, make noise, compute the gradient and move the chains. A replay launches all of
them at once. What differs from step to step is in the GPU's memory: positions and states, counters
of random numbers, and the number of steps of the chunk so far, which says what rows come next.
What Python knows, such as the step size, is constant in a recording, which holds as long as these
numbers stay the same. A step with new numbers is taken operation by operation, and recorded when
they come a second time. Before a recording is used, it is compared with the step itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..._data.chain_random import counts
from ..._exceptions import not_allowed, warn
from ..._limits import LIMITS
from ..._metric import State
from ...samplers import TABLE
from ...samplers._protocol import Step
from ...samplers.integrators import Integrator
from ..recipe import Recipe
from . import cuda_graphs
from ._base import Accelerator, Engine, why_no_share

if TYPE_CHECKING:
    from ..chains import Chains


#: steps in a row with new numbers, after which gradients are recorded, as others will follow
VARYING = 3
#: what compiles updates
BACKEND = "inductor"
#: how often a function may be compiled in a process
MOST_COMPILED = 2**20


class StepRecorder:
    """Takes the steps of a group of chains, and records those whose numbers come again.

    Raises
    ------
    ValueError
        A step of a model that is not known to be recordable cannot be recorded.

    Warns
    -----
    SamplingWarning
        A step of another model cannot be recorded; all are taken operation by operation.
    """

    def __init__(self, chains: Chains):
        self._chains: Chains = weakref.proxy(chains)  # which hold this: memory is free at once
        device = chains.phi.device
        #: number of steps of the chunk that were taken, on the device
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._rows: Tensor | None = None
        self._numbers: tuple[Any, ...] = ()
        #: how many steps in a row had new numbers
        self._varied = 0
        self._places: list[Any] = []
        self._replay: Callable[[], Any] | None = None
        self._refused = False
        #: what the recording leaves for the model's latent variables
        self._aux: dict[str, Tensor] = {}

    def begin(self, rows: Tensor | None, longest: int) -> None:
        """Take row numbers (chains, steps, size) of a chunk of at most ``longest`` steps."""
        self._place.zero_()
        if rows is None:
            return
        if self._rows is None:
            # a recording is made with steps after this one, which may be the last of the chunk
            length = longest + cuda_graphs.WARM_UP + 1
            self._rows = rows.new_zeros(length, len(rows), rows.shape[2])
        self._rows[: rows.shape[1]].copy_(rows.swapaxes(0, 1))

    def draw(self) -> None:
        """Give the chains the rows and the noise of the next step."""
        chains = self._chains
        if self._rows is not None:
            by_step = self._rows.index_select(0, self._place)
            chains.evaluator.batch = next(chains.minibatches.gather(by_step, None))
            self._place.add_(1)
        elif not chains.evaluator.batch.fields:
            chains.evaluator.batch = next(chains.minibatches.chunk(None, 1, chains.rng))
        del chains.last_step.xi  # the next ones may take its memory
        chains.last_step.xi = chains.rng.normal(chains.phi.shape[1], dtype=chains.phi.dtype)

    def move(self, integrator: Any = None) -> None:
        """Take the step, operation by operation."""
        chains, evaluator = self._chains, self._chains.evaluator
        integrator = integrator or chains.engine.integrator
        plain = nullcontext() if self._varied >= VARYING else evaluator.without_replays()
        with plain:
            integrator(chains.sampler, chains.phi, chains.state, chains.last_step)

    def __call__(self) -> None:
        """Draw rows and noise, and take the step."""
        chains, step = self._chains, self._chains.last_step
        numbers = step.eta, step.temperature, step.same_target, *chains.sampler.numbers(step)
        places = cuda_graphs.places(self._used())
        if (numbers, places) != (self._numbers, self._places):
            self._numbers, self._places, self._replay = numbers, places, None
            self._varied += 1
            self._compute()
        elif self._refused:
            self._compute()
        elif self._replay is None:
            self._varied = 0
            self._record()
        else:
            self._replay()
            chains.evaluator.aux = self._aux

    def _compute(self, integrator: Any = None) -> tuple[Tensor]:
        self.draw()
        self.move(integrator)
        return (self._chains.phi,)

    def _used(self) -> list[Tensor]:
        """The tensors that a recording reads and that the step does not make."""
        chains = self._chains
        of_sampler = chains.state or {}
        return [chains.phi, *of_sampler.values(), *chains.evaluator.state.values()]

    def _record(self) -> None:
        """Take a step by its recording, if there can be one."""
        chains = self._chains
        changed = [*self._used(), self._place, *chains.rng.tensors()]
        before = [each.clone() for each in changed]

        def go_back() -> None:
            for each, values in zip(changed, before, strict=True):
                each.copy_(values)

        try:
            self._compute()
            after = chains.phi.clone()
            go_back()
            recorded = chains.engine.recorded
            replay = cuda_graphs.record(partial(self._compute, recorded))[1]
            go_back()
            replay()
            if not same_moves(before[0], after, chains.phi):
                raise RuntimeError("a replay differs from it")
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if not chains.target.model.recordable:
                raise not_allowed(
                    "compiled=True is not allowed here: the steps can't be recorded as a CUDA "
                    f"graph ({error}); give compiled=False."
                ) from error
            warn(
                f"the steps are slow, because they can't be recorded as a CUDA graph ({error})",
                "steps-are-not-recorded",
            )
            self._refused = True
            go_back()
            self._compute()
        else:
            self._replay, self._aux = replay, chains.evaluator.aux


def same_moves(start: Tensor, expected: Tensor, found: Tensor) -> bool:
    """Whether chains (chains, parameters) that came from a start are where they are expected."""
    # some chains at a time: what is computed of all would take several times their memory
    at_once = max(1, LIMITS.pool_numbers // start.shape[1])
    parts = [each.split(at_once) for each in (start, expected, found)]
    largest = max(
        float((to - at).nan_to_num_(0.0, 0.0, 0.0).abs_().max())
        for at, to, _ in zip(*parts, strict=True)
    )
    bound = cuda_graphs.TOLERANCE * largest
    return all(
        torch.allclose(there, to, rtol=0.0, atol=bound, equal_nan=True)
        for _, to, there in zip(*parts, strict=True)
    )


class RecordedSteps(Accelerator):
    """Whole steps as a CUDA graph, and gradients as one in steps whose numbers do not stay."""

    name = "cuda_steps"
    numba = False

    def why_not(self, recipe: Recipe) -> str | None:
        sampler, rows = recipe.sampler, recipe.minibatches
        if recipe.device not in cuda_graphs.DEVICES:
            return f"it needs a GPU, and the device is {recipe.device!r}."
        if not counts(recipe.device):
            return "random numbers are not functions of counters."
        if type(sampler) not in {kind for kind, _ in TABLE.values()} or recipe.cell.whole_chunks:
            return "it is for the package's samplers that take steps."
        if sampler.full_data:
            return "the sampler accepts or rejects steps."
        if rows.odds is not None or rows.data.augment is not None:
            return "rows are drawn with odds, or change at random at every step."
        if not rows.data.by_tensor:
            return "it is for dense rows on the GPU."
        return why_no_share(recipe)

    def pays(self, recipe: Recipe) -> bool:
        return recipe.target.model.recordable

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        if cuda_graphs.CUDAGraph().why_not(recipe) is None:
            engine = cuda_graphs.CUDAGraph().equip(engine, recipe)
        return replace(engine, recorder=StepRecorder)


class FusedUpdate:
    """An integrator whose operations between gradients torch compiles, few kernels for each."""

    def __init__(self, integrator: Integrator):
        self._compiled = torch.compile(integrator, backend=BACKEND, dynamic=False)
        self._seen: Any = None

    def __call__(self, sampler: Any, theta: Tensor, state: State, step: Step) -> None:
        if step is not self._seen:  # gradients stay as they are
            for name in ("gradient", "likelihood", "value_and_gradient", "variance"):
                setattr(step, name, torch.compiler.disable(getattr(step, name)))
            self._seen = step
        # the functions are those of all fits and step sizes, and torch stops after eight
        with torch._dynamo.config.patch(
            cache_size_limit=MOST_COMPILED, accumulated_cache_size_limit=MOST_COMPILED
        ):
            self._compiled(sampler, theta, state, step)


class FusedUpdates(Accelerator):
    """Updates of recorded steps as fused kernels, which are compiled in some seconds."""

    name = "fused_updates"
    part = "updates of recorded steps"
    numba = False

    def why_not(self, recipe: Recipe) -> str | None:
        if why := RecordedSteps().why_not(recipe):
            return why
        if find_spec("triton") is None and BACKEND == "inductor":
            return "Triton is not installed."
        numbers = recipe.target.model.n_parameters * recipe.n_chains * recipe.n_steps
        if numbers < LIMITS.worth_fusing:
            return "the run is too short to be worth the seconds of compiling."
        return None

    def pays(self, recipe: Recipe) -> bool:
        return recipe.target.model.recordable

    def equip(self, engine: Engine, recipe: Recipe) -> Engine:
        return replace(engine, recorded=FusedUpdate(engine.integrator))
