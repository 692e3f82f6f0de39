"""Experiment P2: SGLD and pSGLD over step sizes on Australian (Li et al. 2016a, fig. 2).

SKBAYES_DATA=folder python examples/benchmarks/p2_australian.py
"""

import numpy as np
from _common import markdown_table, mean_sd, new_figure, parse_args, save_figure, write_results
from _logistic import fit, flat_draws, load_reference

from skbayes_sgmcmc.diagnostics import autocorrelation_time
from skbayes_sgmcmc.samplers import PSGLD, SGLD

N_STEPS, BURN_IN, PUBLISHED_MOST = 5000, 500, 1e-4
NAMES = "steps per effective draw", "error of means, posterior sds"
SAMPLERS = {
    "SGLD": SGLD(),
    "pSGLD, as published": PSGLD(adapt="always", lag=False),
    "pSGLD, default": PSGLD(),
}
BODY = """
Logistic regression on Australian credit approval (690 rows, 14 features), prior N(0, 100), flat
prior on the intercept, minibatches of 5, 5,000 steps of which 500 are burn-in, {n_runs} runs (the
chains of one fit). The paper does not say how the features are scaled; here they are standardised.
Its steps are 1e-7 to 1e-4, with a drift of step/2 times the gradient of the log posterior. That is
3.5e-5 to 3.5e-2 in `step_size`, whose unit is that of the mean gradient (a factor N/2). Larger
steps are added. "pSGLD, as published" is `PSGLD(adapt="always", lag=False)`, whose V starts at the
square of the first minibatch's gradient (in the paper at 0).

Steps per effective draw: kept steps / min-ESS (ESS by the autocorrelation time of eq. 9; the time
per effective draw of fig. 2a in steps; a pSGLD step takes {cost:.1f} times as long as an SGLD step
here). A chain that barely moves has ESS about 3 whatever its length: above some 1,000 steps per
effective draw the figure says only "not mixed". Error is the root mean square over the 15
parameters of (mean - reference mean) / reference sd, where the reference is a NUTS run of 80,000
draws; a perfect chain would have about 1 / sqrt(ESS). Sd ratio: mean over parameters of sd /
reference sd.

{tables}

Published (only figures): pSGLD has the larger min-ESS, above all at the largest steps, and the
smaller weight error. At T = 1, over the published steps: {verdict}

The sd ratios add what those figures leave out: at the largest published step the minibatch noise of
5 rows makes pSGLD's sds 1.5 times the posterior's; at larger steps its means are wrong as well.

T = 1/N is the temperature of the authors' published code (noise smaller by the square root of N
than that of the paper's equations). Those draws do not have the posterior's sd: their ESS belongs
to another distribution, and their errors are those of an optimiser's average.
"""


def measure(X, y, prior, reference, sampler, eps, temperature, n_runs):
    """Steps per effective draw, error, sd ratio of every run (NaN: diverged), and seconds."""
    mean, sd = reference
    model, seconds = fit(
        X,
        y,
        sampler=sampler,
        step_size=eps * len(y) / 2.0,
        temperature=temperature,
        batch_size=5,
        n_chains=n_runs,
        burn_in=BURN_IN,
        thinning=1,
        n_draws=N_STEPS - BURN_IN,
        random_state=0,
        **prior,
    )
    figures = np.full((3, n_runs), np.nan)
    if model is None:
        return figures, seconds
    draws = flat_draws(model.posterior_)
    for run, chain in enumerate(draws):
        slowest = max(autocorrelation_time(column) for column in chain.T)
        error = np.sqrt(np.mean(((chain.mean(axis=0) - mean) / sd) ** 2))
        figures[:, run] = 2.0 * slowest, error, np.mean(chain.std(axis=0) / sd)
    return figures, seconds


def draw_figure(args, results, steps):
    figure, axes = new_figure(2, width=4.6)
    colors = {"SGLD": "C1", "pSGLD, as published": "C0", "pSGLD, default": "C2"}
    for (sampler, temperature), runs in results.items():
        for ax, k in zip(axes, (0, 1), strict=True):
            middle, low, high = np.nanpercentile([r[k] for r in runs], (50, 25, 75), axis=1)
            first = temperature == "T = 1"
            label = sampler if first else None
            style = {"color": colors[sampler], "ls": "-" if first else ":", "label": label}
            ax.plot(steps, middle, marker="." if first else "", **style)
            if first:
                ax.fill_between(steps, low, high, color=colors[sampler], alpha=0.2, lw=0)
    for ax, name in zip(axes, NAMES, strict=True):
        ax.set(xscale="log", yscale="log", xlabel="step size ε of the paper", ylabel=name)
        ax.axvline(PUBLISHED_MOST, color="0.7", lw=0.8)
    axes[0].legend(frameon=False, title="solid T = 1, dotted T = 1/N")
    caption = (
        "As fig. 2: steps per effective draw and error of the weights by step size; median and "
        "quartiles over runs. The published range ends at the grey line."
    )
    return save_figure(args, figure, "p2_australian", caption)


def table(results, steps, temperature, n_rows):
    rows = []
    for sampler in SAMPLERS:
        for step, runs in zip(steps, results[sampler, temperature], strict=True):
            cells = [mean_sd(runs[0], 0), mean_sd(runs[1], 2), mean_sd(runs[2], 2)]
            rows.append([sampler, f"{step:.1e}", f"{step * n_rows / 2:.1e}", *cells])
    header = ["sampler", "published step", "`step_size`", "steps per effective draw"]
    return f"## {temperature}\n\n" + markdown_table([*header, "error", "sd ratio"], rows)


def verdict(results, steps):
    within = steps <= PUBLISHED_MOST * 1.001
    lines = []
    for k, name in ((0, "steps per effective draw"), (1, "error")):
        mean = {s: np.array([r[k].mean() for r in results[s, "T = 1"]])[within] for s in SAMPLERS}
        ratio = mean["SGLD"] / mean["pSGLD, as published"]
        lines.append(
            f"{name}, SGLD / pSGLD as published: {ratio.min():.2f} to {ratio.max():.2f}, "
            f"{ratio[-1]:.2f} at the largest step"
        )
    return "; ".join(lines) + "."


def main():
    args = parse_args(__doc__, seeds=50, quick_seeds=4)
    X, y, prior, *reference = load_reference("australian")
    steps = np.logspace(-7, -3, 3 if args.quick else 9)
    fit(X, y, step_size=0.01, n_draws=10)  # imports and compiles, which the times should not have
    results, seconds = {}, {name: 0.0 for name in SAMPLERS}
    for temperature, value in {"T = 1": 1.0, "T = 1/N": 1.0 / len(y)}.items():
        for name, sampler in SAMPLERS.items():
            runs = results[name, temperature] = []
            for step in steps:
                got = measure(X, y, prior, reference, sampler, step, value, len(args.seeds))
                runs.append(got[0])
                seconds[name] += got[1]
            print(temperature, name, [r.mean(axis=1).round(2).tolist() for r in runs], flush=True)
    body = BODY.format(
        n_runs=len(args.seeds),
        cost=seconds["pSGLD, as published"] / seconds["SGLD"],
        tables="\n\n".join(table(results, steps, t, len(y)) for t in ("T = 1", "T = 1/N")),
        verdict=verdict(results, steps),
    )
    figure = draw_figure(args, results, steps)
    title = "P2: SGLD and pSGLD on Australian"
    spread = f"± is the standard deviation over the {len(args.seeds)} runs."
    write_results(args, "p2_australian", title, body, [figure], spread=spread)


if __name__ == "__main__":
    main()
