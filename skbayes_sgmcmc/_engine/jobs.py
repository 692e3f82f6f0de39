"""The run of a group of chains: starts, resumption, checkpoints, interrupts and results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._data.ranks import RankError
from .._draws.storage import allocate, dtype_name
from .._exceptions import not_allowed
from ..models._protocol import Model
from ..models._threads import few_threads
from ..samplers import Cell, Sampler
from .accelerators import Choice, Engine, equip
from .chains import Chains
from .checkpoint import Checkpoint
from .data_parallel import grid_of_run
from .descent import descend
from .fingerprint import fingerprint, probe, probe_starts, summary
from .lengths import Plan
from .problem import ChainState
from .progress import OnProgress, Report, mean_nll
from .recipe import Recipe, tuning_of
from .settings import Settings
from .target import Target
from .threshold import alpha

#: settings that do not change draws, or that the fingerprint has as resolved values
UNSEEN = ("checkpoint", "verbose", "random_state")


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a job: draws of the surviving chains, and the steps at which chains diverged."""

    draws: Array
    weights: Array | None
    n_steps: int
    step_size: float
    statistics: dict[str, Array]
    state: ChainState
    diverged: dict[int, int]


def moves_of(sampler: Sampler, cell: Cell) -> str:
    """Identity of the sampler and the integrator that the sampler's state belongs to."""
    return fingerprint(sampler, cell.integrator.__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A group of chains to run, in this process or in a worker."""

    #: how to sample, which is the same for all chains
    recipe: Recipe
    #: the steps of the run, and which of them give draws
    plan: Plan
    settings: Settings
    previous: ChainState | None
    #: the accelerators in use, and why the others are not
    accelerators: Choice
    #: indices of the chains of this job
    group: list[int]
    #: one seed for each chain of the job
    seeds: list[np.random.SeedSequence]

    @property
    def target(self) -> Target:
        return self.recipe.target

    def of(self, chains: list[int]) -> Job:
        """The job of some of all chains, which has a checkpoint file of its own."""
        settings = self.settings
        if settings.checkpoint is not None and len(chains) < settings.n_chains:
            path = Path(settings.checkpoint).resolve()  # workers may have another working directory
            path = path.with_stem(f"{path.stem}.{chains[0]}-{chains[-1]}")
            settings = replace(settings, checkpoint=path)
        seeds = [self.seeds[c] for c in chains]
        return replace(self, settings=settings, group=chains, seeds=seeds)

    def after(self, state: ChainState) -> Job:
        """The job of the same run that goes on from a state, of all chains or of some."""
        n_chains = len(state.theta)
        settings = replace(self.settings, n_chains=n_chains)
        return replace(self, previous=state, settings=settings, group=list(range(n_chains)))

    def __call__(self, on_progress: OnProgress | None) -> Result:
        with few_threads(self.target.model, self.recipe.minibatches.size, len(self.group)):
            return self._run(on_progress)

    def _run(self, on_progress: OnProgress | None) -> Result:
        chains = self._chains()
        checkpoint = None
        if self.settings.checkpoint is not None:
            checkpoint = self._checkpoint()
            checkpoint.load(chains)
        reported = -1.0

        def on_chunk(chains: Chains) -> None:
            nonlocal reported
            if checkpoint is not None:
                checkpoint.maybe_save(chains)
            report = Report(
                step=self.plan.taken + chains.cursor.step,
                n_steps=self.plan.end,
                nll=partial(mean_nll, chains),
                draws=chains.collected,
                one_mode=tuning_of(self.target.model).one_mode,
            )
            if on_progress is not None and report.fraction > reported:
                reported = report.fraction
                on_progress(report)

        try:
            chains.run(on_chunk)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted" + self._left(chains, checkpoint)) from None
        except RankError as error:
            raise RankError(error.how, self._left(chains, checkpoint)) from error
        if checkpoint is not None and chains.alive:
            checkpoint.save_snapshot()
        return self._result(chains)

    def _checkpoint(self) -> Checkpoint:
        known = probe(self.target, self.recipe.sampler, self.recipe.minibatches.whole())
        known |= self._probed_schedules() | self._probed_steps()
        return Checkpoint(self.settings.checkpoint, self._fingerprint(), known, grid_of_run().rows)

    def _probed_schedules(self) -> dict[str, Array]:
        """The values of the schedules over the run: a user's class may compute anything."""
        steps, n_steps = self.plan.grid, self.plan.n_steps
        found = {
            "step_size": self.plan.step_size.values(steps, n_steps),
            "exploring": self.plan.step_size.exploring(steps, n_steps),
            "temperature": self.plan.temperature.values(steps, n_steps),
        }
        return {
            name: summary(torch.as_tensor(values, device="cpu")) for name, values in found.items()
        }

    def _probed_steps(self) -> dict[str, Array]:
        """How far a few steps of the sampler go from fixed positions, with fixed noise.

        The step size changes on the way, and the burn-in ends, because samplers may respond to
        either. It is not tuned: the energies that samplers learn from are mostly rounding errors.
        """
        phi, rng = probe_starts(self.target)
        first = self.plan.step_size.values(np.zeros(1, dtype=int), self.plan.n_steps)
        chains = Chains(
            equip((), self.recipe),
            self.recipe.sampler,
            self.recipe.minibatches.whole().in_precision(None),
            replace(self.plan, auto=False),
            phi.clone(),
            rng,
            draws=np.empty((len(phi), 0, self.target.model.n_kept)),
        )
        chains.first_steps(first * [1.0, 0.9, 0.8])
        return {"steps": summary(chains.phi - phi)}

    def _chains(self) -> Chains:
        target, like = self.target, self.target.like
        engine = equip(self.accelerators.used, self.recipe)
        rng = ChainRandom(self.seeds, str(like.device), philox=engine.philox)
        if self.previous is not None:
            noise, rows = self.previous.rng["noise"], self.previous.rng["rows"]
            rng.set_state({"noise": noise[self.group], "rows": [rows[c] for c in self.group]})
            theta = torch.from_numpy(self.previous.theta[self.group]).to(like)
            phi = target.from_theta(theta).clone()
        else:
            phi = self._starts(engine)
        chains = Chains(
            engine,
            self.recipe.sampler,
            self.recipe.minibatches,
            self.plan,
            phi,
            rng,
            draws=self._allocate(),
            alpha=partial(alpha, self.recipe, self.plan.first_temperature),
        )
        if self.previous is not None and not self.plan.anew:
            # latent variables that are new, because of another prior or pruning, start afresh
            for name, values in self.target.tensors(self.previous.model, self.group).items():
                if name in chains.model_state and chains.model_state[name].shape == values.shape:
                    chains.model_state[name] = values
            if self.previous.moves == moves_of(self.recipe.sampler, self.recipe.cell):
                chains.state = self.target.tensors(self.previous.sampler, self.group)
                chains.cursor.last_eta = self.previous.last_eta
                chains.resume()
        return chains

    def _allocate(self) -> Array:
        shape = (len(self.group), self.plan.n_draws, self.target.model.n_kept)
        kept = self.settings.kept
        kind = dtype_name(self.target.like.dtype) if kept.dtype == "auto" else kept.dtype
        return allocate(shape, kind, kept.dir)

    def _starts(self, engine: Engine) -> torch.Tensor:
        """Starting positions phi of this group's chains."""
        values, target = self.recipe.values, engine.target
        model = target.model
        like, init = target.like, values.init
        rngs = [np.random.default_rng(seed.spawn(1)[0]) for seed in self.seeds]
        level = self.plan.first_temperature
        if isinstance(init, str) and init == "gaussian" and target.coordinates is not None:
            sd = np.sqrt(level / target.n)
            starts = [sd * rng.standard_normal(model.n_parameters) for rng in rngs]
            return torch.from_numpy(np.stack(starts)).to(like)
        if isinstance(init, str) and values.center is not None and init in ("map", "gaussian"):
            center = np.asarray(values.center)
            near = tuning_of(model).start_near if init == "gaussian" else lambda center, *_: center
            theta = np.stack([near(center, target.data, level, rng) for rng in rngs])
        elif isinstance(init, str):
            theta = np.stack([model.init(rng) for rng in rngs])
            optimised = tuning_of(model).descends(init) and not self.recipe.sampler.cools
            if optimised and self.plan.start_rows != 0:
                return descend(
                    target, self.recipe.minibatches, theta, self.seeds,
                    held_share=self.settings.validation_fraction, most_rows=self.plan.start_rows,
                    block=engine.descent,
                )  # fmt: skip
        else:
            theta = given_starts(init, self.settings.n_chains, model)[self.group]
        return target.from_theta(torch.from_numpy(theta).to(like)).clone()

    def _fingerprint(self) -> str:
        plan = self.plan
        return fingerprint(
            self.target.model,
            {k: v for k, v in vars(self.settings).items() if k not in UNSEEN},
            # without a given seed, any run with the same data and parameters can be resumed
            None if self.settings.random_state is None else self.seeds,
            [plan.n_draws, plan.burn_in, plan.thinning, plan.weighted],
            self.accelerators.used,
            self.target.data,
            None if self.previous is None else self.previous.theta,
        )

    def _left(self, chains: Chains, checkpoint: Checkpoint | None) -> str:
        """Write what there is; say where the run ended, and how it goes on."""
        where = f" at step {self.plan.taken + chains.cursor.step} of {self.plan.end}"
        if checkpoint is None:
            return f"{where}; nothing was kept. Set checkpoint='file.npz' to make fits resumable."
        if not checkpoint.save_snapshot():
            return f"{where}, before the first checkpoint; nothing was kept."
        return (
            f"{where}; call fit again with the same data and parameters to continue from "
            f"{str(self.settings.checkpoint)!r}."
        )

    def _result(self, chains: Chains) -> Result:
        state = chains.state or {}
        statistics = {
            name: np.asarray(values.double().cpu())
            for name, values in self.recipe.sampler.statistics(state, chains.last_step).items()
        }
        end = ChainState(
            theta=chains.target.to_theta(chains.phi).cpu().numpy().copy(),
            sampler={name: np.asarray(t.cpu()).copy() for name, t in state.items()},
            model={name: np.asarray(t.cpu()).copy() for name, t in chains.model_state.items()},
            rng=chains.rng.get_state(),
            last_eta=chains.cursor.last_eta,
            moves=moves_of(self.recipe.sampler, self.recipe.cell),
            n_chains=self.settings.n_chains,
        )
        draws, weights = chains.collected()
        return Result(
            draws=draws,
            weights=weights,
            n_steps=chains.cursor.step,
            step_size=self.recipe.sampler.used_step(chains.cursor.last_eta, state),
            statistics=statistics,
            state=end,
            diverged={
                self.group[c]: self.plan.taken + step for c, step in chains.cursor.diverged.items()
            },
        )


def given_starts(init: Any, n_chains: int, model: Model) -> Array:
    """Starting positions theta of all chains that ``init`` gives as an array."""
    init, shape = np.asarray(init, dtype=float), (n_chains, model.n_parameters)
    try:
        return np.array(np.broadcast_to(init, shape))
    except ValueError:
        raise not_allowed(
            f"init of shape {init.shape} is not allowed: give an array that broadcasts to {shape}."
        ) from None
