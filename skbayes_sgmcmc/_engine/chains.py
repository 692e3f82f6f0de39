"""The loop over steps: burn-in, thinning, schedules, divergence and storage."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._data.minibatch import Minibatches
from .._draws.storage import decode, encode
from .._limits import LIMITS
from .._metric import State
from ..samplers._protocol import Sampler, Step
from .accelerators import Engine
from .denormals import flushed_denormals
from .lengths import Plan
from .recipe import tuning_of


@dataclass
class Cursor:
    """Progress of a run, which a checkpoint stores besides the tensors of :class:`Chains`."""

    step: int = 0
    kept: int = 0
    distance: float | None = None
    travelled: float = 0.0
    last_eta: float = 0.0
    #: whether rows and latent variables are those of the last gradient
    same_target: bool = False
    diverged: dict[int, int] = field(default_factory=dict)


class Chains:
    """A group of chains that advance together.

    The engine has the target, and the functions that take the steps (see ``accelerators/``); its
    integrator composes the sub-flows of the sampler. Chains start at ``phi`` (n_chains,
    n_parameters), in the target's coordinates, with random numbers of its own each, and fill the
    array ``draws`` (n_chains, n_draws, n_kept; see ``_draws/storage.py``). ``alpha(theta, state,
    eta)`` returns alpha_t, for :class:`MixingDistance`.
    """

    def __init__(
        self,
        engine: Engine,
        sampler: Sampler,
        minibatches: Minibatches,
        plan: Plan,
        phi: Tensor,
        rng: ChainRandom,
        *,
        draws: Array,
        alpha: Callable[[Tensor, State, float], float] | None = None,
    ):
        self.engine = engine
        self.target = engine.target
        self.sampler = sampler
        self.minibatches = minibatches
        self.plan = plan
        self.phi = phi.contiguous()
        self.rng = rng
        self.alpha = alpha
        self.alive = list(range(len(phi)))
        self.state: State | None = None
        theta = self.target.to_theta(phi)
        self.model_state: State = self.target.model.init_state(theta)
        if plan.annealed:
            self.model_state |= self.target.model.simpler(theta)
        self.cursor = Cursor()
        self.draws = draws
        #: draws that are still on the device, (chains, kept, n_kept) each
        self._there: list[Tensor] = []
        self.weights = np.ones(plan.n_draws)

    # the loop -------------------------------------------------------------------------------------

    @torch.no_grad()
    @flushed_denormals()
    def run(self, on_chunk: Callable[[Chains], None] | None = None) -> None:
        """Take all remaining steps; stop early if all chains have diverged.

        ``on_chunk`` is called after every chunk, when the state can be stored and resumed.
        """
        length = self._chunk_length()
        n_steps, cursor = self.plan.n_steps, self.cursor
        self._start()
        self._agree()
        while self.alive and cursor.step < n_steps and cursor.kept < self.plan.n_draws:
            # chunks end at multiples of their length and at the end of burn-in, so that a resumed
            # run draws its random numbers in the same portions
            stop = min(cursor.step - cursor.step % length + length, n_steps)
            if cursor.step < self.plan.burn_in:
                stop = min(stop, self.plan.burn_in)
            self._chunk(np.arange(cursor.step, stop))
            cursor.step = stop
            if stop == self.plan.burn_in and not self.plan.more_rows:
                self.sampler.end_burn_in(self._state)
            self._agree()
            self._drop_diverged()
            if on_chunk is not None and self.alive:
                on_chunk(self)

    @torch.no_grad()
    @flushed_denormals()
    def first_steps(self, etas: Array) -> None:
        """Take a step of burn-in and some after it at T = 1, without draws, as a probe."""
        ones, none = np.ones(len(etas)), np.zeros(len(etas), dtype=bool)
        self._start()
        for burn_in, part in ((True, slice(1)), (False, slice(1, None))):
            if self._at_once(etas[part], ones[part], none[part]) is None:
                self._loop(0, etas[part].tolist(), ones[part].tolist(), none[part].tolist())
            if burn_in:
                self.sampler.end_burn_in(self._state)

    def _start(self) -> None:
        if self.state is not None:
            return
        self._set_up()
        eta = float(self.plan.step_size.values(np.zeros(1, dtype=int), self.plan.n_steps)[0])
        self._set_scale(eta, self.plan.first_temperature)
        self._set_progress(self.cursor.step)
        self.last_step.xi = self.rng.normal(self.phi.shape[1], dtype=self.phi.dtype)
        indices = self.minibatches.indices(1, self.rng)
        self.evaluator.batch = next(self.minibatches.chunk(indices, 1, self.rng))
        self.state = self.sampler.init_state(self.phi, self.last_step)

    def _agree(self) -> None:
        """Take the state that all processes which share the minibatches go on from."""
        parts = self.phi, *self._state.values(), *self.model_state.values()
        self.minibatches.follow_first(*parts)

    @property
    def _state(self) -> State:
        assert self.state is not None
        return self.state

    def _chunk_length(self) -> int:
        size = 0 if self.minibatches.full else self.minibatches.size
        if self.rng.together is not None:  # numbers that do not depend on how many are made at once
            fitting = LIMITS.pool_numbers // max(1, size * len(self.phi))
            return min(max(LIMITS.least_steps, fitting), LIMITS.device_steps)
        # counted per chain, so that a chain's numbers do not depend on the size of its group
        per_step = self.phi.shape[1] + size
        return min(max(LIMITS.least_steps, LIMITS.cache_numbers // per_step), LIMITS.chunk_steps)

    def _normals(self, count: int) -> Iterator[Tensor]:
        """Noise (chains, steps, parameters) of all steps, made for several steps at once."""
        n_parameters, dtype = self.phi.shape[1], self.phi.dtype
        # numbers that are made together are made as in steps that are recorded
        together = self.rng.together is not None
        block = 1 if together else max(1, LIMITS.cache_numbers // n_parameters)
        for start in range(0, count, block):
            yield self.rng.normal(min(block, count - start), n_parameters, dtype=dtype)

    def _chunk(self, steps: Array) -> None:
        plan = self.plan
        etas = plan.step_size.values(steps, plan.n_steps)
        exploring = plan.step_size.exploring(steps, plan.n_steps)
        cold = exploring | (steps < plan.descent)
        temperatures = np.where(cold, 0.0, plan.temperature.values(steps, plan.n_steps))
        keep, first = self._collect(steps, etas, exploring), self.cursor.kept
        at_once = self._at_once(etas, temperatures, keep)
        if at_once is not None:
            self._set_scale(float(etas[-1]), float(temperatures[-1]))
            self._keep(at_once, etas[keep])
        else:
            self.evaluator.state = self.target.model.active(self.model_state)
            # as lists, because the loop reads numbers faster from lists than from arrays
            self._loop(int(steps[0]), etas.tolist(), temperatures.tolist(), keep.tolist())
        self._fetch()
        model = self.target.model
        if model.recorded and model.draw_recorded is not None:
            self._draw_recorded(first, temperatures[keep])

    def _at_once(self, etas: Array, temperatures: Array, keep: Array) -> Tensor | None:
        """Take all steps of a chunk, and return the positions to keep; None if this needs a loop.

        The positions have shape (chains, kept, parameters).
        """
        if self.engine.kernel is not None:
            kept: Tensor = self.engine.kernel(self.phi, etas, temperatures, keep, self.rng)
            return kept
        if self.engine.cell.whole_chunks:
            self.last_step.temperatures = temperatures
            found: Tensor = self.engine.integrator(
                self.sampler, self.phi, self._state, self.last_step
            )
            return found[:, torch.from_numpy(keep).to(found.device)]
        return None

    def _loop(
        self, first: int, etas: list[float], temperatures: list[float], keep: list[bool]
    ) -> None:
        """Take steps one after another, beginning with step ``first``."""
        if self.engine.block is not None:
            return self._in_blocks(first, etas, temperatures, keep)
        indices, count = self.minibatches.indices(len(etas), self.rng), len(etas)
        if self._recorder is None:
            given = self.sampler, self.phi, self._state, self.last_step
            draw, move = self._given(indices, count), partial(self.engine.integrator, *given)
        else:
            draw, move = self._recorder.draw, self._recorder.move
            self._recorder.begin(indices, self._chunk_length())
        for i in range(count):
            self._set_scale(etas[i], temperatures[i])
            self._set_progress(first + i)
            if i > 0 and self._recorder is not None:
                self._recorder()
            else:
                draw()
                if i == 0:
                    self._prepare()
                move()
            self._finish(first + i, keep[i])

    def _given(self, indices: Any, count: int) -> Callable[[], None]:
        """A function that gives the chains the rows and the noise of the next of these steps."""
        step, evaluator, uniforms = self.last_step, self.evaluator, None
        if self.sampler.full_data:
            uniforms = iter(self.rng.uniform(count, dtype=self.phi.dtype).unbind(1))
        normals: Iterator[Tensor] = repeat(step.xi)
        if not self.engine.own_noise:
            normals = chain.from_iterable(noise.unbind(1) for noise in self._normals(count))
        batches = self.minibatches.chunk(indices, count, self.rng)

        def draw() -> None:
            step.xi = next(normals)
            if uniforms is not None:
                step.uniform = next(uniforms)
            evaluator.batch = next(batches)

        return draw

    def _in_blocks(
        self, first: int, etas: list[float], temperatures: list[float], keep: list[bool]
    ) -> None:
        """The same for an engine that takes several steps at once."""
        step, count, start, rows = self.last_step, len(etas), 0, self.minibatches
        indices = rows.indices(count, self.rng)
        normals = torch.cat(list(self._normals(count)), 1)
        if rows.full:
            self.evaluator.batch = rows.together(None)
        per_step = len(self.phi) * rows.size * self.target.model.row_products
        at_once = max(LIMITS.least_steps, int(LIMITS.waited_products / per_step))
        if not rows.full:
            at_once = min(at_once, rows.at_once(len(self.phi)))
        k = np.arange(first, first + count)
        new = self._changes(k)
        new[1:] |= (np.diff(etas) != 0.0) | (np.diff(temperatures) != 0.0)
        ends = [*np.flatnonzero(new).tolist(), count]
        burn_in = self.plan.burn_in
        progress = np.where(k < burn_in, k / max(burn_in, 1), 1.0)
        while start < count:
            stop = min(start + at_once, ends[bisect_right(ends, start)])
            if not rows.full:
                self.evaluator.batch = rows.together(indices[:, start:stop])
            step.xi = normals[:, start:stop].contiguous()
            self._set_scale(etas[start], temperatures[start])
            self._set_progress(first + start)
            if start == 0:
                self._prepare()
            step.all_progress = progress[start:stop]
            found = self.engine.block(self.sampler, self.phi, self._state, step, self.evaluator)
            # the latent variables of the last of these steps are yet to be drawn
            self._keep(found[:, np.flatnonzero(keep[start : stop - 1])], etas[start])
            self._finish(first + stop - 1, keep[stop - 1])
            start = stop

    def _changes(self, k: Array) -> Array:
        """Whether the targets of steps k may be others than those of the steps before."""
        model = self.target.model
        found = np.zeros(len(k), dtype=bool)
        if model.after_step is not None:
            found |= (k - 1) % model.after_every == 0
        for i in np.flatnonzero(k <= self.plan.burn_in).tolist():
            found[i] |= self._anneals(int(k[i]))
        return found

    def _finish(self, k: int, keep: bool) -> None:
        """Let the model draw its latent variables after step k, and keep what it leaves."""
        step, model, changed = self.last_step, self.target.model, False
        if model.after_step is not None:
            given = self.phi, self.model_state, self.evaluator.aux, k, self.rng, step.temperature
            changed = model.after_step(*given)
        # a model that does not say has changed
        step.same_target = self.cursor.same_target = step.same_rows and changed is False
        if keep:
            self._keep(self.phi[:, None], self.cursor.last_eta)

    def _prepare(self) -> None:
        """Add to the sampler's state what the steps of a chunk need and it lacks."""
        given = self.phi, self._state, self.last_step
        self.sampler.prepare(*given)
        if self.engine.cell.prepare is not None:
            self.engine.cell.prepare(self.sampler, *given)

    def _set_scale(self, eta: float, temperature: float) -> None:
        step, last = self.last_step, self.cursor.last_eta
        if eta != last:
            if last > 0.0 and self.state is not None:
                self.sampler.rescale(self.state, eta / last)
            self.cursor.last_eta = step.eta = eta
        step.temperature = temperature
        step.noise = eta * temperature / step.n

    def _set_progress(self, k: int) -> None:
        if k <= self.plan.burn_in:
            self.last_step.progress = self._progress(k)
            self.last_step.tuning = self.plan.auto and k < self.plan.burn_in
            self.last_step.burnt_in = k
            if self._anneals(k):
                theta = self.target.to_theta(self.phi)
                self.target.model.anneal(theta, self.model_state)
                self.phi.copy_(self.target.from_theta(theta))
                self.last_step.same_target = False

    def _progress(self, k: int) -> float:
        """The fraction of the burn-in that is finished at step k."""
        return k / self.plan.burn_in if k < self.plan.burn_in else 1.0

    def _anneals(self, k: int) -> bool:
        """Whether the model goes over to its own density before step k."""
        model = self.target.model
        return self.plan.annealed and model.anneals(self._progress(k - 1), self._progress(k))

    # collecting -----------------------------------------------------------------------------------

    def _collect(self, steps: Array, etas: Array, exploring: Array) -> Array:
        """Mask of the steps after which a draw is kept."""
        rule, burn_in = self.plan.by_distance, self.plan.burn_in
        if rule is None:
            done = steps + 1 - burn_in
            return np.asarray((done > 0) & (done % self.plan.every == 0) & ~exploring)
        cursor, keep = self.cursor, np.zeros(len(steps), dtype=bool)
        sampling = np.flatnonzero(~exploring)
        if cursor.distance is None and steps[-1] >= burn_in and len(sampling):
            if rule.distance is not None:
                cursor.distance = rule.distance
            elif self.alpha is not None:
                state = {name: tensor[:1] for name, tensor in self.model_state.items()}
                theta, eta = self.target.to_theta(self.phi[:1]), float(etas[sampling[0]])
                if self.alpha(theta, state, eta) < rule.noise_ratio:
                    cursor.distance = eta
        if cursor.distance is None:
            return keep
        for j in sampling:
            cursor.travelled += float(etas[j])
            if steps[j] >= burn_in and cursor.travelled > cursor.distance:
                keep[j], cursor.travelled = True, 0.0
        return keep

    def _keep(self, phi: Tensor, eta: Array | float) -> None:
        """Keep positions (chains, draws, parameters), as many as there are draws to come."""
        first, model = self.cursor.kept, self.target.model
        stop = min(first + phi.shape[1], self.plan.n_draws)
        if first == stop:
            return
        parts = [self.target.to_theta(phi[:, : stop - first])]
        if model.draw_recorded is None:
            latents = (self.model_state[name].flatten(1)[:, None] for name in model.recorded)
            parts += [each.expand(-1, stop - first, -1) for each in latents]
        values = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        if values.device.type == "cpu":
            self._write(slice(first, stop), slice(values.shape[2]), values.numpy())
        else:  # fetched together, because each time the device has to be waited for
            self._there.append(values.clone())
        if self.plan.weighted:
            self.weights[first:stop] = eta if isinstance(eta, float) else eta[: stop - first]
        self.cursor.kept = stop
        if sum(values.numel() for values in self._there) > LIMITS.pool_numbers:
            self._fetch()

    def _fetch(self) -> None:
        """Write the draws that are still on the device."""
        if not self._there:
            return
        values, stop = torch.cat(self._there, 1).cpu().numpy(), self.cursor.kept
        self._there.clear()
        self._write(slice(stop - values.shape[1], stop), slice(values.shape[2]), values)

    def _draw_recorded(self, first: int, temperatures: Array) -> None:
        """Draw the model's recorded variables given the draws since ``first``, and keep them."""
        model, stop = self.target.model, self.cursor.kept
        places = slice(model.n_parameters), slice(model.n_parameters, None)
        block = max(1, LIMITS.cache_numbers // model.n_kept)
        for start in range(first, stop, block):
            rows = slice(start, min(start + block, stop))
            theta = decode(self.draws[self.alive, rows, places[0]])
            levels = temperatures[start - first : rows.stop - first]
            self._write(rows, places[1], model.draw_recorded(theta, self.rng, levels))

    def _write(self, rows: slice, places: slice, values: Array) -> None:
        with np.errstate(over="ignore"):  # the fit's end reports what storage can't hold
            self.draws[self.alive, rows, places] = encode(values, self.draws.dtype)

    def collected(self) -> tuple[Array, Array | None]:
        """Draws (chains, kept, n_kept) of the living chains, and their weights, if any."""
        kept = self.cursor.kept
        draws = self.draws if len(self.alive) == len(self.draws) else self.draws[self.alive]
        return draws[:, :kept], self.weights[:kept] if self.plan.weighted else None

    # divergence -----------------------------------------------------------------------------------

    def _drop_diverged(self) -> None:
        finite = torch.isfinite(self.phi).all(1)
        if bool(finite.all()):
            return
        good = finite.nonzero()[:, 0].tolist()
        for position in range(len(self.alive)):
            if position not in good:
                self.cursor.diverged[self.alive[position]] = self.cursor.step
        good = [] if self.plan.all_needed else good
        self.alive = [self.alive[position] for position in good]
        if not good:
            return
        self.phi = self.phi[good].contiguous()
        self.state = {name: tensor[good].contiguous() for name, tensor in self._state.items()}
        self.model_state = {name: tensor[good] for name, tensor in self.model_state.items()}
        self.rng = self.rng.select(good)
        self._set_up(self.last_step)

    # parts ----------------------------------------------------------------------------------------

    def _set_up(self, old: Step | None = None) -> None:
        """Make the parts for the chains that are alive, which go on from an old step."""
        self.evaluator = self.engine.evaluator(
            self.target,
            self.minibatches,
            self.rng,
            self.model_state,
            split=self.sampler.needs_likelihood_gradient,
        )
        self.last_step = self._new_step(old)
        self._recorder: Any = self.engine.recorder and self.engine.recorder(self)

    def _new_step(self, old: Step | None = None) -> Step:
        model = self.target.model
        step = Step(
            n=self.target.n,
            gradient=self.evaluator.gradient,
            likelihood=self.evaluator.likelihood,
            potential=self.target.potential,
            value_and_gradient=self.evaluator.value_and_gradient,
            variance=self.evaluator.variance,
            metric=model.metric,
            project=model.project,
            prior_curvature=model.prior_curvature() / self.target.n,
            energy_error=tuning_of(model).energy_error,
            guessed=tuning_of(model).guessed,
            prior_rates=model.prior_rates(self.model_state),
            streams=self.rng.noise,
            same_rows=self.minibatches.full and self.minibatches.data.augment is None,
        )
        if self.sampler.needs_conditionals:
            step.conditionals = self.target.conditionals.with_random(self.rng)
        step.same_target = self.cursor.same_target
        if old is not None:
            step.eta, step.temperature, step.noise = old.eta, old.temperature, old.noise
            step.tuning, step.progress = old.tuning, old.progress
            step.burnt_in = old.burnt_in
        return step

    def resume(self) -> None:
        """Rebuild the working parts after a checkpoint or a warm start has set the state."""
        self._set_up()
        self.last_step.eta = self.cursor.last_eta
        if self.cursor.step:  # the last step of a finished run is reported, though none follows
            last = np.array([self.cursor.step - 1])
            temperature = self.plan.temperature.values(last, self.plan.n_steps)
            self._set_scale(self.cursor.last_eta, float(temperature[0]))
        if not self.plan.auto:
            self.sampler.forget_step(self._state)
