"""Student's t noise: the likelihood of real targets with outliers."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from . import predictive
from .base import Gaussian, Natural, Parametric, unknown
from .predictive import Predictive
from .slopes import Compiled, Own

#: power of the largest number of a precision beyond which targets of heavy tails count as this far,
#: so that their squares are finite; the logarithms of their densities hardly change
FARTHEST = 0.4
#: inferred degrees of freedom exceed the first number, so that predictions have a variance; the
#: second is the median of the excess
LEAST_DF, TYPICAL_DF = 2.0, 8.0


class StudentT(Parametric):
    r"""Student's t distribution as the ``likelihood`` of a regressor, with given tails.

    Parameters
    ----------
    df : "infer" or float, default="infer"
        Degrees of freedom :math:`\nu > 2` of all outputs. The fewer, the heavier are the tails.
        "infer": each output has its own, with the prior log((df - 2) / 8) ~ N(0, 1) and so the
        median 10. This is what ``likelihood="student_t"`` means.

    Examples
    --------
    >>> from skbayes_sgmcmc import BayesianMLPRegressor, StudentT
    >>> reg = BayesianMLPRegressor(likelihood=StudentT(df=4.0))
    >>> reg.set_params(likelihood__df=5.0).likelihood
    StudentT(df=5.0)
    """

    family = "student_t"
    bounds = (LEAST_DF, math.inf)

    def __init__(self, df: float | Literal["infer"] = "infer"):
        self.df = df


class StudentNoise(Gaussian):
    r"""Student's t noise; all rows of an output share its scale and degrees of freedom.

    .. math::
        -\log p = \log\sigma + \tfrac{\nu+1}{2} \log(1 + z^2/\nu) + c(\nu),\quad
        z = (y - f) / \sigma,\quad \nu = 2 + 8 e^g

    Its tails are heavier than those of the normal distribution, so single outliers move the
    posterior less. :math:`\nu > 2` gives predictions a standard deviation, which is
    :math:`\sigma \sqrt{\nu / (\nu - 2)}`.

    Unless they are given, the scales are inferred as the parameters ``log_noise`` of
    :class:`Gaussian`, and the degrees of freedom of each output as the parameters ``log_df``
    :math:`= g`.
    """

    def __init__(self, n_outputs: int, noise: Array | None, df: float | None = None):
        super().__init__(n_outputs, noise)
        self.given_df = df
        if df is None:
            self.shapes = self.shapes | {"log_df": (n_outputs,)}

    @property
    def natural(self) -> dict[str, Natural]:
        values = lambda draws, unit: LEAST_DF + TYPICAL_DF * np.exp(draws["log_df"])  # noqa: E731
        return super().natural | {"log_df": ("df", values)}

    def targets(self, y: Array, dtype: Any, device: str) -> Tensor:
        far = torch.finfo(dtype).max ** FARTHEST
        return super().targets(np.clip(y, -far, far), dtype, device)

    @staticmethod
    def _square(z: Tensor) -> Tensor:
        """Squares of z up to a number that has a finite product with degrees of freedom."""
        return (z * z).clamp(max=torch.finfo(z.dtype).max ** (2.0 * FARTHEST))

    def log_sd(self, own: Tensor) -> Tensor:
        """Logarithms of the scales, (chains or 1, 1, k)."""
        return super().log_sd(own[:, : self.n_outputs])

    def df(self, own: Tensor) -> Tensor:
        """Degrees of freedom, (chains or 1, 1, k or 1)."""
        if self.given_df is not None:
            return own.new_full((1, 1, 1), self.given_df)
        return LEAST_DF + TYPICAL_DF * torch.exp(own[:, None, -self.n_outputs :])

    def log_density(self, f: Tensor, y: Tensor, own: Tensor) -> Tensor:
        log_scale, df = self.log_sd(own), self.df(own)
        z = (y - f) * torch.exp(-log_scale)
        half = 0.5 * df
        constant = torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * torch.log(math.pi * df)
        square = self._square(z)
        known = constant - log_scale - (half + 0.5) * torch.log1p(square / df)
        return (known - self._unknown(log_scale)).sum(2)

    def compiled(self, y: Array) -> Compiled | None:
        if self.given_df is None:
            of_df = Own(math.log(TYPICAL_DF))
        else:
            of_df = Own(math.log(self.given_df - LEAST_DF), given=True)
        return Compiled("student_t", 0.0, y[:, 0], own=(*self._compiled_noise(), of_df))

    def slope(self, f: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor | None]:
        weight, df = torch.exp(-self.log_sd(own)), self.df(own)
        z = f.sub_(y).mul_(weight)
        square = self._square(z)
        pull = (df + 1.0) / (df + square)  # 1 for normal noise
        own_slopes = []
        if self.noise is None:
            own_slopes.append(1.0 - pull * square - 2.0 * unknown(self.log_sd(own)))
        if self.given_df is None:
            half, ratio = 0.5 * df, square / df
            constant = torch.digamma(half) - torch.digamma(half + 0.5) + 1.0 / df
            by_df = 0.5 * (constant + torch.log1p(ratio) - pull * ratio)
            own_slopes.append(by_df * (df - LEAST_DF))
        slope = z.mul_(weight).mul_(pull)
        return slope, torch.cat(own_slopes, dim=2) if own_slopes else None

    def predictive(self, f: Tensor, own: Tensor) -> Predictive:
        scale = torch.exp(self.log_sd(own)).expand(len(f), 1, -1)
        return predictive.StudentT(f, scale, self.df(own).expand(len(f), 1, -1))
