"""The interface of samplers, and the step that they receive.

Symbols follow the papers: ``theta`` is the position, ``v`` the momentum in step units (v = h p with
h^2 = eta/N), ``a`` the friction per step (a = h xi), ``g`` the gradient of the mean potential
u = U/N, and ``xi`` standard normal noise. All tensors have shape (chains, parameters).

A step is a function of tensors that never replaces one: from position, sampler state, model state,
rows and noise to the first three, in place. A chunk of steps can so be recorded on a GPU, or taken
by a compiled kernel. Within a chunk, no step

* puts another tensor in the place of an entry of the state, adds an entry or takes one out;
* decides in Python by the value of a tensor (``bool``, ``item``, ``nonzero``, masks as indices),
  for which a GPU would have to be waited for.

What varies from step to step is a number that is known before the chunk (eta, temperature, the
finished fraction of the burn-in). Between chunks, :meth:`Sampler.prepare` adds what the next steps
need, ``end_burn_in`` and ``forget_step`` take out what none needs any more, and Python may look at
values. The presence of an entry can be what a step decides by. ``tests/test_steps.py`` watches the
steps of all samplers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._exceptions import undefined
from .._metric import Conditionals, Metric, State
from .._sklearn import BaseEstimator


def _nothing() -> Tensor:
    return torch.empty(0, device="cpu")


def _no_variance(theta: Tensor) -> Tensor:
    raise NotImplementedError("this step has no gradients of single rows")


def _no_potential(theta: Tensor) -> tuple[Tensor, Tensor]:
    raise NotImplementedError("this step has no potential of the minibatch")


@dataclass(slots=True)
class Step:
    """Everything that one step needs; one object is reused over the run.

    Attributes
    ----------
    eta : float
        Step size eta. It multiplies the gradient of the mean potential.
    noise : float
        Noise temperature of this step, eta T / N: the variance of sqrt(eta T / N) xi.
    temperature : float
        T; 0 turns noise and thermostats off.
    temperatures : array of shape (steps,)
        T of all steps of a chunk, for integrators that take them at once.
    n : float
        N, the number of data (the sum of the sample weights).
    xi : Tensor of shape (chains, parameters)
        Standard normals, fresh at each step.
    uniform : Tensor of shape (chains,)
        Uniform numbers of this step, for Metropolis-Hastings.
    conditionals : Conditionals or None
        The model's conditional distributions. None if it has none, or the sampler needs none.
    streams : sequence
        Random number stream of each chain, for compiled steps that make their own normals.
    scratch : Tensor
        The working memory that :meth:`buffer` returns.
    gradient : callable
        ``gradient(theta)`` returns the stochastic gradient g. The next call overwrites the
        returned tensor.
    likelihood : callable
        ``likelihood()`` returns the part of the latest g that comes from the data.
    potential : callable
        ``potential(theta)`` returns the mean potential u over all data, shape (chains,).
    metric : callable or None
        ``metric(theta)`` returns the model's :class:`Metric`. None if the model has no metric.
    prior_curvature : float
        Largest curvature of the prior's part of u, e.g. 1 / (N sigma^2); 0 if unknown.
    value_and_gradient : callable
        ``value_and_gradient(theta)`` returns the mean potential u of the minibatch, of shape
        (chains,) in float64, and g.
    variance : callable
        ``variance(theta)`` returns the variance of g over minibatches in every coordinate, of shape
        (chains, parameters), estimated from the gradients of this minibatch's rows.
    tuning : bool
        Whether the sampler may change its own step size: in the burn-in, with "auto".
    guessed : bool
        Whether eta is only a first guess if it is "auto", because nothing is known of the
        posterior's scales.
    progress : float
        The finished fraction of the burn-in; 1 after it.
    all_progress : array of shape (steps,)
        The same of all steps that are taken at once.
    burnt_in : int
        Number of steps of the burn-in before this one; 0 in a run without a burn-in.
    energy_error : float
        Mean square of a step's energy error, per parameter, that suits the model.
    same_rows : bool
        Whether every step uses the same rows, all of them as they are.
    same_target : bool
        Whether rows and latent variables are those of the last gradient.
    prior_rates : Tensor of shape (chains, parameters) or None
        Curvature of N u's prior part in every coordinate, which the model keeps up to date if its
        latent variables change it. If not None, it replaces ``prior_curvature``.
    project : callable or None
        ``project(theta)`` maps a position back into the model's domain, in place.
    """

    n: float
    gradient: Callable[[Tensor], Tensor]
    likelihood: Callable[[], Tensor]
    potential: Callable[[Tensor], Tensor]
    metric: Callable[[Tensor], Metric] | None = None
    project: Callable[[Tensor], Any] | None = None
    value_and_gradient: Callable[[Tensor], tuple[Tensor, Tensor]] = _no_potential
    variance: Callable[[Tensor], Tensor] = _no_variance
    eta: float = 0.0
    noise: float = 0.0
    temperature: float = 1.0
    temperatures: Array = field(default_factory=lambda: np.ones(1))
    xi: Tensor = field(default_factory=_nothing)
    uniform: Tensor = field(default_factory=_nothing)
    prior_curvature: float = 0.0
    tuning: bool = False
    guessed: bool = False
    progress: float = 1.0
    all_progress: Array = field(default_factory=lambda: np.ones(1))
    burnt_in: int = 0
    energy_error: float = 5e-4
    same_rows: bool = True
    same_target: bool = False
    prior_rates: Tensor | None = None
    conditionals: Conditionals | None = None
    streams: Sequence[Any] = ()
    scratch: Tensor = field(default_factory=_nothing)

    def buffer(self, like: Tensor) -> Tensor:
        """Working memory of this shape. It is reused because new memory is slow at first use."""
        if self.scratch.shape != like.shape:
            self.scratch = torch.empty_like(like)
        return self.scratch


class Sampler(BaseEstimator):
    """Base class of all samplers. A subclass writes :meth:`euler`; the rest is optional.

    A sampler holds parameters only. Everything that changes during a run is in the state tensors.
    """

    #: whether every step uses all rows, with a Metropolis-Hastings correction
    full_data = False
    #: whether the sampler needs the model's metric(theta)
    needs_metric = False
    #: whether the sampler needs the likelihood's part of the gradient separately from the prior's
    needs_likelihood_gradient = False
    #: whether the sampler draws from the model's conditional distributions, and takes no steps
    needs_conditionals = False
    #: whether the sampler preconditions by itself; a constant preconditioner is then refused
    self_preconditioned = False
    #: whether the sampler is an optimiser at temperature 0, so that it can find its own starts
    cools = True
    #: whether the sampler needs the potential of the minibatch along with the gradient
    needs_potential = False
    #: whether steps add noise like SGLD's, of the variance 2 eta T / N times ``injected``
    injects = True
    #: whether the sampler finds its step size in the burn-in, whatever the model
    finds_step = False
    #: c, if a step is like a leapfrog step of the squared length c eta, with the energy error of
    #: ``_tuning.py``; None if it is not
    squared_length: float | None = None
    #: smallest number of parameters that the dynamics can move
    least_parameters = 1

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is the sampler's path."""

    def check_integrator(self, integrator: str) -> None:
        """Raise ``ValueError`` if this integrator cannot take steps with these parameters."""

    def uses_metric(self, metric: Any) -> bool:
        """Whether the sampler moves in a model's ``metric``, which is None if there is none."""
        return self.needs_metric

    def compares_gradients(self) -> bool:
        """Whether a step compares gradients of the same rows, which must then not be random."""
        return False

    def compares_rows(self) -> bool:
        """Whether a step compares the gradients of the rows of its minibatch."""
        return False

    def init_state(self, theta: Tensor, step: Step) -> State:
        """State tensors before the first step; the first axis of each is the chains."""
        return {}

    def rescale(self, state: State, ratio: float) -> None:
        """Adapt the state after the schedule has changed eta by the factor ``ratio``."""

    def numbers(self, step: Step) -> tuple[Any, ...]:
        """Numbers of a step, besides eta and T, that decide about its operations.

        A step that was recorded on a GPU holds for steps with the same numbers.
        """
        return step.tuning, step.progress, step.burnt_in

    def prepare(self, theta: Tensor, state: State, step: Step) -> None:
        """Add to the state what the steps of a chunk need and it lacks, before the first of them.

        The rows, the noise and the numbers in ``step`` are those of the chunk's first step.
        """

    def end_burn_in(self, state: State) -> None:
        """Stop adapting at the end of burn-in, if the sampler adapts."""

    def forget_step(self, state: State) -> None:
        """Use eta itself from now on, whatever step size an earlier run has found."""

    def gradient(self, theta: Tensor, state: State, step: Step) -> Tensor:
        """The stochastic gradient g; a sampler may learn its step size from it."""
        return step.gradient(theta)

    def euler(self, theta: Tensor, state: State, step: Step) -> Tensor | None:
        """Take one joint Euler step: change ``theta`` and ``state`` in place.

        New positions may also be returned.
        """
        raise undefined(self, "euler(theta, state, step)")

    def injected(self, eta: float, n: float) -> float:
        """Variance of the injected noise of a step in units of 2 eta T / N."""
        return 1.0

    # for step_size="auto" ------------------------------------------------------------------------

    def own_step(self, n_parameters: int) -> float | None:
        """The sampler's own eta for a standard normal posterior; None to use the table's step.

        With it, ``step_size="auto"`` also works for samplers that are not in the table.
        """
        return None

    def own_preconditioner(self, mean_square: Array, prior_curvature: float) -> Array | None:
        """The diagonal preconditioner that the sampler will use; None if it has no rule for it.

        ``mean_square`` of shape (n_parameters,) is the mean square of the likelihood's part of the
        gradient g. ``prior_curvature`` is described in :class:`Step`.
        """
        return None

    def resistance(self) -> float:
        """R such that a constant g moves the position by eta g / R per step: 1, or the friction."""
        return 1.0

    def for_steps(self, share: float) -> Sampler:
        """The sampler of the same SDE for steps eta of this share of those it was given for."""
        return self

    def for_many_parameters(self) -> Sampler:
        """The sampler that "auto" means where each of thousands of parameters must mix."""
        return self

    def spacing(self, eta: float) -> float:
        """Steps between two nearly independent draws of a standard normal posterior."""
        return 1.0 / eta

    def largest_step(self, force: Array, distance: Array) -> Array:
        """The eta that lets a force, in one step, move a chain by this distance.

        Both are in coordinates where the posterior is standard normal, with T = 1.
        """
        return distance / force

    def used_step(self, eta: float, state: State) -> float:
        """The step size in use at the end of a run, if the sampler has changed it."""
        return eta

    def statistics(self, state: State, step: Step) -> dict[str, Tensor]:
        """Statistics of each chain to report after the run, each of shape (chains,).

        ``step`` is the last step.
        """
        return {}

    def doubts(self, statistics: dict[str, Array]) -> str | None:
        """Why draws with these statistics are not to be trusted, and what to change; else None."""
        return None


class Proposing(Sampler):
    """Base class of samplers that accept or refuse proposals, of which their state counts both."""

    def end_burn_in(self, state: State) -> None:
        state["accepted"].zero_()
        state["proposed"].zero_()

    def statistics(self, state: State, step: Step) -> dict[str, Tensor]:
        proposed = state["proposed"]
        if not proposed.any():
            return {}
        return {"acceptance_rate": state["accepted"] / proposed.clamp(min=1.0)}
