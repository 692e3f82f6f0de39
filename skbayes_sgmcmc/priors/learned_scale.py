r"""Normal priors with learned scales: inverse-gamma hyperpriors and their conditionals.

For a group g of m coefficients w with the typical scale :math:`s_0`,

.. math::
    w \mid s \sim N(0, s^2 I), \quad s^2 \sim \mathrm{IG}(a, b), \quad b = a s_0^2

so that :math:`1/s^2` has the mean :math:`1/s_0^2`. Groups can share their b, which is then learned,
too: :math:`b \sim \mathrm{Gamma}(a, 1/s_0^2)`, with the same mean. With k = a + m/2 and
r = b + |w|^2/2, the conditional of the precision :math:`1/s^2` is Gamma(k, r), and the marginal
density of w given b, a multivariate t density, is proportional to :math:`b^a r^{-k}`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import gammaincinv, ndtri
from torch import Tensor

from .._arrays import Array
from .._limits import LIMITS
from .._sklearn import BaseEstimator
from .._validation import BOUNDS, check_choice, check_real, check_scale

#: shape from which the quantiles of a gamma distribution are those of Wilson and Hilferty, whose
#: relative error is then below 1e-8
MANY = 1e5
#: uniform numbers stay this far from 0 and 1, which generators with 24 bits reach
LEAST_UNIFORM = 2.0**-25
#: typical scales with scale="auto" in units of those of "fan_in". On small tables with four layers
#: of 16 units, the data choose scales between these and 1
WIDER = 2.0


class LearnedScale(BaseEstimator):
    r"""Scales of a normal prior that are learned from the data, one for each group of weights.

    The square of a scale s has an inverse-gamma prior, s^2 ~ IG(a, a s_0^2). In networks, every
    block of weights and every block of biases is a group. Given its scale, a group has the prior
    N(0, s^2), and after integrating s out a multivariate t distribution with 2a degrees of freedom.
    Gibbs sampling draws the scales along with the weights.

    In linear models, either all coefficients are one group, or each feature has its own. Scales are
    relative to the spread of the feature: the prior sd of coefficient j is s / sd(x_j), so that the
    units of the features do not matter. If ten features or more are zero in most rows, and the
    other entries of nine in ten of them are of one size, as those of words and indicators are,
    these are divided by one number, the root mean square of their sds, because the rarest would
    have the largest effects otherwise. In tables, each column of categories is a separate group.
    Its scale is in units of the linear predictor, and "auto" gives it the shape 2 and the s_0 of as
    many features. With more than two classes and one scale, the intercepts are flat in units of it,
    so that the tails do not depend on the number of classes. The scales are integrated out while
    sampling, and drawn for every kept draw.

    Parameters
    ----------
    shape : "auto" or float, default="auto"
        a, the shape of the inverse-gamma prior. The smaller it is, the further the data can move a
        scale from s_0. "auto" is 1 in networks and 5 in linear models: if the classes can be
        separated, the tails of the posterior are those of the prior, and with a <= 1 the
        coefficients would have no variance.
    scale : "auto", "fan_in" or float, default="auto"
        s_0, the typical scale. "fan_in" gives each block the scale that ``prior_scale="fan_in"``
        of the network would fix, and a linear model one over the root of the number of features.
        "auto" is twice this scale, but at most 1.
    inputs : "auto" or bool, default="auto"
        Whether each input feature has a scale of its own (automatic relevance determination), in
        linear models and in networks with a fully connected first layer. These
        scales are s^2 ~ IG(a, b) with b ~ Gamma(a, 1/s_0^2), so that they are shrunk towards a
        common scale. "auto": in networks only.

    References
    ----------
    MacKay (1992), A practical Bayesian framework for backpropagation networks, Neural Computation.

    Neal (1996), Bayesian learning for neural networks.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianMLPRegressor
    >>> from skbayes_sgmcmc.priors import LearnedScale
    >>> BayesianMLPRegressor(prior_scale=LearnedScale(shape=0.5))
    BayesianMLPRegressor(prior_scale=LearnedScale(shape=0.5))
    """

    def __init__(
        self,
        shape: float | Literal["auto"] = "auto",
        scale: float | Literal["auto", "fan_in"] = "auto",
        inputs: bool | Literal["auto"] = "auto",
    ):
        self.shape = shape
        self.scale = scale
        self.inputs: Any = inputs  # a bool in models

    def check(self, name: str) -> None:
        """Raise ``ValueError`` if a parameter is not allowed; ``name`` is the name of the prior."""
        if isinstance(self.shape, str):
            check_choice(f"{name}.shape", self.shape, ("auto",))
        else:
            # precisions of smaller shapes leave float32
            check_real(f"{name}.shape", self.shape, low=0.1, high=1e6, closed="both")
        if isinstance(self.scale, str):
            check_choice(f"{name}.scale", self.scale, ("auto", "fan_in"))
        else:
            check_scale(f"{name}.scale", self.scale)
        check_choice(f"{name}.inputs", self.inputs, ("auto", True, False))

    def resolved(self, *, shape: float, inputs: bool) -> LearnedScale:
        """A copy with these values in place of "auto"."""
        return LearnedScale(
            shape if isinstance(self.shape, str) else self.shape,
            self.scale,
            inputs if isinstance(self.inputs, str) else self.inputs,
        )

    def typical(self, fan_in: Array | float) -> Any:
        """s_0 of blocks, given their scales with "fan_in"."""
        if not isinstance(self.scale, str):
            return float(self.scale) if np.ndim(self.scale) == 0 else self.scale
        return np.minimum(WIDER * fan_in, 1.0) if self.scale == "auto" else fan_in

    def rate(self, typical: Array | float) -> Any:
        """b of groups with these s_0."""
        return self._a * typical**2

    @property
    def _a(self) -> Any:
        """The shape; in linear models, it may be an array of one for each group, as the scale."""
        return float(self.shape) if np.ndim(self.shape) == 0 else self.shape

    def draw_scales(
        self, squares: Array, counts: Array, b: Array, temperature: Array | float, u: Array
    ) -> Array:
        """Scales of groups given ``|w|^2``, m and b, from uniform numbers u; at T = 0 the modes."""
        k, r = self._a + 0.5 * counts, b + 0.5 * squares
        with np.errstate(all="ignore"):  # of chains that diverge
            warm = tempered_gamma(k, r, np.maximum(temperature, np.finfo(float).tiny), u)
            return bounded(np.where(np.asarray(temperature) > 0.0, warm, k / r) ** -0.5)

    def log_density(self, squares: Tensor, counts: Tensor, b: Tensor) -> Tensor:
        """log p(w | b) of every group, given ``|w|^2``, m and b, which broadcast."""
        a: Any = self._a
        if np.ndim(a) > 0:
            a = torch.as_tensor(a, dtype=squares.dtype, device=squares.device)
        k, r = a + 0.5 * counts, b + 0.5 * squares
        of_a = math.lgamma(a) if isinstance(a, float) else torch.lgamma(a)
        constants = torch.lgamma(k) - of_a - 0.5 * math.log(2.0 * math.pi) * counts
        return constants + a * torch.log(b) - k * torch.log(r)

    def log_shared_density(self, squares: Tensor, counts: Tensor, typical: float) -> Tensor:
        r"""log p(w) of groups with a common b, :math:`\log \int p(b) \prod_g p(w_g | b)\,db`.

        ``squares`` has shape (chains, groups). The integrand is log-concave in x = log b. The
        trapezoidal rule is applied in t, x = mode + width sinh(t), where it converges fast.
        """
        a = float(self.shape)

        def log_integrand(x: Tensor) -> Tensor:  # (chains, nodes) -> (chains, nodes)
            b = torch.exp(x)
            hyper = a * x - b / typical**2 - math.lgamma(a) - 2.0 * a * math.log(typical)
            return hyper + self.log_density(squares[:, None], counts, b[..., None]).sum(2)

        with torch.no_grad():
            mode, width = self._mode(squares, counts, typical)
            t = torch.linspace(-6.0, 6.0, 201, dtype=squares.dtype, device=squares.device)
            x = mode[:, None] + width[:, None] * torch.sinh(t)
            weight = width[:, None] * torch.cosh(t) * (t[1] - t[0])
        some = max(1, LIMITS.block_numbers // squares.numel())  # nodes at once, of many groups
        found = torch.cat([log_integrand(part) for part in x.split(some, 1)], 1)
        return torch.logsumexp(found + torch.log(weight), 1)

    def _mode(self, squares: Tensor, counts: Tensor, typical: float) -> tuple[Tensor, Tensor]:
        """Mode of log b, found by bisection, and one over the root of the curvature there."""
        a, n = float(self.shape), squares.shape[1]
        k = a + 0.5 * counts
        low = torch.full_like(squares[:, 0], math.log(typical**2) - 80.0)
        high = torch.full_like(low, math.log(typical**2) + math.log(a * (n + 1.0)) + 1.0)
        for _ in range(100):
            x = 0.5 * (low + high)
            share = torch.exp(x)[:, None] / (torch.exp(x)[:, None] + 0.5 * squares)
            rises = a * (n + 1) - torch.exp(x) / typical**2 - (k * share).sum(1) > 0
            low, high = torch.where(rises, x, low), torch.where(rises, high, x)
        share = torch.exp(low)[:, None] / (torch.exp(low)[:, None] + 0.5 * squares)
        curvature = torch.exp(low) / typical**2 + (k * share * (1.0 - share)).sum(1)
        return low, curvature.rsqrt()


def tempered_gamma(shape: Array, rate: Array, temperature: Array | float, u: Array) -> Array:
    """Draws from Gamma(shape / T, rate / T) by inversion of the uniform numbers u.

    This is the conditional of a precision if the density of its *logarithm* is raised to the power
    1/T, with T > 0.
    """
    u = np.clip(u, LEAST_UNIFORM, 1.0 - LEAST_UNIFORM)
    k = np.broadcast_to(shape / temperature, u.shape)
    normal = 1.0 - 1.0 / (9.0 * k) + ndtri(u) / (3.0 * np.sqrt(k))  # the cube root of x / k
    x = np.where(k < MANY, gammaincinv(np.minimum(k, MANY), u), k * normal**3)
    return np.asarray(x * (temperature / rate))


def bounded(scales: Array) -> Array:
    """Scales with squares that, like one over these, are numbers in float32."""
    return np.asarray(np.clip(scales, BOUNDS.smallest_scale, BOUNDS.largest_scale))
