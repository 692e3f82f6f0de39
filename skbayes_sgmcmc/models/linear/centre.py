"""Centre and curvature of a linear model's posterior, from which chains begin, and its walls.

Newton's method or L-BFGS finds the maximum, and fixed-point steps the Gaussian approximation.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.optimize

from ..._arrays import Array
from ..._data.minibatch import Data
from .._linalg import inverse_root, less_outer
from .._past import Past
from .._protocol import Anchor
from ..designs.blocks import summed_over_blocks
from ..tuning.gaussian import CurvedModel, Fitted
from .coefficient_priors import CoefficientPrior, JoinedPriors
from .group_priors import GroupedCoefficients
from .sampled_scale import SampledScale

MAX_FIXED_POINT_STEPS = 15
MAX_SETTLING = 10
#: what sds are divided by at least
SMALLEST = np.finfo(float).tiny
#: most by which a step may multiply curvatures, which later steps halve; beyond, the average is
#: over a narrower Gaussian
MOST_NARROWED, MAX_HALVINGS = 100.0, 10


class CentredModel(CurvedModel):
    """Base class of :class:`LinearModel`: its centre, curvature and walls, from what that defines.

    Rows have walls at known distances, in units of their predictors, as those of classes and of
    counts have.
    """

    coefficient_prior: CoefficientPrior | GroupedCoefficients
    prior: CoefficientPrior | JoinedPriors
    #: typical distances of the parameters from zero
    typical: Array
    past: Past | None
    start: Array | None
    n_used: int
    n_linear: int
    rows_say_little: bool
    #: the maximum found when ``typical`` was set to the likely values of learned scales
    _settled: Array | None = None

    def _losses(self, theta: Array, data: Data) -> tuple[float, Array]:
        """-log likelihood of all rows and its gradient."""
        raise NotImplementedError

    def averages(self, theta: Array, root: Array, data: Data) -> tuple[Array, Array, Anchor | None]:
        """Gradient and Hessian of -log likelihood, averaged over theta + root N(0, I).

        Control variates come with them if the same pass makes them.
        """
        raise NotImplementedError

    def _prior_potential(self, theta: Array, sd: Array) -> tuple[float, Array]:
        """-log p(theta), averaged over N(theta, sd^2), and its gradient."""
        raise NotImplementedError

    def _margins(self, center: Array, data: Data) -> tuple[Array, Any] | None:
        """How far (rows,) the centre is before each row's wall, and what the walls' directions are.

        The second is for the two methods below.
        """
        raise NotImplementedError

    def _sds_of_margins(self, root: Array, walls: Any, data: Data) -> Array:
        """Sds (rows,) of the margins for theta ~ N(., root root')."""
        raise NotImplementedError

    def _largest_moves(self, directions: Array, walls: Any, data: Data) -> Array:
        """By how much (rows,) ``directions`` (n_parameters, m) move the margins at the most."""
        raise NotImplementedError

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
        if self._settled is not None or self.past is not None or not self.prior.pools:
            return
        self._settled = theta = self._first()
        for _ in range(MAX_SETTLING):
            before = self.typical
            self._settled = theta = self._maximum(theta, data, 50)
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
            for _ in range(MAX_HALVINGS):
                if not (averaged.diagonal() > MOST_NARROWED * hessian.diagonal()).any():
                    break
                # far away, curvature that grows exponentially says nothing of the posterior
                root, sd = 0.5 * root, 0.5 * sd
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
        """The maximum, and the curvature there.

        With ``held``, the likelihood's own parameters stay where they are.
        """
        value, theta, hessian = self._newton_from(
            self._first() if start is None else start, data, held
        )
        known = self._settled
        # many coefficients with a common scale can hold each other, and it, at zero
        if known is not None and self._potential(known, data, self.typical)[0] < value:
            _, theta, hessian = self._newton_from(known, data, held)
        return theta, hessian

    def _newton_from(self, theta: Array, data: Data, held: bool) -> tuple[float, Array, Array]:
        """Take damped Newton steps until the Newton decrement is far below a posterior sd.

        The potential there comes first.
        """
        sd = self.typical
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
        return value, theta, hessian

    # walls ----------------------------------------------------------------------------------------

    def walls(self, center: Array, root: Array, data: Data) -> tuple[Array, Array] | None:
        found = self._margins(center, data)
        if found is None:
            return None
        margin, walls = found
        sd = self._sds_of_margins(root, walls, data)
        certain = np.where(margin > 0.0, margin, np.inf)
        # of a row of weight 1: a weight of two must mean the same as two rows
        return certain / np.maximum(sd, SMALLEST), data.scale * sd

    def wall_correlations(self, center: Array, root: Array, data: Data) -> Array:
        found = self._margins(center, data)
        assert found is not None
        sds = np.sqrt(np.square(root).sum(1))
        scaled = root @ (root / np.maximum(sds, SMALLEST)[:, None]).T
        largest = self._largest_moves(scaled, found[1], data)
        return largest / np.maximum(self._sds_of_margins(root, found[1], data), SMALLEST)
