"""What a sampler declares, and the step it is handed.

Symbols follow the papers: ``theta`` position, ``v`` momentum in step units (v = h p with
h^2 = eta/N), ``a`` friction per step (a = h xi), ``g`` gradient of the mean potential u = U/N,
``xi`` standard normal noise. All tensors are (chains, parameters), all updates are in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from .._metric import Metric, State


def _nothing() -> Tensor:
    return torch.empty(0)


@dataclass(slots=True)
class Step:
    """Everything one step needs; one object is reused over the run.

    Attributes
    ----------
    eta : float
        Step size: multiplies the gradient of the mean potential.
    noise : float
        Noise temperature of this step, eta T / N: the variance of sqrt(eta T / N) xi.
    temperature : float
        T; 0 turns noise and thermostats off.
    n : float
        N, the number of data (the sum of the sample weights).
    xi : Tensor of shape (chains, parameters)
        Standard normals, fresh at each step.
    uniform : Tensor of shape (chains,)
        Uniform numbers of this step, for Metropolis-Hastings.
    streams : sequence
        The chains' streams of random numbers, for compiled steps that make their own normals.
    scratch : Tensor
        What :meth:`buffer` returns.
    gradient : callable
        ``gradient(theta)`` returns the stochastic gradient g; the result is a buffer that the
        next call overwrites.
    likelihood : callable
        ``likelihood()`` returns the part of the latest g that comes from the data.
    potential : callable
        ``potential(theta)`` returns the mean potential u over all data, shape (chains,).
    metric : callable or None
        ``metric(theta)`` returns the model's :class:`Metric`.
    prior_curvature : float
        Largest curvature of the prior's part of u, e.g. 1 / (N sigma^2); 0 if unknown.
    project : callable or None
        ``project(theta)`` maps a position back into the model's domain, in place.
    """

    n: float
    gradient: Callable[[Tensor], Tensor]
    likelihood: Callable[[], Tensor]
    potential: Callable[[Tensor], Tensor]
    metric: Callable[[Tensor], Metric] | None = None
    project: Callable[[Tensor], Any] | None = None
    eta: float = 0.0
    noise: float = 0.0
    temperature: float = 1.0
    xi: Tensor = field(default_factory=_nothing)
    uniform: Tensor = field(default_factory=_nothing)
    prior_curvature: float = 0.0
    streams: Sequence[Any] = ()
    scratch: Tensor = field(default_factory=_nothing)

    def buffer(self, like: Tensor) -> Tensor:
        """Working memory of this shape, the same at each call: a fresh one is slow to touch."""
        if self.scratch.shape != like.shape:
            self.scratch = torch.empty_like(like)
        return self.scratch


class Sampler(BaseEstimator):
    """Base of all samplers: parameters only; what moves lives in the state tensors."""

    #: runs on all rows at every step, with a Metropolis-Hastings correction
    full_data = False
    #: needs the model's metric(theta)
    needs_metric = False
    #: keep the data part of the gradient apart from the prior's
    needs_likelihood_gradient = False
    #: preconditions by itself, so that a constant preconditioner is refused
    self_preconditioned = False

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is the parameter's path."""

    def uses_metric(self, metric: Any) -> bool:
        """Whether it moves in a model's ``metric`` (None: there is none)."""
        return self.needs_metric

    def init_state(self, theta: Tensor, step: Step) -> State:
        """State tensors (each with the chains as first axis) before the first step."""
        return {}

    def rescale(self, state: State, ratio: float) -> None:
        """The schedule has changed eta by the factor ``ratio``."""

    def end_burn_in(self, state: State) -> None:
        """Burn-in is over: stop adapting, if the sampler adapts."""

    def euler(self, theta: Tensor, state: State, step: Step) -> None:
        """One joint Euler step."""
        raise NotImplementedError

    def injected(self, eta: float, n: float) -> float:
        """Variance of the injected noise of a step in units of 2 eta T / N."""
        return 1.0

    # what step_size="auto" asks of a sampler -----------------------------------------------------

    def own_step(self, n_parameters: int) -> float | None:
        """Its own rule for eta where the posterior is standard normal; None: the table's step."""
        return None

    def own_preconditioner(
        self, mean_square: NDArray[Any], prior_curvature: float
    ) -> NDArray[Any] | None:
        """The diagonal that it will precondition by, if it does by itself; None: it has no rule.

        ``mean_square`` (n_parameters,) is that of the likelihood's part of the gradient g;
        ``prior_curvature`` is as in :class:`Step`.
        """
        return None

    def resistance(self) -> float:
        """R such that a constant g moves the position by eta g / R a step: 1, or a friction."""
        return 1.0

    def statistics(self, state: State) -> dict[str, Tensor]:
        """Per-chain figures of the run to report, each of shape (chains,)."""
        return {}


def chain_mean(x: Tensor) -> Tensor:
    """Mean over the parameters of each chain, shape (chains, 1)."""
    return torch.mean(x, dim=1, keepdim=True)
