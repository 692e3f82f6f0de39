"""The cells of the sampler x integrator table: each as an exact linear chain, and as a run."""

from __future__ import annotations

import numpy as np
import torch
from _linear import LinearChain, balanced, constant_metric
from _targets import MetricDensity

from skbayes_sgmcmc import sample
from skbayes_sgmcmc.models import DensityModel
from skbayes_sgmcmc.samplers import TABLE
from skbayes_sgmcmc.samplers._momentum import ThermostatSampler

#: of the samplers that take steps, whatever the model
CELLS = [
    (name, cell)
    for name, (kind, cells) in TABLE.items()
    for cell in cells
    if not kind.needs_conditionals
]
#: not linear: an accepted or refused proposal, and a direction of length one (tests/test_mclmc.py)
NONLINEAR = ("mala", "mclmc")
LINEAR = [cell for cell in CELLS if cell[0] not in NONLINEAR]
THERMOSTATS = [cell for cell in CELLS if issubclass(TABLE[cell[0]][0], ThermostatSampler)]

FRICTION = 0.25


def is_shared(cell):
    """Whether a cell has the scheme of another sampler, with a thermostat."""
    return cell in THERMOSTATS and cell[1] != "splitting"


def make_sampler(name, **parameters):
    kind = TABLE[name][0]
    if "friction" in kind().get_params():
        parameters = {"friction": FRICTION} | parameters
    return kind(**parameters)


def scales(dim):
    """Unequal positive numbers: a constant metric, or the gradient whose square pSGLD averages."""
    return np.linspace(0.6, 1.4, dim)


def exact_chain(name, integrator, target, eta, sampler=None):
    """The linear chain of a cell; thermostats are held in balance."""
    sampler = make_sampler(name) if sampler is None else sampler
    step = TABLE[name][1][integrator].integrator
    if isinstance(sampler, ThermostatSampler):
        return balanced(sampler, step, target, eta)
    if name == "psgld":
        return LinearChain(sampler, step, target, eta, frozen={"V": scales(target.dim) ** 2})
    metric = scales(target.dim) if sampler.needs_metric else None
    return LinearChain(sampler, step, target, eta, metric=metric)


def run_engine(name, integrator, target, eta, sampler=None, **settings):
    """Draws (chains, draws, dim) of ``sample`` on ``target``; N = 1.

    A step of many chains takes hardly longer than one of few; every eighth says nearly all.
    """
    A, dim = torch.from_numpy(target.A), target.dim
    root = None if target.noise is None else torch.from_numpy(np.linalg.cholesky(target.noise))
    fixed = torch.from_numpy(scales(dim))

    def log_density(theta):
        return -0.5 * ((theta @ A) * theta).sum(1)

    def gradient(theta, rng):
        g = theta @ A
        if root is not None:
            g = g + rng.normal(dim) @ root.t()
        # pSGLD averages the square of the likelihood's gradient: a fixed one makes V known
        return (g, {"likelihood": fixed.expand_as(g)}) if name == "psgld" else g

    model = DensityModel(log_density, dim, gradient)
    if name == "rsgld":
        model = MetricDensity(log_density, dim, constant_metric(scales(dim)), gradient)
    starts = np.random.default_rng(1).multivariate_normal(np.zeros(dim), target.covariance, 384)
    length = {"n_chains": 384, "n_draws": 100, "burn_in": 300, "thinning": 8}
    settings = length | settings
    return sample(
        model,
        step_size=eta,
        sampler=make_sampler(name) if sampler is None else sampler,
        integrator=integrator,
        temperature=target.temperature,
        init=starts[: settings["n_chains"]],
        random_state=0,
        **settings,
    )
