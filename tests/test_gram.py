"""Sums of products of columns in single precision, against long double."""

from __future__ import annotations

import numpy as np
from _cases import cases

from skbayes_sgmcmc.models.designs import gram as _gram
from skbayes_sgmcmc.models.designs.gram import gram_with_ones

N, P = 3000, 6
SIGNS = {"positive": 1.0, "negative": -1.0, "both": 0.0}


def problem(sign, mean=0.0, size=1.0):
    rng = np.random.default_rng(0)
    x = ((rng.standard_normal((N, P)) + mean) * size).astype(np.float32)
    return x, (sign * rng.random(N) if sign else rng.random(N) - 0.3)


def found(x, weight):
    parts = ((slice(i, i + 1000), x[i : i + 1000]) for i in range(0, N, 1000))
    return gram_with_ones(parts, weight, P)


def exact(x, weight):
    wide = np.hstack([x, np.ones((N, 1))]).astype(np.longdouble)
    return (wide * weight[:, None]).T @ wide


@cases("sign", SIGNS.values())
@cases("mean", [0.0, 1e3, 1e5])
def test_the_spread_of_columns_survives_a_large_mean(mean, sign):
    """Covariances to 1e-5 of a variance, where rounding of the means' squares is up to 1e3 of it.

    With weights of both signs, the sums of the weighted columns are in single precision, too, and
    small compared with the columns: to 2e-7 of the means.
    """
    x, weight = problem(sign, mean)
    away = np.eye(P + 1, dtype=np.longdouble)
    away[:P, P] = -x.mean(0, dtype=np.float64)
    ours, theirs = (
        np.asarray((away @ sums @ away.T)[:P, :P], dtype=float)
        for sums in (found(x, weight).astype(np.longdouble), exact(x, weight))
    )
    bound = 1e-5 if sign else max(1e-5, 2e-7 * mean)
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=bound * np.abs(theirs).max())


@cases("size", [1e-30, 1e-21, 1e22, 1e30])
def test_squares_beyond_single_precision(size):
    """They are zero or infinite in float32."""
    x, weight = problem(1.0, size=size)
    sums, theirs = found(x, weight), exact(x, weight)
    np.testing.assert_allclose(np.diag(sums), np.diag(theirs).astype(float), rtol=1e-5)


def test_no_weight_is_lost_where_all_are_small():
    """Those of rows whose class is beyond doubt, where the root of a weight is below 1e-38."""
    x, weight = problem(1.0)
    np.testing.assert_allclose(found(x, 1e-90 * weight), 1e-90 * found(x, weight), rtol=1e-6)
    assert not found(x, 0.0 * weight).any()
    assert np.isnan(found(x, np.nan * weight)).all()


def test_columns_that_do_not_vary(monkeypatch):
    """Rare features and constants have zeros, which are no reason for double precision."""
    x, weight = problem(1.0)
    x[:, 0], x[:, 1], x[1:, 2] = 0.0, 7.0, 0.0
    calls, products = [], _gram._products

    def counted(x, *rest):
        calls.append(x.dtype)
        return products(x, *rest)

    monkeypatch.setattr(_gram, "_products", counted)
    expected = exact(x, weight).astype(float)
    np.testing.assert_allclose(found(x, weight), expected, rtol=1e-5, atol=1e-3)
    assert {np.dtype(each) for each in calls} == {np.dtype(np.float32)}
