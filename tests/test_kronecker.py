"""Variances of bilinear forms as sums of products of quadratic forms."""

from __future__ import annotations

import numpy as np
from _cases import cases

from skbayes_sgmcmc.models.moments.kronecker import kronecker_terms, quadratic_forms

RNG = np.random.default_rng(0)


def random_covariance(size):
    root = RNG.standard_normal((size, 2 * size))
    return root @ root.T / size


@cases("k, d", [(1, 4), (3, 5), (6, 2)])
@cases("scale", [1.0, 1e6])
def test_all_terms_give_the_variance(k, d, scale):
    """var(c'Wx) to rounding, of any covariance, with a column of another scale."""
    units = np.r_[scale, np.ones(d - 1)]
    covariance = random_covariance(k * d).reshape(k, d, k, d)
    covariance *= units[:, None, None] * units
    A, B, root = kronecker_terms(covariance)
    assert len(A) == len(B) == min(k * (k + 1), d * (d + 1)) // 2
    x, c = RNG.standard_normal((50, d)) / units, RNG.standard_normal((50, k))
    forms = quadratic_forms(x @ root, B) * np.einsum("rkl,nk,nl->nr", A, c, c)
    exact = np.einsum("kilj,nk,ni,nl,nj->n", covariance, c, x, c, x)
    np.testing.assert_allclose(forms.sum(1), exact, rtol=1e-9)


def test_a_product_has_one_term():
    first, second = random_covariance(4), random_covariance(5)
    A, B, root = kronecker_terms(np.einsum("kl,ij->kilj", first, second))
    np.testing.assert_allclose(np.einsum("kl,ij->kilj", A[0], root @ B[0] @ root.T),
                               np.einsum("kl,ij->kilj", first, second), rtol=1e-8)  # fmt: skip
    rest = np.linalg.norm(A[1:], axis=(1, 2)) * np.linalg.norm(B[1:], axis=(1, 2))
    assert rest.max() < 1e-9 * np.linalg.norm(A[0]) * np.linalg.norm(B[0])


def test_the_first_terms_are_the_best_ones_whatever_the_scales_are():
    """A product and a small perturbation: one term leaves 3%, in columns of every scale."""
    first, second = random_covariance(4), random_covariance(5)
    noise = random_covariance(20).reshape(4, 5, 4, 5)
    covariance = np.einsum("kl,ij->kilj", first, second) + 0.01 * noise
    units = np.array([1e-6, 1.0, 1.0, 1.0, 1e6])
    A, B, root = kronecker_terms(covariance * units[:, None, None] * units)
    x, c = np.eye(5) / units, RNG.standard_normal((20, 4))
    one = quadratic_forms(x @ root, B[:1])[:, 0] * np.einsum("kl,nk,nl->n", A[0], c, c)[:, None]
    exact = np.einsum("kili,nk,nl->ni", covariance, c, c)
    np.testing.assert_allclose(one, exact, rtol=0.1)
