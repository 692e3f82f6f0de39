"""A likelihood of the user's own, from distributions of ``torch.distributions``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from ..._exceptions import explained, not_allowed
from ..._modes import numbers_put_aside
from ..._sklearn import BaseEstimator
from ..._validation import check_int
from .base import Likelihood
from .predictive import Predictive

#: rows that are looked at before all of them
FEW = 20
#: parts of a distribution that need not exist
MOMENTS = "mean", "variance"


class TorchLikelihood(BaseEstimator):
    r"""Any distribution of targets given a network's outputs, as the ``likelihood`` of a regressor.

    Parameters
    ----------
    distribution : callable
        ``distribution(outputs)`` returns the distribution of the targets of some rows: a
        ``torch.distributions.Distribution``, or an object with its method ``log_prob(y)``. outputs
        is a tensor of shape (rows, n_outputs); y and log_prob(y) have the shape (rows,), or (rows,
        n_targets) if ``y`` has several columns. Densities of several targets are multiplied. For
        predictions, the object also needs ``mean`` and ``variance``, for quantiles and intervals
        ``cdf(y)`` (and ``icdf(q)``, if there is no variance, as of Cauchy's distribution), and for
        new observations ``sample()``. Files of fitted estimators can only hold functions that can
        be imported, not lambdas.
    n_outputs : int, default=1
        Number of outputs of the network.

    Examples
    --------
    Waiting times with a log-normal distribution; its location and scale depend on x:

    >>> import numpy as np
    >>> from torch.distributions import LogNormal
    >>> from torch.nn.functional import softplus
    >>> from skbayes_sgmcmc import BayesianMLPRegressor, TorchLikelihood
    >>> def waiting(outputs):
    ...     return LogNormal(outputs[:, 0], softplus(outputs[:, 1]))
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(200, 1))
    >>> y = np.exp(X[:, 0] + 0.5 * rng.standard_normal(200))
    >>> reg = BayesianMLPRegressor(
    ...     hidden_layer_sizes=8, likelihood=TorchLikelihood(waiting, n_outputs=2),
    ...     n_draws=50, random_state=0,
    ... ).fit(X, y)
    >>> reg.predict(X[:3]).shape, reg.sample_y(X[:3], 5).shape
    ((3,), (3, 5))
    """

    def __init__(self, distribution: Callable[[Tensor], Any], n_outputs: int = 1):
        self.distribution = distribution
        self.n_outputs = n_outputs

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` names the likelihood."""
        check_int(f"{name}.n_outputs", self.n_outputs)
        if not callable(self.distribution):
            raise not_allowed(
                f"{name}.distribution={self.distribution!r} is not allowed: give a function of "
                "outputs that returns a torch.distributions.Distribution.",
                "a-density-of-your-own-is-not-allowed",
            )


class DistributionLikelihood(Likelihood):
    """The likelihood of ``n_targets`` targets that a :class:`TorchLikelihood` describes.

    Chains and rows are one axis for the user's function. Chains with outputs that are no longer
    finite get no number instead of an error, so that they are dropped like others.
    """

    separable = False

    @property
    def has_moments(self) -> bool:  # type: ignore[override]
        distribution = made(self.given.distribution, zeros(1, self.n_outputs))
        return all(has_part(distribution, name) for name in MOMENTS)

    def __init__(self, given: TorchLikelihood, n_targets: int):
        self.given, self.n_targets = given, n_targets
        self.n_outputs = int(given.n_outputs)

    def check_targets(self, y: Array) -> None:  # type: ignore[override]
        """Raise ``ValueError`` if some targets have no density at outputs of zero.

        Some rows come first: densities of the wrong shape may have the square of the rows' number.
        """
        targets = torch.from_numpy(y)
        self._check_few(targets[:FEW])
        found = self._at_zero(targets)
        bad = ~torch.isfinite(found).numpy()
        if bad.any():
            raise not_allowed(
                f"y with {y[bad][0]} is not allowed: it has no density under "
                f"likelihood={self.given!r} at outputs of zero.",
                "a-density-of-your-own-is-not-allowed",
            )

    def _at_zero(self, y: Tensor) -> Tensor:
        try:
            return self._log_prob(zeros(len(y), self.n_outputs), y)[0]
        except Exception as error:
            raise self._refused(
                f"{self._for_targets()}: at outputs of zero, it raises {_reason(error)}"
            ) from error

    def _check_few(self, y: Tensor) -> None:
        """Refuse densities without a gradient, and those that are random or depend on other rows.

        The outputs are beside zero, where rows differ. Distributions may not allow such outputs.
        """
        self._at_zero(y)
        with contextlib.suppress(NotImplementedError, AttributeError):
            distribution = made(self.given.distribution, zeros(len(y), self.n_outputs))
            shape = tuple(inside_of(distribution).shape)
            if shape not in (tuple(y.shape), (len(y),) * (self.n_targets == 1)):
                raise self._refused(
                    f"{self._for_targets()}: for outputs of {len(y)} rows, "
                    f"its targets have the shape {shape}; give one for each row and column of y, "
                    "as a distribution of outputs[:, 0] for one column."
                )
        noise = np.random.default_rng(0).normal(0.0, 0.1, (1, len(y), self.n_outputs))
        near = torch.from_numpy(noise).requires_grad_()
        try:
            found, again = (self._log_prob(near, y)[0] for _ in range(2))
            alone = self._log_prob(near[:, -1:], y[-1:])[0]
        except ValueError:
            return
        if not found.requires_grad:
            raise self._refused(
                ": its log_prob has no gradient in outputs. Compute it from outputs by operations "
                "of torch, without detach() and numpy."
            )
        same = partial(torch.allclose, rtol=1e-3, atol=1e-3, equal_nan=True)
        if not same(found, again):
            raise self._refused(": two evaluations at the same outputs differ.")
        if not same(found[-1:], alone):
            raise self._refused(
                ": the density of a row depends on the outputs of other rows, which may be those "
                "of another chain. Rows are on the first axis."
            )

    def log_density(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        finite = torch.isfinite(f).all(2)
        try:
            found = self._log_prob(f.where(finite[..., None], 0.0), y)
        except ValueError as error:
            raise self._refused(
                ": outputs may be any numbers, and the support must not depend on them. At outputs "
                f"that chains came to, it raises {_reason(error)}"
            ) from error
        return found.where(finite, torch.nan)

    def _log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Log densities (chains, rows) of the targets of rows, for outputs that are finite."""
        distribution = made(self.given.distribution, f)
        targets = y.to(f.dtype).expand(*f.shape[:2], y.shape[-1]).reshape(-1, self.n_targets)
        targets = targets[:, 0] if self.n_targets == 1 else targets
        found = distribution.log_prob(targets)
        if tuple(found.shape) not in ((len(targets),), (len(targets), self.n_targets)):
            message = (
                f"log_prob returned the shape {tuple(found.shape)} for y of shape "
                f"{tuple(targets.shape)}: give one number for each row, as of a distribution of "
                "outputs[:, 0], which has the shape (rows,)."
            )
            raise explained(TypeError(message), "a-density-of-your-own-is-not-allowed")
        return found.reshape(len(f), f.shape[1], -1).sum(2)

    def _for_targets(self) -> str:
        return f" for y with {self.n_targets} column{'s' * (self.n_targets > 1)}"

    def _refused(self, why: str) -> ValueError:
        return not_allowed(
            f"likelihood={self.given!r} is not allowed{why}", "a-density-of-your-own-is-not-allowed"
        )

    def predictive(self, f: Tensor, own: Tensor) -> Predictive:
        return FromTorch(f, self.given.distribution, self.n_targets)


@dataclass
class FromTorch(Predictive):
    """Distributions that a function of outputs (draws, rows, outputs) returns."""

    #: outputs of the network, (draws, rows, outputs)
    outputs: Any
    #: as for :class:`TorchLikelihood`
    distribution: Callable[[Tensor], Any]
    n_targets: int

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        support = getattr(self._made(), "support", None)
        return bool(getattr(support, "is_discrete", False))

    def mean(self) -> Any:
        return self._shaped(self._asked("mean", "predict"))

    def variance(self) -> Any:
        return self._shaped(self._asked("variance", "predict(return_std=True)"))

    def log_density(self, y: Array) -> Array:
        distribution, targets = self._made(), self._targets(y)
        inside, allowed = supported(distribution, targets)
        found = distribution.log_prob(allowed)
        outside = ~inside if inside.shape == found.shape else ~inside.all(-1)
        found = found.masked_fill(outside, -torch.inf)
        return np.asarray(found.detach().reshape(*self.outputs.shape[:2], -1))

    def possible(self, y: Array) -> Array:
        distribution = self._made()
        if getattr(distribution, "support", None) is None:  # its own densities say which
            return self.log_density(y) > -np.inf
        inside = supported(distribution, self._targets(y))[0]
        return np.asarray(inside.reshape(*self.outputs.shape[:2], -1))

    def cdf(self, y: Array) -> Array:
        distribution, targets = self._made(), self._targets(y)
        inside, allowed = supported(distribution, targets)
        self._asked("cdf", "predict_quantiles or predict_survival")
        found = distribution.cdf(allowed)
        beyond = (targets > allowed).to(found.dtype)  # above the support, or below
        return np.asarray(self._shaped(found.where(inside, beyond)))

    def sample(self, rng: np.random.RandomState) -> Array:
        draw = self._asked("sample", "sample_y")
        with numbers_put_aside(int(rng.randint(2**31))):
            return np.asarray(self._shaped(draw()))

    def length(self) -> Array:
        if self._has("variance"):
            return super().length()
        low, high = (self._quantile(q) for q in (0.25, 0.75))
        return np.asarray(high - low)

    def bounds(self, q: float) -> tuple[Array, Array]:
        if self._has("variance"):
            return super().bounds(q)
        quantile = self._quantile(q)
        return quantile, quantile

    def _quantile(self, q: float) -> Array:
        """Quantiles of distributions without a variance, which has no bounds of them."""
        found = self._asked("icdf", "predict_quantiles")
        return np.asarray(self._shaped(found(torch.tensor(q, dtype=torch.float64, device="cpu"))))

    def parameters(self) -> Iterator[Array]:
        yield self.outputs
        if self._has("mean"):
            yield self.mean()

    def _made(self) -> Any:
        return made(self.distribution, torch.as_tensor(self.outputs, device="cpu"))

    def _targets(self, y: Array) -> Tensor:
        shape = *self.outputs.shape[:2], self.n_targets
        flat = torch.from_numpy(np.broadcast_to(y, shape).reshape(-1, self.n_targets).copy())
        return flat[:, 0] if self.n_targets == 1 else flat

    def _shaped(self, values: Tensor) -> Any:
        """Values in the kind of the outputs, (draws, rows, targets)."""
        shaped = values.reshape(*self.outputs.shape[:2], self.n_targets)
        return shaped if isinstance(self.outputs, Tensor) else shaped.detach().numpy()

    def _has(self, name: str) -> bool:
        """Whether the distribution has a part, at outputs of zero."""
        return has_part(made(self.distribution, zeros(1, self.outputs.shape[2])), name)

    def _asked(self, name: str, method: str) -> Any:
        """A part of the distribution that a method of estimators needs."""
        distribution = self._made()
        if self._has(name):
            return getattr(distribution, name)
        raise not_allowed(
            f"{method} is not allowed with this likelihood: {type(distribution).__name__} has no "
            f"{name}. Give a distribution that has it, or use sample_y or predict_log_density.",
            "a-density-of-your-own-is-not-allowed",
        )


def made(distribution: Callable[[Tensor], Any], outputs: Tensor) -> Any:
    """The distribution of all rows of all draws, for outputs (draws, rows, outputs)."""
    return distribution(outputs.reshape(-1, outputs.shape[2]))


def has_part(distribution: Any, name: str) -> bool:
    """Whether a distribution has an attribute or a method.

    torch's distributions have all of them, but may not implement them. Means and variances that do
    not exist are nan or infinite there, such as those of Cauchy.
    """
    with contextlib.suppress(NotImplementedError, AttributeError):
        found = getattr(distribution, name)
        if name in MOMENTS:
            return bool(torch.isfinite(found).all())
        if name == "cdf":
            found(inside_of(distribution))
        if name == "icdf":
            found(torch.tensor(0.5, device="cpu"))
        return True
    return False


def supported(distribution: Any, y: Tensor) -> tuple[Tensor, Tensor]:
    """Which targets are in the support, and targets that have the mean in place of the others."""
    support = getattr(distribution, "support", None)
    if support is None:
        return torch.ones_like(y, dtype=torch.bool), y
    inside = support.check(y)
    if inside.shape != y.shape:  # one answer for several targets
        inside = inside[..., None].expand(y.shape)
    middle = inside_of(distribution)
    return inside, y.where(inside, middle.round() if support.is_discrete else middle)


def inside_of(distribution: Any) -> Tensor:
    """Targets in the support: means or, where there are none, a sample."""
    with contextlib.suppress(NotImplementedError, AttributeError):
        mean: Tensor = distribution.mean
        if not torch.isnan(mean).any():
            return mean
    with numbers_put_aside():
        sample: Tensor = distribution.sample()
        return sample


def zeros(n_rows: int, n_outputs: int) -> Tensor:
    """Outputs of zero, (1, rows, outputs)."""
    return torch.zeros(1, n_rows, n_outputs, dtype=torch.float64, device="cpu")


def _reason(error: Exception) -> str:
    """The class and the first line of an error; torch goes on with all values."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
