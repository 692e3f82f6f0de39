r"""Independent component analysis: an unmixing matrix W of rows x, with sources y = W x.

.. math:: p(x|W) = |\det W| \prod_i p_{s_i}(w_i^\top x)

The densities p_s of the sources are those of ``_ica_densities.py``. In the metric M = I (x) W'W of
the natural gradient, a step is W <- (I + A) W. The distribution of A depends only on the sources,
and not on the mixing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import torch
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch, Data
from ..._metric import Metric, State
from ...priors.factorised import Prior
from .._protocol import Anchor
from ..tuning.metric import MetricModel
from .densities import Densities


class NaturalMetric(Metric):
    """The metric M = I (x) W'W of Amari's natural gradient.

    M g is G W'W for a gradient matrix G, and the divergence is (d + 1) W. The root is the map
    xi -> Xi W. It is cheaper than the symmetric root and equally valid, because the rows of Xi W
    have covariance W'W.
    """

    def __init__(self, w: Tensor):
        self.w = w
        self.divergence = (w.shape[-1] + 1.0) * w.flatten(1)

    def _matrices(self, flat: Tensor) -> Tensor:
        return flat.view(self.w.shape)

    def times(self, g: Tensor) -> Tensor:
        return (self._matrices(g) @ self.w.mT @ self.w).flatten(1)

    def root_times(self, xi: Tensor) -> Tensor:
        return (self._matrices(xi) @ self.w).flatten(1)

    def inverse_quadratic(self, d: Tensor) -> Tensor:
        # D (W'W)^-1 D' = (D W^-1)(D W^-1)'
        return (self._matrices(d) @ _inverse(self.w)).square().sum((1, 2))

    def log_det(self) -> Tensor:
        return 2.0 * self.w.shape[-1] * torch.linalg.slogdet(self.w).logabsdet


class ICAModel(MetricModel):
    """Independent component analysis, with a factorised prior on the unmixing matrix (d, d).

    Parameters
    ----------
    reference : array of shape (d, d)
        Unmixing matrix near the posterior: its sources are uncorrelated and have equal variances
        over the rows. The search for the MAP starts there, and draws are aligned to it.
    prior : Prior
        Prior of the entries.
    prior_scale : float
        Scale of the prior: lambda^(-1/2) for a normal prior of precision lambda.
    whitening : array of shape (d, n_features)
        Rows x of the model are ``whitening`` times the user's rows. Draws are converted to unmixing
        matrices of the user's rows.
    shapes : array of shape (d,) or None
        Shapes of the sources' densities. None: all sources have a logistic density.
    """

    def __init__(
        self,
        reference: Array,
        prior: Prior,
        prior_scale: float,
        whitening: Array,
        shapes: Array | None = None,
    ):
        self.d = len(reference)
        self.reference = reference
        self.prior = prior
        self.prior_scale = prior_scale
        self.whitening = whitening
        self.densities = Densities(np.ones(self.d) if shapes is None else shapes)
        self.smooth = prior.smooth
        self.shapes = {"unmixing": (self.d, self.d)}
        self.rate = float(prior.rates(np.asarray(prior_scale)))

    def make_data(self, x: Any, y: Any, weight: Array | None, dtype: Any, device: str) -> Data:
        """Rows (n, d), without targets."""
        weights = None if weight is None else torch.from_numpy(weight).to(device, dtype)
        rows = torch.from_numpy(np.ascontiguousarray(x)).to(device, dtype)
        return Data({"x": rows}, len(rows), weights)

    def init(self, rng: np.random.Generator) -> Array:
        """An unmixing matrix that gives the sources of the reference, rotated at random."""
        rotation, _ = np.linalg.qr(rng.standard_normal((self.d, self.d)))
        return (rotation @ self.reference).ravel()

    def _w(self, theta: Tensor) -> Tensor:
        return theta.view(-1, self.d, self.d)

    def _at(self, theta: Array) -> Array:
        return theta.reshape(self.d, self.d)

    def metric(self, theta: Tensor) -> NaturalMetric:
        """The metric of the natural gradient at positions (chains, d * d)."""
        return NaturalMetric(self._w(theta))

    # densities and gradients ----------------------------------------------------------------------

    def log_prior(self, theta: Tensor) -> Tensor:
        return self.prior.log_density(theta, theta.new_full((theta.shape[1],), self.rate))

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        w = self._w(theta)
        log_p = self.densities.log_density(batch.fields["x"] @ w.mT)
        return log_p + torch.linalg.slogdet(w).logabsdet[:, None]

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        self.prior.gradient(theta, theta.new_full((), self.rate * scale), out)

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
        w, x, weight = self._w(theta), batch.fields["x"], batch.weight
        psi = self._psi(x @ w.mT, batch)  # (chains, rows, d)
        total: Any = float(batch.size)
        if isinstance(weight, Tensor):
            psi *= weight[..., None]
            total = weight.sum(-1)[..., None, None]
        gradient = psi.mT @ x - total * _inverse(w).mT
        out.add_(gradient.flatten(1), alpha=scale)
        return {}

    def scores(self, theta: Tensor, batch: Batch) -> Tensor:
        w, x = self._w(theta)[0], batch.fields["x"]
        outer = self._psi(x @ w.mT, batch)[:, :, None] * x[:, None]
        return (_inverse(w).mT - outer).flatten(1)

    def anchor(self, center: Array, data: Data, root: Array | None = None) -> Anchor | None:
        """Constant control variates: psi(y) x' of every row at the centre."""
        if root is not None:
            return None
        x = data.fields["x"]
        psi = self.densities.psi(x @ torch.from_numpy(self._at(center).T).to(x))
        weighted = psi if data.weight is None else psi * data.weight[:, None]
        gradient = np.asarray((weighted.mT @ x).double().cpu()).ravel()
        return Anchor({"anchor_psi": psi}, gradient, None)

    def _psi(self, y: Tensor, batch: Batch) -> Tensor:
        """-d log p(y) / dy, minus its control variate if the batch has one."""
        psi = self.densities.psi(y)
        return psi - batch.fields["anchor_psi"] if "anchor_psi" in batch.fields else psi

    # centre and curvature -------------------------------------------------------------------------

    def find_map(self, data: Data, max_steps: int | None = None) -> Array | None:
        """The mode that a descent from the reference leads to, or a position on the way there.

        The posterior has one mode for every order and sign of the rows. With ``max_steps``, the
        descent ends after so many steps.
        """
        batch, random = data.all_rows(), ChainRandom([])
        like = data.fields["x"]

        # in relative coordinates, W = B reference, where the curvature is similar in all directions
        def potential(flat: Array) -> tuple[float, Array]:
            theta = torch.from_numpy((self._at(flat) @ self.reference).reshape(1, -1)).to(like)
            rows = (self.log_lik(theta, batch) * batch.weight).sum()
            gradient = torch.empty_like(theta)
            self.prior_gradient(theta, {}, gradient, 1.0 / data.total)
            scale = data.scale / data.total
            self.likelihood_gradient(theta, batch, {}, random, out=gradient, scale=scale)
            value = -(float(self.log_prior(theta)[0]) + data.scale * float(rows)) / data.total
            return value, (self._at(gradient[0].double().cpu().numpy()) @ self.reference.T).ravel()

        def curved(flat: Array, v: Array) -> Array:
            theta, moved = ((self._at(one) @ self.reference).ravel() for one in (flat, v))
            product = self.hessian_times(theta, moved, data) + self.prior_hessian(theta) * moved
            return (self._at(product / data.total) @ self.reference.T).ravel()

        found = scipy.optimize.minimize(
            potential,
            np.eye(self.d).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_steps or 1000, "maxfun": 2000, "ftol": 1e-12},
        )
        flat = found.x
        if self.smooth and max_steps is None:
            flat = _polished(flat, lambda at: potential(at)[1], curved)
        center = (self._at(flat) @ self.reference).ravel()
        return center if np.isfinite(center).all() else None

    def typical_draw(
        self, center: Array, data: Data, temperature: float, rng: np.random.Generator
    ) -> Array:
        """exp(A) W, with A drawn from its Gaussian approximation.

        Only A_ij and A_ji are correlated. For independent sources, their potential has the
        curvatures E[psi'(y_i) y_j^2] and E[psi'(y_j) y_i^2], and the mixed derivative 1. For two
        Gaussian sources, the curvature along rotations is therefore 0: the data do not determine
        the rotation. Variances are limited to 1 for this reason.
        """
        w, x = self._at(center), data.fields["x"]
        y = np.asarray((x @ torch.from_numpy(w.T).to(x)).double().cpu())
        h = self.densities.curvature(y).T @ y**2 / len(y)
        i, j = np.triu_indices(self.d, 1)
        blocks = np.ones((len(i), 2, 2))
        blocks[:, 0, 0], blocks[:, 1, 1] = h[i, j], h[j, i]
        curvature, axes = np.linalg.eigh(blocks)
        axes = axes * np.sign(axes[:, :1])  # otherwise rounding decides signs; none is 0
        sd = np.sqrt(np.minimum(temperature / (data.total * np.maximum(curvature, 1e-12)), 1.0))
        moves = np.einsum("kab,kb->ka", axes, sd * rng.standard_normal(sd.shape))
        a = np.zeros((self.d, self.d))
        a[i, j], a[j, i] = moves.T
        own = temperature / (data.total * (1.0 + np.diagonal(h)))
        np.fill_diagonal(a, np.sqrt(own) * rng.standard_normal(self.d))
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # at high temperatures: the chain says so
            return np.asarray((scipy.linalg.expm(a) @ w).ravel())

    def hessian_times(self, theta: Array, vector: Array, data: Data) -> Array:
        w, x = self._at(theta), data.fields["x"]
        v = self._at(vector)
        curvature = self.densities.curvature(x @ torch.from_numpy(w.T).to(x))
        slope = curvature * (x @ torch.from_numpy(v.T).to(x))
        if data.weight is not None:
            slope *= data.weight[:, None]
        inverse = np.linalg.inv(w)
        rows = data.scale * np.asarray((slope.mT @ x).double().cpu())
        return np.asarray((rows + data.total * (inverse @ v @ inverse).T).ravel())

    def prior_hessian(self, theta: Array) -> Array:
        return np.full(theta.shape, self.prior_curvature())

    def prior_curvature(self) -> float:
        return self.rate if self.prior.smooth else 0.0

    # draws ----------------------------------------------------------------------------------------

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Aligned unmixing matrices of the user's features, (..., d, n_features)."""
        w = draws.reshape(*draws.shape[:-1], self.d, self.d)
        # a fit ends with an error if its components are not finite
        with np.errstate(over="ignore", invalid="ignore"):
            whitening = self.whitening.astype(draws.dtype)
            return {"components": aligned(w, self.reference) @ whitening}


def _inverse(w: Tensor) -> Tensor:
    """Inverses, without an error for singular matrices; their chains diverge and are reported."""
    return torch.linalg.inv_ex(w).inverse


def aligned(w: Array, reference: Array) -> Array:
    """Unmixing matrices (..., d, d) with rows in the order and with the signs of a reference.

    The posterior is the same for any order and sign of the rows. Rows are matched to the rows of
    the reference such that the sum of the absolute correlations of their sources is largest. The
    sources of the reference must be uncorrelated and have equal variances.
    """
    flat = w.reshape(-1, *reference.shape)
    shares = np.linalg.solve(reference.T, flat.astype(float).mT).mT  # y = shares @ (reference's y)
    largest = np.abs(shares).max(axis=2, keepdims=True)
    shares = shares / np.where(largest == 0.0, 1.0, largest)  # squares of tiny rows would be zero
    length = np.linalg.norm(shares, axis=2, keepdims=True)
    correlation = shares / np.where(length == 0.0, 1.0, length)  # zeros are like no row
    strength = np.abs(correlation)
    order = strength.argmax(axis=1)  # for each row of the reference, the most similar row
    # if these rows are all different, they are the solution; else solve the assignment problem
    repeated = (np.sort(order, axis=1) != np.arange(len(reference))).any(axis=1)
    for k in np.flatnonzero(repeated):
        rows, columns = scipy.optimize.linear_sum_assignment(strength[k], maximize=True)
        order[k, columns] = rows
    at = np.arange(len(flat))[:, None]
    sign = np.where(correlation[at, order, np.arange(len(reference))] < 0.0, -1, 1)
    return (flat[at, order] * sign[:, :, None].astype(w.dtype)).reshape(w.shape)


def _polished(at: Array, gradient: Any, curved: Any) -> Array:
    """Refine a minimum up to rounding by Newton's method; return ``at`` itself if that fails.

    Along a flat direction, a descent stops far from the minimum, at a position that depends on
    rounding.
    """
    slope = gradient(at)
    for _ in range(8):
        operator = LinearOperator((len(at),) * 2, matvec=lambda v, at=at: curved(at, v.ravel()))
        step, _ = cg(operator, -slope, rtol=1e-6, maxiter=200)
        new = gradient(at + step)
        if not np.linalg.norm(new) < 0.5 * np.linalg.norm(slope):
            break
        at, slope = at + step, new
    return at
