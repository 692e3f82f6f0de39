"""Inclusion probabilities of sparse linear models compared with exact ones.

    OMP_NUM_THREADS=1 python examples/benchmarks/inclusion.py

The exact ones come from the enumeration of all sets of features in the slab (``_inclusion.py``).
"""

import time
import warnings

import numpy as np
from _common import SHORT_CHAINS, markdown_table, nll, parse_args, write_results
from _inclusion import N_TEST, PROBLEMS, exact_inclusion, make_problem
from scipy.stats import norm

from skbayes_sgmcmc import (
    SamplingWarning,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
    SpikeSlab,
)

METHODS = ("gibbs", "sa")
QUICK = ("few rows", "regression, few rows")

BODY = """
Eight features, some of which matter. Each problem has {n_test} new rows. All settings except the
adaptation of the latent variables are the defaults; "gibbs" is the default adaptation (at
temperature 1), "sa" the published one. The error of a fit is the largest difference between its
eight inclusion probabilities and the exact ones, which have delta integrated out. "Wrong" is the
number of features, of {n_features} in all seeds, on the wrong side of 0.5. NLL is that of new rows.
Errors and NLL are means over the seeds.

{table}

Over all problems and seeds: {summary}.

The exact probabilities come from importance sampling, and the smallest effective sample size of a
set with a probability above 0.001 is {ess:.0f}.

With correlations of 0.9, neighbours rarely change places in the slab. Seed 0 of "regression,
correlated" has 0.37 and 0.79 for the third and fourth features by default, 0.14 and 0.91 with
`burn_in=20000, n_draws=400, thinning=400`, and exactly 0.13 and 0.93.
"""


def fitted(name, seed, method, short):
    """Inclusion probabilities, NLL of new rows and processor time."""
    X, y, X_test, y_test = make_problem(name, seed)
    estimator = SparseBayesianClassifier if PROBLEMS[name][0] else SparseBayesianRegressor
    model = estimator(
        prior=SpikeSlab(adaptation=method), random_state=seed, **(SHORT_CHAINS if short else {})
    )
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        model.fit(X, y)
    seconds = time.process_time() - start
    if PROBLEMS[name][0]:
        loss = nll(y_test, model.predict_proba(X_test))
    else:
        mean, sd = model.predict(X_test, return_std=True)
        loss = float(-norm.logpdf(y_test, mean, sd).mean())
    return model.inclusion_probability_, loss, seconds


def main():
    args = parse_args(__doc__, seeds=2, quick_seeds=1)
    names = QUICK if args.quick else tuple(PROBLEMS)
    rows, least, every = [], np.inf, {method: [] for method in METHODS}
    for name in names:
        cells = {method: [] for method in METHODS}
        for seed in args.seeds:
            X, y, *_ = make_problem(name, seed)
            exact, ess = exact_inclusion(X, y, PROBLEMS[name][0], 500 if args.quick else 2000)
            least = min(least, ess)
            for method in METHODS:
                found, loss, seconds = fitted(name, seed, method, args.short)
                wrong = np.sum((found > 0.5) != (exact > 0.5))
                cells[method].append([np.abs(found - exact).max(), wrong, loss, seconds])
        row = [name]
        for method in METHODS:
            error, wrong, loss, _ = np.transpose(cells[method])
            row += [f"{error.mean():.3f}", f"{wrong.sum():.0f}", f"{loss.mean():.4f}"]
            every[method] += cells[method]
        rows.append(row)
    header = ["", *(f"{method}: {of}" for method in METHODS for of in ("error", "wrong", "NLL"))]
    parts = []
    for method, cells in every.items():
        error, wrong, loss, seconds = np.transpose(cells)
        parts.append(
            f"{method} has a mean error of {error.mean():.3f} (largest {error.max():.2f}), "
            f"{wrong.sum():.0f} features on the wrong side, a mean NLL of {loss.mean():.4f} and "
            f"{seconds.mean():.1f} s of processor time for a fit"
        )
    body = BODY.format(
        n_test=N_TEST, n_features=8 * len(args.seeds), table=markdown_table(header, rows),
        summary="; ".join(parts), ess=least,
    )  # fmt: skip
    title, spread = "Inclusion probabilities of sparse linear models", "Means over the seeds."
    write_results(args, "inclusion", title, body, spread=spread)


if __name__ == "__main__":
    main()
