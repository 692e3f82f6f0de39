r"""Densities of independent components: heavy-tailed, normal or light-tailed, by one shape each.

.. math:: -\log p_s(y) = 2 s \log\cosh(z/2) + (1 - s) \frac{z^2}{2 v} + \text{const}, \quad
          z = b_s y, \quad v = \pi^2 / 3

s = 1 is the logistic density of Welling & Teh 2011, and s = 0 a normal one. At s < 0 the density
has lighter tails than a normal: it is a mixture of normals, as in extended infomax (Lee, Girolami
& Sejnowski 1999). b_s gives every density the variance v, which is that of the logistic density.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._arrays import Array
from .._constants import Constant

#: standard deviation of all densities: that of the logistic density 1 / (4 cosh^2(y/2))
LOGISTIC_SD = np.pi / np.sqrt(3.0)
#: shapes that components can have: kurtoses of 1.2 to -1.8. The grid makes the choice the same for
#: rows that differ by rounding
SHAPES = np.array([1.0, 0.75, 0.5, 0.25, 0.0, -0.5, -1.0, -2.0, -4.0, -8.0, -16.0])
NORMAL = int(np.flatnonzero(SHAPES == 0.0)[0])


class Densities:
    """The densities of the sources, for the shape s of each component, (d,)."""

    def __init__(self, shapes: Array):
        self.shapes = shapes
        width, log_norm = np.array([_standard(float(s)) for s in shapes]).T
        # -log p = ratio * log cosh(rate * y) + linear * y^2 / 2 + const
        self._rate, self._ratio = Constant(0.5 * width), Constant(2.0 * shapes)
        self._amplitude = Constant(shapes * width)
        self._linear = Constant((1.0 - shapes) * width**2 / LOGISTIC_SD**2)
        self._log_norm = float(log_norm.sum())

    def log_density(self, y: Tensor) -> Tensor:
        """log p of sources (..., d), summed over the components."""
        z = torch.abs(self._rate.like(y) * y)
        potential = self._ratio.like(y) * (z + torch.log1p(torch.exp(-2.0 * z)))
        potential = potential + self._linear.like(y) * y * (0.5 * y)
        return -potential.sum(-1) - self._log_norm

    def psi(self, y: Tensor) -> Tensor:
        """-d log p(y) / dy."""
        psi = torch.tanh(self._rate.like(y) * y).mul_(self._amplitude.like(y))
        return psi.addcmul_(self._linear.like(y), y)

    def curvature(self, y: Any) -> Any:
        """The derivative of psi at sources (..., d), a tensor or an array."""
        constants: tuple[Any, ...] = (self._rate, self._amplitude, self._linear)
        is_array = isinstance(y, np.ndarray)
        rate, amplitude, linear = (c.values if is_array else c.like(y) for c in constants)
        tanh = (np if is_array else torch).tanh(rate * y)
        return amplitude * rate * (1.0 - tanh**2) + linear


@cache
def _standard(shape: float) -> tuple[float, float]:
    """The factor b_s, and log of the integral of exp(-potential) with log 2 cosh for log cosh."""
    if shape == 1.0:
        return 1.0, 0.0
    z = np.linspace(-50.0, 50.0, 100_001)
    value = -shape * (np.abs(z) + 2.0 * np.log1p(np.exp(-np.abs(z))))
    value -= (1.0 - shape) * z**2 / (2.0 * LOGISTIC_SD**2)
    p = np.exp(value - value.max())
    width = np.sqrt((p * z**2).sum() / p.sum()) / LOGISTIC_SD
    return float(width), float(np.log(p.sum() * (z[1] - z[0]) / width) + value.max())


def shape_gains(y: Array) -> Array:
    """The log likelihood of sources (n, d) for every shape, less that of normal ones, (d, shapes).

    Each density has the scale that is best for it.
    """
    y = y - y.mean(axis=0)
    log_scale = np.log(LOGISTIC_SD / y.std(axis=0))
    found = []
    for shape in SHAPES:
        width, log_norm = _standard(float(shape))
        rate, linear = 0.5 * width, (1.0 - shape) * width**2 / LOGISTIC_SD**2
        for _ in range(30):
            z = np.exp(log_scale) * y
            tanh = np.tanh(rate * z)
            psi = shape * width * tanh + linear * z
            slope = (z * psi).mean(axis=0) - 1.0
            tanh **= 2
            curvature = shape * width * rate * (1.0 - tanh) + linear
            bend = 1.0 + slope + (z**2 * curvature).mean(axis=0)
            step = np.where(bend > 0.0, -slope / np.where(bend > 0.0, bend, 1.0), -np.sign(slope))
            log_scale = log_scale + np.clip(step, -1.0, 1.0)
            if np.abs(step).max() < 1e-4:
                break
        z = np.abs(np.exp(log_scale) * y)
        potential = 2.0 * shape * (rate * z + np.log1p(np.exp(-2.0 * rate * z)))
        potential += 0.5 * linear * z**2
        found.append(len(y) * (log_scale - log_norm - potential.mean(axis=0)))
    gains = np.stack(found, axis=1)
    return np.asarray(gains - gains[:, NORMAL : NORMAL + 1])


def contradicted(y: Array, shapes: Array) -> Array:
    """Whether the density of each component is of another kind than sources (n, d) show, (d,).

    Another kind is a density with another sign of its shape, which finds other sources. It must be
    more likely by more than chance makes it: a mode looks at Gaussian sources from the direction
    that makes them least normal. In 5 to 20 data sets of each size (100 to 20,000 rows, 2 to 20
    Gaussian sources), the largest gain in log likelihood was 9 for 2 and 34 for 20 sources.
    """
    with np.errstate(all="ignore"):  # sources that are constant or not finite show nothing
        gains = shape_gains(y)
    own = gains[np.arange(len(shapes)), np.abs(SHAPES - shapes[:, None]).argmin(axis=1)]
    other = np.sign(SHAPES[gains.argmax(axis=1)]) != np.sign(shapes)
    return np.asarray(other & (gains.max(axis=1) - own > 8.0 + 2.0 * len(own)))
