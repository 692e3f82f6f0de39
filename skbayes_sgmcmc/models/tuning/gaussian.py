"""Meaning of "auto" for nearly Gaussian posteriors: whitened coordinates, or a metric.

With ``step_size="auto"``, the posterior is first approximated by a Gaussian N(m, H^-1). In the
coordinates phi with theta = m + root phi and root root' = (H/N)^-1, the posterior is close to
N(0, I/N), whatever the scales and correlations of the features. One dimensionless step size for
each sampler and integrator therefore suits all data sets (the table in ``samplers/__init__.py``).
The gradient is estimated with linear control variates. Minibatches draw each row with a probability
that follows the size of its remainder, and are made large enough for little noise.

Beyond ``LIMITS.full_hessian`` parameters, the preconditioner is the diagonal of the curvature, the
step size is divided by the largest remaining curvature (Lanczos iteration), and control variates
are of first order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Data, Minibatches
from ..._data.row_odds import RowOdds
from ..._exceptions import not_allowed
from ..._limits import LIMITS
from ..._validation import is_auto
from .._linalg import inverse_root
from .._protocol import Anchor, Model
from .auto import AUTO
from .base import STEP_REMEDY, AutoValues, Request, Tuning, preconditions
from .gradient_noise import largest_second_moment, noise_in_tail
from .walls import step_at_walls
from .whitening import Whitened, between, root_of

if TYPE_CHECKING:
    from ...samplers import Sampler


class Fitted(NamedTuple):
    """A Gaussian approximation N(mean, T precision^-1) of a posterior.

    ``anchor`` are linear control variates that were made on the way, if there are any.
    """

    mean: Array
    precision: Array
    anchor: Anchor | None = None


class CurvedModel(Model):
    """Base class of models with a known centre and curvature; it adds ``step_size="auto"``.

    Subclasses must define ``find_map``, ``hessian_times`` and ``prior_hessian``. The other methods
    are optional; their docstrings say what they add. All methods compute over all rows, in float64
    with NumPy.
    """

    #: how many times as many steps the draws of small data need because of the prior's long tails
    tails: float = 1.0
    counts_products = True

    def stand_in(self, data: Data) -> Data | None:
        """A random part of many rows, for what needs not be exact; None if there are too few.

        With 50 rows for each parameter, directions' curvatures are right to about 30%.
        """
        n_rows = max(LIMITS.part_rows, 50 * self.n_parameters)
        return data.part(n_rows) if data.n_rows >= AUTO.parts * n_rows else None

    @property
    def tuning(self) -> Tuning:
        return WhitenedGaussian(self)

    def find_map(self, data: Data) -> Array | None:
        """The maximum of the posterior, shape (n_parameters,); None if none was found."""
        raise NotImplementedError

    def hessian_times(self, theta: Array, vector: Array, data: Data) -> Array:
        """The Hessian of -log likelihood over all rows at ``theta``, times a vector."""
        raise NotImplementedError

    def hessian(self, theta: Array, data: Data) -> Array:
        """The Hessian of -log likelihood over all rows at ``theta``, for few parameters."""
        unit = np.eye(self.n_parameters)
        return np.stack([self.hessian_times(theta, vector, data) for vector in unit], 1)

    def prior_hessian(self, theta: Array) -> Array:
        """Diagonal of the Hessian of -log prior at ``theta``."""
        raise NotImplementedError

    def prior_hessian_times(self, theta: Array, vector: Array) -> Array:
        """The Hessian of -log prior at ``theta``, times a vector, if it is not diagonal."""
        return self.prior_hessian(theta) * vector

    def fit_gaussian(self, data: Data, temperature: float = 1.0) -> tuple[Array, Array] | None:
        """Mean and precision H of a Gaussian approximation N(mean, T H^-1) of the posterior.

        It is needed for ``preconditioner="hessian"``, which "auto" uses up to 2,000 parameters.
        """
        return None

    def fitted(self, data: Data, temperature: float = 1.0) -> Fitted | None:
        """:meth:`fit_gaussian`, with control variates if it has made them."""
        found = self.fit_gaussian(data, temperature)
        return None if found is None else Fitted(*found)

    def tails_at(self, center: Array, variances: Array) -> float:
        """:attr:`tails`, or 1 where the data leave none to the posterior.

        The posterior is approximated by a Gaussian with this centre and these variances
        (n_parameters,).
        """
        return self.tails

    def linked(self, data: Data) -> Array | None:
        """Which parameters rows depend on together (P, P), if most rows depend on few of many."""
        return None

    def hessian_diagonal(self, theta: Array, data: Data) -> Array | None:
        """Diagonal of the Hessian of -log likelihood over all rows at ``theta``.

        It is needed for ``preconditioner="diagonal"``, which "auto" uses beyond 2,000 parameters,
        and for samplers that precondition by themselves.
        """
        return None

    def remainders(self, center: Array, root: Array, data: Data) -> Array | None:
        """Root mean squares of what linear control variates leave of every row's gradient.

        The mean is over theta ~ N(center, root root'), and the square that of the length of the
        gradient of -log p(row) times root; shape (rows,). It is needed for minibatches that draw
        rows with unequal probabilities, which "auto" uses with linear control variates.
        """
        return None

    def walls(self, center: Array, root: Array, data: Data) -> tuple[Array, Array] | None:
        """Rows with hardly any curvature at the centre, and a constant gradient beyond some point.

        Returned are how many sds away from the centre this point is, for theta ~ N(center, root
        root'), and the length of the gradient of -log p(row) beyond it, without the row's weight,
        times root; shapes (rows,). It is called with blocks of rows. Without it, step sizes know
        nothing of such rows.
        """
        return None

    def wall_correlations(self, center: Array, root: Array, data: Data) -> Array:
        """Each row's largest correlation of the direction of its wall with a parameter; (rows,)."""
        raise NotImplementedError


class WhitenedGaussian(Tuning):
    """Tuning for nearly Gaussian posteriors, in coordinates with the covariance I/N."""

    model: CurvedModel
    #: more than elsewhere, because chains with momentum need fewer steps than with minibatches
    whole_numbers = 2**17

    def __init__(self, model: CurvedModel):
        super().__init__(model)
        n_parameters, n_kept = model.n_parameters, model.n_kept
        if n_kept > LIMITS.full_hessian:
            fitting = max(AUTO.least_draws, AUTO.drawn_numbers // n_kept)
            self.most_draws = min(self.most_draws, fitting)
        if n_parameters > LIMITS.full_hessian:
            self.whole_numbers = max(self.whole_numbers, AUTO.whole_per_parameter * n_parameters)

    # centre and curvature -------------------------------------------------------------------------

    def find_map(self, data: Data) -> Array | None:
        return self.model.find_map(data)

    def curvature(
        self, preconditioner: str, data: Data, temperature: float
    ) -> tuple[Array, Array] | None:
        model = self.model
        if preconditioner == "hessian":
            fitted = model.fit_gaussian(data, temperature)
            return None if fitted is None else (fitted[0], inverse_root(fitted[1] / data.total))
        center = model.find_map(data)
        diagonal = None if center is None else model.hessian_diagonal(center, data)
        if center is None or diagonal is None:
            return None
        return center, 1.0 / np.sqrt((diagonal + model.prior_hessian(center)) / data.total)

    # before a run ---------------------------------------------------------------------------------

    def default_sampler(
        self, data: Data, settings: Any, *, more_rows: bool = False, whole: bool = False
    ) -> str:
        """Gibbs sampling for conjugate models; momentum if steps take all rows; else SGLD.

        Who asks for steps, streams or the maximum (T = 0) has SGLD. Momentum forgets sooner where
        the posterior is not normal, but noise of minibatches, which it averages less, would make it
        hotter.
        """
        steps = (
            settings.step_size,
            settings.batch_size,
            settings.gradient,
            settings.preconditioner,
        )
        plain = settings.integrator == "auto" and all(map(is_auto, steps))
        if more_rows or not plain:
            return "sgld"
        warm = isinstance(settings.temperature, Real) and float(settings.temperature) > 0.0
        if self.model.conjugate and warm:
            return "gibbs"
        momentum = warm and self.model.smooth and (whole or self.fits_whole(data))
        return "sghmc" if momentum else "sgld"

    def automatic(self, data: Data, request: Request) -> AutoValues:
        if request.sampler.needs_conditionals:  # there are no steps
            settings = replace(request.settings, preconditioner=None)
            plain = self.given(data, replace(request, settings=settings))
            return replace(plain, step_size=1.0, relaxation=1.0, least_burn_in=50)
        preconditioner = request.settings.preconditioner
        if is_auto(preconditioner):
            preconditioner = self._preconditioner(request.sampler)
        fitted: Fitted | None = None
        if isinstance(preconditioner, str) and preconditioner == "hessian":
            fitted = self.model.fitted(data, request.temperature)
        if fitted is None:
            center, root = self.coordinates(data, request, preconditioner)
        else:
            center, precision = fitted.mean, fitted.precision / data.total
            root = root_of(precision, self.model.linked(data))
        init, gradient = request.settings.init, request.settings.gradient
        if is_auto(init):
            init = "map" if root is None else "gaussian"
        if gradient == "auto":
            gradient = self._gradient(request, root)
        if center is None:
            center = self.center(data, "step_size='auto'", STEP_REMEDY)
        values = AutoValues(gradient, init, center, root)
        values.tails = self.model.tails
        if fitted is not None and root is not None:
            variances = np.square(root).sum(1) * (request.temperature / data.total)
            values.tails = self.model.tails_at(fitted.mean, variances)
        values.anchor = None if fitted is None else fitted.anchor
        self.set_step(values, data, request)
        return values

    def summarises(self, request: Request) -> bool:
        given = request.settings.preconditioner
        plain = (
            request.settings.auto and request.settings.gradient == "auto" and isinstance(given, str)
        )
        if not plain or request.sampler.needs_conditionals:
            return False
        whitened = given != "diagonal" and self._preconditioner(request.sampler) == "hessian"
        small = self.model.n_parameters <= 500  # a Gaussian is found at each call
        return whitened and small and self.model.with_past is not None

    def _preconditioner(self, sampler: Sampler) -> str | None:
        if preconditions(sampler, self.model):
            return None
        return "hessian" if self.model.n_parameters <= LIMITS.full_hessian else "diagonal"

    def _gradient(self, request: Request, root: Array | None) -> str:
        sampler = request.sampler
        known = sampler.full_data or sampler.self_preconditioned or sampler.needs_potential
        if request.more_rows or known:
            return "minibatch"
        full_matrix = root is not None and root.ndim == 2
        return "linear_control_variates" if full_matrix else "control_variates"

    def set_step(self, values: AutoValues, data: Data, request: Request) -> None:
        """Set ``values.step_size``, and the values that depend on it."""
        model, sampler = self.model, request.sampler
        center, root = values.center, values.root
        assert center is not None
        eta = sampler.own_step(model.n_parameters)
        if eta is None and request.cell.step is None:
            self._set_own_step(values, data, request)
            return
        eta = request.cell.step if eta is None else eta
        assert eta is not None
        stiff = request.cell.stiff or AUTO.curvature * eta
        part = model.stand_in(data)
        if part is not None and eta == request.cell.step:
            eta = request.cell.most or eta
        if not model.smooth and not sampler.full_data:
            # with a Laplace prior, an eta of 0.5 gave intervals with 91% coverage instead of 89%
            eta, stiff = 0.5 * eta, 0.5 * stiff
        if model.scaled is not None:
            eta = min(eta, AUTO.scaled_step / data.n_rows)
        if root is not None and root.ndim == 2:
            T = request.temperature
            eta = min(eta, stiff / Whitened(model, part or data, root).typical(center, T))
            if T > 0.0:
                spread = root * math.sqrt(T / data.total)
                known = values.rows(data)
                eta = min(eta, step_at_walls(model, sampler, data, known, center, spread, T, eta))
            values.step_size = eta
        else:
            root = np.ones(model.n_parameters) if root is None else root
            if values.root is not None and values.few is None and self._takes_few(data, request):
                if data.n_rows < len(root):
                    root = between(root, model.prior_hessian(center) / data.total)
                values.root = root
                values.few = Whitened(model, data, root).few_directions(center)
            largest = Whitened(model, data, root, values.few).largest(center)
            values.step_size = min(eta, stiff / (AUTO.curvature * largest))
        values.step_size *= self._share_of_noise(values, data, request)
        values.spacing = sampler.spacing(values.step_size)

    def _share_of_noise(self, values: AutoValues, data: Data, request: Request) -> float:
        """Factor of a step with which alpha_t <= 0.1 for gradients without control variates.

        In whitened coordinates, the score of a row has at most the covariance 1/N (Fisher).
        """
        n, T, eta = self._rows_of_step(data, request), request.temperature, values.step_size
        if values.gradient != "minibatch" or n == data.n_rows or request.more_rows or T <= 0.0:
            return 1.0
        assert eta is not None
        noise = eta * data.total * (1.0 / n - 1.0 / data.n_rows)
        injected = request.sampler.injected(eta, data.total) * T
        return min(1.0, AUTO.noise_ratio * 2.0 * injected / noise)

    def _takes_few(self, data: Data, request: Request) -> bool:
        """Whether directions are changed: not if noise of minibatches would grow along them."""
        whole = self._rows_of_step(data, request) == data.n_rows
        return whole and is_auto(request.settings.preconditioner)

    def _rows_of_step(self, data: Data, request: Request, size: int | None = None) -> int:
        """Number of rows that a gradient uses, with ``size`` instead of the plain minibatch."""
        sampler, given, n_rows = request.sampler, request.settings.batch_size, data.n_rows
        if sampler.full_data or sampler.needs_potential:
            return n_rows
        if not is_auto(given):
            return min(int(given), n_rows)
        if request.more_rows or size is None:
            size = plain_size(n_rows)
        few = not request.more_rows and self.fits_whole(data)
        return n_rows if few else min(size, n_rows)

    # samplers that precondition by themselves -----------------------------------------------------

    def _set_own_step(self, values: AutoValues, data: Data, request: Request) -> None:
        """Set a step size that is stable at the remaining curvature, with alpha_t <= 0.1.

        At the MAP, the score of a row has covariance H/N (Fisher). The mean gradient of the
        likelihood therefore has the mean squares H_ii/(N n), and alpha_t is about eta N / (2 n T)
        times the largest eigenvalue of G^1/2 (H/N) G^1/2. The smallest eigenvalue determines how
        long a run must be. If the run would be too long, "auto" is refused. This happens with
        collinear columns, which no diagonal preconditioner can separate.
        """
        model, sampler = self.model, request.sampler
        assert values.center is not None
        center, precision = values.center, None
        if model.n_parameters <= LIMITS.full_hessian:
            center, precision = model.fit_gaussian(data, request.temperature) or (center, None)
        diagonal = model.hessian_diagonal(center, data)
        if diagonal is None:
            raise not_allowed(
                f"step_size='auto' is not allowed with {type(sampler).__name__} on "
                f"{type(model).__name__}, which does not define hessian_diagonal; give a number."
            )
        n = self._rows_of_step(data, request, affordable_size(data))
        mean_square = diagonal / data.total / n
        G = sampler.own_preconditioner(mean_square, model.prior_curvature() / data.total)
        if G is None:
            raise not_allowed(
                f"step_size='auto' is not allowed with {type(sampler).__name__}, which has no rule "
                "for the step size; give a number, or define its method own_step."
            )
        smallest, root = None, np.sqrt(G)
        if precision is None:
            largest = Whitened(model, data, root).largest(center)
        else:
            left = np.linalg.eigvalsh(root[:, None] * precision * root / data.total)
            smallest, largest = max(float(left[0]), np.finfo(float).tiny), float(left[-1])
        eta = AUTO.own_step
        if n < data.n_rows and request.temperature > 0.0:
            eta = min(eta, AUTO.noise_ratio * 2.0 * n * request.temperature / data.total)
        values.step_size = eta / largest
        values.batch_size = n
        if smallest is not None:
            values.relaxation = 1.0 / (values.step_size * smallest)
            self._check_length(values.relaxation, request)

    @staticmethod
    def _check_length(relaxation: float, request: Request) -> None:
        """Refuse chains that would hardly move, unless the user has given ``thinning``."""
        given = not isinstance(request.settings.thinning, str)
        if relaxation <= AUTO.slowest or request.more_rows or given:
            return
        raise not_allowed(
            f"step_size='auto' is not allowed with {type(request.sampler).__name__} on these data: "
            f"a chain would need about {relaxation:.2g} steps to forget its position (at most "
            f"{AUTO.slowest} are allowed), because its diagonal preconditioner cannot separate "
            "correlated features. Give sampler='sgld', which uses the full curvature; or centre "
            "and scale the features; or give step_size, burn_in and thinning as numbers."
        )

    # minibatches and lengths ----------------------------------------------------------------------

    def row_odds(self, data: Data, values: AutoValues, temperature: float) -> RowOdds | None:
        """Frequencies proportional to what control variates leave of each row's gradient.

        No others have less gradient noise, on average over the Gaussian approximation. A floor
        keeps every importance weight below 10.
        """
        if values.gradient != "linear_control_variates" or values.root is None:
            return None
        assert values.center is not None
        # at temperature zero, for the way to the maximum
        root = values.root * math.sqrt((temperature or 1.0) / data.total)
        with np.errstate(all="ignore"):  # what is not finite gives equal probabilities
            size = self.model.remainders(values.center, root, values.rows(data))
        if size is None:
            return None
        if data.weight is not None:
            size *= data.weight.double().cpu().numpy()
        total = float(size.sum())
        if not 0.0 < total < math.inf:
            return None
        size *= 0.9 / total  # in place, since rows can be many
        size += 0.1 / data.n_rows
        return RowOdds(size)

    def batch_size(
        self,
        data: Data,
        sampler: Sampler,
        values: AutoValues,
        odds: RowOdds | None,
        temperature: float,
        to_theta: Callable[[Array], Tensor],
    ) -> int:
        """The number of rows that make alpha_t ``noise_ratio``, or less for the sake of tails.

        The noise is measured at draws of the Gaussian approximation, and in the posterior's tails.
        """
        if odds is None:
            return plain_size(data.n_rows)
        model, n_rows = self.model, data.n_rows
        assert values.root is not None and values.step_size is not None
        root, rng = values.root, np.random.default_rng(0)
        n_some = min(LIMITS.sampled_rows, n_rows)
        view = Minibatches(data, 1, odds=odds)
        batch = view.batch_of(view.independent(n_some, rng))
        weight = np.asarray(torch.as_tensor(batch.weight, device="cpu").double())[:, None]
        weight = weight * (n_rows * data.scale / data.total)

        def gradients(phi: Array) -> Array:
            """Estimates of the mean gradient's remainder at ``phi``, from single rows."""
            with torch.no_grad():
                return np.asarray(-model.scores(to_theta(phi[None]), batch).double().cpu()) * weight

        sd = math.sqrt(temperature / data.total)
        draws = sd * rng.standard_normal((AUTO.noise_draws, model.n_parameters))
        typical = [largest_second_moment(gradients(phi), root, rng) for phi in draws]
        some = gradients(draws[0])[:16] @ root
        tails = [noise_in_tail(gradients, root, vector, sd) for vector in [*some, *-some]]
        # in the tails, the ratio may be 1 in the worst direction
        largest = max(np.quantile(typical, AUTO.typical_noise), max(tails) * AUTO.noise_ratio)
        injected = sampler.injected(values.step_size, data.total) * max(temperature, 1e-12)
        noise = values.step_size * data.total * largest
        size = noise / (2.0 * max(injected, 1e-12) * AUTO.noise_ratio)
        return n_rows if size > n_rows / 2 else max(AUTO.batch_size, math.ceil(size))

    def lengths(
        self, values: AutoValues, n_rows: int, batch_size: int, n_draws: int
    ) -> tuple[int, int]:
        """Burn-in and thinning in steps, from the time that a chain takes to forget its position.

        This time is about 1/eta steps; two draws are at most 20 steps apart. Few rows can leave
        the tails of the prior to the posterior, and chains take longer in these; many rows do not,
        and their steps cost more. If ``values.relaxation`` gives the time, the draws take 200 times
        as many steps, which gives an effective sample size of about 400 with four chains.
        """
        if values.step_size is None:
            return super().lengths(values, n_rows, batch_size, n_draws)
        if values.relaxation is not None:
            steps = min(float(values.relaxation), 1e15)  # longer runs are refused in any case
            burn_in = max(values.least_burn_in or 500, math.ceil(10.0 * steps))
            apart = steps * min(200.0 / n_draws, 2.0)
            return burn_in, max(1, math.ceil(apart))
        spacing = 1.0 / values.step_size if values.spacing is None else values.spacing
        if batch_size >= n_rows and n_rows <= LIMITS.part_rows:
            spacing *= values.tails
        thinning = min(max(1, round(spacing)), 20)
        return max(200, min(round(50.0 * spacing), 25 * n_draws)), thinning


def plain_size(n_rows: int) -> int:
    """Minibatch size without linear control variates: it grows with the rows, up to a limit."""
    return min(max(256, n_rows // 50), 1024)


def affordable_size(data: Data) -> int:
    """Minibatch size as in :func:`plain_size`, or larger if each row has few numbers."""
    return max(plain_size(data.n_rows), AUTO.whole_numbers // data.row_numbers)
