"""P3: SGLD and pSGLD on a9a, at the posterior's temperature and as published.

SKBAYES_DATA=folder python examples/benchmarks/p3_a9a.py
"""

import numpy as np
from _common import markdown_table, mean_sd, new_figure, parse_args, save_figure, write_results
from _logistic import chain_probabilities, dense_a9a, error, fit, running_average

from skbayes_sgmcmc.samplers import PSGLD

ETA, BATCH, BURN_IN, THINNING, STEPS = 5e-2, 50, 500, 50, 15_000
SAMPLERS = {
    "SGLD": "sgld",
    "pSGLD (as published)": PSGLD(adapt="always", lag=False),
    "pSGLD (V frozen, lag)": PSGLD(),
}
BODY = """
a9a, prior N(0, 10), η = {eta:g}, batch {batch}, burn-in {burn_in}, thinning {thinning}, {steps:,}
iterations, {seeds} seeds (chains). Test error in %: of the last iterate, and of probabilities
averaged over the draws. T = 1 is the posterior; T = 1/N is the temperature at which the authors'
published code samples, whose noise has standard deviation √(2ηG)/N instead of √(2ηG/N).

{table}

Published: 14.85% for both samplers; pSGLD there in less than 4,000 iterations, SGLD in at least
twice as many. One binomial standard error of an error rate on 16,281 rows is 0.28%.
"""


def main():
    args = parse_args(__doc__, seeds=5, quick_seeds=2)
    X, y, X_test, y_test = dense_a9a()
    n_steps = 2000 if args.quick else STEPS
    iterations = BURN_IN + THINNING * np.arange(1, (n_steps - BURN_IN) // THINNING + 1)
    figure, axes = new_figure(2)
    rows = []
    for ax, (label, temperature) in zip(
        axes, {"T = 1": 1.0, "T = 1/N": 1.0 / len(y)}.items(), strict=True
    ):
        for name, sampler in SAMPLERS.items():
            model, _ = fit(
                X,
                y,
                prior_scale=10.0**0.5,
                sampler=sampler,
                step_size=ETA,
                batch_size=BATCH,
                temperature=temperature,
                n_chains=len(args.seeds),
                burn_in=BURN_IN,
                thinning=THINNING,
                n_draws=len(iterations),
                dtype="float32",
                random_state=0,
            )
            single, averaged = [], []
            for chain in range(model.n_chains_):
                p = chain_probabilities(model.posterior_, chain, X_test)
                single.append(100 * error(y_test, p))
                averaged.append(100 * error(y_test, running_average(p)))
            single, averaged = np.array(single), np.array(averaged)
            early = averaged[:, np.searchsorted(iterations, min(4000, n_steps))]
            cells = [single[:, -1], early, averaged[:, -1]]
            rows.append([name, label, *(mean_sd(c, 2) for c in cells), "14.85"])
            print(rows[-1], flush=True)
            ax.plot(iterations, averaged.mean(0), label=name)
        ax.set(xlabel="iterations", ylabel="test error of the average, %", title=label)
    axes[0].legend(frameon=False, fontsize="small")
    header = ["sampler", "T", "last iterate", "averaged, 4,000 it.", "averaged, end", "published"]
    body = BODY.format(
        eta=ETA,
        batch=BATCH,
        burn_in=BURN_IN,
        thinning=THINNING,
        steps=n_steps,
        seeds=len(args.seeds),
        table=markdown_table(header, rows),
    )
    caption = "Test error of the probabilities averaged so far, mean over the seeds."
    files = [save_figure(args, figure, "p3_a9a", caption)]
    spread = "± is the standard deviation over the chains of seed 0."
    write_results(args, "p3_a9a", "P3: SGLD and pSGLD on a9a", body, files, spread)


if __name__ == "__main__":
    main()
