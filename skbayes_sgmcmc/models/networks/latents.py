"""Latent variables of a spike-and-slab prior: their state, and their updates after each step."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.special import logit
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._limits import LIMITS
from ..._metric import State
from ...priors.spike_slab import SpikeSlab, sigma_mode
from .._protocol import named_blocks
from .blocks import Blocks

#: smallest delta and smallest 1 - delta, such that their logarithms are finite in float32
LEAST_DELTA = 1e-35
#: width of the proposals of sigma relative to the target; above 1 so that the tails are reached
PROPOSAL_WIDTH = 1.5
#: number of steps from one draw of many latent variables to the next: in so few, coefficients move
#: little, and a draw takes as long as a third of a step (docs/project/performance.md)
SELDOM = 4
TINY = float(np.finfo(np.float64).tiny)
#: names of the latent variables in the state of a chain
LATENTS = ("rho", "slab", "sigma", "logit_delta")


class Latents:
    """The latent variables of the sparse blocks; their values are in the state tensors of chains.

    Parameters
    ----------
    prior : SpikeSlab
        The prior. Its ``spike_scale`` must be a number before the first gradient.
    blocks : Blocks
        The blocks with this prior.
    learn_sigma : bool
        Whether sigma is adapted.
    n_outputs : int, default=0
        Number of outputs of a regression, where sigma is the standard deviation of the noise. 0
        means that sigma is not the noise.

    Notes
    -----
    The state of a chain has the entries ``rho`` (the probabilities of the slabs), ``slab`` (the
    weights r of the slabs in the gradient), ``sigma`` and ``logit_delta`` (one for each block;
    delta itself could underflow).
    """

    #: N, which enters the conditional distribution of sigma if sigma is the noise
    n_data = 0.0
    #: whether functions compiled by numba update the latent variables and compute the gradient, on
    #: a CPU
    compiled = False

    def __init__(self, prior: SpikeSlab, blocks: Blocks, *, learn_sigma: bool, n_outputs: int = 0):
        self.prior = prior
        self.blocks = blocks
        self.learn_sigma = learn_sigma
        self.n_outputs = n_outputs
        self.gains = prior.gains()
        #: number of steps from one draw of the latent variables to the next
        self.every = SELDOM if blocks.n > LIMITS.many_latents else 1
        self._places = tuple(
            np.array([getattr(part, end) for part in blocks.slices]) for end in ("start", "stop")
        )
        # a - 1 and p + b - 1 of every block, which enter the mode of delta
        counts = np.array([(p, *prior.beta_prior(p)) for p in blocks.sizes]).T
        learned = slice(None) if prior.learn_inclusion else slice(0)
        self._delta_counts = counts[1][learned] - 1.0, (counts[0] + counts[2])[learned] - 1.0
        self._drawn_counts = counts[1][learned], (counts[0] + counts[2])[learned]
        self._gains: tuple[int, list[float]] = (-1, [])

    def changed(self, **changes: Any) -> Latents:
        """A copy with other attributes: for N data, with the prior for these, or compiled."""
        found = copy.copy(self)
        vars(found).update(changes)
        return found

    # state ----------------------------------------------------------------------------------------

    @property
    def recorded(self) -> dict[str, tuple[int, ...]]:
        """Names of the latent variables that are kept with every draw, and their shapes."""
        return {"rho": (self.blocks.n,), "sigma": (), "logit_delta": (len(self.blocks.sizes),)}

    def init_state(self, theta: Tensor) -> State:
        """The latent variables before the first step."""
        prior, chains, blocks = self.prior, len(theta), self.blocks
        rho = theta.new_full((chains, blocks.n), prior.inclusion)
        start = float(logit(prior.inclusion))
        return {
            "rho": rho,
            "slab": rho.clone(),
            "sigma": theta.new_full((chains, 1), prior.sigma),
            "logit_delta": theta.new_full((chains, len(blocks.sizes)), start),
        }

    def unpack(self, rho: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
        """Split rho (..., n) into one array per block, named "rho_" and the block's name."""
        return named_blocks(rho, {f"rho_{name}": shapes[name] for name in self.blocks.names})

    def kernels(self, theta: Tensor) -> Any:
        """Compiled functions for positions on a CPU, or None."""
        if not self.compiled or theta.device.type != "cpu":
            return None
        from ..._kernels import latents

        return latents

    def arrays(self, state: State) -> tuple[Array, Array, Array, Array]:
        """The latent variables as arrays for the kernels, which share the memory of the state."""
        rho, slab, sigma, logit_delta = (state[name].numpy() for name in LATENTS)
        return rho, slab, sigma, logit_delta

    # moves ----------------------------------------------------------------------------------------

    def gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        """Write scale * gradient of the prior's potential to the blocks of ``out``."""
        prior, kernels = self.prior, self.kernels(theta)
        if kernels is not None:
            slopes = scale / prior.spike_scale, scale / prior.slab_variance
            latents = self.arrays(state)[1:3]
            kernels.gradient(theta.numpy(), *latents, *self._places, *slopes, out.numpy())
            return
        slabs, sigma = state["slab"].split(self.blocks.sizes, 1), state["sigma"]
        for part, slab in zip(self.blocks.slices, slabs, strict=True):
            prior.gradient(theta[:, part], slab, sigma, out[:, part], scale)

    def move(
        self, theta: Tensor, state: State, aux: dict[str, Tensor], k: int, rng: ChainRandom
    ) -> None:
        """Update the latent variables after step k, in place."""
        if self.prior.adaptation is None:
            return
        if self.prior.exact:
            if k % self.every == 0:
                self._draw(theta, state, aux, rng)
        else:
            self._follow(theta, state, aux, self._gain(k))

    def probabilities(self, theta: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """z = |beta|/sigma, and the probabilities of the slabs given beta."""
        z = self.blocks.coefficients(theta).abs().div_(state["sigma"])
        odds = self.prior.log_odds(z)
        parts = odds.split(self.blocks.sizes, 1)
        for part, logit_delta in zip(parts, _columns(state), strict=True):
            part.add_(logit_delta)
        return z, torch.sigmoid_(odds)

    def _gain(self, k: int) -> float:
        block, offset = divmod(k, LIMITS.chunk_steps)
        kept = self._gains  # read once: chains in other threads replace it
        if kept[0] != block:
            steps = np.arange(block * LIMITS.chunk_steps, (block + 1) * LIMITS.chunk_steps)
            kept = self._gains = (block, self.gains.values(steps, len(steps)).tolist())
        return kept[1][offset]

    def _follow(self, theta: Tensor, state: State, aux: dict[str, Tensor], gain: float) -> None:
        """Move the latent variables towards their targets given the coefficients, by the gain."""
        kernels = self.kernels(theta)
        if kernels is not None:
            self._follow_compiled(kernels, theta, state, aux, gain)
            return
        prior, sigma, rho = self.prior, state["sigma"], state["rho"]
        z, target = self.probabilities(theta, state)
        rho.lerp_(target, gain)
        state["slab"].lerp_(rho, gain)
        if self.learn_sigma:
            absolute, squares = prior.penalties(z, state["slab"])
            mode = sigma_mode(*self._sigma_terms(absolute, squares, sigma, aux))
            sigma.lerp_(mode, gain)
        if prior.learn_inclusion:
            shares = rho.split(self.blocks.sizes, 1)
            parts = zip(shares, _columns(state), *self._delta_counts, strict=True)
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
        """The compiled version of :meth:`_follow`, equal up to rounding."""
        prior, latents = self.prior, self.arrays(state)
        n, count, least = self._sigma_counts(aux)
        kernels.follow(
            theta.numpy(), *latents, aux.get("mean_square_slope", state["sigma"]).numpy(),
            *self._places, gain, float(prior.spike_scale), float(prior.slab_variance),
            (n, count if self.learn_sigma else 0.0, least), *self._delta_counts, LEAST_DELTA,
        )  # fmt: skip

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
        """N if sigma is also the noise, else 0; R_a; nu lambda."""
        nu, lam = self.prior.sigma_prior
        count = self.blocks.n + nu
        if "mean_square_slope" in aux:
            n = self.n_data
            return n, count + n * self.n_outputs, nu * lam
        # as published, this is the mode in sigma^2; in regression it is the mode in log sigma
        return 0.0, count + (0.0 if self.prior.exact else 2.0), nu * lam

    # exact conditionals ---------------------------------------------------------------------------

    def _draw(self, theta: Tensor, state: State, aux: dict[str, Tensor], rng: ChainRandom) -> None:
        """Draw the latent variables from their conditionals, which gives the exact posterior."""
        blocks = len(self.blocks.sizes)
        u = rng.uniform(self.blocks.n, dtype=theta.dtype)
        few = rng.uniform(2 + 6 * blocks, dtype=torch.float64).clamp_(min=TINY)
        normal = torch.special.ndtri(few[:, : 1 + 2 * blocks])
        level = few[:, 1 + 2 * blocks :].log_()
        noise, normal = normal[:, :1], normal[:, 1:].unflatten(1, (2, blocks))
        accept, level = level[:, :1], level[:, 1:].unflatten(1, (2, 2, blocks))
        kernels = self.kernels(theta)
        if kernels is not None:
            self._draw_compiled(kernels, theta, state, aux, (u, noise, accept, normal, level))
            return
        z, rho = self.probabilities(theta, state)
        state["rho"].copy_(rho)
        slab = state["slab"].copy_(u < rho)
        if self.learn_sigma:
            sums, sigma = self.prior.penalties(z, slab), state["sigma"]
            _draw_sigma(sigma, *self._sigma_terms(*sums, sigma, aux), noise, accept)
        if self.prior.learn_inclusion:
            counts = []
            parts = slab.split(self.blocks.sizes, 1)
            for part, a, rest in zip(parts, *self._drawn_counts, strict=True):
                included = part.sum(1).double()
                counts.append(torch.stack([included + float(a), float(rest) - included], 1))
            both = log_gamma(torch.stack(counts, 2), normal, level[:, 0], level[:, 1])
            one, other = both.unbind(1)
            logit_delta = state["logit_delta"]
            logit_delta.copy_(torch.where(torch.isnan(one - other), logit_delta, one - other))

    def _draw_compiled(
        self,
        kernels: Any,
        theta: Tensor,
        state: State,
        aux: dict[str, Tensor],
        numbers: tuple[Tensor, ...],
    ) -> None:
        """The compiled version of :meth:`_draw`, equal up to rounding, with its random numbers."""
        prior = self.prior
        n, count, least = self._sigma_counts(aux)
        kernels.draw(
            theta.numpy(), *self.arrays(state),
            aux.get("mean_square_slope", state["sigma"]).numpy(), *self._places,
            tuple(part.numpy() for part in numbers), float(prior.spike_scale),
            float(prior.slab_variance), (n, count if self.learn_sigma else 0.0, least),
            PROPOSAL_WIDTH, self._drawn_counts,
        )  # fmt: skip


def _columns(state: State) -> list[Tensor]:
    """Views of logit_delta, of shape (chains, 1), one for each block."""
    return list(state["logit_delta"].split(1, 1))


def _draw_sigma(
    sigma: Tensor, absolute: Tensor, squares: Tensor, count: float, noise: Tensor, level: Tensor
) -> None:
    """Take a Metropolis-Hastings step of log sigma in place, with a normal proposal at its mode.

    The density of x = log sigma, exp(-count x - absolute e^-x - squares e^-2x / 2), is log-concave.
    ``noise`` and ``level`` are a normal number and the logarithm of a uniform number.
    """
    mode = sigma_mode(absolute, squares, count)
    curvature = absolute / mode + 2.0 * squares / mode**2
    sd = PROPOSAL_WIDTH / torch.sqrt(curvature)
    proposal = torch.log(mode) + sd * noise
    now = torch.log(sigma)

    def log_density(x: Tensor) -> Tensor:
        inverse = torch.exp(-x)
        return -count * x - absolute * inverse - 0.5 * squares * inverse**2

    back = ((now - torch.log(mode)) / sd) ** 2
    log_ratio = log_density(proposal) - log_density(now) + 0.5 * (noise**2 - back)
    sigma.copy_(torch.where(level < log_ratio, torch.exp(proposal), sigma))


def log_gamma(count: Tensor, normal: Tensor, accept: Tensor, power: Tensor) -> Tensor:
    """Logarithms of gamma variables; NaN where the one proposal of a number is refused.

    Source: Marsaglia & Tsang (2000), ACM TOMS 26(3), with the power of a uniform number for counts
    below 1. At least 95% are accepted. A refusal does not depend on the variable's value before,
    so a chain that keeps it stays exact, and a GPU need not be asked whether to try again.

    ``count`` are the shapes of the gamma distributions, ``normal`` standard normal numbers,
    ``accept`` and ``power`` logarithms of uniform numbers.
    """
    d = count + (1.0 - 1.0 / 3.0)
    v = (1.0 + normal / torch.sqrt(9.0 * d)) ** 3
    log_v = torch.log(v)  # NaN below zero, which compares as false
    accepted = accept < 0.5 * normal**2 + d * (1.0 - v + log_v)
    return torch.where(accepted, torch.log(d) + log_v + power / count, torch.nan)
