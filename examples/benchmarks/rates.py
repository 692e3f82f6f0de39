"""How the error of averages falls with the number of steps: theorems on the papers' samplers.

python examples/benchmarks/rates.py
"""

import warnings
from functools import partial

import numpy as np
import torch
from _common import (
    check_best_steps,
    markdown_table,
    new_figure,
    parse_args,
    save_figure,
    write_results,
)

from skbayes_sgmcmc import SamplingError, SamplingWarning, sample
from skbayes_sgmcmc.samplers import MSGNHT, SGHMC, SGLD
from skbayes_sgmcmc.schedules import Polynomial

STEPS, CHAINS, THINNING = (500, 1500, 5000, 15_000, 50_000), 1000, 5
#: variances of the noise of gradients: none, and one as that of minibatches
NOISES = (0.0, 1.0)
#: E[theta^2] under exp(-U), U = theta^2 / 2 + cos(2 theta) / 2
GRID = np.linspace(-9.0, 9.0, 20_001)
DENSITY = np.exp(-0.5 * GRID**2 - 0.5 * np.cos(2.0 * GRID))
EXACT = float((GRID**2 * DENSITY).sum() / DENSITY.sum())
#: name -> sampler, integrator, order K, a step that is near the best at the fewest steps
METHODS = {
    "SGLD": (SGLD(), "euler", 1, 0.14),
    "SGHMC, Euler": (SGHMC(diffusion=2.0), "euler", 1, 0.14),
    "mSGNHT, Euler": (MSGNHT(diffusion=2.0, mass=1.0), "euler", 1, 0.14),
    "SGHMC, splitting": (SGHMC(diffusion=2.0), "splitting", 2, 0.4),
    "mSGNHT, splitting": (MSGNHT(diffusion=2.0, mass=1.0), "splitting", 2, 0.4),
}
#: ratio of neighbours in the grid of steps
RATIO = 1.35
BODY = """
The target is exp(−θ²/2 − cos(2θ)/2), one parameter, N = 1, T = 1. An average of θ² over L steps has
a bias, of order hᴷ in the time step h, and a variance of order 1/(L h). The papers bound the mean
squared error with the best h by a multiple of L^(−2K/(2K+1)): −2/3 for Euler's schemes, with K = 1
(pSGLD's theorem 1 has the rate of SGLD, and was not measured), and −4/5 for the splittings, with K
= 2 (Li et al. 2016b, lemma 3 and remarks). They say so for gradients with noise, too.

Each of {chains:,} chains starts at a draw of the target. For each L of {lengths}, the grid of
steps, by factors of {ratio}, grows until the best lies inside. "Slope": of log MSE over log L at
the best steps, by least squares. "Step": the slope of the best h, −1/(2K+1) in theory. Standard
errors are those of 200 bootstrap samples of the chains.

{tables}

{others}

## What it says

{verdict}
"""


VERDICT = """

Slopes below the bound are no contradiction: it is an upper one, and it holds for large L. At these
L the best steps of the splittings are near the largest that are stable, where the bias is still
small beside the variance, whose slope is −1.

With noise in the gradients, SGHMC's splitting is slower than its bound: the noise of variance s²
heats the momenta by a share of h s² / (2 D), which is of first order in h whatever the integrator.
The theorem counts the noise's mean only. The bias of θ² (1,500 chains of 8,000 steps, standard
error .001 to .002) is +.0149, +.0267, +.0325 and +.0308 at h = .07, .2, .4 and .5, where with exact
gradients it is +.0037, −.0070, −.0347 and −.0530: at larger h the two orders cancel in part, so
that the slope between is even less than that of Euler's schemes. The thermostat takes the heat
away, and mSGNHT's splitting keeps its rate."""


def gradient(noise, theta, rng):
    exact = theta - torch.sin(2.0 * theta)
    return exact + noise**0.5 * torch.randn_like(theta) if noise else exact


def starts(n, seed):
    p = DENSITY / DENSITY.sum()
    return np.random.default_rng(seed).choice(GRID, size=(n, 1), p=p)


def errors(name, n_steps, h, n_chains, noise, schedule=None):
    """Error of the average of theta^2 over the steps of each chain."""
    sampler, integrator, *_ = METHODS[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        found = sample(
            lambda theta: 0.0, 1, gradient_of_potential=partial(gradient, noise), sampler=sampler,
            integrator=integrator, step_size=schedule or (h if name == "SGLD" else h**2),
            n_chains=n_chains, n_draws=n_steps // THINNING, burn_in=0, thinning=THINNING,
            init=starts(n_chains, 1), random_state=0,
        )  # fmt: skip
    weights = found.weights
    squares = found["theta"][..., 0] ** 2
    average = squares.mean(1) if weights is None else squares @ (weights / weights.sum())
    return average - EXACT


def best(name, n_steps, n_chains, noise, start):
    """Errors at the best step of a grid that grows until it lies inside."""
    k, known = 0, {}

    def mse(i):
        if i not in known:
            try:
                known[i] = errors(name, n_steps, start * RATIO**i, n_chains, noise)
            except SamplingError:  # the step is too large
                known[i] = np.zeros(0)
        return np.mean(known[i] ** 2) if len(known[i]) == n_chains else np.inf

    while True:
        if mse(k - 1) < mse(k):
            k -= 1
        elif mse(k + 1) < mse(k):
            k += 1
        else:
            scores = {start * RATIO**i: [mse(i)] for i in known}
            check_best_steps("rates", {f"{name}, {n_steps} steps": scores})
            return start * RATIO**k, known[k]


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


def with_error(by_length):
    """Slope of the MSE, and its standard error by the bootstrap over chains."""
    lengths, rng = list(by_length), np.random.default_rng(0)
    found = slope(lengths, [np.mean(by_length[n] ** 2) for n in lengths])
    again = []
    for _ in range(200):
        some = [by_length[n][rng.integers(len(by_length[n]), size=len(by_length[n]))]
                for n in lengths]  # fmt: skip
        again.append(slope(lengths, [np.mean(each**2) for each in some]))
    return found, float(np.std(again))


def table_of(lengths, n_chains, noise):
    """The table of a noise of gradients; MSEs of each method; methods that are off, with slopes."""
    rows, curves, off = [], {}, []
    for name, (_, _, order, start) in METHODS.items():
        found, steps = {}, {}
        for n in lengths:
            guess = start * (n / lengths[0]) ** (-1.0 / (2 * order + 1))
            steps[n], found[n] = best(name, n, n_chains, noise, guess)
            print(noise, name, n, f"{steps[n]:.3f} {np.mean(found[n] ** 2):.2e}", flush=True)
        fitted, error = with_error(found)
        theory = -2.0 * order / (2 * order + 1)
        curves[name] = [np.mean(found[n] ** 2) for n in lengths]
        late, its_error = with_error({n: found[n] for n in lengths[-3:]})
        if late - theory > 3.0 * its_error:
            off.append(f"{name} ({late:.2f} ± {its_error:.2f}, bound {theory:.2f})")
        rows.append([name, f"{theory:.2f}", f"{fitted:.2f} ± {error:.2f}",
                     f"{late:.2f} ± {its_error:.2f}",
                     f"{slope(lengths, list(steps.values())):.2f}", f"{steps[lengths[-1]]:.3f}",
                     f"{curves[name][-1]:.1e}"])  # fmt: skip
    head = [
        "",
        "bound",
        "slope",
        "slope, last three L",
        "step",
        f"h at L = {lengths[-1]:,}",
        "MSE there",
    ]
    return markdown_table(head, rows), curves, off


def main():
    args = parse_args(__doc__, 1, 1)
    lengths, n_chains = (STEPS[:2], 100) if args.quick else (STEPS, CHAINS)
    tables, words = [], []
    figure, axes = new_figure(len(NOISES), width=4.2, height=3.8)
    for noise, ax in zip(NOISES, axes, strict=True):
        table, curves, off = table_of(lengths, n_chains, noise)
        what = f"gradients with noise of variance {noise:g}" if noise else "exact gradients"
        tables.append(f"## {what.capitalize()}\n\n{table}")
        far = f"slower than the bound by more than three standard errors: {', '.join(off)}"
        far = far if off else "no method is slower than its bound"
        words.append(f"{what.capitalize()}: {far}.")
        for name, curve in curves.items():
            dashed = "--" if METHODS[name][2] == 1 else "-"
            ax.loglog(lengths, curve, "o" + dashed, label=name, markersize=4)
        ax.set(xlabel="steps L", ylabel="mean squared error of θ²", title=what)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right", fontsize=8)
    schedule = Polynomial(a=0.5, b=5.0, gamma=1 / 3)
    fitted, error = with_error(
        {n: errors("SGLD", n, 0.0, n_chains, NOISES[-1], schedule) for n in lengths}
    )
    others = (
        "SGLD with noise, steps that fall like k^(-1/3), and draws weighted by them, needs no "
        f"L beforehand (-2/3 in theory): {fitted:.2f} ± {error:.2f}."
    )
    body = BODY.format(
        chains=n_chains, ratio=RATIO, tables="\n\n".join(tables), others=others,
        lengths=", ".join(f"{n:,}" for n in lengths), verdict=" ".join(words) + VERDICT,
    )  # fmt: skip
    drawn = save_figure(args, figure, "rates", "Mean squared error by the number of steps.")
    write_results(args, "rates", "Rates of convergence", body.strip(), [drawn])


if __name__ == "__main__":
    main()
