r"""Priors of the coefficients of linear models, with scales that are given or learned.

Both classes have the same methods. The samplers use densities and gradients, with tensors; the
Gaussian approximation uses expectations over :math:`\theta \sim N(\mathrm{mean}, \mathrm{sd}^2)`,
with arrays. theta stands for the coefficients (features, k), the intercepts, which have a flat
prior, and the prior's own parameters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._draws.storage import decode, encode
from ...priors.factorised import Laplace, Normal, Prior
from ...priors.learned_scale import LearnedScale
from .._constants import Constant
from .likely_scales import MANY, likely_scale


@dataclass(frozen=True)
class PriorSlopes:
    """Slopes of -log p(theta), for compiled steps: normal priors of parts, or a Laplace prior.

    A part has a precision that is given or learned. The slope in theta_j is e rate_j theta_j, with
    e = k / (b + s sum_j rate_j theta_j^2 / 2), where the sum is that of the part; of a Laplace
    prior, it is rate_j sign(theta_j).
    """

    #: precisions, or their ratios if they are learned, (n,)
    rates: Array
    #: the part of every coordinate, (n,)
    of: Array
    #: k, b, and s, (parts, 3): s is 1 if the precision is learned; if given, they are 1, 1 and 0
    precision: Array
    laplace: bool = False

    @classmethod
    def joined(cls, each: Sequence[PriorSlopes | None]) -> PriorSlopes | None:
        """Normal ones, one after another; None if one of them is not known or not normal."""
        known = [one for one in each if one is not None and not one.laplace]
        if len(known) < len(each):
            return None
        before = np.cumsum([0, *(len(one.precision) for one in known)])
        of = [one.of + first for one, first in zip(known, before[:-1], strict=True)]
        rates, precision = [one.rates for one in known], [one.precision for one in known]
        return cls(np.concatenate(rates), np.concatenate(of), np.concatenate(precision))


class FixedScales:
    """A factorised prior of given scales, one or (n_features,), of coefficients (n_features, k).

    The intercepts that follow them have a flat prior.
    """

    #: names and shapes of the prior's own parameters, and of what it records with every draw
    shapes: dict[str, tuple[int, ...]] = {}  # noqa: RUF012
    recorded: dict[str, tuple[int, ...]] = {}  # noqa: RUF012
    #: as of a :class:`CurvedModel`
    tails = 1.0
    #: whether many coefficients share a learned scale whose likely value is to be found first
    pools = False
    #: blocks of draws, besides coefficients and intercepts, in units of the linear predictor
    effects: Collection[str] = ()

    def __init__(self, prior: Prior, scale: Any, n_features: int, k: int, n_intercepts: int):
        self.prior = prior
        self.smooth = prior.smooth
        #: whether the density of the coefficients depends on their length only
        self.isotropic = type(prior) is Normal and np.ptp(scale) == 0.0
        scale = np.repeat(np.broadcast_to(np.asarray(scale, dtype=float), (n_features,)), k)
        scale = np.concatenate([scale, np.full(n_intercepts, np.inf)])
        #: typical distances from zero
        self.typical = np.where(np.isinf(scale), 1.0, scale)
        self.rates = prior.rates(scale)
        self._rates = Constant(self.rates)
        #: prior sds of the features' coefficients, if they are normal
        self.normal = scale[: n_features * k : k] if type(prior) is Normal else None

    @property
    def slopes(self) -> PriorSlopes | None:
        """The slopes of a normal or a Laplace prior; None of another."""
        if type(self.prior) not in (Normal, Laplace):
            return None
        one, given = np.zeros(len(self.rates), dtype=int), np.array([[1.0, 1.0, 0.0]])
        return PriorSlopes(self.rates, one, given, type(self.prior) is Laplace)

    #: shape and rate of the prior of a precision that is learned
    precision: tuple[float, float] | None = None

    def draw_recorded(self, theta: Array, rng: ChainRandom, temperatures: Array) -> Array:
        """``draw_recorded`` of the model; given scales leave nothing to draw."""
        return np.empty((*theta.shape[:2], 0))

    def move_recorded(self, recorded: Array, before: Array, now: Array) -> Array:
        """``move_recorded`` of the model."""
        return recorded

    def unpack(self, parts: dict[str, Array]) -> dict[str, Array]:
        """Named draws, with the prior's own parameters in the units of users."""
        return parts

    def gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        self.prior.gradient(theta, self._rates.like(theta, scale), out)

    def log_density(self, theta: Tensor) -> Tensor:
        return self.prior.log_density(theta, self._rates.like(theta))

    def likely(self, mean: Array, curvature: Array, sd: Array) -> Array:
        """Typical distances from zero where scales are learned that many coefficients share.

        ``mean`` is the maximum of the posterior with the distances ``sd``, and ``curvature`` the
        diagonal of the likelihood's there.
        """
        return sd

    def expected_potential(self, mean: Array, sd: Array) -> float:
        return self.prior.expected_potential(mean, sd, self.rates)

    def expected_gradient(self, mean: Array, sd: Array) -> Array:
        return self.prior.expected_gradient(mean, sd, self.rates)

    def expected_curvature(self, mean: Array, sd: Array) -> tuple[Array, Array]:
        """A diagonal c and columns V: the expected Hessian is diag(c) - V V'."""
        curvature = np.asarray(self.prior.expected_curvature(mean, sd, self.rates))
        down = np.flatnonzero(curvature < 0.0)
        columns = np.zeros((len(mean), len(down)))
        columns[down, np.arange(len(down))] = np.sqrt(-curvature[down])
        return np.maximum(curvature, 0.0), columns


class LearnedScales:
    r"""A normal prior with learned scales: one of all features, of each, or of some together.

    Coefficient j has the prior sd :math:`s_g u_j`, where :math:`u_j` is the unit of feature j and g
    its group. The scales are integrated out: the coefficients of a group g with one scale have
    a multivariate t density,

    .. math::
        -\log p(w) = \sum_g k_g \log r_g - a \log b_g + c,\quad
        r_g = b_g + \tfrac12 \sum_{j \in g} (w_j / u_j)^2,\quad k_g = a + m_g / 2

    whose gradient is that of a normal prior with the precision :math:`k_g / r_g = E[s_g^{-2} | w]`.
    Samplers therefore see no latent variables. The scales of every kept draw are drawn from their
    exact conditional distribution given the coefficients.

    Intercepts c that are flat in units of the scale add their number to m_g. The likelihood of
    classes that can be separated does not end along the rays :math:`e^u w, e^u c`, where the prior
    has :math:`e^{-2au}`. Each flat intercept would add :math:`e^u`, so that the posterior of eleven
    classes would be improper with a = 5.

    b is :math:`a s_0^2`. If the hyperprior's ``inputs`` is true, which means one scale for each
    feature unless ``parts`` says otherwise, the groups have a common b; its logarithm is a
    parameter: ``log_shared`` :math:`= \log(b / (a s_0^2))`.

    Parameters
    ----------
    hyper : LearnedScale
        The hyperprior. Its ``shape`` and ``scale`` are numbers, or arrays with one for each group
        of ``parts``; its ``inputs`` is a bool.
    units : array of shape (n_features,)
        Unit of every feature's coefficients.
    k, n_intercepts : int
        Numbers of coefficients of a feature, and of intercepts.
    parts : array of int of shape (n_features,) or None, default=None
        Group of every feature, counted from 0. None: one for all, or for each with ``inputs``.
    n_relative : int, default=0
        Number of intercepts that are flat in units of the scale, if there is one for all features.
    """

    smooth = True
    effects: Collection[str] = ()
    #: with 1, R-hat of the default fit of wine (classes can be separated) is 1.03, and the
    #: smallest effective sample size on iris is 500; with 2 they are 1.016 and 1,100
    tails = 2.0

    def __init__(
        self,
        hyper: LearnedScale,
        units: Array,
        k: int,
        n_intercepts: int,
        parts: Array | None = None,
        n_relative: int = 0,
    ):
        n_features, own = len(units), bool(hyper.inputs)
        #: whether all groups are of one size, and follow each other
        self.regular = parts is None
        #: whether rows have at most one coefficient of a group, as of a column of categories
        self.apart = parts is not None
        if parts is None:
            parts = np.arange(n_features) if own else np.zeros(n_features, dtype=int)
        #: group of every coefficient
        self.group = np.repeat(parts, k)
        self._group = Constant(self.group)
        self.hyper, self.own, self.k = hyper, own, k
        self.typical_scale = hyper.typical(1.0 / math.sqrt(n_features))
        shape: Any = hyper.shape
        self.a: Any = float(shape) if np.ndim(shape) == 0 else shape
        self.n_coefficients = n_features * k
        self.counts = np.bincount(self.group)
        n_groups = len(self.counts)
        self.n_relative = n_relative if n_groups == 1 and not own else 0
        self.counts[0] += self.n_relative
        self.isotropic = not own and n_groups == 1 and bool(np.ptp(units) == 0.0)
        self.units = np.repeat(np.asarray(units, dtype=float), k)
        #: prior sds of the features' coefficients for one common scale of 1
        self.normal = np.asarray(units, dtype=float) if not own and n_groups == 1 else None
        self.inverse_squares = self.units**-2.0
        self._inverse_squares = Constant(self.inverse_squares)
        self.k_g = self.a + 0.5 * self.counts
        self._counts, self._k_g = Constant(self.counts), Constant(self.k_g)
        #: shape of the precision's conditional distribution, and rate of its prior
        self.rate = hyper.rate(self.typical_scale)
        self._rate = Constant(np.atleast_2d(self.rate))
        self.precision = (float(self.k_g[0]), self.rate) if n_groups == 1 else None
        self.shapes: dict[str, tuple[int, ...]] = {"log_shared": ()} if own else {}
        self.recorded: dict[str, tuple[int, ...]] = {
            "scale": (n_groups,) if own or n_groups > 1 else ()
        }
        learned = np.column_stack(np.broadcast_arrays(self.k_g, self.rate, 1.0))
        self.slopes = (
            None
            if own
            else PriorSlopes(
                np.concatenate([self.inverse_squares, np.zeros(n_intercepts)]),
                np.concatenate([self.group, np.zeros(n_intercepts, dtype=int)]),
                learned,
            )
        )
        #: typical distances from zero
        self.typical = np.concatenate(
            [
                np.broadcast_to(self.typical_scale, n_groups)[self.group] * self.units,
                np.ones(n_intercepts),
                np.full(1, self.a**-0.5) if own else np.empty(0),
            ]
        )

    # draws of the scales --------------------------------------------------------------------------

    def draw_recorded(self, theta: Array, rng: ChainRandom, temperatures: Array) -> Array:
        """Scales (chains, draws, groups) given the coefficients."""
        shape = (*theta.shape[:2], len(self.counts))
        u = rng.uniform(*shape[1:], dtype=torch.float64).cpu().numpy()
        at = torch.from_numpy(theta.astype(np.float64)).flatten(0, 1)
        squares, b = self._squares(at).numpy(), self._b(at).numpy()
        levels = np.tile(temperatures, len(theta))[:, None]
        scales = self.hyper.draw_scales(squares, self.counts, b, levels, u.reshape(len(levels), -1))
        return scales.reshape(shape)

    def move_recorded(self, scales: Array, before: Array, now: Array) -> Array:
        """Scales given the coefficients ``now``, from those that were drawn given ``before``.

        Given coefficients, s^2 / r has the same distribution whatever they are.
        """

        def r(theta: Array) -> Array:
            at = torch.from_numpy(theta.astype(np.float64)).flatten(0, 1)
            return (self._b(at) + 0.5 * self._squares(at)).numpy().reshape(*theta.shape[:2], -1)

        return np.asarray(scales * np.sqrt(r(now) / r(before)))

    def unpack(self, parts: dict[str, Array]) -> dict[str, Array]:
        if self.own:
            log_shared = decode(parts.pop("log_shared"))
            shared = self.typical_scale * np.exp(0.5 * log_shared)
            parts["shared_scale"] = encode(shared, parts["scale"].dtype)
        return parts

    # densities ------------------------------------------------------------------------------------

    def _b(self, theta: Tensor) -> Tensor:
        """b, of shape (chains, 1), (1, groups) or (1, 1)."""
        if self.own:
            return self.rate * torch.exp(theta[:, -1:])
        return self._rate.like(theta)

    def _squares(self, theta: Tensor) -> Tensor:
        """Sums (chains, groups) of (w_j / u_j)^2."""
        w = theta[:, : self.n_coefficients]
        relative = w * w * self._inverse_squares.like(theta)
        if self.regular:
            return relative.view(len(theta), len(self.counts), -1).sum(2)
        sums = relative.new_zeros(len(theta), len(self.counts))
        return sums.index_add_(1, self._group.index(theta), relative)

    def gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        n, b = self.n_coefficients, self._b(theta)
        r = b + 0.5 * self._squares(theta)
        precision = self._k_g.like(theta, scale) / r
        each = precision
        if precision.shape[1] not in (1, n):
            each = precision.index_select(1, self._group.index(theta))
        torch.mul(theta[:, :n], self._inverse_squares.like(theta), out=out[:, :n])
        out[:, :n].mul_(each)
        out[:, n:].zero_()
        if self.own:
            pull = (precision * b - scale * self.a).sum(1)
            out[:, -1] = pull + scale * self.a * torch.expm1(theta[:, -1])

    def log_density(self, theta: Tensor) -> Tensor:
        counts = self._counts.like(theta)
        found = self.hyper.log_density(self._squares(theta), counts, self._b(theta)).sum(1)
        found = found - float(np.log(self.units).sum())
        if self.n_relative:  # the density of an intercept is s_0 / s
            found = found + self.n_relative * math.log(
                math.sqrt(2.0 * math.pi) * self.typical_scale
            )
        if self.own:  # b / s_0^2 ~ Gamma(a, 1), as a density of its logarithm
            x = theta[:, -1] + math.log(self.a)
            found = found + self.a * x - torch.exp(x) - math.lgamma(self.a)
        return found

    # expectations under theta ~ N(mean, sd^2), given b at its mean --------------------------------

    def _expected(self, mean: Array, sd: Array) -> tuple[Any, Array]:
        """b, and r = b + squares / 2 (groups,)."""
        n = self.n_coefficients
        relative = (mean[:n] ** 2 + sd[:n] ** 2) * self.inverse_squares
        b = self.rate * (np.exp(mean[-1]) if self.own else 1.0)
        if self.regular:
            return b, b + 0.5 * relative.reshape(len(self.counts), -1).sum(1)
        return b, b + 0.5 * np.bincount(self.group, relative)

    @property
    def pools(self) -> bool:
        return self.apart and bool(self.counts.max() >= MANY)

    def likely(self, mean: Array, curvature: Array, sd: Array) -> Array:
        if not self.pools:
            return sd
        n, sd = self.n_coefficients, sd.copy()
        a, b = (np.broadcast_to(each, len(self.counts)) for each in (self.a, self.rate))
        # in units of the coefficients
        h, w = curvature[:n] / self.inverse_squares, mean[:n] / self.units
        score = (h + (self.k_g / self._expected(mean, sd)[1])[self.group]) * w
        for g in np.flatnonzero(self.counts >= MANY):
            own = np.flatnonzero(self.group == g)
            scale = likely_scale(score[own], h[own], float(a[g]), float(b[g]))
            sd[own] = scale / np.sqrt(1.0 + h[own] * scale**2) * self.units[own]
        return sd

    def known_share(self, mean: Array, variances: Array) -> float:
        """The share of its coefficients that the data determine, of the scale with the least.

        Of a Gaussian approximation, it is one less the mean of the ratios of the coefficients'
        variances to those of the prior.
        """
        left = self._rates(self._expected(mean, np.sqrt(variances))[1])
        left *= variances[: self.n_coefficients]
        return float(1.0 - np.max(np.bincount(self.group, left) / np.bincount(self.group)))

    def expected_potential(self, mean: Array, sd: Array) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # a search then takes a shorter step
            b, r = self._expected(mean, sd)
            found = (self.k_g * np.log(r) - self.a * np.log(b)).sum()
            return float(found + (self.a * (np.exp(mean[-1]) - mean[-1]) if self.own else 0.0))

    def _rates(self, r: Array) -> Array:
        """Expected precisions of the coefficients, (n_coefficients,)."""
        return np.asarray((self.k_g / r)[self.group] * self.inverse_squares)

    def expected_gradient(self, mean: Array, sd: Array) -> Array:
        n, out = self.n_coefficients, np.zeros_like(mean)
        with np.errstate(over="ignore", invalid="ignore"):
            b, r = self._expected(mean, sd)
            out[:n] = self._rates(r) * mean[:n]
            if self.own:
                out[-1] = (self.k_g * b / r - self.a).sum() + self.a * np.expm1(mean[-1])
        return out

    def expected_curvature(self, mean: Array, sd: Array) -> tuple[Array, Array]:
        n = self.n_coefficients
        c, V = np.zeros_like(mean), np.zeros((len(mean), len(self.counts)))
        with np.errstate(over="ignore", invalid="ignore"):
            b, r = self._expected(mean, sd)
            c[:n] = self._rates(r)
            pull = (np.sqrt(self.k_g) / r)[self.group] * self.inverse_squares * mean[:n]
            V[np.arange(n), self.group] = pull
            if self.own:
                c[-1] = (self.k_g * b / r).sum() + self.a * np.exp(mean[-1])
                V[-1] = np.sqrt(self.k_g) * b / r
        return c, V


CoefficientPrior = FixedScales | LearnedScales


@dataclass(frozen=True)
class ScalesOfFeatures:
    """The hyperprior of learned scales, and of every feature the unit and the scale that it has.

    They are as in :class:`LearnedScales`.
    """

    hyper: LearnedScale
    units: Array
    parts: Array | None = None


def coefficient_prior(
    prior: Prior, scale: Any, n_features: int, k: int, n_intercepts: int, n_relative: int
) -> CoefficientPrior:
    """The prior of coefficients (features, k); ``scale`` is as in :class:`LinearModel`."""
    if isinstance(scale, LearnedScales):
        return scale
    if isinstance(scale, LearnedScale):
        scale = ScalesOfFeatures(scale, np.ones(n_features))
    if isinstance(scale, ScalesOfFeatures):
        return LearnedScales(scale.hyper, scale.units, k, n_intercepts, scale.parts, n_relative)
    return FixedScales(prior, scale, n_features, k, n_intercepts)


class JoinedPriors:
    """Priors of parts of theta, of which each but the last ends at one of ``ends``.

    It has the methods of the other priors, and each applies the method of that name to the parts.
    """

    def __init__(self, priors: Sequence[Any], ends: Sequence[int]):
        places = zip([0, *ends], [*ends, None], strict=True)
        self.parts = [(slice(*place), prior) for place, prior in zip(places, priors, strict=True)]
        self.typical = np.concatenate([prior.typical for prior in priors])
        self.pools = any(prior.pools for prior in priors)
        self.slopes = PriorSlopes.joined([prior.slopes for prior in priors])

    def _split(self, *arrays: Any) -> Iterator[tuple[Any, ...]]:
        """Every part's prior, and its coordinates of arrays with theta on the last axis."""
        for part, prior in self.parts:
            yield (prior, *(array[..., part] for array in arrays))

    def gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        for prior, own, gradient in self._split(theta, out):
            prior.gradient(own, gradient, scale)

    def log_density(self, theta: Tensor) -> Tensor:
        return torch.stack([prior.log_density(own) for prior, own in self._split(theta)]).sum(0)

    def likely(self, mean: Array, curvature: Array, sd: Array) -> Array:
        each = self._split(mean, curvature, sd)
        return np.concatenate([prior.likely(m, c, s) for prior, m, c, s in each])

    def expected_potential(self, mean: Array, sd: Array) -> float:
        return sum(prior.expected_potential(m, s) for prior, m, s in self._split(mean, sd))

    def expected_gradient(self, mean: Array, sd: Array) -> Array:
        return np.concatenate([p.expected_gradient(m, s) for p, m, s in self._split(mean, sd)])

    def expected_curvature(self, mean: Array, sd: Array) -> tuple[Array, Array]:
        diagonal, columns = [], []
        for part, prior in self.parts:
            c, V = prior.expected_curvature(mean[part], sd[part])
            whole = np.zeros((len(mean), V.shape[1]))
            whole[part] = V
            diagonal.append(c)
            columns.append(whole)
        return np.concatenate(diagonal), np.hstack(columns)
