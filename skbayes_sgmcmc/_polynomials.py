"""Polynomials in the place of functions, for code that a compiler turns into vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._arrays import Array


def interpolated(
    f: Callable[[Any], Any], low: float, high: float, degree: int, dtype: Any = np.float32
) -> Array:
    """Coefficients, highest first, of a polynomial near f between two bounds (Chebyshev)."""
    fit = np.polynomial.Chebyshev.interpolate(f, degree, (low, high))
    return np.asarray(fit.convert(kind=np.polynomial.Polynomial).coef.astype(dtype)[::-1])


# normals by the transform of Box and Muller, and logarithms: log(1 + x) = x + x^2 f(x);
# sin(x) = x f(x^2); cos(x) = f(x^2), with relative errors below 1e-7
LOG_REST = interpolated(lambda x: (np.log1p(x) - x) / x**2, 0.5**0.5 - 1.0, 2.0**0.5 - 1.0, 9)
SINE_REST = interpolated(lambda y: np.sinc(np.sqrt(y) / np.pi), 0.0, (np.pi / 2) ** 2, 5)
COSINE = interpolated(lambda y: np.cos(np.sqrt(y)), 0.0, (np.pi / 2) ** 2, 6)
