"""Philox4x32-10 and the numbers made of its words, in torch's operations of any device.

Salmon et al. 2011 give four 32-bit words for each value of a counter of four words and a key of
two. Words are int64, because torch has no unsigned integers of 32 bits with products. Only
operations that are rounded correctly are used for normals, so that all devices give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _polynomials

MASK = 0xFFFFFFFF
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85


def philox(counter: Sequence[Any], key: Sequence[Any], rounds: int = ROUNDS) -> tuple[Any, ...]:
    """Four words of a counter of four words and a key of two; all in int64, of any shape."""
    (a, b, c, d), (k, q) = counter, key
    for _ in range(rounds):
        left, right = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c  # modulo 2^64
        a, b = ((right >> 32) & MASK) ^ b ^ k, right & MASK
        c, d = ((left >> 32) & MASK) ^ d ^ q, left & MASK
        k, q = (k + WEYL[0]) & MASK, (q + WEYL[1]) & MASK
    return a, b, c, d


def words(keys: Tensor, counters: Tensor, kind: int) -> Tensor:
    """Words (chains, n, 4) of counters (chains, n)."""
    low, high = counters & MASK, (counters >> 32) & MASK
    other = torch.full_like(low, kind)
    key = keys[:, :1], keys[:, 1:]
    return torch.stack(philox((low, high, other, torch.zeros_like(low)), key), -1)


def as_uniform(w: Tensor, dtype: torch.dtype) -> Tensor:
    """Uniform numbers in [0, 1): four of four words, or two in float64."""
    if dtype != torch.float64:
        return (w >> 8).to(dtype) * 2.0**-24
    first, second = w[..., ::2] >> 5, w[..., 1::2] >> 6
    return (first.to(dtype) * 2.0**26 + second.to(dtype)) * 2.0**-53


def as_positive(w: Tensor) -> Tensor:
    """Uniform numbers in (0, 1)."""
    return (_wide(w) + 0.5) * 2.0**-32


def _wide(x: Tensor) -> Tensor:
    """The numbers in float64, which Apple's GPUs do not have."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


ROOT_HALF_BITS = 0x3F3504F3
LOG_REST, SINE_REST, COSINE = (
    [float(c) for c in coefficients]
    for coefficients in (_polynomials.LOG_REST, _polynomials.SINE_REST, _polynomials.COSINE)
)
LOG_TWO = float(np.float32(np.log(2.0)))
HALF_TURN = float(np.float32(np.pi / 2**32))


def box_muller(w: Tensor) -> Tensor:
    """Standard normals (..., 4) in float32 of words (..., 4): each two words make two normals."""
    u = (w[..., ::2].float() + 0.5) * 2.0**-32  # in (0, 1]
    # u = m 2^e with sqrt(1/2) <= m < sqrt(2)
    high = u.view(torch.int32) - ROOT_HALF_BITS
    exponent = (high >> 23).float()
    x = ((high & 0x7FFFFF) + ROOT_HALF_BITS).view(torch.float32) - 1.0
    log = x + x * x * _polynomial(LOG_REST, x) + exponent * LOG_TWO
    # in double precision, because torch's roots in single are not rounded correctly on CPUs
    radius = _wide((-2.0 * log).clamp(min=0.0)).sqrt().float()
    # 31 bits are an angle in (-pi/2, pi/2), and one bit chooses the half of the circle
    turn = w[..., 1::2]
    radius = torch.where((turn & 1) == 1, radius, -radius)
    angle = (turn - ((turn >> 31) << 32)).float() * HALF_TURN
    square = angle * angle
    sine = radius * angle * _polynomial(SINE_REST, square)
    return torch.stack([sine, radius * _polynomial(COSINE, square)], -1).flatten(-2)


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    p = torch.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        p = p * x + c
    return p
