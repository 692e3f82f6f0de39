r"""What linear models share: coefficients, priors, the maximum, the Gaussian approximation.

A row has the linear predictor :math:`z = x^\top w + b`, or k of them. Subclasses define the
likelihood of a row given z.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.chain_random import ChainRandom
from ..._data.minibatch import Data
from ..._draws.storage import decode, encode
from ..._limits import LIMITS
from ..._metric import State
from ...priors.factorised import Normal, Prior
from .._linalg import few_directions, inverse_root, less_outer
from .._past import Past
from .._protocol import Anchor, LinearRows
from ..designs.blocks import joined_over_blocks, summed_over_blocks
from ..designs.design import DenseDesign, Design, SparseDesign, make_design
from ..likelihoods.slopes import Compiled
from ..tuning.auto import AUTO
from ..tuning.gaussian import Fitted
from .coefficient_priors import (
    CoefficientPrior,
    FixedScales,
    JoinedPriors,
    LearnedScales,
    ScalesOfFeatures,
    coefficient_prior,
)
from .group_priors import GroupedCoefficients, GroupTerm
from .margins import WalledModel
from .row_space import RowSpace
from .sampled_scale import SampledScale

MAX_FIXED_POINT_STEPS = 15
MAX_SETTLING = 10


class LinearModel(WalledModel):
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
        self._settled = False
        #: a position near the maximum, if one is known, where searches for it begin
        self.start: Array | None = None
        #: the coordinates of the coefficients, if they are those of the space of the rows
        self.row_space: RowSpace | None = None
        self.fit_intercept = n_intercepts > 0
        of_features = coefficient_prior(prior, prior_scale, n_features, k, n_intercepts)
        bound = GroupedCoefficients(terms, of_features) if terms else of_features
        self.coefficient_prior: CoefficientPrior | GroupedCoefficients = bound
        self.smooth, self.tails, self.recorded = bound.smooth, bound.tails, bound.recorded
        self.draw_recorded = None if bound.draw_recorded is None else self._draw_recorded
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
        """The same posterior in the coordinates of :class:`RowSpace`, if it suits the rows X.

        A learned scale is a parameter where rows say little of most of many coefficients.
        """
        prior = self.coefficient_prior
        if prior.normal is None or self.terms:
            return self
        scale: Any = 1.0
        space = RowSpace.of(X, self.k, prior.normal, weight)
        few = space is not None or X.shape[0] <= min(X.shape[1] // 2, AUTO.scaled_rows)
        units = prior.normal if space is None else np.ones(space.rank)
        width = len(units)
        n_intercepts = self.shapes.get("intercept", (0,))[0]
        if isinstance(prior, LearnedScales):
            scale = ScalesOfFeatures(prior.hyper, units)
            if few and self.rows_say_little and width * self.k > AUTO.integrated_scale:
                scale = SampledScale(prior.hyper, units, self.k, n_intercepts)
        if space is None and not isinstance(scale, SampledScale):
            return self
        model = copy.copy(self)
        own = {name: self.shapes[name] for name in self._own_names}
        LinearModel.__init__(
            model, width, self.k, Normal(), scale, n_intercepts, own, (), self.own_prior
        )
        model.row_space = space
        if space is not None:
            model.recorded = {**model.recorded, "beyond": (len(space.units), self.k)}
        model.draw_recorded = model._draw_recorded
        return model

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

    def _draw_recorded(self, theta: Array, rng: ChainRandom, temperatures: Array) -> Array:
        linear, prior = theta[..., : self.n_linear], self.coefficient_prior
        found = []
        if prior.draw_recorded is not None:
            found.append(prior.draw_recorded(linear, rng, temperatures))
        if self.row_space is not None:
            scale = found[0][..., 0] if found else 1.0
            found.append(self.row_space.beyond(theta.shape[1], self.k, scale, rng))
        return np.concatenate(found, axis=2)

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
        design, prior = data.fields["x"], self.prior.normal_parts
        known = self.k == 1 and self.past is None and type(design) in (DenseDesign, SparseDesign)
        if likelihood is None or prior is None or not known:
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

    def _padded_square(self, matrix: Array) -> Array:
        return np.pad(matrix, (0, self.n_others)) if self.n_others else np.asarray(matrix)

    # likelihood, over all rows in float64 ---------------------------------------------------------

    def _losses(self, theta: Array, data: Data) -> tuple[float, Array]:
        """-log likelihood of all rows and its gradient."""
        raise NotImplementedError

    def hessian(self, theta: Array, data: Data) -> Array:
        """Hessian of -log likelihood over all rows, (n_parameters, n_parameters)."""
        raise NotImplementedError

    def expected_curvature(self, theta: Array, root: Array, data: Data) -> tuple[Array, Array]:
        """Gradient and Hessian of -log likelihood, averaged over theta + root N(0, I)."""
        raise NotImplementedError

    def averages(self, theta: Array, root: Array, data: Data) -> tuple[Array, Array, Anchor | None]:
        """:meth:`expected_curvature`, and control variates if the same pass makes them."""
        return *self.expected_curvature(theta, root, data), None

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

    # centre and curvature -------------------------------------------------------------------------

    def _potential(self, theta: Array, data: Data, sd: Array) -> tuple[float, Array]:
        """U and its gradient, with the prior averaged over N(theta, sd^2)."""
        value, gradient = self._losses(theta, data)
        prior, slope = self._prior_potential(theta, sd)
        return value + prior, gradient + slope

    def find_map(self, data: Data, n_steps: int = 300) -> Array:
        """The posterior's maximum; the prior is averaged over its own scale, without corners.

        ``n_steps`` is the most steps of the search; each passes over all rows.
        """
        self._settle(data)
        return self._maximum(self._first(), data, n_steps)

    def _settle(self, data: Data) -> None:
        """Set typical distances from zero, once, to those of the learned scales' likely values."""
        if self._settled or self.past is not None or not self.prior.pools:
            return
        self._settled, theta = True, self._first()
        for _ in range(MAX_SETTLING):
            before = self.typical
            theta = self._maximum(theta, data, 50)
            curvature = self.hessian_diagonal(theta, data)
            assert curvature is not None
            self.typical = self.prior.likely(theta, curvature, before)
            if np.allclose(self.typical, before, rtol=0.1):
                return

    def _maximum(self, theta: Array, data: Data, n_steps: int) -> Array:
        """:meth:`find_map` from ``theta``, with the scales as they are."""
        sd = self.typical
        # coordinates where the curvature there has a unit diagonal
        curvature = self.hessian_diagonal(theta, data) + self.prior_hessian(theta)
        stretch = 1.0 / np.sqrt(curvature)

        def objective(z: Array) -> tuple[float, Array]:
            value, gradient = self._potential(stretch * z, data, sd)
            return value, stretch * gradient

        options = {"maxiter": n_steps, "maxcor": 30}
        found = scipy.optimize.minimize(
            objective, theta / stretch, jac=True, method="L-BFGS-B", options=options
        )
        return np.asarray(stretch * found.x)

    def _first(self) -> Array:
        """Where a search for the maximum begins."""
        known = self.start if self.past is None or self.start is not None else self.past.center
        return np.zeros(self.n_parameters) if known is None else known

    def fit_gaussian(self, data: Data, temperature: float = 1.0) -> tuple[Array, Array]:
        """Mean m and precision H of the Gaussian approximation N(m, T H^-1) of the posterior.

        Newton's method finds the MAP. Fixed-point steps then solve the Gaussian variational
        equations E[grad U] = 0, E[hessian U] = H. The gradient and the curvature, averaged over
        the approximation itself, remain right for separable classes and rare features, where those
        at the MAP mislead.

        Many rows are looked at only to correct the approximation for a part of them, which is off
        by a few of all rows' posterior sds: for its curvature mostly once.
        """
        return self.fitted(data, temperature)[:2]

    def fitted(self, data: Data, temperature: float = 1.0) -> Fitted:
        part = self.stand_in(data)
        self._settle(data if part is None else part)
        if temperature == 0.0:  # the target is concentrated at the maximum
            return Fitted(*self._newton(data, None if part is None else self._newton(part)[0]))
        if part is None:
            theta, hessian = self._newton(data, held=self._noise_may_vanish(data))
        else:
            theta, hessian = self.fit_gaussian(part, temperature)
            theta = self._brought_near(theta, hessian, data)
        farthest, new_root = float(len(theta)), inverse_root(hessian)
        for step in range(MAX_FIXED_POINT_STEPS):
            root = new_root * math.sqrt(temperature)
            sd = np.sqrt(np.square(root).sum(1))
            gradient, averaged, anchor = self.averages(theta, root, data)
            averaged = self._curved(averaged.copy(), theta, sd)
            # half a step: full steps can oscillate between wide and narrow approximations
            hessian = averaged if part is not None else 0.5 * (hessian + averaged)
            gradient = gradient + self._prior_potential(theta, sd)[1]
            new_root, at = inverse_root(hessian), theta
            move = -new_root @ (new_root.T @ gradient)
            # both changes in units of the posterior's sd
            moved = -float(gradient @ move) / temperature
            if moved > farthest:
                move *= math.sqrt(farthest / moved)
            theta = theta + move
            if 2 * step >= MAX_FIXED_POINT_STEPS:  # moves that go on growing would never end
                farthest = min(farthest, moved)
            widened = np.abs(np.log(np.square(new_root).sum(1) * temperature / sd**2)).max()
            # many rows have nearly the same curvature a third of an sd away, and for another width
            near, alike = (1e-3, 0.05) if part is None else (0.1, 0.2)
            if moved < near * len(theta) and widened < alike:
                break
        if isinstance(self.coefficient_prior, SampledScale):
            self.coefficient_prior.settle(theta, sd, hessian, self.n_linear - 1)
        if part is None or anchor is None:
            return Fitted(theta, hessian)
        return Fitted(theta, hessian, replace(anchor, center=at))

    @summed_over_blocks
    def _losses_and_diagonal(self, theta: Array, data: Data) -> tuple[float, Array, Array]:
        """-log likelihood, its gradient, and the diagonal of its Hessian, in one pass."""
        diagonal = self.hessian_diagonal(theta, data)
        assert diagonal is not None
        return *self._losses(theta, data), diagonal

    def _brought_near(self, theta: Array, hessian: Array, data: Data) -> Array:
        """A position within a third of a posterior sd of the maximum, from the fit of a part.

        The part's curvature is right to about 15%, but for features that it hardly contains: its
        diagonal is corrected.
        """
        sd = self.typical
        value, gradient, diagonal = self._losses_and_diagonal(theta, data)
        prior, slope = self._prior_potential(theta, sd)
        value, gradient = value + prior, gradient + slope
        diagonal = diagonal + self.prior_hessian(theta)
        root = inverse_root(hessian) * np.sqrt(hessian.diagonal() / diagonal)[:, None]
        for _ in range(5):
            move = -root @ (root.T @ gradient)
            left = -float(gradient @ move)
            if left < 2.0 * len(theta):  # the next step leaves a fiftieth of it
                return np.asarray(theta + move)
            new_value, gradient = self._potential(theta + move, data, sd)
            if not new_value < value:
                break
            theta, value = theta + move, new_value
        return theta

    def _curved(self, hessian: Array, theta: Array, sd: Array) -> Array:
        """A Hessian of the likelihood plus that of the prior, averaged over N(theta, sd^2).

        Learned scales take at most 95% of the curvature in some direction away. The posterior is
        wider there, but less so than its curvature at one point tells.
        """
        if self.past is not None:
            return np.asarray(hessian + self.past.precision)
        diagonal, columns = self.prior.expected_curvature(theta, sd)
        hessian[np.diag_indices_from(hessian)] += diagonal
        return less_outer(hessian, columns, 0.95)

    def _noise_may_vanish(self, data: Data) -> bool:
        """Whether the maximum may fit all rows exactly, where hardly any of the posterior is."""
        own = self.n_parameters > self.n_linear and not self.rows_say_little
        return own and self.past is None and self.n_used >= data.n_rows

    def _newton(
        self, data: Data, start: Array | None = None, held: bool = False
    ) -> tuple[Array, Array]:
        """Take damped Newton steps until the Newton decrement is far below a posterior sd.

        With ``held``, the likelihood's own parameters stay where they are.
        """
        theta, sd = self._first() if start is None else start, self.typical
        value, gradient = self._potential(theta, data, sd)
        moving = self.n_linear if held else self.n_parameters
        for _ in range(50):
            hessian = self.hessian(theta, data)
            if self.past is None:
                hessian[np.diag_indices_from(hessian)] += self.prior_hessian(theta)
            else:
                hessian = hessian + self.past.precision
            root = inverse_root(hessian[:moving, :moving])
            move = np.zeros_like(theta)
            move[:moving] = -root @ (root.T @ gradient[:moving])
            decrement = -float(gradient @ move)
            if decrement < 1e-2:
                break
            for halving in range(30):
                trial = theta + 0.5**halving * move
                new_value, new_gradient = self._potential(trial, data, sd)
                if new_value <= value - 1e-4 * 0.5**halving * decrement:
                    break
            else:
                break  # no descent left within rounding
            theta, value, gradient = trial, new_value, new_gradient
        return theta, hessian
