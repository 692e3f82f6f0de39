"""The order of every integrator's bias in the time step, computed without Monte Carlo.

    python examples/benchmarks/order_of_bias.py

The package's own step is applied to the nodes of a Gauss quadrature, and the stationary density of
the chain is found in a basis of polynomials that are orthonormal under the target. For linear
chains (all but the thermostats, on the Gaussian) that is the discrete Lyapunov equation, and exact.
For the others it is a Galerkin approximation, solved with two sizes of the basis to see its error.
"""

import itertools
import warnings

import numpy as np
import torch
from _common import markdown_table, new_figure, parse_args, save_figure, write_results

from skbayes_sgmcmc import SamplingWarning, sample
from skbayes_sgmcmc.samplers import MSGNHT, SGHMC, SGLD, resolve
from skbayes_sgmcmc.samplers._protocol import Step

D = 1.0
STEPS_H = [0.2, 0.14, 0.1, 0.07, 0.05]
ROUNDING = 1e-9  # biases below this are called exact
RESOLVED = 0.05  # largest relative difference between the two bases at which a slope is given
N_NOISE = 12  # nodes for the injected noise

#: name -> U(theta), its gradient; N = 1, T = 1
TARGETS = {
    "Gaussian": (lambda x: 0.5 * x**2, lambda x: x),
    "anharmonic": (lambda x: 0.5 * x**2 + 0.5 * np.cos(2 * x), lambda x: x - torch.sin(2 * x)),
}

#: name -> (sampler, integrator, state in units of its stationary law, degrees of the two bases)
HAMILTONIAN = {"euler": "E", "splitting": "S", "baoab": "BAOAB", "aboba": "ABOBA"}
CELLS = {
    "SGLD-Euler": (SGLD(), "euler", (), (32, 40)),
    "Leimkuhler-Matthews": (SGLD(), "leimkuhler_matthews", ("xi",), (24, 30)),
    **{
        f"SGHMC-{short}": (SGHMC(diffusion=D), name, ("v",), (24, 30))
        for name, short in HAMILTONIAN.items()
    },
    **{
        f"mSGNHT-{short}": (MSGNHT(diffusion=D, mass=1.0), name, ("v", "a"), (10, 14))
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
        return np.stack(
            [np.prod([p[k] for p, k in zip(one, power, strict=True)], axis=0) for power in powers]
        )

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


def biases(target, cell, steps_h):
    """Biases of theta^2 and v^2 with the larger basis (h, 2), and with the smaller one."""
    basis = Basis(TARGETS[target][0], 40)
    exact = np.array([basis.weights @ basis.nodes**2, 1.0])
    by_degree = [
        np.array([stationary_moments(target, cell, h, degree) for h in steps_h]) - exact
        for degree in cell[3]
    ]
    return by_degree[1], by_degree[0]


def describe(bias, coarse, steps_h):
    """Slope between the two smallest steps, and the error of the basis there, as text."""
    if np.isnan(bias).all():
        return "", ""
    if np.abs(bias).max() < ROUNDING:
        return "exact", ""
    error = np.max(np.abs(coarse[-2:] - bias[-2:]) / np.abs(bias[-2:]))
    slope = np.log(abs(bias[-2] / bias[-1])) / np.log(steps_h[-2] / steps_h[-1])
    return f"{slope:.2f}" if error <= RESOLVED else "not resolved", f"{error:.0e}"


def monte_carlo(cell, h, n_chains, n_steps, seeds):
    """Bias of theta^2 on the Gaussian, with its standard error over chains, by simulation."""
    sampler, name, *_ = cell
    by_chain = []
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplingWarning)  # of chains that diverged: left out
            draws = sample(
                lambda theta: 0.0,
                1,
                gradient_of_potential=lambda theta, rng: theta,
                sampler=sampler,
                integrator=name,
                step_size=h**2,
                n_chains=n_chains,
                n_draws=n_steps // 10,
                burn_in=500,
                thinning=10,
                random_state=seed,
            )["theta"]
        by_chain.append((draws**2).mean(axis=(1, 2)))
    values = np.concatenate(by_chain) - 1.0
    lost = n_chains * len(seeds) - len(values)
    return values.mean(), values.std() / np.sqrt(len(values)), lost


def draw_figure(args, results, steps_h):
    figure, axes = new_figure(3, width=4.0, height=3.6)
    panels = [("Gaussian", 0, "θ²"), ("Gaussian", 1, "v²N/(ηT)"), ("anharmonic", 0, "θ²")]
    colours = {"SGLD": "C0", "Leim": "C1", "SGHM": "C2", "mSGN": "C3"}
    for ax, (target, k, what) in zip(axes, panels, strict=True):
        for name in CELLS:
            bias = np.abs(results[target, name][0][:, k])
            if np.isnan(bias).all() or bias.max() < ROUNDING:
                continue
            style = STYLES.get(name.split("-")[-1], "o-")
            ax.loglog(
                steps_h, bias, style, color=colours[name[:4]], label=name, markersize=4, linewidth=1
            )
        for order in (1, 2):
            guide = np.array(steps_h) ** order
            ax.loglog(steps_h, 0.7 * guide, ":", color="0.6", linewidth=1)
            ax.annotate(f"h{'²' * (order == 2)}", (steps_h[-1], 0.8 * guide[-1]), color="0.4")
        ax.set(title=target, xlabel="h", ylabel=f"|bias| of {what}")
        ax.set_xticks(steps_h, [str(h) for h in steps_h])
        ax.minorticks_off()
    lines = {line.get_label(): line for ax in axes for line in ax.get_lines()}
    shown = [name for name in CELLS if name in lines]
    figure.legend([lines[name] for name in shown], shown, fontsize=8, loc="outside right")
    return save_figure(
        args,
        figure,
        "order_of_bias",
        "Bias by time step, with dotted lines of slope 1 and 2; exact cells are not drawn.",
    )


def main():
    args = parse_args(__doc__, seeds=5, quick_seeds=1)
    steps_h = STEPS_H[::2][:2] if args.quick else STEPS_H
    results = {(t, name): biases(t, cell, steps_h) for t in TARGETS for name, cell in CELLS.items()}
    tables = {}
    for target in TARGETS:
        rows = []
        for name in CELLS:
            bias, coarse = results[target, name]
            parts = [describe(bias[:, k], coarse[:, k], steps_h) for k in (0, 1)]
            values = ["" if np.isnan(b) else f"{b:+.1e}" for b in bias[-1]]
            rows.append([name, parts[0][0], values[0], parts[0][1], parts[1][0], values[1]])
        header = ["", "order, θ²", f"bias at h = {steps_h[-1]}", "basis error"]
        header += ["order, v²", f"bias at h = {steps_h[-1]}"]
        tables[target] = markdown_table(header, rows)
    n_chains, n_steps, h = (200, 500, 0.2) if args.quick else (2000, 5000, 0.2)
    rows = []
    for name in ("mSGNHT-E", "mSGNHT-S"):
        mean, error, lost = monte_carlo(CELLS[name], h, n_chains, n_steps, args.seeds)
        here = results["Gaussian", name][0][steps_h.index(h), 0]
        rows.append([name, f"{here:+.4f}", f"{mean:+.4f}", f"{error:.4f}", lost])
    header = [f"h = {h}", "Galerkin", "simulated", "its standard error", "diverged chains"]
    check = markdown_table(header, rows)
    body = BODY.format(
        gaussian=tables["Gaussian"],
        anharmonic=tables["anharmonic"],
        check=check,
        smallest=steps_h[-2:],
        n_seeds=len(args.seeds),
        n_chains=n_chains,
        n_steps=n_steps,
    )
    figures = [draw_figure(args, results, steps_h)]
    spread = "No random numbers, but for the check at the end."
    write_results(
        args, "order_of_bias", "Order of the bias in the time step", body, figures, spread
    )


BODY = """
Full gradients, one parameter, N = 1, T = 1, D = 1 (friction h), thermostat mass 1. h is the time
step of the method: η = h² for samplers with momentum, and η = h for SGLD and Leimkuhler-Matthews.
Order: the slope of log |bias| between h = {smallest[0]} and {smallest[1]}; "exact": below 1e-9 at
every h. The linear chains are solved exactly. The others (thermostats, and all on the anharmonic
target) are solved in a basis of polynomials; "basis error" is the relative change of the bias of θ²
from a smaller basis to the one used, and a slope is given where it is at most 5%.

## Gaussian, U = θ²/2

{gaussian}

Expected: 1 for SGLD-Euler and mSGNHT-Euler; 2 for SGHMC-Euler, but 1 in v²; 2 for the splittings;
Leimkuhler-Matthews and BAOAB exact. BAOAB and ABOBA are exact in θ without a thermostat only: with
one the friction is random, and their order is 2. Where the thermostat uses v at the end of a step,
it makes v² exact.

## Anharmonic, U = θ²/2 + cos(2θ)/2

{anharmonic}

## Check by simulation

Bias of θ² on the Gaussian, {n_seeds} seeds, {n_chains:,} chains of {n_steps:,} steps each.

{check}
"""


if __name__ == "__main__":
    main()
