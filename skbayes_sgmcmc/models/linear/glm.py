r"""Generalised linear models: a likelihood of each row given its linear predictors.

.. math:: p(y | x) = \prod_j p(y_j | f_j, \phi_j), \quad f_j = x^\top w_j + b_j + \text{offset}

Each of k targets has its own predictor. The likelihood's own parameters :math:`\phi_j`, such as the
noise, are the same for all rows. All that is needed of it are its derivatives in f and
:math:`\phi`: their Gaussian expectations come from quadrature, and with Stein's identity also those
of the second derivatives.

Arrays "at" of shape (rows, k, q), q = 1 + m, have the predictor and then the m own parameters of
each target. Own parameters lie in theta as (m, k).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Batch, Data
from ..._draws.storage import decode, encode
from ..._limits import LIMITS, slices
from ...priors.factorised import Prior
from .._protocol import Anchor, LinearRows
from .._quadrature import Rule, gauss, product, third_degree
from ..designs.blocks import anchored_over_blocks, joined_over_blocks, summed_over_blocks
from ..likelihoods.base import Gaussian, Likelihood
from .conjugate import NormalConditionals
from .group_priors import GroupTerm
from .merged_rows import merged_rows
from .model import LinearModel

#: nodes of the quadrature over the linear predictor
NODES = 11
#: sds at which derivatives are taken instead of at a point, and the smallest sds of predictors, the
#: latter in units of the likelihood's width
AT_A_POINT = 1e-3


class GLMModel(LinearModel):
    """A likelihood of rows with one linear predictor for each target.

    Parameters
    ----------
    n_features : int
        Number of features.
    likelihood : Likelihood
        Likelihood whose outputs are the linear predictors of its targets, and whose own parameters,
        if any, are one or more for each target.
    prior, prior_scale
        As in :class:`LinearModel`.
    fit_intercept : bool
        Whether to add intercepts with a flat prior.
    terms : sequence of GroupTerm, default=()
        Effects of groups, for one target. Their columns come before those of the features.
    center, scale : float
        Draws are those of ``center + scale * f`` as a function of the features.
    """

    def __init__(
        self,
        n_features: int,
        likelihood: Likelihood,
        prior: Prior,
        prior_scale: Any,
        fit_intercept: bool,
        center: float = 0.0,
        scale: float = 1.0,
        terms: Sequence[GroupTerm] = (),
    ):
        own, k = likelihood.shapes, likelihood.n_outputs
        n_intercepts = k if fit_intercept else 0
        super().__init__(
            n_features, k, prior, prior_scale, n_intercepts, own, terms, likelihood.own_prior
        )
        self.likelihood, self.center, self.scale = likelihood, center, scale
        #: m, the number of own parameters of a target
        self.n_own = (self.n_parameters - self.n_linear) // k
        self._bent: tuple[Any, Array] | None = None

    def merging(self, X: Any) -> Self:
        normal = type(self.likelihood) is Gaussian and not (self.conjugate or self.terms)
        few = self.n_features + self.k + 1 <= min(X.shape[0] // 2, LIMITS.full_hessian)
        if not (normal and few and self.row_space is None and isinstance(X, np.ndarray)):
            return self
        model = copy.copy(self)
        model.merges = True
        return model

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        """Rows ``x`` = (features, offsets or None, known or None) with targets (rows, k)."""
        features, offset, known = x
        if self.merges:
            y = y if offset is None else y - offset[:, None]
            features, y, weight = merged_rows(features, y, weight, self.fit_intercept)
            offset = None
        y = y if known is None else np.hstack([y, known])
        design = self._design(features, dtype, device)
        fields: dict[str, Any] = {"x": design, "y": self.likelihood.targets(y, dtype, device)}
        if offset is not None:
            fields["offset"] = torch.from_numpy(offset).to(device, dtype)
        weights = None if weight is None else torch.from_numpy(weight).to(device, dtype)
        return Data(fields, len(y), weights)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Arrays "coef" (..., k, n_features) and "intercept" (..., k), and others.

        The axis k is missing if there is one target.
        """
        parts = super().unpack(draws)
        coef = self.scale * decode(parts["coef"])
        intercept = np.zeros(coef.shape[:-1], coef.dtype)
        if self.fit_intercept:
            intercept = decode(parts["intercept"])
        intercept = self.center + self.scale * intercept
        if self.k == 1:
            coef, intercept = coef[..., 0, :], intercept[..., 0]
        parts |= {"coef": encode(coef, draws.dtype), "intercept": encode(intercept, draws.dtype)}
        for name in parts.keys() & self.coefficient_prior.effects:
            parts[name] = encode(self.scale * decode(parts[name]), draws.dtype)
        return parts

    def linear_rows(self, data: Data) -> LinearRows | None:
        fields = data.fields
        found = self.likelihood.compiled(fields["y"].double().cpu().numpy())
        if found is not None and "offset" in fields:
            offset = fields["offset"].double().cpu().numpy()
            found = found._replace(shift=found.shift + offset)
        return self._rows(data, found)

    # conditional distributions --------------------------------------------------------------------

    @property
    def conjugate(self) -> bool:  # type: ignore[override]
        normal = type(self.likelihood) is Gaussian and self.coefficient_prior.normal is not None
        # proposals for the noise of more than 8 targets at once are seldom accepted
        return normal and self.n_parameters <= LIMITS.full_hessian and self.k <= 8

    def conditionals(self, data: Data) -> NormalConditionals | None:
        return NormalConditionals(self, data) if self.conjugate else None

    # gradients ------------------------------------------------------------------------------------

    def _predictors(self, theta: Tensor, batch: Batch) -> Tensor:
        """f (chains, rows, k)."""
        f = batch.fields["x"].logits(self._coefficients(theta))
        f = f[..., None] if self.k == 1 else f
        return f + batch.fields["offset"][..., None] if "offset" in batch.fields else f

    def _slopes(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """d(-log p) in f (chains, rows, k) and in own parameters (chains, rows, m k), or None.

        If the batch has control variates, they are subtracted.
        """
        fields, f, own = batch.fields, self._predictors(theta, batch), theta[:, self.n_linear :]
        by_f, by_own = self.likelihood.slope(f.clone(), fields["y"], own)
        if "anchor_slope" not in fields:
            return by_f, by_own
        control = fields["anchor_slope"]
        if "anchor_curvature" in fields:
            at = f[..., None]
            if by_own is not None:
                each = own.view(len(own), 1, self.n_own, self.k).mT
                at = torch.cat([at, each.expand(*f.shape, self.n_own)], 3)
            moved = (at - fields["anchor_at"])[..., None, :]
            control = control + (fields["anchor_curvature"] * moved).sum(-1)
        by_f = by_f - control[..., 0]
        return by_f, None if by_own is None else by_own - control[..., 1:].mT.flatten(-2)

    def _residuals(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        by_f, by_own = self._slopes(theta, batch)
        return by_f[..., 0] if self.k == 1 else by_f, by_own

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        f = self._predictors(theta, batch)
        return self.likelihood.log_density(f, batch.fields["y"], theta[:, self.n_linear :])

    # over all rows, in float64 --------------------------------------------------------------------

    def _own(self, theta: Array) -> Array:
        """Own parameters (k, m) of a position."""
        return theta[self.n_linear :].reshape(self.n_own, self.k).T

    def _joined(self, f: Array, own: Array) -> Array:
        """Predictors (rows, k) and own parameters (k, m) of every row, (rows, k, q)."""
        return np.concatenate([f[..., None], np.broadcast_to(own, (len(f), *own.shape))], axis=2)

    def _times(self, vector: Array, data: Data) -> Array:
        """Predictors (rows, k) of coefficients, without offsets."""
        return data.fields["x"].times(vector[: self.n_used].reshape(-1, self.k))

    def _at(self, theta: Array, data: Data) -> Array:
        f = self._times(theta, data)
        if "offset" in data.fields:
            f = f + data.fields["offset"].double().cpu().numpy()[:, None]
        return self._joined(f, self._own(theta))

    def _slope_at(self, f: Array, own: Array, data: Data) -> Array:
        """d(-log p) of rows in predictors and own parameters, (points, rows, k, q).

        The points are predictors f (points, rows, k) with own parameters (points, k, m).
        """
        y = data.fields["y"].double().cpu()
        flat = np.ascontiguousarray(np.swapaxes(own, 1, 2)).reshape(len(own), -1)
        with np.errstate(all="ignore"):
            by_f, by_own = self.likelihood.slope(
                torch.from_numpy(f.copy()), y, torch.from_numpy(flat)
            )
        parts = [by_f[..., None]]
        if by_own is not None:
            each = by_own.expand(*f.shape[:2], -1)
            parts.append(each.reshape(*f.shape[:2], self.n_own, self.k).mT)
        return np.asarray(torch.cat(parts, 3))

    @summed_over_blocks
    def _losses(self, theta: Array, data: Data) -> tuple[float, Array]:
        f = self._at(theta, data)[..., 0]
        own = torch.from_numpy(theta[None, self.n_linear :])
        y = data.fields["y"].double().cpu()
        rows = self.likelihood.log_density(torch.from_numpy(f[None]), y, own)[0].numpy()
        value = -float(np.sum(self._weights(data) * rows[:, None]))
        slopes = self._slope_at(f[None], self._own(theta)[None], data)[0]
        return value, self._summed(slopes, data)

    def _summed(self, slopes: Array, data: Data) -> Array:
        """Weighted sum over rows of slopes (rows, k, q), as a vector like theta."""
        weighted = np.reshape(self._weights(data), (-1, 1, 1)) * slopes
        out = np.zeros(self.n_parameters)
        out[: self.n_used] = data.fields["x"].transposed_times(weighted[..., 0]).reshape(-1)
        out[self.n_linear :] = weighted[..., 1:].sum(0).T.reshape(-1)
        return out

    def _expected(self, theta: Array, root: Array | None, data: Data) -> tuple[Array, Array]:
        """Slopes (rows, k, q) and curvatures (rows, k, q, q), averaged over draws.

        The draws are theta + root N(0, I), or theta if ``root`` is None. Given a target's own
        parameters L u + mean, its predictor of a row is mean + a'u + s t, with independent standard
        normal u and t. Stein's identity E[g e'] = E[dg] A gives the curvature E[dg] of slopes g at
        A e.
        """
        at = self._at(theta, data)
        A = self._roots(root, data, self._least(theta))
        rule = third_degree(at.shape[2]) if root is None else _rule(self.n_own)
        slope, products = np.zeros(at.shape), np.zeros(A.shape)
        for e, weights, slopes in self._slopes_around(theta, A, rule, data):
            g = slopes.reshape(len(e), -1)
            slope += (weights @ g).reshape(slope.shape)
            products += (g.T @ (e * weights[:, None])).reshape(products.shape)
        curvature = np.swapaxes(
            np.linalg.solve(np.swapaxes(A, 2, 3), np.swapaxes(products, 2, 3)), 2, 3
        )
        return slope, 0.5 * (curvature + np.swapaxes(curvature, 2, 3))

    def _slopes_around(
        self, theta: Array, A: Array, rule: Rule, data: Data
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Some nodes e (nodes, q) at a time, their weights, and slopes (nodes, rows, k, q) at A e.

        They are those of the given rule.
        """
        at, (nodes, weights) = self._at(theta, data), rule
        for some in slices(len(nodes), max(1, LIMITS.cache_numbers // at.size)):
            e = nodes[some]
            own = self._own(theta) + np.einsum("bj,kij->bki", e[:, 1:], A[0, :, 1:, 1:])
            f = at[..., 0] + np.moveaxis(A[..., 0, :] @ e.T, 2, 0)
            yield e, weights[some], self._slope_at(f, own, data)

    @joined_over_blocks
    def remainders(self, center: Array, root: Array, data: Data) -> Array:
        if "anchor_curvature" in data.fields:
            known = (data.fields[f"anchor_{name}"] for name in ("slope", "curvature"))
            slope, curvature = (values.double().cpu().numpy() for values in known)
        else:
            slope, curvature = self._expected(center, root, data)
        A = self._roots(root, data, self._least(center))
        square = np.zeros(len(slope))
        for e, weights, slopes in self._slopes_around(center, A, _rule(self.n_own), data):
            linear = np.einsum("nkij,bj->bnki", curvature @ A, e)
            left = np.einsum("nkij,bnki->bnkj", A, slopes - slope - linear)
            square += weights @ np.square(left).sum((2, 3))
        return np.asarray(np.sqrt(square))

    def _margins(self, center: Array, data: Data) -> tuple[Array, Array] | None:
        """The likelihood's ``walls``, if there is one target."""
        if self.k > 1:
            return None
        f, y = self._at(center, data)[:, 0, 0], data.fields["y"][:, 0].double().cpu().numpy()
        return self.likelihood.walls(f, self._own(center)[0], y)

    def _largest_moves(self, directions: Array, slope: Array, data: Data) -> Array:
        moves = slope[:, :1] * data.fields["x"].times(directions[: self.n_used])
        moves += slope[:, 1:] @ directions[self.n_linear :]
        return np.asarray(np.abs(moves).max(1))

    def _sds_of_margins(self, root: Array, slope: Array, data: Data) -> Array:
        A = self._roots(root, data, np.full((1, 1 + self.n_own), AT_A_POINT))[:, 0]
        return np.linalg.norm(np.einsum("nq,nqr->nr", slope, A), axis=1)

    def _least(self, theta: Array) -> Array:
        """Smallest sds (k, q) of predictors and own parameters, for derivatives by differences."""
        least = np.full((self.k, 1 + self.n_own), AT_A_POINT)
        least[:, 0] *= np.minimum(self.likelihood.width(self._own(theta)), 1.0)
        return least

    def _roots(self, root: Array | None, data: Data, least: Array) -> Array:
        """A (rows, k, q, q): predictor and own parameters of a target are A e + mean."""
        k, q = least.shape
        A = np.zeros((len(data.fields["y"]), k, q, q))
        if root is None:
            A[:, :, np.arange(q), np.arange(q)] = least
            return A
        variances = self.variances(root, data)
        for j in range(k):
            used, own = self._places(j)
            if q > 1:
                own_root = _root(root[own] @ root[own].T)
                cross = data.fields["x"].times(root[used] @ root[own].T)
                A[:, j, 0, 1:] = np.linalg.solve(own_root, cross.T).T
                A[:, j, 1:, 1:] = own_root
            left = variances[:, j] - np.square(A[:, j, 0, 1:]).sum(1)
            A[:, j, 0, 0] = np.sqrt(np.maximum(left, least[j, 0] ** 2))
        return A

    def _places(self, j: int) -> tuple[Array, Array]:
        """Places in theta of the coefficients and of the own parameters of a target."""
        return np.arange(j, self.n_used, self.k), np.arange(
            self.n_linear + j, self.n_parameters, self.k
        )

    def _gram(self, curvature: Array, data: Data) -> Array:
        """Sum over rows of their curvatures, as a matrix in theta."""
        curvature = np.reshape(self._weights(data), (-1, 1, 1, 1)) * curvature
        design, out = data.fields["x"], np.zeros((self.n_parameters,) * 2)
        for j in range(self.k):
            used, own = self._places(j)
            bent = curvature[:, j]
            out[np.ix_(used, used)] = design.gram(bent[:, 0, 0])
            across = design.transposed_times(bent[:, 0, 1:])
            out[np.ix_(used, own)] = across
            out[np.ix_(own, used)] = across.T
            out[np.ix_(own, own)] = bent[:, 1:, 1:].sum(0)
        return out

    def hessian(self, theta: Array, data: Data) -> Array:
        return self.expected_curvature(theta, None, data)[1]

    def _separate(self, curvature: Array, data: Data) -> Array:
        diagonal = np.zeros_like(curvature)
        index = np.arange(1 + self.n_own)
        diagonal[..., index, index] = np.abs(curvature[..., index, index])
        return self._gram(diagonal, data)

    def expected_curvature(
        self, theta: Array, root: Array | None, data: Data
    ) -> tuple[Array, Array]:
        """No cross terms where the Hessian is indefinite: heavy tails, far from the maximum."""
        gradient, full, separate = self._expected_sums(theta, root, data)
        return gradient, full if self._convex(full, theta) else separate

    def averages(self, theta: Array, root: Array, data: Data) -> tuple[Array, Array, Anchor | None]:
        anchor = self.anchor(theta, data, root)
        assert anchor.hessian is not None
        if self._convex(anchor.hessian, theta):
            return anchor.gradient, anchor.hessian, anchor
        return *self.expected_curvature(theta, root, data), None

    def _convex(self, hessian: Array, theta: Array) -> bool:
        """Whether this Hessian of the likelihood, with the prior's, has no negative curvature."""
        try:
            np.linalg.cholesky(hessian + np.diag(self.prior_hessian(theta)))
        except np.linalg.LinAlgError:
            return False
        return True

    @summed_over_blocks
    def _expected_sums(
        self, theta: Array, root: Array | None, data: Data
    ) -> tuple[Array, Array, Array]:
        """Expected gradient, Hessian, and a positive semidefinite part of the Hessian."""
        slope, curvature = self._expected(theta, root, data)
        full = self._gram(curvature, data)
        return self._summed(slope, data), full, self._separate(curvature, data)

    @summed_over_blocks
    def hessian_diagonal(self, theta: Array, data: Data) -> Array:
        curvature = self._expected(theta, None, data)[1]
        weight = self._weights(data)
        out = np.zeros(self.n_parameters)
        bent = np.abs(curvature[..., 0, 0]) * weight
        out[: self.n_used] = data.fields["x"].transposed_times(bent, square=True).reshape(-1)
        own = np.diagonal(curvature, axis1=2, axis2=3)[..., 1:] * np.reshape(weight, (-1, 1, 1))
        out[self.n_linear :] = np.abs(own.sum(0)).T.reshape(-1)
        return out

    def _curvature_at(self, theta: Array, data: Data) -> Array:
        """Curvatures (rows, q, q) at a point, kept for products with other vectors."""
        kept = self._bent  # read once: fits in other threads may replace it
        if kept is None or kept[0][0] is not data or not np.array_equal(kept[0][1], theta):
            kept = self._bent = ((data, theta.copy()), self._expected(theta, None, data)[1])
        return kept[1]

    def hessian_times(self, theta: Array, vector: Array, data: Data) -> Array:
        curvature = self._curvature_at(theta, data)
        moved = self._joined(self._times(vector, data), self._own(vector))
        return self._summed((curvature @ moved[..., None])[..., 0], data)

    @anchored_over_blocks
    def anchor(self, center: Array, data: Data, root: Array | None = None) -> Anchor:
        slope, curvature = self._expected(center, root, data)
        like = data.fields["x"].tensor_like()
        arrays = {"anchor_slope": slope}
        if root is not None:
            arrays |= {"anchor_curvature": curvature, "anchor_at": self._at(center, data)}
        fields = {name: torch.from_numpy(values).to(like) for name, values in arrays.items()}
        hessian = None if root is None else self._gram(curvature, data)
        return Anchor(fields, self._summed(slope, data), hessian)


def _root(covariance: Array) -> Array:
    """A root of a covariance matrix with sds of at least ``AT_A_POINT``."""
    variances, axes = np.linalg.eigh(covariance)
    return np.asarray(axes * np.sqrt(np.maximum(variances, AT_A_POINT**2)))


def _rule(n_own: int) -> Rule:
    """Quadrature over N(0, I) of the predictor and of ``n_own`` parameters of the likelihood.

    A product of rules grows exponentially with the parameters, one of third degree in proportion to
    their number.
    """
    own = [gauss(5)] * n_own if n_own <= 2 else [third_degree(n_own)]
    return product([gauss(NODES), *own])
