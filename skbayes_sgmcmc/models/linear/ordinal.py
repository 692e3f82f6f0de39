r"""Cumulative logit model of ordered classes.

.. math::
    P(y \le j \mid x) = \sigma(c_j - x^\top w),\qquad c_0 < c_1 < \dots < c_{K-2}

The cut points that are sampled are :math:`c_0 = -b`, where the intercept b has a flat prior, and
the gaps :math:`c_j - c_{j-1} = d_j r_j` with :math:`\log r_j \sim N(0, 2^2)`. :math:`d_j` is the
gap at which all classes are equally probable for f = 0. All of it is the likelihood of one linear
predictor f = x'w + b with own parameters g, where :math:`r_j = \log(1 + e^{g_j})`.

For classes that are nearly separated, the coefficients and all gaps have a common factor that the
data leave open. The likelihood is log-concave in the gaps, and large ones are nearly linear in g.
In their logarithms, the posterior would be a thin curve, on which chains of any usual step diverge.
The gap of a rare class is small, and its logarithm nearly linear in g.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.special import expit, logit
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..._arrays import Array
from ..._data.minibatch import Data
from ..._draws.storage import decode, encode
from ...priors.factorised import Prior
from .._constants import Constant
from .._quadrature import gauss
from ..likelihoods.base import Categorical, Likelihood
from .glm import NODES, GLMModel

#: prior sd of the logarithms of gaps: 90% of gaps are within a factor of 27 of the typical one, so
#: that a class may also be rare
GAP_SD = 2.0


class GapPrior(Prior):
    """Prior of g for a gap d log(1 + e^g) that has a log-normal prior with the median d."""

    def rates(self, scale: Array) -> Array:
        return np.ones_like(scale)  # there are no other scales than that of the gap

    def log_density(self, theta: Tensor, rates: Tensor) -> Tensor:
        constant = math.log(GAP_SD) + 0.5 * math.log(2.0 * math.pi)
        return -constant * rates.sum() - self.potential(theta, rates)

    def potential(self, theta: Tensor, rates: Tensor) -> Tensor:
        log_gap = softplus(theta).log()
        each = 0.5 * (log_gap / GAP_SD) ** 2 + log_gap + softplus(-theta)
        return (each * rates).sum(1)

    def gradient(self, theta: Tensor, rates: Tensor, out: Tensor) -> None:
        torch.mul(_prior_slope(theta), rates, out=out)

    # by quadrature, and for the curvature with Stein's identity E[g e] = E[g'] sd

    def expected_potential(self, mean: Array, sd: Array, rates: Array) -> float:
        nodes, weights = gauss(NODES)
        at = torch.from_numpy(mean + sd * nodes[:, None])
        return float(weights @ self.potential(at, torch.from_numpy(rates)).numpy())

    def expected_gradient(self, mean: Array, sd: Array, rates: Array) -> Array:
        nodes, weights = gauss(NODES)
        slopes = _prior_slope(torch.from_numpy(mean + sd * nodes[:, None])).numpy()
        return np.asarray(rates * (weights @ slopes))

    def expected_curvature(self, mean: Array, sd: Array, rates: Array) -> Array:
        nodes, weights = gauss(NODES)
        slopes = _prior_slope(torch.from_numpy(mean + sd * nodes[:, None])).numpy()
        return np.asarray(rates * ((weights * nodes) @ slopes) / sd)


def _prior_slope(g: Tensor) -> Tensor:
    gap = softplus(g)
    return (gap.log() / GAP_SD**2 + 1.0) * torch.sigmoid(g) / gap - torch.sigmoid(-g)


class CumulativeLogit(Likelihood):
    """Classes 0 to K - 1 in their order, given the predictor f. Targets are class indices."""

    n_outputs = 1
    own_prior = GapPrior()

    def __init__(self, n_classes: int):
        self.n_classes, n_gaps = n_classes, n_classes - 2
        self.shapes = {"gap": (n_gaps,)} if n_gaps else {}
        equal = logit(np.arange(1, n_classes) / n_classes)
        self.typical = np.diff(equal)
        self._typical = Constant(self.typical)

    targets = Categorical.targets

    def gaps(self, own: Tensor) -> Tensor:
        """Gaps between successive cut points, (chains, K - 2)."""
        return self._typical.like(own) * softplus(own)

    def _around(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cut points above and below each row's class, minus f, and the gap between them.

        Each is of shape (chains, rows); beyond the first and the last class, cut points are
        infinite.
        """
        gaps = self.gaps(own)
        codes = y[..., 0].long().expand(len(gaps), -1)
        ends = gaps.new_full((len(gaps), 1), torch.inf)
        cuts = torch.cat([-ends, torch.zeros_like(ends), gaps.cumsum(1), ends], dim=1)
        widths = torch.cat([ends, gaps, ends], dim=1)
        above, below = cuts.gather(1, codes + 1), cuts.gather(1, codes)
        return above - f[..., 0], below - f[..., 0], widths.gather(1, codes)

    def log_density(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        above, below, width = self._around(f, y, own)
        return -softplus(-above) - softplus(below) + _log_share(width)

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor | None]:
        above, below, width = self._around(f, y, own)
        beyond = torch.sigmoid(-above)
        by_f = beyond - torch.sigmoid(below)
        if not self.shapes:
            return by_f[..., None], None
        # a gap below the class moves both of its cut points, and its own gap the upper one
        gap, codes = torch.arange(1, self.n_classes - 1, device=y.device), y
        own_gap = (beyond + 1.0 / torch.expm1(width))[..., None] * (gap == codes)
        slope = (by_f[..., None] * (gap < codes)).add_(own_gap)
        widened = self._typical.like(own) * torch.sigmoid(own)
        return by_f[..., None], slope.mul_(-widened[:, None])

    def walls(self, f: Array, own: Array, y: Array) -> tuple[Array, Array]:
        """The margin is the distance of f to the nearer cut point of the row's class."""
        codes, gaps = y.astype(int), self.typical * np.logaddexp(0.0, own)
        cuts = np.concatenate([[-np.inf, 0.0], gaps.cumsum(), [np.inf]])
        above, below = cuts[codes + 1] - f, f - cuts[codes]
        up, nearest = above < below, np.where(above < below, codes, codes - 1)
        moved = np.arange(len(gaps)) < nearest[:, None]  # the gaps below the nearer cut point
        slope = np.column_stack([np.full(len(f), -1.0), self.typical * expit(own) * moved])
        return np.minimum(above, below), np.where(up, 1.0, -1.0)[:, None] * slope


def _log_share(width: Tensor) -> Tensor:
    """log(1 - exp(-width)): p = sigma(above) sigma(-below) (1 - exp(-width)) of a class."""
    return torch.log(-torch.expm1(-width))


def log_probabilities(f: Tensor, cutpoints: Tensor) -> Tensor:
    """Of the classes, (draws, rows, K), for f (draws, rows) and cut points (draws, K - 1)."""
    z = cutpoints[:, None] - f[..., None]
    below, above = -softplus(-z), -softplus(z)
    width = cutpoints[:, None, 1:] - cutpoints[:, None, :-1]
    middle = below[..., 1:] + above[..., :-1] + _log_share(width)
    return torch.cat([below[..., :1], middle, above[..., -1:]], dim=2)


class OrdinalModel(GLMModel):
    """Ordered classes; draws are the coefficients and the cut points.

    Parameters
    ----------
    n_features, n_classes : int
        Number of features and number of classes.
    prior, prior_scale
        As in :class:`LinearModel`.
    fit_intercept : bool
        False: the first cut point is 0.
    """

    likelihood: CumulativeLogit

    rows_say_little = True

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        prior: Any,
        prior_scale: Any,
        fit_intercept: bool,
    ):
        likelihood = CumulativeLogit(n_classes)
        super().__init__(n_features, likelihood, prior, prior_scale, fit_intercept)

    def make_data(self, x: Any, y: Array, weight: Array | None, dtype: Any, device: str) -> Data:
        """Rows x with class indices y (rows,)."""
        return super().make_data((x, None, None), y[:, None], weight, dtype, device)

    def unpack(self, draws: Array) -> dict[str, Array]:
        """Arrays "coef" (..., n_features) and "cutpoints" (..., n_classes - 1), and others."""
        parts = super().unpack(draws)
        coef, cuts = parts.pop("coef"), [-decode(parts.pop("intercept"))[..., None]]
        if "gap" in parts:
            gaps = self.likelihood.typical * np.logaddexp(0.0, decode(parts.pop("gap")))
            cuts.append(cuts[0] + gaps.cumsum(-1))
        cutpoints = encode(np.concatenate(cuts, axis=-1), draws.dtype)
        return {"coef": coef, "cutpoints": cutpoints} | parts


class OrdinalOutputs(nn.Module):
    """Log probabilities of the classes as a torch module, for ``torch.export`` and ONNX.

    Coefficients are (draws, n_features), and cut points (draws, n_classes - 1).
    """

    coef: Tensor
    cutpoints: Tensor

    def __init__(self, coef: Tensor, cutpoints: Tensor):
        super().__init__()
        self.register_buffer("coef", coef)
        self.register_buffer("cutpoints", cutpoints)

    def forward(self, x: Tensor) -> Tensor:
        """Log probabilities (draws, rows, n_classes) of rows (rows, n_features)."""
        return log_probabilities(self.coef @ x.mT, self.cutpoints)
