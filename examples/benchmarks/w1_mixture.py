"""A two-mode posterior sampled one datum at a time (Welling & Teh 2011, figures 1 and 2).

    python examples/benchmarks/w1_mixture.py

It also shows how to write a model of your own: a subclass of ``Model`` with the log prior and the
log likelihood, and, if autograd is too slow, the two gradients.
"""

import numpy as np
import torch
from _common import markdown_table, mean_sd, new_figure, parse_args, save_figure, write_results

from skbayes_sgmcmc import sample
from skbayes_sgmcmc.diagnostics import noise_variances
from skbayes_sgmcmc.models import Batch, Data, Model
from skbayes_sgmcmc.models.tuning.metric import scores_of
from skbayes_sgmcmc.schedules import Exponential, Polynomial

N = 100
VARIANCE = 2.0  # of either component
PRIOR_VARIANCES = (10.0, 1.0)
# cells of the grid on which posterior and draws are compared
THETA1 = np.linspace(-1.5, 2.5, 41)
THETA2 = np.linspace(-3.0, 3.0, 41)


class TiedMixture(Model):
    """θ₁ ~ N(0, 10), θ₂ ~ N(0, 1), x ~ ½ N(θ₁, 2) + ½ N(θ₁ + θ₂, 2).

    All chains move together: ``theta`` is (chains, 2), ``batch.fields["x"]`` is (chains, rows), or
    (rows,) where all chains see the same rows. Only ``log_prior`` and ``log_lik`` are needed; the
    gradients make a step cheaper.
    """

    shapes = {"theta": (2,)}  # noqa: RUF012

    def init(self, rng):
        return rng.normal(0.0, np.sqrt(PRIOR_VARIANCES))

    def log_prior(self, theta):
        return -(theta**2 / (2.0 * theta.new_tensor(PRIOR_VARIANCES))).sum(1)

    def log_lik(self, theta, batch):
        x = batch.fields["x"]
        first, second = theta[:, :1], theta.sum(1, keepdim=True)
        return torch.logaddexp(
            -((x - first) ** 2) / (2.0 * VARIANCE), -((x - second) ** 2) / (2.0 * VARIANCE)
        )

    def prior_gradient(self, theta, state, out, scale):
        """Set out to scale times the gradient of -log prior."""
        torch.div(theta, theta.new_tensor(PRIOR_VARIANCES) / scale, out=out)

    def likelihood_gradient(self, theta, batch, state, rng, *, out, scale):
        """Add scale times the gradient of -log likelihood, summed over the rows, to out."""
        x = batch.fields["x"]
        to_first = x - theta[:, :1]
        to_second = to_first - theta[:, 1:]
        # probability that a row belongs to the second component
        second = torch.sigmoid((to_first**2 - to_second**2) / (2.0 * VARIANCE))
        pull = second * to_second
        g2 = pull.sum(1)
        g1 = g2 + ((1.0 - second) * to_first).sum(1)
        out.add_(torch.stack([g1, g2], 1), alpha=-scale / VARIANCE)
        return {}


def make_data():
    """100 points of the mixture at θ = (0, 1).

    Most such sets have a posterior of one ridge. This seed's has two modes, as the paper's figure.
    """
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2, N) * 1.0 + np.sqrt(VARIANCE) * rng.standard_normal(N)
    return Data({"x": torch.from_numpy(x)}, N)


def run(model, data, schedule, n_steps, thinning, n_chains, seed):
    """SGLD with one row a step; eta = eps N / 2 turns the paper's step sizes into ours."""
    return sample(
        model,
        data=data,
        sampler="sgld",
        step_size=schedule,
        batch_size=1,
        n_chains=n_chains,
        n_draws=n_steps // thinning,
        thinning=thinning,
        burn_in=0,
        random_state=seed,
    )


# The true posterior


def exact_masses(model, data, refine=8):
    """Posterior probabilities of the grid's cells, by quadrature."""
    cells = []
    for edges in (THETA1, THETA2):
        fine = np.linspace(edges[0], edges[-1], refine * (len(edges) - 1) + 1)
        cells.append(0.5 * (fine[1:] + fine[:-1]))
    points = torch.from_numpy(np.stack(np.meshgrid(*cells, indexing="ij"), -1).reshape(-1, 2))
    batch = data.all_rows()
    log_p = (model.log_prior(points) + model.log_lik(points, batch).sum(1)).numpy()
    p = np.exp(log_p - log_p.max())
    shape = (len(THETA1) - 1, refine, len(THETA2) - 1, refine)
    masses = p.reshape(shape).sum(axis=(1, 3))
    return masses / masses.sum()


def scores(masses, exact):
    """Mass of the mode at θ₂ > 0, and total-variation distance as it is and mode by mode."""
    upper = THETA2[:-1] >= 0.0
    mass, exact_mass = masses[:, upper].sum(), exact[:, upper].sum()
    scaled = masses.copy()
    scaled[:, upper] *= exact_mass / max(mass, 1e-12)
    scaled[:, ~upper] *= (1.0 - exact_mass) / max(1.0 - mass, 1e-12)
    distance = 0.5 * np.abs(masses - exact).sum() + 0.5 * (1.0 - masses.sum())
    return mass, distance, 0.5 * np.abs(scaled - exact).sum()


def cell_masses(draws, weights):
    """Weighted frequencies of the cells; draws outside the grid are missing from the total."""
    flat = draws.reshape(-1, 2)
    weights = np.tile(weights, len(flat) // len(weights))
    counts = np.histogram2d(*flat.T, bins=(THETA1, THETA2), weights=weights)[0]
    return counts / weights.sum()


# Figure 2


def noise_by_step(model, data, draws, etas, thinning):
    """Steps, gradient-noise variance of either coordinate (mean over chains), injected variance."""
    at = np.unique(np.geomspace(1, draws.shape[1], 40).astype(int)) - 1
    gradient, injected = [], []
    for k in at:
        of_chains = []
        for theta in draws[:, k]:
            scores = scores_of(model, data, torch.from_numpy(theta)[None])
            covariance = np.cov(scores, rowvar=False)
            pair = noise_variances(covariance, step_size=etas[k], n=N, batch_size=1)
            of_chains.append(pair[0])
        gradient.append(np.mean(of_chains, axis=0))
        injected.append(pair[1])
    return (at + 1) * thinning, np.array(gradient), np.array(injected)


def rejection_rate(model, data, theta, etas, rng, full):
    """Metropolis-Hastings rejection probability of an SGLD proposal from each theta.

    The proposal's drift is that of one random row, in both directions, or of all rows (``full``).
    """
    theta, rows = torch.from_numpy(theta), data.fields["x"]
    x = rows.expand(len(theta), -1)
    if not full:
        x = rows[torch.from_numpy(rng.integers(0, N, (len(theta), 1)))]
    eta = torch.from_numpy(etas)[:, None]

    def drifted(at):
        g = torch.empty_like(at)
        model.prior_gradient(at, {}, g, 1.0 / N)
        batch = Batch({"x": x}, weight=1.0, shared=False, size=x.shape[1])
        model.likelihood_gradient(at, batch, {}, None, out=g, scale=1.0 / x.shape[1])
        return at - eta * g

    def log_p(at):
        return model.log_prior(at) + model.log_lik(at, data.all_rows()).sum(1)

    noise = torch.from_numpy(rng.standard_normal(theta.shape))
    forward = drifted(theta)
    proposal = forward + (2.0 * eta / N).sqrt() * noise
    there = ((proposal - forward) ** 2).sum(1)
    back = ((theta - drifted(proposal)) ** 2).sum(1)
    log_ratio = log_p(proposal) - log_p(theta) + (there - back) * N / (4.0 * eta[:, 0])
    return 1.0 - log_ratio.clamp(max=0.0).exp().numpy()


def rejections(model, data, n_steps, n_chains):
    """eps, and rejection probabilities averaged over blocks of sweeps, for both proposals."""
    schedule = Exponential(1e-2 * N / 2, last=1e-8 * N / 2)
    posterior = run(model, data, schedule, n_steps, N, n_chains, 1)  # a draw each sweep
    draws, etas = posterior["theta"], posterior.weights
    rng = np.random.default_rng(0)
    blocks = np.array_split(np.arange(draws.shape[1]), 60)
    rates = {}
    for full in (False, True):
        by_chain = [rejection_rate(model, data, chain, etas, rng, full) for chain in draws]
        rates[full] = np.array([np.mean(by_chain, axis=0)[block].mean() for block in blocks])
    eps = np.array([etas[block].mean() for block in blocks]) * 2.0 / N
    return eps, rates


# Figures and table


def draw_posteriors(args, exact, estimate, pooled):
    figure, axes = new_figure(3, width=3.4, height=3.4)
    titles = ("true posterior", "one run", f"all {len(args.seeds)} runs")
    for ax, masses, title in zip(axes, (exact, estimate, pooled), titles, strict=True):
        ax.pcolormesh(THETA1, THETA2, masses.T, cmap="Blues", vmax=exact.max(), rasterized=True)
        ax.plot([0, 1], [1, -1], "+", color="C3", markersize=8)
        ax.set(title=title, xlabel="θ₁", ylabel="θ₂")
    return save_figure(
        args,
        figure,
        "w1_posterior",
        "True and estimated posterior (the paper's figure 1); crosses: (0, 1), where the data come "
        "from, and (1, -1), the same with the components exchanged.",
    )


def draw_phases(args, phases, eps, rates):
    figure, (left, right) = new_figure(2)
    steps, gradient, injected = phases
    for j, label in enumerate(("gradient noise, θ₁", "gradient noise, θ₂")):
        left.plot(steps, gradient[:, j], label=label)
    left.plot(steps, injected, "--", label="injected noise")
    left.set(xscale="log", yscale="log", xlabel="step", ylabel="variance of one step")
    left.legend(fontsize=8)
    for full, label in ((False, "one row (SGLD)"), (True, "all rows (MALA)")):
        right.plot(eps, rates[full], label=f"proposal from {label}")
    right.set(
        xscale="log", yscale="log", ylim=(1e-7, 2), xlabel="ε", ylabel="rejection probability"
    )
    right.legend(fontsize=8)
    return save_figure(
        args,
        figure,
        "w1_phases",
        "Left: variances of gradient noise and injected noise (figure 2 left). Right: rejection "
        "probability as ε falls from 1e-2 to 1e-8 (figure 2 right).",
    )


def main():
    args = parse_args(__doc__)
    model, data = TiedMixture(), make_data()
    n_steps, thinning = (20_000 if args.quick else 1_000_000), 10
    exact = exact_masses(model, data)
    schedule = Polynomial(first=0.01 * N / 2, last=0.0001 * N / 2, gamma=0.55)
    posterior = run(model, data, schedule, n_steps, thinning, len(args.seeds), 0)
    draws, weights = posterior["theta"], posterior.weights
    phases = noise_by_step(model, data, draws, weights, thinning)
    crossing = [phases[0][np.argmax(phases[1][:, j] < phases[2])] for j in (0, 1)]
    eps, rates = rejections(model, data, n_steps, len(args.seeds))

    exact_mass = scores(exact, exact)[0]
    steps = thinning * np.arange(1, draws.shape[1] + 1)
    rows = [
        ["mass at θ₂ > 0", f"{exact_mass:.3f}"],
        ["total variation", "0"],
        ["total variation, modes matched", "0"],
    ]
    for first in (0, max(crossing)):
        later = np.where(steps >= first, weights, 0.0)
        runs = [cell_masses(chain, later) for chain in draws]
        pooled = cell_masses(draws, later)
        by_run = np.array([scores(masses, exact) for masses in runs]).T
        for row, values, of_all in zip(rows, by_run, scores(pooled, exact), strict=True):
            row += [mean_sd(values), f"{of_all:.3f}"]
        if first == 0:
            figures = [draw_posteriors(args, exact, runs[0], pooled)]
    figures.append(draw_phases(args, phases, eps, rates))
    header = ["", "exact", "one run", f"all {len(args.seeds)} runs"]
    header += [f"one run, from step {max(crossing):,}", "all runs"]
    table = markdown_table(header, rows)
    at = [int(np.argmin(np.abs(np.log(eps / e)))) for e in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)]
    rejection_table = markdown_table(
        ["ε", "one row (SGLD)", "all rows (MALA)"],
        [[f"{eps[k]:.1e}", f"{rates[False][k]:.1e}", f"{rates[True][k]:.1e}"] for k in at],
    )
    body = BODY.format(
        n_runs=len(args.seeds),
        sweeps=n_steps // N,
        n_steps=n_steps,
        thinning=thinning,
        n_cells=(len(THETA1) - 1) * (len(THETA2) - 1),
        table=table,
        crossing=crossing,
        rejection_table=rejection_table,
    )
    spread = f"± is the standard deviation over {len(args.seeds)} independent chains of seed 0."
    write_results(args, "w1_mixture", "W1: mixture with tied means", body, figures, spread)


BODY = """
100 points of the mixture at θ = (0, 1), chosen to have two modes (most such sets have a posterior
of one ridge; the paper's points are not published); batch 1, {sweeps:,} sweeps ({n_steps:,} steps),
ε from .01 to .0001 with γ = .55 (η = εN/2), {n_runs} runs, each from a draw of the prior. Every
{thinning}th draw is kept and weighted by its step size.

## Posterior (figure 1)

Total variation compares the probabilities of {n_cells:,} cells with quadrature. "Modes matched" is
the total variation after the mass of either mode (θ₂ > 0 or < 0) is set to its exact value, which
leaves the error in the shape of the modes. The columns use all steps, or only the steps from which
on injected noise dominates (see below). The published figure shows both modes and no numbers.

{table}

## Two phases (figure 2 left)

The injected noise exceeds the gradient noise from step {crossing[0]:,} on in θ₁ and from step
{crossing[1]:,} on in θ₂. Published: a first phase in which gradient noise dominates, and a second
in which injected noise does. Step-size weights favour the first phase, which has too much noise, so
the draws are wider than the posterior.

## Rejection rate (figure 2 right)

ε falls exponentially from 1e-2 to 1e-8. The rejection probability is that of a
Metropolis-Hastings test, which SGLD leaves out, for proposals from the draw that ends each sweep.
The drift is that of one random row, used in both directions, or of all rows. Published: the
probability falls to zero with ε.

{rejection_table}
"""


if __name__ == "__main__":
    main()
