"""Thermostats, whose steps are written out here."""

from __future__ import annotations

import numpy as np
import torch
from _cases import cases
from _linear import correlated_precision

from skbayes_sgmcmc.samplers import MSGNHT, SGNHT, TABLE, Step

# thermostats, written out -------------------------------------------------------------------------


@cases("mass", ["auto", 2.0])
@cases("integrator", ["euler", "splitting"])
@cases("kind", [SGNHT, MSGNHT])
def test_thermostat_steps_are_the_papers(kind, integrator, mass):
    """Three steps by the papers' formulas: one friction a chain, or one a parameter."""
    alpha, eta, n, T = 0.2, 0.3, 5.0, 0.5
    mu = (eta / n) / (0.3 * alpha) ** 2 if mass == "auto" else mass
    rng = np.random.default_rng(0)
    A, xi = correlated_precision(3), rng.standard_normal((4, 2, 3))
    theta = rng.standard_normal((2, 3))
    moving = torch.from_numpy(theta.copy())
    step = Step(
        n=n,
        gradient=lambda t: t @ torch.from_numpy(A),
        likelihood=None,
        potential=None,
        eta=eta,
        noise=eta * T / n,
        temperature=T,
        xi=torch.from_numpy(xi[0]),
    )
    sampler = kind(friction=alpha, mass=mass)
    state = sampler.init_state(moving, step)
    v, a = np.sqrt(eta * T / n) * xi[0], np.full((2, 1 if kind is SGNHT else 3), alpha)

    def heat():
        square = v**2
        return (square.mean(1, keepdims=True) if kind is SGNHT else square) - eta * T / n

    for k in range(1, 4):
        step.xi = torch.from_numpy(xi[k])
        TABLE["sgnht"][1][integrator].integrator(sampler, moving, state, step)
        noise = np.sqrt(2.0 * alpha * eta * T / n) * xi[k]
        if integrator == "euler":
            theta = theta + v
            v = v - a * v - eta * theta @ A + noise
            a = a + heat() / (T * mu)
        else:
            theta, a = theta + v / 2.0, a + heat() / (2.0 * T * mu)
            v = np.exp(-a / 2.0) * v
            v = v - eta * theta @ A + noise
            v = np.exp(-a / 2.0) * v
            theta, a = theta + v / 2.0, a + heat() / (2.0 * T * mu)
        np.testing.assert_allclose(moving, theta, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(state["v"], v, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(state["a"], a, rtol=1e-10, atol=1e-13)
