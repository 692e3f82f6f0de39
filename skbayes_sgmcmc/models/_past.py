"""What the earlier rows of a stream say, as the prior of later rows: a Gaussian of theta."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._arrays import Array


@dataclass(frozen=True)
class Past:
    """The density N(center, precision^-1) of theta, up to a constant.

    Assumed-density filtering (Opper 1998; Broderick et al. 2013): the posterior given earlier rows
    is replaced by its Gaussian approximation, which is the prior of the next rows.
    """

    #: mean, (n_parameters,)
    center: Array
    #: inverse of the covariance, (n_parameters, n_parameters)
    precision: Array

    def gradient(self, theta: Tensor, out: Tensor, scale: float) -> None:
        """Write scale * grad(-log density) of positions (chains, n_parameters) to ``out``."""
        torch.mm(theta - torch.from_numpy(self.center).to(theta), self._matrix(theta), out=out)
        out.mul_(scale)

    def log_density(self, theta: Tensor) -> Tensor:
        """Log density of positions (chains, n_parameters), shape (chains,)."""
        away = theta - torch.from_numpy(self.center).to(theta)
        return -0.5 * ((away @ self._matrix(theta)) * away).sum(1)

    def potential(self, theta: Array) -> tuple[float, Array]:
        """-log density at a position, and its gradient."""
        gradient = self.precision @ (theta - self.center)
        return 0.5 * float(gradient @ (theta - self.center)), np.asarray(gradient)

    def _matrix(self, like: Tensor) -> Tensor:
        return torch.from_numpy(self.precision).to(like)


@dataclass(frozen=True)
class PastMean:
    """The posterior's mean given the rows of a stream when there were ``seen`` of them."""

    seen: float
    mean: Array
