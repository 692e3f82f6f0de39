r"""What linear models share: coefficients, priors, the maximum, the Gaussian approximation.

A row has the linear predictor :math:`z = x^\top w + b`, or k of them. Subclasses define the
likelihood of a row given z.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Batch, Data
from ..._draws.storage import decode, encode
from ..._limits import LIMITS
from ..._metric import State
from ...priors.factorised import Normal, Prior
from .._linalg import few_directions, inverse_root
from .._past import Past
from .._protocol import LinearRows
from ..designs.blocks import joined_over_blocks
from ..designs.design import DenseDesign, Design, SparseDesign, make_design
from ..likelihoods.slopes import Compiled
from ..tuning.auto import AUTO
from .centre import CentredModel
from .coefficient_priors import (
    CoefficientPrior,
    FixedScales,
    JoinedPriors,
    LearnedScales,
    ScalesOfFeatures,
    coefficient_prior,
)
from .group_priors import GroupedCoefficients, GroupTerm
from .row_space import RowSpace
from .sampled_scale import SampledScale


class LinearModel(CentredModel):
    """Base class of linear models.

    theta holds the effects of groups, the coefficients (n_features, k), the intercepts, the prior's
    own parameters and then the likelihood's.

    Parameters
    ----------
    n_features, k : int
        Numbers of features and of linear predictors.
    prior : Prior
        Prior of the coefficients.
    prior_scale : float, array of shape (n_features,), LearnedScale or ScalesOfFeatures
        Scale of the prior. An array has one scale for each feature. Learned scales need a normal
        prior; those of a LearnedScale are for coefficients in units of 1.
    n_intercepts : int
        Number of intercepts, which have a flat prior.
    own_shapes : dict of str to tuple or None, default=None
        Names and shapes of the likelihood's own parameters.
    terms : sequence of GroupTerm, default=()
        Effects of groups, for k = 1. Their columns come before those of the features.
    own_prior : Prior or None, default=None
        Prior of the likelihood's own parameters, with rates of 1. None: standard normal.
    """

    recordable = True
    #: whether a row says little of its predictors, as a class does. Those of counts, or of noise
    #: that may vanish, can be known nearly exactly, and then the coefficients, not those over
    #: their scale
    rows_say_little = False
    #: whether chains move the learned scale if the rows determine few of its coefficients
    may_move_scale = False
    #: whether :meth:`make_data` merges rows into as many as there are columns (``_merged_rows.py``)
    merges = False

    def __init__(
        self,
        n_features: int,
        k: int,
        prior: Prior,
        prior_scale: Any,
        n_intercepts: int,
        own_shapes: dict[str, tuple[int, ...]] | None = None,
        terms: Sequence[GroupTerm] = (),
        own_prior: Prior | None = None,
    ):
        self.n_features, self.k, self.terms = n_features, k, terms
        #: what the earlier rows of a stream say; it is the prior of these
        self.past: Past | None = None
        #: a position near the maximum, if one is known, where searches for it begin
        self.start: Array | None = None
        #: the coordinates of the coefficients, if they are those of the space of the rows
        self.row_space: RowSpace | None = None
        self.fit_intercept = n_intercepts > 0
        # several classes can often be separated
        n_relative = n_intercepts if k > 1 and self.rows_say_little else 0
        of_features = coefficient_prior(prior, prior_scale, n_features, k, n_intercepts, n_relative)
        bound = GroupedCoefficients(terms, of_features) if terms else of_features
        self.coefficient_prior: CoefficientPrior | GroupedCoefficients = bound
        self.smooth, self.tails, self.recorded = bound.smooth, bound.tails, bound.recorded
        self.shapes = {f"effect_{term.name}": (term.n_groups,) for term in terms}
        self.shapes["coef"] = (n_features, k)
        if n_intercepts:
            self.shapes["intercept"] = (n_intercepts,)
        #: numbers of coordinates that linear predictors use, and that the coefficients' prior has
        self.n_used = self.n_parameters
        self.shapes |= bound.shapes
        self.n_linear = self.n_parameters
        self.shapes |= own_shapes or {}
        self._own_names = tuple(own_shapes or {})
        #: how many coordinates linear predictors do not use; needed at every step
        self.n_others = self.n_parameters - self.n_used
        self.own_prior = Normal() if own_prior is None else own_prior
        #: the prior of all parameters
        self.prior: CoefficientPrior | JoinedPriors = bound
        if self.n_parameters > self.n_linear:
            of_own = FixedScales(self.own_prior, 1.0, self.n_parameters - self.n_linear, 1, 0)
            self.prior = JoinedPriors([bound, of_own], [self.n_linear])
        #: typical distances of the parameters from zero
        self.typical = self.prior.typical

    def in_space_of(self, X: Any, weight: Array | None) -> Self:
        """The same posterior in the coordinates of :class:`RowSpace`, if it suits the rows X."""
        prior = self.coefficient_prior
        if prior.normal is None or self.terms:
            return self
        scale: Any = 1.0
        space = RowSpace.of(X, self.k, prior.normal, weight)
        units = prior.normal if space is None else np.ones(space.rank)
        if isinstance(prior, LearnedScales):
            scale = ScalesOfFeatures(prior.hyper, units)
        model = self if space is None else self._with_scale(scale, len(units))
        if space is not None:
            model.row_space = space
            model.recorded = {**model.recorded, "beyond": (len(space.units), self.k)}
        # rows of several classes say little where these are separated, however many they are
        most = AUTO.scaled_rows if self.k > 1 else min(X.shape[1] // 2, AUTO.scaled_rows)
        few = space is not None or X.shape[0] <= most
        if isinstance(prior, LearnedScales) and few and self.rows_say_little:
            model = copy.copy(model)
            model.may_move_scale = len(units) * self.k > AUTO.integrated_scale
        return model

    def _with_scale(self, scale: Any, n_features: int) -> Self:
        """A copy with another scale of as many normal coefficients."""
        model, n_intercepts = copy.copy(self), self.shapes.get("intercept", (0,))[0]
        own = {name: self.shapes[name] for name in self._own_names}
        LinearModel.__init__(
            model, n_features, self.k, Normal(), scale, n_intercepts, own, (), self.own_prior
        )
        return model

    def bound(self, data: Data) -> Self:
        """The same posterior; its scale is a parameter where rows determine few coefficients."""
        prior = self.coefficient_prior
        if not (self.may_move_scale and isinstance(prior, LearnedScales)):
            return self
        if self.n_parameters <= LIMITS.full_hessian:
            place, hessian = self._newton(data)
            variances = np.square(inverse_root(hessian)).sum(1)
            if prior.known_share(place, variances) > AUTO.known_share:
                return self
        given = prior.units[:: self.k], self.k, self.shapes.get("intercept", (0,))[0]
        scale = SampledScale(prior.hyper, *given, prior.n_relative)
        model = self._with_scale(scale, len(given[0]))
        model.row_space, model.may_move_scale = self.row_space, False
        model.recorded = {**model.recorded, **self.recorded}
        return model

    def tails_at(self, center: Array, variances: Array) -> float:
        prior = self.coefficient_prior
        if not isinstance(prior, LearnedScales) or self.past is not None:
            return self.tails
        known = prior.known_share(center, variances)
        return 1.0 if known > AUTO.known_share else self.tails

    def merging(self, X: Any) -> Self:
        """The same model for the rows X merged into fewer, where these say the same."""
        return self

    def with_past(self, past: Past | None, near: Array | None) -> Self:
        model = copy.copy(self)
        model.past, model.start = past, near
        return model

    def init(self, rng: np.random.Generator) -> Array:
        """A normal position with mean zero and sd half the prior's scale, but at most 0.1."""
        return np.minimum(0.5 * self.typical, 0.1) * rng.standard_normal(self.n_parameters)

    def draw_recorded(self, theta: Array, rng: ChainRandom, temperatures: Array) -> Array:
        linear = theta[..., : self.n_linear]
        scales = self.coefficient_prior.draw_recorded(linear, rng, temperatures)
        if self.row_space is None:
            return scales
        scale = scales[..., 0] if scales.shape[2] else 1.0
        beyond = self.row_space.beyond(theta.shape[1], self.k, scale, rng)
        return np.concatenate([scales, beyond], axis=2)

    @property
    def scaled(self) -> tuple[int, int] | None:  # type: ignore[override]
        """How many numbers of theta follow a sampled scale, all before it; and its place.

        Intercepts do, too: they are as uncertain as predictors are wide.
        """
        place = self.n_linear - 1
        return (place, place) if isinstance(self.coefficient_prior, SampledScale) else None

    def move_recorded(self, recorded: Array, before: Array, now: Array) -> Array:
        n = self.n_linear
        return self.coefficient_prior.move_recorded(recorded, before[..., :n], now[..., :n])

    def _design(self, X: Any, dtype: torch.dtype, device: str) -> Design:
        """Rows of the features, in the coordinates of the coefficients."""
        X = X if self.row_space is None else self.row_space.rows(X)
        return make_design(X, dtype=dtype, device=device, intercept=self.fit_intercept)

    # prior ----------------------------------------------------------------------------------------

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        known = self.prior if self.past is None else self.past
        known.gradient(theta, out, scale)

    def log_prior(self, theta: Tensor) -> Tensor:
        known = self.prior if self.past is None else self.past
        return known.log_density(theta)

    def _prior_potential(self, theta: Array, sd: Array) -> tuple[float, Array]:
        """-log p(theta), averaged over N(theta, sd^2), and its gradient."""
        if self.past is not None:
            return self.past.potential(theta)
        return self.prior.expected_potential(theta, sd), self.prior.expected_gradient(theta, sd)

    def prior_hessian(self, theta: Array) -> Array:
        """Diagonal of the prior's curvature, averaged over typical distances."""
        if self.past is not None:
            return self.past.precision.diagonal().copy()
        return self.prior.expected_curvature(theta, self.typical)[0]

    def prior_hessian_times(self, theta: Array, vector: Array) -> Array:
        if self.past is not None:
            return np.asarray(self.past.precision @ vector)
        n, prior = self.n_linear, self.coefficient_prior
        if isinstance(prior, SampledScale):
            image = self.prior_hessian(theta) * vector
            image[:n] = prior.hessian_times(theta[:n], self.typical[:n], vector[:n])
            return image
        curvature, columns = self.prior.expected_curvature(theta, self.typical)
        return np.asarray(curvature * vector - columns @ (columns.T @ vector))

    def prior_curvature(self) -> float:
        return float(self.prior_hessian(np.zeros(self.n_parameters)).max())

    def linked(self, data: Data) -> Array | None:
        design, n = data.fields["x"], self.n_used
        if self.n_parameters < LIMITS.worth_sparse or self.k > 1 or self.past is not None:
            return None
        if not isinstance(design, SparseDesign):
            return None
        found = np.ones((self.n_parameters, self.n_parameters), dtype=bool)
        found[:n, :n] = (design.gram(np.ones(data.n_rows)) != 0.0) | np.eye(n, dtype=bool)
        return found

    def _rows(self, data: Data, likelihood: Compiled | None) -> LinearRows | None:
        """:meth:`linear_rows` with this likelihood, whose weights multiply the rows' own."""
        design, prior = data.fields["x"], self.prior.slopes
        known = self.k == 1 and self.past is None and type(design) in (DenseDesign, SparseDesign)
        if likelihood is None or prior is None or prior.laplace or not known:
            return None
        weight = 1.0 if data.weight is None else data.weight.double().cpu().numpy()
        parts = likelihood.shift, likelihood.target, weight * likelihood.weight
        shift, target, weight = (np.full(data.n_rows, part) for part in parts)
        filled = likelihood._replace(shift=shift, target=target, weight=weight)
        return LinearRows(design, filled, prior)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Arrays "coef" (..., k, n_features) and "intercept" (..., n_intercepts), and others."""
        parts = self.coefficient_prior.unpack(super().unpack(draws))
        if self.row_space is None:
            parts["coef"] = np.swapaxes(parts["coef"], -1, -2)
        else:
            within, beyond = decode(parts["coef"]), decode(parts.pop("beyond"))
            parts["coef"] = encode(self.row_space.coefficients(within, beyond), draws.dtype)
        return parts

    def _padded(self, vectors: Tensor) -> Tensor:
        """Vectors (leading, n_used), followed by zeros for the other parameters."""
        return torch.nn.functional.pad(vectors, (0, self.n_others)) if self.n_others else vectors

    # gradients of rows ----------------------------------------------------------------------------

    def _coefficients(self, theta: Tensor) -> Tensor:
        """Coefficients (chains, columns), or (chains, columns, k) for k predictors."""
        used = theta[:, : self.n_used]
        return used if self.k == 1 else used.reshape(len(theta), -1, self.k)

    def _pull_back(self, gradient: Tensor) -> Tensor:
        """Gradient in theta, from the gradient in the coefficients."""
        return self._padded(gradient.flatten(1))

    def _residuals(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """d(-log p) in predictors (chains, rows) or (chains, rows, k), and in own parameters.

        If the batch has control variates, they are subtracted.
        """
        raise NotImplementedError

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
        (r, own), design = self._residuals(theta, batch), batch.fields["x"]
        if isinstance(batch.weight, Tensor):
            weight = batch.weight.unsqueeze(-1)
            r = r * (batch.weight if self.k == 1 else weight)
            own = None if own is None else own * weight
        if self.k == 1 and out.shape[1] == self.n_used:
            design.accumulate(out, r, scale)
            return {}
        gradient = torch.zeros_like(self._coefficients(theta))
        design.accumulate(gradient, r, scale)
        out.add_(self._pull_back(gradient))
        if own is not None:
            out[:, self.n_linear :].add_(own.sum(1), alpha=scale)
        return {}

    def scores(self, theta: Tensor, batch: Batch) -> Tensor:
        x, (r, own) = batch.fields["x"].dense(), self._residuals(theta, batch)
        each = r[0][:, None] * x if self.k == 1 else torch.einsum("nd,nk->ndk", x, r[0])
        found = self._pull_back(-each)
        if own is not None:
            found[:, self.n_linear :] = -own[0]
        return found

    # likelihood, over all rows in float64 ---------------------------------------------------------

    def hessian(self, theta: Array, data: Data) -> Array:
        """Hessian of -log likelihood over all rows, (n_parameters, n_parameters)."""
        raise NotImplementedError

    def _weights(self, data: Data) -> Array | float:
        held = 1.0 if data.weight is None else data.weight.double().cpu().numpy()[:, None]
        return held * data.scale

    def _embedding(self) -> Array:
        """Matrix of the map from coordinates to the flattened (columns, k) coefficients."""
        return np.eye(self.n_used)

    @joined_over_blocks
    def variances(self, root: Array, data: Data) -> Array:
        """Variances (rows, k) of every row's predictors for theta ~ N(., root root').

        Where there are many parameters, small variances are those along few random directions: on
        average right, to about a third. Up to 0.01, they hardly change a row's curvature.
        """
        design, root = data.fields["x"], root[: self.n_used]
        full = (self._embedding() @ root if self.k > 1 else root).reshape(
            design.shape[1], self.k, root.shape[1]
        )
        some = few_directions(full.shape[2])
        found = np.empty((design.shape[0], self.k))
        for k in range(self.k):
            found[:, k] = design.moved_squares(full[:, k] if some is None else full[:, k] @ some)
            large = np.flatnonzero(found[:, k] > 0.01)
            if some is not None and len(large):
                found[large, k] = design[large].moved_squares(full[:, k])
        return found
