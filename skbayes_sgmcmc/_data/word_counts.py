"""Counts of words in documents: whole numbers again where rounding has changed them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .._exceptions import size_not_allowed
from .._validation import BOUNDS

#: relative distance to a whole number that is rounding, in single precision too
WHOLE = 1e-6


def word_counts(X: Any) -> Any:
    """Checked counts as a new CSR matrix, with one entry for each count that is not zero."""
    X = sp.csr_matrix(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    # 3 + 4e-16, which is 0.1 * 30 in floating point, is three words, not four of weight 3/4
    whole = np.rint(X.data)
    X.data = np.where(np.abs(X.data - whole) <= WHOLE * whole, whole, X.data)
    _check_length(X)
    return X


def _check_length(X: Any) -> None:
    """Refuse documents if counts of their topics would not be exact in single precision."""
    with np.errstate(over="ignore"):
        lengths = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    worst = int(lengths.argmax())
    if not lengths[worst] <= BOUNDS.whole:
        raise size_not_allowed(
            f"X is not allowed: document {worst} has {lengths[worst]:.3g} words, and more than "
            f"{BOUNDS.whole:,} can't be counted in single precision; divide the counts by "
            "a constant, or split the document."
        )
