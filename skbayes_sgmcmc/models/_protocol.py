"""What a model gives the engine.

For a model of your own, write ``shapes``, ``init`` and

* ``log_prior`` and ``log_lik``: gradients come by autograd, and every sampler that needs no metric
  runs with a step size that is a number;
* or ``prior_gradient`` and ``likelihood_gradient``, if autograd is too slow or there is no density.

All else is optional:

==========================================  ====================================================
you want                                    you write
==========================================  ====================================================
``step_size="auto"``, ``init="map"``        :attr:`Model.tuning`, or a subclass of ``CurvedModel``
latent variables                            ``init_state``, ``after_step``, ``recorded``
RSGLD                                       ``metric``; on a part of space, ``project``
control variates                            ``anchor``, and ``find_map`` of a ``CurvedModel``
sampling thresholds, mixing distances       ``scores``, if autograd's are too slow
pSGLD where rows say nothing                ``prior_curvature``
draws that are more than theta              ``unpack``, ``derive``
==========================================  ====================================================

Gradients are those of potentials (negative log densities), summed over rows and *unscaled*: the
factor N/n, temperatures and coordinates are the target's business (``_engine/target.py``).
All positions are ``theta`` of shape (chains, n_parameters).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._data.chain_random import ChainRandom
from .._data.minibatch import Batch, Data
from .._metric import Metric, State

if TYPE_CHECKING:
    from ._tuning import Tuning

Array = NDArray[Any]


@dataclass
class Anchor:
    """Control variates of a likelihood gradient and their exact sum over all rows.

    Attributes
    ----------
    fields : dict of str to Tensor
        Per-row fields that batches will carry.
    gradient : array of shape (n_parameters,)
        Sum of the control variates over all rows at the centre, weighted.
    hessian : array of shape (n_parameters, n_parameters) or None
        Its slope in theta - center.
    """

    fields: dict[str, Tensor]
    gradient: Array
    hessian: Array | None


@dataclass
class LinearForm:
    """A likelihood prod_i sigmoid(-theta'x_i)^w_i with a factorised prior of given rates.

    Attributes
    ----------
    design : Design
        The rows x_i, signed by their labels.
    rates : array of shape (n_parameters,)
        Rates of the prior.
    prior : {"normal", "laplace"}
        Which gradient they are the rates of.
    """

    design: Any
    rates: Array
    prior: str


class Model:
    """Base class of models: override what the model has; the rest has defaults or is refused.

    Attributes
    ----------
    shapes : dict of str to tuple
        Name and shape of every block of parameters, in their order in ``theta``.

    Notes
    -----
    A model gives either ``log_prior`` and ``log_lik`` (differentiated by autograd) or its own
    ``prior_gradient`` and ``likelihood_gradient``; the latter may be an expectation (LDA) or draw
    random numbers from ``rng``, and may keep per-chain ``state``, which checkpoints include.
    """

    shapes: dict[str, tuple[int, ...]]
    #: what is kept of ``state`` with every draw, by name, with the shape for one chain
    recorded: Mapping[str, tuple[int, ...]] = {}
    #: False if the density has corners, which need smaller steps
    smooth: bool = True
    #: True where ``dtype="auto"`` means float32 for small models too (convolutions, whose fast
    #: kernels are in single precision)
    single_precision: bool = False
    #: names of the compiled functions by which the model can do a part of its work on a CPU; each
    #: has an entry in the engine's list of accelerators
    kernels: Sequence[str] = ()
    #: whether it asks for ``rng.gamma``, which the compiled generator does not have
    needs_gamma: bool = False

    @property
    def n_parameters(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    @property
    def n_kept(self) -> int:
        """Numbers kept of a draw: theta, and what is ``recorded`` after it."""
        return self.n_parameters + sum(int(np.prod(shape)) for shape in self.recorded.values())

    def places(self) -> dict[str, slice]:
        """Where every block is in a draw; those of ``shapes`` are in theta, too."""
        found, start = {}, 0
        for name, shape in (self.shapes | dict(self.recorded)).items():
            stop = start + int(np.prod(shape))
            found[name], start = slice(start, stop), stop
        return found

    @property
    def tuning(self) -> Tuning | None:
        """What ``step_size="auto"`` means for this model (``models/_tuning.py``).

        None: it is refused, and so are ``init="map"`` and control variates. Models whose posterior
        has many modes return ``ManyModes(self)``; those that know their centre and curvature are
        subclasses of ``CurvedModel``, which returns ``WhitenedGaussian(self)``.
        """
        return None

    # where a chain starts -------------------------------------------------------------------------

    def init(self, rng: np.random.Generator) -> Array:
        """A starting position of shape (n_parameters,)."""
        raise NotImplementedError

    def init_state(self, theta: Tensor) -> State:
        """Per-chain tensors that move along with theta (latent variables, masks)."""
        return {}

    # densities ------------------------------------------------------------------------------------

    def log_prior(self, theta: Tensor) -> Tensor:
        """log p(theta), shape (chains,)."""
        raise NotImplementedError

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        """log p(row | theta) of every row, shape (chains, rows)."""
        raise NotImplementedError

    # gradients ------------------------------------------------------------------------------------

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        """out = scale * grad(-log prior), given the latent variables in ``state``."""
        with torch.enable_grad():
            at = theta.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(self.log_prior(at).sum(), at, allow_unused=True)
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
        """out += scale * sum over rows of weight * grad(-log p(row | theta)); returns ``aux``.

        ``aux`` is handed to :meth:`after_step`. A key "likelihood" in it replaces the likelihood
        gradient that self-preconditioning samplers see.
        """
        with torch.enable_grad():
            at = theta.detach().requires_grad_(True)
            weighted = self.log_lik(at, batch) * batch.weight
            (gradient,) = torch.autograd.grad(weighted.sum(), at)
        out.add_(gradient, alpha=-scale)
        return {}

    def scores(self, theta: Tensor, batch: Batch) -> Tensor:
        """grad log p(row | theta) of every row at one position: (rows, n_parameters)."""

        def total(one: Tensor) -> Tensor:
            return self.log_lik(one, batch)[0]

        jacobian = torch.autograd.functional.jacobian(total, theta, vectorize=True)
        return jacobian[:, 0]

    def prior_curvature(self) -> float:
        """Largest curvature of -log prior, e.g. 1/sigma^2; 0 where unknown.

        It bounds the steps of samplers that precondition by the likelihood's gradient, in
        directions of which the rows say nothing.
        """
        return 0.0

    # optional parts -------------------------------------------------------------------------------

    #: overridden as ``metric(theta) -> Metric`` by models with a position-dependent metric
    metric: Any = None
    #: overridden as ``project(theta)``, in place, by models on a restricted domain
    project: Any = None
    #: overridden as ``after_step(theta, state, aux, k, rng)``, in place, by models with latent
    #: variables; ``aux`` is what the step's last gradient returned
    after_step: Any = None

    def anchor(self, center: Array, data: Data, root: Array | None = None) -> Anchor | None:
        """Control variates about ``center``: constant, or linear if ``root`` is given.

        ``root`` is the root of the covariance of the draws to come. With the anchor's fields in a
        batch, ``likelihood_gradient`` returns the gradient *less* its control variate.
        """
        return None

    def linear_form(self, data: Data) -> LinearForm | None:
        """The model's potential as a function of linear predictors, for the compiled kernel."""
        return None

    def kernels_pay(self, data: Data, n_steps: int) -> bool:
        """Whether compiling ``kernels`` is worth its seconds in a run of so many steps."""
        return False

    def with_kernel(self, name: str) -> Self:
        """A copy of this model that uses one of its ``kernels``."""
        raise NotImplementedError

    # what depends on the data or on the run, and is known before the first step

    def bound(self, data: Data) -> Self:
        """The model given these data: itself, or a copy with what depends on them."""
        return self

    def prepared(self, n_steps: int) -> Self:
        """The model for a run of so many steps; ``ValueError`` if these do not suit it.

        Streams, whose runs have no end, have no such step.
        """
        return self

    # draws ----------------------------------------------------------------------------------------

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Named arrays (..., *shape) from draws (..., n_kept)."""
        shapes = self.shapes | dict(self.recorded)
        return {
            name: draws[..., place].reshape(*draws.shape[:-1], *shapes[name])
            for name, place in self.places().items()
        }

    def derive(self, draws: Array, data: Data) -> dict[str, Array]:
        """What predictions need of draws (chains, draws, n_kept) beside the draws themselves.

        Arrays (chains, draws, ...) by name; ``data`` are the rows of the fit.
        """
        return {}


class DensityModel(Model):
    """A user's log density as a model without data: N = 1, u = U = -log density.

    Parameters
    ----------
    log_density : callable
        ``log_density(theta)`` for a tensor (chains, n_parameters), returning (chains,).
    n_parameters : int
        Length of theta.
    gradient : callable or None
        ``gradient(theta, rng)`` returning the gradient of -log density (chains, n_parameters), for
        densities with their own gradient or with noisy ones; ``rng`` is a ``ChainRandom``.
        None: autograd of ``log_density``.
    """

    def __init__(self, log_density: Any, n_parameters: int, gradient: Any = None):
        self.log_density = log_density
        self.gradient = gradient
        self.shapes = {"theta": (n_parameters,)}

    def init(self, rng: np.random.Generator) -> Array:
        return rng.standard_normal(self.n_parameters)

    def log_prior(self, theta: Tensor) -> Tensor:
        return theta.new_zeros(len(theta))

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        # the density counts as the likelihood of one datum, so that samplers that precondition by
        # the likelihood's gradient see it
        return torch.as_tensor(self.log_density(theta))[:, None]

    def prior_gradient(self, theta: Tensor, state: State, out: Tensor, scale: float) -> None:
        out.zero_()

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
        if self.gradient is None:
            return super().likelihood_gradient(theta, batch, state, rng, out=out, scale=scale)
        gradient = self.gradient(theta, rng)
        gradient, aux = gradient if isinstance(gradient, tuple) else (gradient, {})
        out.add_(gradient, alpha=scale)
        return dict(aux)


__all__ = ["Anchor", "DensityModel", "LinearForm", "Metric", "Model"]
