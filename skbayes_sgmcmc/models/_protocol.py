"""The interface between models and the engine.

A model of your own defines ``shapes`` and ``init``, and one of two pairs of methods:

* ``log_prior`` and ``log_lik``. Autograd then computes the gradients. Every sampler that needs no
  metric can run, with a number as step size.
* ``prior_gradient`` and ``likelihood_gradient``, if autograd is too slow or there is no density.

Everything else is optional:

==========================================  ====================================================
to support                                  define
==========================================  ====================================================
``step_size="auto"``, ``init="map"``        :attr:`Model.tuning`, or a subclass of ``CurvedModel``
latent variables                            ``init_state``, ``after_step``, ``recorded``
RSGLD                                       ``metric``; on a restricted domain, ``project`` too
control variates                            ``anchor``, and ``find_map`` of a ``CurvedModel``
pSGLD with parameters that no row informs   ``prior_curvature``, or ``prior_rates``
densities given latent variables            ``prior_potential``
``batch_size="auto"`` of a metric           ``scores``, if chains with a row each are too slow
draws that hold more than theta             ``unpack``, ``derive``
estimators                                  ``make_data(x, y, weight, dtype, device)``, which makes
                                            :class:`Data` from checked rows
==========================================  ====================================================

Gradients are gradients of potentials (negative log densities). They are summed over rows and
*unscaled*: the target (``_engine/target.py``) applies the factor N/n, temperatures and coordinates.
All positions are ``theta`` of shape (chains, n_parameters).

Steps of chains are functions of tensors that never replace one (see ``samplers/_protocol.py``), and
so is what a model does in each: ``after_step``, ``anneal`` and ``project`` write to the tensors of
the state and of theta, add no entries and take none out. Gradients do not decide in Python by the
value of a tensor. What depends on one is for :meth:`Model.active`, between chunks, or for steps
with known numbers, such as one in fifty. Documents are an exception: their variables are sampled on
the CPU, in every gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._data.minibatch import Batch, Data
from .._exceptions import undefined
from .._metric import Metric, State

if TYPE_CHECKING:
    from .likelihoods.slopes import Compiled
    from .linear.coefficient_priors import PriorSlopes
    from .tuning.base import Tuning


@dataclass
class Anchor:
    """Control variates of a likelihood gradient and their exact sum over all rows."""

    #: fields with one entry for each row, which batches will carry
    fields: dict[str, Tensor]
    #: weighted sum of the control variates over all rows at the centre, (n_parameters,)
    gradient: Array
    #: slope of this sum in theta - center, (n_parameters, n_parameters); None for constant
    #: control variates
    hessian: Array | None
    #: other figures of each row, so that ``walls`` and ``remainders`` need not read the rows
    rows: dict[str, Tensor] = field(default_factory=dict)
    #: their centre (n_parameters,), if it is not that of the coordinates
    center: Array | None = None

    def known_rows(self, data: Data) -> Data:
        """What is known of every row in place of the row; the rows if that is not enough."""
        if not self.rows:
            return data
        return Data(self.fields | self.rows, data.n_rows, data.weight, data.total)


@dataclass
class LinearRows:
    """Rows of one linear predictor theta'x_i + shift_i, whose likelihood has compiled slopes."""

    #: the rows x_i, in memory
    design: Any
    #: the likelihood, with the shifts, targets and weights of all rows
    likelihood: Compiled
    prior: PriorSlopes


class Model:
    """Base class of models; subclasses override the parts that they support.

    The other parts have defaults, or are refused with an error.

    Attributes
    ----------
    shapes : dict of str to tuple
        Name and shape of every block of parameters, in their order in ``theta``.

    Notes
    -----
    A model defines either ``log_prior`` and ``log_lik``, which autograd differentiates, or its own
    ``prior_gradient`` and ``likelihood_gradient``. The likelihood gradient may be an expectation
    (as in LDA), may draw random numbers from ``rng``, and may keep a ``state`` for each chain.
    Checkpoints include this state.
    """

    shapes: dict[str, tuple[int, ...]]
    #: names of the entries of ``state`` to keep with every draw, and their shapes for one chain
    recorded: Mapping[str, tuple[int, ...]] = {}
    #: whether ``log_prior`` and ``log_lik`` are densities of theta without latent variables
    marginal: bool = True
    #: False if the density has corners, which need smaller steps
    smooth: bool = True
    #: whether ``dtype="auto"`` means float32 even for small models; True for convolutions, whose
    #: fast kernels are in single precision
    single_precision: bool = False
    #: names of the compiled functions that can do part of the model's work on a CPU; each has an
    #: entry in the engine's list of accelerators
    kernels: Sequence[str] = ()
    #: whether the model calls ``rng.gamma``, which the compiled generator does not have
    needs_gamma: bool = False
    #: whether gradients are sums of those of single rows
    sums_rows: bool = True
    #: m and j if the first m numbers of theta have a prior with the scale exp(theta_j): coordinates
    #: then move along with it
    scaled: tuple[int, int] | None = None
    #: whether a run may end as soon as its draws are settled, as ``log_lik`` tells: if nothing of
    #: the model depends on how long the run is
    ends_early: bool = False
    #: whether a run may take more steps than it was planned to, if the potential still falls
    extends: bool = False
    #: number of rows with their log likelihood in a report of a run's progress
    n_reported: int = 500

    @property
    def n_parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def n_kept(self) -> int:
        """How many numbers a draw holds: theta, followed by the ``recorded`` state."""
        return self.n_parameters + sum(math.prod(shape) for shape in self.recorded.values())

    def places(self) -> dict[str, slice]:
        """The slice of a draw that holds each block; for blocks of ``shapes``, also of theta."""
        found, start = {}, 0
        for name, shape in (self.shapes | dict(self.recorded)).items():
            stop = start + int(np.prod(shape))
            found[name], start = slice(start, stop), stop
        return found

    @property
    def tuning(self) -> Tuning | None:
        """The object that defines ``step_size="auto"`` for this model (``models/tuning/base.py``).

        With None, ``step_size="auto"``, ``init="map"`` and control variates are refused. Models
        with many modes return ``ManyModes(self)``. Models that know their centre and
        curvature are subclasses of ``CurvedModel``, which returns ``WhitenedGaussian(self)``.
        """
        return None

    # where a chain starts -------------------------------------------------------------------------

    def init(self, rng: np.random.Generator) -> Array:
        """A starting position of shape (n_parameters,)."""
        raise undefined(self, "init(rng)")

    def init_state(self, theta: Tensor) -> State:
        """Tensors of each chain that change along with theta, such as latent variables."""
        return {}

    def simpler(self, theta: Tensor) -> State:
        """Entries of the state with which a burn-in begins with a simpler density.

        Models have one if their own leads chains astray. Gradients and potentials know it from the
        state.
        """
        return {}

    def anneals(self, before: float, progress: float) -> bool:
        """Whether :meth:`anneal` is due between these fractions of the burn-in."""
        return False

    def anneal(self, theta: Tensor, state: State) -> None:
        """Go over from the simpler density to the model's own, in place."""

    def active(self, state: State) -> State:
        """The entries of ``state`` that gradients and potentials of the next steps need.

        It is called before every chunk of steps, and may look at values. The state itself keeps all
        of its entries.
        """
        return state

    # densities ------------------------------------------------------------------------------------

    def log_prior(self, theta: Tensor) -> Tensor:
        """log p(theta), shape (chains,)."""
        raise undefined(self, "log_prior(theta)")

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        """log p(row | theta) of every row, shape (chains, rows)."""
        raise undefined(self, "log_lik(theta, batch)")

    def reported(self, theta: Tensor, batch: Batch) -> Tensor:
        """What reports of a run's progress say of rows, shape (chains, rows).

        It is the log likelihood, or an estimate of it in models with latent variables; NaN if there
        is none.
        """
        if self.estimates:
            return theta.new_full((len(theta), 1), torch.nan)
        return self.log_lik(theta, batch)

    # gradients ------------------------------------------------------------------------------------

    @property
    def estimates(self) -> bool:
        """Whether gradients are random estimates, because the likelihood is not known."""
        return type(self).log_lik is Model.log_lik

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        """Write scale * grad(-log prior) to ``out``, given the latent variables in ``state``."""
        with torch.enable_grad():
            at = theta.detach().requires_grad_(True)
            gradient = _gradient(self.log_prior(at).sum(), at)
        out.zero_()
        if gradient is not None:
            out.add_(gradient, alpha=-scale)

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
        """Add scale * (sum over rows of weight * grad(-log p(row | theta))) to ``out``.

        Returns a dict ``aux``, which :meth:`after_step` receives. Its entry "likelihood", if there
        is one, replaces the likelihood gradient that self-preconditioning samplers use.
        """
        self._differentiate(theta, batch, out, scale)
        return {}

    @property
    def _by_autograd(self) -> bool:
        """Whether the gradient of the rows is that of ``log_lik`` by autograd."""
        return type(self).likelihood_gradient is Model.likelihood_gradient

    def _differentiate(self, theta: Tensor, batch: Batch, out: Tensor, scale: float) -> Tensor:
        """Add the gradient of the rows, by autograd; return log p of the rows."""
        with torch.enable_grad():
            at = theta.detach().requires_grad_(True)
            rows = self.log_lik(at, batch) * batch.weight
            gradient = _gradient(rows.sum(), at)
        if gradient is not None:
            out.add_(gradient, alpha=-scale)
        return rows.detach()

    def value_and_gradient(
        self,
        theta: Tensor,
        batch: Batch,
        state: State,
        rng: ChainRandom,
        *,
        out: Tensor,
        scale: float,
    ) -> Tensor:
        """:meth:`likelihood_gradient`, and the potential with the gradient that it adds to ``out``.

        This potential, scale * (sum over rows of weight * -log p(row | theta)), has shape (chains,)
        in float64. Samplers with an energy need it, and ``prior_potential`` for models with latent
        variables. The step's ``aux`` is then empty.
        """
        if self._by_autograd:
            rows = self._differentiate(theta, batch, out, scale)
        else:
            self.likelihood_gradient(theta, batch, state, rng, out=out, scale=scale)
            rows = self.log_lik(theta, batch) * batch.weight
        return rows.sum(1, dtype=torch.float64).mul_(-scale)

    def scores(self, theta: Tensor, batch: Batch) -> Tensor:
        """grad log p(row | theta) of every row at one position, shape (rows, n_parameters)."""
        state = self.init_state(theta)
        same = replace(batch, weight=1.0)
        return -self.row_gradients(theta, same, state, ChainRandom([]))[0]

    def row_gradients(self, theta: Tensor, batch: Batch, state: State, rng: ChainRandom) -> Tensor:
        """weight * grad(-log p(row | theta)) of every row, (chains, rows, n_parameters).

        They are :meth:`likelihood_gradient` of as many chains as there are rows. Rows that chains
        share are for a single chain.
        """
        each = theta.repeat_interleave(batch.size, 0)
        states = {name: t.repeat_interleave(batch.size, 0) for name, t in state.items()}
        out = torch.zeros_like(each)
        self.likelihood_gradient(each, batch.by_row(), states, rng, out=out, scale=1.0)
        return out.view(len(theta), batch.size, -1)

    def prior_potential(self, theta: Tensor, state: State) -> Tensor:
        """-log p(theta) given the latent variables in ``state``, up to a constant, shape (chains,).

        Its gradient is what :meth:`prior_gradient` computes. It may be in a higher precision than
        theta.
        """
        return -self.log_prior(theta)

    def prior_curvature(self) -> float:
        """Largest curvature of -log prior, e.g. 1/sigma^2; 0 if unknown.

        For samplers that precondition by the gradient of the likelihood, it bounds the steps in
        directions about which the rows carry no information.
        """
        return 0.0

    def prior_rates(self, state: State) -> Tensor | None:
        """Curvature of -log prior in every coordinate, if latent variables change it; else None.

        The tensor (chains, n_parameters) is an entry of the state, which ``after_step`` changes in
        place, so that its values are always the present ones. It replaces ``prior_curvature``.
        """
        return None

    # optional parts -------------------------------------------------------------------------------

    #: models with a position-dependent metric override this by ``metric(theta) -> Metric``
    metric: Any = None
    #: models on a restricted domain override this by ``project(theta)``, which works in place
    project: Any = None
    #: models with latent variables override this by
    #: ``after_step(theta, state, aux, k, rng, temperature)``, which works in place after step k.
    #: ``aux`` is the dict that the step's last gradient returned, and ``temperature`` is T of the
    #: step. It returns True if it changed the position or the latent variables, so that densities
    #: and gradients that were computed before no longer hold; otherwise False
    after_step: Any = None
    #: ``after_step`` does nothing after steps k that are no multiples of this number
    after_every: int = 1
    #: models with ``recorded`` variables that no gradient needs override this by
    #: ``draw_recorded(theta, rng, temperatures)``, which draws them given the kept draws: from
    #: arrays theta (chains, draws, n_parameters) and temperatures (draws,) to an array
    #: (chains, draws, n_kept - n_parameters). Other models have them in their state
    draw_recorded: Any = None
    #: whether all of the model's operations are known to be recordable on a GPU (CUDA graphs): they
    #: keep their memory and never wait. Other models can be recorded with ``compiled=True``
    recordable: bool = False
    #: models that can have a Gaussian as prior override this by ``with_past(past, near)``: a model
    #: of later rows of a stream, with the prior ``past``, unless it is None, and with its maximum
    #: near a position, if that is given
    with_past: Any = None
    #: they also have ``move_recorded(recorded, before, now)``: recorded variables of draws that are
    #: moved from positions ``before`` to ``now``, (chains, draws, n_parameters) each
    move_recorded: Any = None

    #: whether the model has ``conditionals``, which draw better than steps do
    conjugate: bool = False

    def conditionals(self, data: Data) -> Any:
        """Conditional distributions for all rows (see ``_metric.Conditionals``); None if unknown.

        Their method ``with_random(rng)`` returns a copy that draws with the numbers of some chains.
        """
        return None

    def anchor(self, center: Array, data: Data, root: Array | None = None) -> Anchor | None:
        """Control variates about ``center``; they are constant, or linear if ``root`` is given.

        ``root`` is the root of the expected covariance of the draws. If a batch has the anchor's
        fields, ``likelihood_gradient`` adds the gradient *minus* its control variate.
        """
        return None

    @property
    def prior_of_signed_rows(self) -> PriorSlopes | None:
        """The prior if p = sigmoid(-theta'x) of the rows x, for compiled steps; else None."""
        return None

    def linear_rows(self, data: Data) -> LinearRows | None:
        """The potential by its rows' predictors, for compiled steps; else None."""
        return None

    @property
    def row_products(self) -> float:
        """About how many multiplications log p of a row takes, for devices and threads."""
        return float(self.n_parameters)

    #: whether ``row_products`` are all; code of users may do more
    counts_products: bool = False

    def kernels_pay(self, data: Data, n_steps: int) -> bool:
        """Whether a run of ``n_steps`` steps is long enough to be worth compiling ``kernels``."""
        return False

    def with_kernel(self, name: str) -> Self:
        """A copy of this model that uses the kernel ``name``, one of ``kernels``."""
        raise NotImplementedError

    # parts that depend on the data or on the run, and are known before the first step

    def bound(self, data: Data) -> Self:
        """The model for these data: itself, or a copy with its data-dependent parts set."""
        return self

    def prepared(self, n_steps: int) -> Self:
        """The model for a run of ``n_steps`` steps.

        It raises ``ValueError`` if the number of steps does not suit the model. It is not called
        for streams, which have no end.
        """
        return self

    # draws ----------------------------------------------------------------------------------------

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Named arrays ``(..., *shape)`` from draws (..., n_kept)."""
        return named_blocks(draws, self.shapes | dict(self.recorded))

    def derive(self, draws: Array, data: Data) -> dict[str, Array]:
        """Arrays (chains, draws, ...), by name, that predictions need in addition to the draws.

        ``draws`` has shape (chains, draws, n_kept); ``data`` are the rows of the fit.
        """
        return {}


def named_blocks(draws: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Blocks (..., *shape) of arrays (..., n), by name."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = zip(shapes.items(), np.split(draws, ends[:-1], axis=-1), strict=True)
    return {name: part.reshape((*draws.shape[:-1], *shape)) for (name, shape), part in parts}


__all__ = ["Anchor", "Metric", "Model"]


def _gradient(of: Tensor, at: Tensor) -> Tensor | None:
    """The gradient; None of a constant, such as a flat prior or the likelihood of no data."""
    return torch.autograd.grad(of, at, allow_unused=True)[0] if of.requires_grad else None
