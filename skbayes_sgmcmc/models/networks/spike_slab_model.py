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
from scipy.special import betaincinv, logit
from torch import Tensor

from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch, Data
from ..._metric import State
from ...priors.spike_slab import SpikeSlab, sigma_mode
from ...schedules import Schedule
from .._tuning import ManyModes, Request, Tuning
from ..likelihoods import LOGIT_NOISE
from .model import NetworkModel, by_chain
from .network import ReferenceClass
from .pruning import Pruning

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
#: smallest delta, and 1 - delta: where their logarithms still are finite in float32
LEAST_DELTA = 1e-35
#: latents of a whole run, with so many more for each step, from which on compiling is worth it
WORTH_NUMBERS, WORTH_MORE = 2 * 10**8, 20_000
#: numbers in one chain's minibatch up to which one thread is as fast as torch's
ROW_NUMBERS = 2**19
NO_WEIGHTS = np.empty((0, 0))
#: gains computed at once
GAIN_BLOCK = 1024
#: how much wider than the target the proposals of sigma are, so that its tails are reached
PROPOSAL_WIDTH = 1.5


class PrunedNetworkModel(NetworkModel):
    """A network with magnitude pruning of its sparse blocks.

    Parameters
    ----------
    *parts, **options
        Those of :class:`NetworkModel`.
    sparse_blocks : sequence of str
        Names of the blocks.
    pruning : Pruning or None
        The pruning.
    """

    def __init__(
        self, *parts: Any, sparse_blocks: Sequence[str], pruning: Pruning | None, **options: Any
    ):
        super().__init__(*parts, **options)
        self.sparse_blocks = tuple(sparse_blocks)
        self.pruning = pruning
        places = self.places()
        self.slices = [places[name] for name in self.sparse_blocks]
        self.sizes = [part.stop - part.start for part in self.slices]
        self.n_sparse = sum(self.sizes)

    def prepared(self, n_steps: int) -> Self:
        if self.pruning is None:
            return self
        model = copy.copy(self)
        model.pruning = self.pruning.for_run(n_steps)
        return model

    def init_state(self, theta: Tensor) -> State:
        if self.pruning is None:
            return {}
        return {"zeros": theta.new_zeros(len(theta), self.n_sparse, dtype=torch.bool)}

    def after_step(
        self, theta: Tensor, state: State, aux: dict[str, Tensor], k: int, rng: ChainRandom
    ) -> None:
        """Prune after step k."""
        if self.pruning is None:
            return
        if self.pruning.chooses(k):
            before = int(state["zeros"].sum(1).max())
            state["zeros"].copy_(self.pruning.zeros(self._coefficients(theta), k, before))
        for part, zeros in zip(self.slices, state["zeros"].split(self.sizes, 1), strict=True):
            theta[:, part].masked_fill_(zeros, 0.0)

    def _coefficients(self, theta: Tensor) -> Tensor:
        """The sparse coefficients (chains, n_sparse); a view if they are one block."""
        parts = [theta[:, part] for part in self.slices]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


class SparseNetworkModel(PrunedNetworkModel):
    """A network whose sparse blocks have a :class:`SpikeSlab` prior and the others another one.

    Parameters
    ----------
    *parts, **options
        Those of :class:`PrunedNetworkModel`.
    spike_slab : SpikeSlab
        The prior of the sparse blocks.
    adaptation : {"sa", "gibbs"} or None
        "sa": the latents move by the gain towards what the coefficients say; "gibbs": they are
        drawn from their conditionals, so that the chain has the exact posterior; None: they stay.
    gain : Schedule
        The gains omega_k of "sa".
    compiled : bool, default=False
        Compute the latents and their gradient by functions that numba compiles, on a CPU.

    Notes
    -----
    State of a chain: ``rho`` (probabilities of the slabs), ``slab`` (their weights r in the
    gradient), ``sigma``, ``logit_delta`` (one for each block; delta itself underflows), ``zeros``.
    """

    kernels = ("spike_slab",)

    def __init__(
        self,
        *parts: Any,
        spike_slab: SpikeSlab,
        adaptation: str | None,
        gain: Schedule,
        compiled: bool = False,
        **options: Any,
    ):
        super().__init__(*parts, **options)
        self.spike_slab = spike_slab
        self.adaptation = adaptation
        self.gain = gain
        self.compiled = compiled
        self.smooth = False
        learn = spike_slab.learn_sigma
        self.learn_sigma = self.likelihood.latent_noise if isinstance(learn, str) else learn
        for part in self.slices:
            self.rates[part] = 0.0  # their prior is not that of the others
        self.recorded = {
            "rho": (self.n_sparse,),
            "sigma": (),
            "logit_delta": (len(self.sizes),),
        }
        self._starts = np.array([part.start for part in self.slices])
        self._stops = np.array([part.stop for part in self.slices])
        # a - 1 and p + b - 1 of every block: what the mode of delta adds to its counts
        priors = np.array([(p, *spike_slab.beta_prior(p)) for p in self.sizes]).T
        learned = slice(None) if spike_slab.learn_inclusion else slice(0)
        self._delta_counts = priors[1][learned] - 1.0, (priors[0] + priors[2])[learned] - 1.0
        self._gains: tuple[int, list[float]] = (-1, [])
        self._views: Any = None
        self._data: Data | None = None  # sigma's conditional counts the rows

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        data = super().make_data(x, y, weight, dtype, device)
        standard_error = None
        if self.network.linear:
            row = 1.0 if self.likelihood.latent_noise else LOGIT_NOISE / self.spike_slab.sigma
            standard_error = row / math.sqrt(data.total)
        self.spike_slab = self.spike_slab.for_data(standard_error)
        return data

    @property
    def tuning(self) -> Tuning:
        return SparseTuning(self)

    def bound(self, data: Data) -> Self:
        model = copy.copy(self)
        model._data = data
        return model

    def init_state(self, theta: Tensor) -> State:
        prior, chains = self.spike_slab, len(theta)
        rho = theta.new_full((chains, self.n_sparse), prior.inclusion)
        return super().init_state(theta) | {
            "rho": rho,
            "slab": rho.clone(),
            "sigma": theta.new_full((chains, 1), prior.sigma),
            "logit_delta": theta.new_full((chains, len(self.sizes)), float(logit(prior.inclusion))),
        }

    def kernels_pay(self, data: Data, n_steps: int) -> bool:
        return n_steps * (WORTH_MORE + self.n_sparse) >= WORTH_NUMBERS

    def with_kernel(self, name: str) -> Self:
        compiled = copy.copy(self)
        compiled.compiled = True
        return compiled

    def _kernels(self, theta: Tensor) -> Any:
        """Compiled functions for the state of these positions, or None."""
        return self._latents if theta.device.type == "cpu" else None

    @cached_property
    def _latents(self) -> Any:
        """Compiled functions, or None."""
        if not self.compiled:
            return None
        from ..._kernels import latents

        return latents

    @cached_property
    def _rows_gradient(self) -> Any:
        """The compiled gradient of the rows, where f is one linear function; or None."""
        network = self.network
        plain = self._passes is network  # not in bfloat16, nor chain by chain
        if self._latents is None or not (network.linear and plain):
            return None
        (features,) = network.fan_in.values()
        if self.n_network != features + 1:  # several outputs
            return None
        from ..._kernels.rows import gradient

        return gradient

    def __getstate__(self) -> dict[str, Any]:
        compiled = ("_latents", "_rows_gradient")
        return {k: v for k, v in vars(self).items() if k not in compiled} | {"_views": None}

    # densities ------------------------------------------------------------------------------------

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        super().prior_gradient(theta, state, out, scale)
        prior, kernels = self.spike_slab, self._kernels(theta)
        if kernels is not None:
            slopes = scale / prior.spike_scale, scale / prior.slab_variance
            latents, places = self._arrays(state)[1:3], (self._starts, self._stops)
            kernels.gradient(theta.numpy(), *latents, *places, *slopes, out.numpy())
            return
        slabs, sigma = state["slab"].split(self.sizes, 1), state["sigma"]
        for part, slab in zip(self.slices, slabs, strict=True):
            prior.gradient(theta[:, part], slab, sigma, out[:, part], scale)

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
        compiled = self._rows_gradient if self._kernels(theta) is not None else None
        x = by_chain(batch, "x")
        if compiled is None or x[0].numel() > ROW_NUMBERS:
            return super().likelihood_gradient(theta, batch, state, rng, out=out, scale=scale)
        y, weight = batch.fields["y"].view(-1, batch.size), NO_WEIGHTS
        if isinstance(batch.weight, Tensor):
            weight = batch.weight.view(-1, batch.size).numpy()
        squares = compiled(
            theta.numpy(), x.numpy(), y.numpy(), weight, self._arrays(state)[2],
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
        if self.network.linear and self._data is not None:
            share = min(1.0, math.sqrt(self._data.total / self.n_sparse))
            least = max(least, SMALL_SIGMA_OF_FEW * share)
        sigma = self.spike_slab.sigma * (least if self.learn_sigma else 1.0)
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

    # latents --------------------------------------------------------------------------------------

    def after_step(
        self, theta: Tensor, state: State, aux: dict[str, Tensor], k: int, rng: ChainRandom
    ) -> None:
        """Prune, and let the latents follow the coefficients after step k."""
        super().after_step(theta, state, aux, k, rng)
        if self.adaptation == "gibbs":
            z, rho = self._probabilities(theta, state)
            self._draw_latents(z, rho, state, aux, rng)
        elif self.adaptation == "sa":
            self._follow(theta, state, aux, self._gain(k))

    def _probabilities(self, theta: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """z = |beta|/sigma, and the slabs' probabilities given beta."""
        z = self._coefficients(theta).abs().div_(state["sigma"])
        odds = self.spike_slab.log_odds(z)
        for part, logit_delta in zip(odds.split(self.sizes, 1), _columns(state), strict=True):
            part.add_(logit_delta)
        return z, torch.sigmoid_(odds)

    def _follow(self, theta: Tensor, state: State, aux: dict[str, Tensor], gain: float) -> None:
        kernels = self._kernels(theta)
        if kernels is not None:
            self._follow_compiled(kernels, theta, state, aux, gain)
            return
        prior, sigma, rho = self.spike_slab, state["sigma"], state["rho"]
        z, target = self._probabilities(theta, state)
        rho.lerp_(target, gain)
        state["slab"].lerp_(rho, gain)
        if self.learn_sigma:
            absolute, squares = prior.penalties(z, state["slab"])
            mode = sigma_mode(*self._sigma_terms(absolute, squares, sigma, aux))
            sigma.lerp_(mode, gain)
        if prior.learn_inclusion:
            parts = zip(rho.split(self.sizes, 1), _columns(state), *self._delta_counts, strict=True)
            for part, logit_delta, included, excluded in parts:
                total = part.sum(1, keepdim=True)
                target = (total + included) / (included + excluded)
                rest = (excluded - total) / (included + excluded)
                delta = torch.sigmoid(logit_delta).lerp_(target, gain).clamp_(min=LEAST_DELTA)
                rest = torch.sigmoid(-logit_delta).lerp_(rest, gain).clamp_(min=LEAST_DELTA)
                torch.log(delta.div_(rest), out=logit_delta)

    def _follow_compiled(
        self, kernels: Any, theta: Tensor, state: State, aux: dict[str, Tensor], gain: float
    ) -> None:
        """As :meth:`_follow`, to rounding."""
        prior, latents = self.spike_slab, self._arrays(state)
        n, count, least = self._sigma_counts(aux)
        kernels.follow(
            theta.numpy(), *latents, aux.get("mean_square_slope", state["sigma"]).numpy(),
            self._starts, self._stops, gain, float(prior.spike_scale), float(prior.slab_variance),
            (n, count if self.learn_sigma else 0.0, least), *self._delta_counts, LEAST_DELTA,
        )  # fmt: skip

    def _arrays(self, state: State) -> tuple[Array, Array, Array, Array]:
        """The latents as the kernels take them; they share the state's memory."""
        kept = self._views
        if kept is None or kept[0] is not state["rho"] or kept[1] is not state["sigma"]:
            arrays = tuple(state[name].numpy() for name in ("rho", "slab", "sigma", "logit_delta"))
            kept = self._views = (state["rho"], state["sigma"], arrays)
        return kept[2]

    def _sigma_terms(
        self, absolute: Tensor, squares: Tensor, sigma: Tensor, aux: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, float]:
        """R_b, R_c, R_a of sigma's density sigma^-R_a exp(-R_b/sigma - R_c/(2 sigma^2)).

        The first two arguments are sums over coefficients in units of sigma.
        """
        n, count, least = self._sigma_counts(aux)
        if n > 0.0:
            squares = squares + (n * sigma**2) * aux["mean_square_slope"]
        return absolute * sigma, squares * sigma**2 + least, count

    def _sigma_counts(self, aux: dict[str, Tensor]) -> tuple[float, float, float]:
        """N where the noise is sigma's too, else 0; R_a; nu lambda."""
        nu, lam = self.spike_slab.sigma_prior
        count = self.n_sparse + nu
        if "mean_square_slope" in aux:
            assert self._data is not None
            n = self._data.total
            return n, count + n * self.likelihood.n_outputs, nu * lam
        # as printed: the mode in sigma^2, where in regression it is in log sigma
        return 0.0, count + (2.0 if self.adaptation == "sa" else 0.0), nu * lam

    def _gain(self, k: int) -> float:
        block, offset = divmod(k, GAIN_BLOCK)
        if self._gains[0] != block:
            steps = np.arange(block * GAIN_BLOCK, (block + 1) * GAIN_BLOCK)
            self._gains = (block, self.gain.values(steps, len(steps)).tolist())
        return self._gains[1][offset]

    # exact conditionals ---------------------------------------------------------------------------

    def _draw_latents(
        self, z: Tensor, rho: Tensor, state: State, aux: dict[str, Tensor], rng: ChainRandom
    ) -> None:
        prior = self.spike_slab
        state["rho"].copy_(rho)
        slab = state["slab"]
        slab.copy_(rng.uniform(self.n_sparse, dtype=rho.dtype) < rho)
        if self.learn_sigma:
            absolute, squares = prior.penalties(z, slab)
            sigma = state["sigma"]
            terms = self._sigma_terms(absolute, squares, sigma, aux)
            _draw_sigma(sigma, *terms, rng)
        if prior.learn_inclusion:
            u = rng.uniform(len(self.sizes), dtype=torch.float64).cpu().numpy()
            for number, part in enumerate(slab.split(self.sizes, 1)):
                a, b = prior.beta_prior(part.shape[1])
                included = part.sum(1).double().cpu().numpy()
                delta = betaincinv(a + included, b + part.shape[1] - included, u[:, number])
                delta = np.clip(delta, np.finfo(np.float64).tiny, 1.0 - 2.0**-53)
                state["logit_delta"][:, number] = torch.from_numpy(logit(delta)).to(slab)

    # draws ----------------------------------------------------------------------------------------

    def unpack(self, draws: Array) -> dict[str, Array]:
        """The blocks, "rho_" and its name for each sparse one, "sigma" and "logit_delta"."""
        parts = super().unpack(draws)
        rho, start = parts.pop("rho"), 0
        for name, size in zip(self.sparse_blocks, self.sizes, strict=True):
            shape = (*rho.shape[:-1], *self.shapes[name])
            parts[f"rho_{name}"] = rho[..., start : start + size].reshape(shape)
            start += size
        return parts


def _columns(state: State) -> list[Tensor]:
    """Views of logit_delta, (chains, 1) for each block."""
    return list(state["logit_delta"].split(1, 1))


def _draw_sigma(
    sigma: Tensor, absolute: Tensor, squares: Tensor, count: float, rng: ChainRandom
) -> None:
    """One Metropolis-Hastings step of log sigma, with a normal proposal about its mode, in place.

    The density of x = log sigma is exp(-count x - absolute e^-x - squares e^-2x / 2): log-concave.
    """
    mode = sigma_mode(absolute, squares, count)
    curvature = absolute / mode + 2.0 * squares / mode**2
    sd = PROPOSAL_WIDTH / torch.sqrt(curvature)
    noise = rng.normal(1, dtype=sigma.dtype)
    proposal = torch.log(mode) + sd * noise
    now = torch.log(sigma)

    def log_density(x: Tensor) -> Tensor:
        inverse = torch.exp(-x)
        return -count * x - absolute * inverse - 0.5 * squares * inverse**2

    back = ((now - torch.log(mode)) / sd) ** 2
    log_ratio = log_density(proposal) - log_density(now) + 0.5 * (noise**2 - back)
    accepted = torch.log(rng.uniform(1, dtype=sigma.dtype)) < log_ratio
    sigma.copy_(torch.where(accepted, torch.exp(proposal), sigma))


class SparseTuning(ManyModes):
    """Networks with latent variables that the run has to learn.

    They start at random, without a descent: the latents need to see what the posterior's
    temperature does to the coefficients.
    """

    model: SparseNetworkModel

    def __init__(self, model: SparseNetworkModel):
        # for sigma to settle: what adapts in burn-in only, as pSGLD does, must not be left with a
        # noise that falls further
        long = model.network.linear or model.learn_sigma
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
