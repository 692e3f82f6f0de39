"""Priors: densities that integrate to one, and gradients and expectations that belong to them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
import torch
from _cases import cases
from scipy.integrate import quad

from skbayes_sgmcmc import BayesianLogisticRegression
from skbayes_sgmcmc.priors.factorised import PRIORS, Laplace, Normal, Prior

pytestmark = pytest.mark.filterwarnings("ignore::skbayes_sgmcmc.SamplingWarning")

SCALE = np.array([0.3, 1.0, 7.0, np.inf])
FINITE = SCALE[:3]
REFERENCE = {"normal": scipy.stats.norm, "laplace": scipy.stats.laplace}


@pytest.fixture(params=list(PRIORS))
def prior(request):
    return PRIORS[request.param]()


def reference(prior):
    return REFERENCE[{kind: name for name, kind in PRIORS.items()}[type(prior)]]


def test_the_table_is_tested():
    assert {"normal": Normal, "laplace": Laplace} == PRIORS, "a new prior: add its scipy density"


def test_log_density_is_normalised(prior):
    """Against scipy's, and by an integral: constants matter to log_joint and its averages."""
    theta = np.random.default_rng(0).standard_normal((5, 3)) * FINITE
    rates = torch.from_numpy(prior.rates(FINITE))
    got = prior.log_density(torch.from_numpy(theta), rates).numpy()
    expected = reference(prior).logpdf(theta, scale=FINITE).sum(1)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    for rate, scale in zip(rates, FINITE, strict=True):

        def density(x, rate=rate):
            return (
                prior.log_density(torch.tensor([[x]], dtype=torch.float64), rate[None]).exp().item()
            )

        total = 2.0 * quad(density, 0.0, 40.0 * scale, epsabs=1e-12)[0]
        assert total == pytest.approx(1.0, abs=1e-8)


def test_flat_coordinates_count_as_zero(prior):
    theta = torch.randn(4, 4, dtype=torch.float64, generator=torch.manual_seed(0))
    rates = torch.from_numpy(prior.rates(SCALE))
    assert rates[3] == 0.0
    whole = prior.log_density(theta, rates)
    np.testing.assert_array_equal(whole, prior.log_density(theta[:, :3], rates[:3]))
    out = torch.empty_like(theta)
    prior.gradient(theta, rates, out)
    assert (out[:, 3] == 0.0).all()
    assert prior.expected_gradient(theta[0].numpy(), np.ones(4), rates.numpy())[3] == 0.0
    assert prior.expected_curvature(theta[0].numpy(), np.ones(4), rates.numpy())[3] == 0.0


@cases("dtype", [torch.float64, torch.float32])
def test_gradient_is_the_densitys(prior, dtype):
    """Against autograd of -log density, in every entry of a batch of chains."""
    generator = torch.manual_seed(0)
    theta = torch.randn(6, 4, dtype=dtype, generator=generator).requires_grad_(True)
    rates = torch.from_numpy(prior.rates(SCALE)).to(dtype)
    (expected,) = torch.autograd.grad(-prior.log_density(theta, rates).sum(), theta)
    out = torch.full((6, 4), np.nan, dtype=dtype)  # it must be overwritten, not added to
    prior.gradient(theta.detach(), rates, out)
    np.testing.assert_allclose(out, expected, rtol=1e-6 if dtype == torch.float32 else 1e-12)


def test_gradient_is_proportional_to_the_rates(prior):
    """Models fold the factor 1/N into the rates."""
    theta = torch.linspace(-2, 2, 8, dtype=torch.float64).view(2, 4)
    rates = torch.from_numpy(prior.rates(SCALE))
    one, tenth = torch.empty_like(theta), torch.empty_like(theta)
    prior.gradient(theta, rates, one)
    prior.gradient(theta, rates / 10.0, tenth)
    np.testing.assert_allclose(tenth, one / 10.0, rtol=1e-12)


def test_gradient_at_the_corner_is_zero():
    """Laplace at exactly 0: the subgradient 0, so that a coordinate may rest there."""
    out = torch.full((1, 3), np.nan, dtype=torch.float64)
    zero = torch.zeros(1, 3, dtype=torch.float64)
    Laplace().gradient(zero, torch.from_numpy(Laplace().rates(FINITE)), out)
    np.testing.assert_array_equal(out, 0.0)


MEANS = np.array([-0.4, 0.0, 2.5])
SDS = np.array([0.2, 1.5, 0.7])


def expectation(function, mean, sd):
    """E f(mean + sd z) by quadrature, cut at the corner of a Laplace prior."""
    density = scipy.stats.norm(mean, sd).pdf
    low, high = mean - 12.0 * sd, mean + 12.0 * sd
    cuts = sorted({low, high, min(max(0.0, low), high), mean})
    return sum(
        quad(lambda x: function(x) * density(x), a, b, epsabs=1e-13, epsrel=1e-12)[0]
        for a, b in pairwise(cuts)
    )


def test_gaussian_expectations_of_the_gradient(prior):
    rates = prior.rates(FINITE)

    def gradient(x):
        out = torch.empty(1, 1, dtype=torch.float64)
        prior.gradient(
            torch.tensor([[x]], dtype=torch.float64), torch.ones(1, dtype=torch.float64), out
        )
        return out.item()

    got = prior.expected_gradient(MEANS, SDS, rates)
    exact = [rate * expectation(gradient, *at) for rate, *at in zip(rates, MEANS, SDS, strict=True)]
    np.testing.assert_allclose(got, exact, atol=1e-9)


def test_gaussian_expectations_of_the_potential(prior):
    """Up to a constant: compared as differences between two means."""
    rates = prior.rates(FINITE)

    def potential(x):
        return float(-prior.log_density(torch.from_numpy(x[None]), torch.from_numpy(rates)))

    def exact(means):
        total = 0.0
        for j, (mean, sd) in enumerate(zip(means, SDS, strict=True)):

            def one(x, j=j):
                at = np.zeros(3)
                at[j] = x
                return potential(at) - potential(np.zeros(3))

            total += expectation(one, mean, sd)
        return total

    other = np.array([1.0, -2.0, 0.3])
    got = prior.expected_potential(MEANS, SDS, rates) - prior.expected_potential(other, SDS, rates)
    assert got == pytest.approx(exact(MEANS) - exact(other), abs=1e-8)


def test_expectations_are_each_others_derivatives(prior):
    """As Newton's steps to the centre need; the central differences' error is about 1e-10."""
    rates, step = prior.rates(FINITE), 1e-5
    for j in range(3):
        move = np.zeros(3)
        move[j] = step
        slope = (
            prior.expected_potential(MEANS + move, SDS, rates)
            - prior.expected_potential(MEANS - move, SDS, rates)
        ) / (2.0 * step)
        assert slope == pytest.approx(prior.expected_gradient(MEANS, SDS, rates)[j], abs=1e-7)
        curvature = (
            prior.expected_gradient(MEANS + move, SDS, rates)
            - prior.expected_gradient(MEANS - move, SDS, rates)
        )[j] / (2.0 * step)
        assert curvature == pytest.approx(prior.expected_curvature(MEANS, SDS, rates)[j], abs=1e-7)


class Own(Normal):
    """A normal prior with a slip."""

    def __init__(self, slip=None):
        self.slip = slip

    def gradient(self, theta, rates, out):
        if self.slip == "undefined":
            Prior.gradient(self, theta, rates, out)
        torch.mul(theta, rates.sqrt() if self.slip == "not in proportion" else rates, out=out)

    def log_density(self, theta, rates):
        found = super().log_density(theta, rates)
        return found.sum() if self.slip == "one number" else found


@cases(
    "slip, kind, message",
    [
        ("undefined", NotImplementedError, r"Own has no method gradient\(theta, rates, out\)"),
        ("not in proportion", ValueError, "its gradient must be that of -log_density"),
        ("one number", ValueError, r"returned the shape \(\) for 2 chains"),
    ],
)
def test_slips_of_own_priors_are_named(slip, kind, message):
    """Without a slip, draws are those of the normal prior."""
    X = np.random.default_rng(0).standard_normal((40, 2))
    short = {"n_draws": 10, "burn_in": 10, "thinning": 1, "random_state": 0}
    with pytest.raises(kind, match=message):
        BayesianLogisticRegression(prior=Own(slip), **short).fit(X, X[:, 0] > 0.0)
    short["prior_scale"] = 1.0
    fits = [BayesianLogisticRegression(prior=prior, **short) for prior in (Own(), "normal")]
    one, other = (clf.fit(X, X[:, 0] > 0.0).coef_ for clf in fits)
    np.testing.assert_allclose(one, other, rtol=1e-6)
