"""P2: SGLD and pSGLD on the Australian credit data by step size.

SKBAYES_DATA=folder python examples/benchmarks/p2_australian.py
"""

import numpy as np
from _common import markdown_table, mean_sd, new_figure, parse_args, save_figure, write_results
from _logistic import fit, flat_draws, load_reference

from skbayes_sgmcmc.diagnostics import autocorrelation_time
from skbayes_sgmcmc.samplers import PSGLD

BATCH, STEPS = 5, 5000
EPSILONS = (1e-7, 1e-6, 1e-5, 1e-4)
SAMPLERS = {
    "SGLD": "sgld",
    "pSGLD (as published)": PSGLD(adapt="always", lag=False),
    "pSGLD (V frozen, lag)": PSGLD(),
}
BODY = """
Standardised features, prior N(0, 100), batch 5, {steps:,} iterations of which the last 4,000 are
kept, {runs} runs (chains) from zero; η = ε N / 2. Smallest ESS: draws / (2 ACT) of the worst of
the 15 parameters. Weight error: mean absolute difference between a run's means and those of a
long NUTS run, in posterior standard deviations; sd ratio: median over the parameters of a run's
sd over the true one.

{table}

Published (figure 2, without numbers, ε from 1e-7 to 1e-4 for both): pSGLD has much the larger
ESS, above all at large steps, and the smaller weight error. The paper does not say how the
features were scaled, nor what pSGLD's ε multiplies; the same η has another meaning under pSGLD's
preconditioner, whose entries are about 1/sd of the gradients: compare the curves at the best step
of each.
"""


def figures(draws, mean, sd):
    """Smallest ESS, weight error and sd ratio of one run's draws (draws, parameters)."""
    taus = [autocorrelation_time(column) for column in draws.T]
    error = np.abs(draws.mean(0) - mean) / sd
    return len(draws) / (2 * max(taus)), error.mean(), np.median(draws.std(0) / sd)


def main():
    args = parse_args(__doc__, seeds=50, quick_seeds=4)
    X, y, _, mean, sd = load_reference("australian")
    figure, axes = new_figure(2)
    rows = []
    for name, sampler in SAMPLERS.items():
        curves = []
        for epsilon in EPSILONS:
            model, _ = fit(
                X,
                y,
                prior_scale=10.0,
                sampler=sampler,
                step_size=epsilon * len(y) / 2,
                batch_size=BATCH,
                n_chains=len(args.seeds),
                burn_in=1000,
                thinning=2,
                n_draws=2000,
                init=np.zeros(X.shape[1] + 1),
                random_state=0,
            )
            if model is None:
                rows.append([name, f"{epsilon:g}", "diverged", "", ""])
                continue
            runs = np.array([figures(d, mean, sd) for d in flat_draws(model.posterior_)])
            cells = [mean_sd(runs[:, j], digits) for j, digits in enumerate((0, 2, 2))]
            rows.append([name, f"{epsilon:g}", *cells])
            print(rows[-1], flush=True)
            curves.append([epsilon, *runs.mean(0)])
        curves = np.array(curves)
        axes[0].plot(curves[:, 0], curves[:, 1], "o-", label=name)
        axes[1].plot(curves[:, 0], curves[:, 2], "o-", label=name)
    axes[0].set(xscale="log", yscale="log", xlabel="ε", ylabel="smallest ESS of 2,000 draws")
    axes[1].set(xscale="log", xlabel="ε", ylabel="weight error, posterior sd")
    axes[0].legend(frameon=False, fontsize="small")
    header = ["sampler", "ε", "smallest ESS", "weight error", "sd ratio"]
    body = BODY.format(steps=STEPS, runs=len(args.seeds), table=markdown_table(header, rows))
    caption = "Smallest effective sample size and weight error by step size, means over the runs."
    files = [save_figure(args, figure, "p2_australian", caption)]
    spread = f"± is the standard deviation over {len(args.seeds)} runs (chains of seed 0)."
    write_results(args, "p2_australian", "P2: Australian credit data", body, files, spread)


if __name__ == "__main__":
    main()
