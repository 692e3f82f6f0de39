"""A group of chains from start to end: starts, resumption, checkpoints, interrupts, results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._data.chain_random import ChainRandom
from .._data.minibatch import Minibatches
from .._draws.storage import allocate, dtype_name
from ..samplers import Cell, Sampler
from ..samplers.integrators import Integrator
from .auto import AutoValues
from .chains import Chains, Plan
from .checkpoint import Checkpoint
from .fingerprint import fingerprint, probe
from .settings import Settings
from .target import Evaluator, Target
from .threshold import threshold_per_step

Array = NDArray[Any]


#: settings that do not change draws, or are in the fingerprint as what they resolve to
UNSEEN = ("checkpoint", "verbose", "random_state")

#: called about 100 times in a run, with its finished fraction and the chains as they then are
OnProgress = Callable[[float, Chains], None]


@dataclass
class ChainState:
    """Where chains stand after a run, as plain arrays: what warm starts go on from.

    ``moves`` identifies the sampler and integrator that ``sampler``, their state, belongs to;
    ``n_chains`` are the chains asked for, of which some may have diverged; ``warm`` is kept for
    streams only, whose later calls must stay in the coordinates of the first.
    """

    theta: Array
    sampler: dict[str, Array]
    model: dict[str, Array]
    rng: dict[str, Any]
    last_eta: float
    moves: str
    n_chains: int
    warm: AutoValues | None = None
    rows_seen: float = 0.0
    n_drawn: int = 0

    def fits(self, n_chains: int, n_parameters: int) -> bool:
        """Whether a run of so many chains and parameters can go on from here."""
        return (self.n_chains, self.theta.shape[1]) == (n_chains, n_parameters)


@dataclass
class Result:
    """What a job returns: draws of the surviving chains, and which chains diverged when."""

    draws: Array
    weights: Array | None
    n_steps: int
    statistics: dict[str, Array]
    state: ChainState
    diverged: dict[int, int]


@dataclass
class Engine:
    """What takes the steps: a compiled ``kernel`` a chunk's, or ``integrator`` one at a time."""

    integrator: Integrator
    kernel: Any = None
    evaluator: type[Evaluator] = Evaluator
    #: whether compiled code makes the noise, by the generator that it has
    philox: bool = False


@dataclass
class Job:
    """A group of chains to run, in this process or in a worker."""

    target: Target
    sampler: Sampler
    cell: Cell
    minibatches: Minibatches
    plan: Plan
    settings: Settings
    warm: AutoValues
    previous: ChainState | None
    group: list[int]
    seeds: list[np.random.SeedSequence]

    def __call__(self, on_progress: OnProgress | None) -> Result:
        chains = self._chains()
        checkpoint = None
        if self.settings.checkpoint is not None:
            checkpoint = Checkpoint(
                self.settings.checkpoint,
                self._fingerprint(),
                probe(self.target, self.sampler, self.minibatches),
            )
            checkpoint.load(chains)
        reported = -1

        def on_chunk(chains: Chains) -> None:
            nonlocal reported
            if checkpoint is not None:
                checkpoint.maybe_save(chains)
            percent = 100 * chains.cursor.step // self.plan.n_steps
            if on_progress is not None and percent > reported:
                reported = percent
                on_progress(percent / 100.0, chains)

        try:
            chains.run(on_chunk)
        except KeyboardInterrupt:
            raise self._interrupted(chains, checkpoint) from None
        if checkpoint is not None and chains.alive:
            checkpoint.save(chains)
        return self._result(chains)

    def _chains(self) -> Chains:
        target, like = self.target, self.target.like
        engine = self._engine()
        rng = ChainRandom(self.seeds, str(like.device), philox=engine.philox)
        if self.previous is not None:
            rng.set_state(_select(self.previous.rng, self.group))
            theta = torch.from_numpy(self.previous.theta[self.group]).to(like)
            phi = target.from_theta(theta).clone()
        else:
            phi = self._starts()
        chains = Chains(
            target,
            self.sampler,
            engine.integrator,
            self.minibatches,
            self.plan,
            phi,
            rng,
            draws=self._allocate(),
            kernel=engine.kernel,
            evaluator=engine.evaluator,
            alpha=self.alpha(),
        )
        if self.previous is not None:
            # a run with another prior, or pruned, has latent variables that begin with it
            for name, values in self._tensors(self.previous.model).items():
                if name in chains.model_state and chains.model_state[name].shape == values.shape:
                    chains.model_state[name] = values
            if self.previous.moves == self._moves():
                chains.state = self._tensors(self.previous.sampler)
                chains.cursor.last_eta = self.previous.last_eta
                chains.resume()
        return chains

    def _allocate(self) -> Array:
        shape = (len(self.group), self.plan.n_draws, self.target.model.n_kept)
        kept = self.settings.kept
        kind = dtype_name(self.target.like.dtype) if kept.dtype == "auto" else kept.dtype
        return allocate(shape, kind, kept.dir)

    def _engine(self) -> Engine:
        """Compiled code for a chunk's steps, or else for the integrator or for the gradient."""
        plain = Engine(self.cell.integrator)
        if self.settings.compiled is False:
            return plain
        from .accelerators.cuda_graphs import find_evaluator
        from .accelerators.fused_steps import find_integrator
        from .accelerators.linear_sgld import find_kernel

        required = self.settings.compiled is True
        run = (self.sampler, self.cell)
        n_steps = self.plan.n_steps * len(self.group)
        reason = (
            "there is compiled code for sampler='sgld' and 'psgld' (without divergence) with "
            "integrator='euler' on a CPU, and for networks of dense rows without latent variables "
            "on a GPU; give compiled='auto'."
        )
        evaluator = find_evaluator(self.target, required=required)
        if evaluator is not None:
            return replace(plain, evaluator=evaluator)
        try:
            kernel = find_kernel(self.target, self.minibatches, *run, required=required)
            if kernel is not None:
                return replace(plain, kernel=kernel, philox=True)
            integrator = find_integrator(self.target, *run, n_steps, required=required)
            if integrator is not None:
                return Engine(integrator, philox=True)
        except ImportError:
            reason = (
                "numba is not installed; install the extra 'skbayes-sgmcmc[fast]' or give "
                "compiled='auto'."
            )
        own = self.target.model.kernels if self.target.like.device.type == "cpu" else None
        if required and own is None:
            raise ValueError(f"compiled=True is not allowed here: {reason}")
        return plain

    def _tensors(self, arrays: dict[str, Array]) -> dict[str, torch.Tensor]:
        """Rows of this group of stored state, on the run's device and in its dtype."""
        like = self.target.like
        tensors = {name: torch.from_numpy(values[self.group]) for name, values in arrays.items()}
        return {
            name: tensor.to(like if tensor.is_floating_point() else like.device)
            for name, tensor in tensors.items()
        }

    def _moves(self) -> str:
        return fingerprint(self.sampler, self.cell.integrator.__name__)

    def _starts(self) -> torch.Tensor:
        """Starting positions phi of this group's chains."""
        target, warm, model = self.target, self.warm, self.target.model
        like, init = target.like, warm.init
        rngs = [np.random.default_rng(seed.spawn(1)[0]) for seed in self.seeds]
        gaussian = isinstance(init, str) and init == "gaussian"
        level = self.plan.temperature.values(np.zeros(1, dtype=int), self.plan.n_steps)[0]
        if gaussian and target.coordinates is not None:
            sd = np.sqrt(level / target.n)
            starts = [sd * rng.standard_normal(model.n_parameters) for rng in rngs]
            return torch.from_numpy(np.stack(starts)).to(like)
        if gaussian and warm.center is not None and model.metric is not None:
            center = np.asarray(warm.center)
            theta = np.stack([model.typical_draw(center, target.data, level, r) for r in rngs])
        elif isinstance(init, str) and warm.center is not None and init in ("map", "gaussian"):
            theta = np.tile(np.asarray(warm.center), (len(rngs), 1))
        elif isinstance(init, str):
            theta = np.stack([model.init(rng) for rng in rngs])
        else:
            theta = self._given_starts(np.asarray(init, dtype=float))
        return target.from_theta(torch.from_numpy(theta).to(like)).clone()

    def _given_starts(self, init: Array) -> Array:
        shape = (self.settings.n_chains, self.target.model.n_parameters)
        try:
            return np.array(np.broadcast_to(init, shape)[self.group])
        except ValueError:
            raise ValueError(
                f"init of shape {init.shape} is not allowed: give 'auto', 'random', 'map', "
                f"'gaussian' or an array that broadcasts to {shape}."
            ) from None

    def alpha(self) -> Callable[[torch.Tensor], float]:
        """The sampling threshold's alpha_t / eta as a function of theta (1, parameters)."""
        level = float(self.plan.temperature.values(np.zeros(1, dtype=int), self.plan.n_steps)[0])
        return partial(
            threshold_per_step,
            self.target,
            self.sampler,
            self.warm.root,
            batch_size=self.minibatches.size,
            temperature=level,
        )

    def _fingerprint(self) -> str:
        plan = self.plan
        return fingerprint(
            self.target.model,
            {k: v for k, v in vars(self.settings).items() if k not in UNSEEN},
            # with no seed given, any run of the same data and parameters goes on
            None if self.settings.random_state is None else self.seeds,
            [plan.n_draws, plan.burn_in, plan.thinning],
            self.target.data,
            None if self.previous is None else self.previous.theta,
        )

    def _interrupted(self, chains: Chains, checkpoint: Checkpoint | None) -> KeyboardInterrupt:
        where = f"interrupted at step {chains.cursor.step} of {self.plan.n_steps}"
        if checkpoint is None:
            return KeyboardInterrupt(
                f"{where}; nothing was kept. Set checkpoint='file.npz' to make fits resumable."
            )
        checkpoint.save_snapshot()
        if not checkpoint.path.exists():
            return KeyboardInterrupt(f"{where}, before the first checkpoint; nothing was kept.")
        return KeyboardInterrupt(
            f"{where}; call fit again with the same data and parameters to go on from "
            f"{str(self.settings.checkpoint)!r}."
        )

    def _result(self, chains: Chains) -> Result:
        state = chains.state or {}
        statistics = {
            name: np.asarray(values.double().cpu())
            for name, values in self.sampler.statistics(state).items()
        }
        end = ChainState(
            chains.target.to_theta(chains.phi).cpu().numpy().copy(),
            {name: np.asarray(t.cpu()).copy() for name, t in state.items()},
            {name: np.asarray(t.cpu()).copy() for name, t in chains.model_state.items()},
            chains.rng.get_state(),
            chains.cursor.last_eta,
            self._moves(),
            self.settings.n_chains,
        )
        return Result(
            *chains.collected(),
            chains.cursor.step,
            statistics,
            end,
            {self.group[c]: step for c, step in chains.cursor.diverged.items()},
        )


def _select(rng: dict[str, Any], group: list[int]) -> dict[str, Any]:
    return {"noise": rng["noise"][group], "rows": [rng["rows"][c] for c in group]}
