"""What models supply to some samplers: preconditioners M(theta), and conditional distributions."""

from __future__ import annotations

from torch import Tensor

from ._exceptions import undefined

#: tensors of a sampler or model, by name; the first axis of each is the chains
State = dict[str, Tensor]


class Metric:
    """Base class of position-dependent preconditioners M(theta).

    A model's ``metric(theta)`` returns one. MALA needs all methods; RSGLD does not need
    ``inverse_quadratic`` and ``log_det``.

    Attributes
    ----------
    divergence : Tensor of shape (chains, parameters)
        The vector div M with components sum_j dM_ij/dtheta_j.
    """

    divergence: Tensor

    def times(self, g: Tensor) -> Tensor:
        """M g, shape (chains, parameters)."""
        raise undefined(self, "times(g)")

    def root_times(self, xi: Tensor) -> Tensor:
        """M^(1/2) xi, shape (chains, parameters)."""
        raise undefined(self, "root_times(xi)")

    def inverse_quadratic(self, d: Tensor) -> Tensor:
        """d' M^-1 d, shape (chains,)."""
        raise undefined(self, "inverse_quadratic(d)")

    def log_det(self) -> Tensor:
        """log det M, shape (chains,)."""
        raise undefined(self, "log_det()")


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


class Conditionals:
    """Base class of a model's conditional distributions, for draws by Gibbs sampling."""

    def init_state(self, theta: Tensor) -> State:
        """Tensors that change along with the position, with "accepted" and "proposed" counts."""
        raise NotImplementedError

    def draw(self, theta: Tensor, state: State, temperature: float, count: int) -> Tensor:
        """Draw ``count`` positions one after another, shape (chains, count, parameters).

        The last one, and the state that goes with it, are written to ``theta`` and ``state``.
        """
        raise NotImplementedError
