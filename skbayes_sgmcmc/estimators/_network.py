"""What estimators of networks share: standardised inputs, the model, its predictions."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._validation import check_choice, check_int, check_real
from ._base import SGMCMCEstimator

if TYPE_CHECKING:
    from ..models.likelihoods import Likelihood
    from ..models.network import NetworkModel
    from ..models.networks import Network

Array = NDArray[Any]

#: chains of a network are compared by their predictions, of so many rows, and warned of at these
#: limits: every chain is in a mode of its own, of which a posterior of few chains has few
MIXING_ROWS, NETWORK_R_HAT_LIMIT, NETWORK_ESS_LIMIT = 50, 1.5, 8.0
#: prior sd of a classifier's logits with ``prior_scale="fan_in"``: probabilities near 0 and 1 are
#: as likely as others
LOGIT_GAIN = 4.0


class NetworkEstimator(SGMCMCEstimator):
    """Mixin of estimators whose model is a network; subclasses make the network."""

    prior_scale: Any
    standardize: bool

    def _make_network(self, n_outputs: int) -> Network:
        """The network for rows like those of the fit."""
        raise NotImplementedError

    def _check(self) -> Any:
        settings = super()._check()
        scales = self.prior_scale
        if isinstance(scales, Real):
            check_real("prior_scale", scales, low=0.0)
        elif isinstance(scales, str):
            check_choice("prior_scale", scales, ("fan_in",))
        elif np.ndim(scales) != 1 or not (np.asarray(scales, dtype=float) > 0).all():
            raise ValueError(
                f"prior_scale={scales!r} is not allowed: give 'fan_in', a positive number, or a "
                "sequence of them, one a layer."
            )
        check_choice("standardize", self.standardize, (True, False))
        return settings

    def _model(self, likelihood: Likelihood, n_outputs: int, output_gain: float) -> NetworkModel:
        from ..models.network import NetworkModel

        network = self._make_network(n_outputs)
        return NetworkModel(network, likelihood, self._prior(), self.prior_scale, output_gain)

    # inputs ---------------------------------------------------------------------------------------

    def _fit_inputs(self, X: Array, weight: Array | None) -> None:
        """Remember the centre and scale of the inputs; of rows, per feature."""
        if not self.standardize:
            self._x_center, self._x_scale = np.zeros(1), np.ones(1)
            return
        self._x_center, self._x_scale = center_and_scale(X, weight)

    def _inputs(self, X: Array) -> Array:
        """X as the network sees it."""
        return (X - self._x_center) / self._x_scale

    # predictions ----------------------------------------------------------------------------------

    def _outputs(self, draws: Any, x: Array) -> Array:
        """Outputs (draws, rows, k) of some pooled draws of the parameters."""
        import torch

        network = self._make_network(self._n_outputs)
        blocks = [self.posterior_[name] for name in network.shapes]
        theta = [block.reshape(-1, int(np.prod(block.shape[2:])))[draws] for block in blocks]
        n_draws = len(theta[0])
        inputs = torch.from_numpy(np.ascontiguousarray(self._inputs(x), theta[0].dtype))[None]
        out = np.empty((n_draws, len(x), network.n_outputs), theta[0].dtype)
        at_once = network.draws_at_once(len(x))
        with torch.no_grad():
            for start in range(0, n_draws, at_once):
                part = slice(start, start + at_once)
                flat = torch.from_numpy(np.concatenate([block[part] for block in theta], axis=1))
                out[part] = network.outputs(flat, inputs).numpy()
        return out

    def _check_mixing(self, X: Any) -> None:
        posterior, rows = self.posterior_, np.linspace(0, len(X) - 1, min(len(X), MIXING_ROWS))
        draws = slice(0, posterior.n_chains * posterior.n_draws)
        f = self._predict_block(draws, X[np.unique(rows.astype(int))])
        by_chain = f.reshape(posterior.n_chains, posterior.n_draws, -1)
        self._warn_of_mixing({"predictions": by_chain}, NETWORK_R_HAT_LIMIT, NETWORK_ESS_LIMIT)

    def _predict_block(self, draws: Any, x: Any) -> Array:
        raise NotImplementedError


def center_and_scale(X: Array, weight: Array | None, axis: Any = 0) -> tuple[Array, Array]:
    """Weighted mean and standard deviation along ``axis``; a scale of 1 for constants."""
    if weight is not None:
        weight = np.broadcast_to(weight.reshape(-1, *[1] * (X.ndim - 1)), X.shape)
    center = np.average(X, axis=axis, weights=weight, keepdims=True)
    variance = np.average((X - center) ** 2, axis=axis, weights=weight, keepdims=True)
    constant = variance <= (10.0 * np.finfo(X.dtype).eps * np.abs(center)) ** 2
    return center[0], np.where(constant, 1.0, np.sqrt(variance))[0]


def check_sizes(name: str, sizes: Any) -> tuple[int, ...]:
    """A sequence of positive whole numbers, or one of them, as a tuple."""
    sizes = (sizes,) if np.ndim(sizes) == 0 else tuple(sizes)
    return tuple(check_int(name, size) for size in sizes)
