r"""Exact draws from the posterior of a linear model with normal noise and a normal prior.

Given the noise :math:`\sigma_j` of each target and the prior's precision :math:`\tau`, coefficients
are normal and independent in the eigenbasis of the centred Gram matrix :math:`A = V \Lambda V'` of
features in their units. Their integral leaves a density of :math:`\log \sigma_j` and
:math:`\log \tau`, which a Metropolis step with independent proposals around its modes draws. The
coefficients then follow from their exact conditional distribution, so that successive draws are
nearly independent.

With a temperature T, the density of theta is raised to the power 1/T. A learned scale was
integrated out of it, and is brought back by

.. math:: r^{-k/T} \propto \int \tau^{k/T - 1} e^{-\tau r / T} d\tau,\quad r = b + |w|^2/2
"""

from __future__ import annotations

import copy
import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.optimize
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Data
from ..._exceptions import SamplingError, more
from ..._metric import Conditionals, State
from .._constants import Constant
from ..likelihoods.base import RESOLUTION, TYPICAL_NOISE, Gaussian

if TYPE_CHECKING:
    from .glm import GLMModel


#: degrees of freedom of the proposals: their tails must be heavier than those of the density
DF = 5
#: distance for second differences of log densities, in units of log sigma and log tau
DIFFERENCE = 1e-3
#: ratio of the largest to the smallest eigenvalue from which on the density may have several modes:
#: of 60 made data sets each, none had with 10 and with 100, and three with 300
COLLINEAR = 100.0
#: logarithms of tau, from that of a mode, where others are looked for; how far they are apart, and
#: by how much the logarithm of one's mass may be below the largest
AROUND = np.linspace(-15.0, 15.0, 31)
APART, LEAST = 0.5, 12.0


class NormalConditionals(Conditionals):
    """Exact conditional draws for all rows of a data set, with fields "x", "y" and maybe "offset".

    The model has normal noise and a normal prior. If its noise is not given, theta ends with
    log(sigma / ``TYPICAL_NOISE``), which have standard normal priors.
    """

    rng: ChainRandom

    def __init__(self, model: GLMModel, data: Data):
        prior, likelihood = model.coefficient_prior, model.likelihood
        assert isinstance(likelihood, Gaussian) and prior.normal is not None
        self.n_features, self.k, self.fit_intercept = model.n_features, model.k, model.fit_intercept
        self.noise = likelihood.noise
        #: k and b of the prior's learned precision tau, or None for tau = 1
        self.precision = prior.precision
        #: number of variances that are not given
        self.n_free = (0 if self.noise is not None else self.k) + (self.precision is not None)
        weight = np.ones(data.n_rows)
        if data.weight is not None:
            weight = data.weight.double().cpu().numpy()
        weight = weight * data.scale
        design, y = data.fields["x"], data.fields["y"].double().cpu().numpy()
        if "offset" in data.fields:
            y = y - data.fields["offset"].double().cpu().numpy()[:, None]
        n, p = float(weight.sum()), self.n_features
        mean_x, mean_y = np.zeros(p), np.zeros(self.k)
        with np.errstate(all="ignore"):  # what is not finite is refused
            gram = design.gram(weight)[:p, :p]
            moments = design.transposed_times(weight[:, None] * y)[:p]
            if self.fit_intercept:
                mean_x = design.transposed_times(weight[:, None])[:p, 0] / n
                mean_y = weight @ y / n
                gram = gram - n * np.outer(mean_x, mean_x)
                moments = moments - n * np.outer(mean_x, mean_y)
            scaled = gram * prior.normal[:, None] * prior.normal
        if not np.isfinite(scaled).all():
            raise _extreme()
        values, vectors = scipy.linalg.eigh(scaled)
        # signs, which mirror the draws, are chosen here; LAPACK's depend on the last bits
        vectors = vectors * np.where(np.cos(np.arange(p)) @ vectors < 0.0, -1.0, 1.0)
        self.n = n
        # coefficients of a position z in the eigenbasis
        basis = prior.normal[:, None] * vectors
        # the data say nothing of directions with an eigenvalue that is rounding
        known = values > 1e-13 * max(float(values[-1]), np.finfo(float).tiny)
        self.values = np.where(known, values, 0.0)
        moments = np.where(known[:, None], basis.T @ moments, 0.0)
        # squares of residuals come from the rows: differences of sums would round to noise
        safe = np.where(known, values, 1.0)[:, None]
        exact = basis @ (moments / safe)
        fitted = design.times(np.vstack([exact, np.zeros((design.shape[1] - p, self.k))]))
        away = y - mean_y - (fitted - mean_x @ exact)
        #: eigenvalues, squares that each direction of the eigenbasis explains (features, k), those
        #: that none does
        error = RESOLUTION if self.noise is None else 0.0
        squares = self.values[:, None], moments**2 / safe, weight @ (away**2 + error**2)
        self._squares = tuple(map(Constant, squares))
        #: what else draws need: moments, basis, means
        self._places = tuple(map(Constant, (moments, basis, mean_x, mean_y)))

    # densities of log sigma and log tau -----------------------------------------------------------

    def log_density(self, free: Tensor, temperature: float) -> Tensor:
        """Of points (points, n_free), up to a constant, with the coefficients integrated out."""
        own = self._own(free)
        log_sd, log_tau = self._logarithms(free)
        values, explained, residual = (each.like(free) for each in self._squares)
        variance = torch.exp(2.0 * log_sd)[:, None]
        shrunk = variance * torch.exp(log_tau)[:, None]  # (points, 1, k)
        precision = values + shrunk
        left = residual + (explained * (shrunk / precision)).sum(1)
        each = -0.5 * left / variance[:, 0] - self.n * log_sd
        if own is not None:
            each -= 0.5 * own * own
        total = each.sum(1)
        if self.precision is not None:
            k, b = self.precision
            total += k * log_tau[:, 0] - b * torch.exp(log_tau[:, 0])
        # integrals over the coefficients, and over the intercepts
        spread = (self.n_features + self.fit_intercept) * log_sd.sum(1)
        return total / temperature + spread - 0.5 * torch.log(precision).sum((1, 2))

    def _own(self, free: Tensor) -> Tensor | None:
        """The noise's own parameters (points, k), unless it is given."""
        return free[:, : self.k] if self.noise is None else None

    def _logarithms(self, free: Tensor) -> tuple[Tensor, Tensor]:
        """Log sigma (points or 1, k) and log tau (points or 1, 1)."""
        if self.noise is not None:
            log_sd = torch.from_numpy(np.log(self.noise)).to(free)[None]
        else:
            log_sd = free[:, : self.k] + math.log(TYPICAL_NOISE)
        return log_sd, free.new_zeros(1, 1) if self.precision is None else free[:, -1:]

    @cached_property
    def _proposal(self) -> tuple[Tensor, Tensor, Tensor]:
        """Modes (modes, n_free) of the density at T = 1, the one with the most mass first.

        With them come the logarithms of the density there, and roots of one over the curvature.
        """
        modes = [self._mode(np.zeros(self.n_free))]
        for start in self._elsewhere(modes[0]):
            found = self._mode(start)
            if all(abs(found[-1] - known[-1]) > APART for known in modes):
                modes.append(found)
        roots = np.array([self._root(mode) for mode in modes])
        heights = self.log_density(torch.from_numpy(np.array(modes)), 1.0).numpy()
        mass = heights + np.linalg.slogdet(roots)[1]
        order = [k for k in np.argsort(-mass) if mass[k] >= mass.max() - LEAST]
        kept = np.array(modes)[order], (heights - heights.max())[order], roots[order]
        at, height, root = map(torch.from_numpy, kept)
        return at, height, root

    def _mode(self, start: Array) -> Array:
        def objective(at: Array) -> float:
            return -float(self.log_density(torch.from_numpy(np.atleast_2d(at)), 1.0)[0])

        return np.asarray(scipy.optimize.minimize(objective, start, method="BFGS").x)

    def _root(self, mode: Array) -> Array:
        size = self.n_free
        steps = DIFFERENCE * np.eye(size)
        points = [mode + a + b for a in (*steps, *-steps) for b in (*steps, *-steps)]
        found = self.log_density(torch.from_numpy(np.array(points)), 1.0).numpy()
        signed = found.reshape(2, size, 2, size)
        bent = signed[0, :, 1] + signed[1, :, 0] - signed[0, :, 0] - signed[1, :, 1]
        if not np.isfinite(bent).all():
            raise _extreme()
        curvatures, axes = np.linalg.eigh(bent / (4.0 * DIFFERENCE**2))
        return np.asarray(axes / np.sqrt(np.maximum(curvatures, 0.01)))  # flat: 10 wide

    def _elsewhere(self, mode: Array) -> list[Array]:
        """Where other modes may be: maxima along log tau of the density with the best noise.

        Each collinear direction that a smaller tau frees can make a mode of its own.
        """
        known = self.values[self.values > 0.0]
        if self.precision is None or not len(known) or known.max() < COLLINEAR * known.min():
            return []
        points = np.tile(mode, (len(AROUND), 1))
        points[:, -1] += AROUND
        low, high = np.full(len(AROUND), -1.5), np.full(len(AROUND), 1.5)

        def at(noise: Array) -> tuple[Array, Array]:
            moved = points.copy()
            moved[:, :-1] += noise[:, None]
            return moved, self.log_density(torch.from_numpy(moved), 1.0).numpy()

        for _ in range(12):  # ternary search, to 0.01
            left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
            worse = at(left)[1] < at(right)[1]
            low, high = np.where(worse, left, low), np.where(worse, high, right)
        moved, height = at(0.5 * (low + high))
        top = np.flatnonzero((height[1:-1] > height[:-2]) & (height[1:-1] >= height[2:])) + 1
        high_enough = [k for k in top if height[k] > height[top].max() - LEAST]
        return [moved[k] for k in high_enough if abs(AROUND[k]) > 1.0]

    # draws ----------------------------------------------------------------------------------------

    def with_random(self, rng: ChainRandom) -> NormalConditionals:
        """A copy that draws with these random numbers."""
        bound = copy.copy(self)
        bound.rng = rng
        return bound

    def init_state(self, theta: Tensor) -> State:
        free = self._proposal[0][0].to(theta) if self.n_free else theta.new_empty(0)
        zeros = theta.new_zeros(len(theta))
        return {
            "free": free.repeat(len(theta), 1),
            "accepted": zeros,
            "proposed": zeros.clone(),
        }

    def draw(self, theta: Tensor, state: State, temperature: float, count: int) -> Tensor:
        size, p = self.n_free, theta.shape[1]
        xi = self.rng.normal(count, p + size + DF, dtype=theta.dtype)
        free = theta.new_empty(len(theta), count, 0)
        if size:
            uniform = self.rng.uniform(count, dtype=theta.dtype)
            free = self._metropolis(state, xi[..., p:], uniform, temperature)
        found = self._coefficients(free.flatten(0, 1), xi[..., :p].flatten(0, 1), temperature)
        found = found.view(len(theta), count, p)
        theta.copy_(found[:, -1])
        return found

    def _metropolis(self, state: State, xi: Tensor, uniform: Tensor, temperature: float) -> Tensor:
        """Logarithms (chains, steps, n_free) by steps that accept, or not, an independent proposal.

        Proposals come from t distributions around the modes. None depends on what was accepted
        before, so that the densities of all are computed at once.
        """
        old = state["free"][:, None]
        size, (modes, heights, roots) = old.shape[2], (each.to(old) for each in self._proposal)
        scales = roots * math.sqrt(temperature)
        # in units of the proposals' scale
        away = xi[..., :size] * xi[..., size:].square().mean(2, keepdim=True).rsqrt()
        each = [mode + away @ scale.mT for mode, scale in zip(modes, scales, strict=True)]
        points = torch.cat([old, self._of_one(each, heights + torch.linalg.slogdet(roots)[1])], 1)
        weight = self.log_density(points.flatten(0, 1), temperature).view(points.shape[:2])
        proposed = []
        for mode, scale, height in zip(modes, scales, heights, strict=True):
            distance = torch.linalg.solve(scale, (points - mode).mT).mT
            tails = torch.log1p(distance.square().sum(2) / DF)
            proposed.append(height - 0.5 * (DF + size) * tails)
        weight -= torch.stack(proposed).logsumexp(0)
        chains = zip(weight.tolist(), uniform.log().tolist(), strict=True)
        held = torch.tensor([_held(*chain) for chain in chains], device="cpu").to(old.device)
        new = points.take_along_dim(held[..., None], 1)
        proposals = torch.arange(1, held.shape[1] + 1, device="cpu").to(held)
        state["accepted"].add_((held == proposals).sum(1))
        state["proposed"].add_(held.shape[1])
        state["free"].copy_(new[:, -1])
        return new

    def _of_one(self, each: list[Tensor], log_mass: Tensor) -> Tensor:
        """Proposals (chains, steps, n_free), every one from one of the modes."""
        if len(each) == 1:
            return each[0]
        uniform = self.rng.uniform(each[0].shape[1], dtype=log_mass.dtype)
        ends = torch.softmax(log_mass, 0).cumsum(0)[:-1]
        chosen = torch.searchsorted(ends, uniform)[None, ..., None]
        return torch.stack(each).take_along_dim(chosen, 0)[0]

    def _coefficients(self, free: Tensor, xi: Tensor, temperature: float) -> Tensor:
        """Positions: coefficients and intercepts given the variances, and the noise's own."""
        own = self._own(free)
        p, n = self.n_features, self.n_features * self.k
        log_sd, log_tau = self._logarithms(free)
        values = self._squares[0].like(xi)
        moments, basis, mean_x, mean_y = (each.like(xi) for each in self._places)
        sd = torch.exp(log_sd)[:, None]
        precision = values + sd * sd * torch.exp(log_tau)[:, None]
        noise = xi[:, :n].view(-1, p, self.k) * (sd * math.sqrt(temperature))
        in_basis = moments / precision + noise / precision.sqrt()
        # as one product of matrices: one for each position takes many times longer
        coef = (in_basis.mT.reshape(-1, p) @ basis.mT).view(-1, self.k, p)
        parts = [coef.mT.flatten(1)]
        if self.fit_intercept:
            spread = sd[:, 0] * math.sqrt(temperature / self.n)
            parts.append(mean_y - coef @ mean_x + spread * xi[:, n : n + self.k])
        if own is not None:
            parts.append(own)
        return torch.cat(parts, 1)


def _held(weights: list[float], log_uniforms: list[float]) -> list[int]:
    """Which of the points an independence sampler holds after each step.

    Point 0 is held at the start, and point i is proposed in step i. ``weights`` are the logarithms
    of the points' importance weights.
    """
    at, found = 0, []
    for i, log_uniform in enumerate(log_uniforms, start=1):
        if log_uniform < weights[i] - weights[at]:
            at = i
        found.append(at)
    return found


def _extreme() -> SamplingError:
    return SamplingError(
        "The density of the noise's logarithm could not be approximated within the range of "
        "floating-point numbers: X, y, sample_weight, noise or prior_scale is extreme. "
        "Give moderate values, or another sampler." + more("no-gaussian-approximation")
    )
