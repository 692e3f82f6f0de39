"""A log density of the user's own as a model without data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._data.chain_random import ChainRandom
from .._data.minibatch import Batch
from .._exceptions import not_allowed
from .._metric import State
from ._protocol import Model

Array = NDArray[Any]


class DensityModel(Model):
    """A log density as a model without data, with N = 1 and u = U = -log density.

    Parameters
    ----------
    log_density : callable
        ``log_density(theta)`` takes a tensor of shape (chains, n_parameters) and returns a tensor
        of shape (chains,).
    n_parameters : int
        Length of theta.
    gradient : callable or None, default=None
        ``gradient(theta, rng)`` returns the gradient of -log density, of shape
        (chains, n_parameters), which may be noisy; ``rng`` is a ``ChainRandom``. None computes the
        gradient of ``log_density`` by autograd.
    """

    sums_rows = False

    def __init__(
        self,
        log_density: Callable[[Tensor], Tensor],
        n_parameters: int,
        gradient: Callable[..., Any] | None = None,
    ):
        self.log_density = log_density
        self.gradient = gradient
        self.shapes = {"theta": (n_parameters,)}

    def init(self, rng: np.random.Generator) -> Array:
        return rng.standard_normal(self.n_parameters)

    def log_prior(self, theta: Tensor) -> Tensor:
        return theta.new_zeros(len(theta))

    def log_lik(self, theta: Tensor, batch: Batch) -> Tensor:
        # the density counts as the likelihood of one datum, so that samplers can precondition by
        # its gradient
        found = self.log_density(theta)
        shape = tuple(np.shape(found.detach() if isinstance(found, Tensor) else found))
        if shape != (len(theta),):
            raise not_allowed(
                f"log_density returned {type(found).__name__} of shape {shape} for theta of shape "
                f"{tuple(theta.shape)}: return a tensor with one number for each row of theta.",
                "a-density-of-your-own-is-not-allowed",
            )
        values = torch.as_tensor(found)
        if theta.requires_grad and not values.requires_grad:
            raise not_allowed(
                "log_density returned a tensor without a gradient in theta: compute it from theta "
                "by operations of torch, or give gradient_of_potential.",
                "a-density-of-your-own-is-not-allowed",
            )
        return values[:, None]

    @property
    def _by_autograd(self) -> bool:
        return self.gradient is None

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
