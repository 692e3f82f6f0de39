"""Data: rows, targets and weights as short descriptions, from which :func:`made` makes arrays.

A description and its seed are all that it takes to make a case again.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd
import scipy.sparse as sp
from hypothesis import strategies as st


@dataclass(frozen=True)
class Rows:
    n: int
    d: int
    kind: str = "normal"
    scale: float = 1.0
    form: str = "array"
    seed: int = 0


@dataclass(frozen=True)
class Targets:
    kind: str
    scale: float = 1.0


# rows ---------------------------------------------------------------------------------------------

KINDS = {
    "normal": lambda rng, n, d: rng.standard_normal((n, d)),
    "constant": lambda rng, n, d: np.ones((n, d)),
    "zeros": lambda rng, n, d: np.zeros((n, d)),
    "a constant column": lambda rng, n, d: _with_column(rng, n, d, 1e8),
    "a column of zeros": lambda rng, n, d: _with_column(rng, n, d, 0.0),
    "a huge column": lambda rng, n, d: _with_column(rng, n, d, 1e12 * rng.standard_normal(n)),
    "a tiny column": lambda rng, n, d: _with_column(rng, n, d, 1e-170 * rng.standard_normal(n)),
    "a column by its tail": lambda rng, n, d: _with_column(rng, n, d, np.exp(30.0 * rng.random(n))),
    "duplicated": lambda rng, n, d: np.repeat(rng.standard_normal((n, 1)), d, axis=1),
    "equal rows": lambda rng, n, d: np.repeat(rng.standard_normal((1, d)), n, axis=0),
    "whole numbers": lambda rng, n, d: rng.integers(-3, 4, (n, d)).astype(float),
    "yes or no": lambda rng, n, d: rng.random((n, d)) < 0.5,
    "far away": lambda rng, n, d: 1e10 + rng.standard_normal((n, d)),
    "tiny positive": lambda rng, n, d: np.full((n, d), 1e-12) * (1.0 + rng.random((n, d))),
    "row numbers": lambda rng, n, d: _with_column(rng, n, d, np.arange(n) + 2.0**53),
    "not a number": lambda rng, n, d: _with_entry(rng, n, d, np.nan),
    "infinite": lambda rng, n, d: _with_entry(rng, n, d, np.inf),
    "complex": lambda rng, n, d: rng.standard_normal((n, d)) * 1j,
    "text": lambda rng, n, d: np.full((n, d), "text", dtype=object),
    "dates": lambda rng, n, d: np.datetime64("2020-01-01") + rng.integers(0, 9, (n, d)),
    "decimals": lambda rng, n, d: _decimals(rng.standard_normal((n, d))),
    "ragged": lambda rng, n, d: [[0.0] * (1 + i % 2) for i in range(n)],
    "no rows": lambda rng, n, d: np.empty((0, d)),
    "no columns": lambda rng, n, d: np.empty((n, 0)),
    "one dimension": lambda rng, n, d: rng.standard_normal(n),
    "three dimensions": lambda rng, n, d: rng.standard_normal((n, d, 2)),
}
#: kinds of counts, for topic models
COUNTS = {
    "counts": lambda rng, n, d: rng.poisson(2.0, (n, d)).astype(float),
    "few counts": lambda rng, n, d: rng.poisson(0.2, (n, d)).astype(float),
    "fractions": lambda rng, n, d: rng.random((n, d)) * 3.0,
    "huge counts": lambda rng, n, d: np.floor(10.0 ** rng.uniform(0.0, 6.0, (n, d))),
    "too many": lambda rng, n, d: np.full((n, d), 1e9),
}
SCALES = [
    *[1.0] * 20,
    *[1e-8, 1e8, 1e-40, 1e40, 1e-100, 1e100, 1e-140, 1e140, 1e155, 1e-200, 1e200, 1e300],
    *[5e-324, 1e308],
]
FORMS = {
    "array": lambda X: X,
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "read-only": lambda X: _read_only(X),
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "int64": lambda X: np.nan_to_num(X).astype(np.int64),
    "object": lambda X: X.astype(object),
    "list": lambda X: X.tolist(),
    "frame": lambda X: _frame(X),
    "nullable": lambda X: _frame(X).convert_dtypes(),
    "arrow": lambda X: _frame(X).convert_dtypes(dtype_backend="pyarrow"),
    "ids": lambda X: _frame(X).assign(x0=10**18 + np.arange(len(X)) % 4),
    "csr": sp.csr_matrix,
    "csr array": sp.csr_array,
    "csc": sp.csc_matrix,
    "coo": sp.coo_matrix,
}


def _with_column(rng, n, d, column):
    X = rng.standard_normal((n, d))
    X[:, 0] = column
    return X


def _decimals(numbers):
    return np.vectorize(Decimal, otypes=[object])(numbers)


def _with_entry(rng, n, d, value):
    X = rng.standard_normal((n, d))
    X[-1, -1] = value
    return X


def _frame(X):
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])


def _read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def rows(*, counts=False, images=False):
    """Rows: mostly a dozen of ordinary ones."""
    kinds = [*list(COUNTS) * 6, *KINDS] if counts else [*["normal"] * 24, *KINDS]
    widths = [4, 4, 4, 1, 6] if images else [1, 2, 3, 4, 4]
    return st.builds(
        Rows,
        n=st.sampled_from([12, 12, 12, 12, 30, 5, 3, 2, 1]),
        d=st.sampled_from(widths),
        kind=st.sampled_from(kinds),
        scale=st.just(1.0) if counts else st.sampled_from(SCALES),
        form=st.sampled_from([*["array"] * 16, *FORMS]),
        seed=st.integers(0, 99),
    )


def made_rows(rows, seed=None):
    rng = np.random.default_rng(rows.seed if seed is None else seed)
    X = (KINDS | COUNTS)[rows.kind](rng, rows.n, rows.d)
    with np.errstate(all="ignore"):
        if isinstance(X, list):
            return X
        if X.dtype.kind == "f":
            X = X * rows.scale
        if X.ndim != 2 or X.dtype.kind not in "fb":
            return X  # forms are those of matrices of numbers
        if X.dtype.kind == "b" and rows.form.startswith(("c", "f")):
            X = X.astype(float)
        return FORMS[rows.form](X)


# targets ------------------------------------------------------------------------------------------

LABELS = {
    "two": lambda rng, n: np.arange(n) % 2,
    "three": lambda rng, n: np.arange(n) % 3,
    "strings": lambda rng, n: np.array(["no", "yes", "Ünknown"])[np.arange(n) % 3],
    "objects": lambda rng, n: np.array(["a", "b"], dtype=object)[np.arange(n) % 2],
    "true or false": lambda rng, n: np.arange(n) % 2 == 0,
    "floats": lambda rng, n: np.array([-1.0, 3.0])[np.arange(n) % 2],
    "one of its kind": lambda rng, n: (np.arange(n) == 0).astype(int),
    "single": lambda rng, n: np.zeros(n, dtype=int),
    "all different": lambda rng, n: np.arange(n),
    "huge": lambda rng, n: (np.arange(n) % 2) * (2**62),
    "list": lambda rng, n: (np.arange(n) % 2).tolist(),
    "series": lambda rng, n: pd.Series(np.arange(n) % 2, index=np.arange(n) + 7),
    "categories": lambda rng, n: pd.Series(np.arange(n) % 2, dtype="category"),
    "ordered": lambda rng, n: _ordered(np.arange(n) % 3),
    "half steps": lambda rng, n: 0.5 * (np.arange(n) % 3),
    "nullable": lambda rng, n: pd.Series(np.arange(n) % 2, dtype="Int64"),
    "a missing one": lambda rng, n: pd.Series(np.arange(n) % 2, dtype="Int64").where(_not_first(n)),
    "a missing text": lambda rng, n: pd.Series(["a", "b"] * n, dtype="string")[:n].where(
        _not_first(n)
    ),
    "a missing date": lambda rng, n: pd.Series(pd.Timestamp("2020-01-01"), range(n)).where(
        _not_first(n)
    ),
    "huge, next to each other": lambda rng, n: np.arange(n) % 3 + 2**53,
    "column": lambda rng, n: (np.arange(n) % 2)[:, None],
    "continuous": lambda rng, n: rng.standard_normal(n),
    "not a number": lambda rng, n: np.where(np.arange(n) == 0, np.nan, np.arange(n) % 2),
    "mixed": lambda rng, n: np.array([1, "a"] * n, dtype=object)[:n],
    "several": lambda rng, n: rng.integers(0, 2, (n, 3)),
    "dates": lambda rng, n: np.datetime64("2020-01-01") + np.arange(n) % 2,
    "decimals": lambda rng, n: _decimals(np.arange(n) % 2.0),
    "ragged": lambda rng, n: [[0.0] * (1 + i % 2) for i in range(n)],
    "too short": lambda rng, n: np.arange(n - 1) % 2,
    "none": lambda rng, n: None,
}
NUMBERS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "two": lambda rng, n: rng.standard_normal((n, 2)),
    "column": lambda rng, n: rng.standard_normal((n, 1)),
    "five and one constant": lambda rng, n: rng.standard_normal((n, 5)) * [1, 1, 1, 1, 0],
    "constant": lambda rng, n: np.ones(n),
    "zeros": lambda rng, n: np.zeros(n),
    "whole numbers": lambda rng, n: rng.integers(-5, 5, n),
    "float32": lambda rng, n: rng.standard_normal(n).astype(np.float32),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "far away": lambda rng, n: 1e12 + rng.standard_normal(n),
    "list": lambda rng, n: rng.standard_normal(n).tolist(),
    "frame": lambda rng, n: pd.DataFrame(rng.standard_normal((n, 2))),
    "not a number": lambda rng, n: np.where(np.arange(n) == 0, np.nan, 1.0),
    "infinite": lambda rng, n: np.where(np.arange(n) == 0, np.inf, 1.0),
    "text": lambda rng, n: np.array(["text"] * n),
    "dates": lambda rng, n: np.datetime64("2020-01-01") + np.arange(n),
    "times": lambda rng, n: np.arange(n).astype("timedelta64[s]"),
    "outliers": lambda rng, n: np.where(np.arange(n) == 0, 999_999.0, rng.standard_normal(n)),
    "nullable": lambda rng, n: pd.Series(rng.standard_normal(n), dtype="Float64"),
    "decimals": lambda rng, n: _decimals(rng.standard_normal(n)),
    "ragged": lambda rng, n: [[0.0] * (1 + i % 2) for i in range(n)],
    "too long": lambda rng, n: rng.standard_normal(n + 1),
    "no columns": lambda rng, n: np.empty((n, 0)),
    "none": lambda rng, n: None,
}


def _not_first(n):
    return np.arange(n) != 0


def _ordered(codes):
    kind = pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
    return pd.Series(np.array(kind.categories)[codes]).astype(kind)


def targets(*, classes):
    """Targets of a classifier or a regressor; the first kinds are the most likely."""
    table = LABELS if classes else NUMBERS
    kinds = list(table)
    scales = st.just(1.0) if classes else st.sampled_from(SCALES)
    return st.builds(Targets, kind=st.sampled_from(kinds[:3] * 12 + kinds), scale=scales)


def made_targets(targets, n, seed, *, classes):
    rng = np.random.default_rng([seed, 1])
    y = (LABELS if classes else NUMBERS)[targets.kind](rng, n)
    numbers = isinstance(y, np.ndarray) and y.dtype.kind == "f" and not classes
    with np.errstate(all="ignore"):
        return y * targets.scale if numbers else y


# weights ------------------------------------------------------------------------------------------

WEIGHTS = {
    "none": lambda rng, n: None,
    "ones": lambda rng, n: np.ones(n),
    "random": lambda rng, n: rng.random(n) * 3.0,
    "one zero": lambda rng, n: np.where(np.arange(n) == 0, 0.0, 1.0),
    "all zero": lambda rng, n: np.zeros(n),
    "a huge one": lambda rng, n: np.where(np.arange(n) == 0, 1e14, 1.0),
    "tiny": lambda rng, n: np.full(n, 1e-300),
    "too large": lambda rng, n: np.full(n, 1e30),
    "beyond squares": lambda rng, n: np.full(n, 1e300),
    "dates": lambda rng, n: np.full(n, np.datetime64("2020-01-01")),
    "ragged": lambda rng, n: [[1.0] * (1 + i % 2) for i in range(n)],
    "negative": lambda rng, n: np.full(n, -1.0),
    "not a number": lambda rng, n: np.full(n, np.nan),
    "too many": lambda rng, n: np.ones(n + 2),
    "text": lambda rng, n: ["text"] * n,
    "list": lambda rng, n: [1] * n,
}


def weights():
    return st.sampled_from([*["none"] * 20, *WEIGHTS])


def made_weights(kind, n, seed):
    return WEIGHTS[kind](np.random.default_rng([seed, 2]), n)


def are_ordinary(rows, targets, weights):
    """Whether no error may blame them."""
    plain_rows = rows.kind in ("normal", *COUNTS) and rows.scale == 1.0 and rows.n >= 12
    plain_targets = targets.kind in ("normal", "two", "three") and targets.scale == 1.0
    return plain_rows and plain_targets and weights in ("none", "ones", "random")
