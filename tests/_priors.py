"""What priors of coefficients must agree on."""

import math

import numpy as np
import scipy.optimize
import torch


def assert_derivatives(prior, theta):
    """Gradients and curvature of a prior against autograd; expectations at an sd of zero."""
    at, zero = torch.from_numpy(theta), np.zeros(len(theta))

    def potential(x):
        return -prior.log_density(x[None])[0]

    gradient = torch.autograd.functional.jacobian(potential, at).numpy()
    hessian = torch.autograd.functional.hessian(potential, at).numpy()
    out = torch.full_like(at[None], math.nan)
    prior.gradient(at[None], out, 0.25)
    np.testing.assert_allclose(out[0], 0.25 * gradient, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(prior.expected_gradient(theta, zero), gradient, atol=1e-10)
    c, V = prior.expected_curvature(theta, zero)
    np.testing.assert_allclose(np.diag(c) - V @ V.T, hessian, rtol=1e-9, atol=1e-10)
    slope = scipy.optimize.approx_fprime(theta, lambda x: prior.expected_potential(x, zero), 1e-7)
    np.testing.assert_allclose(slope, gradient, rtol=1e-4, atol=1e-4)
