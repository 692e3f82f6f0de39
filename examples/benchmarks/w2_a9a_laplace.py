"""Experiment W2: SGLD on a9a with a Laplace prior, by sweeps (Welling & Teh 2011, fig. 3).

SKBAYES_DATA=folder python examples/benchmarks/w2_a9a_laplace.py
"""

import numpy as np
from _common import markdown_table, mean_sd, new_figure, parse_args, save_figure, write_results
from _logistic import chain_probabilities, dense_a9a, error, fit, log_loss, running_average
from sklearn.model_selection import train_test_split

from skbayes_sgmcmc.schedules import Polynomial

BATCH, N_SWEEPS, DRAWS_PER_SWEEP = 10, 10, 20
FIRST, LAST, GAMMA = 0.5, 0.05, 0.55
SHOWN = (0.05, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
BODY = """
Logistic regression on the 32,561 training rows of a9a. A random 80% of them train and the other 20%
test in each of {n_runs} runs; prior Laplace(0, 1) on all coefficients, the bias among them (a
column of ones), minibatches of 10, T = 1. `sampler="sgld"`, `step_size=Polynomial(first={first},
last={last}, gamma={gamma})`: a(b + t)^-0.55 over the {n_sweeps} sweeps of 2,605 steps each; the
paper does not give its a and b. In the paper's unit the step goes from {eps_first:.1e} to
{eps_last:.1e}. No burn-in. The log joint is log p(theta) + log p(training data | theta) of the
current iterate, per row. The accuracy is that of the current iterate, and that of probabilities
averaged over all draws so far with the step sizes as weights.

{table}

Published: accuracy converges in less than one sweep, to about 0.85 (read off fig. 3); the log joint
"after at most 10" sweeps. Here the averaged accuracy is within 0.002 of its last value for good
after {converged} sweeps; a full-data sampler's accuracy on the same splits: {default} (the default
estimator, {n_default} splits).
"""


def split(data, seed):
    """Rows of one run; the bias is a column of ones."""
    X, y = data
    X = np.hstack([X, np.ones((len(X), 1))])
    return train_test_split(X, y, test_size=0.2, random_state=seed)


def one_run(data, seed, n_sweeps):
    """Sweeps, and by draw the log joint per datum, accuracy of the iterate and of the average."""
    X, X_test, y, y_test = split(data, seed)
    per_sweep = -(-len(y) // BATCH)
    thinning = per_sweep // DRAWS_PER_SWEEP
    model, _ = fit(
        X,
        y,
        prior="laplace",
        prior_scale=1.0,
        fit_intercept=False,
        sampler="sgld",
        step_size=Polynomial(first=FIRST, last=LAST, gamma=GAMMA),
        batch_size=BATCH,
        n_chains=1,
        burn_in=0,
        thinning=thinning,
        n_draws=n_sweeps * per_sweep // thinning,
        random_state=seed,
    )
    posterior = model.posterior_
    coef = posterior["coef"][0, :, 0]
    log_prior = -np.abs(coef).sum(axis=1) - coef.shape[1] * np.log(2.0)
    joint = log_prior / len(y) - log_loss(y, chain_probabilities(posterior, 0, X))
    p = chain_probabilities(posterior, 0, X_test)
    averaged = running_average(p, posterior.weights)
    sweeps = thinning * np.arange(1, len(coef) + 1) / per_sweep
    return sweeps, np.array([joint, 1 - error(y_test, p), 1 - error(y_test, averaged)])


def default_accuracy(data, seeds):
    """Accuracy of the default estimator on the same splits: where a mixed chain would be."""
    accuracy = []
    for seed in seeds:
        X, X_test, y, y_test = split(data, seed)
        chosen = {"prior": "laplace", "fit_intercept": False, "n_draws": 250, "random_state": seed}
        accuracy.append(fit(X, y, **chosen)[0].score(X_test, y_test))
    return accuracy


def draw_figure(args, sweeps, curves):
    figure, axes = new_figure(2, width=4.2)
    mean, sd = curves.mean(axis=0), curves.std(axis=0)
    names = {0: ("C0", "current iterate"), 1: ("C0", "current iterate"), 2: ("C3", "averaged")}
    for k, (color, label) in names.items():
        ax = axes[min(k, 1)]
        ax.plot(sweeps, mean[k], color=color, label=label)
        ax.fill_between(sweeps, mean[k] - sd[k], mean[k] + sd[k], color=color, alpha=0.2, lw=0)
    axes[0].set(xlabel="sweeps", ylabel="log joint per datum")
    axes[1].set(xlabel="sweeps (first 2)", ylabel="test accuracy", xlim=(0, 2), ylim=(0.8, 0.86))
    axes[1].axhline(mean[2, -1], color="0.5", ls=":", label="averaged, at the end")
    axes[1].legend(frameon=False, loc="lower right")
    caption = "As fig. 3: log joint and accuracy by sweeps; mean over runs, band of one sd."
    return save_figure(args, figure, "w2_a9a_laplace", caption)


def main():
    args = parse_args(__doc__, seeds=50)
    data = dense_a9a()[:2]
    n_sweeps = 1 if args.quick else N_SWEEPS
    runs = []
    for seed in args.seeds:
        sweeps, curves = one_run(data, seed, n_sweeps)
        runs.append(curves)
    curves = np.array(runs)  # (runs, figure, draws)
    rows = []
    for shown in SHOWN:
        if shown <= sweeps[-1] + 0.1:
            at = curves[:, :, np.argmin(np.abs(sweeps - shown))].T
            rows.append([shown, mean_sd(at[0], 4), mean_sd(at[1], 4), mean_sd(at[2], 4)])
    header = ["sweeps", "log joint per datum", "accuracy, iterate", "accuracy, averaged"]
    mean = curves[:, 2].mean(axis=0)
    far = np.flatnonzero(np.abs(mean - mean[-1]) > 0.002)
    n_default = 2 if args.quick else 10
    n_train = len(data[1]) * 0.8
    body = BODY.format(
        n_runs=len(args.seeds),
        first=FIRST,
        last=LAST,
        gamma=GAMMA,
        n_sweeps=n_sweeps,
        eps_first=2 * FIRST / n_train,
        eps_last=2 * LAST / n_train,
        table=markdown_table(header, rows),
        converged=f"{sweeps[min(far[-1] + 1 if len(far) else 0, len(sweeps) - 1)]:.2f}",
        default=mean_sd(default_accuracy(data, args.seeds[:n_default]), 4),
        n_default=n_default,
    )
    figure = draw_figure(args, sweeps, curves)
    title = "W2: SGLD on a9a with a Laplace prior"
    write_results(args, "w2_a9a_laplace", title, body, [figure])


if __name__ == "__main__":
    main()
