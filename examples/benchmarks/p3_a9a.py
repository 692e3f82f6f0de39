"""Experiment P3: SGLD and pSGLD on a9a at the published setting (Li et al. 2016a, table 1, fig. 3).

SKBAYES_DATA=folder python examples/benchmarks/p3_a9a.py
"""

import numpy as np
from _common import markdown_table, mean_sd, new_figure, parse_args, save_figure, write_results
from _logistic import chain_probabilities, dense_a9a, error, fit, log_loss, running_average

from skbayes_sgmcmc.samplers import PSGLD, SGLD

BURN_IN, THINNING, N_DRAWS = 500, 50, 290
PUBLISHED = 14.85
SAMPLERS = {
    "pSGLD, as published": PSGLD(adapt="always", lag=False),
    "pSGLD, default": PSGLD(),
    "SGLD": SGLD(),
}
BODY = """
Logistic regression on a9a, prior N(0, 10) and no intercept (123 parameters, as published), step
size 0.05 (of the mean gradient), minibatches of 50, 15,000 steps of which {burn_in} are burn-in,
every {thinning}th kept. "pSGLD, as published" is `PSGLD(adapt="always", lag=False)`, whose V starts
at the square of the first minibatch's gradient (in the paper at 0); the default one freezes its
preconditioner after burn-in. T = 1 is the posterior's temperature; "as published", T = 1/N, is that
of the authors' code, whose noise is smaller by the square root of N than that of the paper's
equations. T = 0 gives the optimisers SGD and RMSprop. "Averaged": probabilities averaged over all
{n_draws} draws; "last": those of the last iterate. Steps: the first after which the averaged error
stays within 0.2% of its last value.

{table}

Published: 14.85% for both samplers (the paper does not say at which temperature and for which
iterates), and "pSGLD converges in less than 4,000 iterations, SGLD needs at least double".
{verdict}

The posterior itself, by the default estimator on the same model: {default}%. pSGLD reaches this
error in about a thousand steps, and does not get below it by more than a standard deviation with
either way of adapting or at any of the temperatures. SGLD has not converged after 15,000 steps: it
has hardly moved in the directions of rare features, and this predicts slightly better than the
posterior. The last iterates of pSGLD have more minibatch noise, as its steps are longer; averaging
removes it.
"""


def curves(sampler, temperature, data, n_chains, n_draws):
    """Errors of running averages (chains, draws), last errors and the averages' NLLs (chains,)."""
    X, y, X_test, y_test = data
    model, _ = fit(
        X,
        y,
        sampler=sampler,
        step_size=0.05,
        temperature=temperature,
        prior_scale=10.0**0.5,
        fit_intercept=False,
        batch_size=50,
        burn_in=BURN_IN,
        thinning=THINNING,
        n_draws=n_draws,
        n_chains=n_chains,
        random_state=0,
    )
    running, last, losses = [], [], []
    for chain in range(n_chains):
        p = chain_probabilities(model.posterior_, chain, X_test)
        average = running_average(p)
        running.append(error(y_test, average))
        last.append(error(y_test, p[-1]))
        losses.append(log_loss(y_test, average[-1]))
    return 100 * np.array(running), 100 * np.array(last), np.array(losses)


def steps_to_converge(running, steps):
    """Per chain, the step after which the error stays within 0.2% of its last value."""
    far = np.abs(running - running[:, -1:]) > 0.2
    first = [np.flatnonzero(chain)[-1] + 1 if chain.any() else 0 for chain in far]
    return steps[np.minimum(first, len(steps) - 1)]


def posterior_error(data, seeds):
    X, y, X_test, y_test = data
    chosen = {"prior_scale": 10.0**0.5, "fit_intercept": False}
    models = [fit(X, y, random_state=seed, **chosen)[0] for seed in seeds]
    return mean_sd([100 * (1 - model.score(X_test, y_test)) for model in models], 2)


def draw_figure(args, results, steps):
    figure, axes = new_figure(len({t for _, t in results}), width=3.8)
    panels = dict(zip(dict.fromkeys(t for _, t in results), axes, strict=True))
    colors = {"pSGLD, as published": "C0", "pSGLD, default": "C2", "SGLD": "C1"}
    for (sampler, temperature), (running, _, _) in results.items():
        ax, mean, sd = panels[temperature], running.mean(axis=0), running.std(axis=0)
        ax.plot(steps, mean, color=colors[sampler], label=sampler)
        ax.fill_between(steps, mean - sd, mean + sd, color=colors[sampler], alpha=0.2, lw=0)
    for temperature, ax in panels.items():
        ax.axhline(PUBLISHED, color="0.5", ls=":", label="published, both")
        ax.set(title=temperature, xlabel="step", ylim=(14.6, 16.6))
    axes[0].set_ylabel("test error of the running average, %")
    axes[0].legend(frameon=False)
    caption = "Test error of the running average by step (mean and sd over chains), as in fig. 3."
    return save_figure(args, figure, "p3_a9a", caption)


def verdict(results):
    averaged = {key: running[:, -1].mean() for key, (running, _, _) in results.items()}
    best = {
        name: min(v for k, v in averaged.items() if k[0].startswith(name) and k[1] != "T = 0")
        for name in ("pSGLD", "SGLD")
    }
    words = {True: "reproduced", False: "not reached"}
    return " ".join(
        f"{name}'s best averaged error here is {v:.2f}%: {words[v <= PUBLISHED + 0.05]} (to 0.05%)."
        for name, v in best.items()
    )


def main():
    args = parse_args(__doc__, seeds=10)
    data = dense_a9a()
    n_draws = 20 if args.quick else N_DRAWS
    steps = BURN_IN + THINNING * np.arange(1, n_draws + 1)
    temperatures = {"T = 1": 1.0, "as published, T = 1/N": 1.0 / len(data[1]), "T = 0": 0.0}
    results, rows = {}, []
    for sampler, chosen in SAMPLERS.items():
        for name, temperature in temperatures.items():
            got = curves(chosen, temperature, data, len(args.seeds), n_draws)
            results[sampler, name] = got
            running, last, losses = got
            cells = mean_sd(running[:, -1], 2), mean_sd(last, 2), mean_sd(losses, 4)
            rows.append([sampler, name, *cells, mean_sd(steps_to_converge(running, steps), 0)])
            print(rows[-1], flush=True)
    header = ["sampler", "temperature", "averaged, %", "last, %", "NLL averaged", "steps"]
    body = BODY.format(
        burn_in=BURN_IN,
        thinning=THINNING,
        n_draws=n_draws,
        table=markdown_table(header, rows),
        verdict=verdict(results),
        default=posterior_error(data, args.seeds[:3]),
    )
    figure = draw_figure(args, results, steps)
    spread = f"± is the standard deviation over the {len(args.seeds)} chains of seed 0."
    write_results(args, "p3_a9a", "P3: SGLD and pSGLD on a9a", body, [figure], spread=spread)


if __name__ == "__main__":
    main()
