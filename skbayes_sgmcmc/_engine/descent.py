"""Starts of chains with many modes: each chain descends on its own, with early stopping.

Adam (Kingma & Ba 2015) minimises the potential, prior included, of most rows, until the likelihood
of the other rows no longer improves. Every chain has its own other rows. The chains then sample the
posterior of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._data.minibatch import Minibatches
from .._limits import LIMITS, slices
from .denormals import flushed_denormals
from .settings import VALIDATION_FRACTION
from .target import Evaluator, Target


@dataclass(frozen=True, slots=True)
class DescentRules:
    """How starts are found."""

    #: fewer rows that differ are not divided, because copies of a row say nothing of other rows:
    #: the descent then takes this number of steps with all rows, or as many as the run's steps take
    fewest_rows: int = 20
    few_steps: int = 300
    #: rows of a step: an eighth of the rows between these bounds, and at most those of the run's
    #: steps
    smallest_batch: int = 16
    largest_batch: int = 128
    #: steps between two looks at the other rows at most; looks without improvement after which a
    #: chain stops; and steps after which every chain stops
    most_between: int = 200
    patience: int = 20
    most_steps: int = 20_000
    #: largest learning rate, and the most parameters for it; it falls like one
    #: over the root of their number
    rate: float = 0.01
    rate_parameters: int = 1000
    #: Adam's averages
    first: float = 0.9
    second: float = 0.999
    tiny: float = 1e-8


DESCENT = DescentRules()


@dataclass
class Adam:
    """Adam's averages for several chains, and its steps."""

    rate: float
    mean: Tensor
    square: Tensor
    steps: int = 0

    @classmethod
    def of(cls, phi: Tensor) -> Adam:
        rate = DESCENT.rate * min(1.0, (DESCENT.rate_parameters / phi.shape[1]) ** 0.5)
        return cls(rate, torch.zeros_like(phi), torch.zeros_like(phi))

    def step(self, phi: Tensor, g: Tensor) -> None:
        self.steps += 1
        self.mean.lerp_(g, 1.0 - DESCENT.first)
        self.square.mul_(DESCENT.second).addcmul_(g, g, value=1.0 - DESCENT.second)
        root = (self.square / (1.0 - DESCENT.second**self.steps)).sqrt_().add_(DESCENT.tiny)
        phi.addcdiv_(self.mean, root, value=-self.rate / (1.0 - DESCENT.first**self.steps))

    def keep(self, chains: Tensor) -> None:
        self.mean, self.square = self.mean[chains], self.square[chains]


def descend(
    target: Target,
    minibatches: Minibatches,
    theta: Array,
    seeds: Sequence[np.random.SeedSequence],
    *,
    held_share: float = VALIDATION_FRACTION,
    most_rows: int | None = None,
    block: Any = None,
) -> Tensor:
    """Positions phi (chains, n_parameters) at which descents from ``theta`` stop.

    ``minibatches`` are those of the run; their size bounds that of the descent's own.
    ``held_share`` is the share of the rows that stop a chain. ``most_rows`` bounds the rows whose
    gradients are computed for a chain; None: only early stopping does. ``block`` takes several
    steps at once, if the engine has one (``Engine.descent``). Latent variables keep their initial
    values.
    """
    phi = target.from_theta(torch.from_numpy(theta).to(target.like)).clone()
    rng = ChainRandom([seed.spawn(1)[0] for seed in seeds], str(target.like.device))
    with torch.no_grad(), flushed_denormals():
        return Descent(target, minibatches, phi, rng, held_share, most_rows, block).run()


class Descent:
    """The descents of a group of chains; see :func:`descend`."""

    def __init__(
        self,
        target: Target,
        minibatches: Minibatches,
        phi: Tensor,
        rng: ChainRandom,
        held_share: float = VALIDATION_FRACTION,
        most_rows: int | None = None,
        block: Any = None,
    ):
        self.target, self.phi, self.rng, self._block = target, phi, rng, block
        n = target.data.n_rows
        held = min(max(round(held_share * n), 1), n - 1, LIMITS.sampled_rows)
        few = self._few_differ()
        held = 0 if few else held
        orders = np.stack([of_chain.permutation(n) for of_chain in rng.rows])
        self.held, self.rows = orders[:, :held], orders[:, held:]
        size = n if few else int(np.clip(n // 8, DESCENT.smallest_batch, DESCENT.largest_batch))
        self.size = min(size, minibatches.size, self.rows.shape[1])
        self.most = DESCENT.most_steps
        if most_rows is not None:
            self.most = min(self.most, most_rows // self.size)
        self.minibatches = minibatches.uniform(self.size)
        self._agree = minibatches.follow_first
        self.state = target.model.active(target.model.init_state(target.to_theta(phi)))

    def _few_differ(self) -> bool:
        """Whether fewer than ``fewest_rows`` rows have a likelihood of their own at the start."""
        theta = self.target.to_theta(self.phi[:1])
        for most in (
            4 * DESCENT.fewest_rows,
            LIMITS.sampled_rows,
        ):  # the first say it nearly always
            density = self.target.model.log_lik(theta, self.target.some_rows(most))[0]
            if len(np.unique(density.cpu().numpy().round(4))) >= DESCENT.fewest_rows:
                return False
        return True

    def run(self) -> Tensor:
        best, lowest = self.phi.clone(), np.full(len(self.phi), np.inf)
        waited = np.zeros(len(self.phi), dtype=int)
        active = np.arange(len(self.phi))
        adam = Adam.of(self.phi)
        if not self.held.shape[1]:
            self._advance(adam, active, min(DESCENT.few_steps, self.most))
            return torch.where(torch.isfinite(self.phi).all(1, keepdim=True), self.phi, best)
        between = min(-(-self.rows.shape[1] // self.size), DESCENT.most_between)
        while len(active) and adam.steps < self.most:
            self._advance(adam, active, min(between, self.most - adam.steps))
            loss = self._loss(active)
            better = loss < lowest[active]
            lowest[active[better]] = loss[better]
            best[active[better]] = self.phi[better]
            waited[active] = np.where(better, 0, waited[active] + 1)
            going = waited[active] < DESCENT.patience
            if not going.all():
                self._keep(adam, torch.from_numpy(going).to(self.phi.device))
                active = active[going]
        return best

    def _keep(self, adam: Adam, chains: Tensor) -> None:
        """Go on with these chains only."""
        self.phi = self.phi[chains]
        self.state = {name: values[chains] for name, values in self.state.items()}
        adam.keep(chains)

    def _advance(self, adam: Adam, active: Array, count: int) -> None:
        """Take steps with minibatches of each active chain's own rows."""
        rng, rows = self.rng.select(active.tolist()), self.minibatches
        chosen = self._chosen(active, count, rng)
        if self._block is None:
            evaluator = Evaluator(self.target, rows, rng, self.state, split=False)
            for batch in rows.chunk(chosen, count, rng):
                evaluator.batch = batch
                adam.step(self.phi, evaluator.gradient(self.phi))
            return
        scale = self.target.likelihood_scale(rows)
        for part in slices(count, count if rows.full else rows.at_once(len(active))):
            batch = rows.together(None if rows.full else chosen[:, part])
            self._block(adam, self.phi, self.state, batch, scale, part.stop - part.start)

    def _chosen(self, active: Array, count: int, rng: ChainRandom) -> Any:
        """Each chain's own rows for some steps, each row once in every pass; None: all rows."""
        if self.minibatches.full:
            return None
        rows, length = self.rows[active], count * self.size
        n = rows.shape[1]
        passes = range(-(-length // n))
        orders = [np.concatenate([g.permutation(n) for _ in passes])[:length] for g in rng.rows]
        chosen = np.take_along_axis(rows, np.stack(orders), axis=1)
        return chosen.reshape(len(active), count, self.size)

    def _loss(self, active: Array) -> Array:
        """Mean -log p of each active chain's other rows; infinite where it is not finite."""
        model, theta = self.target.model, self.target.to_theta(self.phi)
        held, plain = self.held[active], replace(self.target.data, augment=None)
        rng, loss = self.rng.select(active.tolist()), np.zeros(len(active))
        for start in range(0, held.shape[1], LIMITS.gradient_rows):
            rows = held[:, start : start + LIMITS.gradient_rows]
            (batch,) = Minibatches(plain, rows.shape[1]).chunk(rows[:, None], 1, rng)
            density = model.log_lik(theta, batch) * batch.weight
            loss -= density.double().sum(1).cpu().numpy() / held.shape[1]
        finite = torch.isfinite(self.phi).all(1).cpu().numpy() & np.isfinite(loss)
        found = torch.from_numpy(np.where(finite, loss, np.inf)).to(self.phi.device)
        self._agree(self.phi, found)  # where one process stops, all stop
        return np.asarray(found.cpu())
