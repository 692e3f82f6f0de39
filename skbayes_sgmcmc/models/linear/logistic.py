r"""Binary and multinomial logistic regression with analytic gradients.

.. math::
    p(y=1|x) = \sigma(w^\top x + b) \quad\text{or}\quad p(y=k|x) = \mathrm{softmax}_k(W^\top x + b),
    \;\textstyle\sum_k b_k = 0

with a prior on the coefficients and a flat prior on the intercepts. A flat prior on all K
multinomial intercepts would make the posterior improper. The intercepts are therefore b = Q c,
where Q is an orthonormal basis of the plane on which they sum to zero. The K-1 numbers c are
sampled. If the coefficients have one learned scale, multinomial intercepts are flat in its units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
import torch
from scipy.special import expit, log_softmax, softmax
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Batch, Data
from ..._draws.storage import decode, encode
from ...priors.factorised import Prior
from .._constants import Constant
from .._linalg import row_products
from .._protocol import Anchor, LinearRows
from ..designs.blocks import anchored_over_blocks, joined_over_blocks, summed_over_blocks
from ..likelihoods.base import elementwise_softmax
from ..likelihoods.slopes import Compiled
from ..moments.sigmoid import normal_nodes, sigmoid, sigmoid_means
from .coefficient_priors import PriorSlopes
from .model import LinearModel

#: of every row, its class and the class that is best otherwise
Pair = tuple[Array, Array]


class LogisticModel(LinearModel):
    """Logistic regression on ``n_features`` columns and ``n_classes`` classes.

    theta holds the coefficients (n_features, k), followed by k' numbers for the intercepts. For two
    classes k = k' = 1, otherwise k = n_classes and k' = n_classes - 1. Parameters of the prior, if
    it has any, come last.

    Parameters
    ----------
    n_features, n_classes : int
        Number of features and number of classes.
    prior, prior_scale
        As in :class:`LinearModel`.
    fit_intercept : bool
        Whether to add an intercept with a flat prior.
    """

    rows_say_little = True

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        prior: Prior,
        prior_scale: Any,
        fit_intercept: bool,
    ):
        k = 1 if n_classes == 2 else n_classes
        n_intercepts = max(k - 1, 1) if fit_intercept else 0
        super().__init__(n_features, k, prior, prior_scale, n_intercepts)
        self.basis = _sum_zero_basis(self.k)
        self._basis = Constant(self.basis)

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        """Rows for this model; ``y`` are class indices.

        With two classes, each row is stored as x~ = (1 - 2y) x, so that p(y|x) = sigma(-theta'x~).
        The residual is then sigma(theta'x~), which needs no labels.
        """
        fields: dict[str, Any] = {}
        if self.k == 1:
            sign = np.where(y == 0, np.int8(1), np.int8(-1))  # a byte for each row
            fields["x"] = self._design(x, dtype, device).scale_rows(sign)
        else:
            fields["x"] = self._design(x, dtype, device)
            fields["y"] = torch.from_numpy(np.eye(self.k)[y]).to(device, dtype)
        weights = None if weight is None else torch.from_numpy(weight).to(device, dtype)
        return Data(fields, len(y), weights)

    # gradients ------------------------------------------------------------------------------------

    def _residuals(self, theta: Tensor, batch: Batch) -> tuple[Tensor, None]:
        return self._residual(
            batch.fields["x"].logits(self._coefficients(theta)), batch.fields
        ), None

    def _residual(self, z: Tensor, fields: dict[str, Any]) -> Tensor:
        if self.k > 1:
            p = elementwise_softmax(z)
        else:
            p = torch.sigmoid(z) if "anchor_z" in fields else torch.sigmoid_(z)
        if "anchor_p" not in fields:
            return p if self.k == 1 else p - fields["y"]
        p = p - fields["anchor_p"]
        if "anchor_z" in fields:
            moved = z - fields["anchor_z"]
            if self.k > 1:
                mean = (moved * fields["anchor_p"]).sum(2, keepdim=True)
                moved = (moved - mean).mul_(fields["anchor_p"])
            p.addcmul_(moved, fields["anchor_slope"], value=-1.0)
        return p

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        z = batch.fields["x"].logits(self._coefficients(theta))
        if self.k == 1:
            return -torch.nn.functional.softplus(z)
        return (torch.log_softmax(z, 2) * batch.fields["y"]).sum(2)

    # theta <-> coefficients (chains, columns), or (chains, columns, classes) for more than two ----

    def _coefficients(self, theta: Tensor) -> Tensor:
        if self.k == 1 or not self.fit_intercept:
            return super()._coefficients(theta)
        chains, split, theta = len(theta), self.n_features * self.k, theta[:, : self.n_used]
        w = theta[:, :split].reshape(chains, self.n_features, self.k)
        b = theta[:, split:] @ self._basis.like(theta).t()
        return torch.cat([w, b[:, None]], 1)

    def _pull_back(self, gradient: Tensor) -> Tensor:
        if self.k > 1 and self.fit_intercept:
            b = gradient[:, -1] @ self._basis.like(gradient)
            gradient = torch.cat([gradient[:, :-1].flatten(1), b], 1)
        return super()._pull_back(gradient)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Arrays "coef" (..., k, n_features) and "intercept" (..., k)."""
        parts = super().unpack(draws)
        if not self.fit_intercept:
            parts["intercept"] = np.zeros((*draws.shape[:-1], self.k), dtype=draws.dtype)
        elif self.k > 1:
            intercept = decode(parts["intercept"])
            intercept = intercept @ self.basis.T.astype(intercept.dtype)
            parts["intercept"] = encode(intercept, draws.dtype)
        return parts

    # over all rows, in float64 with NumPy ---------------------------------------------------------

    def _logits(self, theta: Array, data: Data) -> Array:
        w = self._coefficients(torch.from_numpy(theta[None]))[0].numpy()
        return np.asarray(data.fields["x"].times(w.reshape(-1, self.k)))

    def _of_logits(self, z: Array) -> Array:
        return np.asarray(sigmoid(z) if self.k == 1 else softmax(z, axis=1))

    def _probabilities(self, theta: Array, data: Data) -> Array:
        return self._of_logits(self._logits(theta, data))

    def _labels(self, data: Data) -> Array | float:
        return 0.0 if self.k == 1 else data.fields["y"].double().cpu().numpy()

    def _sum_of_scores(self, r: Array, data: Data) -> Array:
        """Sum over rows of weight * x r', as a vector like theta."""
        full = data.fields["x"].transposed_times(self._weights(data) * r)
        return np.asarray(self._pull_back(torch.from_numpy(full[None]))[0])

    @summed_over_blocks
    def _losses(self, theta: Array, data: Data) -> tuple[float, Array]:
        z, y = self._logits(theta, data), self._labels(data)
        if self.k == 1:
            losses, p = np.logaddexp(0.0, z), sigmoid(z)
        else:
            losses, p = -log_softmax(z, axis=1) * y, softmax(z, axis=1)
        return float(np.sum(self._weights(data) * losses)), self._sum_of_scores(p - y, data)

    def averages(self, theta: Array, root: Array, data: Data) -> tuple[Array, Array, Anchor | None]:
        anchor = self.anchor(theta, data, root)
        assert anchor.hessian is not None
        return anchor.gradient, anchor.hessian, anchor

    def _variances(self, root: Array, data: Data) -> Array:
        """:meth:`variances`, or what is known of them."""
        if "variance" in data.fields:
            return np.asarray(data.fields["variance"].double())[:, None]
        return self.variances(root, data)

    def _logit_moves(self, root: Array, data: Data) -> Iterator[tuple[float, Array]]:
        """Weights, and what root N(0, I) adds to the logits (rows, k), for averages over it.

        For two classes it is a Gauss-Hermite quadrature of each row's logit; for more classes, 16
        antithetic pairs of draws.
        """
        if self.k == 1:
            sd = np.sqrt(self._variances(root, data))
            for node, weight in zip(*normal_nodes(sd), strict=True):
                yield float(weight), sd * node
        else:
            for direction in np.random.default_rng(0).standard_normal((16, self.n_parameters)):
                away = self._logits(root @ direction, data)
                yield 1.0 / 32, away
                yield 1.0 / 32, -away

    def _expected(
        self, theta: Array, root: Array, data: Data, variances: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Logits at theta, and probabilities and slopes of rows averaged over theta + root N(0, I).

        The slopes describe how the probabilities change with the logits on average. For two
        classes, dp = slope dz. For more classes, dp = slope * p (dz - p'dz) with one slope for each
        row.
        """
        z = self._logits(theta, data)
        if self.k == 1:
            variances = self.variances(root, data) if variances is None else variances
            return z, *sigmoid_means(z, np.sqrt(variances))
        p, slope = np.zeros_like(z), np.zeros((len(z), 1))
        for weight, away in self._logit_moves(root, data):
            moved = self._of_logits(z + away)
            p += weight * moved
            slope += weight * (1.0 - np.square(moved).sum(1, keepdims=True))
        # at most 1, because 1 - p'p is concave in p, but rounding could exceed it
        spread_of_mean = np.maximum(1.0 - np.square(p).sum(1, keepdims=True), 1e-12)
        return z, p, np.clip(slope / spread_of_mean, 0.0, 1.0)

    @joined_over_blocks
    def remainders(self, center: Array, root: Array, data: Data) -> Array:
        fields, square = data.fields, 0.0
        if "anchor_z" in fields:
            known = (fields[f"anchor_{name}"].double().cpu() for name in ("z", "p", "slope"))
            z, p, slope = (values.view(len(values), -1).numpy() for values in known)
        else:
            z, p, slope = self._expected(center, root, data)
        for weight, away in self._logit_moves(root, data):
            linear = away
            if self.k > 1:
                linear = p * (away - (p * away).sum(1, keepdims=True))
            square = square + weight * np.square(self._of_logits(z + away) - p - slope * linear)
        return np.asarray(np.sqrt((square * self._variances(root, data)).sum(1)))

    def _margins(self, center: Array, data: Data) -> tuple[Array, Pair | None]:
        """By how much each row's class leads at the centre, and this class and the next best.

        The wall is where another class leads: of more than two, the second best one at the centre.
        """
        if self.k == 1 and "anchor_z" in data.fields:
            return -data.fields["anchor_z"].double().cpu().numpy(), None
        z = self._logits(center, data)
        if self.k == 1:
            return -z[:, 0], None
        labels = np.asarray(self._labels(data)) > 0.5
        own, rival, rows = labels.argmax(1), np.where(labels, -np.inf, z).argmax(1), range(len(z))
        return z[rows, own] - z[rows, rival], (own, rival)

    def _largest_moves(self, directions: Array, pair: Pair | None, data: Data) -> Array:
        return self._of_margins(directions, data, pair, lambda moves: np.abs(moves).max(1))

    def _sds_of_margins(self, root: Array, pair: Pair | None, data: Data) -> Array:
        if pair is None:
            return np.sqrt(self._variances(root, data)[:, 0])
        return np.sqrt(self._of_margins(root, data, pair, lambda moves: np.square(moves).sum(1)))

    def _of_margins(
        self,
        directions: Array,
        data: Data,
        pair: Pair | None,
        reduced: Callable[[Array], Array],
    ) -> Array:
        """A figure for each row, of what ``directions`` (n_parameters, m) add to its margin."""
        design, found = data.fields["x"], np.zeros(data.n_rows)
        full = self._embedding() @ directions[: self.n_used]
        full = full.reshape(design.shape[1], self.k, -1)
        for rows, x in design.blocks():
            if pair is None:
                found[rows] = reduced(x @ full[:, 0])
                continue
            first, second, here = pair[0][rows], pair[1][rows], np.zeros(x.shape[0])
            for code in np.unique(first * self.k + second):
                one, other = divmod(int(code), self.k)
                chosen = np.flatnonzero((first == one) & (second == other))
                here[chosen] = reduced(x[chosen] @ (full[:, one] - full[:, other]))
            found[rows] = here
        return found

    @summed_over_blocks
    def hessian(self, theta: Array, data: Data) -> Array:
        """Hessian of -log likelihood over all rows, (n_parameters, n_parameters)."""
        p = self._probabilities(theta, data)
        slope = p * (1.0 - p) if self.k == 1 else np.ones((len(p), 1))
        return self._gram(p, slope, data)

    def _gram(self, p: Array, slope: Array, data: Data) -> Array:
        """Sum over rows of weight * slope * J (x) xx'.

        J is diag(p) - pp', or 1 for two classes.
        """
        design, weight = data.fields["x"], self._weights(data) * slope
        if self.k == 1:
            return np.pad(design.gram(weight[:, 0]), (0, self.n_others))
        columns = design.shape[1]
        full = np.empty((columns, self.k, columns, self.k))
        for a in range(self.k):
            for b in range(a + 1):
                curvature = (weight * p[:, [a]] * ((a == b) - p[:, [b]]))[:, 0]
                full[:, a, :, b] = design.gram(curvature)
                full[:, b, :, a] = full[:, a, :, b].T
        square = full.reshape(columns * self.k, columns * self.k)
        embed = self._embedding()
        return np.pad(embed.T @ square @ embed, (0, self.n_others))

    def _embedding(self) -> Array:
        split = self.n_features * self.k
        if self.k == 1 or not self.fit_intercept:
            return super()._embedding()
        return np.asarray(scipy.linalg.block_diag(np.eye(split), self.basis))

    @summed_over_blocks
    def hessian_diagonal(self, theta: Array, data: Data) -> Array:
        p = self._probabilities(theta, data)
        curvature = self._weights(data) * p * (1.0 - p)
        full = data.fields["x"].transposed_times(curvature, square=True)
        if self.k > 1 and self.fit_intercept:
            # diag(Q' A Q) for the intercepts, from the diagonal of A only
            full = np.concatenate([full[:-1].reshape(-1), self.basis.T**2 @ full[-1]])
        return np.pad(full.reshape(-1), (0, self.n_others))

    @summed_over_blocks
    def hessian_times(self, theta: Array, vector: Array, data: Data) -> Array:
        """Hessian of -log likelihood times a vector, in one pass over the rows."""
        p, z = self._probabilities(theta, data), self._logits(vector, data)
        r = p * (1.0 - p) * z if self.k == 1 else p * (z - (p * z).sum(1, keepdims=True))
        return self._sum_of_scores(r, data)

    @anchored_over_blocks
    def anchor(self, center: Array, data: Data, root: Array | None = None) -> Anchor:
        hessian, rows = None, {}
        if root is None:
            p = self._probabilities(center, data)
            arrays = {"anchor_p": p}
        else:
            variances = self.variances(root, data) if self.k == 1 else None
            z, p, slope = self._expected(center, root, data, variances)
            hessian = self._gram(p, slope, data)
            arrays = {"anchor_p": p, "anchor_z": z, "anchor_slope": slope}
            if variances is not None:  # of several logits, walls need more than that
                rows["variance"] = torch.from_numpy(variances[:, 0]).float()
        gradient = self._sum_of_scores(p - self._labels(data), data)
        like = data.fields["x"].tensor_like()
        if self.k == 1:
            arrays = {name: values[:, 0] for name, values in arrays.items()}
        fields = {name: torch.from_numpy(values).to(like) for name, values in arrays.items()}
        return Anchor(fields, gradient, hessian, rows)

    def linear_rows(self, data: Data) -> LinearRows | None:
        return self._rows(data, Compiled("shares", 0.0, 0.0))  # rows are signed by their labels

    @property
    def prior_of_signed_rows(self) -> PriorSlopes | None:
        return self.prior.slopes if self.k == 1 and self.past is None else None


def predict_proba(coef: Array, intercept: Array, x: Any) -> Array:
    """Class probabilities (draws, rows, classes) for coefficients (draws, k, features)."""
    z = logits(coef, intercept, x)
    if z.shape[2] > 1:
        return np.asarray(softmax(z, axis=2))
    # not 1 - p, which is 0 if p rounds to 1; so logarithms of small probabilities remain finite
    return np.concatenate([expit(-z), expit(z)], axis=2)


def logits(coef: Any, intercept: Any, x: Any) -> Any:
    """Logits (draws, rows, k) for coefficients (draws, k, features), as arrays or tensors."""
    draws, k, features = coef.shape
    z = row_products(x, coef.reshape(draws * k, features)) + intercept.reshape(-1)
    return z.reshape(-1, draws, k).swapaxes(0, 1)


def _sum_zero_basis(k: int) -> Array:
    """Orthonormal columns that span all vectors of k entries with the sum zero."""
    if k == 1:
        return np.ones((1, 1))
    return np.asarray(scipy.linalg.helmert(k).T)
