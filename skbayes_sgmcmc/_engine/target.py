"""The mean potential and its stochastic gradient. Only this module computes the factor N/n.

With N data (the sum of the sample weights, or ``total_samples``),

    u(theta) = -(1/N) [log p(theta) + sum_i w_i log p(d_i | theta)]
    g(theta) = -(1/N) [grad log p(theta) + (rows / n) sum_{i in batch} w_i grad log p(d_i | theta)]

so that E[g] = grad u. The target is the density proportional to exp(-N u / T), which is the
posterior at T = 1. With a constant preconditioner, the sampler moves phi, where
theta = center + root phi, with the gradient root' g. Plain dynamics in phi are dynamics in theta
with the preconditioner M = root root'.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._data.minibatch import Batch, Data, Minibatches
from .._draws.storage import decode, dtype_name
from .._exceptions import not_allowed
from .._limits import LIMITS
from .._metric import State
from .._validation import check_choice
from ..models._linalg import is_sparse
from ..models._protocol import Anchor, Model
from ..models.designs.batches import Product

#: gradient estimators by name, with the order of their control variates
GRADIENTS = {"minibatch": 0, "control_variates": 1, "linear_control_variates": 2}


@dataclass(frozen=True)
class Coordinates:
    """Coordinates phi with theta = center + root phi.

    ``root`` has shape (P, P), or (P,) for a diagonal preconditioner. With ``few``, orthonormal
    columns V (P, r) and numbers c (r,), the latter is diag(root) (1 - V diag(c) V'), where a few
    directions have another length. A matrix with few numbers that are not zero is kept as a CSR
    matrix, too, with its transpose.

    With ``scaled`` = m, j, the first m numbers w of theta have a scale with the logarithm theta_j,
    and w over its scale is linear in phi: with l = theta_j - center_j, w is not center + away, but
    exp(l) (center + away - l center), which is the same for small l.
    """

    center: Tensor
    root: Tensor
    few: tuple[Tensor, Tensor] | None = None
    sparse: tuple[Any, Any] | None = None
    scaled: tuple[int, int] | None = None

    @classmethod
    def from_arrays(
        cls,
        center: Array,
        root: Array,
        like: Tensor,
        few: tuple[Array, Array] | None = None,
        scaled: tuple[int, int] | None = None,
    ) -> Coordinates:
        def sent(array: Array) -> Tensor:
            return torch.from_numpy(array).to(like)

        changed = None if few is None else (sent(few[0]), sent(few[1]))
        pair = None
        if root.ndim == 2 and like.device.type == "cpu" and is_sparse(root):
            csr = sp.csr_matrix(root.astype(dtype_name(like.dtype)))
            pair = csr, csr.T.tocsr()
        return cls(sent(np.asarray(center)), sent(root), changed, pair, scaled)

    def to(self, dtype: torch.dtype) -> Coordinates:
        """The same coordinates in another precision."""
        few = None if self.few is None else (self.few[0].to(dtype), self.few[1].to(dtype))
        pair = self.sparse
        if pair is not None:
            pair = pair[0].astype(dtype_name(dtype)), pair[1].astype(dtype_name(dtype))
        return Coordinates(self.center.to(dtype), self.root.to(dtype), few, pair, self.scaled)

    def _changed(self, phi: Tensor) -> Tensor:
        """(1 - V diag(c) V') phi."""
        if self.few is None:
            return phi
        V, c = self.few
        return phi - (phi @ V).mul_(c) @ V.t()

    def offset(self, phi: Tensor) -> Tensor:
        """theta - center."""
        if self.sparse is not None:
            return _times(self.sparse[0], phi)
        return self._changed(phi) * self.root if self.root.ndim == 1 else phi @ self.root.t()

    def to_theta(self, phi: Tensor) -> Tensor:
        theta = self.offset(phi).add_(self.center)
        if self.scaled is not None:
            m, log_factor = self.scaled[0], self.log_factor(theta)[..., None]
            theta[..., :m] -= log_factor * self.center[:m]
            theta[..., :m] *= torch.exp(log_factor)
        return theta

    def log_factor(self, theta: Tensor) -> Tensor:
        """Logarithms (...) of what numbers of theta are multiplied by."""
        assert self.scaled is not None
        j = self.scaled[1]
        return theta[..., j] - self.center[j]

    def log_det(self, theta: Tensor) -> Tensor | float:
        """Logarithm of the determinant of theta's derivative by phi, but for a constant."""
        return 0.0 if self.scaled is None else self.scaled[0] * self.log_factor(theta)

    def from_theta(self, theta: Tensor) -> Tensor:
        away = theta - self.center
        if self.scaled is not None:
            m, log_factor = self.scaled[0], self.log_factor(theta)[:, None]
            plain = theta[:, :m] * torch.exp(-log_factor)
            away[:, :m] = plain - (1.0 - log_factor) * self.center[:m]
        if self.root.ndim == 2:
            return torch.linalg.solve(self.root, away.t()).t().contiguous()
        away = away / self.root
        if self.few is None:
            return away
        V, c = self.few
        return away + (away @ V).mul_(c / (1.0 - c)) @ V.t()

    def pull_back(self, g: Tensor, theta: Tensor, share: float = 0.0) -> Tensor:
        """The gradient by phi of what has the gradient g by theta, less share * :meth:`log_det`."""
        if self.scaled is not None:
            m, j = self.scaled
            g = g.clone()
            g[:, j] += (g[:, :m] * theta[:, :m]).sum(1) - share * m
            g[:, :m] *= torch.exp(self.log_factor(theta))[:, None]
            g[:, j] -= g[:, :m] @ self.center[:m]
        if self.sparse is not None:
            return _times(self.sparse[1], g)
        return self._changed(g.mul_(self.root)) if self.root.ndim == 1 else g @ self.root


def _times(matrix: Any, vectors: Tensor) -> Tensor:
    """Products of a sparse matrix with vectors (..., n)."""
    flat = vectors.reshape(-1, vectors.shape[-1]).t()
    found: Tensor = Product.apply(flat, matrix)
    return found.t().reshape(vectors.shape).contiguous()


class Target:
    """The target density: a model with its data, in given coordinates. None: phi is theta.

    With the gradient estimator "control_variates" (Baker et al. 2019), minibatches estimate the
    difference from the gradient at ``center`` (n_parameters,), which is known exactly. With
    "linear_control_variates", they estimate the difference from a linear function of theta. This
    function is fitted under the Gaussian approximation that ``coordinates`` and ``temperature``
    describe, unless it is known: ``anchor``. ``dtype`` and ``device`` are those of positions.
    """

    def __init__(
        self,
        model: Model,
        data: Data,
        *,
        coordinates: Coordinates | None = None,
        gradient: str = "minibatch",
        center: Array | None = None,
        temperature: float = 1.0,
        anchor: Anchor | None = None,
        dtype: torch.dtype = torch.float64,
        device: str = "cpu",
    ):
        check_choice("gradient", gradient, GRADIENTS)
        self.model = model
        self.data = self._rows = data
        self.n = data.total
        self.coordinates = coordinates
        self.gradient = gradient
        self.center = center
        self.temperature = temperature
        self.like = torch.empty(0, dtype=dtype, device=device)
        self._anchor_gradient: Tensor | None = None
        self._anchor_hessian: Tensor | None = None
        if GRADIENTS[gradient]:
            self._set_anchor(GRADIENTS[gradient], anchor)

    def _set_anchor(self, order: int, anchor: Anchor | None) -> None:
        """Compute the control variates: their exact sums, and their fields for each row."""
        root = None
        anchor = anchor if order == 2 else None
        if anchor is None and self.center is not None and self.model.after_step is None:
            if order == 2 and self.coordinates is not None and self.coordinates.root.ndim == 2:
                spread = np.sqrt(self.temperature / self.n)
                root = np.asarray(self.coordinates.root.double().cpu()) * spread
            anchor = self.model.anchor(self.center, self.data, root)
        if anchor is None or (anchor.hessian is None) != (order == 1):
            raise not_allowed(
                f"gradient={self.gradient!r} is not allowed: it needs control variates, which "
                f"{type(self.model).__name__} does not have"
                + (", and a full matrix as preconditioner" if order == 2 else "")
                + "; give gradient='minibatch'."
            )
        self.data = replace(self.data, fields=self.data.fields | anchor.fields)
        center = self.center if anchor.center is None else anchor.center
        self._center = torch.from_numpy(center).to(self.like)[None]
        self._anchor_gradient = torch.from_numpy(anchor.gradient / self.n).to(self.like)[None]
        if anchor.hessian is not None:
            self._anchor_hessian = torch.from_numpy(anchor.hessian / self.n).to(self.like)

    @cached_property
    def conditionals(self) -> Any:
        """The model's conditional distributions for all rows, or None."""
        return self.model.conditionals(self.data)

    def with_model(self, model: Model) -> Target:
        """A copy of the target with another model that has the same densities."""
        target = copy.copy(self)
        target.model = model
        return target

    def without_control_variates(self) -> Target:
        """A copy of the target with the gradients of the minibatches alone.

        If all rows are in every step, both are the same, and this one is less work.
        """
        target = copy.copy(self)
        target.gradient, target.data = "minibatch", self._rows
        target._anchor_gradient = target._anchor_hessian = None
        return target

    def likelihood_scale(self, minibatches: Minibatches) -> float:
        """The factor (rows/n)/N of the sum over a minibatch's rows, which is applied once."""
        return minibatches.factor * self.data.scale / self.n

    def tensors(self, state: dict[str, Array], chains: list[int]) -> dict[str, Tensor]:
        """A stored state of some chains, on the run's device and in its dtype."""
        like = self.like
        found = {name: torch.from_numpy(values[chains]) for name, values in state.items()}
        return {
            name: values.to(like if values.is_floating_point() else like.device)
            for name, values in found.items()
        }

    def to_theta(self, phi: Tensor) -> Tensor:
        return phi if self.coordinates is None else self.coordinates.to_theta(phi)

    def from_theta(self, theta: Tensor) -> Tensor:
        return theta if self.coordinates is None else self.coordinates.from_theta(theta)

    def potential(self, phi: Tensor) -> Tensor:
        """Mean potential u of phi over all data, shape (chains,)."""
        theta = self.to_theta(phi)
        moved = 0.0 if self.coordinates is None else self.coordinates.log_det(theta)
        log_joint = self.model.log_prior(theta) + self.log_likelihood(theta)
        return -(log_joint + moved) / self.n

    def log_likelihood(self, theta: Tensor) -> Tensor:
        """log p(data | theta) of positions (chains, n_parameters), shape (chains,)."""
        found: Any = 0.0
        for _, block in self.data.blocks():
            batch = block.all_rows()
            rows = (self.model.log_lik(theta, batch) * batch.weight).sum(1)
            found = found + rows * self.data.scale
        return torch.as_tensor(found, device=theta.device)

    @torch.no_grad()  # a density may have parameters of its own
    def log_joint_of_rows(self, theta: Array, most: int) -> Array:
        """log p(theta) + log p(data | theta) of positions (draws, n_parameters), shape (draws,).

        The latter is estimated from at most ``most`` evenly spaced rows.
        """
        found = []
        for some in LIMITS.blocks(*theta.shape):
            positions = torch.from_numpy(decode(theta[some])).to(self.like)
            rows = self.mean_of_rows(self.model.log_lik, positions, most)
            log_p = self.model.log_prior(positions) + rows * (self.data.scale * self.data.n_rows)
            found.append(log_p.cpu().numpy())
        return np.concatenate(found)

    def mean_of_rows(
        self, log_lik: Callable[[Tensor, Batch], Tensor], theta: Tensor, most: int
    ) -> Tensor:
        """Mean (positions,) of ``log_lik`` over at most ``most`` evenly spaced rows."""
        batch = self.some_rows(most)
        rows = log_lik(theta, batch) * batch.weight
        return rows.sum(1, dtype=torch.float64) / batch.size

    def some_rows(self, most: int) -> Batch:
        """At most ``most`` evenly spaced rows, as they are."""
        data, every = replace(self.data, augment=None), -(-self.data.n_rows // most)
        if every == 1:
            return data.all_rows()
        index = np.arange(0, data.n_rows, every)
        return Minibatches(data, len(index)).batch_of(index)


class Evaluator:
    """Computes gradients for one group of chains; holds their minibatch, state and buffers."""

    def __init__(
        self,
        target: Target,
        minibatches: Minibatches,
        rng: ChainRandom,
        state: State,
        *,
        split: bool,
    ):
        self.target = target
        self.rng = minibatches.random(rng, type(target.model).__name__)
        self.state = state
        self.batch = Batch({}, 1.0, True, 0)  # set before every step
        self.aux: dict[str, Tensor] = {}
        self._scale = target.likelihood_scale(minibatches)
        self._minibatches, self._add_up = minibatches, minibatches.add_up
        #: the precision of gradients, and the coordinates in it
        self._dtype = minibatches.dtype or target.like.dtype
        self._coordinates = target.coordinates
        if self._coordinates is not None:
            self._coordinates = self._coordinates.to(self._dtype)
        #: whether the rows' part of the gradient has a buffer of its own, which is added up
        self._apart = split or minibatches.divided
        self._likelihood: Tensor | None = None
        self._g: Tensor | None = None

    def without_replays(self) -> AbstractContextManager[None]:
        """While it is open, gradients are computed, and none is a replay of a recording."""
        return nullcontext()

    def gradient(self, phi: Tensor) -> Tensor:
        """g at phi for the current minibatch. The next call overwrites the returned tensor."""
        target = self.target
        theta, g, data_part = self._begun(phi)
        self.aux = target.model.likelihood_gradient(
            theta, self.batch, self.state, self.rng, out=data_part, scale=self._scale
        )
        self._add_up(data_part, *self.aux.values())
        if target._anchor_gradient is not None:
            data_part.add_(target._anchor_gradient)
            if target._anchor_hessian is not None:
                data_part.addmm_(theta - target._center, target._anchor_hessian)
        return self._finished(g, theta).to(phi.dtype)

    def value_and_gradient(self, phi: Tensor) -> tuple[Tensor, Tensor]:
        """The mean potential of the minibatch, (chains,) in float64, and g at phi."""
        model, n = self.target.model, self.target.n
        theta, g, data_part = self._begun(phi)
        self.aux = {}
        value = model.prior_potential(theta, self.state).double() / n
        rows = model.value_and_gradient(
            theta, self.batch, self.state, self.rng, out=data_part, scale=self._scale
        )
        self._add_up(data_part, rows)
        value += rows
        if self._coordinates is not None:
            value -= self._coordinates.log_det(theta) / n
        return value, self._finished(g, theta)

    def _begun(self, phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """theta, a buffer with the prior's gradient, and where that of the rows is added."""
        theta = phi.to(self._dtype)
        theta = theta if self._coordinates is None else self._coordinates.to_theta(theta)
        g = self._buffer(theta)
        self.target.model.prior_gradient(theta, self.state, g, 1.0 / self.target.n)
        return theta, g, g if self._likelihood is None else self._likelihood.zero_()

    def _finished(self, g: Tensor, theta: Tensor) -> Tensor:
        """The gradient by phi, of all parts."""
        if self._likelihood is not None:
            g.add_(self._likelihood)
        if self._coordinates is None:
            return g
        return self._coordinates.pull_back(g, theta, 1.0 / self.target.n)

    def variance(self, phi: Tensor) -> Tensor:
        """Variance of g over minibatches, estimated from the gradients of the current one's rows.

        Rows are drawn without replacement, so it is 0 if every step uses all of them.
        """
        coordinates, n, n_rows = self._coordinates, self._minibatches.size, self.target.data.n_rows
        if self._minibatches.full:
            return torch.zeros_like(phi)
        if n == 1:
            raise not_allowed(
                "batch_size=1 is not allowed with gradient_variance='fisher': a single row does "
                "not tell how rows differ; give at least 2, or gradient_variance='estimate'."
            )
        theta = phi if coordinates is None else coordinates.to_theta(phi)
        rows = self.target.model.row_gradients(theta, self.batch, self.state, self.rng)
        if coordinates is not None:
            each = theta.repeat_interleave(rows.shape[1], 0)
            rows = coordinates.pull_back(rows.flatten(0, 1), each).view_as(rows)
        mean = rows.sum(1, keepdim=True).div_(n)
        self._add_up(mean)
        square = rows.sub_(mean).square_().sum(1)
        self._add_up(square)
        return square.mul_(self._scale**2 * n / (n - 1.0) * (1.0 - n / n_rows))

    def _buffer(self, like: Tensor) -> Tensor:
        if self._g is None or self._g.shape != like.shape:
            self._g = torch.empty_like(like)
            self._likelihood = torch.empty_like(like) if self._apart else None
        return self._g

    def likelihood(self) -> Tensor:
        """The part of the latest gradient that comes from the data."""
        assert self._likelihood is not None
        return self.aux.get("likelihood", self._likelihood)
