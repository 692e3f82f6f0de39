"""Networks, linear ones included, with a spike-and-slab prior on chosen blocks of weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch, Data
from ..._metric import State
from ...priors.spike_slab import SpikeSlab
from .._tuning import ManyModes, Request, Tuning
from ..likelihoods import LOGIT_NOISE
from .blocks import Blocks
from .latents import Latents
from .model import by_chain
from .network import ReferenceClass
from .pruned_model import PrunedNetworkModel

Array = NDArray[Any]

#: rows from which the step size of a linear model is found, and the minibatch that it assumes
STEP_ROWS, STEP_BATCH = 2000, 100
#: half the square of the share of the spike's width that a step may move by, and the largest step
#: size in units of other networks' (measured on seven data sets)
STEP_SHARE, LARGEST_RATE = 0.125, 20.0
#: to what share of its start sigma may fall for which the spike's curvature holds, and this in
#: linear models with at least as many rows as coefficients: below it steps widen the spikes, which
#: matters where there are many
SMALL_SIGMA, SMALL_SIGMA_OF_FEW = 0.1, 0.3
#: latents of a whole run, with so many more for each step, from which on compiling is worth it
WORTH_NUMBERS, WORTH_MORE = 2 * 10**8, 20_000
#: numbers in one chain's minibatch up to which one thread is as fast as torch's
ROW_NUMBERS = 2**19
NO_WEIGHTS = np.empty((0, 0))


class SparseNetworkModel(PrunedNetworkModel):
    """A network whose sparse blocks have a :class:`SpikeSlab` prior and the others another one.

    Parameters
    ----------
    *parts, **options
        Those of :class:`PrunedNetworkModel`.
    spike_slab : SpikeSlab
        The prior of the sparse blocks.
    sparse_blocks : sequence of str
        Names of these blocks.
    compiled : bool, default=False
        Compute the latents and their gradient by functions that numba compiles, on a CPU.

    Notes
    -----
    State of a chain: that of its :class:`Latents`, and ``zeros``. :meth:`bound` makes the model
    that knows the data, on which the spike's width and sigma's conditional depend.
    """

    kernels = ("spike_slab",)

    def __init__(
        self,
        *parts: Any,
        spike_slab: SpikeSlab,
        sparse_blocks: Sequence[str],
        compiled: bool = False,
        **options: Any,
    ):
        super().__init__(*parts, **options)
        self.smooth = False
        learn, noise = spike_slab.learn_sigma, self.likelihood.latent_noise
        self.latents = Latents(
            spike_slab,
            Blocks(sparse_blocks, self.places()),
            learn_sigma=noise if isinstance(learn, str) else learn,
            n_outputs=self.likelihood.n_outputs if noise else 0,
            compiled=compiled,
        )
        for part in self.latents.blocks.slices:
            self.rates[part] = 0.0  # their prior is not that of the others
        self.recorded = self.latents.recorded

    @property
    def spike_slab(self) -> SpikeSlab:
        """The prior of the sparse blocks."""
        return self.latents.prior

    def _with(self, latents: Latents) -> Self:
        model = copy.copy(self)
        vars(model).pop("compiles_rows", None)
        model.latents = latents
        return model

    def bound(self, data: Data) -> Self:
        standard_error = None
        if self.network.linear:
            row = 1.0 if self.likelihood.latent_noise else LOGIT_NOISE / self.spike_slab.sigma
            standard_error = row / math.sqrt(data.held)
        prior = self.spike_slab.for_data(standard_error)
        return self._with(self.latents.for_data(prior, data.total))

    @property
    def tuning(self) -> Tuning:
        return SparseTuning(self)

    def kernels_pay(self, data: Data, n_steps: int) -> bool:
        return n_steps * (WORTH_MORE + self.latents.blocks.n) >= WORTH_NUMBERS

    def with_kernel(self, name: str) -> Self:
        return self._with(self.latents.with_kernel())

    def init_state(self, theta: Tensor) -> State:
        return super().init_state(theta) | self.latents.init_state(theta)

    def after_step(
        self, theta: Tensor, state: State, aux: dict[str, Tensor], k: int, rng: ChainRandom
    ) -> None:
        """Prune, and let the latents follow the coefficients after step k."""
        super().after_step(theta, state, aux, k, rng)
        self.latents.move(theta, state, aux, k, rng)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """The blocks, "rho_" and its name for each sparse one, "sigma" and "logit_delta"."""
        parts = super().unpack(draws)
        rho = parts.pop("rho")
        return parts | self.latents.unpack(rho, self.shapes)

    @cached_property
    def compiles_rows(self) -> bool:
        """Whether the gradient of the rows is compiled: where f is one linear function."""
        network = self.network
        plain = self._passes is network  # not in bfloat16, nor chain by chain
        if not (self.latents.compiled and network.linear and plain):
            return False
        (features,) = network.fan_in.values()
        return bool(self.n_network == features + 1)  # one output

    # densities ------------------------------------------------------------------------------------

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        super().prior_gradient(theta, state, out, scale)
        self.latents.gradient(theta, state, out, scale)

    def likelihood_gradient(
        self,
        theta: Tensor,
        batch: Batch,
        state: State,
        rng: ChainRandom,
        *,
        out: Tensor,
        scale: float,
    ) -> dict[str, Tensor]:
        x = by_chain(batch, "x")
        if not self.compiles_rows or theta.device.type != "cpu" or x[0].numel() > ROW_NUMBERS:
            return super().likelihood_gradient(theta, batch, state, rng, out=out, scale=scale)
        from ..._kernels.rows import gradient

        y, weight = batch.fields["y"].view(-1, batch.size), NO_WEIGHTS
        if isinstance(batch.weight, Tensor):
            weight = batch.weight.view(-1, batch.size).numpy()
        squares = gradient(
            theta.numpy(), x.numpy(), y.numpy(), weight, self.latents.arrays(state)[2],
            isinstance(self.network, ReferenceClass), scale, out.numpy(),
        )  # fmt: skip
        if not self.likelihood.latent_noise:
            return {}
        return {"mean_square_slope": torch.from_numpy(squares)}

    def prior_curvature(self) -> float:
        """Of the smooth part, or what a spike counts for: one over the square of its width.

        Without it pSGLD's steps are unbounded where the likelihood is flat (units that are off).
        """
        least = SMALL_SIGMA
        if self.network.linear:
            share = min(1.0, math.sqrt(self.latents.n_data / self.latents.blocks.n))
            least = max(least, SMALL_SIGMA_OF_FEW * share)
        sigma = self.spike_slab.sigma * (least if self.latents.learn_sigma else 1.0)
        return max(float(self.rates.max()), (self.spike_slab.spike_scale * sigma) ** -2)

    def _own(self, theta: Tensor, state: State) -> Tensor:
        """The likelihood's own parameters: sigma, where the noise is a latent variable."""
        if self.likelihood.latent_noise:
            return state["sigma"]
        return super()._own(theta, state)

    def _aux(self, delta: Tensor, weighted: Tensor) -> dict[str, Tensor]:
        if not self.likelihood.latent_noise:
            return {}
        # slopes are residuals over sigma^2
        return {"mean_square_slope": (delta * weighted).sum((1, 2), keepdim=True)[:, 0]}


class SparseTuning(ManyModes):
    """Networks with latent variables that the run has to learn.

    They start at random, without a descent: the latents need to see what the posterior's
    temperature does to the coefficients.
    """

    model: SparseNetworkModel

    def __init__(self, model: SparseNetworkModel):
        # for sigma to settle: what adapts in burn-in only, as pSGLD does, must not be left with a
        # noise that falls further
        long = model.network.linear or model.latents.learn_sigma
        super().__init__(model, start="random", least_burn_in=10_000 if long else 3000)

    def step_size(self, request: Request, data: Data) -> float | None:
        """For linear models a larger one, as far as pSGLD's steps stay small in the spike."""
        model, rate = self.model, request.rate
        if not model.network.linear or request.step is not None or rate is None:
            return rate
        every = -(-data.n_rows // STEP_ROWS)
        design = model.network.design(data.fields["x"][::every])
        rows, y = design.double().cpu().numpy(), data.fields["y"][::every].cpu().numpy()
        weight = np.ones(len(rows))
        if data.weight is not None:
            weight = data.weight[::every].double().cpu().numpy()
        # G is about sd sqrt(n), so that a step moves by sqrt(2 eta sd sqrt(n) / N); the spike is
        # about v_0 sd wide
        sd = model.likelihood.noise_sd(rows, y, weight)
        root_n = np.sqrt(min(data.total, STEP_BATCH))
        spike = STEP_SHARE * model.spike_slab.spike_scale**2 * sd * data.total / root_n
        return float(np.clip(spike, rate, LARGEST_RATE * rate))
