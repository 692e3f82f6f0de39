"""A log density of the user's own as a model without data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array
from .._data.chain_random import ChainRandom
from .._data.minibatch import Batch, Data
from .._exceptions import not_allowed
from .._metric import State
from ._protocol import Model


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
        if _shape(found) != (len(theta),):
            raise refused(
                f"log_density returned {described(found)} for theta of shape "
                f"{tuple(theta.shape)}: return a tensor with one number for each row of theta."
            )
        values = torch.as_tensor(found, device=theta.device)
        if values.is_complex():
            raise refused("log_density returned complex numbers: return real ones, such as .real.")
        if theta.requires_grad and not values.requires_grad:
            raise _no_gradient()
        return values[:, None]

    def check_rows(self, theta: Tensor) -> None:
        """Refuse a density that changes theta, is nowhere known, or has no gradient in theta.

        Also refuse one of a row of theta that depends on the other rows. As many chains as
        parameters hide a wrong axis from all other checks: ``theta[0]`` for ``theta[:, 0]``, or
        ``sum(0)`` for ``sum(1)``. A function that is random is left alone.
        """
        if not self._by_autograd:
            return
        batch = Data({}, 1).all_rows()
        with torch.no_grad():
            every = _unchanged("log_density", theta, lambda at: self.log_lik(at, batch))
            if every.isnan().all():
                raise refused(
                    "log_density returned nan wherever the chains start: give an init where it is "
                    "finite."
                )
            again, alone = self.log_lik(theta, batch), self.log_lik(theta[:1], batch)
        leaf = theta.clone().requires_grad_()
        total = self.log_lik(leaf, batch).sum()
        if torch.autograd.grad(total, leaf, allow_unused=True)[0] is None:
            raise _no_gradient()
        same = partial(torch.allclose, rtol=1e-3, atol=1e-3, equal_nan=True)
        if same(every, again) and not same(every[:1], alone):
            raise refused(
                f"log_density returned {alone.item():.5g} for one row of theta, and "
                f"{every[0].item():.5g} for the same row before {len(theta) - 1} others: each row "
                "is a chain, and its density must not depend on the others. Sums and means are "
                "over axis 1, and the first parameter is theta[:, 0]."
            )

    def check_gradient(self, theta: Tensor) -> None:
        """Refuse a gradient that is not that of -log density along a line through each start.

        Left alone are a gradient that is random, and a density that is constant or not one number
        for each chain, since samplers need the gradient alone.
        """
        if self._by_autograd:
            return
        gradient, again = (self._gradient_alone(theta, seed) for seed in range(2))
        if not torch.equal(gradient, again):
            return
        step = 1e-4 if theta.dtype == torch.float64 else 1e-2
        line = ChainRandom(np.random.SeedSequence(2).spawn(len(theta))).normal(theta.shape[1])
        ends = [self.log_density(theta + sign * step * line.to(theta)) for sign in (1.0, -1.0)]
        if any(_shape(end) != (len(theta),) for end in ends):
            return
        ahead, behind = (
            torch.as_tensor(end, device=theta.device).detach().to(theta) for end in ends
        )
        given, found = (gradient * line.to(theta)).sum(1), (behind - ahead) / (2.0 * step)
        rounding = 10.0 * torch.finfo(theta.dtype).eps * ahead.abs() / step
        wrong = (given - found).abs() > 0.1 * (given.abs() + found.abs()) + rounding
        if wrong.all() and found.any():
            raise refused(
                f"gradient_of_potential has the slope {given[0]:.5g} along a line through a start, "
                f"where -log_density has {found[0]:.5g}: return the gradient of "
                "-log_density, such as theta for -0.5 * (theta**2).sum(1); or leave it out, and "
                "autograd computes it."
            )

    def _gradient_alone(self, theta: Tensor, seed: int) -> Tensor:
        seeds = np.random.SeedSequence(seed).spawn(len(theta))
        rng = ChainRandom(seeds, str(theta.device))
        out, batch = torch.zeros_like(theta), Data({}, 1).all_rows()

        def gradient(at: Tensor) -> Tensor:
            self.likelihood_gradient(at, batch, {}, rng, out=out, scale=1.0)
            return out

        return _unchanged("gradient_of_potential", theta, gradient)

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
        if not isinstance(gradient, Tensor) or gradient.shape != theta.shape:
            raise refused(
                f"gradient_of_potential returned {described(gradient)} for theta of shape "
                f"{tuple(theta.shape)}: return a tensor of the shape of theta. "
                "rng.normal(n_parameters) has this shape, too."
            )
        out.add_(gradient, alpha=scale)
        return dict(aux)


def _unchanged(name: str, theta: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """What a function of the user's returns, which must leave the positions as they are."""
    at = theta.clone()
    found = function(at)
    if not torch.equal(at, theta):
        raise refused(
            f"{name} changes theta, which are the positions of the chains: work on theta.clone(), "
            "or leave out operations in place, such as theta.sub_(...)."
        )
    return found


def _no_gradient() -> ValueError:
    return refused(
        "log_density returned a tensor without a gradient in theta: compute it from theta by "
        "operations of torch, or give gradient_of_potential."
    )


def _shape(found: Any) -> tuple[int, ...] | None:
    """Shape of a tensor or an array or what could be one; None of what has no shape."""
    try:
        return tuple(np.shape(found.detach() if isinstance(found, Tensor) else found))
    except (TypeError, ValueError, RuntimeError):  # such as a tuple of a tensor and something else
        return None


def described(found: Any) -> str:
    """What a function of the user's returned, for messages."""
    shape, kind = _shape(found), type(found).__name__
    return kind if shape is None else f"{kind} of shape {shape}"


def refused(message: str) -> ValueError:
    """An error about what the user samples."""
    return not_allowed(message, "a-density-of-your-own-is-not-allowed")
