"""Philox4x32, and the normals, uniforms and integers without repeats made from its words.

The loops are written such that the compiler turns each into vector instructions.
"""

from __future__ import annotations

import numpy as np

from .._polynomials import COSINE, LOG_REST, SINE_REST
from . import copy, jit, polynomial

#: the smallest number of rounds that passes BigCrush
ROUNDS = 7
#: number of counter values processed at once; words and normals fit into the first-level cache
BLOCK = 512

LOW, SHIFT, ONE = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)
HALF_TURN, LOG_TWO = np.float32(np.pi / 2**32), np.float32(np.log(2.0))


@jit
def words(out, key, counter, rounds):
    """Write four words for each of len(out) / 4 counter values to ``out``.

    The words of one counter value are len(out) / 4 entries apart. Words are computed in 64 bits, so
    that the high half of a product is a shift.
    """
    n = len(out) // 4
    for i in range(n):
        count = counter + np.uint64(i)
        a, b = count & LOW, count >> SHIFT
        c = d = np.uint64(0)
        k, q = key & LOW, key >> SHIFT
        for _ in range(rounds):
            left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
            a, b = (right >> SHIFT) ^ b ^ k, right & LOW
            c, d = (left >> SHIFT) ^ d ^ q, left & LOW
            k = (k + np.uint64(0x9E3779B9)) & LOW
            q = (q + np.uint64(0xBB67AE85)) & LOW
        out[i], out[n + i], out[2 * n + i], out[3 * n + i] = a, b, c, d


log_rest, sine_rest, cosine = map(polynomial, (LOG_REST, SINE_REST, COSINE))


@jit
def box_muller(bits, out):
    """Write one standard normal for each word to ``out``; the words are overwritten."""
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
        log = x + x * x * log_rest(x) + out[i] * LOG_TWO
        radius = np.sqrt(np.float32(-2.0) * log)
        # 31 bits are an angle in (-pi/2, pi/2), and one bit chooses the half of the circle
        turn = as_int[n + i]
        radius = radius if turn & 1 else -radius
        angle = np.float32(turn) * HALF_TURN
        square = angle * angle
        out[i] = radius * angle * sine_rest(square)
        as_float[i] = radius * cosine(square)
    for i in range(n):
        out[n + i] = as_float[i]


@jit
def fill_normal(out, key, counter):
    """Fill ``out`` with standard normals."""
    size = 4 * BLOCK
    bits, normals = np.empty(size, np.uint32), np.empty(size, np.float32)
    for start in range(0, len(out), size):
        words(bits, key, counter, ROUNDS)
        box_muller(bits, normals)
        counter += np.uint64(BLOCK)
        stop = min(len(out), start + size)
        copy(normals, out[start:stop])


@jit
def fill_uniform(out, key, counter):
    """Fill ``out`` with uniform numbers in [0, 1)."""
    size = 4 * BLOCK
    bits = np.empty(size, np.uint32)
    for start in range(0, len(out), size):
        words(bits, key, counter, ROUNDS)
        counter += np.uint64(BLOCK)
        for i in range(min(size, len(out) - start)):
            # 24 bits, the precision of float32, so that rounding never gives 1
            out[start + i] = (bits[i] >> np.uint32(8)) * 2.0**-24


@jit
def distinct(out, n, key, counter):
    """Fill each row with the first different integers below n of a random sequence.

    Returns the next counter.
    """
    size = out.shape[1]
    bits, used = np.empty(4 * BLOCK, np.uint32), 4 * BLOCK
    n = np.uint64(n)
    biased = (LOW + ONE) % n  # words to reject, so that integers are equally likely
    # the row's numbers so far, in a hash table with open addressing; stamps avoid clearing it
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
            product = np.uint64(bits[used]) * n  # Lemire's method for an integer below n
            used += 1
            if product & LOW < biased:
                continue
            number = product >> SHIFT
            slot = number & (slots - ONE)
            while stamp[slot] == k + 1 and member[slot] != number:
                slot = (slot + ONE) & (slots - ONE)
            if stamp[slot] != k + 1:
                stamp[slot], member[slot] = k + 1, number
                out[k, found] = number
                found += 1
    return counter
