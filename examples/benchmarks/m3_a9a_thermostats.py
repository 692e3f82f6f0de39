"""Experiment M3: thermostats and SGHMC on a9a over step sizes (Li et al. 2016b, table 2).

SKBAYES_DATA=folder python examples/benchmarks/m3_a9a_thermostats.py
"""

import numpy as np
from _common import (
    best_step,
    check_best_steps,
    markdown_table,
    mean_sd,
    new_figure,
    parse_args,
    save_figure,
    write_results,
)
from _logistic import chain_probabilities, dense_a9a, error, fit

from skbayes_sgmcmc.samplers import MSGNHT, SGHMC

BURN_IN, THINNING, N_STEPS = 300, 50, 30_000
STEPS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
OTHER_AT = 3e-4
PUBLISHED = {"mSGNHT-S": 84.95, "mSGNHT-E": 84.72, "SGHMC-S": 84.56, "SGHMC-E": 84.51}
COLORS = ("C0", "C1", "C0", "C1", "C2", "C2")  # of methods()
INTEGRATORS = {"S": "splitting", "E": "euler"}
BODY = """
Logistic regression on a9a, prior N(0, 10) and no intercept (123 parameters, as published),
minibatches of 10, {n_steps} steps of which {burn_in} are burn-in, every {thinning}th kept;
{n_chains} chains; T = 1. S: splitting, E: Euler. The paper's step h and diffusion D are `step_size
= N h^2` and `diffusion=D`; it does not give D here. With D = 10 the momentum is forgotten in 1/(D
h) steps, which is 100 steps at h = 1e-3. The thermostat mass is 1, as published, or "auto", which
relaxes faster. Accuracy in % of probabilities averaged over the draws of one chain.

{table}

Published: {published} (from "a large range of h").

Other values of D, at h = {other_at}:

{others}

{remark}

{edges}
"""
REMARK = """
The order of the published figures is not reproduced. Up to h = 0.01, where chains do not diverge,
the accuracies of all methods agree to less than 0.1% and are above the published figures. The
methods differ in the range of h that they tolerate: Euler's scheme diverges with the thermostats
from h = 1e-3 or 3e-3 on, and splitting does not. Without thermostats (SGHMC) both schemes tolerate
all of these steps. With ten rows a step, the gradient noise alone needs a friction of N^2 h^2
Var(g)/2 a step (about 8 at h = 1e-3, where Var(g) is 0.015); once the thermostat's friction passes
2, Euler's factor 1 - a oscillates and grows, while the splitting's exp(-a) damps.
"""


def methods():
    """Name, sampler class, parameters, integrator."""
    for letter, integrator in INTEGRATORS.items():
        for mass in (1.0, "auto"):
            yield f"mSGNHT-{letter}, mass {mass}", MSGNHT, {"mass": mass}, integrator
    for letter, integrator in INTEGRATORS.items():
        yield f"SGHMC-{letter}", SGHMC, {}, integrator


def accuracies(data, sampler, integrator, h, args):
    """Accuracy in % of every chain, NaN for those that diverged."""
    X, y, X_test, y_test = data
    n_steps = N_STEPS // 30 if args.quick else N_STEPS
    model, _ = fit(
        X,
        y,
        sampler=sampler,
        integrator=integrator,
        step_size=len(y) * h**2,
        batch_size=10,
        prior_scale=10.0**0.5,
        fit_intercept=False,
        burn_in=BURN_IN,
        thinning=THINNING,
        n_draws=(n_steps - BURN_IN) // THINNING,
        n_chains=len(args.seeds),
        random_state=0,
    )
    out = np.full(len(args.seeds), np.nan)
    for chain in range(0 if model is None else model.n_chains_):
        p = chain_probabilities(model.posterior_, chain, X_test).mean(axis=0)
        out[chain] = 100 * (1 - error(y_test, p))
    return out


def errors(by_step):
    return {h: 100.0 - np.asarray(values) for h, values in by_step.items()}


def best(by_step):
    """The best mean accuracy over steps at which no chain diverged, and its step."""
    h = best_step(errors(by_step))
    return f"{np.mean(by_step[h]):.2f} at {h:g}"


def draw_figure(args, results):
    figure, (ax,) = new_figure(1, width=6.0)
    for k, (name, by_step) in enumerate(results.items()):
        good = [h for h, values in by_step.items() if np.isfinite(values).any()]
        mean, sd = ([function(by_step[h]) for h in good] for function in (np.nanmean, np.nanstd))
        at = np.array(good) * 1.04 ** (k - 2.5)  # side by side
        style = {"ls": "-" if "-S" in name else "--", "color": COLORS[k], "marker": "."}
        ax.errorbar(at, mean, sd, label=name, **style)
    for name, value in PUBLISHED.items():
        ax.axhline(value, color="0.75", lw=0.8, zorder=0)
        ax.annotate(name, (STEPS[-1] * 1.4, value), fontsize=7, color="0.4", va="center")
    ax.set(xscale="log", xlabel="h", ylabel="test accuracy, %", ylim=(84.3, 85.2))
    ax.legend(frameon=False, fontsize=8, loc="lower left")
    caption = (
        "Accuracy by step size h (mean and sd over chains that did not diverge; a line ends where "
        "all diverged). Grey: published."
    )
    return save_figure(args, figure, "m3_a9a_thermostats", caption)


def main():
    args = parse_args(__doc__, seeds=5)
    data = dense_a9a()
    steps = STEPS[1::2] if args.quick else STEPS
    results, others = {}, []
    for name, sampler, parameters, integrator in methods():
        results[name] = {
            h: accuracies(data, sampler(diffusion=10.0, **parameters), integrator, h, args)
            for h in steps
        }
        cells = [
            mean_sd(
                accuracies(data, sampler(diffusion=D, **parameters), integrator, OTHER_AT, args), 2
            )
            for D in (1.0, 100.0)
        ]
        others.append([name, *cells])
        print(name, [mean_sd(v, 2) for v in results[name].values()], cells, flush=True)
    rows = [
        [name, *(mean_sd(values, 2) for values in by_step.values()), best(by_step)]
        for name, by_step in results.items()
    ]
    body = BODY.format(
        n_steps=f"{N_STEPS // 30 if args.quick else N_STEPS:,}",
        burn_in=BURN_IN,
        thinning=THINNING,
        n_chains=len(args.seeds),
        table=markdown_table(["", *(f"h = {h:g}" for h in steps), "best"], rows),
        published=", ".join(f"{name} {value}%" for name, value in PUBLISHED.items()),
        other_at=f"{OTHER_AT:g}",
        others=markdown_table(["", "D = 1", "D = 100"], others),
        remark=REMARK.strip(),
        edges=""
        if args.quick
        else check_best_steps(
            "m3_a9a_thermostats", {name: errors(by_step) for name, by_step in results.items()}
        ),
    )
    title = "M3: thermostats and SGHMC on a9a"
    figures = [draw_figure(args, results)]
    spread = "± is the standard deviation over the chains of seed 0."
    write_results(args, "m3_a9a_thermostats", title, body, figures, spread=spread)


if __name__ == "__main__":
    main()
