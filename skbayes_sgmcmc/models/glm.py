r"""Generalised linear models: a likelihood of each row given its linear predictor.

.. math:: p(y | x) = p(y | f, \phi), \quad f = x^\top w + b + \text{offset}

The likelihood's own parameters :math:`\phi`, such as the noise, are the same for all rows. All that
is needed of it are its derivatives in f and :math:`\phi`: their Gaussian expectations come from
quadrature, and with Stein's identity also those of the second derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import gen_batches
from torch import Tensor

from .._data.chain_random import ChainRandom
from .._data.minibatch import Batch, Data
from .._metric import State
from ..priors.factorised import Prior
from ._design import make_design
from ._group_priors import GroupTerm
from ._protocol import Anchor, LinearForm
from .likelihoods import Likelihood
from .linear import LinearModel

Array = NDArray[Any]

#: nodes of the quadrature over the linear predictor, and over each of the likelihood's parameters
NODES, OWN_NODES = 11, 5
#: numbers of slopes that are computed at once
BLOCK_NUMBERS = 2**18
#: sds at which derivatives are taken instead of at a point, and the smallest sds of predictors
AT_A_POINT = 1e-3


class GLMModel(LinearModel):
    """A likelihood of rows with one linear predictor each.

    Parameters
    ----------
    n_features : int
        Number of features.
    likelihood : Likelihood
        Likelihood with one output, the linear predictor.
    prior, prior_scale, units
        As in :class:`LinearModel`.
    fit_intercept : bool
        Whether to add an intercept with a flat prior.
    terms : sequence of GroupTerm, default=()
        Effects of groups. Their columns come before those of the features.
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
        units: Array | None = None,
        center: float = 0.0,
        scale: float = 1.0,
        terms: Sequence[GroupTerm] = (),
    ):
        own = likelihood.shapes
        super().__init__(n_features, 1, prior, prior_scale, int(fit_intercept), units, own, terms)
        self.likelihood, self.center, self.scale = likelihood, center, scale
        self.n_own = self.n_parameters - self.n_linear
        self._bent: tuple[Any, Array] | None = None

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        """Rows ``x`` = (features, offsets or None, known or None) with targets (rows, 1)."""
        features, offset, known = x
        y = y if known is None else np.hstack([y, known])
        design = make_design(features, dtype=dtype, device=device, intercept=self.fit_intercept)
        fields: dict[str, Any] = {"x": design, "y": self.likelihood.targets(y, dtype, device)}
        if offset is not None:
            fields["offset"] = torch.from_numpy(offset).to(device, dtype)
        weights = None if weight is None else torch.from_numpy(weight).to(device, dtype)
        return Data(fields, len(y), weights)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Arrays "coef" (..., n_features) and "intercept" (...), and others."""
        parts = super().unpack(draws)
        parts["coef"] = self.scale * parts["coef"][..., 0, :]
        for name in parts:
            if name.startswith(("effect_", "sd_")):
                parts[name] = self.scale * parts[name]
        intercept = parts.get("intercept", np.zeros((*draws.shape[:-1], 1), draws.dtype))
        parts["intercept"] = self.center + self.scale * intercept[..., 0]
        return parts

    def linear_form(self, data: Data) -> LinearForm | None:
        return None

    # gradients ------------------------------------------------------------------------------------

    def _predictor(self, theta: Tensor, batch: Batch) -> Tensor:
        f = batch.fields["x"].logits(theta[:, : self.n_used])
        return f + batch.fields["offset"] if "offset" in batch.fields else f

    def _slopes(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """d(-log p) in f (chains, rows) and in own parameters (chains, rows, m), or None.

        If the batch has control variates, they are subtracted.
        """
        fields, f, own = batch.fields, self._predictor(theta, batch), theta[:, self.n_linear :]
        by_f, by_own = self.likelihood.slope(f.clone()[..., None], fields["y"], own)
        by_f = by_f[..., 0]
        if "anchor_slope" not in fields:
            return by_f, by_own
        control = fields["anchor_slope"]
        if "anchor_curvature" in fields:
            at = f[..., None] if by_own is None else torch.cat(
                [f[..., None], own[:, None].expand(*f.shape, self.n_own)], 2
            )  # fmt: skip
            moved = (at - fields["anchor_at"])[..., None, :]
            control = control + (fields["anchor_curvature"] * moved).sum(-1)
        by_f = by_f - control[..., 0]
        return by_f, None if by_own is None else by_own - control[..., 1:]

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
        r, own = self._slopes(theta, batch)
        if isinstance(batch.weight, Tensor):
            r = r * batch.weight
            own = None if own is None else own * batch.weight.unsqueeze(-1)
        if out.shape[1] == self.n_used:
            batch.fields["x"].accumulate(out, r, scale)
            return {}
        gradient = torch.zeros_like(theta[:, : self.n_used])
        batch.fields["x"].accumulate(gradient, r, scale)
        out[:, : self.n_used].add_(gradient)
        if own is not None:
            out[:, self.n_linear :].add_(own.sum(1), alpha=scale)
        return {}

    def scores(self, theta: Tensor, batch: Batch) -> Tensor:
        x = batch.fields["x"].dense()
        r, own = self._slopes(theta, batch)
        found = self._padded(-r[0][:, None] * x)
        if own is not None:
            found[:, self.n_linear :] = -own[0]
        return found

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        f = self._predictor(theta, batch)[..., None]
        return self.likelihood.log_density(f, batch.fields["y"], theta[:, self.n_linear :])

    # over all rows, in float64 --------------------------------------------------------------------

    def _at(self, theta: Array, data: Data) -> Array:
        """Predictor and own parameters of every row, (rows, 1 + m)."""
        f = data.fields["x"].times(theta[: self.n_used, None])
        if "offset" in data.fields:
            f = f + data.fields["offset"].double().cpu().numpy()[:, None]
        return np.hstack([f, np.broadcast_to(theta[self.n_linear :], (len(f), self.n_own))])

    def _slope_at(self, f: Array, own: Array, data: Data) -> Array:
        """d(-log p) of every row in its predictor and the own parameters, (points, rows, 1 + m).

        The points are predictors f (points, rows) with own parameters (points, m).
        """
        y = data.fields["y"].double().cpu()
        with np.errstate(all="ignore"):
            by_f, by_own = self.likelihood.slope(
                torch.from_numpy(f.copy())[..., None], y, torch.from_numpy(own)
            )
        parts = [by_f] if by_own is None else [by_f, by_own.expand(*f.shape, -1)]
        return np.asarray(torch.cat(parts, 2))

    def _losses(self, theta: Array, data: Data) -> tuple[float, Array]:
        at, own = self._at(theta, data), theta[self.n_linear :]
        y = data.fields["y"].double().cpu()
        f = torch.from_numpy(at[None, :, :1].copy())
        rows = self.likelihood.log_density(f, y, torch.from_numpy(own)[None])[0].numpy()
        weight = self._weights(data)
        value = -float(np.sum(weight * rows[:, None]))
        return value, self._summed(self._slope_at(at[None, :, 0], own[None], data)[0], data)

    def _summed(self, slopes: Array, data: Data) -> Array:
        """Weighted sum over rows of slopes (rows, 1 + m), as a vector like theta."""
        weighted = self._weights(data) * slopes
        out = np.zeros(self.n_parameters)
        out[: self.n_used] = data.fields["x"].transposed_times(weighted[:, :1])[:, 0]
        out[self.n_linear :] = weighted[:, 1:].sum(0)
        return out

    def _expected(self, theta: Array, root: Array | None, data: Data) -> tuple[Array, Array]:
        """Slopes (rows, q) and curvatures (rows, q, q), q = 1 + m, averaged over draws.

        The draws are theta + root N(0, I), or theta if ``root`` is None. Given the own parameters
        L u + mean, the predictor of a row is mean + a'u + s t, with independent standard normal u
        and t. Stein's identity E[g e'] = E[dg] A gives the curvature E[dg] of slopes g at A e.
        """
        at, m = self._at(theta, data), self.n_own
        q, n = 1 + m, len(at)
        A = np.zeros((n, q, q))
        if root is None:
            A += AT_A_POINT * np.eye(q)
        else:
            variance = self.leverage(root, data)
            if m:
                own_root = np.linalg.cholesky(root[self.n_linear :] @ root[self.n_linear :].T)
                cross = data.fields["x"].times(root[: self.n_used] @ root[self.n_linear :].T)
                A[:, 0, 1:] = np.linalg.solve(own_root, cross.T).T
                A[:, 1:, 1:] = own_root
            left = variance - np.square(A[:, 0, 1:]).sum(1)
            A[:, 0, 0] = np.sqrt(np.maximum(left, AT_A_POINT**2))
        sizes = [3] * q if root is None else [NODES, *[OWN_NODES] * m]
        slope, products = np.zeros((n, q)), np.zeros((n, q, q))
        nodes, weights = _nodes(sizes)
        for some in gen_batches(len(nodes), max(1, BLOCK_NUMBERS // (n * q))):
            e, weighted = nodes[some], nodes[some] * weights[some, None]
            own = theta[self.n_linear :] + e[:, 1:] @ A[0, 1:, 1:].T
            g = self._slope_at(at[:, 0] + e @ A[:, 0].T, own, data).reshape(len(e), -1)
            slope += (weights[some] @ g).reshape(n, q)
            products += (g.T @ weighted).reshape(n, q, q)
        curvature = np.swapaxes(
            np.linalg.solve(np.swapaxes(A, 1, 2), np.swapaxes(products, 1, 2)), 1, 2
        )
        return slope, 0.5 * (curvature + np.swapaxes(curvature, 1, 2))

    def _gram(self, curvature: Array, data: Data) -> Array:
        """Sum over rows of their curvatures, as a matrix in theta."""
        curvature = np.reshape(self._weights(data), (-1, 1, 1)) * curvature
        own, out = slice(self.n_linear, None), np.zeros((self.n_parameters,) * 2)
        used = slice(0, self.n_used)
        out[used, used] = data.fields["x"].gram(curvature[:, 0, 0])
        out[used, own] = data.fields["x"].transposed_times(curvature[:, 0, 1:])
        out[own, used] = out[used, own].T
        out[own, own] = curvature[:, 1:, 1:].sum(0)
        return out

    def hessian(self, theta: Array, data: Data) -> Array:
        """A positive semidefinite part of the Hessian, for descents: no cross terms."""
        return self._separate(self._expected(theta, None, data)[1], data)

    def _separate(self, curvature: Array, data: Data) -> Array:
        diagonal = np.zeros_like(curvature)
        index = np.arange(1 + self.n_own)
        diagonal[:, index, index] = np.abs(curvature[:, index, index])
        return self._gram(diagonal, data)

    def expected_curvature(self, theta: Array, root: Array, data: Data) -> tuple[Array, Array]:
        slope, curvature = self._expected(theta, root, data)
        full = self._gram(curvature, data)
        smallest = np.linalg.eigvalsh(full + np.diag(self.prior_hessian(theta)))[0]
        if smallest <= 0.0:  # heavy tails, far from the maximum
            full = self._separate(curvature, data)
        return self._summed(slope, data), full

    def hessian_diagonal(self, theta: Array, data: Data) -> Array:
        curvature = self._expected(theta, None, data)[1]
        weight = self._weights(data)
        out = np.zeros(self.n_parameters)
        bent = np.abs(curvature[:, 0, :1]) * weight
        out[: self.n_used] = data.fields["x"].transposed_times(bent, square=True)[:, 0]
        own = np.diagonal(curvature, axis1=1, axis2=2)[:, 1:]
        out[self.n_linear :] = np.abs((own * weight).sum(0))
        return out

    def _curvature_at(self, theta: Array, data: Data) -> Array:
        """Curvatures (rows, q, q) at a point, kept for products with other vectors."""
        kept = self._bent  # read once: fits in other threads may replace it
        if kept is None or kept[0][0] is not data or not np.array_equal(kept[0][1], theta):
            kept = self._bent = ((data, theta.copy()), self._expected(theta, None, data)[1])
        return kept[1]

    def hessian_times(self, theta: Array, vector: Array, data: Data) -> Array:
        curvature = self._curvature_at(theta, data)
        f = data.fields["x"].times(vector[: self.n_used, None])
        moved = np.hstack([f, np.broadcast_to(vector[self.n_linear :], (len(f), self.n_own))])
        return self._summed((curvature @ moved[:, :, None])[..., 0], data)

    def anchor(self, center: Array, data: Data, root: Array | None = None) -> Anchor:
        slope, curvature = self._expected(center, root, data)
        like = data.fields["x"].tensor_like()
        arrays = {"anchor_slope": slope}
        if root is not None:
            arrays |= {"anchor_curvature": curvature, "anchor_at": self._at(center, data)}
        fields = {name: torch.from_numpy(values).to(like) for name, values in arrays.items()}
        hessian = None if root is None else self._gram(curvature, data)
        return Anchor(fields, self._summed(slope, data), hessian)


def _nodes(sizes: list[int]) -> tuple[Array, Array]:
    """Nodes (nodes, q) and weights of a product of Gauss-Hermite rules."""
    rules = [np.polynomial.hermite_e.hermegauss(size) for size in sizes]
    grids = np.meshgrid(*[rule[0] for rule in rules], indexing="ij")
    weights = np.meshgrid(*[rule[1] / rule[1].sum() for rule in rules], indexing="ij")
    nodes = np.stack([grid.ravel() for grid in grids], axis=1)
    return nodes, np.prod([w.ravel() for w in weights], axis=0)
