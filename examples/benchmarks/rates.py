"""How the error of averages falls with the number of steps: theorems on the papers' samplers.

python examples/benchmarks/rates.py
"""

import warnings
from typing import ClassVar

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
from skbayes_sgmcmc._data.minibatch import Data
from skbayes_sgmcmc.models._protocol import Model
from skbayes_sgmcmc.samplers import MSGNHT, PSGLD, SGHMC, SGLD
from skbayes_sgmcmc.schedules import Polynomial

STEPS, CHAINS, THINNING = (500, 1500, 5000, 15_000, 50_000), 1000, 5
#: of the draws that are kept, for averages of thinned draws; where chains start for the bias
THINNER, AWAY = 10, 3.0
#: variances of the noise of gradients: none, and one as that of minibatches
NOISES, ROWS = (0.0, 1.0), 10_000
#: E[theta^2] under exp(-U), U = theta^2 / 2 + cos(2 theta) / 2
GRID = np.linspace(-9.0, 9.0, 20_001)
DENSITY = np.exp(-0.5 * GRID**2 - 0.5 * np.cos(2.0 * GRID))
EXACT = float((GRID**2 * DENSITY).sum() / DENSITY.sum())
#: name -> sampler, integrator, order K, a step that is near the best at the fewest steps
METHODS = {
    "SGLD": (SGLD(), "euler", 1, 0.14),
    "pSGLD with Γ": (PSGLD(adapt="always", divergence=True), "euler", 1, 0.14),
    "pSGLD without Γ": (PSGLD(adapt="always"), "euler", 1, 0.14),
    "SGHMC, Euler": (SGHMC(diffusion=2.0), "euler", 1, 0.14),
    "mSGNHT, Euler": (MSGNHT(diffusion=2.0, mass=1.0), "euler", 1, 0.14),
    "SGHMC, splitting": (SGHMC(diffusion=2.0), "splitting", 2, 0.4),
    "mSGNHT, splitting": (MSGNHT(diffusion=2.0, mass=1.0), "splitting", 2, 0.4),
}
#: ratio of neighbours in the grid of steps
RATIO = 1.35
BODY = """
The target is exp(−θ²/2 − cos(2θ)/2), one parameter, N = 1, T = 1. Noise is that of minibatches of
one of {rows:,} rows, with gradients that differ by normals of variance 1. An average of θ² over L
steps has a bias, of order hᴷ in the time step h, and a variance of order 1/(L h). The papers bound
the mean squared error with the best h by a multiple of L^(−2K/(2K+1)): −2/3 for Euler's schemes,
with K = 1 (theorem 1 of Li et al. 2016a has this rate for pSGLD), and −4/5 for the splittings, with
K = 2 (Li et al. 2016b, lemma 3 and remarks). They say so for gradients with noise, too. The bias is
bounded by a multiple of L^(−K/(K+1)), if h falls like L^(−1/(K+1)).

Mean squared error: each of {chains:,} chains starts at a draw of the target. For each L of
{lengths}, the grid of steps, by factors of {ratio}, grows until the best lies inside. "Slope": of
log MSE over log L at the best steps, by least squares. "Step": the slope of the best h, −1/(2K+1)
in theory. "Thinned": the slope if only every {thinned}th step counts, instead of every
{thinning}th, at the same h (corollary 3 of Li et al. 2016a: the same rate). Standard errors are
those of 200 bootstrap samples of the chains, each with its own best steps.

Bias: chains start at θ = {away:g}, and h falls as above from the best for {first} steps.

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
away, and mSGNHT's splitting keeps its rate.

**The bias** of SGLD and of SGHMC's Euler scheme falls like L^(−.46) to L^(−.48) over the last three
L, on its way to −1/2: at the largest steps the second order in h still takes a part away. That of
mSGNHT's Euler scheme changes its sign and stays below the others'. The splittings are at their
bound, or below it, but for SGHMC's with noise, because of its heat (above).

**pSGLD.** With Γ it has SGLD's rate, and smaller errors at the largest L. Without Γ the error stops
falling (its root is .07 and .08 at the last L), and smaller steps make it worse (biases of .24 and
.17 at the last L): V follows θ the more closely the less θ moves in 1/(1 − ρ) steps. Corollary 2 of
the paper bounds this by a multiple of (1 − ρ)²/ρ³ = 1e-4, for bounded gradients. With Γ and noise
the bias is −.063 at the last L, where h is near 1 − ρ: the correction is exact for steps far below,
where V is a function of θ, and for steps far above, where V hardly depends on it.

**Thinned averages** of every 50th step have at least the rate of the others. For short runs their
errors are larger, since they have few draws (ten for L = 500), so that their slopes are steeper."""


class Rows(Model):
    """The target as a likelihood of rows, with the mean exp(-U)."""

    shapes: ClassVar[dict[str, tuple[int, ...]]] = {"theta": (1,)}

    def log_prior(self, theta):
        return theta.new_zeros(len(theta))

    def log_lik(self, theta, batch):
        return -(0.5 * theta**2 + 0.5 * torch.cos(2.0 * theta) + batch.fields["x"] * theta)

    def likelihood_gradient(self, theta, batch, state, rng, *, out, scale):
        out.add_(theta - torch.sin(2.0 * theta) + batch.fields["x"].view(-1, 1), alpha=scale)
        return {}


def data(noise):
    """Rows with gradients of this variance, in minibatches of one."""
    x = np.random.default_rng(0).standard_normal(ROWS if noise else 1)
    x = (x - x.mean()) / max(x.std(), 1e-9) * noise**0.5
    return Data({"x": torch.from_numpy(x)}, len(x), total=1.0)


def starts(n, seed):
    p = DENSITY / DENSITY.sum()
    return np.random.default_rng(seed).choice(GRID, size=(n, 1), p=p)


def errors(name, n_steps, h, init, noise, schedule=None):
    """Errors of the averages of theta^2 of each chain, over all draws and over every tenth."""
    sampler, integrator, *_ = METHODS[name]
    overdamped = isinstance(sampler, SGLD | PSGLD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        found = sample(
            Rows(), data=data(noise), batch_size=1, sampler=sampler, integrator=integrator,
            step_size=schedule or (h if overdamped else h**2), n_chains=len(init), init=init,
            n_draws=n_steps // THINNING, burn_in=0, thinning=THINNING, random_state=0,
        )  # fmt: skip
    squares = found["theta"][..., 0] ** 2
    if len(squares) < len(init):  # the step is too large for some chains
        return np.full((2, len(init)), np.inf)
    if found.weights is not None:
        return (squares @ (found.weights / found.weights.sum()) - EXACT)[None]
    return np.stack([squares.mean(1), squares[:, THINNER - 1 :: THINNER].mean(1)]) - EXACT


def best(name, n_steps, n_chains, noise, start):
    """Errors (2, chains) by step, of a grid that grows until the best step lies inside."""
    k, known, init = 0, {}, starts(n_chains, 1)

    def mse(i):
        h = start * RATIO**i
        if h not in known:
            try:
                known[h] = errors(name, n_steps, h, init, noise)
            except SamplingError:  # or for all
                known[h] = np.full((2, n_chains), np.inf)
        return np.mean(known[h][0] ** 2)

    while True:
        if mse(k - 1) < mse(k):
            k -= 1
        elif mse(k + 1) < mse(k):
            k += 1
        else:
            scores = {h: [np.mean(found[0] ** 2)] for h, found in known.items()}
            check_best_steps("rates", {f"{name}, {n_steps} steps": scores})
            return known


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


def at_best(known, chains):
    """The best step for these chains, and the mean squared errors there."""
    mse = {h: np.mean(found[:, chains] ** 2, axis=1) for h, found in known.items()}
    h = min(mse, key=lambda one: mse[one][0])
    return h, *mse[h]


def with_errors(find, n_chains):
    """``find(chains)`` for all chains, and the sds over 200 bootstrap samples of them, as words."""
    rng = np.random.default_rng(0)
    found = find(np.arange(n_chains))
    again = [find(rng.integers(n_chains, size=n_chains)) for _ in range(200)]
    return [(a, float(b)) for a, b in zip(found, np.std(again, axis=0), strict=True)]


def words(pair):
    return f"{pair[0]:.2f} ± {pair[1]:.2f}"


def slopes_of_mse(known):
    """Slopes of the error (all L, the last three), of the best step, and of the thinned error."""
    lengths = np.array(list(known))

    def find(chains):
        h, mse, thinned = np.array([at_best(known[n], chains) for n in lengths]).T
        return [slope(lengths, mse), slope(lengths[-3:], mse[-3:]), slope(lengths, h),
                slope(lengths, thinned)]  # fmt: skip

    n_chains = next(iter(known[lengths[0]].values())).shape[1]
    return with_errors(find, n_chains)


def bias_of(name, lengths, h, noise, n_chains):
    """Bias (2 numbers, the second its standard error) at each L, and the slope with its error."""
    order, init = METHODS[name][2], np.full((n_chains, 1), AWAY)
    falls = (h * (n / lengths[0]) ** (-1.0 / (order + 1)) for n in lengths)
    found = [errors(name, n, step, init, noise)[0] for n, step in zip(lengths, falls, strict=True)]
    (fitted,) = with_errors(
        lambda chains: [slope(lengths, [abs(each[chains].mean()) for each in found])], n_chains
    )
    return [(each.mean(), each.std() / n_chains**0.5) for each in found], fitted


def tables_of(lengths, n_chains, noise):
    """The tables of a noise of gradients; MSEs by method; methods that are off, with slopes."""
    rows, biases, curves, off = [], [], {}, []
    for name, (_, _, order, start) in METHODS.items():
        known = {}
        for n in lengths:
            guess = start * (n / lengths[0]) ** (-1.0 / (2 * order + 1))
            known[n] = best(name, n, n_chains, noise, guess)
        chosen = [at_best(known[n], slice(None)) for n in lengths]
        print(noise, name, [f"{h:.3f} {mse:.2e}" for h, mse, _ in chosen], flush=True)
        curves[name] = [mse for _, mse, _ in chosen]
        fitted, late, steps, thinned = slopes_of_mse(known)
        theory = -2.0 * order / (2 * order + 1)
        if late[0] - theory > 3.0 * late[1]:
            off.append(f"{name} ({words(late)}, bound {theory:.2f})")
        rows.append([name, f"{theory:.2f}", *map(words, (fitted, late, steps, thinned)),
                     f"{chosen[-1][0]:.3f}", f"{chosen[-1][1]:.1e}"])  # fmt: skip
        bias, fitted = bias_of(name, lengths, chosen[0][0], noise, 2 * n_chains)
        biases.append([name, f"{-order / (order + 1.0):.2f}", words(fitted),
                       *(f"{one:+.4f} ± {error:.4f}" for one, error in bias)])  # fmt: skip
    head = ["", "bound", "slope", "slope, last three L", "step", "thinned",
            f"h at L = {lengths[-1]:,}", "MSE there"]  # fmt: skip
    bias_head = ["", "bound", "slope of the bias", *(f"L = {n:,}" for n in lengths)]
    text = f"{markdown_table(head, rows)}\n\n{markdown_table(bias_head, biases)}"
    return text, curves, off


def main():
    args = parse_args(__doc__, 1, 1)
    lengths, n_chains = (STEPS[:2], 100) if args.quick else (STEPS, CHAINS)
    tables, said = [], []
    figure, axes = new_figure(len(NOISES), width=4.2, height=3.8)
    for noise, ax in zip(NOISES, axes, strict=True):
        table, curves, off = tables_of(lengths, n_chains, noise)
        what = f"gradients with noise of variance {noise:g}" if noise else "exact gradients"
        tables.append(f"## {what.capitalize()}\n\n{table}")
        far = f"slower than the bound by more than three standard errors: {', '.join(off)}"
        far = far if off else "no method is slower than its bound"
        said.append(f"{what.capitalize()}: {far}.")
        for name, curve in curves.items():
            dashed = "--" if METHODS[name][2] == 1 else "-"
            ax.loglog(lengths, curve, "o" + dashed, label=name, markersize=4)
        ax.set(xlabel="steps L", ylabel="mean squared error of θ²", title=what)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right", fontsize=8)
    schedule = Polynomial(a=0.5, b=5.0, gamma=1 / 3)
    found = [errors("SGLD", n, 0.0, starts(n_chains, 1), NOISES[-1], schedule)[0] for n in lengths]
    (fitted,) = with_errors(
        lambda chains: [slope(lengths, [np.mean(each[chains] ** 2) for each in found])], n_chains
    )
    others = (
        "SGLD with noise, steps that fall like k^(-1/3), and draws weighted by them, needs no "
        f"L beforehand (-2/3 in theory): {words(fitted)}."
    )
    body = BODY.format(
        chains=n_chains, ratio=RATIO, tables="\n\n".join(tables), others=others, rows=ROWS,
        lengths=", ".join(f"{n:,}" for n in lengths), verdict=" ".join(said) + VERDICT,
        thinning=THINNING, thinned=THINNING * THINNER, away=AWAY, first=lengths[0],
    )  # fmt: skip
    drawn = save_figure(args, figure, "rates", "Mean squared error by the number of steps.")
    write_results(args, "rates", "Rates of convergence", body.strip(), [drawn])


if __name__ == "__main__":
    main()
