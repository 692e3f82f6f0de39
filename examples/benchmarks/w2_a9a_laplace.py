"""W2: log joint and accuracy by sweeps of SGLD on a9a with a Laplace prior.

SKBAYES_DATA=folder python examples/benchmarks/w2_a9a_laplace.py
"""

import numpy as np
from _common import load_a9a, markdown_table, new_figure, parse_args, save_figure, write_results
from _logistic import fit
from scipy.sparse import vstack
from sklearn.model_selection import train_test_split

from skbayes_sgmcmc.schedules import Polynomial

BATCH, SWEEPS, POINTS = 10, 10, 100
#: eps from 1e-4 to 1e-5, in eta = eps N / 2: the paper gives the form of the schedule only
EPSILON_FIRST, EPSILON_LAST, GAMMA = 1e-4, 1e-5, 0.55
BODY = """
SGLD, batch {batch}, Laplace(0, 1) prior, {runs} runs, each on a random 80% of a9a's 32,561
training rows and tested on the other 20%; ε from {first:g} to {last:g}, γ = {gamma} (the paper
does not give a and b). Log joint: per training row, at single iterates. Accuracy: of single
iterates, and of probabilities averaged over the iterates so far, weighted by step size.

{table}

Published (figure 3): the accuracy converges in less than 1 sweep, to about 0.85; the log joint
after at most 10 sweeps.
"""


def one_run(X, y, seed, n_sweeps):
    """Log joint per row and accuracies at evenly spaced iterates of one split."""
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=seed)
    n = X_train.shape[0]
    thinning = n_sweeps * n // BATCH // POINTS
    schedule = Polynomial(EPSILON_FIRST * n / 2, EPSILON_LAST * n / 2, GAMMA)
    model, seconds = fit(
        X_train,
        y_train,
        prior="laplace",
        sampler="sgld",
        step_size=schedule,
        batch_size=BATCH,
        n_chains=1,
        n_draws=POINTS,
        burn_in=0,
        thinning=thinning,
        random_state=seed,
    )
    coef, intercept = model.posterior_["coef"][0, :, 0], model.posterior_["intercept"][0, :, 0]
    z = np.asarray(X_train @ coef.T) + intercept
    likelihood = -np.logaddexp(0.0, np.where(y_train[:, None] == 1, -z, z)).sum(0)
    prior = -np.abs(coef).sum(1) - coef.shape[1] * np.log(2.0)
    p = 1.0 / (1.0 + np.exp(-(np.asarray(X_test @ coef.T) + intercept)))
    weights = model.posterior_.weights
    averaged = np.cumsum(weights * p, axis=1) / np.cumsum(weights)
    truth = y_test[:, None] == 1
    accuracy = [((q > 0.5) == truth).mean(0) for q in (p, averaged)]
    return [(likelihood + prior) / n, *accuracy], seconds


def main():
    args = parse_args(__doc__, seeds=50, quick_seeds=2)
    X_train, y_train, _, _ = load_a9a()
    X, y = vstack([X_train]).tocsr(), y_train
    n_sweeps = 1 if args.quick else SWEEPS
    results = np.array([one_run(X, y, seed, n_sweeps)[0] for seed in args.seeds])
    sweeps = np.arange(1, POINTS + 1) * n_sweeps / POINTS
    mean, sd = results.mean(0), results.std(0, ddof=1)
    chosen = [np.searchsorted(sweeps, s - 1e-9) for s in (0.1, 0.5, 1, 2, 5, 10) if s <= n_sweeps]
    rows = [
        [f"{sweeps[k]:.1f}", *(f"{mean[j, k]:.4f} ± {sd[j, k]:.4f}" for j in range(3))]
        for k in chosen
    ]
    header = ["sweeps", "log joint per row", "accuracy, iterate", "accuracy, averaged"]
    figure, axes = new_figure(2)
    names = ("log joint per training row", "test accuracy")
    for ax, name, columns in zip(axes, names, ((0,), (1, 2)), strict=True):
        for j, label in zip(columns, ("iterate", "average so far"), strict=False):
            ax.plot(sweeps, mean[j], label=label)
            ax.fill_between(sweeps, mean[j] - sd[j], mean[j] + sd[j], alpha=0.2)
        ax.set(xlabel="sweeps through the training rows", ylabel=name)
    axes[1].legend(frameon=False)
    caption = f"Means over {len(args.seeds)} runs, with one standard deviation."
    body = BODY.format(
        batch=BATCH,
        runs=len(args.seeds),
        first=EPSILON_FIRST,
        last=EPSILON_LAST,
        gamma=GAMMA,
        table=markdown_table(header, rows),
    )
    files = [save_figure(args, figure, "w2_a9a_laplace", caption)]
    write_results(args, "w2_a9a_laplace", "W2: SGLD on a9a with a Laplace prior", body, files)


if __name__ == "__main__":
    main()
