"""Networks, including linear ones, with a spike-and-slab prior on chosen blocks of weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch, Data
from ..._limits import LIMITS
from ..._metric import State
from ...priors.spike_slab import SpikeSlab
from ..designs.batches import CSRBatch
from ..designs.design import SparseDesign
from ..likelihoods.noise import ridge_noise
from ..tuning.auto import AUTO
from ..tuning.base import AutoValues, ManyModes, Request, Tuning
from .blocks import Blocks
from .latents import Latents
from .network import ReferenceClass
from .pruned_model import PrunedNetworkModel

#: least distance that pSGLD, whose steps are at most about eta long, can go in the burn-in: from a
#: random start to coefficients of standardised features
TRAVEL = 3.0
NO_WEIGHTS = np.empty((0, 0))


class SparseNetworkModel(PrunedNetworkModel):
    """A network with a :class:`SpikeSlab` prior on its sparse blocks; others have another prior.

    Other arguments are those of :class:`PrunedNetworkModel`.

    The state of a chain has the entries of :class:`Latents`, and ``zeros``. :meth:`bound` returns
    the model for given data, on which the width of the spike and the conditional distribution of
    sigma depend.
    """

    marginal = False

    kernels = ("spike_slab",)

    def __init__(
        self, *parts: Any, spike_slab: SpikeSlab, sparse_blocks: Sequence[str], **options: Any
    ):
        super().__init__(*parts, **options)
        self.smooth = False
        learn, noise = spike_slab.learn_sigma, self.likelihood.latent_noise
        self.latents = Latents(
            spike_slab,
            Blocks(sparse_blocks, self.places()),
            learn_sigma=noise if isinstance(learn, str) else learn,
            n_outputs=self.likelihood.n_outputs if noise else 0,
        )
        for part in self.latents.blocks.slices:
            self.rates[part] = 0.0  # the sparse blocks do not have the prior of the other blocks
        self.recorded = self.latents.recorded

    @property
    def spike_slab(self) -> SpikeSlab:
        """The prior of the sparse blocks."""
        return self.latents.prior

    def _with(self, **changes: Any) -> Self:
        """A copy with other attributes of the latent variables."""
        model = copy.copy(self)
        vars(model).pop("compiles_rows", None)
        model.latents = self.latents.changed(**changes)
        return model

    def bound(self, data: Data) -> Self:
        standard_error = None
        if self.network.linear:
            noise = 1.0
            if not self.likelihood.latent_noise:
                noise = self.likelihood.noise_of_targets(*_targets(data)) / self.spike_slab.sigma
            standard_error = noise / math.sqrt(data.held)
        return self._with(prior=self.spike_slab.for_data(standard_error), n_data=data.total)

    @property
    def tuning(self) -> Tuning:
        return SparseTuning(self)

    def kernels_pay(self, data: Data, n_steps: int) -> bool:
        # the overhead of a step takes as long as 20,000 latent variables
        return n_steps * (LIMITS.latent_numbers + self.latents.blocks.n) >= LIMITS.worth_latents

    def with_kernel(self, name: str) -> Self:
        return self._with(compiled=True)

    def init_state(self, theta: Tensor) -> State:
        return super().init_state(theta) | self.latents.init_state(theta)

    def after_step(
        self,
        theta: Tensor,
        state: State,
        aux: dict[str, Tensor],
        k: int,
        rng: ChainRandom,
        temperature: float,
    ) -> bool:
        """Prune, and update the latent variables after step k."""
        super().after_step(theta, state, aux, k, rng, temperature)
        self.latents.move(theta, state, aux, k, rng)
        return True

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Draws of the blocks, of "rho_" + name for sparse blocks, "sigma" and "logit_delta"."""
        parts = super().unpack(draws)
        rho = parts.pop("rho")
        return parts | self.latents.unpack(rho, self.shapes)

    @cached_property
    def compiles_rows(self) -> bool:
        """Whether compiled code computes the gradient of the rows, which needs one linear f."""
        network = self.network
        plain = self._passes is network  # neither in bfloat16 nor one chain after another
        known = self.likelihood.latent_noise or isinstance(network, ReferenceClass)
        if not (self.latents.compiled and network.linear and plain and known):
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
        kernel = self._rows_kernel(batch.by_chain("x")) if theta.device.type == "cpu" else None
        if kernel is None:
            return super().likelihood_gradient(theta, batch, state, rng, out=out, scale=scale)
        gradient, rows = kernel
        y, weight = batch.fields["y"].view(-1, batch.size), NO_WEIGHTS
        if isinstance(batch.weight, Tensor):
            weight = batch.weight.view(-1, batch.size).numpy()
        squares = gradient(
            theta.numpy(), rows, y.numpy(), weight, self.latents.arrays(state)[2],
            isinstance(self.network, ReferenceClass), scale, out.numpy(),
        )  # fmt: skip
        if not self.likelihood.latent_noise:
            return {}
        return {"mean_square_slope": torch.from_numpy(squares)}

    def _rows_kernel(self, x: Any) -> tuple[Any, Any] | None:
        """The compiled gradient for these rows, and the rows as it takes them; None: torch's."""
        if not self.compiles_rows:
            return None
        from ..._kernels.rows import gradient, sparse_gradient

        if isinstance(x, CSRBatch):
            return sparse_gradient, (*x.for_kernels(), x.shared)
        fits = isinstance(x, Tensor) and x[0].numel() <= LIMITS.latent_rows
        return (gradient, x.numpy()) if fits else None

    def prior_curvature(self) -> float:
        """Largest curvature of the smooth part, or one over the square of the spike's width.

        The spike has no curvature, but without this bound pSGLD's steps would be unbounded where
        the likelihood is flat, as for units that are off. It holds for sigma down to 0.1 of its
        initial value, and in linear models with at least as many rows as coefficients to 0.3. With
        a smaller sigma, steps widen the spikes, which matters if there are many coefficients.
        """
        least = 0.1
        if self.network.linear:
            share = min(1.0, math.sqrt(self.latents.n_data / self.latents.blocks.n))
            least = max(least, 0.3 * share)
        sigma = self.spike_slab.sigma * (least if self.latents.learn_sigma else 1.0)
        return max(float(self.rates.max()), (self.spike_slab.spike_scale * sigma) ** -2)

    def _own(self, theta: Tensor, state: State) -> Tensor:
        """The likelihood's own parameters; sigma if the noise is a latent variable."""
        if self.likelihood.latent_noise:
            return state["sigma"]
        return super()._own(theta, state)

    def _aux(self, delta: Tensor, weighted: Tensor) -> dict[str, Tensor]:
        if not self.likelihood.latent_noise:
            return {}
        # slopes are residuals divided by sigma^2
        return {"mean_square_slope": (delta * weighted).sum((1, 2), keepdim=True)[:, 0]}


class SparseTuning(ManyModes):
    """Tuning of networks with latent variables, which are learned during the run.

    Chains start at random, without a descent, because the latent variables must adapt to
    coefficients at the posterior's temperature.
    """

    model: SparseNetworkModel

    def __init__(self, model: SparseNetworkModel):
        # long enough for sigma to settle: a sampler that adapts only in burn-in, such as pSGLD,
        # would not follow a noise that continues to fall. All weights start in the slab, and with
        # hidden layers, after 10,000 steps some are left there that the data do not need
        hidden = 20_000 if model.latents.learn_sigma else 3000
        least = 10_000 if model.network.linear else hidden
        super().__init__(model, start="random", least_burn_in=least, sampler="psgld")

    def automatic(self, data: Data, request: Request) -> AutoValues:
        values, cell = super().automatic(data, request), request.cell
        if self.model.network.linear and cell.step is None and cell.rate is not None:
            sd = self._noise_sd(data)
            values.step_size = self._own_step(cell.rate, sd, data)
            if not request.more_rows:
                self._limit_noise(values, sd, data, request.settings.batch_size)
        return values

    def _limit_noise(self, values: AutoValues, sd: float, data: Data, given: Any) -> None:
        """Larger minibatches and smaller steps where rows are many, and a burn-in for these.

        A step of pSGLD, with a G of about sd sqrt(n), has the noise 2 eta G / N, and eta^2 from the
        minibatch of n rows. The second is at most 0.2 of the first, which widens the posterior by a
        tenth; 2.4 times widened it by 80% and tripled the inclusion of noise features. No burn-in
        beyond 100,000 steps is worth it.
        """
        n = given
        if isinstance(given, str):
            if self.fits_whole(data):
                return
            n = values.batch_size = int(
                np.clip(data.n_rows // 50, min(AUTO.batch_size, data.n_rows), 5000)
            )
        if n < data.n_rows:
            most = 2.0 * 0.2 * sd * math.sqrt(n) / data.total
            assert values.step_size is not None
            step = min(values.step_size, max(most, TRAVEL / 100_000))
            values.step_size = step
            values.least_burn_in = max(self.least_burn_in, math.ceil(TRAVEL / step))

    def _noise_sd(self, data: Data) -> float:
        """Approximate sd of the noise of one row, in units of f."""
        likelihood = self.model.likelihood
        if not likelihood.latent_noise:
            return likelihood.noise_of_targets(*_targets(data))
        every = -(-data.n_rows // LIMITS.sampled_rows)
        x = data.fields["x"][::every]
        if isinstance(x, SparseDesign):
            design = sp.hstack([x.csr, np.ones((x.shape[0], 1))], format="csr")
        else:
            rows = x if isinstance(x, Tensor) else x.whole().dense()
            design = np.insert(rows.double().cpu().numpy(), x.shape[1], 1.0, axis=1)
        return math.sqrt(ridge_noise(design, *_targets(data, every)))

    def _own_step(self, rate: float, sd: float, data: Data) -> float:
        """Eta of linear models: larger, as long as pSGLD's steps remain small in the spike."""
        # G is about sd sqrt(n), so a step moves by about sqrt(2 eta sd sqrt(n) / N); the width of
        # the spike is about v_0 sd. Half the square of their ratio is 0.125 (measured on seven
        # datasets)
        root_n = np.sqrt(min(data.total, AUTO.batch_size))
        spike = 0.125 * self.model.spike_slab.spike_scale**2 * sd * data.total / root_n
        return float(np.clip(spike, rate, 20.0 * rate))


def _targets(data: Data, every: int = 1) -> tuple[Array, Array]:
    """Targets and weights of every so many rows."""
    y = data.fields["y"][::every].cpu().numpy()
    if data.weight is None:
        return y, np.ones(len(y))
    return y, data.weight[::every].double().cpu().numpy()
