"""The order of every integrator's bias in the time step, computed without Monte Carlo.

    python examples/benchmarks/order_of_bias.py

The package's own step is applied to the nodes of a Gauss quadrature, and the stationary density of
the chain is found in a basis of polynomials that are orthonormal under the target. For linear
chains (all but the thermostats, on the Gaussian) that is the discrete Lyapunov equation, and exact.
For the others it is a Galerkin approximation, solved with two sizes of the basis to see its error.
"""

import itertools

import numpy as np
import torch
from _common import markdown_table, new_figure, parse_args, save_figure, write_results

from skbayes_sgmcmc import sample
from skbayes_sgmcmc.samplers import MSGNHT, SGHMC, SGLD, resolve
from skbayes_sgmcmc.samplers._protocol import Step

D = 1.0
STEPS_H = [0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05]
ROUNDING = 1e-9  # biases below this are called exact
N_NOISE = 12  # nodes for the injected noise

#: name -> U(theta), its gradient; N = 1, T = 1
TARGETS = {
    "Gaussian": (lambda x: 0.5 * x**2, lambda x: x),
    "anharmonic": (lambda x: 0.5 * x**2 + 0.5 * np.cos(2 * x), lambda x: x - torch.sin(2 * x)),
}

#: name -> (sampler, integrator, state in units of its stationary law, degrees of the two bases)
HAMILTONIAN = {"euler": "E", "splitting": "S", "baoab": "BAOAB", "aboba": "ABOBA"}
CELLS = {
    "SGLD-Euler": (SGLD(), "euler", (), (24, 32)),
    "Leimkuhler-Matthews": (SGLD(), "leimkuhler_matthews", ("xi",), (16, 20)),
    **{
        f"SGHMC-{short}": (SGHMC(diffusion=D), name, ("v",), (16, 20))
        for name, short in HAMILTONIAN.items()
    },
    **{
        f"mSGNHT-{short}": (MSGNHT(diffusion=D, mass=1.0), name, ("v", "a"), (8, 10))
        for name, short in HAMILTONIAN.items()
    },
}
STYLES = {"E": "o-", "S": "s-", "BAOAB": "^--", "ABOBA": "v--"}


class Basis:
    """Polynomials orthonormal under the density exp(-U), and their Gauss quadrature."""

    def __init__(self, potential, n):
        x = np.linspace(-9.0, 9.0, 4001)
        w = np.exp(-potential(x))
        w /= w.sum()
        # Stieltjes: b[k+1] p[k+1] = (x - a[k]) p[k] - b[k] p[k-1]
        self.a, self.b = np.zeros(n), np.zeros(n)
        before, p = np.zeros_like(x), np.ones_like(x)
        for k in range(n):
            self.a[k] = np.sum(w * x * p**2)
            after = (x - self.a[k]) * p - (self.b[k - 1] if k else 0.0) * before
            self.b[k] = np.sqrt(np.sum(w * after**2))
            before, p = p, after / self.b[k]
        jacobi = np.diag(self.a) + np.diag(self.b[:-1], 1) + np.diag(self.b[:-1], -1)
        self.nodes, vectors = np.linalg.eigh(jacobi)
        self.weights = vectors[0] ** 2

    def __call__(self, x, degree):
        """Values (degree + 1, len(x))."""
        p = np.ones((degree + 1, len(x)))
        for k in range(degree):
            before = self.b[k - 1] * p[k - 1] if k else 0.0
            p[k + 1] = ((x - self.a[k]) * p[k] - before) / self.b[k]
        return p


def normal_potential(x):
    return 0.5 * x**2


def take_step(sampler, integrator, gradient, h, z, state, xi):
    """One step of the package from each row of z, in the units of the stationary law."""
    eta = h if isinstance(sampler, SGLD) else h**2
    units = {"v": (0.0, np.sqrt(eta)), "a": (D * h, h), "xi": (0.0, 1.0)}
    z = torch.from_numpy(z)
    theta = z[:, :1].clone()
    tensors = {}
    for j, name in enumerate(state):
        center, scale = units[name]
        tensors[name] = center + scale * z[:, 1 + j : 2 + j]
    step = Step(
        n=1.0,
        gradient=gradient,
        likelihood=lambda: None,
        potential=lambda theta: None,
        eta=eta,
        noise=eta,
        xi=torch.from_numpy(xi)[:, None],
    )
    integrator(sampler, theta, tensors, step)
    scaled = [(tensors[name] - units[name][0]) / units[name][1] for name in state]
    return torch.cat([theta, *scaled], 1).numpy()


def stationary_moments(target, cell, h, degree):
    """E[theta^2] and E[v^2] N / (eta T) (nan without v) under the stationary law of the chain."""
    potential, gradient = TARGETS[target]
    sampler, name, state, _ = cell
    integrator = resolve(sampler, name)[2].integrator
    n_nodes = degree + 8
    bases = [Basis(potential, n_nodes)] + [Basis(normal_potential, n_nodes)] * len(state)
    noise = Basis(normal_potential, N_NOISE)
    powers = [
        power
        for power in itertools.product(range(degree + 1), repeat=len(bases))
        if sum(power) <= degree
    ]

    def polynomials(z):
        one = [basis(z[:, j], degree) for j, basis in enumerate(bases)]
        return np.stack([np.prod([p[k] for p, k in zip(one, power)], axis=0) for power in powers])

    grid = np.meshgrid(*[basis.nodes for basis in bases], indexing="ij")
    nodes = np.stack([g.ravel() for g in grid], 1)
    weights = np.ones(1)
    for basis in bases:
        weights = np.multiply.outer(weights, basis.weights)
    weights = weights.ravel()
    K = np.zeros((len(powers), len(powers)))
    moments = np.zeros((2, len(powers)))
    for block in np.array_split(np.arange(len(nodes)), max(1, len(nodes) // 1000)):
        z = np.repeat(nodes[block], N_NOISE, axis=0)
        xi = np.tile(noise.nodes, len(block))
        image = polynomials(take_step(sampler, integrator, gradient, h, z, state, xi))
        expected = image.reshape(len(powers), len(block), N_NOISE) @ noise.weights
        here = polynomials(nodes[block]) * weights[block]
        K += here @ expected.T
        moments[0] += here @ nodes[block, 0] ** 2
        if "v" in state:
            moments[1] += here @ nodes[block, 1] ** 2
    # the stationary density sum_i c_i psi_i, with c_0 = 1, has c' K = c'
    c = np.linalg.solve(K[1:, 1:].T - np.eye(len(powers) - 1), -K[0, 1:])
    theta2, v2 = moments @ np.concatenate([[1.0], c])
    return theta2, v2 if "v" in state else np.nan
