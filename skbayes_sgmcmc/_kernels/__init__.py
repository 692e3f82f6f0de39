"""Functions compiled by numba: imported where they are used, inside functions.

Numbers that index are unsigned, because numba then leaves out Python's rule for negative ones.
"""

from __future__ import annotations

import numba

#: sums may be reordered and multiplications fused; infinities and NaN keep their meaning
jit = numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
