"""Position-dependent preconditioners, as models supply them to RSGLD and MALA."""

from __future__ import annotations

from torch import Tensor

#: tensors of a sampler or model, each with the chains on the first axis
State = dict[str, Tensor]


class Metric:
    """A position-dependent preconditioner M(theta), as a model's ``metric(theta)`` returns it.

    ``times(g)`` is M g, ``root_times(xi)`` is M^(1/2) xi, ``divergence`` is the vector
    div M with components sum_j dM_ij/dtheta_j. ``inverse_quadratic(d)`` = d' M^-1 d and
    ``log_det`` (both of shape (chains,)) are needed by MALA only.
    """

    divergence: Tensor

    def times(self, g: Tensor) -> Tensor:
        raise NotImplementedError

    def root_times(self, xi: Tensor) -> Tensor:
        raise NotImplementedError

    def inverse_quadratic(self, d: Tensor) -> Tensor:
        raise NotImplementedError

    def log_det(self) -> Tensor:
        raise NotImplementedError


class DiagonalMetric(Metric):
    """A diagonal metric, M = diag(m).

    Parameters
    ----------
    m : Tensor of shape (chains, parameters)
        Diagonal of M, positive.
    divergence : Tensor of shape (chains, parameters)
        The vector div M: the derivative of every ``m_i`` with respect to ``theta_i``.
    """

    def __init__(self, m: Tensor, divergence: Tensor):
        self.m = m
        self.divergence = divergence

    def times(self, g: Tensor) -> Tensor:
        return self.m * g

    def root_times(self, xi: Tensor) -> Tensor:
        return self.m.sqrt() * xi

    def inverse_quadratic(self, d: Tensor) -> Tensor:
        return (d * d / self.m).sum(1)

    def log_det(self) -> Tensor:
        return self.m.log().sum(1)
