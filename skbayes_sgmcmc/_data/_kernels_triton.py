"""Words and normals of ``philox_words.py``, in one launch of Triton each, with the same bits.

Products and sums are not fused, so that every operation is rounded as torch's are.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from . import philox_words as numbers

BLOCK = 256
#: the kind of number in the counter's third word, as in ``counters.py``
NORMAL = 0
M_0, M_1 = (tl.constexpr(m) for m in numbers.MULTIPLIERS)
W_0, W_1 = (tl.constexpr(w) for w in numbers.WEYL)
ROUNDS = tl.constexpr(numbers.ROUNDS)
LOG_TWO, HALF_TURN = tl.constexpr(numbers.LOG_TWO), tl.constexpr(numbers.HALF_TURN)
ROOT_HALF_BITS = tl.constexpr(numbers.ROOT_HALF_BITS)
# coefficients of polynomials, highest first: a kernel reads numbers by name only
L_9, L_8, L_7, L_6, L_5, L_4, L_3, L_2, L_1, L_0 = (tl.constexpr(c) for c in numbers.LOG_REST)
S_5, S_4, S_3, S_2, S_1, S_0 = (tl.constexpr(c) for c in numbers.SINE_REST)
C_6, C_5, C_4, C_3, C_2, C_1, C_0 = (tl.constexpr(c) for c in numbers.COSINE)


def fill_normal(out: Tensor, keys: Tensor, begin: Tensor) -> None:
    """Fill ``out`` (chains, rows, n) with normals from the counters ``begin`` (chains,) on."""
    chains, rows, n = out.shape
    grid = (triton.cdiv(-(-n // 4), BLOCK), rows, chains)
    options: dict[str, Any] = {"enable_fp_fusion": False}
    _fill_normal[grid](out, keys, begin, rows, n, NORMAL, BLOCK, **options)


def fill_words(out: Tensor, keys: Tensor, begin: Tensor, kind: int) -> None:
    """Fill ``out`` (chains, n, 4), of int64, with the words of counters from ``begin`` on."""
    chains, n, _ = out.shape
    _fill_words[triton.cdiv(n, BLOCK), 1, chains](out, keys, begin, n, kind, BLOCK)


@triton.jit
def _pair(first, second):
    """Two normals of two words."""
    u = (first.to(tl.float32) + 0.5) * 2.3283064365386963e-10  # 2^-32
    high = u.to(tl.int32, bitcast=True) - ROOT_HALF_BITS
    exponent = (high >> 23).to(tl.float32)
    x = ((high & 0x7FFFFF) + ROOT_HALF_BITS).to(tl.float32, bitcast=True) - 1.0
    rest = ((((L_9 * x + L_8) * x + L_7) * x + L_6) * x + L_5) * x + L_4
    rest = (((rest * x + L_3) * x + L_2) * x + L_1) * x + L_0
    log = x + x * x * rest + exponent * LOG_TWO
    square = -2.0 * log
    radius = tl.sqrt_rn(tl.where(square > 0.0, square, 0.0))
    radius = tl.where((second & 1) == 1, radius, -radius)
    angle = second.to(tl.int32, bitcast=True).to(tl.float32) * HALF_TURN
    square = angle * angle
    rest = ((((S_5 * square + S_4) * square + S_3) * square + S_2) * square + S_1) * square + S_0
    cosine = (((C_6 * square + C_5) * square + C_4) * square + C_3) * square + C_2
    cosine = (cosine * square + C_1) * square + C_0
    return radius * angle * rest, radius * cosine


@triton.jit
def _words(keys, begin, width, kind: tl.constexpr, block: tl.constexpr):
    """Four words of each of a block of counters of a row."""
    row, chain = tl.program_id(1), tl.program_id(2)
    place = tl.program_id(0) * block + tl.arange(0, block)
    counter = tl.load(begin + chain) + row.to(tl.int64) * width + place
    a, b = counter.to(tl.uint32), (counter >> 32).to(tl.uint32)
    c, d = tl.full((block,), kind, tl.uint32), tl.full((block,), 0, tl.uint32)
    k = tl.load(keys + 2 * chain).to(tl.uint32)
    q = tl.load(keys + 2 * chain + 1).to(tl.uint32)
    for _ in tl.static_range(ROUNDS):
        m_0, m_1 = tl.full((block,), M_0, tl.uint32), tl.full((block,), M_1, tl.uint32)
        left, right = tl.umulhi(a, m_0), tl.umulhi(c, m_1)
        low_left, low_right = a * m_0, c * m_1
        a, b = right ^ b ^ k, low_right
        c, d = left ^ d ^ q, low_left
        k, q = k + W_0, q + W_1
    return a, b, c, d


@triton.jit
def _write(out, n, first, second, third, fourth, block: tl.constexpr):
    """Write four numbers of each counter of a block to a row of n numbers, one after another."""
    values = tl.interleave(tl.interleave(first, third), tl.interleave(second, fourth))
    at = 4 * tl.program_id(0) * block + tl.arange(0, 4 * block)
    tl.store(out + at, values, mask=at < n)


@triton.jit
def _fill_normal(out, keys, begin, rows, n, kind: tl.constexpr, block: tl.constexpr):
    row, chain = tl.program_id(1), tl.program_id(2)
    a, b, c, d = _words(keys, begin, (n + 3) // 4, kind, block)
    first, second = _pair(a, b)
    third, fourth = _pair(c, d)
    _write(out + (chain.to(tl.int64) * rows + row) * n, n, first, second, third, fourth, block)


@triton.jit
def _fill_words(out, keys, begin, n, kind: tl.constexpr, block: tl.constexpr):
    a, b, c, d = _words(keys, begin, n, kind, block)
    a, b, c, d = a.to(tl.int64), b.to(tl.int64), c.to(tl.int64), d.to(tl.int64)
    _write(out + tl.program_id(2).to(tl.int64) * 4 * n, 4 * n, a, b, c, d, block)
