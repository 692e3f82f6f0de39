"""Meaning of ``step_size="auto"``: a model's ``tuning``, one class for each kind of posterior.

========================  =============================================================
:class:`Tuning`           nothing is known about the posterior; "auto" is refused
:class:`ManyModes`        networks and topics: the table's rates, chains find modes
``WhitenedGaussian``      nearly Gaussian posteriors: whitened coordinates
``MetricGaussian``        nearly Gaussian posteriors of a model with a metric (ICA)
========================  =============================================================

The last two have files of their own beside this one. ``_engine/recipe.py`` calls these objects
without distinguishing between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from torch import Tensor

from ..._arrays import Array
from ..._data.minibatch import Data
from ..._data.row_odds import RowOdds
from ..._exceptions import not_allowed
from ..._validation import is_auto
from .._past import Past
from .._protocol import Anchor, Model
from .auto import AUTO

if TYPE_CHECKING:
    from ...samplers import Cell, Sampler


@dataclass
class AutoValues:
    """The resolved values of the "auto" parameters, as plain arrays that can be stored."""

    gradient: str
    #: starting positions of the chains
    init: Any
    #: centre (P,) of the coordinates and of the control variates
    center: Array | None = None
    #: root of the preconditioner, (P, P) or (P,)
    root: Array | None = None
    #: V (P, r) and c (r,), if a root (P,) stands for diag(root) (1 - V diag(c) V')
    few: tuple[Array, Array] | None = None
    #: eta. None if the user gave a step size
    step_size: float | None = None
    #: number of rows in a minibatch, if the tuning has determined it along with the step size
    batch_size: int | None = None
    #: number of steps until the slowest direction of a chain forgets its position, if it was
    #: measured
    relaxation: float | None = None
    #: number of steps between two nearly independent draws, where the posterior is nearly normal
    spacing: float | None = None
    #: how many times as many steps two draws are apart, because of the prior's long tails
    tails: float = 1.0
    #: smallest number of steps of the burn-in, where the tuning has one for the run
    least_burn_in: int | None = None
    #: N of the coordinates of a stream that is summarised by a Gaussian: centre, and root over the
    #: root of N
    total: float | None = None
    #: control variates, if the search for the coordinates has made them. They are not stored
    anchor: Anchor | None = None

    def rows(self, data: Data) -> Data:
        """What is known of every row, or the rows themselves."""
        return data if self.anchor is None else self.anchor.known_rows(data)

    def past(self) -> Past:
        """The Gaussian that these values describe."""
        assert self.center is not None and self.root is not None and self.total is not None
        inverse = np.linalg.inv(self.root)
        return Past(self.center, self.total * inverse.T @ inverse)

    def whitened(self, theta: Array) -> Array:
        """Positions (..., n_parameters) in sds of the Gaussian that these values describe."""
        assert self.center is not None and self.root is not None and self.total is not None
        away = (theta - self.center) @ np.linalg.inv(self.root).T
        return np.asarray(away * math.sqrt(self.total))

    def moved(self, theta: Array, earlier: AutoValues) -> Array:
        """Positions (..., n_parameters) at the same place in these coordinates as in earlier ones.

        Draws of the earlier Gaussian become draws of this one.
        """
        assert self.center is not None and self.root is not None and self.total is not None
        away = earlier.whitened(theta) @ self.root.T / math.sqrt(self.total)
        return np.asarray(self.center + away).astype(theta.dtype)


#: what to give in place of "auto"
STEP_REMEDY = "give a number, or sampler='mclmc', which finds its step size"


@dataclass(frozen=True)
class Request:
    """What "auto" depends on, besides the model and the rows."""

    sampler: Sampler
    #: its row of the table, which has step sizes (see ``samplers.Cell``)
    cell: Cell
    #: T of the first step
    temperature: float
    settings: Any
    #: whether later runs bring other rows, which rules out control variates
    more_rows: bool = False


class Tuning:
    """Base class of tunings. Models without a tuning use it; step sizes must then be numbers.

    Parameters
    ----------
    model : Model
        The model.
    """

    #: whether chains that agree have equal parameters, so that their R-hat means something
    one_mode = True
    #: largest number of draws per chain with ``n_draws="auto"``
    most_draws = 1000
    #: mean square of the energy error of a step, per parameter, for samplers with an energy
    energy_error = 5e-4
    #: whether a step size from the table is only a first guess, which samplers adapt in the burn-in
    guessed = False
    #: values of ``init`` that need the posterior's maximum even without whitened coordinates
    central_starts: tuple[str, ...] = ("map",)
    #: exponent of the decay of a stream's step sizes. It is less than 1 if the information in
    #: later rows depends on what was learned from the first rows, which must then be forgotten
    forgetting = 1.0

    #: rows of at most so many numbers are used whole at every step
    whole_numbers = AUTO.whole_numbers

    def __init__(self, model: Model):
        self.model = model

    def fits_whole(self, data: Data) -> bool:
        """Whether the data are few enough numbers to use all rows at every step."""
        return data.n_rows * data.row_numbers <= self.whole_numbers

    # centre and curvature -------------------------------------------------------------------------

    def find_map(self, data: Data) -> Array | None:
        """The posterior's maximum, for ``init="map"`` and control variates; None if unknown."""
        return None

    def curvature(
        self, preconditioner: str, data: Data, temperature: float
    ) -> tuple[Array, Array] | None:
        """Centre and root for the preconditioner "hessian" or "diagonal"; None if unknown."""
        return None

    # before a run ---------------------------------------------------------------------------------

    def automatic_step(self, sampler: Sampler) -> str:
        """What to give for an automatic step size, in messages of steps that are too long."""
        return "step_size='auto'"

    def summarises(self, request: Request) -> bool:
        """Whether the rows of each call of a stream become a Gaussian, the prior of later rows."""
        return False

    def automatic(self, data: Data, request: Request) -> AutoValues:
        """The resolved values for ``step_size="auto"``."""
        if not request.sampler.finds_step:
            raise self._no_map("step_size='auto'", STEP_REMEDY)
        values = self.given(data, request)
        self.set_step(values, data, request)
        return values

    def given(self, data: Data, request: Request) -> AutoValues:
        """The resolved values for a step size that is a number: only what the user asked for."""
        asked = request.settings.preconditioner
        center, root = self.coordinates(data, request, None if is_auto(asked) else asked)
        gradient = "minibatch" if request.settings.gradient == "auto" else request.settings.gradient
        init = "random" if is_auto(request.settings.init) else request.settings.init
        central = isinstance(init, str) and init in self.central_starts
        if center is None and gradient != "minibatch":
            center = self.center(data, f"gradient={gradient!r}", "give gradient='minibatch'")
        elif center is None and central:
            center = self.center(data, f"init={init!r}", "give init='random' or an array")
        return AutoValues(gradient, init, center, root)

    def start_near(
        self, center: Array, data: Data, temperature: float, rng: np.random.Generator
    ) -> Array:
        """The starting position of a chain for ``init="gaussian"``; here, the maximum itself."""
        return center

    def coordinates(
        self, data: Data, request: Request, preconditioner: Any
    ) -> tuple[Array | None, Array | None]:
        """Centre, and root of the preconditioner M, of shape (P, P) or (P,); each may be None."""
        if preconditioner is None:
            return None, None
        if not isinstance(preconditioner, str):
            return None, _given_root(
                np.asarray(preconditioner, dtype=float), self.model.n_parameters
            )
        found = self.curvature(preconditioner, data, request.temperature)
        if found is None:
            raise not_allowed(
                f"preconditioner={preconditioner!r} is not allowed: {type(self.model).__name__} "
                "has no curvature; give preconditioner=None or an array."
            )
        return found

    def center(self, data: Data, given: str, remedy: str) -> Array:
        """The posterior's maximum, which ``given`` needs; ``ValueError`` if it is not known."""
        center = self.find_map(data)
        if center is None:
            raise self._no_map(given, remedy)
        return center

    def _no_map(self, given: str, remedy: str) -> ValueError:
        return not_allowed(
            f"{given} is not allowed: the maximum of the posterior density is not known; {remedy}."
        )

    def default_sampler(
        self, data: Data, settings: Any, *, more_rows: bool = False, whole: bool = False
    ) -> str:
        """The name of the sampler that ``sampler="auto"`` means, given the run's settings.

        ``whole`` means that every step was found to need all rows.
        """
        return "sgld"

    def set_step(self, values: AutoValues, data: Data, request: Request) -> None:
        """Set ``values.step_size``, and the values that depend on it, for ``request.sampler``."""
        values.step_size = request.cell.rate

    # minibatches, lengths, streams ----------------------------------------------------------------

    def row_odds(self, data: Data, values: AutoValues, temperature: float) -> RowOdds | None:
        """How often minibatches draw rows; None if all are equal."""
        return None

    def batch_size(
        self,
        data: Data,
        sampler: Sampler,
        values: AutoValues,
        odds: RowOdds | None,
        temperature: float,
        to_theta: Callable[[Array], Tensor],
    ) -> int:
        """Number of rows in a minibatch; ``to_theta`` maps phi (1, n_parameters) to positions."""
        return AUTO.batch_size

    def lengths(
        self, values: AutoValues, n_rows: int, batch_size: int, n_draws: int
    ) -> tuple[int, int]:
        """Burn-in and thinning in steps.

        This method is for a given step size, where ``values.step_size`` is None. Two draws are a
        tenth of a pass over the rows apart, but at most 100 steps. The burn-in takes half as many
        steps as the draws.
        """
        thinning = int(min(max(n_rows // (10 * batch_size), 1), 100))
        return n_draws * thinning // 2, thinning

    def descends(self, init: Any) -> bool:
        """Whether chains start at a mode, which a descent from ``model.init`` finds."""
        return False

    def unit(self) -> float:
        """Factor that converts step sizes of a stream from whitened coordinates to the model's."""
        return 1.0


class ManyModes(Tuning):
    """Tuning for posteriors with many modes, where every chain finds its own mode.

    "auto" means the table's rate and minibatches of 100 rows. With ``init="map"``, every chain
    finds a mode first. Most samplers do so themselves, at temperature 0 in the first half of the
    burn-in; those that have no such limit start where an optimiser with early stopping ends
    (``_engine/descent.py``).

    Parameters
    ----------
    model : Model
        The model. It needs no additional methods.
    start : {"map", "random"}, default="map"
        The meaning of ``init="auto"``.
    least_burn_in : int, default=3000
        Smallest number of steps of the burn-in.
    guessed : bool, default=False
        Whether the table's rate is only a first guess, which samplers adapt in the burn-in.
    sampler : str or None, default=None
        Name of the sampler that ``sampler="auto"`` means. None: it depends on the rows.
    steep : bool, default=False
        Whether gradients grow with the distance of outputs from targets. pSGLD needs far more steps
        then, and larger networks have MCLMC.
    """

    one_mode = False
    most_draws = 100  # predictions are expensive
    #: much larger than for moments of parameters: it makes chains explore further at equal cost,
    #: and predictions of networks did not get worse by its bias (docs/project/network_defaults.md)
    energy_error = 0.005

    def __init__(
        self,
        model: Model,
        *,
        start: str = "map",
        least_burn_in: int = 3000,
        guessed: bool = False,
        sampler: str | None = None,
        steep: bool = False,
    ):
        super().__init__(model)
        self.start = start
        self.sampler = sampler
        self.steep = steep
        self.least_burn_in = least_burn_in
        self.guessed = guessed

    def default_sampler(
        self, data: Data, settings: Any, *, more_rows: bool = False, whole: bool = False
    ) -> str:
        """MCLMC for small networks, for tables of many rows and in regression; otherwise pSGLD.

        Given minibatches of few rows are for pSGLD, too: they are too noisy for an energy. So is
        the search for a maximum (T = 0), where MCLMC does not move.
        """
        if self.sampler is not None:
            return self.sampler
        if more_rows or not is_auto(settings.step_size) or settings.temperature == 0:
            return "psgld"
        if is_auto(settings.batch_size):
            whole = whole or self._small(data) or self._large(data)
        else:
            whole = _takes_all(settings.batch_size, data)
        return "mclmc" if whole or self._many(data) else "psgld"

    def step_size(self, request: Request, data: Data) -> float | None:
        """Eta, from the table's rate; None if the sampler and the integrator have no rate."""
        return request.cell.rate

    def scales(self) -> Array | None:
        """Root of a diagonal preconditioner, (n_parameters,); None for no preconditioner."""
        return None

    def given(self, data: Data, request: Request) -> AutoValues:
        if not _is_plain(request):
            return super().given(data, request)
        return AutoValues("minibatch", self._init(request.settings.init, "random"))

    def automatic(self, data: Data, request: Request) -> AutoValues:
        sampler, model, asked = request.sampler, self.model, request.settings.batch_size
        if not _is_plain(request):
            if not is_auto(request.settings.preconditioner):
                self.coordinates(data, request, request.settings.preconditioner)
            raise self._no_map("step_size='auto'", STEP_REMEDY)
        if request.cell.rate is None:
            raise not_allowed(
                f"step_size='auto' is not allowed with {type(sampler).__name__} and this "
                f"integrator on {type(model).__name__}: give a number, or sampler='psgld'."
            )
        values = AutoValues("minibatch", self._init(request.settings.init, self.start))
        values.step_size = self.step_size(request, data)
        few = self._many(data) or self._large(data)
        if few and sampler.needs_potential and not _takes_all(asked, data):
            values.batch_size = AUTO.energy_batch
        if values.batch_size is not None and self._many(data):
            values.least_burn_in = AUTO.energy_burn_in
        elif sampler.needs_potential:
            share = min(1.0, math.sqrt(AUTO.full_work / self._work(data)))
            values.least_burn_in = math.ceil(share * self.least_burn_in)
        if request.settings.preconditioner is not None and not preconditions(sampler, model):
            values.root = self.scales()
        return values

    def lengths(
        self, values: AutoValues, n_rows: int, batch_size: int, n_draws: int
    ) -> tuple[int, int]:
        """Burn-in and thinning; the burn-in and the draws take equally many steps.

        This number is that of ten passes over the rows, but at least ``least_burn_in``. Samplers
        with an energy take fewer steps where each uses all rows of large networks, and more with
        minibatches.
        """
        if values.step_size is None:
            return super().lengths(values, n_rows, batch_size, n_draws)
        least = values.least_burn_in or self.least_burn_in
        burn_in = max(10 * math.ceil(n_rows / batch_size), least)
        return burn_in, max(1, burn_in // n_draws)

    def descends(self, init: Any) -> bool:
        return isinstance(init, str) and init == "map"

    def _many(self, data: Data) -> bool:
        """Whether there are so many rows that samplers with an energy take minibatches."""
        n_parameters, work = self.model.n_parameters, self._work(data)
        if work <= AUTO.full_work or n_parameters > AUTO.large_network:
            return False
        small = n_parameters <= AUTO.small_network or self.steep
        return data.n_rows >= AUTO.many_rows * n_parameters or (small and work > AUTO.many_work)

    def _small(self, data: Data) -> bool:
        """Whether the network is small enough for MCLMC with all rows."""
        if self.model.n_parameters <= AUTO.small_network:
            return True
        return self.steep and self._work(data) <= AUTO.steep_work

    def _large(self, data: Data) -> bool:
        """Whether a network is too large for all rows in a step, and too steep for pSGLD."""
        large = self._work(data) > AUTO.steep_work
        return self.steep and large and self.model.n_parameters <= AUTO.huge_network

    def _work(self, data: Data) -> int:
        """Rows times parameters, about a tenth of the operations of a gradient of all rows."""
        return data.n_rows * self.model.n_parameters

    @staticmethod
    def _init(init: Any, auto: str) -> Any:
        if isinstance(init, str) and init == "gaussian":
            raise not_allowed(
                "init='gaussian' is not allowed: a posterior with many modes has no Gaussian "
                "approximation; give 'random', 'map' or an array."
            )
        return auto if is_auto(init) else init


def _takes_all(batch_size: Any, data: Data) -> bool:
    """Whether the user asks for steps with all rows."""
    return not is_auto(batch_size) and batch_size >= data.n_rows


def _is_plain(request: Request) -> bool:
    """Whether the user asks neither for a preconditioner nor for control variates."""
    asked, gradient = request.settings.preconditioner, request.settings.gradient
    return (asked is None or is_auto(asked)) and gradient in ("auto", "minibatch")


def preconditions(sampler: Sampler, model: Model) -> bool:
    """Whether the sampler preconditions by itself or with the model's metric."""
    return sampler.self_preconditioned or sampler.uses_metric(model.metric)


def _given_root(preconditioner: Array, n_parameters: int) -> Array:
    """Root of a preconditioner that the user gave as a vector or a symmetric matrix."""
    if preconditioner.shape == (n_parameters,) and (preconditioner > 0).all():
        return np.sqrt(preconditioner)
    if preconditioner.shape == (n_parameters, n_parameters):
        try:
            return np.asarray(scipy.linalg.cholesky(preconditioner, lower=True))
        except np.linalg.LinAlgError:
            pass
    raise not_allowed(
        f"preconditioner of shape {preconditioner.shape} is not allowed: give None, 'auto', "
        f"'hessian', 'diagonal', a positive array of shape ({n_parameters},) or a positive "
        f"definite matrix of shape ({n_parameters}, {n_parameters})."
    )
