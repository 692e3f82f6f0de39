"""Random numbers of a compiled, counter-based generator (extra ``fast``).

Philox4x32 (Salmon et al. 2011) with seven rounds, the fewest that pass BigCrush, gives four 32-bit
words for each value of a counter; Box and Muller's transform makes four normals of them, in
float32. The loops are written so that the compiler turns each into vector instructions: a normal
takes about a quarter of the time of torch's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]

ROUNDS = 7
#: counter values worked on at once: their words and normals stay in the first-level cache
BLOCK = 512


class Philox:
    """The stream of a 64-bit key; ``counter`` tells how many counter values it has used."""

    def __init__(self, key: int, device: str = "cpu"):
        if device != "cpu":
            raise ValueError(f"device={device!r} is not allowed: this generator needs 'cpu'.")
        self.key = key
        self.counter = 0

    def normal(self, out: Tensor) -> None:
        """Fill a contiguous float32 tensor."""
        self._fill(functions().fill_normal, out)

    def uniform(self, out: Tensor) -> None:
        """Fill a contiguous tensor with multiples of 2^-24 in [0, 1)."""
        self._fill(functions().fill_uniform, out)

    def distinct(self, n: int, n_steps: int, size: int) -> Array:
        """Numbers below n of shape (n_steps, size), without repeats in a row."""
        out = np.empty((n_steps, size), np.int64)
        counter = functions().distinct(out, n, np.uint64(self.key), np.uint64(self.counter))
        self.counter = int(counter)
        return out

    def _fill(self, fill: Any, out: Tensor) -> None:
        flat = out.view(-1).numpy()
        fill(flat, np.uint64(self.key), np.uint64(self.reserve(len(flat))))

    def reserve(self, n: int) -> int:
        """The counter at which n numbers begin, whoever makes them; they count as used."""
        begin = self.counter
        self.counter += -(-n // (4 * BLOCK)) * BLOCK
        return begin

    def get_state(self) -> Array:
        return np.array([self.key, self.counter], dtype=np.uint64)

    def set_state(self, state: Array) -> None:
        self.key, self.counter = state.tolist()


@dataclass(frozen=True)
class Functions:
    """The compiled functions, for other compiled code to call."""

    words: Any
    box_muller: Any
    fill_normal: Any
    fill_uniform: Any
    distinct: Any


@functools.cache
def functions() -> Functions:
    """Compile, at the first call only.

    Raises
    ------
    ImportError
        numba is not installed.
    """
    import numba

    low, shift, one = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)
    half_turn, log_two = np.float32(np.pi / 2**32), np.float32(np.log(2.0))
    jit = numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")

    def polynomial(f: Any, low: float, high: float, degree: int) -> Any:
        """A compiled polynomial close to f between two bounds, by Chebyshev's interpolation."""
        fit = np.polynomial.Chebyshev.interpolate(f, degree, (low, high))
        coefficients = fit.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32)
        first, others = coefficients[-1], tuple(coefficients[-2::-1])

        @jit
        def evaluate(x):  # type: ignore[no-untyped-def]
            p = first
            for c in others:
                p = p * x + c
            return p

        return evaluate

    # log(1 + x) = x + x^2 f(x); sin(x) = x f(x^2); cos(x) = f(x^2): relative errors below 1e-7
    root_half, quarter = np.sqrt(0.5), (np.pi / 2) ** 2
    log_rest = polynomial(lambda x: (np.log1p(x) - x) / x**2, root_half - 1, 2 * root_half - 1, 9)
    sine_rest = polynomial(lambda y: np.sinc(np.sqrt(y) / np.pi), 0.0, quarter, 5)
    cosine = polynomial(lambda y: np.cos(np.sqrt(y)), 0.0, quarter, 6)

    @jit
    def words(out, key, counter, rounds):  # type: ignore[no-untyped-def]
        """Four words for each of len(out) / 4 counter values, those of one value a quarter apart.

        Words are kept in 64 bits, which makes the high half of a product a shift.
        """
        n = len(out) // 4
        for i in range(n):
            count = counter + np.uint64(i)
            a, b = count & low, count >> shift
            c = d = np.uint64(0)
            k, q = key & low, key >> shift
            for _ in range(rounds):
                left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
                a, b = (right >> shift) ^ b ^ k, right & low
                c, d = (left >> shift) ^ d ^ q, left & low
                k = (k + np.uint64(0x9E3779B9)) & low
                q = (q + np.uint64(0xBB67AE85)) & low
            out[i], out[n + i], out[2 * n + i], out[3 * n + i] = a, b, c, d

    @jit
    def box_muller(bits, out):  # type: ignore[no-untyped-def]
        """As many standard normals as there are words; the words are overwritten."""
        n = len(bits) // 2
        as_float, as_int = bits.view(np.float32), bits.view(np.int32)
        for i in range(n):  # u in (0, 1)
            as_float[i] = (np.float32(bits[i]) + np.float32(0.5)) * np.float32(2.0**-32)
        for i in range(n):  # u = m 2^e with sqrt(1/2) <= m < sqrt(2)
            high = as_int[i] - np.int32(0x3F3504F3)
            out[i] = np.float32(high >> 23)
            as_int[i] = (high & np.int32(0x7FFFFF)) + np.int32(0x3F3504F3)
        for i in range(n):
            x = as_float[i] - np.float32(1.0)
            log = x + x * x * log_rest(x) + out[i] * log_two
            radius = np.sqrt(np.float32(-2.0) * log)
            # 31 bits for an angle in (-pi/2, pi/2), one for the other half of the circle
            turn = as_int[n + i]
            radius = radius if turn & 1 else -radius
            angle = np.float32(turn) * half_turn
            square = angle * angle
            out[i] = radius * angle * sine_rest(square)
            as_float[i] = radius * cosine(square)
        for i in range(n):
            out[n + i] = as_float[i]

    @jit
    def fill_normal(out, key, counter):  # type: ignore[no-untyped-def]
        size = 4 * BLOCK
        bits, normals = np.empty(size, np.uint32), np.empty(size, np.float32)
        for start in range(0, len(out), size):
            words(bits, key, counter, ROUNDS)
            box_muller(bits, normals)
            counter += np.uint64(BLOCK)
            stop = min(len(out), start + size)
            out[start:stop] = normals[: stop - start]

    @jit
    def fill_uniform(out, key, counter):  # type: ignore[no-untyped-def]
        size = 4 * BLOCK
        bits = np.empty(size, np.uint32)
        for start in range(0, len(out), size):
            words(bits, key, counter, ROUNDS)
            counter += np.uint64(BLOCK)
            for i in range(min(size, len(out) - start)):
                # 24 bits, as many as float32 has, so that 1 is never reached by rounding
                out[start + i] = (bits[i] >> np.uint32(8)) * 2.0**-24

    @jit
    def distinct(out, n, key, counter):  # type: ignore[no-untyped-def]
        """The first different numbers of a sequence, for each row; returns the next counter."""
        size = out.shape[1]
        bits, used = np.empty(4 * BLOCK, np.uint32), 4 * BLOCK
        n = np.uint64(n)
        biased = (low + one) % n  # so many words too many for each number to have as many
        # the row's numbers so far, in a table with open addresses; stamps spare clearing it
        slots = np.uint64(4)
        while slots < np.uint64(4 * size):
            slots *= np.uint64(2)
        stamp, member = np.zeros(slots, np.int64), np.empty(slots, np.uint64)
        for k in range(len(out)):
            found = 0
            while found < size:
                if used == len(bits):
                    words(bits, key, counter, ROUNDS)
                    counter += np.uint64(BLOCK)
                    used = 0
                product = np.uint64(bits[used]) * n  # Lemire's way to a number below n
                used += 1
                if product & low < biased:
                    continue
                number = product >> shift
                slot = number & (slots - one)
                while stamp[slot] == k + 1 and member[slot] != number:
                    slot = (slot + one) & (slots - one)
                if stamp[slot] != k + 1:
                    stamp[slot], member[slot] = k + 1, number
                    out[k, found] = number
                    found += 1
        return counter

    return Functions(words, box_muller, fill_normal, fill_uniform, distinct)
